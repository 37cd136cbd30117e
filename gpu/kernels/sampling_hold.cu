// Top-p of rows that fit on chip, in one launch: a cluster of 8 blocks holds a row in shared
// memory, each block a part of it. The method is that of sampling_mass.cuh. Each block counts its
// part; all add up the counts, an eighth of the bins each, and find the window for themselves; each
// then goes through its part once more, sums, lists, writes the mask or draws; and each finds the
// boundary within all that was listed, which is what it puts right in its own part of the mask.
//
// Memory: 4 bytes read an element of float32, and 4 written for the mask. More than MOST_LISTED
// entries go to a list in device memory, of half a byte an element, which each block then reads
// some times from L2. Six barriers of the cluster, at two of which it works on. Before compute
// capability 9.0 there are no clusters, and nothing here.
#define THREADS 512
#include "sampling_draw.cuh"

#define CLUSTER 8
#define SHARE (MASS_BINS / CLUSTER)  // bins that a block adds up
#define GROUP 8                      // bins whose mass the others read as one
#define MOST_LISTED 1024             // of a row on chip; longer lists lie in device memory
#define STEP (THREADS * PACK)
// Shared memory before the elements: counts, or groups to draw from, or the boundary's; the list.
#define FIRST_BYTES 26624
#define WORK_BYTES (FIRST_BYTES + 8 * MOST_LISTED)

#define HOLD_PARAMETERS                                                                        \
    const element *logits, i64 stride, i64 size, i64 part, const double *ps, double p_all,     \
        const double *temperatures, double temperature_all, int by_sort, Row *rows,            \
        element *masked, i64 masked_stride, u64 *lists, u32 capacity, OUTPUT_PARAMETERS

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

// What a block tells the others of its part, by writing it to them.
struct Report {
    Sums sums;
    u32 listed, finalists;
    u64 first;  // of the entries at the maximum
};

// What a block has found, of which the others read the first three, and what they have told it.
struct Posted {
    u64 masses[SHARE];  // of its share of the bins, by their counts
    u32 counts[SHARE];
    Finalists finalists;
    u32 listed;
    u64 first;
    // Everybody's.
    Extremes bounds[CLUSTER];
    u64 groups[MASS_BINS / GROUP];
    Report reports[CLUSTER];
};

// What a block needs to know of the row's window.
struct Reached {
    u32 group[2], bin[2], listed;
    u64 base[2], reach[2];
    float least;
};

// What is fixed for a block and its row, in shared memory: registers are short.
struct Here {
    const element* x;  // the row
    element* y;        // the block's part of the mask
    u64* spilled;      // where a list that is too long for the chip lies, all blocks' one; or null
    i64 r, begin;
    double temperature, p;
    u32 rank, length, top, nan, how, turned;
    float scale, origin, below, above;
    Weight weight;
    Drawing drawing;
};

// The bins of the window, by everybody's groups, and how many entries they hold; in the second
// warp's time the row's weights. Whole blocks.
__device__ __forceinline__ void find_window(Posted& posted, Reached& reached, Here& here,
                                            const Window& window, u64* scratch) {
    const u32 t = threadIdx.x, lane = t & 31, warp = t >> 5;
    const u64 mass = t < MASS_BINS / GROUP ? posted.groups[t] : 0;
    u64 total;
    const u64 upto = block_upto(mass, scratch, total);
    const u64 last = window.last(total), first = min(window.first(total), last);
    if (upto - mass < first && upto >= first)
        reached.group[0] = t, reached.base[0] = upto - mass, reached.reach[0] = first;
    if (upto - mass < last && upto >= last)
        reached.group[1] = t, reached.base[1] = upto - mass, reached.reach[1] = last;
    if (t == 0) reached.least = window.least * ((float)total / COUNTED_ONE);
    __syncthreads();
    if (warp == 0) {
        // Eight lanes an end.
        const u32 end = lane >> 3 & 1, bin = reached.group[end] * GROUP + (lane & 7);
        u64 sum = *peer(&posted.masses[bin % SHARE], bin / SHARE);
        const u32 count = *peer(&posted.counts[bin % SHARE], bin / SHARE);
#pragma unroll
        for (int d = 1; d < GROUP; d <<= 1) {
            const u64 up = __shfl_up_sync(~0u, sum, d);
            if ((lane & 7) >= d) sum += up;
        }
        const u32 reaching = __ballot_sync(~0u, reached.base[end] + sum >= reached.reach[end]);
        const u32 from = reached.group[0] * GROUP + __ffs(reaching & 0xFF) - 1;
        const u32 to = reached.group[1] * GROUP + __ffs(reaching >> 8 & 0xFF) - 1;
        // Those of both ends are at hand.
        const bool same = reached.group[0] == reached.group[1];
        u32 inside = lane < (same ? 8 : 16) && bin >= from && bin <= to ? count : 0;
        for (u32 b = (reached.group[0] + 1) * GROUP + lane; b < reached.group[1] * GROUP; b += 32)
            inside += *peer(&posted.counts[b % SHARE], b / SHARE);
        inside = __reduce_add_sync(~0u, inside);
        if (lane == 0) reached.bin[0] = from, reached.bin[1] = to, reached.listed = inside;
    } else if (t == 32) {
        here.weight.set(here.top, here.temperature);
    }
    __syncthreads();
}

__device__ __forceinline__ Pack pack_at(const element* held, u32 i) {
    Pack pack;
    *(uint4*)&pack = *(const uint4*)&held[i];
    return pack;
}

// The row's extremes, from all of it, into shared memory: the only read of the row.
__device__ __forceinline__ Extremes read_row(const Here& here, i64 end, element* held,
                                             Posted& posted, Extremes* scratch) {
    const element* x = here.x;
    const bool vector = aligned(x);
    const i64 begin = here.begin;
    Bounds bounds = NO_BOUNDS;
    for (i64 at = begin + threadIdx.x * PACK; at < end; at += 4 * STEP) {
        Pack packs[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) packs[u] = load(x, at + u * STEP, end, vector);
#pragma unroll
        for (int u = 0; u < 4; ++u) {
#pragma unroll
            for (int j = 0; j < PACK; ++j) bounds.add(value_of(packs[u].e[j]));
            if (at + u * STEP < end) *(uint4*)&held[at - begin + u * STEP] = *(uint4*)&packs[u];
        }
    }
    Extremes seen = bounds.keys();
    seen.share(scratch);
    const u32 lane = threadIdx.x & 31;
    cluster_wait();
    if (threadIdx.x < CLUSTER) *peer(&posted.bounds[here.rank], lane) = seen;
    cluster_sync();
    seen = lane < CLUSTER ? posted.bounds[lane] : NO_EXTREMES;
    seen.share_in_warp();
    return seen;
}

// Counts the block's part by bins, then adds up everybody's counts of its share of the bins. To be
// waited for.
__device__ __forceinline__ void count_row(const Here& here, const Scale& scale,
                                          const element* held, u32* counts, Posted& posted) {
    const u32 t = threadIdx.x, length = here.length;
    for (u32 i = t * PACK; i < length; i += STEP) {
        const Pack pack = pack_at(held, i);
#pragma unroll
        for (int j = 0; j < PACK; ++j) scale.count(value_of(pack.e[j]), counts);
    }
    cluster_sync();
    if (t < SHARE) {
        const u32 bin = here.rank * SHARE + t;
        u32 n = 0;
#pragma unroll
        for (u32 q = 0; q < CLUSTER; ++q) n += *peer(&counts[bin], q);
        u64 mass = scale.most(bin, n);
        posted.masses[t] = mass;
        posted.counts[t] = n;
        static_assert(GROUP == CLUSTER, "a lane of a group tells a block");
#pragma unroll
        for (int d = 1; d < GROUP; d <<= 1) mass += __shfl_xor_sync(~0u, mass, d);
        *peer(&posted.groups[bin / GROUP], t % GROUP) = mass;
    }
    cluster_arrive();
}

// The pass over the block's part that sums, lists what is in the window, and writes the mask or
// draws.
template <int RESULT>
__device__ __forceinline__ Sums keep_part(const Here& here, const element* held, u64* list,
                                          u32 flip, u32* groups_of_all, Posted& posted,
                                          u64* scratch) {
    const u32 lane = threadIdx.x & 31, length = here.length, begin = (u32)here.begin;
    const float scale = here.scale, origin = here.origin, below = here.below, above = here.above;
    const Weight weight = here.weight;
    element* y = here.y;
    const bool vector = aligned(y);
    Sums found = {0, 0, 0};
    Groups groups = {groups_of_all + threadIdx.x / 32 * DRAWN_GROUPS, 0};
    for (u32 from = 0; from < length; from += DRAWN_PART) {
        const u32 to = min(from + DRAWN_PART, length);
        // All lanes of a warp go round together.
        for (u32 start = from + (threadIdx.x - lane) * PACK; start < to; start += STEP) {
            const u32 i = start + lane * PACK;
            float heaviest[PACK / 4] = {};
            if (i < length) {
                Pack pack = pack_at(held, i);
                if (found.add(pack, scale, origin, below, above, weight, heaviest)) {
                    for (u32 at = i; at < i + PACK && at < length; ++at) {
                        const float value = value_of(held[at]);
                        const float place = __fmaf_rn(-value, scale, origin);
                        if (place < below || !(place < above)) continue;
                        const u64 entry = (u64)key_of(value) << 32 | (begin + at);
                        if (here.spilled)
                            here.spilled[atomicAdd(peer(&posted.listed, 0), 1u)] = entry;
                        else list[atomicAdd(&posted.listed, 1u)] = entry ^ flip;
                    }
                }
                if (RESULT == KEEP_MASK) write_pack(y, pack, i, length, vector);
            }
            if (RESULT == KEEP_DRAW) {
                __syncwarp();
                groups.add(heaviest, (i - from) / 4);
            }
        }
        if (RESULT == KEEP_DRAW) {
            here.drawing.test(groups, begin + from, scale, origin, below, weight,
                              posted.finalists, [&](u32 index) {
                                  return index - begin < length ? held[index - begin] : nothing();
                              });
            groups.count = 0;
        }
    }
    const ulonglong4 sums =
        block_sums(ulonglong4{found.kept, found.all, (u64)found.count, 0}, scratch);
    return Sums{sums.x, sums.y, (u32)sums.z};
}

// The row's finalists into `finalists`; how many, or more than there is room for.
__device__ __forceinline__ u32 gather_finalists(Posted& posted, u64* finalists) {
    const u32 from = threadIdx.x / FINALISTS, slot = threadIdx.x % FINALISTS;
    u32 n = 0, before = 0;
#pragma unroll
    for (u32 q = 0; q < CLUSTER; ++q) {
        if (q == from) before = n;
        n += posted.reports[q].finalists;
    }
    if (n <= FINALISTS && from < CLUSTER && slot < posted.reports[from].finalists)
        finalists[before + slot] = peer(&posted, from)->finalists.entries[slot];
    return n;
}

// Everybody's sums, and all that is listed on chip, into `gathered`; how many are listed.
__device__ __forceinline__ u32 gather(const Here& here, Posted& posted, u64* list,
                                      Certain& certain, Shared& shared) {
    const u32 t = threadIdx.x;
    // In halves: a row's sum may take more than 64 bits.
    u64 kept[2] = {0, 0}, all[2] = {0, 0};
    u32 upto[CLUSTER], n = 0;
    certain.how = here.how, certain.top_key = here.top, certain.nan = here.nan;
    certain.count = 0;
#pragma unroll
    for (u32 q = 0; q < CLUSTER; ++q) {
        const Report& report = posted.reports[q];
        kept[0] += report.sums.kept >> 32, kept[1] += report.sums.kept & 0xFFFFFFFFu;
        all[0] += report.sums.all >> 32, all[1] += report.sums.all & 0xFFFFFFFFu;
        certain.count += report.sums.count;
        upto[q] = n += report.listed;
    }
    certain.mass = mass_of_halves(kept[0], kept[1], here.weight);
    certain.total = mass_of_halves(all[0], all[1], here.weight);
    if (here.spilled) return *peer(&posted.listed, 0);
    for (u32 i = t; i < n; i += THREADS) {
        u32 from = 0, before = 0;
#pragma unroll
        for (u32 q = 0; q < CLUSTER - 1; ++q)
            if (i >= upto[q]) from = q + 1, before = upto[q];
        gathered(shared)[i] = peer(list, from)[i - before];
    }
    return n;
}

template <int RESULT>
__device__ __forceinline__ void hold_row(const element* logits, i64 stride, i64 size, i64 part,
                                         const double* ps, double p_all,
                                         const double* temperatures, double temperature_all,
                                         int by_sort, Row* rows, element* masked,
                                         i64 masked_stride, u64* lists, u32 capacity,
                                         const Outputs& out) {
    extern __shared__ uint4 memory[];
    __shared__ Here here;
    __shared__ Posted posted;
    __shared__ Reached reached;
    __shared__ Extremes scratch[32];
    __shared__ u64 sums[4 * 32], finalists[FINALISTS];
    static_assert(MOST_LISTED <= GATHERED && sizeof(Shared) <= FIRST_BYTES, "");
    static_assert(4 * MASS_BINS <= FIRST_BYTES && DRAWN_PART <= FIRST_BYTES, "");
    u32* counts = (u32*)memory;
    u32* groups = (u32*)memory;
    Shared& shared = *(Shared*)memory;
    u64* list = (u64*)((char*)memory + FIRST_BYTES);
    element* held = (element*)((char*)memory + WORK_BYTES);
    const u32 t = threadIdx.x;
    cluster_arrive();  // waited for before anything is written to another block
    if (t == 0) {
        const u32 rank = rank_in_cluster();
        const i64 r = blockIdx.x / CLUSTER, begin = rank * part;
        const i64 left = size - begin < part ? size - begin : part;
        here.x = logits + r * stride;
        here.y = masked + r * masked_stride + begin;
        here.spilled = nullptr;
        here.r = r, here.begin = begin, here.rank = rank;
        here.length = left > 0 ? (u32)left : 0;
        here.temperature = temperatures ? temperatures[r] : temperature_all;
        here.p = ps ? ps[r] : p_all;
        posted.listed = posted.finalists.count = 0;
        posted.first = ~0ull;
    }
    for (u32 b = t; b < MASS_BINS / 4; b += THREADS) ((uint4*)counts)[b] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    const Extremes seen = read_row(here, here.begin + here.length, held, posted, scratch);
    {
        const Scale scale(seen.top, seen.low, here.temperature, size);
        const u32 how = method_of(scale, seen.top, here.p, here.temperature, 0);
        if (t == 0) {
            here.top = seen.top, here.nan = seen.nan, here.how = how;
            here.scale = scale.scale, here.origin = scale.origin;
            here.below = here.above = __uint_as_float(0x7F800000u);
            here.turned = how == KEEP_ONE && keeps_last(here.temperature, by_sort) ? ~0u : 0;
            reached.least = 1.0f;
            if (how == KEEP_ALL && RESULT != KEEP_DRAW)
                here.weight.set(seen.top, here.temperature);
        }
        // To draw among all, the mass of all is wanted.
        if (how == BY_BIN || (how == KEEP_ALL && RESULT == KEEP_DRAW)) {
            count_row(here, scale, held, counts, posted);
            const Window window(scale, here.p);
            cluster_wait();
            find_window(posted, reached, here, window, sums);
            if (t == 0 && how == BY_BIN) {
                here.below = (float)reached.bin[0];
                here.above = (float)(reached.bin[1] + 1);
                if (reached.listed > capacity) here.how = BY_SEARCH;
                else if (reached.listed > MOST_LISTED) here.spilled = lists + here.r * capacity;
            }
        }
        if (RESULT == KEEP_DRAW && t == 0) here.drawing.set(out, here.r, reached.least);
        __syncthreads();
    }
    const u32 flip = by_sort ? 0u : ~0u;
    Draw best = {0, 0, 0};
    if (here.how == BY_BIN || here.how == KEEP_ALL) {
        const Sums found = keep_part<RESULT>(here, held, list, flip, groups, posted, sums);
        if (t < CLUSTER)
            *peer(&posted.reports[here.rank], t) =
                Report{found, posted.listed, posted.finalists.count, 0};
        cluster_sync();
        Certain certain;
        const u32 n = gather(here, posted, list, certain, shared);
        u32 drawn = 0;
        if (RESULT == KEEP_DRAW && here.rank == 0)
            drawn = gather_finalists(posted, finalists);
        __syncthreads();
        cluster_arrive();
        const u64* places = here.spilled ? nullptr : gathered(shared);
        const List open = {here.spilled, places, nullptr, flip, n};
        const u64 cut = finish_row(certain, open, here.p, here.temperature, 0, 0, shared);
        if (RESULT == KEEP_MASK) {
            for (u32 i = t; i < (here.spilled ? 0 : posted.listed); i += THREADS) {
                const u32 at = ((u32)list[i] ^ flip) - (u32)here.begin;
                if (list[i] >= cut) here.y[at] = held[at];
            }
            for (u32 i = t; i < (here.spilled ? n : 0); i += THREADS) {
                const u32 at = (u32)here.spilled[i] - (u32)here.begin;
                if (open[i] >= cut && at < here.length) here.y[at] = held[at];
            }
        }
        if (RESULT == KEEP_DRAW && here.rank == 0) {
            bool sure = false;
            if (drawn <= FINALISTS)
                best = here.drawing.best(finalists, drawn, open, cut, here.top, here.temperature,
                                         here.weight, shared, sure);
            if (!sure)
                best = block_best(draw_row(here.x, size, shared.row, here.drawing.seed,
                                           here.drawing.position),
                                  shared.scratch);
        }
    } else {
        // Few rows are of these.
        const bool one = here.how == KEEP_ONE;
        if (one) {
            const float top = value_of_key(here.top);
            u64 first = ~0ull;
            for (u32 i = t; i < here.length; i += THREADS) {
                const u64 place = (u64)((u32)(here.begin + i) ^ here.turned) << 32;
                if (value_of(held[i]) == top && place < first) first = place;
            }
            if (first != ~0ull) atomicMin(&posted.first, first);
        }
        __syncthreads();
        if (t < CLUSTER) *peer(&posted.reports[here.rank].first, t) = posted.first;
        cluster_sync();
        if (here.how == BY_SEARCH) {
            // The first block searches, all write.
            if (here.rank == 0) {
                if (t == 0) begin_row(shared.row, here.top, here.nan, here.p, here.temperature);
                __syncthreads();
                pivot_row(here.x, size, shared.row, nullptr, 0, by_sort, shared.scratch,
                          shared.segments);
                if (RESULT == KEEP_DRAW)
                    best = block_best(draw_row(here.x, size, shared.row, out.seed_of(here.r),
                                               out.position_of(here.r)),
                                      shared.scratch);
            }
            cluster_sync();
            if (here.rank && t < sizeof(Row) / 4)
                ((u32*)&shared.row)[t] = *peer((u32*)&shared.row + t, 0);
            __syncthreads();
        } else {
            u64 first = ~0ull;
            for (u32 q = 0; q < CLUSTER; ++q) first = min(first, posted.reports[q].first);
            const Certain certain = {here.how, here.top, here.nan, 0, 0.0, 0.0};
            const List open = {nullptr, nullptr, nullptr, 0, 0};
            finish_row(certain, open, here.p, here.temperature, first, here.turned, shared);
            if (one) best = Draw{1, (u32)shared.row.first, shared.row.top_key};
        }
        cluster_arrive();
        if (RESULT == KEEP_MASK) {
            for (u32 i = t; i < here.length; i += THREADS) {
                const bool stays = keeps(shared.row, key_of(value_of(held[i])), here.begin + i);
                here.y[i] = stays ? held[i] : nothing();
            }
        }
    }
    if (here.rank == 0 && t == 0) {
        write_row(out, shared.row, here.r);
        if (RESULT == KEEP_DRAW && shared.row.count > 0)
            write_token(out, shared.row, here.r, best);
    }
    if (RESULT == KEEP_FIND && here.rank == 0 && t < sizeof(Row) / 4)
        ((u32*)&rows[here.r])[t] = ((const u32*)&shared.row)[t];
    // No block leaves while another may read its memory.
    cluster_wait();
}

#define HOLD_BODY(RESULT)                                                                      \
    hold_row<RESULT>(logits, stride, size, part, ps, p_all, temperatures, temperature_all,     \
                     by_sort, rows, masked, masked_stride, lists, capacity, OUTPUTS)
#define HOLD_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else
#define HOLD_BODY(RESULT)
#define HOLD_CLUSTER
#endif

extern "C" __global__ void HOLD_CLUSTER __launch_bounds__(THREADS, 1)
hold(HOLD_PARAMETERS) {
    HOLD_BODY(KEEP_FIND);
}

extern "C" __global__ void HOLD_CLUSTER __launch_bounds__(THREADS, 1)
hold_mask(HOLD_PARAMETERS) {
    HOLD_BODY(KEEP_MASK);
}

extern "C" __global__ void HOLD_CLUSTER __launch_bounds__(THREADS, 1)
hold_draw(HOLD_PARAMETERS) {
    HOLD_BODY(KEEP_DRAW);
}
