// Ranks of many entries, by sorting: for lists and pools that bins alone do not order.
//
// Each block sorts chunks in shared memory (bitonic, 16 bytes an entry), and after a barrier the
// rank of an entry is its place in its own chunk and, found by binary search, in all others.
// n log^2 n / team for the first, n chunks log n / team for the second.
#pragma once
#include "cut.cuh"
#include "results.cuh"

static constexpr u32 CHUNK = STAGE < 2048 ? STAGE : 2048;  // entries
static_assert((CHUNK & (CHUNK - 1)) == 0, "bitonic");

// CHUNK entries of the stage, in place.
__device__ __forceinline__ void sort_stage(uint4* stage) {
    for (u32 size = 2; size <= CHUNK; size <<= 1) {
        for (u32 stride = size >> 1; stride > 0; stride >>= 1) {
            __syncthreads();
            for (u32 i = thread_here(); i < CHUNK / 2; i += THREADS) {
                u32 a = 2 * i - (i & (stride - 1));
                u32 b = a + stride;
                uint4 first = stage[a], second = stage[b];
                if (precedes(second, first) == ((a & size) == 0)) {
                    stage[a] = second;
                    stage[b] = first;
                }
            }
        }
    }
    __syncthreads();
}

// What is sorted: the beams of list or pool, into the other one, cut to B; or the pool's results.
enum : u32 { SORT_BEAMS, SORT_POOL, SORT_RESULTS };

__device__ __forceinline__ uint4 entry_to_sort(const Step& s, u32 what, u32 i) {
    if (what == SORT_BEAMS) {
        u64 key = fresh(s.block.list.keys + i);
        return make_uint4(u32(key >> 32), 0, u32(key), i);
    }
    uint4 key = fresh(s.pool_keys(s.block.pool) + i);
    key.w = i;
    return key;
}

__device__ __forceinline__ void put_sorted(const Step& s, u32 what, u32 position, uint4 entry) {
    if (what == SORT_BEAMS) {
        const List& from = s.block.list;
        const List& to = s.block.next_list;
        to.keys[position] = u64(entry.x) << 32 | entry.z;
        to.units[position] = fresh(from.units + entry.w);
        to.places[position] = fresh(from.places + entry.w);
    } else if (what == SORT_POOL) {
        s.pool_keys(s.block.pool ^ 1)[position] = entry;
        s.pool_places(s.block.pool ^ 1)[position] = fresh(s.pool_places(s.block.pool) + entry.w);
    } else {
        write_keyword(s, position, entry);
        write_proposals(s, position, entry);
        for (u32 t = 0; t < s.search.steps; t++) write_token(s, position, t);
    }
}

// Sort `n` entries and put the first B of them in their places. No two are equal.
__device__ __forceinline__ void sort_entries(const Step& s, u32 what, u32 n) {
    uint4* sorted = s.at<uint4>(s.search.sorted_at);
    u32 chunks = (n + CHUNK - 1) / CHUNK;
    for (u32 chunk = s.block.member; chunk < chunks; chunk += s.group()) {
        __syncthreads();
        for (u32 i = thread_here(); i < CHUNK; i += THREADS) {
            u32 entry = chunk * CHUNK + i;
            s.block.stage[i] = entry < n ? entry_to_sort(s, what, entry)
                                   : make_uint4(FULL, FULL, FULL, FULL);
        }
        sort_stage(s.block.stage);
        for (u32 i = thread_here(); i < CHUNK && chunk * CHUNK + i < n; i += THREADS) {
            sorted[chunk * CHUNK + i] = s.block.stage[i];
        }
    }
    s.barrier();
    // Some lanes share an entry, each with its share of the chunks.
    u32 lanes = 1;
    while (lanes < smaller(chunks, 32u)) lanes <<= 1;
    u32 part = lane_id() & (lanes - 1);
    u32 together = s.threads() / lanes;
    for (u32 base = 0; base < n; base += together) {
        u32 i = base + s.thread() / lanes;
        uint4 entry = i < n ? fresh(sorted + i) : make_uint4(0, 0, 0, 0);
        u32 before = 0;
        for (u32 chunk = part; i < n && chunk < chunks; chunk += lanes) {
            const uint4* others = sorted + chunk * CHUNK;
            u32 low = 0, high = smaller(n - chunk * CHUNK, u32(CHUNK));
            if (i / CHUNK == chunk) low = high = i % CHUNK;
            while (low < high) {
                u32 middle = (low + high) >> 1;
                bool after = precedes(fresh(others + middle), entry);
                low = after ? middle + 1 : low;
                high = after ? high : middle;
            }
            before += low;
        }
        for (u32 step = lanes >> 1; step > 0; step >>= 1) {
            before += __shfl_xor_sync(FULL, before, step);
        }
        if (part == 0 && i < n && before < s.beam_width()) put_sorted(s, what, before, entry);
    }
    if (what != SORT_RESULTS) s.barrier();
}
