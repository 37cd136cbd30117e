// Rows in parts, a block each, of which the last to be done goes on with the row.
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

// Whether this block is the last of its row to come here; it then sees what the others wrote.
__device__ __forceinline__ bool arrives_last(u32* counter, u32 chunks) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == chunks - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}
