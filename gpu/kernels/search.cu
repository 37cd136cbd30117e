// Beam search: the whole search of a batch in one cooperative launch.
//
// A team of blocks has a query at a time. A step is two phases with a barrier behind each: scan
// the children of all beams against the step's proposals and count the candidates by score; then,
// with everybody's counts, take the first B in order (and the first B keywords for the pool), and
// look up what the next step must know of each. The next step's blocks read that list whole, and
// so agree on its order and on who scans what.
//
// Memory of a query: O(T B) for the history, O(B) for lists and pool, O(T K) for ranks, all but
// the proposals within L2 for common sizes. The search is a chain of latencies: two barriers and
// some ten dependent loads a step.
#include "sort.cuh"

#ifndef BLOCKS
#define BLOCKS 1  // of a multiprocessor
#endif

static constexpr u32 LEVEL_WORDS = sizeof(Level) / 8;
static_assert(LEVEL_WORDS <= THREADS, "a word a thread");

// Begin to read what a step needs that does not depend on the one before, beside its proposals: the
// level below its children's, and what belongs to a keyword that ends with it. The last level stands
// for those behind it, which no beam reaches.
__device__ __forceinline__ void read_step(const Step& s, u32 step) {
    const Trie& trie = s.search.trie;
    u32 row = smaller(step, u32(trie.depth) - 1);
    u32 word = thread_here();
    if (word < LEVEL_WORDS) {
        copy_async((u64*)&s.block.next + word, (const u64*)(trie.levels + row) + word);
    }
    if (threadIdx.x == 0) {
        u64 end = s.block.query * s.search.end_stride + step;
        copy_async(&s.block.next_most, s.most_of_steps() + step - 1);
        copy_async(&s.block.next_end, s.search.end_logprobs + end);
        copy_async(&s.block.next_penalty, s.search.penalties + step);
    }
}

// What was read becomes the step's. The set is clear, and the copies are there.
__device__ __forceinline__ void prepare_step(const Step& s, u32 step) {
    u32 word = thread_here();
    if (word < LEVEL_WORDS) {
        u64* level = (u64*)&s.block.level + word;
        level[0] = level[LEVEL_WORDS];
        level[LEVEL_WORDS] = level[2 * LEVEL_WORDS];
    }
    fill_set(s, step);
}

// The best pool score that any step could give: where the pool's bins begin, the same for all
// steps, so that their counts add up. The warp together, a step a lane.
__device__ __forceinline__ float best_pool_score(const Step& s) {
    const u32* most = s.most_of_steps();
    const float* end = s.search.end_logprobs + s.block.query * s.search.end_stride;
    const u32 steps = u32(s.search.steps);
    float sum = 0.0f;
    u32 best = falling(__int_as_float(0xFF800000));
    for (u32 first = 0; first < steps; first += 32) {
        u32 i = first + lane_here();
        bool there = i < steps;
        u32 mine = there ? fresh(most + i) : 0;
        float mine_end = there ? __ldg(end + i + 1) : 0;
        float mine_penalty = there ? __ldg(s.search.penalties + i + 1) : 1;
        // Without proposals a step, and all behind it, give nothing.
        u32 lanes = __ffs(__ballot_sync(FULL, mine == 0)) - 1;
        float up_to_mine = 0.0f;
#pragma unroll 1
        for (u32 lane = 0; lane < smaller(lanes, 32u); lane++) {
            sum = __fadd_rn(sum, of_falling(~__shfl_sync(FULL, mine, lane)));
            if (lane == lane_here()) up_to_mine = sum;
        }
        float pooled = pool_score(up_to_mine, mine_end, mine_penalty);
        // A closed step has none. One that overflows bounds the finite ones of its step as well.
        bool counts = lane_here() < lanes && is_finite(mine_end) && pooled > of_falling(best);
        best = __reduce_min_sync(FULL, counts ? falling(pooled) : best);
        if (lanes < 32) break;
    }
    return of_falling(best);
}

// Whether the step is done in two waves: with many units for each warp of the team, a list that is
// ranked by bins, and log-probabilities that fall, which tells by a search how many of a beam's
// proposals the bounds let pass.
__device__ __forceinline__ bool in_two_waves(const Step& s, u32 units) {
    const Block& block = s.block;
    return block.number > 1 && !block.sorted && !block.mixed &&
           units > WAVE_UNITS * WARPS * s.group();
}

// How many proposals, in their falling order, may still matter to a beam, of which `low` do.
__device__ __forceinline__ u32 matching_proposals(const Step& s, float score, u32 low) {
    u32 high = s.width();
    while (low < high) {
        u32 middle = (low + high) >> 1;
        float reached = __fadd_rn(score, logprob_at(s, middle));
        bool matters = may_matter(s, reached, s.block.first_bound);
        low = matters ? middle + 1 : low;
        high = matters ? high : middle;
    }
    return low;
}

enum : u32 { FIRST_WAVE, LAST_WAVE };

// Work of a wave for the beam of a node with `count` children, at its cheaper side, as `units` of a
// list has it, and how many proposals it is about. The first wave takes the first proposals, or all
// children where these are cheaper; the last one the other proposals that the bounds let pass.
__device__ __forceinline__ u32 work_in_wave(
    const Step& s, u32 wave, u32 count, float score, u32& proposals) {
    proposals = smaller(s.width(), u32(FIRST_PROPOSALS));
    u32 of_first = units_of(count, proposals);
    if (wave == FIRST_WAVE) return of_first;
    if (!(of_first & BY_PROPOSAL) || proposals == s.width()) return 0;
    if (!may_matter(s, __fadd_rn(score, logprob_at(s, proposals)), s.block.first_bound)) return 0;
    proposals = matching_proposals(s, score, proposals + 1) - proposals;
    return units_of(count, proposals);
}

// Units of a wave, of a list that is ranked by bins. They are the same whenever they are counted, so
// that a block that must scan again has the share that it had.
__device__ __forceinline__ void count_wave(const Step& s, u32 wave) {
    Block& block = s.block;
    const List list = block.list;
    sum_work(s, block.beams, wave == FIRST_WAVE, [&](u32 i, u32& units, u32& pairs) {
        u32 word = fresh(list.units + i), count = fresh(&list.places[i].y);
        float score = of_falling(fresh((const u32*)(list.keys + i) + 1));
        u32 proposals = s.width();
        if (block.rank[i] == CUT_OFF) word = TAIL;
        if (!(word & TAIL)) word = work_in_wave(s, wave, count, score, proposals);
        units = word & UNITS;
        pairs = word & BY_PROPOSAL ? proposals : 0;
    });
    if (threadIdx.x == 0) {
        block.first_proposal = wave == LAST_WAVE ? smaller(s.width(), u32(FIRST_PROPOSALS)) : 0;
    }
    __syncthreads();
}

__device__ __forceinline__ void clear_bins(const Step& s) {
    for (u32 i = thread_here(); i < 2 * BINS / 4; i += THREADS) {
        ((uint4*)s.block.bins)[i] = make_uint4(0, 0, 0, 0);
    }
}

// Forget what is staged.
__device__ __forceinline__ void clear_stage(const Step& s) {
    __syncthreads();
    if (threadIdx.x == 0) s.block.staged = 0;
    __syncthreads();
}

// Behind the first of two waves: what it bounds, and nothing counted.
__device__ __forceinline__ void begin_last_wave(const Step& s) {
    if (threadIdx.x < 2) s.block.first_bound[threadIdx.x] = s.block.bound[threadIdx.x];
    clear_bins(s);
    __syncthreads();
}

// The step's scan and all that is done with its hits: count, in one wave or two, cut, narrow the
// cut where it must be, place. Hits are taken from the stage; a block that gave it up scans again,
// wave by wave as it did.
__device__ __forceinline__ void find_candidates(const Step& s, u32 units) {
    enum : u32 { COUNT, NARROW, PLACE };
    Block& block = s.block;
    const u32 waves = in_two_waves(s, units) ? 2 : 1;
    u32 phase = COUNT, wave = 0;
    while (true) {
        const bool counting = phase == COUNT, scanning = counting || !block.staging;
        if (scanning && waves > 1) count_wave(s, wave);
        if (scanning && !counting) clear_stage(s);
        Cursor cursor = {0, 0};
        for (bool done = false; !done;) {
            done = true;
            if (scanning) {
                done = scan(s, Hits{s, counting}, cursor);
                done = !__syncthreads_or(!done);
            }
            if (!counting) {
                take_staged(s, phase == NARROW);
                if (!done) clear_stage(s);
            } else if (!done) {
                cut_stage(s);
            }
        }
        const bool last_wave = wave + 1 == waves;
        if (counting) {
            publish_counts(s, wave);
            if (last_wave) clear_table(s, block.number + 1);
            s.barrier();
            choose_cuts(s, wave, last_wave);
            if (!last_wave) begin_last_wave(s);
        }
        if (scanning && !last_wave) {
            wave++;
            continue;
        }
        if (phase == PLACE) break;
        if (!counting) {
            __syncthreads();
            narrow_cuts(s);
        }
        if (threadIdx.x == 0 && too_many(s, POOL)) block.pool_whole = false;
        phase = begin_narrowing(s) ? NARROW : PLACE;
        wave = 0;
    }
}

// Whether bins alone do not order the list well enough.
__device__ __forceinline__ bool must_sort(const Step& s) {
    return s.block.beams > GROUPS || s.block.beams > 2 * STAGE || s.block.largest_bin > SMALL_BIN;
}

__device__ __forceinline__ void swap_lists(Block& block) {
    List list = block.list;
    block.list = block.next_list;
    block.next_list = list;
}

// The first thread: what a step begins with.
__device__ __forceinline__ void begin_step(const Step& s, u32 number) {
    Block& block = s.block;
    block.number = number;
    block.more = number < s.search.steps || s.search.active_beams;
    block.most = of_falling(~block.next_most);
    block.end = block.next_end;
    block.penalty = block.next_penalty;
    block.bound[BEAMS] = BINS - 1;
    block.staged = 0;
    block.staging = s.beam_width() <= STAGE / 2;
}

// The first thread: what the cuts took is the next step's list, and in the pool; and what that step
// begins with.
__device__ __forceinline__ void end_step(const Step& s) {
    Block& block = s.block;
    u32 room = u32(s.search.list_size);
    block.before_best = block.best;
    block.cut_bin = block.cut[BEAMS].bin;
    block.beams = smaller(block.cut[BEAMS].taken, room);
    block.pooled += smaller(block.cut[POOL].taken, room);
    swap_lists(block);
    block.sorted = false;
    if (s.search.active_beams && block.member == 0) {
        u64 at = u64(block.query) * s.search.given_steps + block.number - 1;
        s.search.active_beams[at] = smaller(block.beams, s.beam_width());
        s.search.candidates[at] = block.total;
    }
    // Without proposals there is nothing to do in the next step, and so in all that follow.
    block.last = block.number == s.search.steps || block.beams == 0 || block.next_most == 0;
    if (!block.last) begin_step(s, block.number + 1);
}

// One step. The next one is made ready while the team comes together.
__device__ __forceinline__ void make_step(const Step& s) {
    Block& block = s.block;
    u32 units = read_beams(s, [&] {
        if (block.number < s.search.steps) read_step(s, block.number + 1);
    });
    clear_bins(s);
    __syncthreads();
    find_candidates(s, units);
    fill_table(s, block.number + 1);
    s.arrive_at_barrier();
    clear_set(s);
    wait_for_copies();
    const u32 next = block.number + 1;  // read before the first thread counts on
    __syncthreads();
    if (next <= s.search.steps) prepare_step(s, next);
    if (next < s.search.steps) read_set(s, next + 1);
    s.wait_at_barrier([&] { end_step(s); });
}

// Sort what must be in order: the list, if bins do not do, a pool with no room for another step,
// and at the end the results.
__device__ __forceinline__ void sort_where_needed(const Step& s, bool last) {
    Block& block = s.block;
    bool list = !last && must_sort(s);
    bool pool = !last && block.pooled > s.search.pool_size - s.search.list_size;
    for (u32 what = SORT_BEAMS; what <= SORT_RESULTS; what++) {
        if (what == SORT_BEAMS ? !list : what == SORT_POOL ? !pool : !last) continue;
        sort_entries(s, what, what == SORT_BEAMS ? block.beams : block.pooled);
    }
    if (last || !(list || pool)) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (list) {
            swap_lists(block);
            block.beams = smaller(block.beams, s.beam_width());
            block.sorted = true;
        }
        if (pool) {
            block.pool ^= 1;
            block.pooled = smaller(block.pooled, s.beam_width());
            block.pool_whole = false;
        }
    }
    __syncthreads();
}

__device__ __forceinline__ void begin_query(const Step& s) {
    Block& block = s.block;
    if (threadIdx.x == 0) {
        block.number = 0;
        block.beams = 1;
        block.list = s.list_in_memory(0);
        block.next_list = s.list_in_memory(1);
        block.sorted = true;
        block.pooled = 0;
        block.pool = 0;
        block.narrowed = 0;
        block.pool_whole = true;
        block.bound[POOL] = BINS - 1;
        block.cut[POOL] = {BINS - 1, 64, 0, 0};
    }
    for (u32 i = thread_here(); i < BINS; i += THREADS) block.pool_bins[i] = 0;
    clear_set(s);
    __syncthreads();
    u32 word = thread_here();
    if (word < LEVEL_WORDS) {
        copy_async((u64*)&block.below + word, (const u64*)s.search.trie.levels + word);
    }
    map_proposals(s);
    clear_table(s, 1);
    s.barrier();
    if (!SHARED_SET) {
        fill_table(s, 1);
        s.barrier();
    }
    read_step(s, 1);
    read_set(s, 1);
    if (warp_id() == 0) {
        float best = best_pool_score(s);
        if (threadIdx.x == 0) block.pool_best = best;
    } else if (threadIdx.x == 32) {
        block.mixed = fresh(s.most_of_steps() + s.search.steps);
    }
    wait_for_copies();
    __syncthreads();
    prepare_step(s, 1);
    if (s.search.steps > 1) read_set(s, 2);
    if (threadIdx.x == 0) {
        block.last = block.next_most == 0;
        if (!block.last) begin_step(s, 1);
    }
    __syncthreads();
}

// What the next query counts in must be zero when its first phase begins. Nobody reads any of it
// any more: all blocks are behind the last barrier.
__device__ __forceinline__ void end_query(const Step& s) {
    wait_for_copies();  // of steps that are not made
    u32* bins = s.step_bins(0, 0, BEAMS);
#pragma unroll 1
    for (u32 i = s.thread(); i < 8 * BINS; i += s.threads()) bins[i] = 0;
    u32* most = s.most_of_steps();
    for (u32 i = s.thread(); i <= s.search.steps; i += s.threads()) most[i] = 0;
    if (s.block.narrowed > 0) {
        u32* digits = s.team_digits(0, 0);
        for (u32 i = s.thread(); i < NARROW_SETS * 2 * DIGITS; i += s.threads()) digits[i] = 0;
    }
    u32 count = smaller(s.block.pooled, s.beam_width());
    if (s.thread() == 0) s.search.counts[s.block.query] = count;
    for (u32 i = count + s.thread(); i < s.beam_width(); i += s.threads()) write_nothing(s, i);
}

__device__ __forceinline__ void search_query(const Step& s) {
    Block& block = s.block;
    begin_query(s);
    while (true) {
        if (!block.last) make_step(s);
        bool last = block.last;
        if (last && write_binned(s)) break;
        sort_where_needed(s, last);
        if (last) break;
    }
    end_query(s);
}

extern "C" __constant__ u32 block_bytes = sizeof(Block);

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) beam_search(
    const __grid_constant__ Search search) {
    extern __shared__ uint4 shared[];
    Step s{search, *(Block*)held_address(shared)};
    Block& block = s.block;
    if (blockIdx.x / s.group() >= gridDim.x / s.group()) return;
    if (threadIdx.x == 0) {
        block.team = blockIdx.x / s.group();
        block.member = blockIdx.x % s.group();
        block.work = search.work + block.team * search.work_bytes;
        block.target = 0;
        block.share_mask = (1u << (31 - __clz(s.group()))) - 1;
        block.query = block.team;
        block.turn = 0;
    }
    __syncthreads();
    while (block.query < search.queries) {
        search_query(s);
        __syncthreads();
        if (threadIdx.x == 0) {
            block.query += gridDim.x / s.group();
            block.turn++;
        }
        __syncthreads();
    }
    // The last of the team leaves the counter at zero for the next launch.
    if (s.group() > 1 && threadIdx.x == 0 && atomicAdd(s.counter() + 1, 1u) == s.group() - 1) {
        s.counter()[0] = 0;
        s.counter()[1] = 0;
    }
}
