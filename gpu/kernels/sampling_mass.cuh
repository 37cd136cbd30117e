// The mass of a row by bins, exact enough to decide which bin the boundary of p lies in.
//
// Bins are linear in the value, the first at the row's maximum. Each holds a count and, in 2^-16,
// the sum of what its entries' masses lack of that at its edge. All are whole numbers, so that they
// depend on no order, batch or grid; the mass of a bin follows from them to about 1e-8 of it.
#pragma once
#include "sampling_list.cuh"

#define MASS_BINS 4096
#define TAIL (MASS_BINS - 1)  // what is so small that all of it together does not count
#define SPAN 40.0             // temperatures from the maximum to the tail, at most
#define PART_ONE 65536.0f
#define PART_BITS 40          // of a bin's word: its count stands above its part
#define MOST_COUNTED (1 << 23)  // entries of a row, so that parts stay below 2^40

// What is known of a row: how its boundary is found.
#define KEEP_NONE 0
#define KEEP_ONE 1   // of the entries at the maximum the first, or the last
#define KEEP_ALL 2
#define BY_BIN 3     // all above a bin, and of it what `resolve_open` says
#define BY_COUNT 4   // what may be among the k best is listed
#define BY_SEARCH 5  // by the pivot search

struct Mass {
    float scale, origin;
    // By place, which rises as values fall: kept below `below`, listed below `above`.
    float below, above;
    u32 top_key, how, base_count, present, nan;
    u32 listed, arrived[2];
    double base, total;  // mass before the listed, and of all
    double log_total;
    u64 best;            // KEEP_ONE: the index, turned where the last is wanted, and the element
    u64 exact[2];        // mass in 2^-20 and 2^-52, for log-softmax
};
static_assert(sizeof(Mass) == 96, "gpu/sampling_mass.py sizes the table of masses");

// Where a row's values lie in bins. A place is linear, and so are float32's roundings of it.
struct Scale {
    float scale, origin, lowered, width;
    double top_place, per_bin;
    bool fits;
    bool reaches_lowest;  // else places of the lowest values are infinite, as those of -inf are

    __device__ __forceinline__ Scale(u32 top, u32 low, double temperature, i64 size) {
        const double highest = (double)value_of_key(top);
        const double span = fmin(highest - (double)value_of_key(low), SPAN * temperature);
        scale = (float)fmin((TAIL - 1) / span, 1e30);
        top_place = highest * (double)scale;
        origin = (float)(top_place + 0.5);
        lowered = __fadd_rn(origin, 0.03125f);  // so that no part is below 0
        per_bin = 1.0 / ((double)scale * temperature);
        width = (float)per_bin;
        fits = fabs(top_place) < 262144.0 && temperature > 1e-30 && temperature < 1e30 &&
               size <= MOST_COUNTED;
        reaches_lowest = place(value_of_key(low)) < __uint_as_float(0x7F800000u);
    }

    __device__ __forceinline__ float place(float x) const { return __fmaf_rn(-x, scale, origin); }

    // Counts x in its bin, and its part unless `parts` is null; whether it is in the tail instead.
    __device__ __forceinline__ bool count(float x, u32* counts, u32* parts) const {
        const float y = place(x);
        if (!(y < (float)TAIL)) return x > __uint_as_float(0xFF800000u);
        const float floored = __fadd_rd(y, 8388608.0f);
        const u32 bin = __float_as_uint(floored) & (MASS_BINS - 1);
        atomicAdd(&counts[bin], 1u);
        if (!parts) return false;
        // How far it lies in its bin, rounded once, and what its mass lacks, in units of `width`.
        const float f = __fmaf_rn(-x, scale, edge(__fsub_rn(floored, 8388608.0f)));
        const float g = __fmul_rn(f, width);
        const float u = __fmul_rn(f, __fmaf_rn(g, __fmaf_rn(g, 0.16666667f, -0.5f), 1.0f));
        atomicAdd(&parts[bin], __float_as_uint(__fmaf_rn(u, PART_ONE, 12582912.0f)) - 0x4B400000u);
        return false;
    }

    __device__ __forceinline__ float edge(float bin) const { return __fsub_rn(lowered, bin); }

    // The mass of a bin, in units of 2^-bits of that at the maximum.
    __device__ __forceinline__ u64 mass(u32 bin, u32 n, u64 part, int bits) const {
        if (n == 0 || bin == TAIL) return 0;
        const double from = ((double)edge((float)bin) - top_place) * per_bin;
        const double inside = (double)n - per_bin * (double)part * 0x1p-16;
        return (u64)(exp_exact(from) * inside * __longlong_as_double((i64)(1023 + bits) << 52));
    }
};

// As fine as lets the mass of a row stay below 2^62.
__device__ __forceinline__ int mass_bits(i64 size) { return 60 - (64 - __clzll(size)); }

// Bins of a thread, and what lies in the bins of the threads before.
template <int EACH>
struct Scanned {
    u64 mass[EACH], mass_before, mass_all;
    u32 count[EACH], count_before, count_all;

    // `words` are those of the bins from `first` on. `scratch` has 64 places.
    __device__ __forceinline__ void scan(const Scale& scale, const u64 (&words)[EACH], u32 first,
                                         int bits, u64* scratch) {
        const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        u64 mass_own = 0;
        u64 count_own = 0;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            count[j] = (u32)(words[j] >> PART_BITS);
            mass[j] = scale.mass(first + j, count[j], words[j] & ((1ull << PART_BITS) - 1), bits);
            mass_own += mass[j];
            count_own += count[j];
        }
        u64 masses = mass_own, counts = count_own;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            const u64 m = __shfl_up_sync(~0u, masses, d), c = __shfl_up_sync(~0u, counts, d);
            if (lane >= d) masses += m, counts += c;
        }
        if (lane == 31) scratch[warp] = masses, scratch[32 + warp] = counts;
        __syncthreads();
        mass_before = masses - mass_own, count_before = (u32)(counts - count_own);
        mass_all = count_all = 0;
#pragma unroll 1
        for (u32 w = 0; w < ALL_WARPS; ++w) {
            if (w < warp) mass_before += scratch[w], count_before += (u32)scratch[32 + w];
            mass_all += scratch[w];
            count_all += (u32)scratch[32 + w];
        }
    }
};

// A row's bounds of values, as each block has them of its part.
struct Extremes {
    u32 top, low, nan, spare;
    __device__ __forceinline__ void add(const Extremes& other) {
        top = max(top, other.top);
        low = min(low, other.low);
        nan |= other.nan;
    }
    // Over the lanes, in each of them.
    __device__ __forceinline__ void share_in_warp() {
        top = __reduce_max_sync(~0u, top);
        low = __reduce_min_sync(~0u, low);
        nan = __reduce_or_sync(~0u, nan);
    }
    // Over the block, in each thread.
    __device__ __forceinline__ void share(Extremes* scratch) {
        share_in_warp();
        if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = *this;
        __syncthreads();
        if ((threadIdx.x & 31) < ALL_WARPS) add(scratch[threadIdx.x & 31]);
        share_in_warp();
    }
};
#define NO_EXTREMES Extremes{NEGATIVE_INFINITY, 0xFFFFFFFFu, 0, 0}

// The same while values come, in float32.
struct Bounds {
    float top, low;
    bool nan;
    __device__ __forceinline__ void add(float x) {
        top = fmaxf(top, x);
        low = fminf(low, x == __uint_as_float(0xFF800000u) ? __uint_as_float(0x7F800000u) : x);
        nan |= x != x;
    }
    __device__ __forceinline__ Extremes keys() const {
        return Extremes{key_of(top), key_of(low), nan, 0};
    }
};
#define NO_BOUNDS Bounds{__uint_as_float(0xFF800000u), __uint_as_float(0x7F800000u), false}

// How a row with this maximum is done; p is 1 where it is off. `k` is of BY_COUNT, else 0.
__device__ __forceinline__ u32 method_of(const Scale& scale, u32 top, double p, double temperature,
                                         i64 k) {
    if (top == NEGATIVE_INFINITY) return KEEP_NONE;
    if (k > 0) return scale.fits && top != POSITIVE_INFINITY ? BY_COUNT : BY_SEARCH;
    if (!(temperature > 0.0) || p <= 0.0) return KEEP_ONE;
    if (top == POSITIVE_INFINITY || !scale.fits) return BY_SEARCH;
    if (p < 1.0) return BY_BIN;
    return scale.reaches_lowest ? KEEP_ALL : BY_SEARCH;
}

// Whether of equal entries at the maximum the last is to be kept: as a sort would.
__device__ __forceinline__ bool keeps_last(double temperature, int by_sort) {
    return by_sort && temperature > 0.0;
}

// The boundary among the listed, given the mass `extra` before them. Of a bin with mass to spare
// the last entry ends the search, so that it ends whatever the roundings.
__device__ __forceinline__ Found resolve_open(const List& list, const Terms& term, double extra,
                                              double target, Shared& shared) {
    const u32 t = threadIdx.x, n = list.n;
    if (n > THREADS) {
        u64 sum = 0, most = 0, least = ~0ull;
#pragma unroll 1
        for (u32 i = t; i < n; i += THREADS) {
            const u64 place = list[i];
            sum += term(place);
            most = place > most ? place : most;
            least = place < least ? place : least;
        }
        sum = block_sum(sum, shared.scratch);
        most = block_max(most, shared.scratch);
        least = ~block_max(~least, shared.scratch);
        const double reachable = term.value(sum) + extra;
        return search<true>(list, term, least, most, 0, 0, extra,
                            target > reachable ? reachable : target, shared);
    }
    // All with all: 1 to 32 threads for each entry.
    if (t < n) {
        const u64 place = list[t];
        shared.sorted[t] = place;
        shared.terms[t] = term(place);
    }
    u32 each = 1;
    while (each < 32 && 2 * each * n <= THREADS) each *= 2;
    __syncthreads();
    const u32 entry = t / each;
    const u64 place = entry < n ? shared.sorted[entry] : ~0ull;
    u32 ahead = 0;
    u64 reached = 0;
    for (u32 other = t % each; other < n; other += each)
        if (shared.sorted[other] >= place) ++ahead, reached += shared.terms[other];
    for (u32 d = 1; d < each; d <<= 1) {
        ahead += __shfl_xor_sync(~0u, ahead, d);
        reached += __shfl_xor_sync(~0u, reached, d);
    }
    const bool ends = entry < n && (ahead == n || term.value(reached) + extra >= target);
    const u64 found = block_max(ends ? place : 0, shared.scratch);
    if (place == found) shared.result_count = ahead, shared.result_sum = reached;
    __syncthreads();
    return Found{found, shared.result_count, shared.result_sum};
}

// Draws among what is kept for certain: of groups of four entries that hold any, those whose noise
// can win. Their expected number is 16 a row.
struct Drawing {
    u64 seed, position;
    float bound, below, scale, origin;
    u32 top_key;
    double temperature;
    Power power;
    Draw best;

    __device__ __forceinline__ Drawing(const Outputs& out, i64 r, u32 top, double temperature,
                                       double mass, float scale, float origin, float below)
        : below(below), scale(scale), origin(origin), top_key(top), temperature(temperature),
          best{0, 0, 0} {
        seed = out.seeds ? out.seeds[r] : out.seed_all;
        position = out.positions ? out.positions[r] : out.position_all < 0 ? r : out.position_all;
        // Nothing is above 16 shares of the kept mass but with probability e^-16, which is then
        // found out.
        bound = (float)(16.0 / fmax(mass, 1e-30));
        const double factor = LOG2_E / temperature;
        power.set(factor, -factor * (double)value_of_key(top));
    }

    __device__ __forceinline__ void offer(u32 key, u32 index) {
        const double d = temperature > 0.0 ? scaled(key, top_key, temperature) : 0.0;
        best.offer(ordered(score_of(d, word_of(seed, position, index))), index, key);
    }

    // Tests the four from `from` on, the first at `index` of the row. -ln u >= 1 - u; a hundredth
    // covers float32.
    __device__ __forceinline__ void test(const element* from, u32 index, i64 size) {
        const uint4 highs = noise(seed, position, index >> 2, 0);
        const u32 words[4] = {highs.x, highs.y, highs.z, highs.w};
        u32 chosen = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float value = index + j < size ? value_of(from[j]) : value_of(nothing());
            if (__fmaf_rn(-value, scale, origin) < below &&
                (float)(~words[j] >> 8) * 0x1p-24f <= bound * power(value) * 1.01f)
                chosen |= 1u << j;
        }
        for (; chosen; chosen &= chosen - 1) {
            const int j = __ffs(chosen) - 1;
            offer(key_of(value_of(from[j])), index + j);
        }
    }

    // Whether a score is above all that were not tested.
    __device__ __forceinline__ bool certain(u64 score) const {
        return score > ordered(1e-6 - log_exact((double)bound));
    }
};

#define QUEUE 64  // groups of a warp that wait: up to 31 and 32 that come

// What the kernels behind, and the results, need of a row. By one thread.
__device__ __forceinline__ void begin_row(Row& row, const Mass& mass, double p,
                                          double temperature) {
    row.p = p < 1.0 ? p : 1.0;
    row.temperature = temperature;
    row.k = 0;
    row.top_key = mass.top_key;
    row.nan = mass.nan;
    row.single = 0;
    row.kept = NO_LIST;
    row.mode = BY_PIVOT;
}

// A row's boundary, into shared.row, by one block; as a place, of which those listed that are kept
// are not below it. `best` is that of KEEP_ONE.
__device__ __forceinline__ u64 finish_row(const Mass& mass, const List& open, double p,
                                          double temperature, u64 best, u32 turned,
                                          Shared& shared) {
    Row& row = shared.row;
    u64 cut = 0, above = 0;
    Found found = {0, 0, 0};
    const Terms term(mass.top_key, temperature, open.n ? open.n : 1);
    if (mass.how == BY_BIN) {
        found = resolve_open(open, term, mass.base, p * mass.total, shared);
        cut = found.place;
        for (u32 i = threadIdx.x; i < open.n; i += THREADS) above += open[i] >> 32 > cut >> 32;
        above = block_sum(above, shared.scratch);
    }
    if (threadIdx.x == 0) {
        begin_row(row, mass, p, temperature);
        row.first = 0;
        row.final = 0xFFFFFFFFll;
        if (mass.how == BY_BIN) {
            row.cut_key = (u32)(cut >> 32);
            if (open.flip) row.final = (u32)~(u32)cut;
            else row.first = (u32)cut;
            row.count = mass.base_count + (i64)found.count;
            row.above = mass.base_count + (i64)above;
            row.log_mass = log_exact(term.value(found.sum) + mass.base);
        } else if (mass.how == KEEP_ALL) {
            row.cut_key = NEGATIVE_INFINITY + 1;
            row.count = row.above = mass.present;
            row.log_mass = mass.log_total;
        } else if (mass.how == KEEP_ONE) {
            row.cut_key = mass.top_key;
            row.first = row.final = (u32)(best >> 32) ^ turned;
            row.count = 1;
            row.above = 0;
            row.log_mass = 0.0;
        } else {
            row.cut_key = NEGATIVE_INFINITY;
            row.first = 1;
            row.final = 0;
            row.count = row.above = 0;
            row.log_mass = __longlong_as_double((i64)0xFFF0000000000000ull);
        }
    }
    __syncthreads();
    return cut;
}
