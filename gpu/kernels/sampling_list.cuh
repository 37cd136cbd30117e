// The exact boundary of a row within its list, by one block.
//
// A search is a histogram of the list over as many bins of place as there are threads, which names
// the bin of the boundary; a bin of up to 32 entries is finished by one warp, a larger one is
// split again. Places are distinct, so there are at most eight rounds whatever the values, and
// mostly one. Masses are sums of integers and so do not depend on the order in which the list was
// filled.
//
// Memory: the list once, from L2 into shared memory where it fits, with its masses where those do
// too: `room` numbers of 8 bytes.
#pragma once
#include "sampling_pivot.cuh"

#define LOG_THREADS (THREADS == 256 ? 8 : 9)
#define ALL_WARPS (THREADS / 32)

struct Shared {
    u32 counts[THREADS];
    union {
        u64 sums[THREADS];
        u64 sorted[KEPT];
        u32 segments[SEGMENTS];
    };
    u64 scratch[4 * 32];
    u64 warp_sums[ALL_WARPS];
    u32 warp_counts[ALL_WARPS];
    u64 few[32], terms[THREADS];
    u32 number, bin;
    u32 before;
    u64 before_sum;
    u64 result;
    u32 result_count;
    u64 result_sum;
    Row row;
};

// Sums of up to four numbers over the block, in each thread. `scratch` has 128 places.
__device__ __forceinline__ ulonglong4 block_sums(ulonglong4 values, u64* scratch) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    values.x = warp_sum(values.x);
    values.y = warp_sum(values.y);
    values.z = warp_sum(values.z);
    values.w = warp_sum(values.w);
    if (lane == 0) {
        scratch[warp] = values.x;
        scratch[32 + warp] = values.y;
        scratch[64 + warp] = values.z;
        scratch[96 + warp] = values.w;
    }
    __syncthreads();
    const bool there = lane < ALL_WARPS;
    values.x = warp_sum(there ? scratch[lane] : 0);
    values.y = warp_sum(there ? scratch[32 + lane] : 0);
    values.z = warp_sum(there ? scratch[64 + lane] : 0);
    values.w = warp_sum(there ? scratch[96 + lane] : 0);
    __syncthreads();
    return values;
}

__device__ __forceinline__ double mass_of(u32 key, u32 top, double temperature) {
    return exp_exact(scaled(key, top, temperature));
}

struct List {
    const u64* entries;  // key << 32 | index
    const u64* places;   // the same as places, on chip, or null
    const u64* masses;   // of those, or null
    u32 flip;            // all ones where lower indices come first
    u32 n;
    __device__ __forceinline__ u64 operator[](u32 i) const {
        return places ? places[i] : entries[i] ^ flip;
    }
};

// Masses as whole numbers: as fine as lets a sum of n of them stay below 2^63.
struct Terms {
    u32 top;
    double temperature, unit, per_unit;
    __device__ __forceinline__ Terms(u32 top, double temperature, u32 n)
        : top(top), temperature(temperature) {
        const int bits = 31 + __clz(n);  // 62 - floor(log2(n)) - 0..1
        unit = __longlong_as_double((i64)(1023 - bits) << 52);
        per_unit = __longlong_as_double((i64)(1023 + bits) << 52);
    }
    __device__ __forceinline__ u64 operator()(u64 place) const {
        return (u64)__dmul_rn(mass_of((u32)(place >> 32), top, temperature), per_unit);
    }
    __device__ __forceinline__ double value(u64 sum) const { return __dmul_rn((double)sum, unit); }
};

// A boundary: its place, and of the places from the top down to it the number and the mass.
struct Found {
    u64 place;
    u32 count;
    u64 sum;
};

// The place within [low, high] at which, from the top, the count reaches `rank`, or with BY_MASS
// the mass: base + terms + extra >= target. It is reached: the caller sees to that.
template <bool BY_MASS>
__device__ __forceinline__ Found search(const List& list, const Terms& term, u64 low, u64 high,
                                        u32 rank, u64 base, double extra, double target,
                                        Shared& shared) {
    const u32 t = threadIdx.x, lane = t & 31, warp = t >> 5;
    u32 counted = 0;
    for (;;) {
        const u64 span = high - low;
        const int shift = span < THREADS ? 0 : 64 - __clzll(span) - LOG_THREADS;
        shared.counts[t] = 0;
        if (BY_MASS) shared.sums[t] = 0;
        if (t == 0) shared.number = shared.bin = 0, shared.before = counted, shared.before_sum = base;
        __syncthreads();
#pragma unroll 1
        for (u32 i = t; i < list.n; i += THREADS) {
            const u64 place = list[i];
            if (place < low || place > high) continue;
            const u32 bin = (u32)((place - low) >> shift);
            atomicAdd(&shared.counts[bin], 1u);
            if (BY_MASS) atomicAdd(&shared.sums[bin], list.masses ? list.masses[i] : term(place));
        }
        __syncthreads();
        // Thread t has the t-th bin from the top.
        const u32 bin = THREADS - 1 - t;
        const u32 own = shared.counts[bin];
        const u64 mine = BY_MASS ? shared.sums[bin] : 0;
        u32 upto = own;
        u64 sum = mine;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            const u32 up = __shfl_up_sync(~0u, upto, d);
            if (lane >= d) upto += up;
            if (BY_MASS) {
                const u64 sum_up = __shfl_up_sync(~0u, sum, d);
                if (lane >= d) sum += sum_up;
            }
        }
        if (lane == 31) {
            shared.warp_counts[warp] = upto;
            if (BY_MASS) shared.warp_sums[warp] = sum;
        }
        __syncthreads();
        upto += counted;
        sum += base;
        const bool ahead_of = lane < warp;
        upto += __reduce_add_sync(~0u, ahead_of ? shared.warp_counts[lane] : 0);
        if (BY_MASS) sum += warp_sum(ahead_of ? shared.warp_sums[lane] : 0);
        // The first place ends the search where `extra` alone reaches the target.
        const bool here = BY_MASS ? own && term.value(sum) + extra >= target &&
                                        (upto == own || !(term.value(sum - mine) + extra >= target))
                                  : upto - own < rank && upto >= rank;
        if (here) {
            shared.bin = bin;
            shared.before = upto - own;
            shared.before_sum = sum - mine;
        }
        __syncthreads();
        const u64 start = low + ((u64)shared.bin << shift);
        const u64 end = start + ((1ull << shift) - 1);
        const u32 inside = shared.counts[shared.bin];
        low = start;
        if (end < high) high = end;
        base = shared.before_sum;
        counted = shared.before;
        if (inside > 32) {
            __syncthreads();
            continue;
        }
#pragma unroll 1
        for (u32 i = t; i < list.n; i += THREADS) {
            const u64 place = list[i];
            if (place >= low && place <= high) shared.few[atomicAdd(&shared.number, 1u)] = place;
        }
        __syncthreads();
        if (warp == 0) {
            const u64 place = lane < inside ? shared.few[lane] : 0;
            const u64 own_term = BY_MASS && place ? term(place) : 0;
            u32 ahead = counted;
            u64 reached = base;
#pragma unroll 1
            for (u32 other = 0; other < inside; ++other) {
                const u64 there = shared.few[other];
                const u64 term_there = BY_MASS ? __shfl_sync(~0u, own_term, other) : 0;
                if (there >= place) {
                    ++ahead;
                    reached += term_there;
                }
            }
            const bool done =
                place && (BY_MASS ? term.value(reached) + extra >= target : ahead >= rank);
            const u64 found = warp_max(done ? place : 0);
            if (place && place == found)
                shared.result = found, shared.result_count = ahead, shared.result_sum = reached;
        }
        __syncthreads();
        return Found{shared.result, shared.result_count, shared.result_sum};
    }
}

// The place, count and mass of the boundary among `number` survivors in shared.sorted, one a
// thread, each counting those ahead of it; puts them into order.
__device__ __forceinline__ Found resolve_few(const Terms& term, u32 number, double p,
                                             Shared& shared) {
    const u32 t = threadIdx.x;
    const u64 place = t < number ? shared.sorted[t] : 0;
    if (t < number) shared.terms[t] = term(place);
    if (t == 0) shared.result = 0;
    __syncthreads();
    u32 ahead = 0;
    u64 reached = 0, all = 0;
    if (t < number)
#pragma unroll 4
        for (u32 other = 0; other < number; ++other) {
            const u64 mass = shared.terms[other];
            const bool counts = shared.sorted[other] >= place;
            ahead += counts;
            reached += counts ? mass : 0;
            all += mass;
        }
    __syncthreads();
    const double target = p * term.value(all);
    const bool done = t < number && (p < 1.0 ? term.value(reached) >= target : ahead == number);
    if (t < number) shared.sorted[ahead - 1] = place;
    const u64 best = warp_max(done ? place : 0);
    if ((t & 31) == 0 && best) atomicMax(&shared.result, best);
    __syncthreads();
    if (t < number && place == shared.result)
        shared.result_count = ahead, shared.result_sum = reached;
    __syncthreads();
    return Found{shared.result, shared.result_count, shared.result_sum};
}

// The boundary within the list, into shared.row; returns it as a place. `ordered_few` says whether
// shared.sorted holds what is kept, in order.
__device__ __forceinline__ u64 resolve_list(List& list, u64* on_chip, u32 room, const double2* partial,
                                            i64 slices, int by_sort, bool& ordered_few,
                                            Shared& shared) {
    const u32 t = threadIdx.x, n = list.n;
    Row& row = shared.row;
    const bool by_bins = row.mode == BY_BINS;
    u64 most = 0, least = ~0ull;
#pragma unroll 1
    for (u32 i = t; i < n; i += THREADS) {
        const u64 place = list[i];
        if (n <= room) on_chip[i] = place;
        if (place > most) most = place;
        if (place < least) least = place;
    }
    double mid_mass = 0.0, low_mass = 0.0;
    i64 mid_count = 0, low_count = 0;
    if (by_bins) {
        for (i64 s = t; s < slices; s += THREADS) {
            const double2 part = partial[s];
            mid_mass = __dadd_rn(mid_mass, part.x);
            low_mass = __dadd_rn(low_mass, part.y);
        }
        mid_mass = block_sum(mid_mass, shared.scratch);
        low_mass = block_sum(low_mass, shared.scratch);
        mid_count = row.mid_count, low_count = row.low_count;
    }
    most = warp_max(most);
    least = ~warp_max(~least);
    if ((t & 31) == 0) shared.scratch[t >> 5] = most, shared.scratch[32 + (t >> 5)] = least;
    if (t == 0) shared.number = 0;
    __syncthreads();
#pragma unroll 1
    for (int w = 0; w < ALL_WARPS; ++w) {
        if (shared.scratch[w] > most) most = shared.scratch[w];
        if (shared.scratch[32 + w] < least) least = shared.scratch[32 + w];
    }
    __syncthreads();
    if (n <= room) list.places = on_chip;
    const u32 top = (u32)(most >> 32);
    const Terms term(top, row.temperature, n);
    const double p = row.p;
    const u32 single = row.single;
    const i64 k = row.k, rank = k - (by_bins ? row.unlisted : 0);
    u64 cut = least, count = n;
    double mass = 1.0;
    if (single) {
        // Temperature 0 takes the lowest index whatever the order of ties.
        cut = most;
        count = 1;
        if (single == TEMPERATURE_ZERO && by_sort) {
            u64 lowest = 0;
        #pragma unroll 1
    for (u32 i = t; i < n; i += THREADS)
                if ((u32)(list[i] >> 32) == top && ~(u32)list[i] > lowest) lowest = ~(u32)list[i];
            cut = (u64)top << 32 | (u32)~block_max(lowest, shared.scratch);
        }
    } else {
        if (top == POSITIVE_INFINITY) {
            least = cut = (u64)POSITIVE_INFINITY << 32;
            ulonglong4 eligible = {0, 0, 0, 0};
        #pragma unroll 1
    for (u32 i = t; i < n; i += THREADS) eligible.x += list[i] >= least;
            count = block_sums(eligible, shared.scratch).x;
        }
        if (k > 0 && rank < (i64)count) {
            cut = search<false>(list, term, least, most, (u32)rank, 0, 0.0, 0.0, shared).place;
            count = rank;
            if (t == 0) shared.number = 0;
            __syncthreads();
        }
        if (by_sort) cut &= ~0xFFFFFFFFull;
        ordered_few = !by_bins && !by_sort && count <= THREADS;
        if (ordered_few) {
        #pragma unroll 1
    for (u32 i = t; i < n; i += THREADS)
                if (list[i] >= cut) shared.sorted[atomicAdd(&shared.number, 1u)] = list[i];
            __syncthreads();
            const Found found = resolve_few(term, (u32)count, p, shared);
            cut = found.place;
            count = found.count;
            mass = term.value(found.sum);
        } else {
            // Of the listed, those above the bins that are kept for certain lie above the border.
            const u64 border =
                by_bins && row.deep ? (u64)key_of(row.high) << 32 | 0xFFFFFFFFu : ~0ull;
            ulonglong4 sums = {0, 0, 0, 0};
        #pragma unroll 1
    for (u32 i = t; i < n; i += THREADS) {
                const u64 place = list[i];
                const u64 mass = place >= cut ? term(place) : 0;
                if (2 * n <= room) on_chip[n + i] = mass;
                if (place < cut) continue;
                const bool certain = place > border;
                sums.x += certain ? 0 : mass;
                sums.y += certain ? mass : 0;
                ++sums.z;
                sums.w += certain;
            }
            sums = block_sums(sums, shared.scratch);
            if (2 * n <= room) list.masses = on_chip + n;
            count = sums.z;
            u64 whole = sums.x + sums.y;
            if (p < 1.0) {
                const double reachable = term.value(whole) + mid_mass;
                double target = p * (reachable + low_mass);
                if (target > reachable) target = reachable;
                const Found found = search<true>(list, term, cut, most < border ? most : border, 0,
                                                 sums.y, mid_mass, target, shared);
                cut = found.place;
                whole = found.sum;
                count = sums.w + found.count;
                low_mass = 0.0;
                low_count = 0;
            }
            mass = term.value(whole) + (mid_mass + low_mass);
        }
    }
    ulonglong4 above = {0, 0, 0, 0};
    if (by_bins || count > KEPT) {
    #pragma unroll 1
    for (u32 i = t; i < n; i += THREADS) above.x += list[i] >> 32 > cut >> 32;
        above = block_sums(above, shared.scratch);
    }
    if (t == 0) {
        row.top_key = top;
        row.count = (i64)count + mid_count + low_count;
        row.above = (i64)above.x + mid_count;
        row.cut_key = (u32)(cut >> 32);
        row.first = by_sort ? (u32)cut : 0;
        row.final = by_sort ? 0xFFFFFFFFll : (u32)~(u32)cut;
        if (single) row.first = row.final = (u32)cut ^ list.flip;
        row.log_mass = log_exact(mass);
        // Where the lowest bins are kept too, all that is above -inf is.
        if (by_bins && k == 0 && p >= 1.0) {
            row.cut_key = NEGATIVE_INFINITY + 1;
            row.first = 0;
            row.final = 0xFFFFFFFFll;
            row.above = row.count;
        }
    }
    __syncthreads();
    return cut;
}

// The token of a row by a read of it all.
__device__ __noinline__ Draw draw_row(const element* x, i64 size, const Row& row, u64 seed,
                                      u64 position) {
    Draw best = {0, 0, 0};
    for (i64 i = threadIdx.x; i < size; i += THREADS) {
        const u32 key = key_of(value_of(x[i]));
        if (!keeps(row, key, i)) continue;
        const double d = row.single ? 0.0 : scaled(key, row.top_key, row.temperature);
        best.offer(ordered(score_of(d, word_of(seed, position, (u32)i))), (u32)i, key);
    }
    return best;
}

// Falling order of the first `n` of shared.sorted, in place, by Batcher's bitonic network.
__device__ __forceinline__ void sort_falling(u64* places, u32 n) {
    u32 size = 2;
    while (size < n) size <<= 1;
    for (u32 i = n + threadIdx.x; i < size; i += THREADS) places[i] = 0;
    __syncthreads();
    for (u32 run = 2; run <= size; run <<= 1)
        for (u32 d = run >> 1; d; d >>= 1) {
            for (u32 i = threadIdx.x; i < size / 2; i += THREADS) {
                const u32 a = 2 * i - (i & (d - 1)), b = a + d;
                const u64 x = places[a], y = places[b];
                if ((x < y) == ((a & run) == 0)) places[a] = y, places[b] = x;
            }
            __syncthreads();
        }
}
