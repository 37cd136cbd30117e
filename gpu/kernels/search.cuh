// What the parts of the search share: its arguments, the memory of a block and of a team.
//
// What the host chooses by the sizes of a search is fixed at compile time, so that shared memory
// has fixed places and the loops fixed bounds; gpu/plan.py says which sizes take which.
#pragma once
#include "order.cuh"
#include "team.cuh"
#include "tokens.cuh"
#include "trie.cuh"

#ifndef GROUPS
#define GROUPS 4096  // beams, or runs of them, whose work a block can tell apart
#endif
#ifndef STAGE
#define STAGE 4096  // hits that a block can hold; at least 128
#endif
#ifndef SLOT_BITS
#define SLOT_BITS 11  // log2 of the places for a step's proposals; 0: they are in L2
#endif
#ifndef FILTER_BITS
#define FILTER_BITS 15
#endif
#ifndef ROWS
#define ROWS 4  // children that a lane looks at in a turn; at most 8
#endif
#ifndef SMALL_BIN
#define SMALL_BIN 256  // candidates of a bin that are ranked by counting
#endif

static constexpr u32 SLOTS = SLOT_BITS ? 1u << SLOT_BITS : 1;
static constexpr u32 SHARED_WIDTH = SLOT_BITS ? SLOTS / 2 : 1;
static constexpr u32 QUEUE = 32 * ROWS;
static constexpr u32 DIGITS = 256;     // of the narrowing of a cut
static constexpr u32 NARROW_SETS = 3;  // one is filled, one read, one cleared

// Arguments of a launch. Everything has 8 bytes, so that gpu/arguments.py can mirror it.
struct Search {
    Trie trie;
    // Proposals [Q, T, K] and what ends a keyword: [Q or 1, T + 1] and [T + 1].
    Tokens tokens;
    const float* logprobs;
    const float* end_logprobs;
    u64 end_stride;
    const float* penalties;
    const u32* ranks;  // [Q, T, K] if they were chosen before, else null
    u64 queries, given_steps, steps, width, beam_width;
    // Blocks of a team; entries of a list and of a pool; log2 of the slots for wide steps.
    u64 group, list_size, pool_size, wide_slot_bits;
    // Memory of the teams: `work_bytes` for each, and where things stand in it.
    u8* work;
    u64 work_bytes;
    u64 ranks_at, most_at, history_at;
    u64 keys_at, units_at, places_at, nexts_at;
    u64 bins_at, cursors_at, digits_at;
    u64 pool_keys_at, pool_places_at, sorted_at, table_at;
    u32* counters;  // one for each team, 128 bytes apart
    // Results [Q, B], tokens [Q, B, T]; counts of what was searched [Q, T], or null.
    u32* counts;
    i64* key_ids;
    float* scores;
    int* lengths;
    u32* result_tokens;
    i64* values;
    i64* active_beams;
    i64* candidates;
    u64* error;  // the first log-probability in order that cannot be; ends come first
};

// Beams: of each its key, its units, and its place.
struct List {
    u64* keys;
    u32* units;
    uint4* places;
};

// The shared memory of a block. Where the search stands is written by the first thread, and but
// for `member` the same in all blocks of a team; registers are short.
struct Block {
    u8* work;  // the team's memory
    List list;       // of the step's beams
    List next_list;  // of the next one's
    u32 share_mask;  // members of the team up to this one share out small things
    u32 team;
    u32 member;
    u32 query;
    u32 turn;     // how many queries the team had before
    u32 number;   // of the step, from 1
    u32 beams;    // entries of the list
    bool sorted;  // it is in order, and has no more than B
    u32 run;      // beams that are told apart as one, and how many such runs the list has
    u32 runs;
    bool more;    // the step makes beams
    u32 cut_bin;  // of the step before, for a list that is not in order
    float before_best;
    float best;       // possible score
    float pool_best;  // possible pool score of all steps
    float most;       // of the step's log-probabilities
    float end, penalty;
    u32 next_most;  // the next step's, as most_of_steps has it, and what belongs to it
    float next_end, next_penalty;
    u32 pooled;       // entries of the pool
    u32 pool;         // which of the two pools has them
    u32 narrowed;     // passes so far, which choose the set of digits
    bool pool_whole;  // every keyword in the pool's bins was put into the pool
    Level level;  // of the nodes that the step finds
    Level below;  // of their children
    Level next;   // of those below, for the next step
    Cut cut[2];   // of the beams, of the pool
    u32 bound[2];  // bins behind these cannot matter any more
    u32 first_bound[2];  // the same as the first of two waves left it, for the whole team
    u32 total;      // candidates for beams counted in the step
    u32 passed[2];  // by a narrowing: what stands before the digit it chose
    bool chosen[2];  // it goes on for these
    bool staging;
    u32 staged;
    u32 tail_units;   // of a scan, which come first
    u32 child_units;  // these and those of children
    u32 units;        // these and those of pairs
    u32 pairs;
    u32 pair_shift;   // log2 of the lanes that a pair takes
    u32 first_proposal;  // of those that the scan is about
    u32 largest_bin;
    u32 target;  // arrivals at the team's next barrier
    bool last;   // the step, or there is none
    bool mixed;  // log-probabilities do not fall from proposal to proposal
    u32 sums[2][2][32];
    u32 of_units[2][32];
    alignas(16) u32 bins[2][BINS];  // beams and pool: counts while the step scans, then sums before a bin
    u32 pool_bins[BINS];     // of all keywords found so far
    u32 digits[2][DIGITS];
    u32 first_unit[GROUPS];  // of each beam, or run of beams
    u32 first_pair[GROUPS];
    u16 rank[GROUPS];        // position of each beam of a list that is not in order
    alignas(16) u32 filter[(1 << FILTER_BITS) / 32];
    u32 slot_ranks[SLOTS];
    u32 slot_positions[SLOTS];
    u8 queue[WARPS][QUEUE];  // of a scan: the labels that may be proposed
    float logprobs[2][SHARED_WIDTH];  // of this step and the next
    u32 next_ranks[SHARED_WIDTH];
    uint4 stage[STAGE];
};

enum : u32 { BEAMS = 0, POOL = 1 };

// The arguments, and the block's memory, with short ways to what stands in them.
struct Step {
    const Search& search;
    Block& block;

    __device__ __forceinline__ u32 group() const { return u32(search.group); }
    __device__ __forceinline__ u32 width() const { return u32(search.width); }
    __device__ __forceinline__ u32 beam_width() const { return u32(search.beam_width); }

    template <class X>
    __device__ __forceinline__ X* at(u64 offset) const {
        return (X*)(block.work + offset);
    }
    // One of the two lists that take turns.
    __device__ __forceinline__ List list_in_memory(u32 which) const {
        u64 first = which * search.list_size;
        return {at<u64>(search.keys_at) + first, at<u32>(search.units_at) + first,
                at<uint4>(search.places_at) + first};
    }
    // Of beams in tails: where in the store the tail goes on behind the step's label.
    __device__ __forceinline__ u64* nexts() const { return at<u64>(search.nexts_at); }
    __device__ __forceinline__ u32* history(u32 step) const {
        return at<u32>(search.history_at) + u64(step - 1) * search.beam_width;
    }
    // Of each step, the largest log-probability as an integer that rises with it, 0 for none; behind
    // them, 1 where the log-probabilities of a step do not fall.
    __device__ __forceinline__ u32* most_of_steps() const {
        return at<u32>(search.most_at) + (block.turn & 1) * (search.steps + 1);
    }
    // Counts of a wave of a step: of its only or first one, or of the second.
    __device__ __forceinline__ u32* step_bins(u32 step, u32 wave, u32 kind) const {
        return at<u32>(search.bins_at) + (((step & 1) * 2 + wave) * 2 + kind) * BINS;
    }
    __device__ __forceinline__ u32* cursors(u32 kind) const {
        return at<u32>(search.cursors_at) + kind * BINS;
    }
    __device__ __forceinline__ u32* team_digits(u32 set, u32 kind) const {
        return at<u32>(search.digits_at) + (set * 2 + kind) * DIGITS;
    }
    __device__ __forceinline__ uint4* pool_keys(u32 which) const {
        return at<uint4>(search.pool_keys_at) + which * search.pool_size;
    }
    __device__ __forceinline__ u64* pool_places(u32 which) const {
        return at<u64>(search.pool_places_at) + which * search.pool_size;
    }
    __device__ __forceinline__ const u32* step_ranks(u32 step) const {
        const u32* all = search.ranks
                             ? search.ranks + u64(block.query) * search.given_steps * search.width
                             : at<u32>(search.ranks_at);
        return all + u64(step - 1) * search.width;
    }
    __device__ __forceinline__ u64 first_of_step(u32 step) const {
        return (u64(block.query) * search.given_steps + step - 1) * search.width;
    }
    __device__ __forceinline__ const float* step_logprobs(u32 step) const {
        return search.logprobs + first_of_step(step);
    }
    __device__ __forceinline__ i64 token(u32 step, u32 k) const {
        return token_at(search.tokens, first_of_step(step) + k);
    }
    // Threads of the team in one count, and how many they are.
    __device__ __forceinline__ u32 thread() const { return block.member * THREADS + thread_here(); }
    __device__ __forceinline__ u32 threads() const { return group() * THREADS; }

    __device__ __forceinline__ u32* counter() const { return search.counters + block.team * 32; }

    __device__ __forceinline__ void arrive_at_barrier() const {
        team_arrive(counter(), group(), block.target);
    }
    template <class Call>
    __device__ __forceinline__ void wait_at_barrier(Call before_all) const {
        team_wait(counter(), group(), block.target, before_all);
    }
    __device__ __forceinline__ void barrier() const {
        arrive_at_barrier();
        wait_at_barrier([] {});
    }
};
