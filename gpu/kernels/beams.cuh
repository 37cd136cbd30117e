// The beams of a step as work: their order, and units of work, nearly equal for all.
//
// Memory: a list has, of each beam, its key (which has score and origin), its units, and its
// place, 28 bytes in all. Every block of the team reads keys and units of all beams, since all must
// come to the same sums over units; a place is read where the beam is worked on.
//
// With few blocks and many children the step is done in two waves: first each beam's best proposals,
// which give bounds; then of the others only what those let pass. It costs a barrier.
#pragma once
#include "proposals.cuh"

#ifndef FIRST_PROPOSALS
#define FIRST_PROPOSALS 8  // of each beam in the first of two waves
#endif
#ifndef WAVE_UNITS
#define WAVE_UNITS 4  // a warp, from which on there are two waves
#endif
#ifndef TAIL_LANES
#define TAIL_LANES 32  // of a warp, which go on in tails together; 1: as beams in nodes do
#endif
#ifndef ROOT_BITMAP
#define ROOT_BITMAP 1  // 0: the children of the root are scanned, as those of any node are
#endif

#ifndef MOST_LANES
#define MOST_LANES 3  // log2 of the lanes that search for a proposal together, while there are enough
#endif

static constexpr u32 UNIT = 32 * ROWS;  // children

// Beside the number in `units`: proposals are searched for among the children, pair by pair of
// beam and proposal; the beam is in a tail. Neither has units.
static constexpr u32 BY_PROPOSAL = 1u << 31;
static constexpr u32 TAIL = 1u << 30;
static constexpr u32 UNITS = TAIL - 1;

static constexpr u32 CUT_OFF = 0xFFFF;  // in `rank`: not among the first B

static constexpr u32 KEYS_TOGETHER = 8;  // keys that a thread compares in a turn
static_assert(2 * STAGE % KEYS_TOGETHER == 0, "a list is filled up to a whole number of turns");

// In a tail, x and y of the place are the position in the store of the next label, or with this bit
// of w the only label; `place.z` is the leaf, `place.w` the row of its level. For a node the place
// is its first child, how many there are, and `lows` and `high` of Children.
static constexpr u32 ONE_LABEL = 1u << 31;

__device__ __forceinline__ u32 position_of_beam(const Step& s, u32 beam) {
    return s.block.sorted ? beam : s.block.rank[beam];
}

// What a scan goes through: beams in tails, if they are its own too, then units of children, then
// pairs. The totals, by the first thread.
__device__ __forceinline__ void set_units(const Step& s, u32 units, u32 pairs, bool with_tails) {
    Block& block = s.block;
    const bool tails = with_tails && block.number > 1;
    block.tail_units = tails ? (block.beams + TAIL_LANES - 1) / TAIL_LANES : 0;
    block.child_units = block.tail_units + units;
    block.pairs = pairs;
    block.pair_shift = 0;
    if (block.number > 1) {
        const u32 lanes = s.group() * THREADS;
        while (block.pair_shift < MOST_LANES && pairs << block.pair_shift <= lanes / 2) {
            block.pair_shift++;
        }
        if (block.pair_shift == 1) block.pair_shift = 0;  // two lanes have one probe, as one has
    }
    block.units = block.child_units + ((pairs << block.pair_shift) + 31) / 32;
    block.first_proposal = 0;
}

// Of a list that is not in order, the entries stand bin by bin, bin `cut_bin` last: an entry's
// position is what stands before its bin, and how many of its bin come before it. These are counted
// KEYS_TOGETHER at a time, with entries of other bins at both ends, whose keys are smaller before and larger
// behind. Where each beam came from goes into the history by its position, each block writing its
// share.
__device__ __forceinline__ void rank_beam(const Step& s, const u64* keys, u32 i, u32* history) {
    Block& block = s.block;
    u64 key = keys[i];
    u32 bin = bin_of(block.before_best, of_falling(u32(key >> 32)));
    u32 first = block.bins[BEAMS][bin] & ~(KEYS_TOGETHER - 1);
    u32 stop = bin == block.cut_bin ? block.beams : block.bins[BEAMS][bin + 1];
    u32 position = first;
    // Of right payloads no two keys are equal; of others two beams may share a position.
#pragma unroll 1
    for (u32 j = first; j < stop; j += KEYS_TOGETHER) {
        ulonglong2 pairs[KEYS_TOGETHER / 2];
        u32 before = 0;
#pragma unroll
        for (u32 n = 0; n < KEYS_TOGETHER / 2; n++) pairs[n] = ((const ulonglong2*)(keys + j))[n];
#pragma unroll
        for (u32 n = 0; n < KEYS_TOGETHER / 2; n++) {
            before += u32(pairs[n].x < key) + u32(pairs[n].y < key);
        }
        position += before;
    }
    bool kept = position < s.beam_width();
    block.rank[i] = kept ? u16(position) : u16(CUT_OFF);
    if (kept && (i & block.share_mask) == block.member) history[position] = u32(key);
    if (position == 0) block.best = __fadd_rn(of_falling(u32(key >> 32)), block.most);
}

// Units and pairs of entry `i` of a list that is not in order.
__device__ __forceinline__ u32 work_of_beam(const Step& s, const u64* keys, u32 i, u32* history) {
    u32 word = s.block.first_unit[i];
    rank_beam(s, keys, i, history);
    return s.block.rank[i] != CUT_OFF ? word : TAIL;
}

// Entry `i` of a list that is not in order: a key larger than any behind its end.
__device__ __forceinline__ u64 fetch_beam(const Step& s, u32 i, u32& word) {
    bool there = i < s.block.beams;
    word = there ? fresh(s.block.list.units + i) : 0;
    return there ? fresh(s.block.list.keys + i) : ~0ull;
}

// Sums of units and pairs before each beam, or run of beams, of which `work` says how many it has.
// The result is all units. A __syncthreads must follow.
template <class Work>
__device__ __forceinline__ u32 sum_work(const Step& s, u32 runs, bool with_tails, Work work) {
    Block& block = s.block;
    u32 each = (runs + THREADS - 1) / THREADS;
    u32 first = smaller(thread_here() * each, runs);
    u32 stop = smaller(first + each, runs);
    u32 before[2] = {0, 0}, totals[2];
#pragma unroll 1
    for (u32 number = first; number < stop; number++) {
        u32 units = 0, pairs = 0;
        work(number, units, pairs);
        block.first_unit[number] = units;
        block.first_pair[number] = pairs;
        before[0] += units;
        before[1] += pairs;
    }
    block_exclusive_sums(before, block.of_units, totals);
#pragma unroll 1
    for (u32 number = first; number < stop; number++) {
        u32 units = block.first_unit[number], pairs = block.first_pair[number];
        block.first_unit[number] = before[0];
        block.first_pair[number] = before[1];
        before[0] += units;
        before[1] += pairs;
    }
    if (threadIdx.x == 0) set_units(s, totals[0], totals[1], with_tails);
    return totals[0] + totals[1] / 32;
}

// The same of a run of beams, of a list in order.
__device__ __forceinline__ u32 work_of_run(const Step& s, u32 number, u32& by_proposal) {
    const u32 run = s.block.run;
    u32 units = 0;
    u32 last = smaller((number + 1) * run, s.block.beams);
    for (u32 i = number * run; i < last; i++) {
        u32 word = fresh(s.block.list.units + i);
        units += word & UNITS;
        by_proposal += word >> 31;
    }
    return units;
}

// Read the list: `first_unit` and `first_pair` get the sums before each beam, or run of beams. The
// result is all units. Something else is done on the way.
template <class Call>
__device__ __forceinline__ u32 read_beams(const Step& s, Call meanwhile) {
    Block& block = s.block;
    const u32 beams = block.beams;
    const bool in_bins = block.number > 1 && !block.sorted;
    u64* keys = (u64*)block.stage;
    u32* history = s.history(larger(block.number, 2u) - 1);
    u64 key = 0;
    u32 i = thread_here(), word = 0;
    if (in_bins) key = fetch_beam(s, i, word);
    meanwhile();
    u32 run = 1, runs = beams;
    if (in_bins) {
#pragma unroll 1
        while (i < ((beams + KEYS_TOGETHER - 1) & ~(KEYS_TOGETHER - 1))) {
            keys[i] = key;
            if (i < beams) block.first_unit[i] = word;
            i += THREADS;
            key = fetch_beam(s, i, word);
        }
    } else if (block.number == 1) {
        if (threadIdx.x == 0) {
            block.first_unit[0] =
                ROOT_BITMAP ? BY_PROPOSAL : u32((s.search.trie.alphabet_size + UNIT - 1) / UNIT);
            block.best = __fadd_rn(0.0f, block.most);
        }
    } else {
        run = (beams + GROUPS - 1) / GROUPS;
        runs = (beams + run - 1) / run;
#pragma unroll 1
        for (u32 j = s.thread(); j < beams; j += s.threads()) {
            history[j] = u32(fresh(block.list.keys + j));
        }
        if (threadIdx.x == 0) {
            block.best = __fadd_rn(of_falling(u32(fresh(block.list.keys) >> 32)), block.most);
        }
    }
    if (threadIdx.x == 0) {
        block.run = run;
        block.runs = runs;
    }
    __syncthreads();
    return sum_work(s, runs, true, [&](u32 number, u32& units, u32& pairs) {
        u32 by_proposal = 0;
        if (block.number > 1 && block.sorted) {
            units = work_of_run(s, number, by_proposal);
        } else {
            word = in_bins ? work_of_beam(s, keys, number, history) : block.first_unit[number];
            units = word & UNITS;
            by_proposal = word >> 31;
        }
        pairs = by_proposal * s.width();
    });
}

// Of words that do not fall, the last of `n` (up to GROUPS) that is at most `value`; the first
// always is. The warp together: three loads.
__device__ __forceinline__ u32 last_at_most(const u32* words, u32 n, u32 value) {
    static_assert(GROUPS <= 32 * 32 * 32, "three rounds");
    u32 first = 0;
#pragma unroll
    for (u32 stride = 1024; stride > 0; stride /= 32) {
        if (stride >= GROUPS) continue;
        u32 i = first + lane_id() * stride;
        bool holds = i < n && words[i] <= value;
        first += (31 - __clz(__ballot_sync(FULL, holds))) * stride;
    }
    return first;
}

// The beam that a unit of children is of, and which of its units it is. The warp together.
__device__ __forceinline__ u32 beam_of_unit(const Step& s, u32 unit, u32& within) {
    const u32 run = s.block.run;
    u32 number = last_at_most(s.block.first_unit, s.block.runs, unit);
    within = unit - s.block.first_unit[number];
    if (run == 1) return number;
    const u32* units = s.block.list.units + number * run;
    for (u32 i = 0;; i++) {
        u32 own = fresh(units + i) & UNITS;
        if (within < own) return number * run + i;
        within -= own;
    }
}

// The beam of a pair, and its proposal. Each lane for itself.
__device__ __forceinline__ u32 beam_of_pair(const Step& s, u32 pair, u32& proposal) {
    const u32 run = s.block.run;
    u32 low = 0, high = s.block.runs;
    while (high - low > 1) {
        u32 middle = (low + high) >> 1;
        bool before = s.block.first_pair[middle] <= pair;
        low = before ? middle : low;
        high = before ? high : middle;
    }
    proposal = pair - s.block.first_pair[low];
    if (run == 1) return low;
    const u32* units = s.block.list.units + low * run;
    for (u32 i = 0;; i++) {
        u32 own = fresh(units + i) & BY_PROPOSAL ? s.width() : 0;
        if (proposal < own) return low * run + i;
        proposal -= own;
    }
}
