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
#pragma unroll 2
    for (u32 i = thread_here(); i < 2 * BINS; i += THREADS) {
        u32 count = s.block.bins[i / BINS][i % BINS];
        if (count > 0) atomicAdd(team + i, count);
    }
#pragma unroll 1
    for (u32 i = s.thread(); i < 2 * BINS; i += s.threads()) s.cursors(0)[i] = 0;
}

// Not all warps go through the counts: each instruction of a warp takes its turn with those of the
// others, and most of them are the same for one count as for four.
#ifndef CUT_WARPS
#define CUT_WARPS 16
#endif
static constexpr u32 CUT_THREADS = THREADS < 32 * CUT_WARPS ? THREADS : 32 * CUT_WARPS;
static constexpr u32 RUN = (BINS + CUT_THREADS - 1) / CUT_THREADS;  // counts of a thread

// The team's counts of the step after this one, which nobody reads or adds to now.
__device__ __forceinline__ void clear_next_bins(const Step& s, u32 threads, u32 thread) {
    u32* next = s.step_bins(s.block.number + 1, 0, BEAMS);
#pragma unroll 1
    for (u32 i = s.block.member * threads + thread; i < 4 * BINS; i += s.group() * threads) {
        next[i] = 0;
    }
}

// Four counts of the step, of one wave or both.
__device__ __forceinline__ uint4 four_counts(const Step& s, u32 wave, u32 kind, u32 first) {
    uint4 four = fresh((const uint4*)(s.step_bins(s.block.number, 0, kind) + first));
    if (wave > 0) {
        uint4 more = fresh((const uint4*)(s.step_bins(s.block.number, 1, kind) + first));
        four.x += more.x, four.y += more.y, four.z += more.z, four.w += more.w;
    }
    return four;
}

// Bring a thread's run of counts, of all waves up to this one, to shared memory; the result is
// their sum.
__device__ __forceinline__ u32 read_counts(const Step& s, u32 wave, u32 kind, u32 first) {
    u32* to = s.block.bins[kind];
    u32 sum = 0;
    if constexpr (RUN % 4 == 0 && BINS % RUN == 0) {
        if (first >= BINS) return 0;
        for (u32 i = first; i < first + RUN; i += 4) {
            uint4 four = four_counts(s, wave, kind, i);
            *(uint4*)(to + i) = four;
            sum += four.x + four.y + four.z + four.w;
        }
    } else {
        for (u32 i = first; i < first + RUN && i < BINS; i++) {
            u32 count = fresh(s.step_bins(s.block.number, 0, kind) + i);
            if (wave > 0) count += fresh(s.step_bins(s.block.number, 1, kind) + i);
            sum += to[i] = count;
        }
    }
    return sum;
}

// Behind a barrier: the team's counts become sums before each bin, and the cuts follow, and the
// bounds from the cuts. Before the last wave of a step it is bounds alone. `wave` is 1 behind a
// second one.
__device__ __forceinline__ void choose_cuts(const Step& s, u32 wave, bool last_wave) {
    enum { OF_BEAMS, OF_KEYWORDS, OF_ALL };
    Block& block = s.block;
    u32 before[3] = {0, 0, 0};
    u32 first = thread_here() * RUN;
    bool chosen = first < CUT_THREADS * RUN;
    if (chosen) {
        before[OF_BEAMS] = read_counts(s, wave, BEAMS, first);
        before[OF_KEYWORDS] = read_counts(s, wave, POOL, first);
        before[OF_ALL] = before[OF_KEYWORDS];
#pragma unroll
        for (u32 r = 0; r < RUN; r++) {
            before[OF_ALL] += first + r < BINS ? block.pool_bins[first + r] : 0;
        }
        if (threadIdx.x == 0) block.largest_bin = 0;
        begin_sums(before, block.sums);
    }
    __syncthreads();
    if (chosen) {
        u32 totals[3];
        end_sums<CUT_THREADS / 32>(before, block.sums, totals);
        u32 width = s.beam_width();
        u32 largest = 0;
#pragma unroll
        for (u32 r = 0; r < RUN; r++) {
            u32 i = first + r;
            if (i >= BINS) break;
            u32 beams = block.bins[BEAMS][i], keywords = block.bins[POOL][i];
            u32 all = block.pool_bins[i] + keywords;
            bool up_to_here = before[OF_BEAMS] < width;
            if (last_wave) {
                block.bins[BEAMS][i] = before[OF_BEAMS];
                block.bins[POOL][i] = before[OF_KEYWORDS];
                block.pool_bins[i] = all;
                if (up_to_here) largest = larger(largest, beams);
            }
            before[OF_BEAMS] += beams;
            before[OF_KEYWORDS] += keywords;
            if (up_to_here && (before[OF_BEAMS] >= width || i == BINS - 1)) {
                block.bound[BEAMS] = i;
                block.cut[BEAMS] = {i, 64, 0, before[OF_BEAMS]};
            }
            up_to_here = before[OF_ALL] < width;
            before[OF_ALL] += all;
            if (up_to_here && (before[OF_ALL] >= width || i == BINS - 1)) {
                block.bound[POOL] = i;
                block.cut[POOL] = {i, 64, 0, before[OF_KEYWORDS]};
            }
        }
        if (last_wave) {
            largest = __reduce_max_sync(FULL, largest);
            if (lane_id() == 0 && largest > 0) atomicMax(&block.largest_bin, largest);
            if (threadIdx.x == 0) block.total = totals[OF_BEAMS];
        }
    } else if (last_wave) {
        // The other set of counts is the next step's.
        clear_next_bins(s, THREADS - CUT_THREADS, thread_here() - CUT_THREADS);
    }
    if (last_wave && THREADS == CUT_THREADS) clear_next_bins(s, THREADS, thread_here());
    __syncthreads();
}

__device__ __forceinline__ bool too_many(const Step& s, u32 kind) {
    return s.block.cut[kind].taken > s.search.list_size && s.block.cut[kind].shift > 0;
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
        if (count > 0) atomicAdd(s.team_digits(set, 0) + i, count);
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
        u32 total = block_scan(digits, DIGITS, block.sums[kind]);
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
