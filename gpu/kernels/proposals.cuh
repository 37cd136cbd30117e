// The step's proposals as a set of ranks: who has a label, and at which position of the input.
//
// Memory: a filter of 2^FILTER_BITS bits in shared memory, by the low bits of the rank, turns most
// children away with one load; behind it a hash, at most half full, of K ranks and first
// positions. Up to SHARED_WIDTH proposals the hash is in shared memory too, and each block makes
// its own; a wider step's is in L2, one for the team, made a step ahead.
#pragma once
#include "search.cuh"

#ifndef RANKS_ONCE
#define RANKS_ONCE 1  // 0: beside the team, each block maps the proposals of each step
#endif

static constexpr bool SHARED_SET = SLOT_BITS > 0;

__device__ __forceinline__ u32 slot_bits(const Step& s) {
    return SHARED_SET ? SLOT_BITS : u32(s.search.wide_slot_bits);
}

// Of a step in L2: its ranks, and behind them the positions.
__device__ __forceinline__ u32* wide_slots(const Step& s, u32 step) {
    return s.at<u32>(s.search.table_at) + (u64(step & 1) * 2 << s.search.wide_slot_bits);
}

__device__ __forceinline__ u32 slot_of(const Step& s, u32 rank) {
    return (rank * 0x9E3779B1u) >> (32 - slot_bits(s));
}

__device__ __forceinline__ u32 filter_place(u32 rank) { return rank & ((1u << FILTER_BITS) - 1); }

// A rank that several positions have stands at the first of them.
__device__ __forceinline__ void insert(const Step& s, u32* ranks, u32* positions, u32 rank, u32 k) {
    u32 slot = slot_of(s, rank);
    while (true) {
        u32 old = atomicCAS(ranks + slot, NONE, rank);
        if (old == NONE || old == rank) break;
        slot = (slot + 1) & ((1u << slot_bits(s)) - 1);
    }
    atomicMin(positions + slot, k);
}

__device__ __forceinline__ bool may_have(const Step& s, u32 rank) {
    u32 place = filter_place(rank);
    return s.block.filter[place >> 5] >> (place & 31) & 1;
}

// Position of the proposal with this rank, or NONE.
__device__ __forceinline__ u32 find(const Step& s, u32 rank) {
    u32 slot = slot_of(s, rank);
    const u32* ranks = SHARED_SET ? s.block.slot_ranks : wide_slots(s, s.block.number);
    while (true) {
        u32 there = SHARED_SET ? ranks[slot] : fresh(ranks + slot);
        if (there == rank) {
            return SHARED_SET ? s.block.slot_positions[slot]
                              : fresh(ranks + (1u << slot_bits(s)) + slot);
        }
        if (there == NONE) return NONE;
        slot = (slot + 1) & ((1u << slot_bits(s)) - 1);
    }
}

__device__ __forceinline__ float logprob_at(const Step& s, u32 position) {
    return SHARED_SET ? s.block.logprobs[s.block.number & 1][position]
                      : __ldg(s.step_logprobs(s.block.number) + position);
}

// Make ready for `fill_set` of any step. No __syncthreads.
__device__ __forceinline__ void clear_set(const Step& s) {
    static constexpr u32 FILTER_WORDS = (1u << FILTER_BITS) / 32;
    // The words of the set stand behind those of the filter.
    static constexpr u32 WORDS = FILTER_WORDS + (SHARED_SET ? 2 * SLOTS : 0);
    static_assert(WORDS % 4 == 0 || !SHARED_SET, "cleared 16 bytes at a time");
    uint4* words = (uint4*)s.block.filter;
    for (u32 i = thread_here(); i < WORDS / 4; i += THREADS) {
        u32 value = i < FILTER_WORDS / 4 ? 0 : NONE;
        words[i] = make_uint4(value, value, value, value);
    }
    for (u32 i = WORDS / 4 * 4 + threadIdx.x; i < FILTER_WORDS; i += THREADS) s.block.filter[i] = 0;
}

// Begin to read a step's proposals, for `fill_set` after wait_for_copies and a __syncthreads.
__device__ __forceinline__ void read_set(const Step& s, u32 step) {
    if (!SHARED_SET) return;
    const u32* ranks = s.step_ranks(step);
    const float* logprobs = s.step_logprobs(step);
#pragma unroll 1
    for (u32 k = thread_here(); k < s.width(); k += THREADS) {
        copy_async(s.block.next_ranks + k, ranks + k);
        copy_async(s.block.logprobs[step & 1] + k, logprobs + k);
    }
}

// Fill a cleared set with a step's proposals. No __syncthreads.
__device__ __forceinline__ void fill_set(const Step& s, u32 step) {
    const u32* ranks = s.step_ranks(step);
#pragma unroll 1
    for (u32 k = thread_here(); k < s.width(); k += THREADS) {
        u32 rank = SHARED_SET ? s.block.next_ranks[k] : fresh(ranks + k);
        if (rank == NONE) continue;
        if (!RANKS_ONCE) rank = rank_of_token(s.search.trie, s.token(step, k));
        u32 place = filter_place(rank);
        atomicOr(s.block.filter + (place >> 5), 1u << (place & 31));
        if (SHARED_SET) insert(s, s.block.slot_ranks, s.block.slot_positions, rank, k);
    }
}

// The team's table of a later step: cleared in one phase, filled in the next one.
__device__ __forceinline__ void clear_table(const Step& s, u32 step) {
    if (SHARED_SET) return;
    u32* ranks = wide_slots(s, step);
    for (u32 i = s.thread(); i < 2u << slot_bits(s); i += s.threads()) ranks[i] = NONE;
}

__device__ __forceinline__ void fill_table(const Step& s, u32 step) {
    if (SHARED_SET || step > s.search.steps) return;
    u32* ranks = wide_slots(s, step);
    const u32* given = s.step_ranks(step);
    for (u32 k = s.thread(); k < s.width(); k += s.threads()) {
        u32 rank = fresh(given + k);
        if (rank != NONE) insert(s, ranks, ranks + (1u << slot_bits(s)), rank, k);
    }
}

static constexpr u64 ERROR_OF_PROPOSAL = 1ull << 62;  // behind all of ends

// Rank of one proposal into the team's memory; the result is its log-probability as an integer
// that rises with it, 0 if it is none. NaN and +inf are reported, at steps that no beam reaches
// too.
__device__ __forceinline__ u32 map_proposal(const Step& s, u32 i, u64 at, bool wanted) {
    const Search& search = s.search;
    float logprob = __ldg(search.logprobs + at);
    bool below_infinity = logprob < __int_as_float(0x7F800000);
    if (!below_infinity) {
        i64 token = token_at(search.tokens, at);
        if (token >= 0 && u64(token) < search.trie.vocab_size) {
            atomicMin(search.error, ERROR_OF_PROPOSAL + at);
        }
    }
    u32 rank = NONE;
    if (search.ranks) {
        rank = __ldg(search.ranks + at);
    } else {
        if (is_finite(logprob)) rank = rank_of_token(search.trie, token_at(search.tokens, at));
        if (wanted) s.at<u32>(search.ranks_at)[i] = rank;
    }
    return rank != NONE ? ~falling(logprob) : 0;
}

// Ranks of all proposals of the query, shared out over the team, and the largest log-probability
// of each step. `most_of_steps` is zero before, and stays so for a step without proposals.
__device__ __forceinline__ void map_proposals(const Step& s) {
    const Search& search = s.search;
    u32 all = u32(search.given_steps * search.width);
    u32 wanted = u32(search.steps * search.width);
    u64 first = u64(s.block.query) * all;
    u32* most = s.most_of_steps();
    // Whole warps go through, so that their lanes can share an atomic.
    for (u32 base = s.thread() - lane_id(); base < all; base += s.threads()) {
        u32 i = base + lane_id();
        u32 step = smaller(i, all - 1) / s.width();
        u32 key = 0;
        if (i < all) key = map_proposal(s, i, first + i, i < wanted);
        if (step >= search.steps) key = 0;
        if (__all_sync(FULL, step == __shfl_sync(FULL, step, 0))) {
            key = __reduce_max_sync(FULL, key);
            if (lane_id() > 0) key = 0;
        }
        if (key > 0) atomicMax(most + step, key);
        if (i < wanted && i + 1 < (step + 1) * s.width()) {
            const float* logprob = search.logprobs + first + i;
            bool falls = __ldg(logprob) >= __ldg(logprob + 1);
            if (!falls) most[search.steps] = 1;
        }
    }
    if (search.end_stride == 0) return;
    u64 ends = s.block.query * search.end_stride;
    for (u32 t = 1 + s.thread(); t <= search.given_steps; t += s.threads()) {
        bool below_infinity = __ldg(search.end_logprobs + ends + t) < __int_as_float(0x7F800000);
        if (!below_infinity) atomicMin(search.error, ends + t);
    }
}
