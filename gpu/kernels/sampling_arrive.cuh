// Rows in parts, a block each, of which the last to be done goes on with the row.
#pragma once
#include "sampling_mass.cuh"

#define PARTS const element *logits, i64 stride, i64 size, i64 chunk, u32 chunks

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
