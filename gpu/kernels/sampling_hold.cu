// Top-p of rows that fit on chip, in one launch: a cluster of 8 blocks holds a row in shared memory,
// each block a part of it. The method is that of sampling_mass.cuh: the blocks exchange extremes,
// add up their bins, an eighth of them each, and list what is in the bin of the boundary with the
// first block; then each finds the boundary within that list for itself and goes on with its part.
//
// Memory: 4 bytes read an element of float32, and 4 written for the mask. Six barriers of the
// cluster. Before compute capability 9.0 there are no clusters, and nothing here.
#ifndef THREADS
#define THREADS 512
#endif
#include "sampling_mass.cuh"

#define CLUSTER 8
#define WORK_BYTES (THREADS == 512 ? 32768 : 40960)  // before the elements, in shared memory
#define MOST_LISTED 1024
#define LIST_OFFSET (WORK_BYTES - MOST_LISTED * 8)
#define STEP (THREADS * PACK)

#define HOLD_FIND 0
#define HOLD_MASK 1
#define HOLD_DRAW 2

#define HOLD_PARAMETERS                                                                        \
    const element *logits, i64 stride, i64 size, i64 part, const double *ps, double p_all,     \
        const double *temperatures, double temperature_all, int by_sort, Row *rows,            \
        element *masked, i64 masked_stride, OUTPUT_PARAMETERS

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void cluster_arrive() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

// The same place in the shared memory of another block.
template <class X>
__device__ __forceinline__ X* peer(X* here, u32 rank) {
    u64 there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((u64)here), "r"(rank));
    return (X*)there;
}

struct BlockMass {
    u64 mass, count;
};

// Where the boundary's bin is, as the block that found it tells all.
struct Crossing {
    double base;
    u32 base_count, count, bin;
};

template <int RESULT>
__device__ __forceinline__ void hold_row(const element* logits, i64 stride, i64 size, i64 part,
                                         const double* ps, double p_all,
                                         const double* temperatures, double temperature_all,
                                         int by_sort, Row* rows, element* masked,
                                         i64 masked_stride, const Outputs& out) {
    extern __shared__ uint4 memory[];
    __shared__ Extremes bounds, scratch[32];
    __shared__ u64 sums[64];
    __shared__ BlockMass own;
    __shared__ Crossing crossing;
    __shared__ Mass mass;
    __shared__ Draw draws[CLUSTER];
    __shared__ u32 listed;
    __shared__ u64 first_here;
    static_assert(sizeof(Shared) <= LIST_OFFSET && LIST_OFFSET + 8 * MOST_LISTED == WORK_BYTES, "");
    static_assert(8 * MASS_BINS <= WORK_BYTES, "");
    u32 *counts = (u32*)memory, *parts = counts + MASS_BINS;
    // The work of the boundary takes the place of the bins.
    Shared& shared = *(Shared*)memory;
    u64* list = (u64*)((char*)memory + LIST_OFFSET);
    element* held = (element*)((char*)memory + WORK_BYTES);
    const u32 t = threadIdx.x, lane = t & 31, rank = rank_in_cluster();
    const i64 r = blockIdx.x / CLUSTER;
    const element* x = logits + r * stride;
    const bool vector = aligned(x);
    const i64 begin = rank * part, end = begin + part < size ? begin + part : size;
    const u32 length = end > begin ? (u32)(end - begin) : 0;
    const double temperature = temperatures ? temperatures[r] : temperature_all;
    const double p = ps ? ps[r] : p_all;

    // The only read of the row.
    Bounds seen_here = NO_BOUNDS;
    for (i64 at = begin + t * PACK; at < end; at += 4 * STEP) {
        Pack packs[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) packs[u] = load(x, at + u * STEP, end, vector);
#pragma unroll
        for (int u = 0; u < 4; ++u) {
#pragma unroll
            for (int j = 0; j < PACK; ++j) seen_here.add(value_of(packs[u].e[j]));
            if (at + u * STEP < end) *(uint4*)&held[at - begin + u * STEP] = *(uint4*)&packs[u];
        }
    }
    for (u32 b = t; b < 2 * MASS_BINS; b += THREADS) counts[b] = 0;
    Extremes seen = seen_here.keys();
    seen.share(scratch);
    if (t == 0) bounds = seen, listed = 0, first_here = ~0ull;
    cluster_sync();
    seen = NO_EXTREMES;
    if (lane < CLUSTER) seen = *peer(&bounds, lane);
    seen.share_in_warp();
    const Scale scale(seen.top, seen.low, temperature, size);
    u32 how = method_of(scale, seen.top, p, temperature, 0);

    if (how == BY_BIN || how == KEEP_ALL) {
        u32 tail = 0;
        for (u32 i = t * PACK; i < length; i += STEP) {
            Pack pack;
            *(uint4*)&pack = *(uint4*)&held[i];
#pragma unroll
            for (int j = 0; j < PACK; ++j)
                tail += scale.count(value_of(pack.e[j]), counts, parts);
        }
        tail = __reduce_add_sync(~0u, tail);
        if (lane == 0 && tail) atomicAdd(&counts[TAIL], tail);
        cluster_sync();
        // An eighth of the bins, of all blocks.
        constexpr u32 SHARE = MASS_BINS / CLUSTER;
        const u32 bin = rank * SHARE + t;
        u64 words[1] = {0};
        if (t < SHARE) {
#pragma unroll
            for (u32 q = 0; q < CLUSTER; ++q)
                words[0] += ((u64)*peer(&counts[bin], q) << PART_BITS) + *peer(&parts[bin], q);
        }
        const int bits = mass_bits(size);
        const double unit = __longlong_as_double((i64)(1023 - bits) << 52);
        Scanned<1> scanned;
        scanned.scan(scale, words, bin, bits, sums);
        if (t == 0) own = BlockMass{scanned.mass_all, scanned.count_all};
        cluster_sync();
        BlockMass there = {0, 0};
        if (lane < CLUSTER) there = *peer(&own, lane);
        const u64 before_block = warp_sum(lane < rank ? there.mass : 0);
        const u64 counted_block = warp_sum(lane < rank ? there.count : 0);
        const double total = (double)warp_sum(there.mass) * unit;
        const u32 present = (u32)warp_sum(there.count);
        const u64 before = before_block + scanned.mass_before;
        const u32 above = (u32)counted_block + scanned.count_before;
        if (how == BY_BIN && scanned.count[0] &&
            (double)(before + scanned.mass[0]) * unit >= p * total &&
            (above == 0 || !((double)before * unit >= p * total))) {
            const Crossing found = {(double)before * unit, above, scanned.count[0], bin};
#pragma unroll 1
            for (u32 q = 0; q < CLUSTER; ++q) *peer(&crossing, q) = found;
        }
        if (t == 0) {
            mass.total = total;
            mass.log_total = log_exact(total);
            mass.present = present;
        }
        cluster_sync();
        if (how == BY_BIN && crossing.count > MOST_LISTED) how = BY_SEARCH;
    }
    const bool one = how == KEEP_ONE, by_bin = how == BY_BIN;
    if (t == 0) {
        mass.how = how;
        mass.top_key = seen.top;
        mass.nan = seen.nan;
        if (by_bin) mass.base = crossing.base, mass.base_count = crossing.base_count;
    }
    __syncthreads();
    Row& row = shared.row;
    Draw best = {0, 0, 0};
    if (how == BY_SEARCH) {
        // The first block searches, all write.
        if (rank == 0) {
            if (t == 0) begin_row(row, mass, p, temperature);
            __syncthreads();
            pivot_row(x, size, row, nullptr, 0, by_sort, shared.scratch, shared.segments);
            if (RESULT == HOLD_DRAW)
                best = block_best(draw_row(x, size, row, out, r), shared.scratch);
        }
        cluster_sync();
        if (rank && t < sizeof(Row) / 4) ((u32*)&row)[t] = *peer((u32*)&row + t, 0);
        __syncthreads();
        cluster_arrive();
    } else {
        const float below = by_bin                ? (float)crossing.bin
                            : how == KEEP_ALL ? __uint_as_float(0x7F800000u)
                                              : __uint_as_float(0xFF800000u);
        const float above = by_bin ? below + 1.0f : below, top = value_of_key(seen.top);
        const u32 turned = one && keeps_last(temperature, by_sort) ? ~0u : 0;
        const u32 flip = by_sort ? 0u : ~0u;
        if (by_bin || one) {
            u64 first = ~0ull;
            u64* list_of_first = peer(list, 0);
            u32* listed_of_first = peer(&listed, 0);
            for (u32 i = t * PACK; i < length; i += STEP) {
                Pack pack;
                *(uint4*)&pack = *(uint4*)&held[i];
                u32 open = 0;
#pragma unroll
                for (int j = 0; j < PACK; ++j) {
                    const float value = value_of(pack.e[j]), place = scale.place(value);
                    if (one ? value == top : place >= below && place < above) open |= 1u << j;
                }
                for (; open; open &= open - 1) {
                    const u32 at = i + __ffs(open) - 1, index = (u32)begin + at;
                    if (one) {
                        const u64 candidate = (u64)(index ^ turned) << 32;
                        first = candidate < first ? candidate : first;
                    } else {
                        const u32 slot = atomicAdd(listed_of_first, 1u);
                        list_of_first[slot] =
                            (u64)key_of(value_of(held[at])) << 32 | (index ^ flip);
                    }
                }
            }
            if (first != ~0ull) atomicMin(&first_here, first);
        }
        cluster_sync();
        u64 chosen = ~0ull;
        if (lane < CLUSTER) chosen = *peer(&first_here, lane);
        chosen = ~warp_max(~chosen);
        const u32 n = by_bin ? *peer(&listed, 0) : 0;
        if (rank)
            for (u32 i = t; i < n; i += THREADS) list[i] = *peer(&list[i], 0);
        __syncthreads();
        cluster_arrive();
        const List open = {nullptr, list, nullptr, flip, n};
        const u64 cut = finish_row(mass, open, p, temperature, chosen, turned, shared);
        if (RESULT == HOLD_DRAW && row.count > 0) {
            Drawing drawing(out, r, seen.top, temperature, by_bin ? p * mass.total : mass.total,
                            scale.scale, scale.origin, below);
            u32* queue = (u32*)shared.sorted + (t >> 5) * QUEUE;
            static_assert(THREADS / 32 * QUEUE * 4 <= sizeof(shared.sorted), "");
            u32 queued = 0;
            // All lanes of a warp go round together.
            for (u32 start = (t - lane) * PACK; start < length; start += STEP) {
                const u32 i = start + lane * PACK;
                u32 kept = 0;
                if (i < length) {
                    Pack pack;
                    *(uint4*)&pack = *(uint4*)&held[i];
#pragma unroll
                    for (int j = 0; j < PACK; ++j)
                        if (scale.place(value_of(pack.e[j])) < below) kept |= 1u << j;
                }
                __syncwarp();
#pragma unroll
                for (int q = 0; q < PACK; q += 4) {
                    const bool any = kept >> q & 15;
                    const u32 lanes = __ballot_sync(~0u, any);
                    if (any) queue[queued + __popc(lanes & ((1u << lane) - 1))] = i + q;
                    queued += __popc(lanes);
                    while (queued >= 32) {
                        __syncwarp();
                        queued -= 32;
                        const u32 at = queue[queued + lane];
                        drawing.test(held + at, (u32)begin + at, size);
                        __syncwarp();
                    }
                }
            }
            __syncwarp();
            if (lane < queued)
                drawing.test(held + queue[lane], (u32)begin + queue[lane], size);
            if (rank == 0) {
                for (u32 i = t; i < n; i += THREADS)
                    if (list[i] >= cut) drawing.offer((u32)(list[i] >> 32), (u32)list[i] ^ flip);
                if (one && t == 0) drawing.offer(row.top_key, (u32)row.first);
            }
            best = block_best(drawing.best, shared.scratch);
            if (t == 0) *peer(&draws[rank], 0) = best;
            cluster_wait();
            cluster_sync();
            if (rank == 0) {
                drawing.best = lane < CLUSTER ? draws[lane] : Draw{0, 0, 0};
                best = block_best(drawing.best, shared.scratch);
                if (!one && !drawing.certain(best.score))
                    best = block_best(draw_row(x, size, row, out, r), shared.scratch);
            }
            cluster_arrive();
        }
    }
    if (rank == 0 && t == 0) {
        write_row(out, row, r);
        if (RESULT == HOLD_DRAW && row.count > 0) write_token(out, row, r, best);
    }
    if (RESULT == HOLD_FIND && rank == 0 && t < sizeof(Row) / 4)
        ((u32*)&rows[r])[t] = ((const u32*)&row)[t];
    if (RESULT == HOLD_MASK) {
        element* y = masked + r * masked_stride + begin;
        const bool to = aligned(y);
        const float cut = value_of_key(row.cut_key);
        const i64 first = row.first, final = row.final;
        for (u32 i = t * PACK; i < length; i += STEP) {
            Pack pack;
            *(uint4*)&pack = *(uint4*)&held[i];
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const float value = value_of(pack.e[j]);
                bool stays = value > cut;
                if (value == cut) stays = begin + i + j >= first && begin + i + j <= final;
                if (!stays) pack.e[j] = nothing();
            }
            if (to && i + PACK <= length) {
                *(uint4*)(y + i) = *(uint4*)&pack;
            } else {
#pragma unroll
                for (int j = 0; j < PACK; ++j)
                    if (i + j < length) y[i + j] = pack.e[j];
            }
        }
    }
    // No block leaves while another may read its memory.
    cluster_wait();
}

#define HOLD_BODY(RESULT)                                                                      \
    hold_row<RESULT>(logits, stride, size, part, ps, p_all, temperatures, temperature_all,     \
                     by_sort, rows, masked, masked_stride, OUTPUTS)
#define HOLD_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else
#define HOLD_BODY(RESULT)
#define HOLD_CLUSTER
#endif

extern "C" __global__ void HOLD_CLUSTER __launch_bounds__(THREADS, 1024 / THREADS)
hold(HOLD_PARAMETERS) {
    HOLD_BODY(HOLD_FIND);
}

extern "C" __global__ void HOLD_CLUSTER __launch_bounds__(THREADS, 1024 / THREADS)
hold_mask(HOLD_PARAMETERS) {
    HOLD_BODY(HOLD_MASK);
}

extern "C" __global__ void HOLD_CLUSTER __launch_bounds__(THREADS, 1024 / THREADS)
hold_draw(HOLD_PARAMETERS) {
    HOLD_BODY(HOLD_DRAW);
}
