// Counts of rows by bins, for top-p (sampling_keep.cu) and the best of a softmax
// (sampling_best.cu).
//
// extremes: each row's maximum and minimum, by parts.
// masses: counts by bins, of each part in shared memory and then of the row.
// masses_exact: for the k best; also the exact mass, and the row's last block finds the k-th's bin.
//   Log-probabilities are by the softmax of `whole`, which is known before or is `rows`.
//
// Memory: 8 bytes read an element of float32, half of it from L2 where rows are long.
#define THREADS 512
#include "sampling_parts.cuh"

#define STEP (THREADS * PACK)
#define AHEAD (20 / PACK)  // packs that a thread reads at a time

extern "C" __global__ void __launch_bounds__(THREADS, 2)
extremes(PARTS, Mass* masses, u32* bins, Extremes* bounds) {
    __shared__ Extremes scratch[32];
    const auto [r, part, x, vector, begin, end] = PART_HERE;
    Bounds seen = NO_BOUNDS;
    for (i64 at = begin + threadIdx.x * PACK; at < end; at += AHEAD * STEP) {
        Pack packs[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) packs[u] = load(x, at + u * STEP, end, vector);
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
#pragma unroll
            for (int j = 0; j < PACK; ++j) seen.add(value_of(packs[u].e[j]));
    }
    for (u32 b = part * THREADS + threadIdx.x; b < MASS_BINS; b += chunks * THREADS)
        bins[r * MASS_BINS + b] = 0;
    Extremes mine = seen.keys();
    mine.share(scratch);
    if (threadIdx.x) return;
    bounds[blockIdx.x] = mine;
    if (part) return;
    Mass& mass = masses[r];
    mass.finalists = mass.listed = mass.arrived[0] = mass.arrived[1] = 0;
    mass.best = ~0ull;
    mass.exact[0] = mass.exact[1] = 0;
    mass.count = mass.sums[0] = mass.sums[1] = mass.sums[2] = mass.sums[3] = 0;
}

// Counts the block's part by bins, and with `EXACT` returns the thread's sum of the terms of a
// softmax in 2^-52. `counts` are zero.
template <bool EXACT>
__device__ __forceinline__ u64 count_part(const Part& part, const Scale& scale, bool counting,
                                          u32 top, u32* counts) {
    const auto [r, number, x, vector, begin, end] = part;
    const double highest = (double)value_of_key(top);
    u64 sum = 0;
    // From the end: what was read last is still in L2.
    constexpr i64 TURN = AHEAD * STEP;
    for (i64 turns = (end - begin + TURN - 1) / TURN; turns > 0; --turns) {
        const i64 at = begin + (turns - 1) * TURN + threadIdx.x * PACK;
        Pack packs[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) packs[u] = load(x, at + u * STEP, end, vector);
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const float value = value_of(packs[u].e[j]);
                if (!EXACT || counting) scale.count(value, counts);
                // To 2^-53; less adds nothing.
                const double d = __dsub_rn((double)value, highest);
                if (EXACT && d > -37.0) sum += __double2ull_rn(exp_exact(d) * 0x1p52);
            }
    }
    return sum;
}

// Adds a block's counts to the row's.
__device__ __forceinline__ void add_counts(const u32* counts, u32* bins) {
    __syncthreads();
    for (u32 b = threadIdx.x; b < MASS_BINS; b += THREADS)
        if (counts[b]) atomicAdd(&bins[b], counts[b]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
masses(PARTS, u32* bins, const Extremes* bounds, const double* ps, double p_all,
       const double* temperatures, double temperature_all, int drawing) {
    __shared__ u32 counts[MASS_BINS];
    __shared__ Extremes scratch[32];
    const Part part = PART_HERE;
    const double temperature = temperatures ? temperatures[part.r] : temperature_all;
    for (u32 b = threadIdx.x; b < MASS_BINS; b += THREADS) counts[b] = 0;
    const Extremes seen = extremes_of(bounds + part.r * chunks, chunks, scratch);
    const Scale scale(seen.top, seen.low, temperature, size);
    const double p = ps ? ps[part.r] : p_all;
    const u32 how = method_of(scale, seen.top, p, temperature, 0);
    // To draw among all, the mass of all is wanted.
    if (how != BY_BIN && !(how == KEEP_ALL && drawing)) return;
    count_part<false>(part, scale, true, seen.top, counts);
    add_counts(counts, bins + part.r * MASS_BINS);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
masses_exact(PARTS, Mass* rows, u32* bins, const Extremes* bounds, const Mass* whole, i64 k) {
    __shared__ u32 counts[MASS_BINS];
    __shared__ Extremes scratch[32];
    __shared__ u64 sums[32];
    const Part part = PART_HERE;
    const u32 t = threadIdx.x;
    Mass& row = rows[part.r];
    bins += part.r * MASS_BINS;
    for (u32 b = t; b < MASS_BINS; b += THREADS) counts[b] = 0;
    const Extremes seen = extremes_of(bounds + part.r * chunks, chunks, scratch);
    const Scale scale(seen.top, seen.low, 1.0, size);
    const u32 how = method_of(scale, seen.top, 1.0, 1.0, k);
    const bool counting = how == BY_COUNT;
    if (seen.top != NEGATIVE_INFINITY && seen.top != POSITIVE_INFINITY) {
        const u64 sum = count_part<true>(part, scale, counting, seen.top, counts);
        if (counting) add_counts(counts, bins);
        const u64 high = block_sum(sum >> 32, sums), low = block_sum(sum & 0xFFFFFFFFu, sums);
        if (t == 0) atomicAdd(&row.exact[0], high), atomicAdd(&row.exact[1], low);
    }
    if (!arrives_last(&row.arrived[0], chunks)) return;
    if (t == 0) {
        row.scale = scale.scale;
        row.origin = scale.origin;
        row.top_key = seen.top;
        row.nan = seen.nan;
        // All are listed where bins hold fewer than k, but not by places that do not tell -inf.
        row.how = counting && !scale.reaches_lowest ? BY_SEARCH : how;
        row.above = __uint_as_float(0x7F800000u);
        const double high = (double)__ldcg(&row.exact[0]), low = (double)__ldcg(&row.exact[1]);
        row.log_total = log_exact(high * 0x1p-20 + low * 0x1p-52);
    }
    if (!counting) return;
    u32 own[EACH];
    read_bins(bins, own);
    u64 mine = 0, total;
#pragma unroll
    for (int j = 0; j < EACH; ++j) mine += own[j];
    u64 before = block_upto(mine, sums, total) - mine;
#pragma unroll 1
    for (int j = 0; j < EACH; ++j) {
        const u64 bin = t * EACH + j, there = before + own[j];
        if (before < k && there >= k) {
            // Of log-probabilities that round to the same float32 the lowest tokens are the best, so
            // two units in the last place of the k-th's are listed: in narrow bins, many of these.
            const Mass& all = whole[part.r];
            const double top = (double)value_of_key(all.top_key) - (double)value_of_key(seen.top);
            const double here = (double)(bin + 2);
            const double depth = (top + all.log_total) * (double)scale.scale + here;
            const double above = here + depth * 0x1p-22;
            if (above < TAIL) {
                row.above = (float)above;
                row.how = BY_COUNT;
            }
        }
        before = there;
    }
}
