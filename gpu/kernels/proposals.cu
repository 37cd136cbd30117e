// The `limit` best proposals of each step, where fewer are wanted than are given: a block a step.
//
// Of a repeated token the first position counts; ties go by position. Memory: a hash of the
// step's tokens in L2, and the proposals read once for each 8 bits of a 48-bit key until the
// last wanted one is known.
#include "order.cuh"
#include "team.cuh"
#include "tokens.cuh"
#include "trie.cuh"

static constexpr u32 DIGITS = 256;
static constexpr u32 KEY_BITS = 48;  // 32 of the log-probability, 16 of the position

__device__ __forceinline__ u64 proposal_key(float logprob, u32 k) {
    // -0.0 equals 0.0.
    return u64(falling(__fadd_rn(logprob, 0.0f))) << 16 | k;
}

__device__ __forceinline__ u32 token_slot(u32 token, u32 slot_bits) {
    return (token * 0x9E3779B1u) >> (32 - slot_bits);
}

// ranks [rows, K] get the rank of each chosen proposal, NONE for all others. `table` has
// 2 << slot_bits words for each block.
extern "C" __global__ void __launch_bounds__(THREADS) choose_proposals(
    const __grid_constant__ Trie trie, const __grid_constant__ Tokens tokens, const float* logprobs,
    u32* ranks, u32* table, u64 rows, u64 width, u64 limit, u64 slot_bits) {
    __shared__ u32 digits[DIGITS];
    __shared__ u32 sums[32];
    __shared__ u64 prefix;
    __shared__ u32 need;
    u32 mask = (1u << slot_bits) - 1;
    u32* slot_tokens = table + (u64(blockIdx.x) * 2 << slot_bits);
    u32* slot_positions = slot_tokens + (1u << slot_bits);
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const float* row_logprobs = logprobs + row * width;
        u32* row_ranks = ranks + row * width;
        for (u32 i = threadIdx.x; i < 2u << slot_bits; i += THREADS) slot_tokens[i] = NONE;
        __syncthreads();
        for (u32 k = threadIdx.x; k < width; k += THREADS) {
            i64 token = token_at(tokens, row * width + k);
            bool left = token >= 0 && u64(token) < trie.vocab_size &&
                        is_finite(__ldg(row_logprobs + k));
            row_ranks[k] = NONE;
            if (!left) continue;
            u32 slot = token_slot(u32(token), u32(slot_bits));
            while (true) {
                u32 old = atomicCAS(slot_tokens + slot, NONE, u32(token));
                if (old == NONE || old == u32(token)) break;
                slot = (slot + 1) & mask;
            }
            atomicMin(slot_positions + slot, k);
        }
        __syncthreads();
        // What the table has is what is left, each with its position.
        u32 mine = 0;
        for (u32 i = threadIdx.x; i <= mask; i += THREADS) mine += fresh(slot_positions + i) != NONE;
        u32 left;
        block_exclusive_sum(mine, sums, left);
        __syncthreads();
        if (threadIdx.x == 0) {
            prefix = 0;
            need = u32(limit);
        }
        u32 shift = KEY_BITS;
        while (left > limit && shift > 0) {
            for (u32 i = threadIdx.x; i < DIGITS; i += THREADS) digits[i] = 0;
            __syncthreads();
            for (u32 i = threadIdx.x; i <= mask; i += THREADS) {
                u32 k = fresh(slot_positions + i);
                if (k == NONE) continue;
                u64 key = proposal_key(__ldg(row_logprobs + k), k);
                if (key >> shift == prefix) {
                    atomicAdd(digits + (key >> (shift - 8) & (DIGITS - 1)), 1u);
                }
            }
            __syncthreads();
            u32 total = block_scan(digits, DIGITS, sums);
            u32 wanted = need;
            u64 before = prefix;
            __syncthreads();
            for (u32 i = threadIdx.x; i < DIGITS; i += THREADS) {
                u32 after = i + 1 < DIGITS ? digits[i + 1] : total;
                if (digits[i] < wanted && after >= wanted) {
                    prefix = before << 8 | i;
                    need = wanted - digits[i];
                }
            }
            __syncthreads();
            shift -= 8;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i <= mask; i += THREADS) {
            u32 k = fresh(slot_positions + i);
            if (k == NONE) continue;
            u64 key = proposal_key(__ldg(row_logprobs + k), k);
            bool chosen = left <= limit || key >> shift <= prefix;
            if (chosen) row_ranks[k] = rank_of_token(trie, i64(fresh(slot_tokens + i)));
        }
        __syncthreads();
    }
}
