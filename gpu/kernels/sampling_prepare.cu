// prepare: one block a row; a strided sample of the row names a threshold `high` that somewhat
// more than k entries should exceed, and the bins below it. It is an order statistic of the sample,
// so it holds for any distribution, where the normal quantile of Qrita gives 30 times k on a power
// law. Exactness does not rest on it.
//
// The threshold is the edge of one of 512 linear bins of the sample where that is fine enough, else
// pivots find it.
//
// Memory: 4,096 or 8,192 entries a row, as sectors of 32 bytes.
#include "sampling.cuh"

#define SAMPLERS 512
#define SAMPLE_EACH 16
#define WANTED_TOP 8  // sampled entries above high where bins follow

extern "C" __global__ void __launch_bounds__(SAMPLERS)
prepare(const element* __restrict__ logits, i64 stride, i64 size, Row* rows, u32* bins,
        const i64* ks, i64 k_all, const double* ps, double p_all, const double* temperatures,
        double temperature_all, i64 longest_k, int most_sampled, int by_pivot) {
    __shared__ u32 histogram[SAMPLERS], highs[16], lows[16], sums[16];
    __shared__ uint2 counts[2][16];
    __shared__ int found_bin;
    __shared__ u32 found_count;
    const u32 t = threadIdx.x, lane = t & 31, warp = t >> 5;
    const i64 r = blockIdx.x;
    const element* x = logits + r * stride;
    const double temperature = temperatures ? temperatures[r] : temperature_all;
    double p = ps ? ps[r] : p_all;
    i64 k = ks ? ks[r] : k_all;
    u32 single = 0;
    if (k <= 0 || k >= size) k = 0;
    if (!(temperature > 0.0)) single = TEMPERATURE_ZERO;
    else if (p <= 0.0) single = P_ZERO;
    if (single) k = size > 1 ? 1 : 0, p = 1.0;
    if (!(p < 1.0)) p = 1.0;
    const bool everything = size <= most_sampled;
    const bool listed = everything || (k > 0 && k <= longest_k);

    // Eight neighbours at a time: one 32-byte sector of float32.
    const i64 step = size / (most_sampled / 8);
    u32 keys[SAMPLE_EACH];
    u32 lowest = 0xFFFFFFFFu, highest = 0;
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; ++i) {
        const int n = i * SAMPLERS + t;
        keys[i] = 0;
        if (!everything && n < most_sampled)
            keys[i] = key_of(value_of(x[(n >> 3) * step + (n & 7)]));
    }
    if (bins && !listed)
        for (int b = t; b < BINS; b += SAMPLERS) bins[r * BINS + b] = 0;
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; ++i) {
        if (keys[i] > NEGATIVE_INFINITY && keys[i] < lowest) lowest = keys[i];
        if (keys[i] > highest) highest = keys[i];
    }
    highest = __reduce_max_sync(~0u, highest);
    lowest = __reduce_min_sync(~0u, lowest);
    if (lane == 0) highs[warp] = highest, lows[warp] = lowest;
    histogram[t] = 0;
    if (t == 0) found_bin = -1;
    __syncthreads();
    highest = __reduce_max_sync(~0u, highs[lane & 15]);
    lowest = __reduce_min_sync(~0u, lows[lane & 15]);

    const double expected = (double)k * most_sampled / (double)size;
    const u32 wanted = listed ? (u32)(expected + 4.5 * sqrt(expected) + 6.0) : WANTED_TOP;
    const u32 enough = wanted + wanted / 2 + 4;
    u32 low = NEGATIVE_INFINITY;
    // The threshold is the edge of a linear bin of the sample, where that is fine enough.
    const float top = value_of_key(highest), range = top - value_of_key(lowest);
    const bool linear = !everything && lowest < highest && range < 1e30f;
    if (linear) {
        const float scale = fminf(SAMPLERS / range, 1e30f);
#pragma unroll
        for (int i = 0; i < SAMPLE_EACH; ++i)
            if (keys[i] > NEGATIVE_INFINITY)
                atomicAdd(&histogram[min((int)((top - value_of_key(keys[i])) * scale),
                                         SAMPLERS - 1)], 1u);
        __syncthreads();
        const u32 own = histogram[t];
        u32 upto = own;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            const u32 up = __shfl_up_sync(~0u, upto, d);
            if (lane >= d) upto += up;
        }
        if (lane == 31) sums[warp] = upto;
        __syncthreads();
        upto += __reduce_add_sync(~0u, lane < warp ? sums[lane & 15] : 0);
        if (upto - own < wanted && upto >= wanted) found_bin = t, found_count = upto;
        __syncthreads();
        if (found_bin >= 0 && found_count <= enough)
            low = key_of(top - (found_bin + 1) / scale);
        if (low < NEGATIVE_INFINITY) low = NEGATIVE_INFINITY;
    }
    // Else three pivots a round give the largest with `wanted` sampled keys above it, or nearly.
    if (!everything && !(linear && (found_bin < 0 || found_count <= enough))) {
        u32 high = highest;
        for (int round = 0; high > low + 1; ++round) {
            const u32 quarter = (high - low) >> 2;
            u32 pivot1 = low + quarter, pivot2 = low + ((high - low) >> 1),
                pivot3 = high - quarter;
            if (quarter == 0) pivot1 = pivot2 = pivot3 = low + 1;
            u32 n1 = 0, n2 = 0, n3 = 0;
#pragma unroll
            for (int i = 0; i < SAMPLE_EACH; ++i) {
                n1 += keys[i] > pivot1;
                n2 += keys[i] > pivot2;
                n3 += keys[i] > pivot3;
            }
            // At most 512 a warp and 8,192 a block.
            const u32 both = __reduce_add_sync(~0u, n1 | n2 << 16);
            n3 = __reduce_add_sync(~0u, n3);
            if (lane == 0) counts[round & 1][warp] = make_uint2(both, n3);
            __syncthreads();
            const uint2 part = lane < 16 ? counts[round & 1][lane] : make_uint2(0, 0);
            const u32 all = __reduce_add_sync(~0u, part.x);
            n3 = __reduce_add_sync(~0u, part.y);
            n1 = all & 0xFFFF;
            n2 = all >> 16;
            u32 above;
            if (n3 >= wanted) low = pivot3, above = n3;
            else if (n2 >= wanted) low = pivot2, high = pivot3, above = n2;
            else if (n1 >= wanted) low = pivot1, high = pivot2, above = n1;
            else high = pivot1, above = ~0u;
            if (above <= enough) break;
        }
    }
    if (t == 0) {
        Row fresh = {};
        fresh.p = p;
        fresh.temperature = temperature;
        fresh.k = k;
        fresh.single = single;
        fresh.high = value_of_key(low);
        fresh.mode = listed ? BY_LIST : BY_BINS;
        fresh.kept = NO_LIST;
        if (!listed) {
            // Below 24 temperatures under high nothing matters but for p very near 1.
            float span = fresh.high - value_of_key(lowest);
            if (lowest == 0xFFFFFFFFu || !(span > 0.0f)) span = 1e-30f;
            span = fminf(span, (float)(24.0 * temperature));
            fresh.scale = fminf((float)BINS / span, 1e30f);
            if (!(temperature > 1e-30 && temperature < 1e30)) fresh.mode = BY_PIVOT;
        }
        if (by_pivot) fresh.mode = BY_PIVOT;
        rows[r] = fresh;
    }
}
