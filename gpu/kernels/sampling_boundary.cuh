// The end of a row whose window is listed: its boundary, and what the results need of it.
#pragma once
#include "sampling_mass.cuh"

// What a kernel gives: the boundary alone, the mask, or the token.
#define KEEP_FIND 0
#define KEEP_MASK 1
#define KEEP_DRAW 2

#define GATHERED (KEPT - THREADS)  // entries that `gathered` has room for

// Where a list is brought to that is to be resolved: behind the sums of a search.
__device__ __forceinline__ u64* gathered(Shared& shared) { return shared.sorted + THREADS; }

// Falling order over the lanes.
__device__ __forceinline__ u64 sort_warp(u64 value) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 run = 2; run <= 32; run <<= 1)
#pragma unroll
        for (u32 d = run >> 1; d; d >>= 1) {
            const u64 other = __shfl_xor_sync(~0u, value, d);
            const bool larger = ((lane & run) == 0) == ((lane & d) == 0);
            value = (other > value) == larger ? other : value;
        }
    return value;
}

// The boundary among up to THREADS places in `gathered`, given the mass `extra` before them. Each
// warp sorts 32 of them and adds up their masses; then each place looks up in all of these runs
// what is ahead of it. The last ends the search, whatever the roundings.
__device__ __forceinline__ Found resolve_few_open(u32 n, const Terms& term, double extra,
                                                  double target, Shared& shared) {
    const u32 t = threadIdx.x, lane = t & 31, runs = (n + 31) >> 5;
    u64 place = 0, own = 0;
    if (t >> 5 < runs) {
        place = sort_warp(t < n ? gathered(shared)[t] : 0);
        own = place ? term(place) : 0;
        u64 upto = own;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            const u64 up = __shfl_up_sync(~0u, upto, d);
            if (lane >= d) upto += up;
        }
        shared.sorted[t] = place;
        shared.terms[t] = upto;
    }
    __syncthreads();
    u32 ahead = 0;
    u64 reached = 0;
    if (place) {
#pragma unroll 4
        for (u32 run = 0; run < runs; ++run) {
            const u64* there = shared.sorted + run * 32;
            u32 found = 0;
#pragma unroll
            for (u32 d = 16; d; d >>= 1) found += there[found + d - 1] >= place ? d : 0;
            found += there[found] >= place;
            ahead += found;
            reached += found ? shared.terms[run * 32 + found - 1] : 0;
        }
        const bool ends = ahead == n || term.value(reached) + extra >= target;
        const bool ended = ahead > 1 && term.value(reached - own) + extra >= target;
        if (ends && !ended)
            shared.result = place, shared.result_count = ahead, shared.result_sum = reached;
    }
    __syncthreads();
    return Found{shared.result, shared.result_count, shared.result_sum};
}

// The boundary among the listed. Up to GATHERED of them are in `gathered`.
__device__ __forceinline__ Found resolve_open(const List& list, const Terms& term, double extra,
                                              double target, Shared& shared) {
    const u32 t = threadIdx.x, n = list.n;
    if (n <= THREADS) return resolve_few_open(n, term, extra, target, shared);
    u64 sum = 0, most = 0, least = ~0ull;
#pragma unroll 1
    for (u32 i = t; i < n; i += THREADS) {
        const u64 place = list[i];
        sum += list.masses ? list.masses[i] : term(place);
        most = place > most ? place : most;
        least = place < least ? place : least;
    }
    const u32 lane = t & 31, warp = t >> 5;
    sum = warp_sum(sum), most = warp_max(most), least = ~warp_max(~least);
    if (lane == 0) {
        shared.scratch[warp] = sum;
        shared.scratch[32 + warp] = most;
        shared.scratch[64 + warp] = least;
    }
    __syncthreads();
    const bool there = lane < ALL_WARPS;
    sum = warp_sum(there ? shared.scratch[lane] : 0);
    most = warp_max(there ? shared.scratch[32 + lane] : 0);
    least = ~warp_max(there ? ~shared.scratch[64 + lane] : 0);
    const double reachable = term.value(sum) + extra;
    return search<true>(list, term, least, most, 0, 0, extra,
                        target > reachable ? reachable : target, shared);
}

// What the kernels behind, and the results, need of a row. By one thread.
__device__ __forceinline__ void begin_row(Row& row, u32 top_key, u32 nan, double p,
                                          double temperature) {
    row.p = p < 1.0 ? p : 1.0;
    row.temperature = temperature;
    row.k = 0;
    row.top_key = top_key;
    row.nan = nan;
    row.single = 0;
    row.kept = NO_LIST;
    row.mode = BY_PIVOT;
}

// What is kept for certain of a row, and the mass of all.
struct Certain {
    u32 how, top_key, nan;
    u64 count;
    double mass, total;
};

// A row's boundary, into shared.row, by one block; as a place, of which those listed that are kept
// are not below it. `best` is that of KEEP_ONE.
__device__ __forceinline__ u64 finish_row(const Certain& certain, const List& open, double p,
                                          double temperature, u64 best, u32 turned,
                                          Shared& shared) {
    Row& row = shared.row;
    u64 cut = 0;
    u32 above = 0;
    Found found = {0, 0, 0};
    const Terms term(certain.top_key, temperature, open.n ? open.n : 1);
    if (certain.how == BY_BIN) {
        found = resolve_open(open, term, certain.mass, p * certain.total, shared);
        cut = found.place;
        for (u32 i = 0; i < open.n; i += THREADS) {
            const u32 at = i + threadIdx.x;
            above += __syncthreads_count(at < open.n && open[at] >> 32 > cut >> 32);
        }
    }
    if (threadIdx.x == 0) {
        begin_row(row, certain.top_key, certain.nan, p, temperature);
        row.first = 0;
        row.final = 0xFFFFFFFFll;
        if (certain.how == BY_BIN) {
            row.cut_key = (u32)(cut >> 32);
            if (open.flip) row.final = (u32)~(u32)cut;
            else row.first = (u32)cut;
            row.count = (i64)(certain.count + found.count);
            row.above = (i64)(certain.count + above);
            row.log_mass = log_exact(term.value(found.sum) + certain.mass);
        } else if (certain.how == KEEP_ALL) {
            row.cut_key = NEGATIVE_INFINITY + 1;
            row.count = row.above = (i64)certain.count;
            row.log_mass = log_exact(certain.total);
        } else if (certain.how == KEEP_ONE) {
            row.cut_key = certain.top_key;
            row.first = row.final = (u32)(best >> 32) ^ turned;
            row.count = 1;
            row.above = 0;
            row.log_mass = 0.0;
        } else {
            row.cut_key = NEGATIVE_INFINITY;
            row.first = 1;
            row.final = 0;
            row.count = row.above = 0;
            row.log_mass = __longlong_as_double((i64)0xFFF0000000000000ull);
        }
    }
    __syncthreads();
    return cut;
}
