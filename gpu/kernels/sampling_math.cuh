// exp, log and Philox noise, bit for bit as cpu/sampling_math.py has them: fixed sequences of
// float64 operations, each rounded once, whatever the compiler's contraction setting. A test
// compares the constants of the two files.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define LOG2_E 0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define ROUNDER 0x1.8p+52
#define EXP_LOWEST -708.0
#define E13 0x1.6124613a86d09p-33
#define E12 0x1.1eed8eff8d898p-29
#define E11 0x1.ae64567f544e4p-26
#define E10 0x1.27e4fb7789f5cp-22
#define E9 0x1.71de3a556c734p-19
#define E8 0x1.a01a01a01a01ap-16
#define E7 0x1.a01a01a01a01ap-13
#define E6 0x1.6c16c16c16c17p-10
#define E5 0x1.1111111111111p-7
#define E4 0x1.5555555555555p-5
#define E3 0x1.5555555555555p-3
#define L1 0x1.5555555555593p-1
#define L2 0x1.999999997fa04p-2
#define L3 0x1.2492494229359p-2
#define L4 0x1.c71c51d8e78afp-3
#define L5 0x1.7466496cb03dep-3
#define L6 0x1.39a09d078c69fp-3
#define L7 0x1.2f112df3e5244p-3

// e^x for x <= 0; 0 below -708.
__device__ __forceinline__ double exp_exact(double x) {
    if (!(x >= EXP_LOWEST)) return 0.0;
    const double shifted = __fma_rn(x, LOG2_E, ROUNDER);
    const double n = __dsub_rn(shifted, ROUNDER);
    double r = __fma_rn(n, -LN2_HIGH, x);
    r = __fma_rn(n, -LN2_LOW, r);
    double y = __fma_rn(E13, r, E12);
    y = __fma_rn(y, r, E11);
    y = __fma_rn(y, r, E10);
    y = __fma_rn(y, r, E9);
    y = __fma_rn(y, r, E8);
    y = __fma_rn(y, r, E7);
    y = __fma_rn(y, r, E6);
    y = __fma_rn(y, r, E5);
    y = __fma_rn(y, r, E4);
    y = __fma_rn(y, r, E3);
    y = __fma_rn(y, r, 0.5);
    y = __fma_rn(y, r, 1.0);
    y = __fma_rn(y, r, 1.0);
    return __longlong_as_double(__double_as_longlong(y) +
                                (i64)((u64)__double_as_longlong(shifted) << 52));
}

// ln x for a normal x > 0.
__device__ __forceinline__ double log_exact(double x) {
    const i64 bits = __double_as_longlong(x);
    const i64 exponent = (bits - 0x3FE6A09E667F3BCDll) >> 52;
    const double f =
        __dsub_rn(__longlong_as_double(bits - (i64)((u64)exponent << 52)), 1.0);
    const double n = (double)exponent;
    const double s = __ddiv_rn(f, __dadd_rn(2.0, f));
    const double z = __dmul_rn(s, s);
    double r = __fma_rn(L7, z, L6);
    r = __fma_rn(r, z, L5);
    r = __fma_rn(r, z, L4);
    r = __fma_rn(r, z, L3);
    r = __fma_rn(r, z, L2);
    r = __fma_rn(r, z, L1);
    r = __dmul_rn(r, z);
    const double half = __dmul_rn(__dmul_rn(0.5, f), f);
    const double low = __fma_rn(s, __dadd_rn(half, r), __dmul_rn(n, LN2_LOW));
    return __fma_rn(n, LN2_HIGH, __dsub_rn(f, __dsub_rn(half, low)));
}

// Philox4x32-10 with key = seed and counter = (quad, half, position). Words 4 quad to 4 quad + 3
// have their high halves from half 0 and their low ones from half 1.
__device__ __forceinline__ uint4 noise(u64 seed, u64 position, u32 quad, u32 half) {
    u32 c0 = quad, c1 = half, c2 = (u32)position, c3 = (u32)(position >> 32);
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u32 a = 0xD2511F53u * c0, a_high = __umulhi(0xD2511F53u, c0);
        const u32 b = 0xCD9E8D57u * c2, b_high = __umulhi(0xCD9E8D57u, c2);
        c0 = b_high ^ c1 ^ k0;
        c2 = a_high ^ c3 ^ k1;
        c1 = b;
        c3 = a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

__device__ __forceinline__ u32 lane_of(uint4 words, u32 token) {
    const u32 low = token & 1 ? words.y : words.x, high = token & 1 ? words.w : words.z;
    return token & 2 ? high : low;
}

__device__ __forceinline__ u64 word_of(u64 seed, u64 position, u32 token) {
    const u32 high = lane_of(noise(seed, position, token >> 2, 0), token);
    return (u64)high << 32 | lane_of(noise(seed, position, token >> 2, 1), token);
}

// u of a word, in (0, 1).
__device__ __forceinline__ double uniform(u64 word) {
    return __dmul_rn(__dadd_rn((double)(word >> 11), 0.5), 0x1p-53);
}

// (x - max) / temperature + Gumbel noise of this word.
__device__ __forceinline__ double score_of(double scaled, u64 word) {
    return __dsub_rn(scaled, log_exact(-log_exact(uniform(word))));
}
