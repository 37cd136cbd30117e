// Thread blocks that work together, and the threads of one block: barriers, sums, counters.
//
// A team is GROUP blocks of a cooperative launch, so all of them are resident and may wait for
// each other. What they hand over goes through L2: stores before the barrier, `fresh` loads after.
#pragma once
#include "words.cuh"

#ifndef THREADS
#define THREADS 1024
#endif

static constexpr u32 WARPS = THREADS / 32;

__device__ __forceinline__ u32 lane_id() { return threadIdx.x & 31; }

__device__ __forceinline__ u32 warp_id() { return threadIdx.x >> 5; }

// The thread, read anew each time: what follows from it is then not kept in registers from step to
// step, where it would push out what the scan needs.
__device__ __forceinline__ u32 thread_here() {
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

// The same of the lane and the warp.
__device__ __forceinline__ u32 lane_here() { return thread_here() & 31; }

__device__ __forceinline__ u32 warp_here() { return thread_here() >> 5; }

// An address in shared memory, in a register. It is the same for the whole launch, but the compiler
// would make it anew, with a wait of some thirty cycles, wherever registers are short.
__device__ __forceinline__ void* held_address(void* shared) {
    u64 address = __cvta_generic_to_shared(shared);
    asm volatile("" : "+l"(address));
    return __cvta_shared_to_generic(address);
}

// A load of what another block wrote: past the L1, which does not see such writes.
template <class X>
__device__ __forceinline__ X fresh(const X* address) {
    return __ldcg(address);
}

// Copy a word of 4 or 8 bytes to shared memory while the thread goes on.
template <class X>
__device__ __forceinline__ void copy_async(X* to, const X* from) {
    static_assert(sizeof(X) == 4 || sizeof(X) == 8, "sizes that there are");
    u32 address = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from),
                 "n"(sizeof(X))
                 : "memory");
}

// The thread's copies are there; for others behind the next __syncthreads.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Add in device memory. The compiler does not know that an address that it loaded is there, and would
// take an instruction for memory of any kind, which also brings the sum back.
__device__ __forceinline__ void add_for_team(u32* address, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void arrive(u32* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ u32 arrived(const u32* counter) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

// A barrier of the team in two halves, to be used by whole blocks: what a block did before its
// `team_arrive` is seen by all behind their `team_wait`. `counter` only rises, and may wrap;
// `target`, in shared memory, is the block's count of arrivals. About 1 us for 132 blocks; for one
// block it is __syncthreads.
__device__ __forceinline__ void team_arrive(u32* counter, u32 group, u32& target) {
    __syncthreads();
    if (group > 1 && threadIdx.x == 0) {
        target += group;
        arrive(counter);
    }
}

// `before_all` is called by the first thread when everybody has arrived, before any goes on.
template <class Call>
__device__ __forceinline__ void team_wait(u32* counter, u32 group, u32& target, Call before_all) {
    if (threadIdx.x == 0) {
        if (group > 1) {
            u32 all = target;
            while (int(arrived(counter) - all) < 0) {
            }
        }
        before_all();
    }
    __syncthreads();
}

__device__ __forceinline__ u32 warp_inclusive_sum(u32 value) {
#pragma unroll
    for (u32 step = 1; step < 32; step <<= 1) {
        u32 other = __shfl_up_sync(FULL, value, step);
        if (lane_here() >= step) value += other;
    }
    return value;
}

// Sum over the threads before this one; `total` over all. `sums` is WARPS words of shared memory
// that nobody else uses until the next __syncthreads behind this.
__device__ __forceinline__ u32 block_exclusive_sum(u32 value, u32* sums, u32& total) {
    u32 inclusive = warp_inclusive_sum(value);
    if (lane_here() == 31) sums[warp_here()] = inclusive;
    __syncthreads();
    u32 of_warp = lane_here() < WARPS ? sums[lane_here()] : 0;
    u32 up_to_warp = warp_inclusive_sum(of_warp);
    total = __shfl_sync(FULL, up_to_warp, 31);
    u32 before = __shfl_sync(FULL, up_to_warp - of_warp, warp_here());
    return before + inclusive - value;
}

// The same for N values at once, in two halves with a __syncthreads between them, by ITS_WARPS
// warps of the block, of which this one is number `warp`.
template <u32 N>
__device__ __forceinline__ void begin_sums(u32 (&values)[N], u32 (&sums)[N][32], u32 warp) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
        u32 inclusive = warp_inclusive_sum(values[n]);
        if (lane_here() == 31) sums[n][warp] = inclusive;
        values[n] = inclusive - values[n];
    }
}

template <u32 ITS_WARPS, u32 N>
__device__ __forceinline__ void end_sums(
    u32 (&values)[N], u32 (&sums)[N][32], u32 warp, u32 (&totals)[N]) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
        u32 of_warp = lane_here() < ITS_WARPS ? sums[n][lane_here()] : 0;
        u32 up_to_warp = warp_inclusive_sum(of_warp);
        totals[n] = __shfl_sync(FULL, up_to_warp, 31);
        values[n] += __shfl_sync(FULL, up_to_warp - of_warp, warp);
    }
}

template <u32 N>
__device__ __forceinline__ void block_exclusive_sums(
    u32 (&values)[N], u32 (&sums)[N][32], u32 (&totals)[N]) {
    begin_sums(values, sums, warp_here());
    __syncthreads();
    end_sums<WARPS>(values, sums, warp_here(), totals);
}

// Exclusive sums in place of `n` words of shared memory, which every thread can read afterwards;
// the result is their total. Each thread takes a run, so n up to some times THREADS is cheap.
__device__ __forceinline__ u32 block_scan(u32* words, u32 n, u32* sums) {
    u32 run = (n + THREADS - 1) / THREADS;
    u32 first = smaller(thread_here() * run, n);
    u32 stop = smaller(first + run, n);
    u32 value = 0;
#pragma unroll 1
    for (u32 i = first; i < stop; i++) value += words[i];
    u32 total;
    u32 sum = block_exclusive_sum(value, sums, total);
#pragma unroll 1
    for (u32 i = first; i < stop; i++) {
        u32 word = words[i];
        words[i] = sum;
        sum += word;
    }
    __syncthreads();
    return total;
}
