// Top-p of rows of any length in three launches, by bins of mass (sampling_mass.cuh).
//
// extremes: each row's maximum and minimum, by parts.
// masses, masses_exact: the bins, of each part in shared memory and then of the row; the row's last
//   block finds the bin of the boundary.
// keep, keep_mask, keep_draw: list what is in that bin; what is above it is kept, so the mask is
//   written and a token drawn in the same pass. The row's last block finds the boundary within
//   the list and puts right what hangs on it.
//
// Memory: 12 bytes read an element of float32, and 4 written for the mask. Blocks wait for no other:
// the last to arrive goes on.
#define THREADS 512
#include "sampling_arrive.cuh"

#define STEP (THREADS * PACK)
#define STAGED 512  // entries a block lists before it goes to the row's counter

extern "C" __global__ void __launch_bounds__(THREADS, 3)
extremes(PARTS, Mass* masses, u64* bins, Extremes* bounds) {
    __shared__ Extremes scratch[32];
    const auto [r, part, x, vector, begin, end] = PART_HERE;
    Bounds seen = NO_BOUNDS;
    for (i64 at = begin + threadIdx.x * PACK; at < end; at += 2 * STEP) {
        Pack packs[2];
#pragma unroll
        for (int u = 0; u < 2; ++u) packs[u] = load(x, at + u * STEP, end, vector);
#pragma unroll
        for (int u = 0; u < 2; ++u)
#pragma unroll
            for (int j = 0; j < PACK; ++j) seen.add(value_of(packs[u].e[j]));
    }
    for (u32 b = part * THREADS + threadIdx.x; b < MASS_BINS; b += chunks * THREADS)
        bins[r * MASS_BINS + b] = 0;
    Extremes mine = seen.keys();
    mine.share(scratch);
    if (threadIdx.x) return;
    bounds[blockIdx.x] = mine;
    if (part) return;
    Mass& mass = masses[r];
    mass.listed = mass.arrived[0] = mass.arrived[1] = 0;
    mass.best = ~0ull;
    mass.exact[0] = mass.exact[1] = 0;
}

// For top-p, or with k for the k best. `EXACT` sums the terms of a softmax themselves, since the
// logarithm of a sum of bins is not always that of a float64 sum to the last place of a float32.
template <bool EXACT>
__device__ __forceinline__ void mass_row(const element* logits, i64 stride, i64 size, i64 chunk,
                                         u32 chunks, Mass* rows, u64* bins, const Extremes* bounds,
                                         u32 capacity, const double* ps, double p_all,
                                         const double* temperatures, double temperature_all, i64 k,
                                         u32* counts, u32* parts) {
    constexpr int EACH = MASS_BINS / THREADS;
    __shared__ Extremes scratch[32];
    __shared__ u64 sums[64];
    const auto [r, part, x, vector, begin, end] = PART_HERE;
    const u32 t = threadIdx.x;
    const double temperature = temperatures ? temperatures[r] : temperature_all;
    const double p = ps ? ps[r] : p_all;
    for (u32 b = t; b < MASS_BINS; b += THREADS) {
        counts[b] = 0;
        if (!EXACT) parts[b] = 0;
    }
    Extremes seen = NO_EXTREMES;
    for (u32 c = t; c < chunks; c += THREADS) seen.add(bounds[r * chunks + c]);
    seen.share(scratch);
    const Scale scale(seen.top, seen.low, temperature, size);
    const u32 how = method_of(scale, seen.top, p, temperature, k);
    const bool counting = how == BY_BIN || how == KEEP_ALL || how == BY_COUNT;
    const bool summing =
        EXACT && seen.top != NEGATIVE_INFINITY && seen.top != POSITIVE_INFINITY;
    Mass& row = rows[r];
    if (counting || summing) {
        const double top = (double)value_of_key(seen.top);
        u32 tail = 0;
        u64 sum = 0;
        for (i64 at = begin + t * PACK; at < end; at += 2 * STEP) {
            Pack packs[2];
#pragma unroll
            for (int u = 0; u < 2; ++u) packs[u] = load(x, at + u * STEP, end, vector);
#pragma unroll
            for (int u = 0; u < 2; ++u)
#pragma unroll
                for (int j = 0; j < PACK; ++j) {
                    const float value = value_of(packs[u].e[j]);
                    if (!EXACT || counting) tail += scale.count(value, counts, parts);
                    // To 2^-53; less adds nothing.
                    const double d = __dsub_rn((double)value, top);
                    if (EXACT && d > -37.0) sum += __double2ull_rn(exp_exact(d) * 0x1p52);
                }
        }
        tail = __reduce_add_sync(~0u, tail);
        if ((t & 31) == 0 && tail) atomicAdd(&counts[TAIL], tail);
        __syncthreads();
        for (u32 b = t; b < MASS_BINS; b += THREADS)
            if (counts[b])
                atomicAdd(&bins[r * MASS_BINS + b],
                          (u64)counts[b] << PART_BITS | (EXACT ? 0 : parts[b]));
        if (EXACT) {
            const u64 high = block_sum(sum >> 32, sums), low = block_sum(sum & 0xFFFFFFFFu, sums);
            if (t == 0) atomicAdd(&row.exact[0], high), atomicAdd(&row.exact[1], low);
        }
    }
    if (!arrives_last(&row.arrived[0], chunks)) return;
    if (t == 0) {
        row.scale = scale.scale;
        row.origin = scale.origin;
        row.top_key = seen.top;
        row.nan = seen.nan;
        // All are listed where bins hold fewer than k, but not by places that do not tell -inf.
        row.how = how == BY_COUNT && !scale.reaches_lowest ? BY_SEARCH : how;
        row.base_count = row.present = 0;
        row.base = row.total = 0.0;
        // Of a row that keeps one, what is at the maximum has place 0, all else has 1.
        row.below = how == KEEP_ALL ? __uint_as_float(0x7F800000u) : __uint_as_float(0xFF800000u);
        row.above = how == KEEP_ONE ? 0.5f : row.below;
        if (EXACT) {
            const double high = (double)__ldcg(&row.exact[0]), low = (double)__ldcg(&row.exact[1]);
            row.log_total = log_exact(high * 0x1p-20 + low * 0x1p-52);
        }
    }
    if (!counting) return;
    u64 words[EACH];
#pragma unroll
    for (int j = 0; j < EACH; ++j) words[j] = __ldcg(&bins[r * MASS_BINS + t * EACH + j]);
    const int bits = mass_bits(size);
    const double unit = __longlong_as_double((i64)(1023 - bits) << 52);
    Scanned<EACH> scanned;
    scanned.scan(scale, words, t * EACH, bits, sums);
    const double total = (double)scanned.mass_all * unit, target = p * total;
    if (t == 0) {
        row.total = total;
        if (!EXACT) row.log_total = log_exact(total);
        row.present = scanned.count_all;
        if (how == BY_COUNT) row.above = __uint_as_float(0x7F800000u);
    }
    __syncthreads();
    u64 before = scanned.mass_before;
    u32 above = scanned.count_before;
#pragma unroll 1
    for (int j = 0; j < EACH; ++j) {
        const u32 bin = t * EACH + j, count = scanned.count[j];
        const u64 upto = before + scanned.mass[j];
        if (how == BY_BIN && count && (double)upto * unit >= target &&
            (above == 0 || !((double)before * unit >= target))) {
            row.below = (float)bin;
            row.above = (float)(bin + 1);
            row.base = (double)before * unit;
            row.base_count = above;
            if (count > capacity) row.how = BY_SEARCH;
        }
        // The k best log-probabilities may round to that of the next bin.
        if (how == BY_COUNT && above < k && above + count >= k && bin + 2 < TAIL) {
            row.above = (float)(bin + 2);
            row.how = BY_COUNT;
        }
        before = upto;
        above += count;
    }
}

#define MASS_PARAMETERS                                                                       \
    PARTS, Mass *rows, u64 *bins, const Extremes *bounds, u32 capacity, const double *ps,       \
        double p_all, const double *temperatures, double temperature_all, i64 k
#define MASS_ARGUMENTS                                                                         \
    logits, stride, size, chunk, chunks, rows, bins, bounds, capacity, ps, p_all, temperatures, \
        temperature_all, k

extern "C" __global__ void __launch_bounds__(THREADS, 3) masses(MASS_PARAMETERS) {
    __shared__ u32 counts[MASS_BINS], parts[MASS_BINS];
    mass_row<false>(MASS_ARGUMENTS, counts, parts);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) masses_exact(MASS_PARAMETERS) {
    __shared__ u32 counts[MASS_BINS];
    mass_row<true>(MASS_ARGUMENTS, counts, nullptr);
}

#define KEEP_FIND 0
#define KEEP_MASK 1
#define KEEP_DRAW 2

template <int RESULT>
__device__ __forceinline__ void keep_row(const element* logits, i64 stride, i64 size, i64 chunk,
                                         u32 chunks, Mass* rows, u64* lists, u32 capacity,
                                         const double* ps, double p_all,
                                         const double* temperatures, double temperature_all,
                                         int by_sort, Row* results, element* masked,
                                         i64 masked_stride, Draw* draws, const Outputs& out,
                                         u32 (*queues)[QUEUE]) {
    __shared__ Shared shared;
    __shared__ u64 staged[STAGED];
    __shared__ u32 count, base;
    // Not PART_HERE: from it the compiler spills more.
    const i64 r = blockIdx.x / chunks;
    const u32 part = blockIdx.x % chunks, t = threadIdx.x, lane = t & 31;
    const element* x = logits + r * stride;
    element* y = masked + r * masked_stride;
    const bool vector = aligned(x), to = aligned(y);
    const i64 begin = part * chunk, end = begin + chunk < size ? begin + chunk : size;
    const double temperature = temperatures ? temperatures[r] : temperature_all;
    const double p = ps ? ps[r] : p_all;
    Mass& mass = rows[r];
    const u32 how = mass.how;
    u64* list = lists + r * capacity;
    Row& row = shared.row;
    Draw best = {0, 0, 0};
    if (how == BY_SEARCH) {
        // One block does it all.
        if (part) return;
        if (t == 0) begin_row(row, mass, p, temperature);
        __syncthreads();
        pivot_row(x, size, row, nullptr, 0, by_sort, shared.scratch, shared.segments);
        if (RESULT == KEEP_DRAW) {
            best = block_best(draw_row(x, size, row, out, r), shared.scratch);
        } else if (RESULT == KEEP_MASK) {
            for (i64 i = t; i < size; i += THREADS)
                y[i] = keeps(row, key_of(value_of(x[i])), i) ? x[i] : nothing();
        }
    } else {
        const bool one = how == KEEP_ONE;
        const float scale = mass.scale, origin = mass.origin, below = mass.below,
                    above = mass.above, top = value_of_key(mass.top_key);
        const u32 turned = one && keeps_last(temperature, by_sort) ? ~0u : 0;
        Drawing drawing(out, r, mass.top_key, temperature,
                        how == BY_BIN ? p * mass.total : mass.total, scale, origin, below);
        u32* queue = queues[t >> 5];
        u32 queued = 0;
        u64 first = ~0ull;
        if (t == 0) count = 0;
        __syncthreads();
        // All lanes of a warp go round together.
        for (i64 start = begin + (t - lane) * PACK; start < end; start += 2 * STEP) {
            const i64 at = start + lane * PACK;
            Pack packs[2];
            u32 kept = 0, open = 0;  // a bit for each element
#pragma unroll
            for (int u = 0; u < 2; ++u) packs[u] = load(x, at + u * STEP, end, vector);
#pragma unroll
            for (int u = 0; u < 2; ++u)
#pragma unroll
                for (int j = 0; j < PACK; ++j) {
                    const float value = value_of(packs[u].e[j]);
                    float place = __fmaf_rn(-value, scale, origin);
                    if (one) place = value == top ? 0.0f : 1.0f;
                    const u32 bit = 1u << (u * PACK + j);
                    if (place < below) kept |= bit;
                    else if (place < above) open |= bit;
                }
            if (RESULT == KEEP_DRAW) {
                __syncwarp();
#pragma unroll
                for (int u = 0; u < 2; ++u)
#pragma unroll
                    for (int q = 0; q < PACK; q += 4) {
                        const bool any = kept >> (u * PACK + q) & 15;
                        const u32 lanes = __ballot_sync(~0u, any);
                        if (any)
                            queue[queued + __popc(lanes & ((1u << lane) - 1))] =
                                (u32)(at + u * STEP + q);
                        queued += __popc(lanes);
                        while (queued >= 32) {
                            __syncwarp();
                            queued -= 32;
                            const u32 index = queue[queued + lane];
                            drawing.test(x + index, index, size);
                            __syncwarp();
                        }
                    }
            }
            for (u32 left = open; left; left &= left - 1) {  // few, and no register has an index
                const int bit = __ffs(left) - 1;
                const u32 index = (u32)(at + bit / PACK * STEP + bit % PACK);
                const element raw = x[index];
                if (one) {
                    const u64 candidate = (u64)(index ^ turned) << 32 | bits_of(raw);
                    if (candidate < first) first = candidate;
                    continue;
                }
                const u64 entry = (u64)key_of(value_of(raw)) << 32 | index;
                const u32 slot = atomicAdd(&count, 1u);
                if (slot < STAGED) {
                    staged[slot] = entry;
                } else {
                    const u32 place = atomicAdd(&mass.listed, 1u);
                    if (place < capacity) list[place] = entry;
                }
            }
            // After the reads above: the mask may lie where the logits do. Listed zeros stay for
            // now, since a list does not hold their sign.
            if (RESULT == KEEP_MASK) {
#pragma unroll
                for (int u = 0; u < 2; ++u) {
                    const i64 i = at + u * STEP;
                    if (i >= end) break;
#pragma unroll
                    for (int j = 0; j < PACK; ++j) {
                        const u32 bit = 1u << (u * PACK + j);
                        const bool zero = !one && value_of(packs[u].e[j]) == 0.0f;
                        if (!(kept & bit || (zero && open & bit))) packs[u].e[j] = nothing();
                    }
                    if (to && i + PACK <= end) {
                        *(uint4*)(y + i) = *(const uint4*)&packs[u];
                    } else {
#pragma unroll
                        for (int j = 0; j < PACK; ++j)
                            if (i + j < end) y[i + j] = packs[u].e[j];
                    }
                }
            }
        }
        if (RESULT == KEEP_DRAW) {
            __syncwarp();
            if (lane < queued) drawing.test(x + queue[lane], queue[lane], size);
            best = block_best(drawing.best, shared.scratch);
            if (t == 0) draws[blockIdx.x] = best;
        }
        if (first != ~0ull) atomicMin(&mass.best, first);
        __syncthreads();
        const u32 mine = count < STAGED ? count : STAGED;
        if (t == 0 && mine) base = atomicAdd(&mass.listed, mine);
        __syncthreads();
        for (u32 i = t; i < mine; i += THREADS)
            if (base + i < capacity) list[base + i] = staged[i];
        if (!arrives_last(&mass.arrived[1], chunks)) return;
        const u32 listed = how == BY_BIN ? __ldcg(&mass.listed) : 0;
        const List open = {list, nullptr, nullptr, by_sort ? 0u : ~0u, listed};
        const u64 chosen = __ldcg(&mass.best);
        const u64 cut = finish_row(mass, open, p, temperature, chosen, turned, shared);
        if (RESULT == KEEP_DRAW && row.count > 0) {
            drawing.best = Draw{0, 0, 0};
            for (u32 c = t; c < chunks; c += THREADS) {
                const Draw* other = &draws[r * chunks + c];
                drawing.best.offer(__ldcg(&other->score), __ldcg(&other->token), __ldcg(&other->key));
            }
            for (u32 i = t; i < listed; i += THREADS)
                if (open[i] >= cut) drawing.offer((u32)(open[i] >> 32), (u32)open[i] ^ open.flip);
            if (one && t == 0) drawing.offer(row.top_key, (u32)row.first);
            best = block_best(drawing.best, shared.scratch);
            if (!one && !drawing.certain(best.score))
                best = block_best(draw_row(x, size, row, out, r), shared.scratch);
        }
        if (RESULT == KEEP_MASK) {
            for (u32 i = t; i < listed; i += THREADS) {
                const u32 index = (u32)open[i] ^ open.flip, key = (u32)(open[i] >> 32);
                const bool stays = open[i] >= cut;
                if (key == 0x80000000u) {
                    if (!stays) y[index] = nothing();
                } else if (stays) {
                    y[index] = element_of(value_of_key(key));
                }
            }
            if (one && t == 0) y[row.first] = element_of_bits((u32)chosen);
        }
    }
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
    PARTS, Mass *masses, u64 *lists, u32 capacity, const double *ps, double p_all,             \
        const double *temperatures, double temperature_all, int by_sort, Row *rows,            \
        element *masked, i64 masked_stride, Draw *draws, OUTPUT_PARAMETERS
#define KEEP_ARGUMENTS                                                                         \
    logits, stride, size, chunk, chunks, masses, lists, capacity, ps, p_all, temperatures,     \
        temperature_all, by_sort, rows, masked, masked_stride, draws, OUTPUTS

extern "C" __global__ void __launch_bounds__(THREADS, 2) keep(KEEP_PARAMETERS) {
    keep_row<KEEP_FIND>(KEEP_ARGUMENTS, nullptr);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) keep_mask(KEEP_PARAMETERS) {
    keep_row<KEEP_MASK>(KEEP_ARGUMENTS, nullptr);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) keep_draw(KEEP_PARAMETERS) {
    __shared__ u32 queues[THREADS / 32][QUEUE];
    keep_row<KEEP_DRAW>(KEEP_ARGUMENTS, queues);
}
