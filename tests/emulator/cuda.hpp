// CUDA's device side on a CPU, for the kernels of gpu/kernels: each thread of a block is a fiber,
// warps and blocks meet where the kernel says so, and shared memory belongs to a block.
//
// One host thread runs everything, in an order that a seed chooses: a block goes on until all of its
// threads wait for others. Blocks run one after another, but for those that may wait for each
// other: of a cooperative launch all, of others a cluster.
// A block's static shared variables are thread-local ones, of which a block has its own copy: what
// is running lies where the compiler put them, the others' lie aside.
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#define __device__
#define __global__ emulated_kernel
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __constant__
#define __shared__ static thread_local
#define __CUDA_ARCH__ 900

struct Dim {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
struct alignas(16) ulonglong4 {
    unsigned long long x, y, z, w;
};
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}

static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }

static Dim threadIdx, blockIdx, gridDim, blockDim;

namespace emulator {

[[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "emulator: %s (block %u, thread %u)\n", what, blockIdx.x, threadIdx.x);
    abort();
}

// What fibers wait for: that `generation` is another than when they came.
struct Meeting {
    unsigned generation = 0, arrived = 0;
};

struct Warp : Meeting {
    const char* what = nullptr;  // the collective that its lanes are in
    unsigned long long values[2][32];
};

struct Block : Meeting {
    unsigned live = 0, votes[2] = {0, 0};
    unsigned turns = 0;  // how often it was chosen to go on
    std::vector<Warp> warps;
    std::vector<char> aside;  // its static shared variables, while others run
    char* dynamic = nullptr;
};

// An asynchronous copy to shared memory that was begun.
struct Copy {
    void* to;
    const void* from;
    size_t size;
};

struct Fiber {
    void* stack_pointer = nullptr;
    const unsigned* waits_at = nullptr;
    unsigned waits_while = 0;
    const unsigned* polled_at = nullptr;
    unsigned polled = 0;
    unsigned cluster_generation = 0;
    std::vector<Copy> copies;
    unsigned block = 0, thread = 0;
    bool done = false;
};

static constexpr size_t STACK = 128 << 10;
static constexpr unsigned long long LAST_WORD = 0x5AFE5AFE5AFE5AFEull;  // of a stack
static char* stacks = nullptr;
static size_t stacks_bytes = 0;
static std::vector<Block> blocks;
static std::vector<Fiber> fibers;
static Meeting cluster;
static unsigned first_block, cluster_live, chance;
static Fiber* running;
static void* scheduler;
static void (*call)();
static char* statics;
static size_t statics_bytes, dynamic_bytes;

extern "C" void emulator_switch(void** save, void* load);
asm(R"(
.text
.hidden emulator_switch
.globl emulator_switch
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

static void choose(Fiber& fiber) {
    running = &fiber;
    threadIdx = {fiber.thread, 0, 0};
    blockIdx = {first_block + fiber.block, 0, 0};
}

static void pause() { emulator_switch(&running->stack_pointer, scheduler); }

// Lets others run until what is at `at` is not `value` any more.
static void wait(const unsigned* at, unsigned value) {
    running->waits_at = at;
    running->waits_while = value;
    pause();
}

// A load by who asks again and again: the second time it waits for another value.
static unsigned poll(const unsigned* at) {
    if (running->polled_at == at && running->polled == *at) wait(at, *at);
    running->polled_at = at;
    return running->polled = *at;
}

static Block& block() { return blocks[running->block]; }
static Warp& warp() { return block().warps[running->thread / 32]; }

// Lets everybody go on if all that there are have come.
static bool meet(Meeting& meeting, unsigned all) {
    if (meeting.arrived < all) return false;
    meeting.arrived = 0;
    meeting.generation++;
    return true;
}

static void body() {
    call();
    Block& own = block();
    if (!running->copies.empty()) fail("a thread ends before its copies are there");
    running->done = true;
    own.live--;
    if (own.live && own.arrived) meet(own, own.live);
    pause();
    fail("a thread that has ended goes on");
}

static int find_statics(dl_phdr_info* info, size_t, void*) {
    const uintptr_t here = (uintptr_t)&find_statics;
    bool ours = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD) ours |= here >= begin && here < begin + part.p_memsz;
        if (part.p_type == PT_TLS) bytes = part.p_memsz;
    }
    if (!ours) return 0;
    statics = (char*)info->dlpi_tls_data;
    statics_bytes = statics ? bytes : 0;
    return 1;
}

static thread_local volatile char anchor;  // so that there are some

// Lets the lanes of a warp go on until all of them wait; whether any did.
static bool run_warp(unsigned b, unsigned from, unsigned threads, size_t& alive) {
    bool moved = false;
    for (bool again = true; again;) {
        again = false;
        for (unsigned t = from; t < std::min(from + 32, threads); ++t) {
            Fiber& fiber = fibers[(size_t)b * threads + t];
            if (fiber.done) continue;
            if (fiber.waits_at && *fiber.waits_at == fiber.waits_while) continue;
            fiber.waits_at = nullptr;
            choose(fiber);
            emulator_switch(&scheduler, fiber.stack_pointer);
            again = moved = true;
            if (fiber.done) --alive;
        }
    }
    return moved;
}

// Runs all blocks from `first_block` on that may wait for each other, to their end.
static void run_together(unsigned count, unsigned threads, std::mt19937& random, bool shuffled) {
    const unsigned warps = (threads + 31) / 32;
    blocks.assign(count, Block());
    fibers.assign((size_t)count * threads, Fiber());
    if (stacks_bytes < fibers.size() * STACK) {
        if (stacks) munmap(stacks, stacks_bytes);
        stacks_bytes = fibers.size() * STACK;
        stacks = (char*)mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) fail("no memory for stacks");
    }
    for (unsigned b = 0; b < count; ++b) {
        Block& own = blocks[b];
        own.live = threads;
        own.warps.resize(warps);
        own.aside.assign(statics_bytes, (char)0xCD);
        own.dynamic = (char*)aligned_alloc(1024, (dynamic_bytes + 2047) / 1024 * 1024);
        memset(own.dynamic, 0xCD, dynamic_bytes);
        for (unsigned t = 0; t < threads; ++t) {
            Fiber& fiber = fibers[(size_t)b * threads + t];
            fiber.block = b, fiber.thread = t;
            char* stack = stacks + ((size_t)b * threads + t) * STACK;
            *(unsigned long long*)stack = LAST_WORD;
            void** top = (void**)(stack + STACK - 64);
            *--top = nullptr;
            *--top = (void*)body;
            for (int i = 0; i < 6; ++i) *--top = nullptr;
            fiber.stack_pointer = top;
        }
    }
    cluster = Meeting();
    cluster_live = count * threads;
    std::vector<unsigned> turns(count), order(warps);
    for (unsigned b = 0; b < count; ++b) turns[b] = b;
    for (unsigned w = 0; w < warps; ++w) order[w] = w;
    for (size_t alive = fibers.size(); alive;) {
        if (shuffled) std::shuffle(turns.begin(), turns.end(), random);
        bool moved = false;
        for (const unsigned b : turns) {
            if (!blocks[b].live) continue;
            blocks[b].turns++;
            memcpy(statics, blocks[b].aside.data(), statics_bytes);
            for (bool again = true; again;) {
                again = false;
                if (shuffled) std::shuffle(order.begin(), order.end(), random);
                for (const unsigned w : order) again |= run_warp(b, w * 32, threads, alive);
                moved |= again;
            }
            memcpy(blocks[b].aside.data(), statics, statics_bytes);
        }
        if (!moved) fail("all threads wait: a barrier that not all come to");
    }
    for (size_t i = 0; i < fibers.size(); ++i)
        if (*(unsigned long long*)(stacks + i * STACK) != LAST_WORD) fail("a stack is too small");
    for (Block& own : blocks) free(own.dynamic);
}

static void run(unsigned grid, unsigned threads, size_t shared, unsigned together, unsigned seed,
                void (*kernel)()) {
    anchor = 0;
    dl_iterate_phdr(find_statics, nullptr);
    call = kernel;
    gridDim = {grid, 1, 1};
    blockDim = {threads, 1, 1};
    dynamic_bytes = shared;
    std::mt19937 random(seed);
    chance = random();
    for (first_block = 0; first_block < grid; first_block += together)
        run_together(std::min(together, grid - first_block), threads, random, seed != 0);
}

// The words of the arguments, each of its type.
template <class... Types, size_t... Places>
static void apply(void (*kernel)(Types...), void** arguments, std::index_sequence<Places...>) {
    kernel(*(Types*)arguments[Places]...);
}
template <class... Types>
static unsigned sizes_of(void (*)(Types...), unsigned* sizes) {
    const unsigned all[] = {(unsigned)sizeof(Types)...};
    std::copy(std::begin(all), std::end(all), sizes);
    return sizeof...(Types);
}
template <class... Types>
static void apply(void (*kernel)(Types...), void** arguments) {
    apply(kernel, arguments, std::index_sequence_for<Types...>());
}

static char* dynamic_shared() { return block().dynamic; }

// Where another block of the cluster has what this one has at `here`: to be used at once.
static void* of_peer(const void* here, unsigned rank) {
    Block& own = block();
    const char* at = (const char*)here;
    if (rank >= blocks.size()) fail("a block that the cluster has not");
    if (!blocks[rank].live) fail("a block that has left");
    if (at >= own.dynamic && at < own.dynamic + dynamic_bytes)
        return blocks[rank].dynamic + (at - own.dynamic);
    if (at < statics || at >= statics + statics_bytes) fail("mapa of what is not shared");
    return rank == running->block ? (char*)here : blocks[rank].aside.data() + (at - statics);
}

static unsigned long long* exchange(const char* what, unsigned long long value) {
    Warp& own = warp();
    const unsigned generation = own.generation, lanes = std::min(32u, blockDim.x);
    if (own.arrived == 0) own.what = what;
    if (own.what != what) fail("lanes of a warp in different collectives");
    own.values[generation & 1][running->thread & 31] = value;
    own.arrived++;
    if (!meet(own, lanes)) wait(&own.generation, generation);
    return own.values[generation & 1];
}

template <class X>
static unsigned long long bits(X x) {
    unsigned long long all = 0;
    memcpy(&all, &x, sizeof x);
    return all;
}
template <class X>
static X from_bits(unsigned long long all) {
    X x;
    memcpy(&x, &all, sizeof x);
    return x;
}

static unsigned vote(unsigned adds) {
    Block& own = block();
    const unsigned generation = own.generation;
    unsigned& votes = own.votes[generation & 1];
    if (own.arrived == 0) votes = 0;
    votes += adds;
    own.arrived++;
    if (!meet(own, own.live)) wait(&own.generation, generation);
    return votes;
}

// A barrier of the cluster in two halves, of which a fiber has at most one open.
static void cluster_arrive() {
    running->cluster_generation = cluster.generation;
    cluster.arrived++;
    meet(cluster, cluster_live);
    // By chance others go on first, or this block to its end.
    const unsigned turns = block().turns;
    if ((turns * 2654435761u ^ running->block * 40503u ^ chance) >> 8 & 1)
        wait(&block().turns, turns);
}
static void cluster_wait() {
    if (cluster.generation == running->cluster_generation)
        wait(&cluster.generation, running->cluster_generation);
}

static void* converted;  // the address that was turned into one of shared memory last

// Rounded down: the sum rounded to nearest, and one less where it is above the exact one.
static float add_down(float a, float b) {
    volatile float sum = a + b;
    if (!std::isfinite(sum)) return sum;
    volatile float other = sum - a;
    volatile float rest = (a - (sum - other)) + (b - other);
    return rest < 0 ? std::nextafterf(sum, -INFINITY) : (float)sum;
}

// 2^x with an error as large as the hardware's may be, either way.
static float rough_exp2(float x) {
    const double exact = std::exp2((double)x);
    const unsigned turned = (unsigned)bits(x) * 2654435761u;
    const float power = (float)(exact * (1.0 + ((int)turned >> 8) * 0x1p-23 * 0x1p-22));
    return power < 0x1p-126f ? 0.0f : power;
}

}  // namespace emulator

// Barriers and collectives.
static inline void __syncthreads() { emulator::vote(0); }
static inline int __syncthreads_or(int is) { return emulator::vote(is != 0) != 0; }
static inline int __syncthreads_count(int is) { return (int)emulator::vote(is != 0); }
static inline void __syncwarp(unsigned = ~0u) { emulator::exchange("syncwarp", 0); }
static inline void __threadfence() {}
static inline unsigned __ballot_sync(unsigned, int is) {
    const auto* values = emulator::exchange("ballot", is != 0);
    unsigned all = 0;
    for (int i = 0; i < 32; ++i) all |= (unsigned)(values[i] & 1) << i;
    return all;
}
static inline int __all_sync(unsigned mask, int is) { return __ballot_sync(mask, is) == ~0u; }
static inline int __any_sync(unsigned mask, int is) { return __ballot_sync(mask, is) != 0; }
template <class X>
static inline X __shfl_sync(unsigned, X x, int lane) {
    return emulator::from_bits<X>(emulator::exchange("shfl", emulator::bits(x))[lane & 31]);
}
template <class X>
static inline X __shfl_up_sync(unsigned, X x, unsigned distance) {
    const auto* values = emulator::exchange("shfl_up", emulator::bits(x));
    const unsigned lane = threadIdx.x & 31;
    return emulator::from_bits<X>(values[lane >= distance ? lane - distance : lane]);
}
template <class X>
static inline X __shfl_xor_sync(unsigned, X x, unsigned distance) {
    const auto* values = emulator::exchange("shfl_xor", emulator::bits(x));
    return emulator::from_bits<X>(values[(threadIdx.x & 31) ^ distance]);
}
#define REDUCE(name, begin, step)                                                              \
    static inline unsigned __reduce_##name##_sync(unsigned, unsigned x) {                      \
        const auto* values = emulator::exchange("reduce_" #name, x);                           \
        unsigned all = begin;                                                                  \
        for (int i = 0; i < 32; ++i) {                                                         \
            const unsigned each = (unsigned)values[i];                                         \
            all = step;                                                                        \
        }                                                                                      \
        return all;                                                                            \
    }
REDUCE(max, 0u, std::max(all, each))
REDUCE(min, ~0u, std::min(all, each))
REDUCE(add, 0u, all + each)
REDUCE(or, 0u, all | each)
#undef REDUCE

// Loads, and atomics: one fiber runs at a time.
template <class X>
static inline X __ldg(const X* at) { return *at; }
template <class X>
static inline X __ldcg(const X* at) { return *at; }
template <class X, class Y>
static inline X atomicAdd(X* at, Y value) { X old = *at; *at = old + (X)value; return old; }
template <class X, class Y>
static inline X atomicMin(X* at, Y value) { X old = *at; *at = std::min(old, (X)value); return old; }
template <class X, class Y>
static inline X atomicMax(X* at, Y value) { X old = *at; *at = std::max(old, (X)value); return old; }
template <class X, class Y>
static inline X atomicOr(X* at, Y value) { X old = *at; *at = old | (X)value; return old; }
template <class X, class Y, class Z>
static inline X atomicCAS(X* at, Y compare, Z value) {
    X old = *at;
    if (old == (X)compare) *at = (X)value;
    return old;
}

// Integers and bits.
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(unsigned x) { return __builtin_ffs(x); }
static inline int __ffsll(unsigned long long x) { return __builtin_ffsll(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static inline unsigned __float_as_uint(float x) { return (unsigned)emulator::bits(x); }
static inline int __float_as_int(float x) { return (int)emulator::bits(x); }
static inline float __uint_as_float(unsigned x) { return emulator::from_bits<float>(x); }
static inline float __int_as_float(int x) { return emulator::from_bits<float>((unsigned)x); }
static inline long long __double_as_longlong(double x) { return (long long)emulator::bits(x); }
static inline double __longlong_as_double(long long x) {
    return emulator::from_bits<double>((unsigned long long)x);
}
static inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

template <class X>
static inline size_t __cvta_generic_to_shared(X* at) { emulator::converted = at; return 0; }

// Arithmetic; the compiler contracts nothing.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __fadd_rd(float a, float b) { return emulator::add_down(a, b); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline unsigned long long __double2ull_rn(double x) {
    return (unsigned long long)std::nearbyint(x);
}
using std::exp2;
using std::log2;
using std::rint;
using std::fabs;
template <class X, class Y>
static inline auto min(X a, Y b) -> decltype(a + b) { return b < a ? b : a; }
template <class X, class Y>
static inline auto max(X a, Y b) -> decltype(a + b) { return a < b ? b : a; }

// The instructions that kernels write themselves, named by their text.
#define PTX static inline void
PTX ptx_ex2_approx_ftz_f32_0_1(float& power, float x) { power = emulator::rough_exp2(x); }
PTX ptx_cvt_f32_f16_0_1(float& value, unsigned short half) {
    value = (float)emulator::from_bits<_Float16>(half);
}
PTX ptx_cvt_rn_f16_f32_0_1(unsigned short& half, float value) {
    half = (unsigned short)emulator::bits((_Float16)value);
}
PTX ptx_mov_u32_0_tid_x(unsigned& thread) { thread = threadIdx.x; }
PTX ptx_mov_u32_0_cluster_ctarank(unsigned& rank) { rank = emulator::running->block; }
PTX ptx_barrier_cluster_arrive_release_aligned() { emulator::cluster_arrive(); }
PTX ptx_barrier_cluster_wait_acquire_aligned() { emulator::cluster_wait(); }
template <class X>
PTX ptx_mapa_u64_0_1_2(X& there, X here, unsigned rank) {
    there = (X)emulator::of_peer((const void*)here, rank);
}
PTX ptx_red_release_gpu_global_add_u32_0_1(unsigned* counter) { ++*counter; }
PTX ptx_ld_acquire_gpu_global_u32_0_1(unsigned& value, const unsigned* counter) {
    value = emulator::poll(counter);
}
PTX ptx_cp_async_ca_shared_global_0_1_2(unsigned, const void* from, size_t size) {
    emulator::running->copies.push_back({emulator::converted, from, size});
}
PTX ptx_cp_async_wait_all() {
    for (const auto& copy : emulator::running->copies) memcpy(copy.to, copy.from, copy.size);
    emulator::running->copies.clear();
}
#undef PTX
