// A barrier of a team against the boundary between two kernels, with the same small phase in both.
//
// In a phase each block reads what all blocks counted in the phase before, as the search does for
// its cuts, sums it, and adds counts that follow from the sum: who misses any changes all later
// sums. What a block holds in shared memory changes by a word a phase, to be checked at the end. It
// is made of `same` words that all blocks have in common and `own` ones of each; between kernels
// the common ones stand in one of two places in turn, since a block may save before another reads.
#include "team.cuh"

static constexpr u32 COUNTS = 4 * THREADS;  // the search reads two histograms of 2,048 bins
static constexpr u32 ADDS = 256;            // counts that a block adds to
static constexpr u32 SETS = 3;              // one is read, one filled, one cleared

struct Memory {
    u32* counts;  // [SETS, COUNTS]
    u32* totals;  // [blocks], of the last phase
    u64* state;   // [2, same], then [blocks, own]
    u32 same, own;

    __device__ __forceinline__ u64* common(u32 phase) const { return state + (phase & 1) * same; }
    __device__ __forceinline__ u64* of_block() const {
        return state + 2 * same + blockIdx.x * own;
    }
};

// Threads of all blocks in one count, and how many they are.
__device__ __forceinline__ u32 thread_of_all() { return blockIdx.x * THREADS + threadIdx.x; }

__device__ __forceinline__ u32 all_threads() { return gridDim.x * THREADS; }

// Begin to read the state, which is there after wait_for_copies and a __syncthreads.
__device__ __forceinline__ void restore(const Memory& m, u64* held, u32 phase) {
    for (u32 i = threadIdx.x; i < m.same; i += THREADS) copy_async(held + i, m.common(phase) + i);
    for (u32 i = threadIdx.x; i < m.own; i += THREADS) {
        copy_async(held + m.same + i, m.of_block() + i);
    }
}

// For the next phase; of what is common each block writes its share.
__device__ __forceinline__ void save(const Memory& m, const u64* held, u32 phase) {
    __syncthreads();
    for (u32 i = thread_of_all(); i < m.same; i += all_threads()) m.common(phase + 1)[i] = held[i];
    for (u32 i = threadIdx.x; i < m.own; i += THREADS) m.of_block()[i] = held[m.same + i];
}

__device__ __forceinline__ void run_phase(const Memory& m, u64* held, u32* sums, u32 phase) {
    uint4 four = fresh((const uint4*)(m.counts + phase % SETS * COUNTS) + threadIdx.x);
    u32* next = m.counts + (phase + 1) % SETS * COUNTS;
    u32* after = m.counts + (phase + 2) % SETS * COUNTS;
    for (u32 i = thread_of_all(); i < COUNTS; i += all_threads()) after[i] = 0;
    wait_for_copies();
    u32 total;
    block_exclusive_sum(four.x + four.y + four.z + four.w, sums, total);
    if (threadIdx.x < ADDS) {
        u32 mixed = (total ^ thread_of_all()) * 0x9E3779B1u;
        u32 at = (threadIdx.x * (COUNTS / ADDS) + blockIdx.x) % COUNTS;
        atomicAdd(next + at, mixed ^ mixed >> 15);
    }
    if (threadIdx.x == 0) {
        m.totals[blockIdx.x] = total;
        u32 words = m.same + m.own;
        if (words > 0) held[phase % words] += total;
    }
}

// A cooperative launch of all phases, from the first on. `counter` is two words, zero before and
// after.
extern "C" __global__ void __launch_bounds__(THREADS, 1) persistent(
    u32* counts, u32* totals, u64* state, u32 same, u32 own, u32 phases, u32* counter) {
    extern __shared__ u64 held[];
    __shared__ u32 sums[32], target;
    Memory m{counts, totals, state, same, own};
    restore(m, held, 0);
    if (threadIdx.x == 0) target = 0;
    for (u32 phase = 0; phase < phases; phase++) {
        if (phase > 0) {
            team_arrive(counter, gridDim.x, target);
            team_wait(counter, gridDim.x, target, [] {});
        }
        run_phase(m, held, sums, phase);
    }
    save(m, held, phases - 1);
    if (threadIdx.x == 0 && atomicAdd(counter + 1, 1u) == gridDim.x - 1) {
        counter[0] = 0;
        counter[1] = 0;
    }
}

// A plain launch of one phase.
extern "C" __global__ void __launch_bounds__(THREADS, 1) phase(
    u32* counts, u32* totals, u64* state, u32 same, u32 own, u32 number) {
    extern __shared__ u64 held[];
    __shared__ u32 sums[32];
    Memory m{counts, totals, state, same, own};
    restore(m, held, number);
    run_phase(m, held, sums, number);
    save(m, held, number);
}
