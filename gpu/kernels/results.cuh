// The pool's first B as results: in order, with key ids, lengths, values and tokens.
//
// Mostly the bins order the pool: every block reads it whole, keeps what the last cut keeps, bin
// by bin in shared memory, and writes its share. Tokens come from the proposals of each step, along
// the history of beams: a dependent load a token.
#pragma once
#include "place.cuh"

__device__ __forceinline__ i64 value_of(const Trie& trie, u64 key) {
    u64 difference =
        trie.value_bits > 0 ? packed_wide(trie.values, u32(trie.value_bits), key) : 0;
    return i64(u64(trie.value_min) + difference);
}

__device__ __forceinline__ void write_result(const Step& s, u32 position, uint4 entry) {
    const Search& search = s.search;
    u64 at = u64(s.block.query) * search.beam_width + position;
    u32 step = entry.y, origin = entry.z;
    u64 place = fresh(s.pool_places(s.block.pool) + entry.w);
    u64 key = key_id(search.trie, search.trie.levels[place >> 32], u32(place));
    search.key_ids[at] = i64(key);
    search.scores[at] = of_falling(entry.x);
    search.lengths[at] = int(step);
    if (search.values) search.values[at] = value_of(search.trie, key);
    u32* tokens = search.result_tokens + at * search.steps;
#pragma unroll 1
    for (u32 t = step; t < search.steps; t++) tokens[t] = NONE;
#pragma unroll 1
    for (u32 t = step; t > 0; t--) {
        // Of a wrong payload the history may have holes.
        u64 row = u64(s.block.query) * search.given_steps + t - 1;
        u32 k = smaller(origin & 0xFFFF, s.width() - 1);
        tokens[t - 1] = u32(token_at(search.tokens, row * search.width + k));
        u32 beam = smaller(origin >> ORIGIN_BITS, s.beam_width() - 1);
        if (t > 1) origin = fresh(s.history(t - 1) + beam);
    }
}

__device__ __forceinline__ void write_nothing(const Step& s, u32 position) {
    const Search& search = s.search;
    u64 at = u64(s.block.query) * search.beam_width + position;
    search.key_ids[at] = -1;
    search.scores[at] = __int_as_float(0xFF800000);
    search.lengths[at] = 0;
    if (search.values) search.values[at] = 0;
#pragma unroll 1
    for (u32 t = 0; t < search.steps; t++) search.result_tokens[at * search.steps + t] = NONE;
}

// The sum of the pool's counts up to its cut, and the largest of them.
__device__ __forceinline__ u32 count_kept(const Step& s, u32 cut_bin, u32& largest) {
    Block& block = s.block;
    u32 sum = 0, most = 0;
#pragma unroll 1
    for (u32 i = thread_here(); i <= cut_bin; i += THREADS) {
        sum += block.pool_bins[i];
        most = larger(most, block.pool_bins[i]);
    }
    u32 total;
    block_exclusive_sum(sum, block.sums[0], total);
    most = __reduce_max_sync(FULL, most);
    if (lane_id() == 0) block.sums[1][warp_id()] = most;
    __syncthreads();
    most = lane_id() < WARPS ? block.sums[1][lane_id()] : 0;
    largest = __reduce_max_sync(FULL, most);
    return total;
}

// Write the results by ranks within bins, all in shared memory, if the pool has every keyword of
// the bins that it keeps, and these are few. Whether that was so.
__device__ __forceinline__ bool write_binned(const Step& s) {
    Block& block = s.block;
    u32 cut_bin = block.cut[POOL].bin;
    u32 largest;
    __syncthreads();
    u32 kept = count_kept(s, cut_bin, largest);
    if (!s.block.pool_whole || kept > STAGE || largest > SMALL_BIN) return false;
    for (u32 i = thread_here(); i < BINS; i += THREADS) block.bins[0][i] = 0;
    block_scan(block.pool_bins, BINS, block.sums[0]);
    const uint4* pool = s.pool_keys(s.block.pool);
    for (u32 i = thread_here(); i < s.block.pooled; i += THREADS) {
        uint4 entry = fresh(pool + i);
        u32 bin = bin_of(s.block.pool_best, of_falling(entry.x));
        if (bin > cut_bin) continue;
        entry.w = i;
        u32 slot = block.pool_bins[bin] + atomicAdd(&block.bins[0][bin], 1u);
        if (slot < kept) s.block.stage[slot] = entry;
    }
    __syncthreads();
    for (u32 i = thread_here(); i < kept; i += THREADS) {
        uint4 entry = block.stage[i];
        // Within a bin the order here is this block's own: who writes goes by the pool's.
        if ((entry.w & block.share_mask) != block.member) continue;
        u32 bin = bin_of(s.block.pool_best, of_falling(entry.x));
        u32 first = block.pool_bins[bin];
        u32 stop = bin == cut_bin ? kept : block.pool_bins[bin + 1];
        u32 position = first;
        for (u32 j = first; j < stop; j++) position += precedes(s.block.stage[j], entry);
        if (position < s.beam_width()) write_result(s, position, entry);
    }
    return true;
}
