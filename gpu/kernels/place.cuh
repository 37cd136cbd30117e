// Candidates behind the cut become beams of the next step, and entries of the pool.
//
// An entry's place in the list is what stands before its bin and a count of its bin, so the list
// comes out bin by bin. A node costs two dependent lookups: the inner nodes before it, and its
// children or its tail. Key ids are for results alone.
#pragma once
#include "candidates.cuh"

#ifndef SCAN_CHILDREN
#define SCAN_CHILDREN 1  // 0: every proposal is searched for, as the paper has it
#endif

// Work of a node with `count` children, at their cheaper side: UNIT children a unit, or a
// logarithm of probes for each proposal.
__device__ __forceinline__ u32 units_of(u32 count, u32 proposals) {
    bool searched = u64(proposals) * (32 - __clz(count)) < count;
    if (searched || !SCAN_CHILDREN) return BY_PROPOSAL;
    return u32((u64(count) + UNIT - 1) / UNIT);
}

// What the next step must know of a beam: its units and its place.
__device__ __forceinline__ uint4 find_place(const Step& s, u32 ref, bool in_tail, u32& units) {
    units = TAIL;
    if (in_tail) {
        uint4 place = fresh(s.block.list.places + ref);
        u64 next = fresh(s.nexts() + ref);
        place.x = u32(next);
        place.y = u32(next >> 32);
        return place;
    }
    const Level& level = s.block.level;
    u32 before;
    if (find_inner(level, ref, before)) {
        Children found = children(level, s.block.below, before);
        u32 count = found.stop - found.start;
        units = units_of(count, s.width());
        return make_uint4(found.start, count, found.lows, found.high);
    }
    u64 value;
    bool in_store = tail_of_leaf(s.search.trie, level, ref - before, value);
    u32 row = s.block.number - 1;
    return make_uint4(u32(value), u32(value >> 32), ref, in_store ? row : row | ONE_LABEL);
}

// A keyword's node, in the low half, and the row of its level.
__device__ __forceinline__ void put_keyword(
    const Step& s, u32 slot, float pooled, u32 origin, u32 ref, bool in_tail) {
    u64 place = u64(s.block.number - 1) << 32 | ref;
    if (in_tail) {
        uint4 leaf = fresh(s.block.list.places + ref);
        place = u64(leaf.w & ~ONE_LABEL) << 32 | leaf.z;
    }
    s.pool_keys(s.block.pool)[slot] = make_uint4(falling(pooled), s.block.number, origin, 0);
    s.pool_places(s.block.pool)[slot] = place;
}

__device__ __forceinline__ void place_hit(
    const Step& s, u32 bin, u32 pool_bin, float score, u32 origin, u32 ref, u32 kind) {
    const Block& block = s.block;
    const bool in_tail = kind & IN_TAIL;
    u64 key = order_key(score, origin);
    bool beam = bin < BINS && within(block.cut[BEAMS], bin, key);
    bool keyword = pool_bin < BINS;
    float pooled = 0.0f;
    if (keyword) {
        pooled = pool_score(score, block.end, block.penalty);
        keyword = within(block.cut[POOL], pool_bin, order_key(pooled, origin));
    }
    // Both counts are on their way while the beam's place is looked up.
    u32 slot = 0, pool_slot = 0;
    if (beam) slot = atomicAdd(s.cursors(BEAMS) + bin, 1u);
    if (keyword) pool_slot = atomicAdd(s.cursors(POOL) + pool_bin, 1u);
    if (beam) {
        u32 units;
        uint4 place = find_place(s, ref, in_tail, units);
        slot += block.bins[BEAMS][bin];
        if (slot < s.search.list_size) {
            block.next_list.keys[slot] = key;
            block.next_list.units[slot] = units;
            block.next_list.places[slot] = place;
        }
    }
    if (keyword) {
        pool_slot += block.bins[POOL][pool_bin] + block.pooled;
        if (pool_slot < s.search.pool_size) {
            put_keyword(s, pool_slot, pooled, origin, ref, in_tail);
        }
    }
}

// Count a digit of the key if it is one that a narrowing is about.
__device__ __forceinline__ void count_digit(const Step& s, u32 kind, u32 bin, u64 key) {
    const Cut& cut = s.block.cut[kind];
    if (!s.block.chosen[kind] || bin != cut.bin) return;
    if (cut.shift < 64 && key >> cut.shift != cut.prefix) return;
    atomicAdd(&s.block.digits[kind][key >> (cut.shift - 8) & (DIGITS - 1)], 1u);
}

// Take what is staged: put it in its place, or count digits.
__device__ __forceinline__ void take_staged(const Step& s, bool narrow) {
    u32 n = smaller(s.block.staged, u32(STAGE));
    for (u32 i = thread_here(); i < n; i += THREADS) {
        uint4 hit = s.block.stage[i];
        float score = of_falling(hit.x);
        u32 bin, pool_bin;
        if (!bins_of_hit(s, score, hit.w, bin, pool_bin)) continue;
        if (!narrow) {
            place_hit(s, bin, pool_bin, score, hit.y, hit.z, hit.w);
            continue;
        }
        if (bin < BINS) count_digit(s, BEAMS, bin, order_key(score, hit.y));
        if (pool_bin < BINS) {
            float pooled = pool_score(score, s.block.end, s.block.penalty);
            count_digit(s, POOL, pool_bin, order_key(pooled, hit.y));
        }
    }
}
