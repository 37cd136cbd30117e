// scan: one read of the logits. Entries above `high` are listed; where p, or a large k, reaches
// deeper, the rest is counted in 4,096 linear bins below high.
//
// scan_fill writes -inf for a mask in the same pass; `resolve` puts back what is kept.
//
// Memory: 4 bytes read an element of float32, and 4 written by scan_fill.
#include "sampling.cuh"

#define SCANNERS 256
// Blocks of a multiprocessor, as far as registers reach.
#define RESIDENT (ELEMENT == 0 ? 5 : 4)
#define STAGED 1024  // entries a block lists before it goes to the row's counter

// Lists what is not at or below high, counts the rest by bin where `WITH_BINS`.
template <bool WITH_BINS, bool FILL>
__device__ __forceinline__ void scan_rows(const element* __restrict__ logits, i64 stride,
                                          i64 size, Row* rows, u32* bins, u64* lists,
                                          u32 capacity, i64 chunk, u32 chunks, u32* histogram,
                                          element* masked, i64 masked_stride) {
    __shared__ u64 staged[STAGED];
    __shared__ u32 count, base, nan;
    const i64 r = blockIdx.x / chunks;
    const element* x = logits + r * stride;
    Row& row = rows[r];
    const float high = row.high, scale = row.scale;
    const bool counting = WITH_BINS && row.mode == BY_BINS;
    const bool vector = aligned(x);
    element* y = masked + r * masked_stride;
    const bool to = aligned(y);
    u64* list = lists + r * capacity;
    if (threadIdx.x == 0) count = 0, nan = 0;
    if (counting)
        for (int b = threadIdx.x; b < BINS; b += SCANNERS) histogram[b] = 0;
    __syncthreads();
    const i64 begin = blockIdx.x % chunks * chunk;
    const i64 end = begin + chunk < size ? begin + chunk : size;
    const i64 step = SCANNERS * PACK;
    for (i64 at = begin + threadIdx.x * PACK; at < end; at += 4 * step) {
        Pack packs[4];
        const element* from = x + at;
        if (vector && at + 3 * step + PACK <= end) {
#pragma unroll
            for (int u = 0; u < 4; ++u) *(uint4*)&packs[u] = *(const uint4*)(from + u * step);
        } else {
            // Past the end of the part stands -inf, which is neither listed nor counted.
#pragma unroll
            for (int u = 0; u < 4; ++u) packs[u] = load(x, at + u * step, end, vector);
        }
        if (FILL) {
            Pack empty;
#pragma unroll
            for (int j = 0; j < PACK; ++j) empty.e[j] = nothing();
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                const i64 i = at + u * step;
                if (to && i + PACK <= end) {
                    *(uint4*)(y + i) = *(const uint4*)&empty;
                } else {
#pragma unroll
                    for (int j = 0; j < PACK; ++j)
                        if (i + j < end) y[i + j] = nothing();
                }
            }
        }
        bool rare = false;
#pragma unroll
        for (int u = 0; u < 4; ++u) {
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const float value = value_of(packs[u].e[j]);
                rare |= !(value <= high);
                if (WITH_BINS && counting && value <= high && value > __uint_as_float(0xFF800000u))
                    atomicAdd(&histogram[bin_of(value, high, scale)], 1u);
            }
        }
        if (!rare) continue;
#pragma unroll
        for (int u = 0; u < 4; ++u) {
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const float value = value_of(packs[u].e[j]);
                if (value <= high) continue;
                if (value != value) {
                    nan = 1;
                    continue;
                }
                const u64 entry = (u64)key_of(value) << 32 | (u32)(at + u * step + j);
                const u32 slot = atomicAdd(&count, 1u);
                if (slot < STAGED) {
                    staged[slot] = entry;
                } else {
                    const u32 place = atomicAdd(&row.listed, 1u);
                    if (place < capacity) list[place] = entry;
                }
            }
        }
    }
    __syncthreads();
    const u32 mine = count < STAGED ? count : STAGED;
    if (threadIdx.x == 0) {
        base = mine ? atomicAdd(&row.listed, mine) : 0;
        if (nan) row.nan = 1;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < mine; i += SCANNERS)
        if (base + i < capacity) list[base + i] = staged[i];
    if (counting)
        for (int b = threadIdx.x; b < BINS; b += SCANNERS)
            if (histogram[b]) atomicAdd(&bins[r * BINS + b], histogram[b]);
}

extern "C" __global__ void __launch_bounds__(SCANNERS, RESIDENT)
scan(const element* __restrict__ logits, i64 stride, i64 size, Row* rows, u64* lists,
     u32 capacity, i64 chunk, u32 chunks) {
    scan_rows<false, false>(logits, stride, size, rows, nullptr, lists, capacity, chunk, chunks,
                            nullptr, nullptr, 0);
}

extern "C" __global__ void __launch_bounds__(SCANNERS, RESIDENT)
scan_fill(const element* __restrict__ logits, i64 stride, i64 size, Row* rows, u64* lists,
          u32 capacity, i64 chunk, u32 chunks, element* masked, i64 masked_stride) {
    scan_rows<false, true>(logits, stride, size, rows, nullptr, lists, capacity, chunk, chunks,
                           nullptr, masked, masked_stride);
}

extern "C" __global__ void __launch_bounds__(SCANNERS, RESIDENT)
scan_bins(const element* __restrict__ logits, i64 stride, i64 size, Row* rows, u32* bins,
          u64* lists, u32 capacity, i64 chunk, u32 chunks) {
    __shared__ u32 histogram[BINS];
    scan_rows<true, false>(logits, stride, size, rows, bins, lists, capacity, chunk, chunks,
                           histogram, nullptr, 0);
}
