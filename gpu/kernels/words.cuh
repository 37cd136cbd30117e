// Integers, and loads of them: bits, packed arrays, rank and select of docs/format.md.
//
// Memory: everything here is read through the read-only path, one thread at a time. A packed
// element costs two 32-bit loads that mostly share a sector, a rank one directory entry and one
// 64-byte block (independent loads), a select two dependent lookups more. Loads may reach up to
// 64 bytes behind a section; the payload stands in one allocation with room behind it.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

static constexpr u32 FULL = 0xFFFFFFFFu;
static constexpr u32 NONE = 0xFFFFFFFFu;
static constexpr u32 BLOCK_BITS = 512;
static constexpr u32 SELECT_ONES = 512;

#ifdef TOUCHED_BITS
// To count what a search reads: each load marks its sector of 32 bytes, by its address modulo
// 2^TOUCHED_BITS sectors.
extern "C" {
__device__ u32* touched;
}

template <class X>
__device__ __forceinline__ X load_and_mark(const X* address) {
    u32 sector = u32(u64(address) >> 5) & ((1u << TOUCHED_BITS) - 1);
    atomicOr(touched + (sector >> 5), 1u << (sector & 31));
    return __ldg(address);
}
#define __ldg load_and_mark
#endif

template <class X>
__device__ __forceinline__ X smaller(X a, X b) {
    return a < b ? a : b;
}

template <class X>
__device__ __forceinline__ X larger(X a, X b) {
    return a > b ? a : b;
}

__device__ __forceinline__ bool bit(const u32* words, u64 i) {
    return __ldg(words + (i >> 5)) >> (u32(i) & 31) & 1;
}

// Element of `width` bits (1 to 32) that begins at bit `first`.
__device__ __forceinline__ u32 packed_at(const u32* words, u64 first, u32 width) {
    const u32* at = words + (first >> 5);
    u32 value = __funnelshift_r(__ldg(at), __ldg(at + 1), u32(first) & 31);
    return value & (FULL >> (32 - width));
}

__device__ __forceinline__ u32 packed(const u32* words, u32 width, u64 i) {
    return packed_at(words, i * width, width);
}

// The same for a width of 1 to 64.
__device__ __forceinline__ u64 packed_wide(const u32* words, u32 width, u64 i) {
    u64 first = i * width;
    if (width <= 32) return packed_at(words, first, width);
    return packed_at(words, first, 32) | u64(packed_at(words, first + 32, width - 32)) << 32;
}

// Ones before bit `i`. X is the type of the directory's entries. Whole words are counted up to that
// of the bit, and of it what is behind the bit is taken off again: no masks, all loads at once.
template <class X>
__device__ __forceinline__ X rank(const u64* words, const X* directory, u64 i) {
    X ones = __ldg(directory + i / BLOCK_BITS);
    u32 within = u32(i) & (BLOCK_BITS - 1);
    const u64* block = words + i / BLOCK_BITS * (BLOCK_BITS / 64);
    u32 rest = within & 63;
    u64 last = rest > 0 ? __ldg(block + within / 64) : 0;
#pragma unroll
    for (u32 j = 0; j < BLOCK_BITS / 64; j++) {
        u64 word = j * 64 < within ? __ldg(block + j) : 0;
        ones += __popcll(word);
    }
    return ones - __popcll(last >> rest);
}

// Position of the k-th one (from 0) of a word that has more than k. Halvings, no branch.
__device__ __forceinline__ u32 select_in_word(u64 word, u32 k) {
    u32 position = 0;
#pragma unroll
    for (u32 width = 32; width > 0; width >>= 1) {
        u32 ones = __popcll(word & ((1ull << width) - 1));
        if (k >= ones) {
            k -= ones;
            word >>= width;
            position += width;
        }
    }
    return position;
}

// Position of the k-th one of `n` > 0 bits, 0 to n - 1 whatever the payload says.
template <class X>
__device__ __forceinline__ u64 select(
    const u64* words, const X* directory, const u32* entries, u64 n, u64 k) {
    u64 last = (n - 1) / BLOCK_BITS;
    u64 low = smaller(u64(__ldg(entries + k / SELECT_ONES)), last);
    u64 high = smaller(u64(__ldg(entries + k / SELECT_ONES + 1)), last);
    while (low < high) {
        u64 middle = (low + high + 1) >> 1;
        if (u64(__ldg(directory + middle)) <= k) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    u64 before = __ldg(directory + low);
    u32 rest = u32(k - smaller(before, k));
    const u64* block = words + low * (BLOCK_BITS / 64);
    u32 index = 0;
    u64 word = __ldg(block);
    for (u32 ones = __popcll(word); ones <= rest && index < BLOCK_BITS / 64 - 1;) {
        rest -= ones;
        word = __ldg(block + ++index);
        ones = __popcll(word);
    }
    return smaller(low * BLOCK_BITS + index * 64 + select_in_word(word, rest), n - 1);
}
