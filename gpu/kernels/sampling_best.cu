// The k best log-probabilities of rows of logits, in falling order, of equal ones the lowest token:
// the proposals of a beam search. Behind `extremes` and `masses_exact` of sampling_mass.cu, which give the
// row's mass and a place that all of the k best lie before.
//
// best: lists what lies before that place; the row's last block orders it. Of more than 2,048, the
//   kernels of sampling_sort.cu order it, and `unpack_best` takes it apart.
//
// Memory: 4 bytes read an element of float32, 12 with the kernels before.
#define THREADS 512
#include "sampling_parts.cuh"

#define STEP (THREADS * PACK)
#define ABSENT 0xFFFFFFFFu

// A row's log-probabilities as keys, which the pivot search takes as it takes values.
struct Logprobs {
    const element* x;
    i64 size;
    double top, log_total;

    __device__ __forceinline__ u32 key(float value) const {
        return key_of((float)__dsub_rn(__dsub_rn((double)value, top), log_total));
    }

    template <typename F>
    __device__ __forceinline__ void each(F visit) const {
        for (i64 i = threadIdx.x; i < size; i += THREADS) visit(key(value_of(x[i])), i);
    }
};

// The k best of a row whose list does not hold them, into the list; how many there are.
__device__ __noinline__ u32 search_best(const Logprobs& row, i64 k, u64* list, Shared& shared) {
    u64 present = 0;
    row.each([&](u32 key, i64 i) { present += key > NEGATIVE_INFINITY; });
    present = block_sum(present, shared.scratch);
    Limits limits = {NEGATIVE_INFINITY + 1, row.size};
    if ((u64)k < present) {
        const u32 top = row.key((float)row.top);
        const Boundary cut = find<false>(row, limits, top, 1.0, k, 0.0, shared.scratch);
        limits.final = find_index(row, limits, cut.key, k - cut.above, row.size, shared.segments,
                                  shared.scratch);
        limits.key = cut.key;
    }
    if (threadIdx.x == 0) shared.number = 0;
    __syncthreads();
    row.each([&](u32 key, i64 i) {
        if (limits.hold(key, i)) list[atomicAdd(&shared.number, 1u)] = (u64)key << 32 | (u32)i;
    });
    __syncthreads();
    return shared.number;
}

// `rows` is of the first `size` columns, `whole` of all. Either `places` or `tokens` are written:
// width of each row.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
best(PARTS, Mass* rows, const Mass* whole, u64* lists, u32 capacity, i64 k,
     unsigned char* wrong, u64* places, Row* results, u32* tokens, float* logprobs, i64 width) {
    __shared__ Shared shared;
    const auto [r, part, x, vector, begin, end] = PART_HERE;
    const u32 t = threadIdx.x;
    Mass& mass = rows[r];
    const Mass& all = whole[r];
    u64* list = lists + r * capacity;
    const Logprobs row = {x, size, (double)value_of_key(all.top_key), all.log_total};
    if (mass.how == BY_COUNT) {
        const float scale = mass.scale, origin = mass.origin, above = mass.above;
        for (i64 at = begin + t * PACK; at < end; at += 2 * STEP) {
            Pack packs[2];
#pragma unroll
            for (int u = 0; u < 2; ++u) packs[u] = load(x, at + u * STEP, end, vector);
#pragma unroll
            for (int u = 0; u < 2; ++u)
#pragma unroll
                for (int j = 0; j < PACK; ++j) {
                    const float value = value_of(packs[u].e[j]);
                    if (!(__fmaf_rn(-value, scale, origin) < above)) continue;
                    const u32 slot = atomicAdd(&mass.listed, 1u);
                    if (slot < capacity)
                        list[slot] = (u64)row.key(value) << 32 | (u32)(at + u * STEP + j);
                }
        }
    }
    if (!arrives_last(&mass.arrived[1], chunks)) return;
    const bool infinite = all.top_key == POSITIVE_INFINITY;
    if (t == 0) {
        wrong[r] = infinite || all.nan;
        shared.number = 0;
        if (places) results[r].kept = NO_LIST;
    }
    u32 n = mass.how == BY_COUNT ? __ldcg(&mass.listed) : 0;
    if (infinite) n = 0;
    else if (mass.how == BY_SEARCH || n > capacity) n = search_best(row, k, list, shared);
    __syncthreads();
    if (t == 0) shared.number = 0;
    const List open = {list, nullptr, nullptr, ~0u, n};
    u64 cut = (u64)(NEGATIVE_INFINITY + 1) << 32;
    if (n > k) {
        u64 most = 0, least = ~0ull;
#pragma unroll 1
        for (u32 i = t; i < n; i += THREADS) {
            const u64 place = open[i];
            most = place > most ? place : most;
            least = place < least ? place : least;
        }
        most = block_max(most, shared.scratch);
        least = ~block_max(~least, shared.scratch);
        const Terms none(0, 1.0, n);
        const u64 found =
            search<false>(open, none, least, most, (u32)k, 0, 0.0, 0.0, shared).place;
        cut = found > cut ? found : cut;
        __syncthreads();
        if (t == 0) shared.number = 0;
    }
    __syncthreads();
    u64* into = places ? places + r * width : shared.sorted;
#pragma unroll 1
    for (u32 i = t; i < n; i += THREADS)
        if (open[i] >= cut) into[atomicAdd(&shared.number, 1u)] = open[i];
    __syncthreads();
    const u32 kept = shared.number;
    if (places) {
        for (i64 i = kept + t; i < width; i += THREADS) into[i] = 0;
        return;
    }
    sort_falling(shared.sorted, kept);
    for (i64 i = t; i < width; i += THREADS) {
        const u64 place = i < kept ? shared.sorted[i] : 0;
        tokens[r * width + i] = place ? (u32)~(u32)place : ABSENT;
        logprobs[r * width + i] =
            place ? value_of_key((u32)(place >> 32)) : __uint_as_float(0xFF800000u);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
unpack_best(const u64* places, i64 count, u32* tokens, float* logprobs) {
    const i64 i = blockIdx.x * (i64)THREADS + threadIdx.x;
    if (i >= count) return;
    const u64 place = places[i];
    tokens[i] = place ? (u32)~(u32)place : ABSENT;
    logprobs[i] = place ? value_of_key((u32)(place >> 32)) : __uint_as_float(0xFF800000u);
}
