// The candidates of a step: the children of all beams, held against the set of proposals.
//
// A warp takes a unit at a time: 32 beams in tails, which have one child each; of a node, UNIT
// siblings, whose labels are read whole and looked up in the set; of a node with many more children
// than proposals, and of the root, up to 32 proposals, each searched for among the siblings, by
// some lanes together where there are enough. Units are
// dealt out to the blocks in turn, best beams first, so that blocks end together and each sees good
// candidates early, which lets it drop others.
//
// A lane first reads its ROWS labels, all loads at once. Those that the filter lets pass are queued
// in shared memory, a byte each, so that they are then looked up 32 at a time. The visitor gets
// such a round's candidates together, and may refuse them for want of room; the warp then stops,
// and goes on there when it is called again.
#pragma once
#include "beams.cuh"

static constexpr u32 IN_TAIL = 4;  // beside EXTENDS and ENDS

// How far a warp has come: the turn, and how much of its queue is done.
struct Cursor {
    u32 turn;
    u32 queued;
};

// Whether a score, or any below it, can still be of use within bounds: exact, since bins do not fall
// as scores fall.
__device__ __forceinline__ bool may_matter(const Step& s, float score, const u32 (&bound)[2]) {
    const Block& block = s.block;
    float pooled = pool_score(score, block.end, block.penalty);
    bool beam = block.more & (bin_of(block.best, score) <= bound[BEAMS]);
    bool keyword = pooled > 0;
    if (is_finite(pooled)) keyword = bin_of(block.pool_best, pooled) <= bound[POOL];
    return is_finite(score) ? beam | keyword : score > 0;
}

__device__ __forceinline__ u32 find_root_child(const Step& s, u32 label) {
    const Trie& trie = s.search.trie;
    if (!bit((const u32*)trie.root, label)) return NONE;
    return smaller(rank(trie.root, trie.root_rank, u64(label)), u32(s.block.level.nodes) - 1);
}

// As `read_labels`, of the root: labels that have a child.
__device__ __forceinline__ void read_root_labels(const Step& s, u32 first, u32 (&labels)[ROWS]) {
    const Trie& trie = s.search.trie;
#pragma unroll
    for (u32 row = 0; row < ROWS; row++) {
        const u32 label = first + row * 32;
        const bool there = label < trie.alphabet_size && bit((const u32*)trie.root, label);
        labels[row] = there ? label : NONE;
    }
}

// A bit offset as a word to load and a shift: rows of 32 elements lie `width` words apart.
struct BitAddress {
    const u32* at;
    u32 shift;

    // `first` may be negative, for what is not loaded.
    __device__ __forceinline__ BitAddress(const u32* words, i64 first, u32 width) {
        i64 bits = first * i64(width);
        at = words + (bits >> 5);
        shift = u32(bits) & 31;
    }
};

// Labels of the siblings in rows of 32 from `first` on, which is the lane's, and their kinds, two
// bits a row; NONE behind the last sibling. All loads are on their way before the first is used.
__device__ __forceinline__ u32 read_labels(
    const Level& level, uint4 place, u32 first, u32 (&labels)[ROWS]) {
    u32 low_bits = u32(level.label_low_bits);
    u32 high_bits = u32(level.label_high_bits);
    BitAddress low(level.label_low, i64(place.x) + first, low_bits);
    BitAddress high(level.label_high, i64(place.w) + first - place.z, high_bits);
    const u32* kind_words = level.kinds + (place.x + first) / 16;
    u32 lows[2 * ROWS], highs[2 * ROWS], kinds_here[ROWS];
#pragma unroll
    for (u32 row = 0; row < ROWS; row++) {
        u32 child = first + row * 32;
        bool there = child < place.y, has_high = there && child >= place.z;
        const u32 *low_at = low.at + row * low_bits, *high_at = high.at + row * high_bits;
        lows[2 * row] = there ? __ldg(low_at) : 0;
        lows[2 * row + 1] = there ? __ldg(low_at + 1) : 0;
        highs[2 * row] = has_high ? __ldg(high_at) : 0;
        highs[2 * row + 1] = has_high ? __ldg(high_at + 1) : 0;
        kinds_here[row] = DERIVED && there ? __ldg(kind_words + row * 2) : 0;
    }
    u32 low_mask = FULL >> (32 - low_bits);
    u32 high_mask = high_bits > 0 ? FULL >> (32 - high_bits) : 0;
    u32 kind_shift = (place.x + first) % 16 * 2;
    u32 kinds = 0;
#pragma unroll
    for (u32 row = 0; row < ROWS; row++) {
        u32 label = __funnelshift_r(lows[2 * row], lows[2 * row + 1], low.shift) & low_mask;
        u32 part = __funnelshift_r(highs[2 * row], highs[2 * row + 1], high.shift) & high_mask;
        labels[row] = first + row * 32 < place.y ? label | part << low_bits : NONE;
        kinds |= (kinds_here[row] >> kind_shift & 3) << 2 * row;
    }
    return kinds;
}

// As find_child, for lanes whose label is `wanted`, 2^pair_shift of which, two or more, have the same
// one: they look at as many places but one in a turn. The warp together. The first of them gets the
// node.
__device__ __forceinline__ u32 find_child_by_lanes(
    const Step& s, uint4 place, u32 label, bool wanted) {
    const Level& level = s.block.level;
    const u32 shift = s.block.pair_shift, lane = lane_id() & ((1u << shift) - 1);
    const u32 first_lane = lane_id() - lane;
    const u32 lanes = ((1u << (1u << shift)) - 1) << first_lane;
    const u32 parts = 1u << shift;  // with a probe between one and the next
    Siblings left = siblings_with(level, place, label);
    if (!wanted) left.n = 0;
    u32 found = NONE;
    while (__any_sync(FULL, left.n > 0)) {
        u32 part = (left.n >> shift) + ((left.n & (parts - 1)) > 0);
        u32 probe = (lane + 1) * part - 1;
        bool there = lane + 1 < parts && probe < left.n;
        u32 value = there ? left.label(level, left.base + probe) : NONE;
        u32 before = __popc(__ballot_sync(FULL, there && value < label) & lanes);
        u32 equal = __ballot_sync(FULL, there && value == label) & lanes;
        left.n = smaller(left.n - before * part, before + 1 < parts ? part - 1 : part);
        if (equal) found = left.base + (__ffs(equal) - first_lane) * part - 1, left.n = 0;
        left.base += before * part;
    }
    return lane == 0 ? found : NONE;
}

// Go on from `cursor`; true when all is scanned.
template <class Visit>
__device__ __forceinline__ bool scan(const Step& s, Visit visit, Cursor& cursor) {
    const Block& block = s.block;
    const Level& level = block.level;
    for (;; cursor.turn++, cursor.queued = 0) {
        u32 unit = (cursor.turn * WARPS + warp_id()) * s.group() + block.member;
        if (unit >= block.units) break;
        u32 labels[ROWS];
#pragma unroll
        for (u32 row = 0; row < ROWS; row++) labels[row] = NONE;
        u32 kinds = 0;
        u32 beam = 0, first = 0;
        bool of_tails = unit < block.tail_units;
        bool of_children = !of_tails && unit < block.child_units;
        bool there = true;
        if (of_children) {
            beam = beam_of_unit(s, unit - block.tail_units, first);
        } else if (of_tails) {
            beam = unit * TAIL_LANES + lane_id();
            there = lane_id() < TAIL_LANES && beam < block.beams &&
                    (block.sorted || block.rank[beam] != CUT_OFF) &&
                    (fresh(s.block.list.units + beam) & TAIL);
        } else {
            u32 pair = ((unit - block.child_units) * 32 + lane_id()) >> block.pair_shift;
            there = pair < block.pairs;
            if (there) beam = beam_of_pair(s, pair, first);
            first += block.first_proposal;
        }
        uint4 place = make_uint4(0, 0, 0, 0);
        float before = 0.0f;
        u32 origin = 0;
        if (there && block.number > 1) {
            place = fresh(s.block.list.places + beam);
            before = of_falling(u32(fresh(s.block.list.keys + beam) >> 32));
            origin = position_of_beam(s, beam) << ORIGIN_BITS;
        }
        if (of_children) {
            if (!may_matter(s, __fadd_rn(before, block.most), block.bound)) continue;
            first *= UNIT;
            if (ROOT_BITMAP || block.number > 1)
                kinds = read_labels(level, place, first + lane_id(), labels);
            else
                read_root_labels(s, first + lane_id(), labels);
        } else if (of_tails) {
            if (there) {
                u64 value = u64(place.y) << 32 | place.x;
                Tail tail = tail_at(s.search.trie, !(place.w & ONE_LABEL), value);
                labels[0] = tail.label;
                kinds = tail.ends ? ENDS : EXTENDS;
                s.nexts()[beam] = tail.next;
            }
        } else if (there && may_matter(s, __fadd_rn(before, logprob_at(s, first)), block.bound)) {
            labels[0] = fresh(s.step_ranks(block.number) + first);
        }
        // Children are queued; others, one a lane, stay where they are.
        u8* queue = s.block.queue[warp_id()];
        u32 queued = 0;
#pragma unroll
        for (u32 row = 0; row < ROWS; row++) {
            bool marked = labels[row] != NONE && may_have(s, labels[row]);
            u32 lanes = __ballot_sync(FULL, marked);
            u32 at = queued + __popc(lanes & ((1u << lane_id()) - 1));
            if (marked && of_children) queue[at] = u8(row * 32 + lane_id());
            if (!marked && row == 0 && !of_children) labels[0] = NONE;
            queued += __popc(lanes);
        }
        __syncwarp();
        if (queued > 0 && !of_children) queued = 32;
        for (; cursor.queued < queued; cursor.queued += 32) {
            u32 label = labels[0];
            u32 ref = beam, kind = kinds | IN_TAIL;
            if (of_children) {
                u32 item = cursor.queued + lane_id();
                u32 code = item < queued ? queue[item] : 0;
                label = __shfl_sync(FULL, labels[0], code & 31);
#pragma unroll
                for (u32 row = 1; row < ROWS; row++) {
                    u32 other = __shfl_sync(FULL, labels[row], code & 31);
                    label = code / 32 == row ? other : label;
                }
                kind = __shfl_sync(FULL, kinds, code & 31) >> 2 * (code / 32) & 3;
                kind = flags_of_kind(kind);
                if (item >= queued) label = NONE;
                ref = place.x + first + code;
            }
            u32 k = label != NONE ? find(s, label) : NONE;
            if (of_children && k < block.first_proposal) k = NONE;
            if (!ROOT_BITMAP && block.number == 1 && k != NONE) {
                ref = find_root_child(s, label);
                kind = flags_of_kind(kind_of(level, ref));
            }
#if !DERIVED
            if (of_children && k != NONE) kind = flags_of_kind(kind_of(level, ref));
#endif
            if (!of_children && !of_tails) {
                // Of a repeated proposal only the first counts.
                bool wanted = k != NONE && k == first;
                ref = NONE;
                if (block.pair_shift > 0) {
                    ref = find_child_by_lanes(s, place, label, wanted);
                } else if (wanted) {
                    ref = block.number > 1 ? find_child(level, place, label)
                                           : find_root_child(s, label);
                }
                if (ref != NONE) {
                    kind = flags_of_kind(kind_of(level, ref));
                } else {
                    k = NONE;
                }
            }
            float score = k != NONE ? __fadd_rn(before, logprob_at(s, k)) : 0.0f;
            if (!visit(k != NONE, score, origin | k, ref, kind)) return false;
        }
        __syncwarp();
    }
    return true;
}
