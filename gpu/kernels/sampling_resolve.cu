// resolve: one block a row finds the row's exact boundary within its list, some hundreds to some
// ten thousand entries around it, and gives what follows from the list. A row without a list
// that holds the boundary goes through the pivot search.
//
// With `filled` the mask holds -inf already, and only what is kept is written.
//
// shorten: for candidates of rows that keep more than there is room for.
//
// THREADS is 256 where all lists are short, else 512.
#ifndef THREADS
#define THREADS 256
#endif
#include "sampling_list.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, THREADS == 256 ? 2 : 1)
resolve(const element* logits, i64 stride, i64 size, Row* rows, u64* lists, u32 capacity,
        const double2* partial, i64 slices, u64* kept, element* masked, i64 masked_stride,
        const Draw* finalists, int by_sort, u32 room, int filled, OUTPUT_PARAMETERS) {
    extern __shared__ u64 on_chip[];
    __shared__ Shared shared;
    const Outputs out = OUTPUTS;
    const i64 r = blockIdx.x;
    const u32 t = threadIdx.x;
    const element* x = logits + r * stride;
    u64* entries = lists + r * capacity;
    Row& row = shared.row;
    if (t < sizeof(Row) / 4) ((u32*)&row)[t] = ((const u32*)&rows[r])[t];
    __syncthreads();
    const bool all_listed = row.high == __uint_as_float(0xFF800000u);
    const bool holds = row.mode == BY_BINS || all_listed || (i64)row.listed >= (row.k > 0 ? row.k : 1);
    bool by_bins = row.mode == BY_BINS, by_list = false;
    List list = {entries, nullptr, nullptr, by_sort ? 0u : ~0u, row.listed};
    u64 cut = 0;
    bool ordered_few = false;
    if (row.mode == BY_PIVOT || row.listed > capacity || !holds) {
        pivot_row(x, size, row, entries, capacity, by_sort, shared.scratch, shared.segments);
        by_bins = false;
        by_list = row.count <= KEPT;
        list.n = 0;
        if (by_list) {
            // What is kept becomes the list.
            if (t == 0) shared.number = 0, row.mode = BY_LIST;
            __syncthreads();
            const Source source = {x, nullptr, size, aligned(x)};
            source.each([&](u32 key, i64 i) {
                if (keeps(row, key, i))
                    entries[atomicAdd(&shared.number, 1u)] = (u64)key << 32 | (u32)i;
            });
            __syncthreads();
            list.n = shared.number;
            cut = 0;
        } else if (t == 0) {
            row.mode = BY_PIVOT;
        }
    } else if (list.n == 0) {
        if (t == 0) {
            row.cut_key = NEGATIVE_INFINITY;
            row.first = 1;
            row.final = 0;
            row.log_mass = __longlong_as_double((i64)0xFFF0000000000000ull);
        }
        by_list = true;
        __syncthreads();
    } else {
        cut = resolve_list(list, on_chip, room, partial + r * slices, slices, by_sort, ordered_few, shared);
        by_list = !by_bins;
    }
    const bool sortable = by_list && row.count <= KEPT;
    const u64 last = row.single && cut ? cut : ~0ull;  // a single entry, or all from cut
    if (out.tokens && row.count > 0) {
        const u64 seed = out.seed_of(r), position = out.position_of(r);
        Draw best = {0, 0, 0};
#pragma unroll 1
        for (u32 i = t; i < list.n; i += THREADS) {
            const u64 place = list[i];
            if (place < cut || place > last) continue;
            const u32 index = (u32)place ^ list.flip, key = (u32)(place >> 32);
            const double d = row.single ? 0.0 : scaled(key, row.top_key, row.temperature);
            best.offer(ordered(score_of(d, word_of(seed, position, index))), index, key);
        }
        const u32 others = by_bins ? row.finalists : 0;
        for (u32 i = t; i < others && i < FINALISTS; i += THREADS) {
            const Draw other = finalists[r * FINALISTS + i];
            best.offer(other.score, other.token, other.key);
        }
        best = block_best(best, shared.scratch);
        // Others than the finalists have less than this.
        const bool certain =
            by_list || (by_bins && others <= FINALISTS &&
                        best.score > ordered(1e-6 - log_exact((double)row.bound)));
        if (!certain) best = block_best(draw_row(x, size, row, seed, position), shared.scratch);
        if (t == 0) write_token(out, row, r, best);
    }
    if (sortable && (kept || filled || out.indices)) {
        if (!ordered_few) {
            __syncthreads();
            if (t == 0) shared.number = 0;
            __syncthreads();
    #pragma unroll 1
        for (u32 i = t; i < list.n; i += THREADS) {
                const u64 place = list[i];
                if (place < cut || place > last) continue;
                const u32 index = (u32)place ^ list.flip;
                shared.sorted[atomicAdd(&shared.number, 1u)] =
                    (place & ~0xFFFFFFFFull) | (u32)~index;
            }
            __syncthreads();
            if (out.indices && row.count > 0) sort_falling(shared.sorted, (u32)row.count);
        }
        if (filled) {
            element* y = masked + r * masked_stride;
            for (u32 i = t; i < row.count; i += THREADS) {
                const u32 index = ~(u32)shared.sorted[i];
                y[index] = x[index];
            }
        } else if (kept)
            for (u32 i = t; i < row.count; i += THREADS) {
                const u32 index = ~(u32)shared.sorted[i];
                const element raw = x[index];
                kept[r * KEPT + i] = (u64)bits_of(raw) << 32 | index;
            }
    }
    if (filled && !sortable) {
        element* y = masked + r * masked_stride;
        for (i64 i = t; i < size; i += THREADS)
            if (keeps(row, key_of(value_of(x[i])), i)) y[i] = x[i];
    }
    if (by_bins && masked) {
        // The sweep has written all but what is listed.
        element* y = masked + r * masked_stride;
#pragma unroll 1
        for (u32 i = t; i < list.n; i += THREADS) {
            const u64 place = list[i];
            const u32 index = (u32)place ^ list.flip, key = (u32)(place >> 32);
            const bool stays = place >= cut;
            if (key == 0x80000000u) {
                if (!stays) y[index] = nothing();
            } else if (stays) {
                y[index] = element_of(value_of_key(key));
            }
        }
    }
    if (out.indices && sortable) {
        for (i64 i = t; i < out.width; i += THREADS) {
            const bool there = i < row.count;
            const u32 index = there ? ~(u32)shared.sorted[i] : 0;
            out.indices[r * out.width + i] = there ? (i64)index : -1;
            out.values[r * out.width + i] = there ? x[index] : nothing();
        }
    }
    if (t == 0) {
        row.kept = sortable ? (u32)row.count : NO_LIST;
        write_row(out, row, r);
    }
    __syncthreads();
    if (t < sizeof(Row) / 4) ((u32*)&rows[r])[t] = ((const u32*)&row)[t];
}

// For candidates: where more lie above a row's boundary than `width`, the boundary of the first
// `width` takes its place. The count stays what it was.
extern "C" __global__ void __launch_bounds__(THREADS)
shorten(const element* logits, i64 stride, i64 size, Row* rows, i64 width) {
    __shared__ u64 scratch[32];
    __shared__ u32 segments[SEGMENTS];
    const i64 r = blockIdx.x;
    Row& row = rows[r];
    if (row.kept != NO_LIST || row.above <= width) return;
    const Source source = {logits + r * stride, nullptr, size, aligned(logits + r * stride)};
    const Limits limits = {row.cut_key, size};
    const Boundary cut = find<false>(source, limits, row.top_key, 1.0, width, 0.0, scratch);
    const i64 final = find_index(source, limits, cut.key, width - cut.above, size, segments, scratch);
    __syncthreads();
    if (threadIdx.x) return;
    row.cut_key = cut.key;
    row.first = 0;
    row.final = final;
    row.above = cut.above;
}
