// How many sectors of 32 bytes a device reads at random places: what a search is held against.
//
// Memory: each thread has LOADS independent loads on the way at a time, each of a sector of its own.
#include "words.cuh"

static constexpr u32 LOADS = 16;

// `rounds` times LOADS loads a thread, of `sectors` sectors; the sum, so that they are made.
extern "C" __global__ void load_at_random(const u32* words, u64 sectors, u64 rounds, u32* sum) {
    u64 state = (blockIdx.x * u64(blockDim.x) + threadIdx.x + 1) * 0x9E3779B97F4A7C15ull;
    u32 total = 0;
    for (u64 round = 0; round < rounds; round++) {
        u32 loaded[LOADS];
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            // A linear congruential generator, of which the high half is used.
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            loaded[i] = __ldg(words + __umul64hi(state, sectors) * 8);
        }
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) total += loaded[i];
    }
    atomicAdd(sum, total);
}
