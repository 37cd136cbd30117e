// What a selection gives, where a row's kept entries are not all in a short list.
//
// mask: the kept logits, and -inf elsewhere. A row with a short list of kept entries is not read
//   again: each block fills its part and then puts the kept entries of that part back. 4 bytes
//   written an element of float32; other rows are read and written, but for those whose sweep did.
// count_kept, gather: the candidates as places in falling order of index, by two reads.
#include "sampling_output.cuh"

extern "C" __global__ void __launch_bounds__(512)
mask(const element* logits, i64 stride, i64 size, const Row* rows, const u64* kept,
     element* masked, i64 masked_stride, i64 chunk, u32 chunks) {
    const i64 r = blockIdx.x / chunks, part = blockIdx.x % chunks;
    const Row& row = rows[r];
    const element* x = logits + r * stride;
    element* y = masked + r * masked_stride;
    const bool to = aligned(y), vector = to && aligned(x);
    const i64 begin = part * chunk, end = begin + chunk < size ? begin + chunk : size;
    const u32 n = row.kept;
    if (row.mode == BY_BINS) return;
    const i64 step = (i64)blockDim.x * PACK;
    if (n != NO_LIST) {
        Pack pack;
#pragma unroll
        for (int j = 0; j < PACK; ++j) pack.e[j] = nothing();
        for (i64 i = begin + threadIdx.x * PACK; i < end; i += step) {
            if (to && i + PACK <= size) {
                *(uint4*)(y + i) = *(const uint4*)&pack;
            } else {
#pragma unroll
                for (int j = 0; j < PACK; ++j)
                    if (i + j < size) y[i + j] = nothing();
            }
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
            const u64 entry = kept[r * KEPT + i];
            const u32 index = (u32)entry;
            if (index < begin || index >= end) continue;
            y[index] = element_of_bits((u32)(entry >> 32));
        }
        return;
    }
    for (i64 i = begin + threadIdx.x * PACK; i < end; i += 4 * step) {
        Pack packs[4];
#pragma unroll
        for (int u = 0; u < 4; ++u)
            if (i + u * step < end) packs[u] = load(x, i + u * step, size, vector);
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const i64 at = i + u * step;
            if (at >= end) break;
#pragma unroll
            for (int j = 0; j < PACK; ++j)
                if (!keeps(row, key_of(value_of(packs[u].e[j])), at + j)) packs[u].e[j] = nothing();
            if (vector && at + PACK <= size) {
                *(uint4*)(y + at) = *(const uint4*)&packs[u];
            } else {
#pragma unroll
                for (int j = 0; j < PACK; ++j)
                    if (at + j < size) y[at + j] = packs[u].e[j];
            }
        }
    }
}

// How many of each chunk are kept: above the boundary, and at it.
extern "C" __global__ void __launch_bounds__(512)
count_kept(const element* __restrict__ logits, i64 stride, i64 size, const Row* rows,
           uint2* numbers, i64 chunk, u32 chunks) {
    __shared__ u64 scratch[32];
    const i64 r = blockIdx.x / chunks, part = blockIdx.x % chunks;
    const Row& row = rows[r];
    if (row.kept != NO_LIST) return;
    const element* x = logits + r * stride;
    const i64 begin = part * chunk, end = begin + chunk < size ? begin + chunk : size;
    u64 both = 0;
    for (i64 i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const u32 key = key_of(value_of(x[i]));
        if (key > row.cut_key) ++both;
        else if (keeps(row, key, i)) both += 1ull << 32;
    }
    both = block_sum(both, scratch);
    if (threadIdx.x == 0)
        numbers[r * chunks + part] = make_uint2((u32)both, (u32)(both >> 32));
}

// Places of the kept, in the order of index; behind them zeros up to `width`. Of entries at the
// boundary those are left out that a width below the count has no room for. A row with more above
// its boundary than the width gives none: its first are found by a selection of their own.
extern "C" __global__ void __launch_bounds__(512)
gather(const element* __restrict__ logits, i64 stride, i64 size, const Row* rows,
       const uint2* numbers, i64 chunk, u32 chunks, u64* places, i64 width) {
    __shared__ u64 scratch[32];
    __shared__ u32 warp_base[2][16];
    const i64 r = blockIdx.x / chunks, part = blockIdx.x % chunks;
    const Row& row = rows[r];
    if (row.kept != NO_LIST || row.above > width) return;
    const element* x = logits + r * stride;
    u64 before = 0, all = 0;
    for (u32 c = threadIdx.x; c < chunks; c += blockDim.x) {
        const uint2 number = numbers[r * chunks + c];
        const u64 both = number.x | (u64)number.y << 32;
        all += both;
        if (c < part) before += both;
    }
    before = block_sum(before, scratch);
    all = block_sum(all, scratch);
    const u64 room = width - row.above;
    const u64 there = (u32)all + (room < all >> 32 ? room : all >> 32);
    for (i64 i = there + part * blockDim.x + threadIdx.x; i < width;
         i += (i64)chunks * blockDim.x)
        places[r * width + i] = 0;
    u64 above = (u32)before, at = before >> 32;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const i64 begin = part * chunk, end = begin + chunk < size ? begin + chunk : size;
    for (i64 base = begin; base < end; base += blockDim.x) {
        const i64 i = base + threadIdx.x;
        const u32 key = i < end ? key_of(value_of(x[i])) : 0;
        const bool is_above = i < end && key > row.cut_key;
        const bool is_at = i < end && !is_above && keeps(row, key, i);
        const u32 above_lanes = __ballot_sync(~0u, is_above), at_lanes = __ballot_sync(~0u, is_at);
        if (lane == 0) warp_base[0][warp] = __popc(above_lanes), warp_base[1][warp] = __popc(at_lanes);
        __syncthreads();
        u64 above_here = above, at_here = at;
        for (u32 w = 0; w < WARPS; ++w) {
            if (w < warp) above_here += warp_base[0][w], at_here += warp_base[1][w];
            above += warp_base[0][w], at += warp_base[1][w];
        }
        const u32 lower = (1u << lane) - 1;
        above_here += __popc(above_lanes & lower);
        at_here += __popc(at_lanes & lower);
        // Entries of both sorts stand in one sequence by index.
        const u64 place = above_here + (at_here < room ? at_here : room);
        if (is_above || (is_at && at_here < room))
            places[r * width + place] = (u64)key << 32 | (u32)~(u32)i;
        __syncthreads();
    }
}
