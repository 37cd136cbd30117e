// Top-p of rows of any length, behind `extremes` and `masses` of sampling_mass.cu.
//
// keep, keep_mask, keep_draw: find the window of the boundary and list what is in it; what is above
//   it is kept, so the mask is written and a token drawn in the same pass.
// finish, finish_mask, finish_draw: one block a row finds the boundary within the list and puts
//   right what hangs on it. As a part of `keep` it would take the registers of the pass, and a
//   function that is called there costs 3 us.
//
// Memory: 4 bytes read an element of float32, and 4 written for the mask.
#define THREADS 512
#include "sampling_draw.cuh"
#include "sampling_parts.cuh"

#define STEP (THREADS * PACK)
#define TOGETHER (8 / PACK)  // packs that a thread reads at a time
#define STAGED 512           // entries a block lists before it goes to the row's counter

// The block's part and its row, in shared memory: registers are short.
struct Here {
    const element* x;  // the row
    element* y;        // its mask
    u64 *list, *finalists;
    i64 r, begin, end;
    double temperature, p;
    u32 how, top, turned, count, base, drawn;
    float scale, origin, below, above;
    Weight weight;
    Drawing drawing;

    __device__ __forceinline__ void set(PARTS, u64* lists, u32 capacity, const double* ps,
                                        double p_all, const double* temperatures,
                                        double temperature_all, element* masked, i64 masked_stride,
                                        u64* finalists_of_all) {
        const Part part = PART_HERE;
        r = part.r, begin = part.begin, end = part.end;
        x = part.x, y = masked + r * masked_stride;
        list = lists + r * capacity, finalists = finalists_of_all + r * FINALISTS;
        temperature = temperatures ? temperatures[r] : temperature_all;
        p = ps ? ps[r] : p_all;
        count = 0;
    }

    __device__ __forceinline__ void set(u32 method, u32 top_key, int by_sort) {
        how = method, top = top_key;
        turned = how == KEEP_ONE && keeps_last(temperature, by_sort) ? ~0u : 0;
    }

    __device__ __forceinline__ bool by_window() const { return how == BY_BIN || how == KEEP_ALL; }
};

// A block's memory while it keeps.
struct Keeping {
    Here here;
    u32 groups[DRAWN_PART / 4];
    u64 staged[STAGED];
    Finalists finalists;
    u64 scratch[4 * 32];
    Extremes extremes[32];
    u32 window[2];
};

// How the row is done, and its window, by each block for itself; the row's first tells the others.
__device__ __forceinline__ void find_window(Keeping& block, PARTS, Mass& mass, const u32* bins,
                                            const Extremes* bounds, u32 capacity, int by_sort,
                                            const Outputs& out) {
    const u32 t = threadIdx.x;
    Here& here = block.here;
    u32 own[EACH];
    read_bins(bins, own);
    const Extremes seen = extremes_of(bounds, chunks, block.extremes);
    const Scale scale(seen.top, seen.low, here.temperature, size);
    u32 how = method_of(scale, seen.top, here.p, here.temperature, 0);
    float below = __uint_as_float(0x7F800000u), above = below, least = 1.0f;
    if (how == BY_BIN || (how == KEEP_ALL && out.tokens)) {
        u64 mine = 0, total;
#pragma unroll
        for (int j = 0; j < EACH; ++j) mine += scale.most(t * EACH + j, own[j]);
        const u64 upto = block_upto(mine, block.scratch, total);
        const Window window(scale, here.p);
        const u64 last = window.last(total), first = min(window.first(total), last);
        u64 before = upto - mine;
        if ((before < first && upto >= first) || (before < last && upto >= last)) {
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const u32 bin = t * EACH + j;
                const u64 there = before + scale.most(bin, own[j]);
                if (before < first && there >= first) block.window[0] = bin;
                if (before < last && there >= last) block.window[1] = bin;
                before = there;
            }
        }
        __syncthreads();
        u32 inside = 0;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const u32 bin = t * EACH + j;
            if (bin >= block.window[0] && bin <= block.window[1]) inside += own[j];
        }
        const u64 listed = block_sum((u64)inside, block.scratch);
        least = window.least * ((float)total / COUNTED_ONE);
        if (how == BY_BIN) {
            if (listed > capacity) how = BY_SEARCH;
            below = (float)block.window[0], above = (float)(block.window[1] + 1);
        }
    }
    if (t == 0) {
        here.set(how, seen.top, by_sort);
        here.scale = scale.scale, here.origin = scale.origin;
        here.below = below, here.above = above;
        block.finalists.count = 0;
    }
    if (t == 32) here.weight.set(seen.top, here.temperature);
    if (t == 64 && out.tokens) here.drawing.set(out, here.r, least);
    if (t == 96 && blockIdx.x % chunks == 0) {
        mass.how = how, mass.top_key = seen.top, mass.nan = seen.nan;
        mass.least = least;
    }
    __syncthreads();
}

// An entry of the row's list, by way of the block's.
__device__ __forceinline__ void stage(Keeping& block, Mass& mass, u32 capacity, u64 entry) {
    const u32 slot = atomicAdd(&block.here.count, 1u);
    if (slot < STAGED) {
        block.staged[slot] = entry;
    } else {
        const u32 place = atomicAdd(&mass.listed, 1u);
        if (place < capacity) block.here.list[place] = entry;
    }
}

// The pass over the block's part of a row that is kept by its window, or whole.
template <int RESULT>
__device__ __forceinline__ Sums keep_part(Keeping& block, Mass& mass, u32 capacity) {
    const Here& here = block.here;
    const bool vector = aligned(here.x), masked = aligned(here.y);
    const float scale = here.scale, origin = here.origin, below = here.below, above = here.above;
    const u32 lane = threadIdx.x & 31;
    const Weight weight = here.weight;
    Sums found = {0, 0, 0};
    Groups groups = {block.groups + threadIdx.x / 32 * DRAWN_GROUPS, 0};
    const element* x = here.x + here.begin;
    element* y = here.y + here.begin;
    const u32 length = (u32)(here.end - here.begin);
    u32 from = 0;
    do {
        const u32 to = RESULT == KEEP_DRAW ? min(from + DRAWN_PART, length) : length;
        // All lanes of a warp go round together.
        for (u32 start = from + (threadIdx.x - lane) * PACK; start < to; start += TOGETHER * STEP) {
            const u32 at = start + lane * PACK;
            Pack packs[TOGETHER];
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) packs[u] = load(x, at + u * STEP, length, vector);
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                const u32 i = at + u * STEP;
                float heaviest[PACK / 4];
                const Pack pack = packs[u];
                if (found.add(packs[u], scale, origin, below, above, weight, heaviest)) {
                    // Few; listed before the mask is written, which may lie where the logits do.
#pragma unroll
                    for (int j = 0; j < PACK; ++j) {
                        const float value = value_of(pack.e[j]);
                        const float place = __fmaf_rn(-value, scale, origin);
                        if (place < below || !(place < above)) continue;
                        stage(block, mass, capacity,
                              (u64)key_of(value) << 32 | (u32)(here.begin + i + j));
                        // A zero stays for now: the list does not hold its sign.
                        if (RESULT == KEEP_MASK && value == 0.0f) packs[u].e[j] = pack.e[j];
                    }
                }
                if (RESULT == KEEP_DRAW) {
                    __syncwarp();
                    groups.add(heaviest, (i - from) / 4);
                }
                if (RESULT == KEEP_MASK && i < length) write_pack(y, packs[u], i, length, masked);
            }
        }
        if (RESULT == KEEP_DRAW) {
            const u32 begin = (u32)here.begin;
            const auto at = [&](u32 index) {
                return index - begin < length ? x[index - begin] : nothing();
            };
            here.drawing.test(groups, begin + from, scale, origin, below, weight,
                              block.finalists, at);
            groups.count = 0;
            from = to;
        }
    } while (RESULT == KEEP_DRAW && from < length);
    return found;
}

// Adds the block's sums to the row's.
__device__ __forceinline__ void add_sums(Keeping& block, Mass& mass, const Sums& found) {
    const ulonglong4 sums =
        block_sums(ulonglong4{found.kept, found.all, (u64)found.count, 0}, block.scratch);
    if (threadIdx.x) return;
    atomicAdd(&mass.count, sums.z);
    atomicAdd(&mass.sums[0], sums.x >> 32), atomicAdd(&mass.sums[1], sums.x & 0xFFFFFFFFu);
    atomicAdd(&mass.sums[2], sums.y >> 32), atomicAdd(&mass.sums[3], sums.y & 0xFFFFFFFFu);
}

// The same of a row that keeps one of its entries at the maximum, or none: `mass.best` gets it.
template <int RESULT>
__device__ __forceinline__ void keep_one(const Here& here, Mass& mass) {
    const float top = value_of_key(here.top);
    u64 first = ~0ull;
    for (i64 i = here.begin + threadIdx.x; i < here.end; i += THREADS) {
        const element raw = here.x[i];
        const u64 candidate = (u64)((u32)i ^ here.turned) << 32 | bits_of(raw);
        if (here.how == KEEP_ONE && value_of(raw) == top && candidate < first) first = candidate;
        if (RESULT == KEEP_MASK) here.y[i] = nothing();
    }
    if (first != ~0ull) atomicMin(&mass.best, first);
}

// What the block has listed, and its finalists, behind what the row has.
template <int RESULT>
__device__ __forceinline__ void hand_over(Keeping& block, Mass& mass, u32 capacity) {
    Here& here = block.here;
    const u32 t = threadIdx.x, staged = min(here.count, (u32)STAGED);
    const u32 drawn = RESULT == KEEP_DRAW ? min(block.finalists.count, (u32)FINALISTS) : 0;
    if (t == 0 && staged) here.base = atomicAdd(&mass.listed, staged);
    if (t == 32 && drawn) here.drawn = atomicAdd(&mass.finalists, block.finalists.count);
    __syncthreads();
    for (u32 i = t; i < staged; i += THREADS)
        if (here.base + i < capacity) here.list[here.base + i] = block.staged[i];
    if (RESULT == KEEP_DRAW && t < drawn && here.drawn + t < FINALISTS)
        here.finalists[here.drawn + t] = block.finalists.entries[t];
}

// Puts right what the parts have left open of the mask.
__device__ __forceinline__ void mend_mask(const Here& here, const List& open, u64 cut) {
    element* y = here.y;
    for (u32 i = threadIdx.x; i < open.n; i += THREADS) {
        const u32 index = (u32)open[i] ^ open.flip, key = (u32)(open[i] >> 32);
        const bool stays = open[i] >= cut;
        if (key == 0x80000000u) {
            if (!stays) y[index] = nothing();
        } else if (stays) {
            y[index] = element_of(value_of_key(key));
        }
    }
}

template <int RESULT>
__device__ __forceinline__ void keep_row(PARTS, Mass* rows, const u32* bins,
                                         const Extremes* bounds, u64* lists, u32 capacity,
                                         const double* ps, double p_all,
                                         const double* temperatures, double temperature_all,
                                         int by_sort, element* masked, i64 masked_stride,
                                         u64* finalists, const Outputs& out) {
    __shared__ Keeping block;
    const i64 r = blockIdx.x / chunks;
    Mass& mass = rows[r];
    if (threadIdx.x == 0)
        block.here.set(logits, stride, size, chunk, chunks, lists, capacity, ps, p_all,
                       temperatures, temperature_all, masked, masked_stride, finalists);
    __syncthreads();
    find_window(block, logits, stride, size, chunk, chunks, mass, bins + r * MASS_BINS,
                bounds + r * chunks, capacity, by_sort, out);
    if (block.here.how == BY_SEARCH) return;
    if (block.here.by_window()) add_sums(block, mass, keep_part<RESULT>(block, mass, capacity));
    else keep_one<RESULT>(block.here, mass);
    __syncthreads();
    hand_over<RESULT>(block, mass, capacity);
}

// A block's memory while it finishes a row.
struct Finishing {
    Here here;
    Shared shared;
    u64 masses[GATHERED];
};

// The row's boundary, and what hangs on it; the best draw.
template <int RESULT>
__device__ __forceinline__ Draw finish_by_window(Finishing& block, const Mass& mass, int by_sort,
                                                 i64 size) {
    Shared& shared = block.shared;
    const Here& here = block.here;
    const u32 t = threadIdx.x;
    List open = {here.list, nullptr, nullptr, by_sort ? 0u : ~0u, mass.listed};
    Certain certain = {here.how, here.top, mass.nan, mass.count, 0.0, 0.0};
    if (here.by_window()) {
        certain.mass = mass_of_halves(mass.sums[0], mass.sums[1], here.weight);
        certain.total = mass_of_halves(mass.sums[2], mass.sums[3], here.weight);
    }
    if (open.n <= GATHERED) {
        u64* places = gathered(shared);
        const Terms term(here.top, here.temperature, open.n ? open.n : 1);
#pragma unroll
        for (u32 i = 0; i < GATHERED; i += THREADS) {
            if (i + t >= open.n) continue;
            places[i + t] = open.entries[i + t] ^ open.flip;
            if (open.n > THREADS) block.masses[i + t] = term(places[i + t]);
        }
        open.places = places, open.masses = block.masses;
        __syncthreads();
    }
    const u64 cut =
        finish_row(certain, open, here.p, here.temperature, mass.best, here.turned, shared);
    if (RESULT == KEEP_MASK && here.by_window()) mend_mask(here, open, cut);
    if (here.how == KEEP_ONE) {
        const u32 first = (u32)shared.row.first;
        if (RESULT == KEEP_MASK && t == 0) here.y[first] = element_of_bits((u32)mass.best);
        return Draw{1, first, shared.row.top_key};
    }
    Draw best = {0, 0, 0};
    if (RESULT == KEEP_DRAW && here.by_window()) {
        const u32 drawn = mass.finalists;
        bool sure = false;
        if (drawn <= FINALISTS)
            best = here.drawing.best(here.finalists, drawn, open, cut, here.top, here.temperature,
                                     here.weight, shared, sure);
        if (!sure)
            best = block_best(draw_row(here.x, size, shared.row, here.drawing.seed,
                                       here.drawing.position),
                              shared.scratch);
    }
    return best;
}

// The same of a row that is left to the pivot search.
template <int RESULT>
__device__ __forceinline__ Draw finish_by_search(Finishing& block, const Mass& mass, int by_sort,
                                                 i64 size) {
    Shared& shared = block.shared;
    const Here& here = block.here;
    if (threadIdx.x == 0)
        begin_row(shared.row, mass.top_key, mass.nan, here.p, here.temperature);
    __syncthreads();
    pivot_row(here.x, size, shared.row, nullptr, 0, by_sort, shared.scratch, shared.segments);
    if (RESULT == KEEP_MASK)
        for (i64 i = threadIdx.x; i < size; i += THREADS)
            here.y[i] = keeps(shared.row, key_of(value_of(here.x[i])), i) ? here.x[i] : nothing();
    if (RESULT != KEEP_DRAW) return Draw{0, 0, 0};
    return block_best(draw_row(here.x, size, shared.row, here.drawing.seed, here.drawing.position),
                      shared.scratch);
}

template <int RESULT>
__device__ __forceinline__ void finish_part(PARTS, const Mass* rows, u64* lists, u32 capacity,
                                            const double* ps, double p_all,
                                            const double* temperatures, double temperature_all,
                                            int by_sort, Row* results, element* masked,
                                            i64 masked_stride, u64* finalists,
                                            const Outputs& out) {
    __shared__ Finishing block;
    const u32 t = threadIdx.x;
    const i64 r = blockIdx.x / chunks;
    const Mass& mass = rows[r];
    if (t == 0) {
        block.here.set(logits, stride, size, chunk, chunks, lists, capacity, ps, p_all,
                       temperatures, temperature_all, masked, masked_stride, finalists);
        block.here.set(mass.how, mass.top_key, by_sort);
        if (out.tokens) block.here.drawing.set(out, r, mass.least);
    }
    if (t == 32)
        block.here.weight.set(mass.top_key, temperatures ? temperatures[r] : temperature_all);
    __syncthreads();
    const Draw best = block.here.how == BY_SEARCH
                          ? finish_by_search<RESULT>(block, mass, by_sort, size)
                          : finish_by_window<RESULT>(block, mass, by_sort, size);
    const Row& row = block.shared.row;
    if (t == 0) {
        write_row(out, row, r);
        if (RESULT == KEEP_DRAW && row.count > 0) write_token(out, row, r, best);
    }
    if (RESULT == KEEP_FIND) {
        __syncthreads();
        if (t < sizeof(Row) / 4) ((u32*)&results[r])[t] = ((const u32*)&row)[t];
    }
}

#define KEEP_PARAMETERS                                                                        \
    PARTS, Mass *masses, const u32 *bins, const Extremes *bounds, u64 *lists, u32 capacity,    \
        const double *ps, double p_all, const double *temperatures, double temperature_all,    \
        int by_sort, Row *rows, element *masked, i64 masked_stride, u64 *finalists,            \
        OUTPUT_PARAMETERS
#define KEEP_LIMITS lists, capacity, ps, p_all, temperatures, temperature_all, by_sort
#define KEEP(name, RESULT, BLOCKS)                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) keep##name(KEEP_PARAMETERS) { \
        keep_row<RESULT>(logits, stride, size, chunk, chunks, masses, bins, bounds,            \
                         KEEP_LIMITS, masked, masked_stride, finalists, OUTPUTS);              \
    }                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) finish##name(KEEP_PARAMETERS) {   \
        finish_part<RESULT>(logits, stride, size, chunk, chunks, masses, KEEP_LIMITS, rows,    \
                            masked, masked_stride, finalists, OUTPUTS);                        \
    }

// Where 64 registers are too few to draw, a multiprocessor has one block.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define DRAWING_BLOCKS 1
#else
#define DRAWING_BLOCKS 2
#endif

KEEP(, KEEP_FIND, 2)
KEEP(_mask, KEEP_MASK, 2)
KEEP(_draw, KEEP_DRAW, DRAWING_BLOCKS)
