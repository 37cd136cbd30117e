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

static constexpr u32 UNIT = 32 * ROWS;  // children

// Beside the number in `units`: proposals are searched for among the children, pair by pair of
// beam and proposal; the beam is in a tail. Neither has units.
static constexpr u32 BY_PROPOSAL = 1u << 31;
static constexpr u32 TAIL = 1u << 30;
static constexpr u32 UNITS = TAIL - 1;

static constexpr u32 CUT_OFF = 0xFFFF;  // in `rank`: not among the first B

// In a tail, `place.w` is the row of the leaf's level, with this bit while the leaf's own tail is
// still to be found; `place.x` is the number of the leaf then, else x and y are the position in
// the store of the next label. `place.z` is the leaf. For a node the place is its first child, how
// many there are, and `lows` and `high` of Children.
static constexpr u32 AT_LEAF = 1u << 31;

__device__ __forceinline__ u32 position_of_beam(const Step& s, u32 beam) {
    return s.block.sorted ? beam : s.block.rank[beam];
}

__device__ __forceinline__ u32 run_of_beams(const Step& s) {
    return (s.block.beams + GROUPS - 1) / GROUPS;
}

// What a scan goes through: beams in tails, if they are its own too, then units of children, then
// pairs. The totals, by the first thread.
__device__ __forceinline__ void set_units(const Step& s, u32 units, u32 pairs, bool with_tails) {
    Block& block = s.block;
    const bool tails = with_tails && block.number > 1;
    block.tail_units = tails ? (block.beams + TAIL_LANES - 1) / TAIL_LANES : 0;
    block.child_units = block.tail_units + units;
    block.units = block.child_units + (pairs + 31) / 32;
    block.pairs = pairs;
    block.first_proposal = 0;
}

// Of a list that is not in order, the entries stand bin by bin, bin `cut_bin` last: an entry's
// position is what stands before its bin, and how many of its bin come before it. Where each beam
// came from goes into the history by its position, each block writing its share.
__device__ __forceinline__ void rank_beam(const Step& s, const u64* keys, u32 i, u32* history) {
    Block& block = s.block;
    u64 key = keys[i];
    u32 bin = bin_of(block.before_best, of_falling(u32(key >> 32)));
    u32 first = block.bins[BEAMS][bin];
    u32 stop = bin == block.cut_bin ? block.beams : block.bins[BEAMS][bin + 1];
    u32 position = first;
    // Of right payloads no two keys are equal; of others two beams may share a position.
#pragma unroll 2
    for (u32 j = first; j < stop; j++) position += keys[j] < key;
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

// The same of a run of beams, of a list in order.
__device__ __forceinline__ u32 work_of_run(const Step& s, u32 group, u32 run, u32& by_proposal) {
    u32 units = 0;
    u32 last = smaller((group + 1) * run, s.block.beams);
    for (u32 i = group * run; i < last; i++) {
        u32 word = fresh(s.block.list.units + i);
        units += word & UNITS;
        by_proposal += word >> 31;
    }
    return units;
}

// Read the list: `first_unit` and `first_pair` get the sums before each beam, or run of beams. The
// result is all units.
__device__ __forceinline__ u32 read_beams(const Step& s) {
    Block& block = s.block;
    u32 beams = block.beams;
    u64* keys = (u64*)block.stage;
    u32* history = s.history(larger(block.number, 2u) - 1);
    u32 run = 1, groups = beams;
    if (block.number == 1) {
        if (threadIdx.x == 0) {
            block.first_unit[0] =
                ROOT_BITMAP ? BY_PROPOSAL : u32((s.search.trie.alphabet_size + UNIT - 1) / UNIT);
            block.best = __fadd_rn(0.0f, block.most);
        }
    } else if (!block.sorted) {
#pragma unroll 1
        for (u32 i = thread_here(); i < beams; i += THREADS) {
            keys[i] = fresh(block.list.keys + i);
            block.first_unit[i] = fresh(block.list.units + i);
        }
    } else {
        run = run_of_beams(s);
        groups = (beams + run - 1) / run;
#pragma unroll 1
        for (u32 i = s.thread(); i < beams; i += s.threads()) {
            history[i] = u32(fresh(block.list.keys + i));
        }
        if (threadIdx.x == 0) {
            block.best = __fadd_rn(of_falling(u32(fresh(block.list.keys) >> 32)), block.most);
        }
    }
    __syncthreads();
    u32 each = (groups + THREADS - 1) / THREADS;
    u32 first = smaller(thread_here() * each, groups);
    u32 stop = smaller(first + each, groups);
    u32 before[2] = {0, 0}, totals[2];
#pragma unroll 1
    for (u32 group = first; group < stop; group++) {
        u32 units = 0, by_proposal = 0;
        if (block.number > 1 && block.sorted) {
            units = work_of_run(s, group, run, by_proposal);
        } else {
            u32 word = block.number > 1 ? work_of_beam(s, keys, group, history)
                                        : block.first_unit[group];
            units = word & UNITS;
            by_proposal = word >> 31;
        }
        block.first_unit[group] = units;
        block.first_pair[group] = by_proposal * s.width();
        before[0] += units;
        before[1] += by_proposal * s.width();
    }
    block_exclusive_sums(before, block.of_units, totals);
#pragma unroll 1
    for (u32 group = first; group < stop; group++) {
        u32 units = block.first_unit[group], pairs = block.first_pair[group];
        block.first_unit[group] = before[0];
        block.first_pair[group] = before[1];
        before[0] += units;
        before[1] += pairs;
    }
    if (threadIdx.x == 0) set_units(s, totals[0], totals[1], true);
    return totals[0] + totals[1] / 32;
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
    u32 run = run_of_beams(s);
    u32 groups = (s.block.beams + run - 1) / run;
    u32 group = last_at_most(s.block.first_unit, groups, unit);
    within = unit - s.block.first_unit[group];
    if (run == 1) return group;
    const u32* units = s.block.list.units + group * run;
    for (u32 i = 0;; i++) {
        u32 own = fresh(units + i) & UNITS;
        if (within < own) return group * run + i;
        within -= own;
    }
}

// The beam of a pair, and its proposal. Each lane for itself.
__device__ __forceinline__ u32 beam_of_pair(const Step& s, u32 pair, u32& proposal) {
    u32 run = run_of_beams(s);
    u32 low = 0, high = (s.block.beams + run - 1) / run;
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
