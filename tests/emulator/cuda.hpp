// CUDA on a CPU, for the kernels of gpu/kernels: its words, types, collectives, atomics and
// arithmetic. fibers.hpp has the threads.
#include "fibers.hpp"

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

namespace emulator {

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
static inline X atomicMin(X* at, Y value) {
    X old = *at;
    *at = std::min(old, (X)value);
    return old;
}
template <class X, class Y>
static inline X atomicMax(X* at, Y value) {
    X old = *at;
    *at = std::max(old, (X)value);
    return old;
}
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
static inline void* __cvta_shared_to_generic(size_t) { return emulator::converted; }

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
PTX ptx_(unsigned long long&) {}  // no instruction: the compiler forgets where a value is from
PTX ptx_mov_u32_0_tid_x(unsigned& thread) { thread = threadIdx.x; }
PTX ptx_mov_u32_0_cluster_ctarank(unsigned& rank) { rank = emulator::running->block; }
PTX ptx_barrier_cluster_arrive_release_aligned() { emulator::cluster_arrive(); }
PTX ptx_barrier_cluster_wait_acquire_aligned() { emulator::cluster_wait(); }
template <class X>
PTX ptx_mapa_u64_0_1_2(X& there, X here, unsigned rank) {
    there = (X)emulator::of_peer((const void*)here, rank);
}
PTX ptx_red_relaxed_gpu_global_add_u32_0_1(unsigned* address, unsigned value) { *address += value; }
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
