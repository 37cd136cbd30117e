// window: one block a row; bounds of each bin's mass from its two edges say which bins can hold
// the boundary. A row whose list would be too long goes to the pivot search.
//
// Memory: 16 KiB of bins a row, and the list.
#include "sampling.cuh"

#define WINDOWERS 512
#define BINS_EACH (BINS / WINDOWERS)

// The largest value whose bin is at least b: bins fall as values rise.
__device__ float edge_of(int b, float high, float scale) {
    if (b <= 0) return high;
    if (b >= BINS) return __uint_as_float(0xFF800000u);
    u32 low = NEGATIVE_INFINITY, most = key_of(high);
    while (low < most) {
        const u32 middle = low + (most - low + 1) / 2;
        if (bin_of(value_of_key(middle), high, scale) >= b) low = middle;
        else most = middle - 1;
    }
    return value_of_key(low);
}

extern "C" __global__ void __launch_bounds__(WINDOWERS)
window(Row* rows, const u32* bins, const u64* lists, u32 capacity) {
    __shared__ u64 scratch[32];
    __shared__ double upper_warps[16], lower_warps[16];
    __shared__ u32 count_warps[16], tops[16];
    __shared__ double found_upper, found_lower;
    __shared__ int k_bin, first, last;
    __shared__ u32 at[4];
    const i64 r = blockIdx.x;
    Row& row = rows[r];
    if (row.mode != BY_BINS) return;
    const u64* list = lists + r * capacity;
    const u32 n = row.listed, t = threadIdx.x, lane = t & 31, warp = t >> 5;
    u32 counts[BINS_EACH];
#pragma unroll
    for (int j = 0; j < BINS_EACH; j += 4)
        *(uint4*)&counts[j] = *(const uint4*)&bins[r * BINS + t * BINS_EACH + j];
    if (n == 0 || n > capacity) {
        if (t == 0) row.mode = BY_PIVOT;
        return;
    }
    u32 top = 0;
    for (u32 i = t; i < n; i += WINDOWERS) top = max(top, (u32)(list[i] >> 32));
    top = __reduce_max_sync(~0u, top);
    if (lane == 0) tops[warp] = top;
    if (t < 4) at[t] = 0;
    if (t == 0) k_bin = BINS, first = BINS, last = BINS;
    __syncthreads();
    top = __reduce_max_sync(~0u, tops[lane & 15]);
    const i64 k = row.k;
    if (top == POSITIVE_INFINITY || (k > 0 && k <= n)) {
        if (t == 0) row.mode = BY_LIST;
        return;
    }
    // Masses here only bound: float32 terms with a slack of 1e-5, in sums of fixed order.
    const float high = row.high, scale = row.scale;
    const double factor = LOG2_E / row.temperature;
    Power power;
    power.set(factor, -factor * (double)value_of_key(top));
    u64 listed_sum = 0;
    for (u32 i = t; i < n; i += WINDOWERS)
        listed_sum += (u64)(power(value_of_key((u32)(list[i] >> 32))) * 0x1p40f);
    const double listed_mass = (double)block_sum(listed_sum, scratch) * 0x1p-40;
    const double offset = ((double)high - (double)value_of_key(top)) * factor;
    const double width = factor / (double)scale;
    double upper[BINS_EACH], lower[BINS_EACH];
    u32 counted = 0;
    double upper_sum = 0.0, lower_sum = 0.0;
    float edge = power_of_two((float)fmin(offset - t * BINS_EACH * width, 0.0));
#pragma unroll
    for (int j = 0; j < BINS_EACH; ++j) {
        const int b = t * BINS_EACH + j;
        const float next = power_of_two((float)fmin(offset - (b + 1) * width, 0.0));
        upper_sum += (double)counts[j] * (double)(edge * (1.0f + 1e-5f));
        if (b < BINS - 1) lower_sum += (double)counts[j] * (double)(next * (1.0f - 1e-5f));
        edge = next;
        counts[j] = counted += counts[j];
        upper[j] = upper_sum;
        lower[j] = lower_sum;
    }
    u32 count_lanes = counted;
    double upper_lanes = upper_sum, lower_lanes = lower_sum;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const u32 c = __shfl_up_sync(~0u, count_lanes, d);
        const double u = __shfl_up_sync(~0u, upper_lanes, d);
        const double l = __shfl_up_sync(~0u, lower_lanes, d);
        if (lane >= d) count_lanes += c, upper_lanes += u, lower_lanes += l;
    }
    if (lane == 31)
        count_warps[warp] = count_lanes, upper_warps[warp] = upper_lanes,
        lower_warps[warp] = lower_lanes;
    __syncthreads();
    u32 count_base = count_lanes - counted;
    double upper_base = upper_lanes - upper_sum, lower_base = lower_lanes - lower_sum;
    double upper_all = 0.0, lower_all = 0.0;
    for (u32 w = 0; w < 16; ++w) {
        if (w < warp)
            count_base += count_warps[w], upper_base += upper_warps[w],
                lower_base += lower_warps[w];
        upper_all += upper_warps[w];
        lower_all += lower_warps[w];
    }
    if (t == 0) found_upper = upper_all, found_lower = lower_all;
    __syncthreads();
    if (k > 0) {
#pragma unroll
        for (int j = 0; j < BINS_EACH; ++j) {
            const u64 before = (u64)n + count_base + (j ? counts[j - 1] : 0);
            if ((i64)before < k && (i64)((u64)n + count_base + counts[j]) >= k) {
                // Mass of all that top-k keeps, from both sides.
                k_bin = t * BINS_EACH + j;
                found_upper = upper_base + upper[j];
                found_lower = lower_base + (j ? lower[j - 1] : 0.0);
            }
        }
        __syncthreads();
    }
    const double p = row.p;
    const double mass_least = listed_mass * (1.0 - 1e-5) + found_lower;
    const double least = p * mass_least;
    const double most = p * (listed_mass * (1.0 + 1e-5) + found_upper);
    if (p < 1.0) {
        int early = BINS, late = BINS;
#pragma unroll
        for (int j = BINS_EACH - 1; j >= 0; --j) {
            const int b = t * BINS_EACH + j;
            if (listed_mass * (1.0 + 1e-5) + upper_base + upper[j] >= least) early = b;
            if (listed_mass * (1.0 - 1e-5) + lower_base + lower[j] >= most) late = b;
        }
        early = __reduce_min_sync(~0u, early);
        late = __reduce_min_sync(~0u, late);
        if (lane == 0) atomicMin(&first, early), atomicMin(&last, late);
        __syncthreads();
        if (t == 0) {
            if (listed_mass * (1.0 + 1e-5) >= least) first = 0;
            if (listed_mass * (1.0 - 1e-5) >= most) last = -1;
            const int deepest = k_bin < BINS ? k_bin : BINS - 1;
            if (last > deepest) last = deepest;
            if (first > last + 1) first = last + 1;
        }
    } else if (t == 0) {
        first = 0, last = -1;
    }
    __syncthreads();
    // Counts up to: before first, last, before k_bin, k_bin.
#pragma unroll
    for (int j = 0; j < BINS_EACH; ++j) {
        const int b = t * BINS_EACH + j;
        const u32 upto = count_base + counts[j];
        if (b == first - 1) at[0] = upto;
        if (b == last) at[1] = upto;
        if (b == k_bin - 1) at[2] = upto;
        if (b == k_bin) at[3] = upto;
    }
    if (t < 4) {
        const int bin = t == 0 ? first : t == 1 ? last + 1 : t == 2 ? k_bin : k_bin + 1;
        row.edges[t] = edge_of(bin, high, scale);
    }
    __syncthreads();
    if (t) return;
    const bool apart = k_bin < BINS && k_bin > last;
    const u64 listing =
        (u64)n + (last >= first ? at[1] - at[0] : 0) + (apart ? at[3] - at[2] : 0);
    if (listing > capacity) {
        row.mode = BY_PIVOT;
        return;
    }
    if (k_bin == BINS) row.k = 0;  // no more than k are above -inf
    const u32 upto_last = last >= first ? at[1] : at[0];
    row.mid_count = at[0];
    row.low_count = k_bin > last ? at[2] - upto_last : 0;
    row.unlisted = row.mid_count + (apart ? row.low_count : 0);
    row.top_key = top;
    row.power = power;
    row.deep = first > 0;
    if (!(p < 1.0)) row.edges[0] = row.edges[1] = row.edges[2];  // all of low is kept: mid
    // The kept have a mass of at least p mass_least: nothing is above 16 of its shares but with
    // probability e^-16, which is then found out.
    row.bound = (float)(16.0 / fmax(least, 1e-30));
}
