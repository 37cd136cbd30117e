// Where a row's results go, and the draw of a token from places in a list.
#pragma once
#include "sampling.cuh"

// Each pointer may be null. Seeds and positions are read when the kernel runs, so a replayed graph
// sees new ones. With `by_row` a position is the row number.
struct Outputs {
    i64* counts;
    double* log_mass;
    unsigned char* nan;
    i64* indices;      // [B, width]
    element* values;   // [B, width]
    i64 width;
    i64* tokens;
    float* logprobs;
    const i64* seeds;
    const i64* positions;
    i64 seed_all, position_all;
    int by_row;

    __device__ __forceinline__ u64 seed_of(i64 r) const { return seeds ? seeds[r] : seed_all; }
    __device__ __forceinline__ u64 position_of(i64 r) const {
        return positions ? positions[r] : by_row ? r : position_all;
    }
};

#define OUTPUT_PARAMETERS                                                                   \
    i64 *counts, double *log_mass, unsigned char *nan, i64 *indices, element *values,       \
        i64 width, i64 *tokens, float *logprobs, const i64 *seeds, const i64 *positions,    \
        i64 seed_all, i64 position_all, int by_row
#define OUTPUTS                                                                             \
    Outputs {                                                                               \
        counts, log_mass, nan, indices, values, width, tokens, logprobs, seeds, positions,  \
            seed_all, position_all, by_row                                                  \
    }

__device__ __forceinline__ void write_row(const Outputs& out, const Row& row, i64 r) {
    if (out.counts) out.counts[r] = row.count;
    if (out.log_mass) out.log_mass[r] = row.log_mass;
    if (out.nan) out.nan[r] = row.nan != 0;
    if (out.tokens && row.count == 0) {
        out.tokens[r] = -1;
        out.logprobs[r] = __uint_as_float(0xFF800000u);
    }
}

__device__ __forceinline__ Draw block_best(Draw draw, u64* scratch) {
    const u64 best = block_max(draw.score, scratch);
    const u64 mine = draw.score == best ? (u64)(~draw.token) << 32 | draw.key : 0;
    const u64 winner = block_max(mine, scratch);
    draw.score = best;
    draw.token = ~(u32)(winner >> 32);
    draw.key = (u32)winner;
    return draw;
}

__device__ __forceinline__ void write_token(const Outputs& out, const Row& row, i64 r,
                                            const Draw& draw) {
    const double d = row.temperature > 0.0 ? scaled(draw.key, row.top_key, row.temperature) : 0.0;
    out.tokens[r] = draw.token;
    out.logprobs[r] = (float)(d - row.log_mass);
}
