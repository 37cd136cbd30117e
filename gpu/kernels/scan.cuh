// The candidates of a step: the children of all beams, held against the set of proposals.
//
// A warp takes a unit at a time: 32 beams in tails, which have one child each; of a node, UNIT
// siblings, whose labels are read whole and looked up in the set; of a node with many more children
// than proposals, and of the root, 32 proposals, each searched for among the siblings. Units are
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

// Whether a score, or any below it, can still be of use: exact, since bins do not fall as scores
// fall.
__device__ __forceinline__ bool may_matter(const Step& s, float score) {
    if (!is_finite(score)) return score > 0;
    if (s.block.more && bin_of(s.block.best, score) <= s.block.bound[BEAMS]) return true;
    float pooled = pool_score(score, s.block.end, s.block.penalty);
    if (!is_finite(pooled)) return pooled > 0;
    return bin_of(s.block.pool_best, pooled) <= s.block.bound[POOL];
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
    __device__ __forceinline__ u32 load(u32 offset) const {
        return __funnelshift_r(__ldg(at + offset), __ldg(at + offset + 1), shift);
    }
};

// Labels of the siblings in rows of 32 from `first` on, which is the lane's, and their kinds, two
// bits a row; NONE behind the last sibling. All loads are independent.
__device__ __forceinline__ u32 read_labels(
    const Level& level, uint4 place, u32 first, u32 (&labels)[ROWS]) {
    u32 low_bits = u32(level.label_low_bits);
    u32 high_bits = u32(level.label_high_bits);
    BitAddress low(level.label_low, i64(place.x) + first, low_bits);
    BitAddress high(level.label_high, i64(place.w) + first - place.z, high_bits);
    u32 low_mask = FULL >> (32 - low_bits);
    u32 high_mask = high_bits > 0 ? FULL >> (32 - high_bits) : 0;
    u32 kinds = 0;
#pragma unroll
    for (u32 row = 0; row < ROWS; row++) {
        u32 child = first + row * 32;
        labels[row] = NONE;
        if (child < place.y) {
            labels[row] = low.load(row * low_bits) & low_mask;
            if (child >= place.z) {
                labels[row] |= (high.load(row * high_bits) & high_mask) << low_bits;
            }
#if DERIVED
            kinds |= kind_of(level, place.x + child) << 2 * row;
#endif
        }
    }
    return kinds;
}

// Where the tail of a beam goes on.
__device__ __forceinline__ Tail tail_of_beam(const Step& s, uint4 place) {
    bool in_store = true;
    u64 value = u64(place.y) << 32 | place.x;
    if (place.w & AT_LEAF) in_store = find_tail(s.search.trie, s.block.above, place.x, value);
    return tail_at(s.search.trie, in_store, value);
}

// Go on from `cursor`; true when all is scanned.
template <class Visit>
__device__ __forceinline__ bool scan(const Step& s, Visit visit, Cursor& cursor) {
    const Block& block = s.block;
    const Level& level = block.level;
    for (;; cursor.turn++) {
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
            u32 pair = (unit - block.child_units) * 32 + lane_id();
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
            if (!may_matter(s, __fadd_rn(before, block.most))) continue;
            first *= UNIT;
            if (ROOT_BITMAP || block.number > 1)
                kinds = read_labels(level, place, first + lane_id(), labels);
            else
                read_root_labels(s, first + lane_id(), labels);
        } else if (of_tails) {
            if (there) {
                Tail tail = tail_of_beam(s, place);
                labels[0] = tail.label;
                kinds = tail.ends ? ENDS : EXTENDS;
                s.nexts()[beam] = tail.next;
            }
        } else if (there && may_matter(s, __fadd_rn(before, logprob_at(s, first)))) {
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
                ref = NONE;
                if (k != NONE && k == first) {
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
        cursor.queued = 0;
        __syncwarp();
    }
    return true;
}
