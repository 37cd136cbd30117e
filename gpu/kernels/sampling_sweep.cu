// sweep: a second read; lists the entries of the bins that may hold the boundary and sums the
// masses of the others, each warp over slices of fixed place, so that sums do not depend on batch
// or grid. In the same pass it writes the mask, where only listed entries are still open, or draws
// among what is kept for certain: those whose noise can win become finalists.
//
// Memory: 4 bytes read an element of float32, and 4 written for the mask.
#include "sampling.cuh"

// A float32 above or at 0 as float64, without the slow conversion: 0 becomes 2^-127.
__device__ __forceinline__ double widened(float term) {
    const u32 bits = __float_as_uint(term);
    return __hiloint2double((int)((bits >> 3) + 0x38000000u), (int)(bits << 29));
}

#define SWEEPERS 256
#define OPEN_STAGED 512  // entries a block lists before it goes to the row's counter
#define QUADS (SLICE / 4)

#define SWEEP_SUM 0
#define SWEEP_MASK 1
#define SWEEP_DRAW 2

template <int RESULT>
__device__ __forceinline__ void sweep_rows(const element* logits, i64 stride, i64 size, Row* rows,
                                           u64* lists, u32 capacity, double2* partial, i64 slices,
                                           u32 chunks, element* masked, i64 masked_stride,
                                           Draw* finalists, const i64* seeds,
                                           const i64* positions, i64 seed_all,
                                           i64 position_all, int by_row, float4* queues,
                                           u32* quad_queues) {
    constexpr int EACH = SLICE / (32 * PACK);
    __shared__ u64 staged[OPEN_STAGED];
    __shared__ u32 count, base;
    const i64 r = blockIdx.x / chunks;
    Row& row = rows[r];
    if (row.mode != BY_BINS) return;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const element* x = logits + r * stride;
    element* y = masked + r * masked_stride;
    const bool vector = aligned(x), to = aligned(y);
    u64* list = lists + r * capacity;
    const float high = row.high, mid_edge = row.edges[0], window_edge = row.edges[1],
                low_edge = row.edges[2], k_edge = row.edges[3], bound = row.bound;
    const Power power = row.power;
    const bool with_k_bin = k_edge < low_edge;
    const bool zeros_listed = high < 0.0f || (window_edge < 0.0f && mid_edge >= 0.0f) ||
                              (k_edge < 0.0f && low_edge >= 0.0f);
    const u64 seed = RESULT == SWEEP_DRAW ? (seeds ? seeds[r] : seed_all) : 0;
    const u64 position =
        RESULT == SWEEP_DRAW ? (positions ? positions[r] : by_row ? r : position_all) : 0;
    const u32 lane = threadIdx.x & 31;
    float4* queue = queues + (threadIdx.x >> 5) * QUADS;
    u32* quads = quad_queues + (threadIdx.x >> 5) * QUADS;
    const i64 warps = (i64)chunks * (blockDim.x >> 5);
    for (i64 s = blockIdx.x % chunks * (i64)(blockDim.x >> 5) + (threadIdx.x >> 5); s < slices;
         s += warps) {
        double mid = 0.0, low = 0.0;
        const i64 begin = s * SLICE + lane * PACK;
        Pack packs[EACH];
        u32 open = 0, keep = 0;  // a bit for each element that is to be listed, or written
        u32 queued = 0;
        const bool whole = vector && (s + 1) * SLICE <= size;
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            const i64 at = begin + u * 32 * PACK;
            if (whole) *(uint4*)&packs[u] = *(const uint4*)(x + at);
            else packs[u] = load(x, at, size, vector);
        }
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            float terms[PACK];
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const float value = value_of(packs[u].e[j]);
                // The edges fall, so each comparison implies those after it.
                const bool is_mid = value > mid_edge && value <= high;
                const bool is_low = value > low_edge && value <= window_edge;
                const float term = power(value);
                const double wide = widened(term);
                if (is_mid) mid = __dadd_rn(mid, wide);
                if (is_low) low = __dadd_rn(low, wide);
                if (value > window_edge && value <= mid_edge) open |= 1u << (u * PACK + j);
                if (RESULT == SWEEP_MASK && is_mid) keep |= 1u << (u * PACK + j);
                if (RESULT == SWEEP_DRAW) terms[j] = is_mid ? term : 0.0f;
            }
            if (RESULT == SWEEP_DRAW) {
                // Groups of four that hold anything kept queue up: most hold nothing.
#pragma unroll
                for (int q = 0; q < PACK; q += 4) {
                    const bool any = terms[q] + terms[q + 1] + terms[q + 2] + terms[q + 3] > 0.0f;
                    const u32 lanes = __ballot_sync(~0u, any);
                    if (any) {
                        const u32 slot = queued + __popc(lanes & ((1u << lane) - 1));
                        queue[slot] = make_float4(terms[q], terms[q + 1], terms[q + 2], terms[q + 3]);
                        quads[slot] = (u32)((begin + u * 32 * PACK + q) >> 2);
                    }
                    queued += __popc(lanes);
                }
            }
        }
        if (RESULT == SWEEP_DRAW) {
            __syncwarp();
            for (u32 i = lane; i < queued; i += 32) {
                const float4 masses = queue[i];
                const u32 quad = quads[i];
                const uint4 highs = noise(seed, position, quad, 0);
                u32 chosen = 0;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const u32 word = j == 0 ? highs.x : j == 1 ? highs.y : j == 2 ? highs.z : highs.w;
                    const float mass = j == 0 ? masses.x : j == 1 ? masses.y : j == 2 ? masses.z : masses.w;
                    // -ln u >= 1 - u; a hundredth covers float32.
                    if (mass > 0.0f && (float)(~word >> 8) * 0x1p-24f <= bound * mass * 1.01f)
                        chosen |= 1u << j;
                }
                for (; chosen; chosen &= chosen - 1) {
                    const u32 index = quad * 4 + __ffs(chosen) - 1;
                    const u32 key = key_of(value_of(x[index]));
                    const u32 slot = atomicAdd(&row.finalists, 1u);
                    if (slot < FINALISTS)
                        finalists[r * FINALISTS + slot] =
                            Draw{ordered(score_of(scaled(key, row.top_key, row.temperature),
                                                  word_of(seed, position, index))),
                                 index, key};
                }
            }
            __syncwarp();
        }
        if (with_k_bin) {
#pragma unroll
            for (int u = 0; u < EACH; ++u)
#pragma unroll
                for (int j = 0; j < PACK; ++j) {
                    const float value = value_of(packs[u].e[j]);
                    if (value > k_edge && value <= low_edge) open |= 1u << (u * PACK + j);
                }
        }
        if (RESULT == SWEEP_MASK && zeros_listed) {
            // They stay for now: a list does not hold their sign.
#pragma unroll
            for (int u = 0; u < EACH; ++u)
#pragma unroll
                for (int j = 0; j < PACK; ++j)
                    if (value_of(packs[u].e[j]) == 0.0f) keep |= 1u << (u * PACK + j);
        }
        for (; open; open &= open - 1) {  // few: read again, a register has no index
            const int bit = __ffs(open) - 1;
            const u32 index = (u32)(begin + bit / PACK * 32 * PACK + bit % PACK);
            const u64 entry = (u64)key_of(value_of(x[index])) << 32 | index;
            const u32 slot = atomicAdd(&count, 1u);
            if (slot < OPEN_STAGED) {
                staged[slot] = entry;
            } else {
                const u32 place = atomicAdd(&row.listed, 1u);
                if (place < capacity) list[place] = entry;
            }
        }
        // After the reads above: the mask may lie where the logits do.
        if (RESULT == SWEEP_MASK) {
#pragma unroll
            for (int u = 0; u < EACH; ++u) {
                const i64 at = begin + u * 32 * PACK;
#pragma unroll
                for (int j = 0; j < PACK; ++j)
                    if (!(keep >> (u * PACK + j) & 1)) packs[u].e[j] = nothing();
                if (whole && to) {
                    *(uint4*)(y + at) = *(const uint4*)&packs[u];
                } else {
#pragma unroll
                    for (int j = 0; j < PACK; ++j)
                        if (at + j < size) y[at + j] = packs[u].e[j];
                }
            }
        }
        mid = warp_sum(mid);
        low = warp_sum(low);
        if (lane == 0) partial[r * slices + s] = make_double2(mid, low);
    }
    __syncthreads();
    const u32 mine = count < OPEN_STAGED ? count : OPEN_STAGED;
    if (threadIdx.x == 0 && mine) base = atomicAdd(&row.listed, mine);
    __syncthreads();
    for (u32 i = threadIdx.x; i < mine; i += SWEEPERS)
        if (base + i < capacity) list[base + i] = staged[i];
}

#define SWEEP_PARAMETERS                                                                      \
    const element *logits, i64 stride, i64 size, Row *rows, u64 *lists, u32 capacity,         \
        double2 *partial, i64 slices, u32 chunks, element *masked, i64 masked_stride,         \
        Draw *finalists, const i64 *seeds, const i64 *positions, i64 seed_all,                \
        i64 position_all, int by_row
#define SWEEP_ARGUMENTS                                                                       \
    logits, stride, size, rows, lists, capacity, partial, slices, chunks, masked,             \
        masked_stride, finalists, seeds, positions, seed_all, position_all, by_row

extern "C" __global__ void __launch_bounds__(SWEEPERS, 4) sweep(SWEEP_PARAMETERS) {
    sweep_rows<SWEEP_SUM>(SWEEP_ARGUMENTS, nullptr, nullptr);
}

extern "C" __global__ void __launch_bounds__(SWEEPERS, 4) sweep_mask(SWEEP_PARAMETERS) {
    sweep_rows<SWEEP_MASK>(SWEEP_ARGUMENTS, nullptr, nullptr);
}

extern "C" __global__ void __launch_bounds__(SWEEPERS, 2) sweep_draw(SWEEP_PARAMETERS) {
    __shared__ float4 queues[SWEEPERS / 32 * QUADS];
    __shared__ u32 quad_queues[SWEEPERS / 32 * QUADS];
    sweep_rows<SWEEP_DRAW>(SWEEP_ARGUMENTS, queues, quad_queues);
}
