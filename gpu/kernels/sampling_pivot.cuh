// Qrita's quaternary pivot search (arXiv 2602.01518) over a whole row, by one block. The general
// method: right for any row, and the fallback of the others.
//
// Three pivots divide the range of keys; one pass yields for each the count n and the mass of what
// is above it, the smallest key z above it and how many copies c of z there are. Where n reaches k
// and n - c does not, z is the boundary. Pivots halve twice per round in keys, not in values, so
// that one huge range costs no more: 16 rounds at most. Of the boundary's copies the first are
// found by counting them over 1,024 ranges of index.
//
// Memory: the row once per round, from L2 where it fits. With TRUNCATION the survivors of a
// Gaussian threshold are copied out first and searched instead: 1 takes the quantile from a table
// of 200 entries, 2 from a formula with a margin. PIVOTS and DUPLICATES set the number of pivots
// and whether copies end the search early; they are for the ablation.
#pragma once
#include "sampling_output.cuh"

#ifndef TRUNCATION
#define TRUNCATION 0
#endif
#ifndef PIVOTS
#define PIVOTS 3
#endif
#ifndef DUPLICATES
#define DUPLICATES 1
#endif
#define SEGMENTS 1024

struct Source {
    const element* x;
    const u64* list;  // survivors, key << 32 | index, or null
    i64 size;
    bool vector;

    template <typename F>
    __device__ __forceinline__ void each(F visit) const {
        if (list) {
            for (i64 i = threadIdx.x; i < size; i += THREADS)
                visit((u32)(list[i] >> 32), (i64)(u32)list[i]);
            return;
        }
        for (i64 i = (i64)threadIdx.x * PACK; i < size; i += THREADS * PACK) {
            const Pack pack = load(x, i, size, vector);
#pragma unroll
            for (int j = 0; j < PACK; ++j)
                if (i + j < size) visit(key_of(value_of(pack.e[j])), i + j);
        }
    }
};

struct Limits {
    u32 key;    // entries above this key, and of those at it the ones
    i64 final;  // up to this index
    __device__ __forceinline__ bool hold(u32 k, i64 i) const {
        return k > key || (k == key && i <= final);
    }
};

struct Boundary {
    u32 key;
    u64 above, copies;  // how many are above it and at it
    Sum mass;           // of those above it
};

// The largest key at which, from the top, the count reaches `rank` (BY_MASS: the mass `target`).
template <bool BY_MASS, class Entries>
__device__ Boundary find(const Entries& source, const Limits& limits, u32 top, double temperature,
                         u64 rank, double target, u64* scratch) {
    u32 low = limits.key - 1, high = top;
    for (;;) {
        u32 pivot[PIVOTS], smallest[PIVOTS];
        u64 count[PIVOTS], copies[PIVOTS];
        Sum mass[PIVOTS];
#pragma unroll
        for (int j = 0; j < PIVOTS; ++j) {
            pivot[j] = low + (u32)((u64)(high - low) * (j + 1) / (PIVOTS + 1));
            smallest[j] = 0xFFFFFFFFu;
            count[j] = copies[j] = 0;
            mass[j] = Sum{0, 0};
        }
        source.each([&](u32 key, i64 i) {
            if (key <= pivot[0] || !limits.hold(key, i)) return;
            Sum term = {0, 0};
            if (BY_MASS) term.add(exp_exact(scaled(key, top, temperature)));
#pragma unroll
            for (int j = 0; j < PIVOTS; ++j) {
                if (key <= pivot[j]) continue;
                ++count[j];
                if (BY_MASS) mass[j].add(term);
                if (key < smallest[j]) smallest[j] = key, copies[j] = 0;
                copies[j] += key == smallest[j];
            }
        });
        Boundary found = {0, 0, 0, {0, 0}};
        bool ended = false;
#pragma unroll
        for (int j = 0; j < PIVOTS; ++j) {
            if (ended) break;
            const u32 z = ~(u32)block_max(~smallest[j], scratch);
            const u64 n = block_sum(count[j], scratch);
            const u64 c = block_sum(smallest[j] == z ? copies[j] : 0, scratch);
            Sum all = {0, 0}, above = {0, 0};
            if (BY_MASS) {
                all = block_sum(mass[j], scratch);
                Sum one = {0, 0};
                one.add(exp_exact(scaled(z, top, temperature)));
                above = Sum{all.high - c * one.high, all.low - c * one.low};
            }
            const bool reaches = BY_MASS ? all.value() >= target : n >= rank;
            if (!reaches) {
                high = pivot[j];
                break;
            }
            low = pivot[j];
            const bool above_reaches = BY_MASS ? above.value() >= target && n > c : n - c >= rank;
            if (!above_reaches && (DUPLICATES || high - low <= 1)) {
                found = Boundary{z, n - c, c, above};
                ended = true;
            }
        }
        if (ended) return found;
    }
}

// The index up to which `wanted` entries at the key lie, counting from the lowest.
template <class Entries>
__device__ i64 find_index(const Entries& source, const Limits& limits, u32 key, u64 wanted,
                          i64 size, u32* segments, u64* scratch) {
    __shared__ i64 place;
    __shared__ u64 before;
    i64 begin = 0, length = size;
    for (;;) {
        const i64 width = (length + SEGMENTS - 1) / SEGMENTS;
        for (int s = threadIdx.x; s < SEGMENTS; s += THREADS) segments[s] = 0;
        __syncthreads();
        source.each([&](u32 k, i64 i) {
            if (k == key && limits.hold(k, i) && i >= begin && i < begin + length)
                atomicAdd(&segments[(i - begin) / width], 1u);
        });
        __syncthreads();
        if (threadIdx.x == 0) {
            u64 sum = 0;
            int s = 0;
            while (s < SEGMENTS - 1 && sum + segments[s] < wanted) sum += segments[s++];
            place = begin + s * width;
            before = sum;
        }
        __syncthreads();
        begin = place;
        wanted -= before;
        length = width;
        __syncthreads();
        if (width == 1) return begin;
    }
}

#if TRUNCATION
// The standard normal quantile (Acklam's rational approximation, 1e-9).
__device__ double quantile(double q) {
    const double split = 0.02425;
    if (q < split || q > 1.0 - split) {
        const double s = sqrt(-2.0 * log(q < split ? q : 1.0 - q));
        const double v =
            (((((-7.784894002430293e-03 * s - 3.223964580411365e-01) * s - 2.400758277161838) * s -
               2.549732539343734) * s + 4.374664141464968) * s + 2.938163982698783) /
            ((((7.784695709041462e-03 * s + 3.224671290700398e-01) * s + 2.445134137142996) * s +
              3.754408661907416) * s + 1.0);
        return q < split ? v : -v;
    }
    const double s = q - 0.5, t = s * s;
    return (((((-3.969683028665376e+01 * t + 2.209460984245205e+02) * t - 2.759285104469687e+02) *
                  t + 1.383577518672690e+02) * t - 3.066479806614716e+01) * t +
            2.506628277459239) * s /
           (((((-5.447609879822406e+01 * t + 1.615858368580409e+02) * t - 1.556989798598866e+02) *
                 t + 6.680131188771972e+01) * t - 1.328068155288572e+01) * t + 1.0);
}

// Copies the entries above mean + quantile deviation to the list; their number in each thread.
__device__ u32 truncate(const Source& row, i64 k, i64 size, u64* list, u32 capacity,
                        u64* scratch) {
    __shared__ u32 listed;
    double sum = 0.0, squares = 0.0, n = 0.0;
    const i64 step = size / 4096 > 0 ? size / 4096 : 1;
    for (i64 i = threadIdx.x * step; i < size; i += THREADS * step) {
        const float x = value_of(row.x[i]);
        if (x > __uint_as_float(0xFF800000u) && x < __uint_as_float(0x7F800000u)) {
            sum += x;
            squares += (double)x * x;
            n += 1.0;
        }
    }
    sum = block_sum(sum, scratch);
    squares = block_sum(squares, scratch);
    n = block_sum(n, scratch);
    const double mean = sum / n, deviation = sqrt(fmax(squares / n - mean * mean, 0.0));
    double share = (double)k / (double)size;
#if TRUNCATION == 1
    share = (floor(share * 200.0) + 2.86) / 200.0;  // 1,870 of 131,072 for k = 50
#else
    share = ((double)k + 6.0 * sqrt((double)k) + 100.0) / (double)size;
#endif
    const float threshold = (float)(mean + quantile(1.0 - fmin(share, 0.999)) * deviation);
    if (threadIdx.x == 0) listed = 0;
    __syncthreads();
    const u32 limit = key_of(threshold);
    row.each([&](u32 key, i64 i) {
        if (key <= limit) return;
        const u32 slot = atomicAdd(&listed, 1u);
        if (slot < capacity) list[slot] = (u64)key << 32 | (u32)i;
    });
    __syncthreads();
    return listed;
}
#endif

// Fills the row's results: everything but the list of what is kept. `row` is in shared memory.
__device__ __noinline__ void pivot_row(const element* x, i64 size, Row& row, u64* list,
                                       u32 capacity, int by_sort, u64* scratch, u32* segments) {
    const i64 k = row.k;
    const double p = row.p, temperature = row.temperature;
    const u32 single = row.single;
    Source source = {x, nullptr, size, aligned(x)};
#if TRUNCATION
    const u32 listed = k > 0 ? truncate(source, k, size, list, capacity, scratch) : 0;
    if (k > 0 && listed >= k && listed <= capacity)
        source = Source{source.x, list, listed, false};
#endif
    u32 top = 0;
    u64 present = 0;
    source.each([&](u32 key, i64 i) {
        top = key > top ? key : top;
        present += key > NEGATIVE_INFINITY;
    });
    top = (u32)block_max(top, scratch);
    Limits limits = {NEGATIVE_INFINITY + 1, size};
    if (top == POSITIVE_INFINITY) limits.key = POSITIVE_INFINITY;
    u64 eligible = 0;
    source.each([&](u32 key, i64 i) { eligible += key >= limits.key; });
    eligible = block_sum(eligible, scratch);
    present = block_sum(present, scratch);
    Boundary cut = {limits.key, 0, eligible, {0, 0}};
    i64 first = 0, final = size;
    u64 kept_copies = eligible;
    double mass = 1.0;
    if (eligible == 0) {
        cut = Boundary{NEGATIVE_INFINITY, 0, 0, {0, 0}};
        first = 1, final = 0;
        kept_copies = 0;
        mass = 0.0;
    } else if (single) {
        cut = find<false>(source, limits, top, temperature, 1, 0.0, scratch);
        const bool last = by_sort && single == P_ZERO;
        first = final = find_index(source, limits, cut.key, last ? cut.copies : 1, size, segments,
                                   scratch);
        kept_copies = 1;
    } else {
        if (k > 0 && (u64)k < eligible) {
            cut = find<false>(source, limits, top, temperature, k, 0.0, scratch);
            kept_copies = by_sort ? cut.copies : k - cut.above;
            if (kept_copies < cut.copies && DUPLICATES)
                final = find_index(source, limits, cut.key, kept_copies, size, segments, scratch);
            limits = Limits{cut.key, final};
        }
        Sum whole = {0, 0};
        source.each([&](u32 key, i64 i) {
            if (limits.hold(key, i)) whole.add(exp_exact(scaled(key, top, temperature)));
        });
        whole = block_sum(whole, scratch);
        mass = whole.value();
        if (p < 1.0) {
            const double target = p * mass;
            cut = find<true>(source, limits, top, temperature, 0, target, scratch);
            if (cut.key != limits.key) final = size;
            Sum one = {0, 0};
            one.add(exp_exact(scaled(cut.key, top, temperature)));
            // The fewest copies that reach the target.
            u64 least = 1, most = cut.copies;
            while (least < most) {
                const u64 middle = (least + most) / 2;
                Sum reached = cut.mass;
                reached.add(Sum{middle * one.high, middle * one.low});
                if (reached.value() >= target) most = middle;
                else least = middle + 1;
            }
            kept_copies = least;
            Sum reached = cut.mass;
            reached.add(Sum{least * one.high, least * one.low});
            mass = reached.value();
            if (kept_copies < cut.copies) {
                const u64 wanted = by_sort ? cut.copies - kept_copies + 1 : kept_copies;
                const i64 index =
                    find_index(source, limits, cut.key, wanted, size, segments, scratch);
                if (by_sort) first = index;
                else final = index;
            }
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
    row.top_key = top;
    row.cut_key = cut.key;
    row.first = first;
    row.final = final;
    row.above = cut.above;
    row.count = cut.above + kept_copies;
    row.log_mass = single && eligible ? 0.0 : (mass > 0.0 ? log_exact(mass)
                       : __longlong_as_double((i64)0xFFF0000000000000ull));
    row.kept = NO_LIST;
    }
    __syncthreads();
}
