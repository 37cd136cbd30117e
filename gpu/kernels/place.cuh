// Candidates behind the cut become beams of the next step, and entries of the pool.
//
// An entry's place in the list is what stands before its bin and a count of its bin, so the list
// comes out bin by bin. An inner node costs two dependent lookups: its number among the inner nodes,
// and its children. The way to the tail of a leaf is longer, and is
// gone when the beam is scanned, beside the work on other beams; key ids are for results alone.
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

__device__ __forceinline__ void put_beam(
    const Step& s, u32 slot, u64 key, u32 ref, bool in_tail) {
    u32 units = TAIL;
    uint4 place;
    if (in_tail) {
        place = fresh(s.block.list.places + ref);
        u64 next = fresh(s.nexts() + ref);
        place.x = u32(next);
        place.y = u32(next >> 32);
        place.w &= ~AT_LEAF;
    } else {
        const Level& level = s.block.level;
        u32 before;
        if (find_inner(level, ref, before)) {
            Children found = children(level, s.block.below, before);
            u32 count = found.stop - found.start;
            place = make_uint4(found.start, count, found.lows, found.high);
            units = units_of(count, s.width());
        } else {
            place = make_uint4(ref - before, 0, ref, (s.block.number - 1) | AT_LEAF);
        }
    }
    s.block.next_list.keys[slot] = key;
    s.block.next_list.units[slot] = units;
    s.block.next_list.places[slot] = place;
}

// A keyword's node, in the low half, and the row of its level.
__device__ __forceinline__ void put_keyword(
    const Step& s, u32 slot, float pooled, u32 origin, u32 ref, bool in_tail) {
    u64 place = u64(s.block.number - 1) << 32 | ref;
    if (in_tail) {
        uint4 leaf = fresh(s.block.list.places + ref);
        place = u64(leaf.w & ~AT_LEAF) << 32 | leaf.z;
    }
    s.pool_keys(s.block.pool)[slot] = make_uint4(falling(pooled), s.block.number, origin, 0);
    s.pool_places(s.block.pool)[slot] = place;
}

__device__ __forceinline__ void place_hit(
    const Step& s, u32 bin, u32 pool_bin, float score, u32 origin, u32 ref, u32 kind) {
    const Block& block = s.block;
    if (bin < BINS) {
        u64 key = order_key(score, origin);
        if (within(block.cut[BEAMS], bin, key)) {
            u32 slot = block.bins[BEAMS][bin] + atomicAdd(s.cursors(BEAMS) + bin, 1u);
            if (slot < s.search.list_size) put_beam(s, slot, key, ref, kind & IN_TAIL);
        }
    }
    if (pool_bin < BINS) {
        float pooled = pool_score(score, s.block.end, s.block.penalty);
        if (within(block.cut[POOL], pool_bin, order_key(pooled, origin))) {
            u32 slot = block.bins[POOL][pool_bin] + atomicAdd(s.cursors(POOL) + pool_bin, 1u);
            slot += s.block.pooled;
            if (slot < s.search.pool_size) {
                put_keyword(s, slot, pooled, origin, ref, kind & IN_TAIL);
            }
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
