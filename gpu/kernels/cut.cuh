// Where the team cuts the candidates of a step: the bin of the B-th, from everybody's histograms,
// and where that bin holds too many, the digits of their keys.
//
// Each block reads the same counts and comes to the same result, so nothing is handed around. A
// narrowing costs a barrier and a look at all hits for each 8 bits of the key; it takes ties, or
// scores that lie closer than the bins tell apart.
#pragma once
#include "place.cuh"

// Add the block's counts to the team's of this wave, and clear what later phases count in. A second
// wave's are apart: others may not have read those of the first yet.
__device__ __forceinline__ void publish_counts(const Step& s, u32 wave) {
    u32* team = s.step_bins(s.block.number, wave, BEAMS);
#pragma unroll 1
    for (u32 i = 4 * thread_here(); i < 2 * BINS; i += 4 * THREADS) {
        uint4 four = *(const uint4*)(s.block.bins[0] + i);
        if ((four.x | four.y | four.z | four.w) == 0) continue;
        if (four.x > 0) add_for_team(team + i, four.x);
        if (four.y > 0) add_for_team(team + i + 1, four.y);
        if (four.z > 0) add_for_team(team + i + 2, four.z);
        if (four.w > 0) add_for_team(team + i + 3, four.w);
    }
#pragma unroll 1
    for (u32 i = s.thread(); i < 2 * BINS; i += s.threads()) s.cursors(0)[i] = 0;
}

// Half of the threads go through the counts of beams, the others through those of keywords.
static constexpr u32 CUT_THREADS = THREADS / 2;
static constexpr u32 CUT_WARPS = CUT_THREADS / 32;
static constexpr u32 RUN = (BINS + CUT_THREADS - 1) / CUT_THREADS;  // counts of a thread
static_assert(THREADS % 64 == 0, "a warp is in one half");

// The team's counts of the step after this one, which nobody reads or adds to now.
__device__ __forceinline__ void clear_next_bins(const Step& s) {
    u32* next = s.step_bins(s.block.number + 1, 0, BEAMS);
#pragma unroll 1
    for (u32 i = s.thread(); i < 4 * BINS; i += s.threads()) next[i] = 0;
}

// A thread's run of the team's counts, of all waves up to this one.
__device__ __forceinline__ void read_counts(
    const Step& s, u32 wave, u32 kind, u32 first, u32 (&counts)[RUN]) {
    const u32* bins = s.step_bins(s.block.number, 0, kind) + first;
    const u32* more = s.step_bins(s.block.number, 1, kind) + first;
    if constexpr (RUN % 4 == 0 && CUT_THREADS * RUN == BINS) {
        for (u32 r = 0; r < RUN; r += 4) {
            uint4 four = fresh((const uint4*)(bins + r)), of_wave = make_uint4(0, 0, 0, 0);
            if (wave > 0) of_wave = fresh((const uint4*)(more + r));
            counts[r] = four.x + of_wave.x;
            counts[r + 1] = four.y + of_wave.y;
            counts[r + 2] = four.z + of_wave.z;
            counts[r + 3] = four.w + of_wave.w;
        }
    } else {
        for (u32 r = 0; r < RUN; r++) {
            counts[r] = first + r < BINS ? fresh(bins + r) : 0;
            if (wave > 0 && first + r < BINS) counts[r] += fresh(more + r);
        }
    }
}

// Behind a barrier: the team's counts become sums before each bin, and the cuts follow, and the
// bounds from the cuts. Before the last wave of a step it is bounds alone. `wave` is 1 behind a
// second one. The cut of keywords is that of all steps, what it takes is of this one.
__device__ __forceinline__ void choose_cuts(const Step& s, u32 wave, bool last_wave) {
    enum { OF_STEP, OF_ALL };
    Block& block = s.block;
    const u32 kind = thread_here() / CUT_THREADS, first = thread_here() % CUT_THREADS * RUN;
    u32 counts[RUN], earlier[RUN];
    read_counts(s, wave, kind, first, counts);
    u32 before[2] = {0, 0}, totals[2];
#pragma unroll
    for (u32 r = 0; r < RUN; r++) {
        earlier[r] = kind == POOL && first + r < BINS ? block.pool_bins[first + r] : 0;
        before[OF_STEP] += counts[r];
        before[OF_ALL] += counts[r] + earlier[r];
    }
    if (threadIdx.x == 0) block.largest_bin = 0;
    begin_sums(before, block.sums[kind], warp_here() % CUT_WARPS);
    __syncthreads();
    end_sums<CUT_WARPS>(before, block.sums[kind], warp_here() % CUT_WARPS, totals);
    const u32 width = s.beam_width();
    u32 largest = 0, cut_bin = NONE, taken = 0;
#pragma unroll
    for (u32 r = 0; r < RUN; r++) {
        u32 i = first + r;
        if (i >= BINS) break;
        if (last_wave) {
            block.bins[kind][i] = before[OF_STEP];
            if (kind == POOL) block.pool_bins[i] = counts[r] + earlier[r];
        }
        before[OF_STEP] += counts[r];
        if (before[OF_ALL] < width) {
            largest = larger(largest, counts[r]);
            before[OF_ALL] += counts[r] + earlier[r];
            if (before[OF_ALL] >= width || i == BINS - 1) cut_bin = i, taken = before[OF_STEP];
        }
    }
    if (cut_bin != NONE) {
        block.bound[kind] = cut_bin;
        block.cut[kind] = {cut_bin, 64, 0, taken};
    }
    if (last_wave) {
        largest = __reduce_max_sync(FULL, largest);
        if (kind == BEAMS && lane_here() == 0 && largest > 0) atomicMax(&block.largest_bin, largest);
        if (threadIdx.x == 0) block.total = totals[OF_STEP];
        // The other set of counts is the next step's.
        clear_next_bins(s);
    }
    __syncthreads();
}

__device__ __forceinline__ bool too_many(const Step& s, u32 kind) {
    return s.block.cut[kind].taken > u32(s.search.list_size) && s.block.cut[kind].shift > 0;
}

// Ready to count the next digit of the kinds of which there are too many; whether there are.
__device__ __forceinline__ bool begin_narrowing(const Step& s) {
    Block& block = s.block;
    bool any = too_many(s, BEAMS) || too_many(s, POOL);
    if (!any) return false;
    for (u32 i = thread_here(); i < 2 * DIGITS; i += THREADS) block.digits[0][i] = 0;
    if (threadIdx.x < 2) {
        u32 kind = threadIdx.x;
        block.chosen[kind] = too_many(s, kind);
        if (block.cut[kind].shift == 64) {
            block.passed[kind] = block.bins[kind][block.cut[kind].bin];
        }
    }
    __syncthreads();
    return true;
}

// Digits were counted: cut at that of the B-th. The first B of the step are enough.
__device__ __forceinline__ void narrow_cuts(const Step& s) {
    Block& block = s.block;
    u32 set = block.narrowed % NARROW_SETS;
    for (u32 i = thread_here(); i < 2 * DIGITS; i += THREADS) {
        u32 count = block.digits[0][i];
        if (count > 0) add_for_team(s.team_digits(set, 0) + i, count);
    }
    u32* next = s.team_digits((set + 1) % NARROW_SETS, 0);
    for (u32 i = s.thread(); i < 2 * DIGITS; i += s.threads()) next[i] = 0;
    s.barrier();
    for (u32 kind = BEAMS; kind <= POOL; kind++) {
        if (!block.chosen[kind]) continue;
        u32* digits = block.digits[kind];
        for (u32 i = thread_here(); i < DIGITS; i += THREADS) {
            digits[i] = fresh(s.team_digits(set, kind) + i);
        }
        __syncthreads();
        u32 total = block_scan(digits, DIGITS, block.sums[kind][0]);
        u32 need = s.beam_width() - block.passed[kind];
        Cut cut = block.cut[kind];
        __syncthreads();
        for (u32 i = thread_here(); i < DIGITS; i += THREADS) {
            u32 after = i + 1 < DIGITS ? digits[i + 1] : total;
            if (digits[i] < need && after >= need) {
                u32 passed = s.beam_width() - need;
                block.cut[kind] = {cut.bin, cut.shift - 8, cut.prefix << 8 | i, passed + after};
                block.passed[kind] = passed + digits[i];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) block.narrowed++;
}
