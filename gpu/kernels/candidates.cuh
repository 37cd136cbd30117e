// Hits: counted by score while the step scans, and staged, to be taken when the cut is known.
//
// Memory: two histograms of BINS words, and a stage of STAGE hits, 16 bytes each. When it is full,
// the block cuts its own hits at their B-th, which the team's cut cannot pass. Where that frees
// too little (a beam wider than the stage, or equal scores), the stage is given up, and the step
// is scanned again when the cut is known, a stage at a time.
#pragma once
#include "scan.cuh"

// Whether a hit may still be taken, and its bins; BINS where not. No branches: a warp is as slow as
// its longest way, and goes through here for every hit.
__device__ __forceinline__ bool bins_of_hit(
    const Step& s, float score, u32 kind, u32& bin, u32& pool_bin) {
    const Block& block = s.block;
    float pooled = pool_score(score, block.end, block.penalty);  // -inf where the pool is closed
    bin = bin_of(block.best, score);
    pool_bin = bin_of(block.pool_best, pooled);
    bool beam = bool(kind & EXTENDS) & block.more & is_finite(score);
    bool keyword = bool(kind & ENDS) & is_finite(score) & is_finite(pooled);
    bin = beam & (bin <= block.bound[BEAMS]) ? bin : BINS;
    pool_bin = keyword & (pool_bin <= block.bound[POOL]) ? pool_bin : BINS;
    return (bin < BINS) | (pool_bin < BINS);
}

// What a scan does with a warp's hits. It refuses them where the stage has no room.
struct Hits {
    const Step& s;
    bool counting;  // and staging while there is room; else staging alone

    __device__ __forceinline__ bool operator()(
        bool hit, float score, u32 origin, u32 ref, u32 kind) {
        u32 bin = BINS, pool_bin = BINS;
        bool wanted = hit && bins_of_hit(s, score, kind, bin, pool_bin);
        u32 lanes = __ballot_sync(FULL, wanted);
        if (lanes == 0) return true;
        if (!counting || s.block.staging) {
            u32 place = 0;
            if (lane_id() == 0) place = atomicAdd(&s.block.staged, u32(__popc(lanes)));
            place = __shfl_sync(FULL, place, 0);
            bool fits = place + __popc(lanes) <= STAGE;
            place += __popc(lanes & ((1u << lane_id()) - 1));
            // Where they do not fit, what is left of the stage is filled with hits of no kind.
            if (wanted && place < STAGE) {
                s.block.stage[place] = make_uint4(falling(score), origin, ref, fits ? kind : 0);
            }
            if (!fits) return false;
        }
        if (counting) {
            if (bin < BINS) atomicAdd(&s.block.bins[BEAMS][bin], 1u);
            if (pool_bin < BINS) atomicAdd(&s.block.bins[POOL][pool_bin], 1u);
        }
        return true;
    }
};

// The bin of the block's own B-th hit of each kind becomes the bound: the team has at least as
// many hits up to it.
__device__ __forceinline__ void bound_by_own_hits(const Step& s, u32 kind) {
    const u32* counts = s.block.bins[kind];
    u32 run = (BINS + THREADS - 1) / THREADS;
    u32 first = smaller(thread_here() * run, u32(BINS));
    u32 stop = smaller(first + run, u32(BINS));
    u32 value = 0;
#pragma unroll 1
    for (u32 i = first; i < stop; i++) value += counts[i];
    u32 total;
    u32 before = block_exclusive_sum(value, s.block.sums[kind][0], total);
#pragma unroll 1
    for (u32 i = first; i < stop; i++) {
        u32 after = before + counts[i];
        if (before < s.beam_width() && after >= s.beam_width()) {
            s.block.bound[kind] = smaller(s.block.bound[kind], i);
        }
        before = after;
    }
}

// The whole block, with a full stage: drop what the bounds rule out, or give the stage up.
__device__ __forceinline__ void cut_stage(const Step& s) {
    Block& block = s.block;
    bound_by_own_hits(s, BEAMS);
    bound_by_own_hits(s, POOL);
    __syncthreads();
    if (threadIdx.x == 0) block.staged = 0;
    __syncthreads();
    // Rounds of THREADS hits: a round is read whole before what is kept of it is written, and
    // that never passes the place of the round.
#pragma unroll 1
    for (u32 first = 0; first < STAGE; first += THREADS) {
        u32 i = first + thread_here();
        uint4 hit = i < STAGE ? block.stage[i] : make_uint4(0, 0, 0, 0);
        u32 bin, pool_bin;
        bool wanted = bins_of_hit(s, of_falling(hit.x), hit.w, bin, pool_bin);
        __syncthreads();
        if (wanted) block.stage[atomicAdd(&block.staged, 1u)] = hit;
        __syncthreads();
    }
    if (threadIdx.x == 0 && block.staged > STAGE - STAGE / 4) block.staging = false;
    __syncthreads();
}
