// The order of candidates as integers, and the histograms that cut at the B-th of them.
//
// A candidate's key is 64 bits, smaller first: 32 of its score, falling, then the beam's and the
// proposal's position. For the cut scores are counted in bins by their distance from the best
// possible one, logarithmically: 256 bins an octave from 1/4 to 64, so that a bin about the B-th
// holds a percent or so of B for scores as log-probabilities give them. Any rounding is harmless, since a bin never falls as the score
// falls.
#pragma once
#include "words.cuh"

#ifndef BINS
#define BINS 2048
#endif

static constexpr u32 STEP_BITS = BINS >= 2048 ? 8 : BINS >= 1024 ? 7 : 1;  // log2 of an octave's bins
static constexpr int LEAST_EXPONENT = -2;               // of a distance beyond bin 0

static constexpr u32 ORIGIN_BITS = 16;  // beam << 16 | position of the proposal

__device__ __forceinline__ bool is_finite(float x) {
    return (__float_as_uint(x) & 0x7F800000u) != 0x7F800000u;
}

// Rises as the score falls. No score is -0.0: sums begin at +0.0, and pool scores end with + 0.0.
__device__ __forceinline__ u32 falling(float score) {
    u32 bits = __float_as_uint(score);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
}

__device__ __forceinline__ float of_falling(u32 key) {
    return __uint_as_float(key >> 31 ? key : ~key & 0x7FFFFFFFu);
}

__device__ __forceinline__ u64 order_key(float score, u32 origin) {
    return u64(falling(score)) << 32 | origin;
}

__device__ __forceinline__ u32 bin_of(float best, float score) {
    float distance = __fsub_rn(best, score);
    int bin = int(__float_as_uint(distance) >> (23 - STEP_BITS)) -
              ((127 + LEAST_EXPONENT) << STEP_BITS);
    return u32(smaller(larger(bin, 0), int(BINS) - 1));
}

// What the definition adds to a beam's score where its keyword ends. A division by one changes
// nothing, and is left out.
__device__ __forceinline__ float pool_score(float score, float end, float penalty) {
    float sum = __fadd_rn(score, end);
    if (penalty != 1.0f) sum = __fdiv_rn(sum, penalty);
    return __fadd_rn(sum, 0.0f);
}

// Which candidates are taken: those in bins before `bin`, and of those in it the ones whose key
// begins with at most `prefix` (all where shift is 64). `taken` is how many these are.
struct Cut {
    u32 bin;
    u32 shift;
    u64 prefix;
    u32 taken;
};

__device__ __forceinline__ bool within(const Cut& cut, u32 bin, u64 key) {
    return bin < cut.bin || (bin == cut.bin && (cut.shift == 64 || key >> cut.shift <= cut.prefix));
}

// Order of entries of 16 bytes: by their words, the first most significant.
__device__ __forceinline__ bool precedes(uint4 a, uint4 b) {
    u64 a_first = u64(a.x) << 32 | a.y, b_first = u64(b.x) << 32 | b.y;
    u64 a_second = u64(a.z) << 32 | a.w, b_second = u64(b.z) << 32 | b.w;
    return a_first < b_first || (a_first == b_first && a_second < b_second);
}
