// Structure checks that are cheap on the device: each thread looks at its own place, and the first
// place that is wrong comes back. formats/invariants.py has them all, on the CPU.
//
// Memory: bitmaps and directories are read once in order, labels once; a tail is a chain of loads.
#include "trie.cuh"

__device__ __forceinline__ void report(u64* first_wrong, u64 place) {
    atomicMin(first_wrong, place);
}

// A rank directory against its bitmap of `bits` bits with `ones` ones.
template <class X>
__device__ void check_directory(
    const u64* words, const X* directory, u64 bits, u64 ones, u64* first_wrong) {
    u64 entries = bits / BLOCK_BITS + 1;
    for (u64 b = blockIdx.x * u64(blockDim.x) + threadIdx.x; b < entries;
         b += u64(gridDim.x) * blockDim.x) {
        u64 counted = 0;
        u64 stop = smaller((b + 1) * (BLOCK_BITS / 64), (bits + 63) / 64);
        for (u64 i = b * (BLOCK_BITS / 64); i < stop; i++) counted += __popcll(words[i]);
        u64 behind = b + 1 < entries ? u64(directory[b + 1]) : ones;
        bool right = behind - directory[b] == counted && (b > 0 || directory[0] == 0);
        if (!right) report(first_wrong, b);
    }
}

extern "C" __global__ void check_directory_32(
    const u64* words, const u32* directory, u64 bits, u64 ones, u64* first_wrong) {
    check_directory(words, directory, bits, ones, first_wrong);
}

extern "C" __global__ void check_directory_64(
    const u64* words, const u64* directory, u64 bits, u64 ones, u64* first_wrong) {
    check_directory(words, directory, bits, ones, first_wrong);
}

__device__ __forceinline__ u64 label_of(const Level& level, u64 node) {
    u64 value = packed(level.label_low, u32(level.label_low_bits), node);
    if (level.label_highs > 0 && bit((const u32*)level.label_flag, node)) {
        u64 index = rank(level.label_flag, level.label_flag_rank, node);
        index = smaller(index, level.label_highs - 1);
        value |= packed_wide(level.label_high, u32(level.label_high_bits), index)
                 << level.label_low_bits;
    }
    return value;
}

// Labels of a level but the first: in the alphabet, and rising from sibling to sibling.
extern "C" __global__ void check_labels(
    const __grid_constant__ Trie trie, u64 row, u64* first_wrong) {
    const Level& level = trie.levels[row];
    const u32* firsts = (const u32*)trie.levels[row - 1].louds;
    for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < level.nodes;
         i += u64(gridDim.x) * blockDim.x) {
        u64 label = label_of(level, i);
        bool right = label < trie.alphabet_size;
        if (i + 1 < level.nodes && !bit(firsts, i + 1)) right &= label < label_of(level, i + 1);
        if (!right) report(first_wrong, i);
    }
}

// Tails of a level: each ends within the length of the longest keyword.
extern "C" __global__ void check_tails(
    const __grid_constant__ Trie trie, u64 row, u64* first_wrong) {
    const Level& level = trie.levels[row];
    u64 leaves = level.nodes - level.inner;
    for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < leaves;
         i += u64(gridDim.x) * blockDim.x) {
        if (!has_tail(level, u32(i))) continue;
        u64 value;
        bool in_store = find_tail(trie, level, u32(i), value);
        Tail tail = tail_at(trie, in_store, value);
        u64 length = row + 2;
        while (!tail.ends && length <= trie.max_length) {
            tail = tail_in_store(trie, tail.next);
            length++;
        }
        if (tail.label == NONE || !tail.ends || length > trie.max_length) report(first_wrong, i);
    }
}
