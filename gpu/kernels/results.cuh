// The pool's first B as results: in order, with key ids, lengths, values and tokens.
//
// Mostly the bins order the pool: every block reads it whole, keeps what the last cut keeps, bin
// by bin in shared memory, and writes its share. Tokens come from the proposals of each step.
#pragma once
#include "place.cuh"

__device__ __forceinline__ i64 value_of(const Trie& trie, u64 key) {
    u64 difference =
        trie.value_bits > 0 ? packed_wide(trie.values, u32(trie.value_bits), key) : 0;
    return i64(u64(trie.value_min) + difference);
}

// Of a result all but its tokens, by the entry of the pool: four dependent loads.
__device__ __forceinline__ void write_keyword(const Step& s, u32 position, uint4 entry) {
    const Search& search = s.search;
    u64 at = u64(s.block.query) * search.beam_width + position;
    u64 place = fresh(s.pool_places(s.block.pool) + entry.w);
    u64 key = key_id(search.trie, search.trie.levels[place >> 32], u32(place));
    search.key_ids[at] = i64(key);
    search.scores[at] = of_falling(entry.x);
    search.lengths[at] = int(entry.y);
    if (search.values) search.values[at] = value_of(search.trie, key);
}

__device__ __forceinline__ u32* tokens_of_result(const Step& s, u32 position) {
    u64 at = u64(s.block.query) * s.search.beam_width + position;
    return s.search.result_tokens + at * s.search.steps;
}

// In the place of a result's tokens which proposals they are, along the history of beams: a
// dependent load each.
__device__ __forceinline__ void write_proposals(const Step& s, u32 position, uint4 entry) {
    u32 step = entry.y, origin = entry.z;
    u32* tokens = tokens_of_result(s, position);
#pragma unroll 1
    for (u32 t = step; t < s.search.steps; t++) tokens[t] = NONE;
#pragma unroll 1
    for (u32 t = step; t > 0; t--) {
        // Of a wrong payload the history may have holes.
        tokens[t - 1] = smaller(origin & 0xFFFF, s.width() - 1);
        u32 beam = smaller(origin >> ORIGIN_BITS, s.beam_width() - 1);
        if (t > 1) origin = fresh(s.history(t - 1) + beam);
    }
}

// The token of a proposal that stands in its place.
__device__ __forceinline__ void write_token(const Step& s, u32 position, u32 t) {
    u32* token = tokens_of_result(s, position) + t;
    u32 k = fresh(token);
    if (k != NONE) *token = u32(s.token(t + 1, k));
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
    block_exclusive_sum(sum, block.sums[0][0], total);
    most = __reduce_max_sync(FULL, most);
    if (lane_id() == 0) block.sums[1][0][warp_id()] = most;
    __syncthreads();
    most = lane_id() < WARPS ? block.sums[1][0][lane_id()] : 0;
    largest = __reduce_max_sync(FULL, most);
    return total;
}

static constexpr u32 MOST_BINNED = STAGE < 2 * BINS ? STAGE : 2 * BINS;  // of what is kept
static_assert(MOST_BINNED <= 1 << 16, "halves of a word");

// Write the results by ranks within bins, all in shared memory, if the pool has every keyword of
// the bins that it keeps, and these are few. Whether that was so.
__device__ __forceinline__ bool write_binned(const Step& s) {
    Block& block = s.block;
    u32 cut_bin = block.cut[POOL].bin;
    u32 largest;
    __syncthreads();
    u32 kept = count_kept(s, cut_bin, largest);
    if (!s.block.pool_whole || kept > MOST_BINNED || largest > SMALL_BIN) return false;
    for (u32 i = thread_here(); i < BINS; i += THREADS) block.bins[0][i] = 0;
    block_scan(block.pool_bins, BINS, block.sums[0][0]);
    const uint4* pool = s.pool_keys(s.block.pool);
    constexpr u32 LOADS_TOGETHER = 4;  // loads of a thread
#pragma unroll 1
    for (u32 first = thread_here(); first < s.block.pooled; first += LOADS_TOGETHER * THREADS) {
        uint4 entries[LOADS_TOGETHER];
#pragma unroll
        for (u32 j = 0; j < LOADS_TOGETHER; j++) {
            u32 i = first + j * THREADS;
            entries[j] = i < s.block.pooled ? fresh(pool + i) : make_uint4(0, 0, 0, 0);
            entries[j].w = i;
        }
#pragma unroll
        for (u32 j = 0; j < LOADS_TOGETHER; j++) {
            if (entries[j].w >= s.block.pooled) break;
            u32 bin = bin_of(s.block.pool_best, of_falling(entries[j].x));
            if (bin > cut_bin) continue;
            u32 slot = block.pool_bins[bin] + atomicAdd(&block.bins[0][bin], 1u);
            if (slot < kept) s.block.stage[slot] = entries[j];
        }
    }
    if (threadIdx.x == 0) block.staged = 0;
    __syncthreads();
    // What the block is to write: positions of results, and where in the stage their entries are.
    u32* mine = block.bins[0];
    for (u32 i = thread_here(); i < kept; i += THREADS) {
        uint4 entry = block.stage[i];
        // Within a bin the order here is this block's own: who writes goes by the pool's.
        if ((entry.w & block.share_mask) != block.member) continue;
        u32 bin = bin_of(s.block.pool_best, of_falling(entry.x));
        u32 first = block.pool_bins[bin];
        u32 stop = bin == cut_bin ? kept : block.pool_bins[bin + 1];
        u32 position = first;
        for (u32 j = first; j < stop; j++) position += precedes(s.block.stage[j], entry);
        if (position >= s.beam_width()) continue;
        mine[atomicAdd(&block.staged, 1u)] = position << 16 | i;
    }
    __syncthreads();
    // One half of the threads follows the history, so that no thread waits for more than it must.
    const bool of_tokens = thread_here() >= THREADS / 2;
    for (u32 i = thread_here() % (THREADS / 2); i < block.staged; i += THREADS / 2) {
        u32 position = mine[i] >> 16;
        uint4 entry = block.stage[mine[i] & 0xFFFF];
        if (of_tokens) write_proposals(s, position, entry);
        else write_keyword(s, position, entry);
    }
    __syncthreads();
    const u32 steps = u32(s.search.steps);
    for (u32 i = thread_here(); i < block.staged * steps; i += THREADS) {
        write_token(s, mine[i / steps] >> 16, i % steps);
    }
    return true;
}
