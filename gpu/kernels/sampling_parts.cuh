// Rows in parts, a block each, and what the kernels that count by bins have in common.
#pragma once
#include "sampling_mass.cuh"

#define PARTS const element *logits, i64 stride, i64 size, i64 chunk, u32 chunks
#define PART_HERE part_here(logits, stride, size, chunk, chunks)

// What a block has of its row: `x` is the row's first element, and all of it counts from there.
struct Part {
    i64 r;
    u32 number;
    const element* x;
    bool vector;
    i64 begin, end;
};

__device__ __forceinline__ Part part_here(PARTS) {
    const i64 r = blockIdx.x / chunks;
    const u32 number = blockIdx.x % chunks;
    const element* x = logits + r * stride;
    const i64 begin = number * chunk, end = begin + chunk < size ? begin + chunk : size;
    return Part{r, number, x, aligned(x), begin, end};
}

// Whether this block is the last of its row to come here; it then sees what the others wrote, past
// the L1. One thread's fences stand for all: barriers order what the others did.
__device__ __forceinline__ bool arrives_last(u32* counter, u32 chunks) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(counter, 1u) == chunks - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}

// A row's extremes, by all of its parts. `scratch` has 32 places.
__device__ __forceinline__ Extremes extremes_of(const Extremes* bounds, u32 chunks,
                                                Extremes* scratch) {
    Extremes seen = NO_EXTREMES;
    for (u32 c = threadIdx.x; c < chunks; c += THREADS) seen.add(bounds[c]);
    seen.share(scratch);
    return seen;
}

#define EACH (MASS_BINS / THREADS)  // bins of a thread

// The thread's bins of a row.
__device__ __forceinline__ void read_bins(const u32* bins, u32 (&own)[EACH]) {
#pragma unroll
    for (int j = 0; j < EACH; j += 4)
        *(uint4*)&own[j] = __ldcg((const uint4*)&bins[threadIdx.x * EACH + j]);
}
