// Draws a row's token while it is gone through: the largest of (x - max) / temperature + Gumbel
// noise among what is kept. Noise costs a Philox block for four neighbours, so groups of four that
// hold a kept entry are listed and then tested against their largest mass; few can win.
#pragma once
#include "sampling_boundary.cuh"

// Entries of a block whose noise can win: some 16 a row are expected, more where p is off.
struct Finalists {
    u32 count;
    u64 entries[FINALISTS];  // key << 32 | index
};

#define DRAWN_PART 16384  // entries of a part whose groups of four are listed at a time
#define DRAWN_GROUPS (DRAWN_PART / 4 / ALL_WARPS)  // by a warp

// A warp's groups of four entries that hold a kept one: the largest mass, rounded up, over the
// number of the group.
struct Groups {
    u32* list;
    u32 count;

    // By the warp together.
    __device__ __forceinline__ void add(const float (&heaviest)[PACK / 4], u32 group) {
#pragma unroll
        for (int q = 0; q < PACK / 4; ++q) {
            const bool any = heaviest[q] > 0.0f;
            const u32 lanes = __ballot_sync(~0u, any);
            const u32 before = __popc(lanes & ((1u << (threadIdx.x & 31)) - 1));
            if (any)
                list[count + before] =
                    ((__float_as_uint(heaviest[q]) + 0xFFFFu) & 0xFFFF0000u) | (group + q);
            count += __popc(lanes);
        }
    }
};

// Draws among what is kept for certain.
struct Drawing {
    u64 seed, position;
    float bound;

    // `least`: a mass that the kept have for certain.
    __device__ __forceinline__ void set(const Outputs& out, i64 r, float least) {
        seed = out.seed_of(r);
        position = out.position_of(r);
        // Nothing is above 16 shares of the kept mass but with probability e^-16, which is then
        // found out.
        bound = 16.0f / fmaxf(least, 1e-30f);
    }

    // Whether an entry with this noise, the high half of a word, can win. -ln u >= 1 - u, and a
    // hundredth covers float32.
    __device__ __forceinline__ bool can_win(u32 high, float mass) const {
        return (float)(~high >> 8) * 0x1p-24f <= bound * mass * 1.01f;
    }

    // Tests the warp's groups of a part of the row, which begins at `begin`, and lists those entries
    // that can win. `at` gives an entry of the row.
    template <class At>
    __device__ __forceinline__ void test(const Groups& groups, u32 begin, float scale,
                                         float origin, float below, const Weight& weight,
                                         Finalists& finalists, At at) const {
        __syncwarp();
#pragma unroll 1
        for (u32 g = threadIdx.x & 31; g < groups.count; g += 32) {
            const u32 group = groups.list[g], index = begin + (group & 0xFFFFu) * 4;
            const float most = bound * __uint_as_float(group & 0xFFFF0000u) * (1.02f * 0x1p32f);
            const u32 limit = (u32)fminf(most, 4294967040.0f);
            const uint4 highs = noise(seed, position, index >> 2, 0);
            const u32 most_noise = max(max(highs.x, highs.y), max(highs.z, highs.w));
            if (~most_noise > limit) continue;
#pragma unroll 1
            for (u32 j = 0; j < 4; ++j) {
                const float value = value_of(at(index + j));
                if (!(__fmaf_rn(-value, scale, origin) < below) ||
                    !can_win(lane_of(highs, j), weight(value)))
                    continue;
                const u32 slot = atomicAdd(&finalists.count, 1u);
                if (slot < FINALISTS)
                    finalists.entries[slot] = (u64)key_of(value) << 32 | (index + j);
            }
        }
        __syncwarp();
    }

    // The best of `n` finalists, key << 32 | index, and of the listed that are kept. `certain` says
    // whether none that cannot win by its noise is above it.
    __device__ __forceinline__ Draw best(const u64* finalists, u32 n, const List& open, u64 cut,
                                         u32 top, double temperature, const Weight& weight,
                                         Shared& shared, bool& certain) const {
        if (threadIdx.x == THREADS - 1)
            shared.result = ordered(1e-6 - log_exact((double)bound));
        Draw draw = {0, 0, 0};
#pragma unroll 1
        for (u32 i = threadIdx.x; i < n + open.n; i += THREADS) {
            u64 entry = i < n ? finalists[i] : open[i - n];
            if (i >= n) {
                if (entry < cut) continue;
                entry ^= open.flip;
                const u32 index = (u32)entry;
                const u32 high = lane_of(noise(seed, position, index >> 2, 0), index);
                if (!can_win(high, weight(value_of_key((u32)(entry >> 32))))) continue;
            }
            const u32 key = (u32)(entry >> 32), index = (u32)entry;
            const double d = scaled(key, top, temperature);
            draw.offer(ordered(score_of(d, word_of(seed, position, index))), index, key);
        }
        draw = block_best(draw, shared.scratch);
        certain = draw.score > shared.result;
        return draw;
    }
};
