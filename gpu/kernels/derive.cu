// What a level has on the device beside its sections, made once at loading; see trie.cuh.
//
// Memory: reads each bitmap of the level once or twice and what stands for tails once, writes 2.5
// bits a node, 64 bits an inner node, and `tail_start_bits` a leaf; of the store 16 bits for each 64
// flags.
#include "trie.cuh"

// Kinds of KIND_NODES nodes a thread, and the inner nodes before them, from sections alone.
extern "C" __global__ void derive_kinds(const Level* levels, u64 row) {
    const Level& level = levels[row];
    u64 blocks = (level.nodes + KIND_NODES - 1) / KIND_NODES;
    for (u64 block = blockIdx.x * u64(blockDim.x) + threadIdx.x; block < blocks;
         block += u64(gridDim.x) * blockDim.x) {
        u64 first = block * KIND_NODES;
        u32 before = inners_before(level, u32(first));
        level.kind_ranks[block] = before;
        for (u32 word = 0; word < KIND_NODES / 16; word++) {
            u32 kinds = 0;
            for (u32 i = 0; i < 16; i++) {
                u64 node = first + word * 16 + i;
                if (node >= level.nodes) break;
                u32 kind;
                if (is_inner(level, u32(node))) {
                    u64 number = smaller(u64(before), level.inner - 1);
                    kind = bit((const u32*)level.terminal, number) ? TERMINAL : INNER;
                    before++;
                } else {
                    u32 leaf = u32(node) - smaller(before, u32(node));
                    kind = has_tail(level, leaf) ? LEAF_WITH_TAIL : LEAF;
                }
                kinds |= kind << i * 2;
            }
            level.kinds[block * (KIND_NODES / 16) + word] = kinds;
        }
    }
}

// First children of inner nodes, and the high parts before them, a word of the LOUDS bitmap a
// thread; behind the last, the ends.
extern "C" __global__ void derive_firsts(const Level* levels, u64 row) {
    const Level& level = levels[row];
    if (level.inner == 0) return;
    const Level& below = levels[row + 1];
    u64 words = (below.nodes + 63) / 64;
    u64 thread = blockIdx.x * u64(blockDim.x) + threadIdx.x;
    if (thread == 0) {
        level.firsts[level.inner] = make_uint2(u32(below.nodes), u32(below.label_highs));
    }
    for (u64 word = thread; word < words; word += u64(gridDim.x) * blockDim.x) {
        u64 number = rank(level.louds, level.louds_rank, word * 64);
        for (u64 left = __ldg(level.louds + word); left != 0; left &= left - 1) {
            if (number >= level.inner) break;
            u64 child = word * 64 + __ffsll(left) - 1;
            u32 highs = 0;
            if (below.label_highs > 0 && child < below.nodes) {
                highs = rank(below.label_flag, below.label_flag_rank, child);
            }
            level.firsts[number++] = make_uint2(u32(child), highs);
        }
    }
}

// Put an element of a packed array, of which it is all zero before.
__device__ __forceinline__ void put_packed(u32* words, u32 width, u64 i, u64 value) {
    u32* at = words + (i * width >> 5);
    u32 shift = u32(i * width) & 31;
    u64 rest = value >> (32 - shift);
    atomicOr(at, u32(value << shift));
    if (shift + width > 32) atomicOr(at + 1, u32(rest));
    if (shift + width > 64) atomicOr(at + 2, u32(rest >> 32));
}

// Where the tails of leaves begin: in the store, or behind it a label; behind these, nowhere.
extern "C" __global__ void derive_tail_starts(const __grid_constant__ Trie trie, u64 row) {
    const Level& level = trie.levels[row];
    u64 leaves = level.nodes - level.inner;
    for (u64 leaf = blockIdx.x * u64(blockDim.x) + threadIdx.x; leaf < leaves;
         leaf += u64(gridDim.x) * blockDim.x) {
        u64 value = trie.alphabet_size;
        bool in_store = has_tail(level, u32(leaf)) && find_tail(trie, level, u32(leaf), value);
        if (in_store) {
            value = smaller(value, trie.store_tokens - 1);
        } else {
            value = trie.store_tokens + smaller(value, trie.alphabet_size);
        }
        put_packed(level.tail_starts, u32(trie.tail_start_bits), leaf, value);
    }
}

// The fine directory of a bitmap: of each word, the ones before it in its block.
extern "C" __global__ void derive_fine(const u64* words, u64 bits, u16* fine) {
    u64 entries = bits / 64 + 1;
    for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < entries;
         i += u64(gridDim.x) * blockDim.x) {
        u32 ones = 0;
        for (u64 j = i / 8 * 8; j < i; j++) ones += __popcll(words[j]);
        fine[i] = u16(ones);
    }
}

// The alphabet as a hash from token to rank, at most half full. Of a token that a wrong payload
// has twice, the order of ranks that are found is not defined.
extern "C" __global__ void derive_rank_hash(
    const u32* alphabet, u64 count, u64* hash, u64 shift) {
    u64 mask = (1ull << (64 - shift)) - 1;
    for (u64 r = blockIdx.x * u64(blockDim.x) + threadIdx.x; r < count;
         r += u64(gridDim.x) * blockDim.x) {
        u64 token = alphabet[r];
        u64 slot = (token * HASH_MULTIPLIER) >> shift;
        while (atomicCAS(hash + slot, EMPTY_SLOT, token << 32 | r) != EMPTY_SLOT) {
            slot = (slot + 1) & mask;
        }
    }
}
