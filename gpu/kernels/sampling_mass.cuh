// Top-p of a row by bins of counts, and sums of masses that are exact enough to decide it.
//
// Bins are linear in the value, the first at the row's maximum. From their counts alone follow a
// lower and an upper bound of every bin's mass, and so the window of bins in which the mass from
// the top reaches p: mostly one or two, since what the bounds leave open above the boundary and
// below it cancels but for p (1 - p) of a bin's width. Then one pass sums the masses above the
// window and of all, and lists what is in it; the boundary is found within the list.
//
// A mass is a float32 to 2^-22, and so is a sum of the 4 or 8 neighbours that one load brings. All
// larger sums are of whole numbers of 2^-45, so that they depend on no order, batch or grid.
#pragma once
#include "sampling_list.cuh"

#define MASS_BINS 4096
#define TAIL (MASS_BINS - 1)  // what is from here on is so small that all of it does not count
#define SPAN 40.0             // temperatures from the maximum to the tail, at most
#define MOST_COUNTED (1 << 23)  // entries of a row
#define EDGE 0.51             // of a place, from the middle of its bin to where it may end
#define SLACK 2e-5            // of masses that come from counts, for all roundings
#define COUNTED_ONE 0x1p40f   // the unit of these
#define SUM_ROUNDER 192.0     // a float64 whose last place is 2^-45
#define SUM_UNIT 0x1p-45

// e^((x - max) / temperature) in float32, but for a factor near 1 that all have in common.
struct Weight {
    float scale, scale_low, shift, rounder, lowest;
    double factor;

    // Also for what is not finite; then it is of no use, and nothing goes wrong.
    __device__ __forceinline__ void set(u32 top, double temperature) {
        const double s = temperature == 1.0 ? LOG2_E : LOG2_E / temperature;
        const double highest = (double)value_of_key(top), b = -s * highest;
        scale = (float)s;
        scale_low = (float)(s - (double)scale);
        // A grid on which the shift minus a whole number needs no rounding.
        const int exponent = (int)(__double_as_longlong(fabs(b) + 256.0) >> 52) - 1023 - 21;
        const double grid = __longlong_as_double((i64)(1023 + exponent) << 52);
        shift = (float)(rint(b * __longlong_as_double((i64)(1023 - exponent) << 52)) * grid);
        const double left = (b - (double)shift) * 0x1.62e42fefa39efp-1;
        factor = 1.0 + left * (1.0 + left * (0.5 + left * (1.0 / 6.0)));
        rounder = 12582912.0f + rintf(shift);
        lowest = (float)(highest - 45.0 * temperature);
    }

    // NaN and -inf weigh what the lowest does: nothing that a sum would notice.
    __device__ __forceinline__ float operator()(float x) const {
        const float value = fmaxf(x, lowest);
        const float shifted = __fmaf_rn(value, scale, rounder);
        const float n = __fsub_rn(shifted, 12582912.0f);
        const float f = __fmaf_rn(value, scale_low, __fmaf_rn(value, scale, __fsub_rn(shift, n)));
        return __uint_as_float(__float_as_uint(power_of_two(f)) + (__float_as_uint(shifted) << 23));
    }
};

// What is known of a row: how its boundary is found.
#define KEEP_NONE 0
#define KEEP_ONE 1   // of the entries at the maximum the first, or the last
#define KEEP_ALL 2
#define BY_BIN 3     // all above the window, and of it what `resolve_open` says
#define BY_COUNT 4   // what may be among the k best is listed
#define BY_SEARCH 5  // by the pivot search

struct Mass {
    float scale, origin, above;  // BY_COUNT: listed below the place `above`
    float least;                 // a mass that the kept have for certain
    u32 top_key, how, nan, listed, finalists, arrived[2];
    double log_total;    // of a softmax
    u64 best;            // KEEP_ONE: the index, turned where the last is wanted, and the element
    u64 exact[2];        // mass in 2^-20 and 2^-52, for log-softmax
    u64 count;           // of what is kept for certain
    u64 sums[4];         // its mass and that of all, in 2^-13 and 2^-45 each
};
static_assert(sizeof(Mass) == 120, "gpu/sampling_mass.py sizes the table of masses");

// Where a row's values lie in bins. A place is linear, and so are float32's roundings of it.
struct Scale {
    float scale, origin, width;
    bool fits;
    bool reaches_lowest;  // else places of the lowest values are infinite, as those of -inf are

    __device__ __forceinline__ Scale(u32 top, u32 low, double temperature, i64 size) {
        const float highest = value_of_key(top), lowest = value_of_key(low);
        const float degree = (float)temperature;
        const float span = fminf(__fsub_rn(highest, lowest), __fmul_rn((float)SPAN, degree));
        scale = fminf(__fdiv_rn((float)(TAIL - 1), span), 1e30f);
        origin = __fmaf_rn(highest, scale, 0.5f);
        width = __fdiv_rn(1.0f, __fmul_rn(scale, degree));  // of a bin, in temperatures
        fits = fabsf(origin) < 262144.0f && temperature > 1e-30 && temperature < 1e30 &&
               width > 0.0f && size <= MOST_COUNTED;
        reaches_lowest = place(lowest) < __uint_as_float(0x7F800000u);
    }

    __device__ __forceinline__ float place(float x) const { return __fmaf_rn(-x, scale, origin); }

    __device__ __forceinline__ void count(float x, u32* counts) const {
        const float y = place(x);
        const u32 bin = __float_as_uint(__fadd_rd(y, 8388608.0f)) & (MASS_BINS - 1);
        if (y < (float)TAIL) atomicAdd(&counts[bin], 1u);
    }

    // The most that n entries of a bin weigh, relative to the maximum. `EDGE` of a bin covers how
    // places are rounded; what all places have in common does not matter.
    __device__ __forceinline__ u64 most(u32 bin, u32 n) const {
        const float depth = __fmul_rn(__fsub_rn((float)bin, (float)EDGE), width);
        return (u64)((float)n * power_of_two(-(float)LOG2_E * depth) * COUNTED_ONE);
    }
};

// Where the boundary can lie, by masses from the top in the unit of `Scale::most`: bins that do not
// reach `first` are above it, and the one that reaches `last` is not below it.
struct Window {
    bool near_top;
    // Shares of the total from the end that is nearer, where float32 tells more.
    float most, fewest;
    float least;         // a share that the kept have for certain

    __device__ __forceinline__ Window(const Scale& scale, double p) {
        // Of a bin's most, what it weighs at least.
        const float low = power_of_two((float)(-2.0 * EDGE * LOG2_E) * scale.width);
        const float up = (float)(1.0 + SLACK), down = low * (float)(1.0 - SLACK);
        const float kept = fminf((float)p, 1.0f), rest = fmaxf((float)(1.0 - p), 0.0f);
        near_top = p < 0.5;
        const float late = __fdividef(1.0f, rest * down + kept * up);
        const float early = __fdividef(1.0f, rest * up + kept * down);
        most = late * (near_top ? kept * up : rest * down);
        fewest = early * (near_top ? kept * down : rest * up);
        least = kept * down * 0.99f;
    }

    // Of each bin up to one unit was cut off.
    __device__ __forceinline__ u64 first(u64 total) const {
        const u64 share = (u64)((double)total * (double)fewest);
        const u64 reach = near_top ? share : total - share;
        return reach > MASS_BINS ? reach - MASS_BINS : 1;
    }

    __device__ __forceinline__ u64 last(u64 total) const {
        const u64 share = (u64)((double)total * (double)most);
        const u64 reach = (near_top ? share : total - share) + MASS_BINS;
        return reach < total ? reach : total;
    }
};

// Sums over packs of elements: masses of the kept and of all, and how many are kept.
struct Sums {
    u64 kept, all;
    u32 count;

    __device__ __forceinline__ static u64 whole(const float (&terms)[PACK]) {
        float sums[PACK];
#pragma unroll
        for (int j = 0; j < PACK; ++j) sums[j] = terms[j];
#pragma unroll
        for (int step = 1; step < PACK; step *= 2)
#pragma unroll
            for (int j = 0; j < PACK; j += 2 * step) sums[j] = __fadd_rn(sums[j], sums[j + step]);
        const double rounded = __dadd_rn((double)sums[0], SUM_ROUNDER);
        return (u64)__double_as_longlong(rounded) - (u64)__double_as_longlong(SUM_ROUNDER);
    }

    // Adds a pack; of what is not kept, `pack` then has -inf. `heaviest` gets of each four entries
    // the largest mass that is kept, or 0; the result is whether an entry lies in the window.
    __device__ __forceinline__ bool add(Pack& pack, float scale, float origin, float below,
                                        float above, const Weight& weight,
                                        float (&heaviest)[PACK / 4]) {
        float weights[PACK], of_kept[PACK];
        bool open = false;
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            const float value = value_of(pack.e[j]);
            const float place = __fmaf_rn(-value, scale, origin);
            const bool keeps = place < below;
            open |= !keeps && place < above;
            weights[j] = weight(value);
            of_kept[j] = keeps ? weights[j] : 0.0f;
            count += keeps;
            if (!keeps) pack.e[j] = nothing();
            heaviest[j / 4] = j % 4 ? fmaxf(heaviest[j / 4], of_kept[j]) : of_kept[j];
        }
        kept += whole(of_kept);
        all += whole(weights);
        return open;
    }
};

// What sums in 2^-13 and 2^-45 are together.
__device__ __forceinline__ double mass_of_halves(u64 high, u64 low, const Weight& weight) {
    return ((double)high * (SUM_UNIT * 0x1p32) + (double)low * SUM_UNIT) * weight.factor;
}

// The keys of the largest and the least value, and whether there is a NaN.
struct Extremes {
    u32 top, low, nan, spare;
    __device__ __forceinline__ void add(const Extremes& other) {
        top = max(top, other.top);
        low = min(low, other.low);
        nan |= other.nan;
    }
    // Over the lanes, in each of them.
    __device__ __forceinline__ void share_in_warp() {
        top = __reduce_max_sync(~0u, top);
        low = __reduce_min_sync(~0u, low);
        nan = __reduce_or_sync(~0u, nan);
    }
    // Over the block, in each thread.
    __device__ __forceinline__ void share(Extremes* scratch) {
        share_in_warp();
        if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = *this;
        __syncthreads();
        if ((threadIdx.x & 31) < ALL_WARPS) add(scratch[threadIdx.x & 31]);
        share_in_warp();
    }
};
#define NO_EXTREMES Extremes{NEGATIVE_INFINITY, 0xFFFFFFFFu, 0, 0}

// The same while values come, in float32.
struct Bounds {
    float top, low;
    bool nan;
    __device__ __forceinline__ void add(float x) {
        top = fmaxf(top, x);
        low = fminf(low, x == __uint_as_float(0xFF800000u) ? __uint_as_float(0x7F800000u) : x);
        nan |= x != x;
    }
    __device__ __forceinline__ Extremes keys() const {
        return Extremes{key_of(top), key_of(low), nan, 0};
    }
};
#define NO_BOUNDS Bounds{__uint_as_float(0xFF800000u), __uint_as_float(0x7F800000u), false}

// How a row with this maximum is done; p is 1 where it is off. `k` is of BY_COUNT, else 0.
__device__ __forceinline__ u32 method_of(const Scale& scale, u32 top, double p, double temperature,
                                         i64 k) {
    if (top == NEGATIVE_INFINITY) return KEEP_NONE;
    if (k > 0) return scale.fits && top != POSITIVE_INFINITY ? BY_COUNT : BY_SEARCH;
    if (!(temperature > 0.0) || p <= 0.0) return KEEP_ONE;
    if (top == POSITIVE_INFINITY || !scale.fits) return BY_SEARCH;
    if (p < 1.0) return BY_BIN;
    return scale.reaches_lowest ? KEEP_ALL : BY_SEARCH;
}

// Whether of equal entries at the maximum the last is to be kept: as a sort would.
__device__ __forceinline__ bool keeps_last(double temperature, int by_sort) {
    return by_sort && temperature > 0.0;
}

// Sum over the threads up to this one; `total` over all. `scratch` has 32 places.
__device__ __forceinline__ u64 block_upto(u64 mine, u64* scratch, u64& total) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u64 upto = mine;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const u64 up = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += up;
    }
    if (lane == 31) scratch[warp] = upto;
    __syncthreads();
    const u64 of_warp = lane < ALL_WARPS ? scratch[lane] : 0;
    total = warp_sum(of_warp);
    return upto + warp_sum(lane < warp ? of_warp : 0);
}
