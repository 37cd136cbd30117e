// What the kernels of sampling share: a row's state, keys, loads, sums that do not depend on
// their order, and reductions over a block.
//
// A value's key is its float32 bits, turned so that keys order as the values do, and -0.0 as 0.0.
// A place is key << 32 | rank of the index: one number that orders a row's entries as they are
// kept. ELEMENT is 0 for float32, 1 for float16, 2 for bfloat16.
#pragma once
#include "sampling_math.cuh"

#if ELEMENT == 0
typedef float element;
#define PACK 4
#else
typedef u16 element;
#define PACK 8
#endif

#define NEGATIVE_INFINITY 0x007FFFFFu  // key; NaN gets it too
#define POSITIVE_INFINITY 0xFF800000u
#define BINS 4096
#define KEPT 2048         // longest list of kept entries that is sorted on chip
#define SLICE 512         // elements whose mass one warp sums, in a fixed order
#define NO_LIST 0xFFFFFFFFu

// How the row's boundary is found.
#define BY_LIST 0   // everything that may be kept is listed
#define BY_BINS 1   // what is near the boundary is listed, the rest is counted by bins
#define BY_PIVOT 2  // pivot search over the whole row

// Why a row keeps a single entry.
#define TEMPERATURE_ZERO 1
#define P_ZERO 2

// 2^y to 2^-22.
__device__ __forceinline__ float power_of_two(float y) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(y));
    return power;
}

// 2^(x scale + shift) in float32 to 2^-22, whatever the size of x: the argument is reduced by fma
// against a sum of exact parts. An error that grew with x would add up over equal values.
struct Power {
    float scale, scale_low, shift, shift_low;
    __device__ __forceinline__ void set(double s, double b) {
        scale = (float)s;
        scale_low = (float)(s - (double)scale);
        // A grid on which shift minus a whole number needs no rounding.
        const double grid = exp2(ceil(log2(fabs(b) + 256.0)) - 22.0);
        shift = (float)(rint(b / grid) * grid);
        shift_low = (float)(b - (double)shift);
    }
    __device__ __forceinline__ float operator()(float x) const {
        const float shifted = __fadd_rn(__fmaf_rn(x, scale, shift), 12582912.0f);
        const float n = __fsub_rn(shifted, 12582912.0f);
        float f = __fmaf_rn(x, scale, __fsub_rn(shift, n));
        f = __fadd_rn(f, __fmaf_rn(x, scale_low, shift_low));
        float power = power_of_two(f);
        power = __uint_as_float(__float_as_uint(power) + (__float_as_uint(shifted) << 23));
        return n > -126.0f ? power : 0.0f;
    }
};

struct Row {
    double p, temperature, log_mass;
    i64 k;              // 0: off
    i64 unlisted;       // entries above the k-th's bin that are not listed
    i64 mid_count, low_count;
    i64 first, final, count, above;  // of the entries at cut_key, indices in [first, final] stay
    u32 cut_key, top_key;
    float high, scale;  // listed: values above high; bin = (high - x) scale
    u32 listed, nan, mode, single;
    u32 kept;           // length of the list of kept entries, or NO_LIST
    u32 finalists;
    // By value: listed up to high, mid above edges[0], listed above edges[1], low above edges[2],
    // listed above edges[3], dropped.
    float edges[4];
    Power power;
    float bound;        // no token with -ln u / mass above this is among the finalists
    int deep, spare[2];
};
static_assert(sizeof(Row) == 176, "gpu/sampling.py sizes the table of rows");

#define FINALISTS 64

// The best score that a thread has seen, and its token: of equal scores the lowest.
struct Draw {
    u64 score;
    u32 token, key;
    __device__ __forceinline__ void offer(u64 s, u32 t, u32 k) {
        if (s > score || (s == score && t < token)) score = s, token = t, key = k;
    }
};

// A float64 as a number that orders as it does.
__device__ __forceinline__ u64 ordered(double x) {
    const u64 bits = (u64)__double_as_longlong(x);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

struct alignas(16) Pack {
    element e[PACK];
};

__device__ __forceinline__ float value_of(element e) {
#if ELEMENT == 0
    return e;
#elif ELEMENT == 1
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(e));
    return value;
#else
    return __uint_as_float((u32)e << 16);
#endif
}

// Exact: the value came from an element.
__device__ __forceinline__ element element_of(float value) {
#if ELEMENT == 0
    return value;
#elif ELEMENT == 1
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return (u16)(__float_as_uint(value) >> 16);
#endif
}

__device__ __forceinline__ u32 bits_of(element e) {
#if ELEMENT == 0
    return __float_as_uint(e);
#else
    return e;
#endif
}

__device__ __forceinline__ element element_of_bits(u32 bits) {
#if ELEMENT == 0
    return __uint_as_float(bits);
#else
    return (u16)bits;
#endif
}

__device__ __forceinline__ element nothing() {
#if ELEMENT == 0
    return __uint_as_float(0xFF800000u);
#elif ELEMENT == 1
    return 0xFC00;
#else
    return 0xFF80;
#endif
}

__device__ __forceinline__ bool aligned(const void* row) { return ((u64)row & 15) == 0; }

// PACK elements from i, which is a multiple of PACK and may run over the end: -inf there.
__device__ __forceinline__ Pack load(const element* row, i64 i, i64 size, bool vector) {
    Pack pack;
    if (vector && i + PACK <= size) {
        *(uint4*)&pack = *(const uint4*)(row + i);
    } else {
#pragma unroll
        for (int j = 0; j < PACK; ++j) pack.e[j] = i + j < size ? row[i + j] : nothing();
    }
    return pack;
}

// Writes a pack of the mask. What is past the end of the part stays.
__device__ __forceinline__ void write_pack(element* y, const Pack& pack, u32 i, u32 length,
                                           bool vector) {
    if (vector && i + PACK <= length) {
        *(uint4*)(y + i) = *(const uint4*)&pack;
    } else {
#pragma unroll
        for (int j = 0; j < PACK; ++j)
            if (i + j < length) y[i + j] = pack.e[j];
    }
}

__device__ __forceinline__ u32 key_of(float x) {
    const u32 bits = __float_as_uint(x), magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return NEGATIVE_INFINITY;
    if (magnitude == 0) return 0x80000000u;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float value_of_key(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

__device__ __forceinline__ double scaled(u32 key, u32 top, double temperature) {
    if (key == top) return 0.0;
    const double d = __dsub_rn((double)value_of_key(key), (double)value_of_key(top));
    return temperature == 1.0 ? d : __ddiv_rn(d, temperature);
}

// Is index i, with this key, kept?
__device__ __forceinline__ bool keeps(const Row& row, u32 key, i64 i) {
    return key > row.cut_key || (key == row.cut_key && i >= row.first && i <= row.final);
}

// Rises as x falls; whole numbers come from the addition, which is faster than a conversion.
__device__ __forceinline__ int bin_of(float x, float high, float scale) {
    const float place = fminf(__fmul_rn(__fsub_rn(high, x), scale), BINS - 1.0f);  // NaN goes too
    return __float_as_int(__fadd_rd(place, 8388608.0f)) & (BINS - 1);
}

// A sum of terms from 0 to 1, exact to 2^-64 each and so independent of their order.
struct Sum {
    u64 high, low;  // in 2^-32 and 2^-64
    __device__ __forceinline__ void add(double term) {
        const double up = __dmul_rn(term, 0x1p32);
        const u64 whole = (u64)up;
        high += whole;
        low += (u64)__dmul_rn(__dsub_rn(up, (double)whole), 0x1p32);
    }
    __device__ __forceinline__ void add(const Sum& other) {
        high += other.high;
        low += other.low;
    }
    __device__ __forceinline__ double value() const {
        return __fma_rn((double)(low & 0xFFFFFFFFu), 0x1p-64,
                        __dmul_rn((double)(high + (low >> 32)), 0x1p-32));
    }
};

#define WARPS (blockDim.x >> 5)

// Modulo 2^64: in parts of which 32 fit a word.
__device__ __forceinline__ u64 warp_sum(u64 value) {
    const u32 part = 0x3FFFFFu;
    const u64 low = __reduce_add_sync(~0u, (u32)value & part);
    const u64 middle = __reduce_add_sync(~0u, (u32)(value >> 22) & part);
    const u64 high = __reduce_add_sync(~0u, (u32)(value >> 44));
    return low + (middle << 22) + (high << 44);
}

__device__ __forceinline__ u64 warp_max(u64 value) {
    const u32 high = __reduce_max_sync(~0u, (u32)(value >> 32));
    const u32 low = __reduce_max_sync(~0u, (u32)(value >> 32) == high ? (u32)value : 0);
    return (u64)high << 32 | low;
}

// Over all threads of a block, the result in each. `scratch` has 32 places.
__device__ __forceinline__ u64 block_sum(u64 value, u64* scratch) {
    value = warp_sum(value);
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = value;
    __syncthreads();
    value = warp_sum((threadIdx.x & 31) < WARPS ? scratch[threadIdx.x & 31] : 0);
    __syncthreads();
    return value;
}

__device__ __forceinline__ u64 block_max(u64 value, u64* scratch) {
    value = warp_max(value);
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = value;
    __syncthreads();
    value = warp_max((threadIdx.x & 31) < WARPS ? scratch[threadIdx.x & 31] : 0);
    __syncthreads();
    return value;
}

__device__ __forceinline__ Sum block_sum(Sum sum, u64* scratch) {
    sum.high = block_sum(sum.high, scratch);
    sum.low = block_sum(sum.low, scratch);
    return sum;
}

// Sum in a fixed order: lanes by halving, then warps by halving.
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
    for (int d = 16; d; d >>= 1) value = __dadd_rn(value, __shfl_xor_sync(~0u, value, d));
    return value;
}

__device__ __forceinline__ double block_sum(double value, u64* scratch) {
    double* places = (double*)scratch;
    value = warp_sum(value);
    if ((threadIdx.x & 31) == 0) places[threadIdx.x >> 5] = value;
    __syncthreads();
    value = warp_sum((threadIdx.x & 31) < WARPS ? places[threadIdx.x & 31] : 0.0);
    __syncthreads();
    return value;
}
