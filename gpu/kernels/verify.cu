// Bitmaps, directories, labels and tails: each thread looks at its own place, and the first place
// that is wrong comes back. formats/invariants.py has these checks, and others, on the CPU.
//
// Memory: bitmaps and directories are read once in order, labels once; a tail is a chain of loads.
#include "trie.cuh"

__device__ __forceinline__ void report(u64* first_wrong, u64 place) {
    atomicMin(first_wrong, place);
}

// What can be wrong with directories: a rank or a select entry, or what fills the last word of
// either. With a bitmap: bits behind the end, the first or the last bit.
enum { RANK, SELECT, RANK_FILLER, SELECT_FILLER };
enum { BEHIND, FIRST, LAST };

// What holds of some bitmaps alone.
static constexpr u32 BEGINS_WITH_ONE = 1, ENDS_WITH_ONE = 2, FILLED = 4;

// A bitmap of `size` bits with `stated` ones, and its directories, which may be null. `found` gets,
// of the bitmap and of the directories, the first place that is wrong, with what is wrong there;
// `ones` how many there are.
template <class X>
__device__ void check_bitmap(const u64* words, const X* ranks, const u32* selects, u64 size,
                             u64 stated, u32 rules, u64* found, u64* ones) {
    auto wrong = [&](u64 place, u64 what) { report(found, place << 2 | what); };
    auto wrong_entry = [&](u64 place, u64 what) { report(found + 1, place << 2 | what); };
    const u64 blocks = size / BLOCK_BITS + 1, all_words = (size + 63) / 64;
    const u64 entries = (stated + SELECT_ONES - 1) / SELECT_ONES;  // of `selects`, but for the last
    const u64 first = blockIdx.x * u64(blockDim.x) + threadIdx.x;
    u32 mine = 0;
    for (u64 b = first; b < blocks; b += u64(gridDim.x) * blockDim.x) {
        u32 counted = 0;
        const u64 stop = smaller((b + 1) * (BLOCK_BITS / 64), all_words);
        for (u64 i = b * (BLOCK_BITS / 64); i < stop; i++) counted += __popcll(words[i]);
        mine += counted;
        if (!ranks) continue;
        const u64 before = ranks[b], behind = before + counted;
        if (before > size || (b == 0 && before != 0)) wrong_entry(b, RANK);
        else if (b + 1 < blocks && ranks[b + 1] != behind) wrong_entry(b + 1, RANK);
        else if (selects)
            for (u64 e = (before + SELECT_ONES - 1) / SELECT_ONES; e * SELECT_ONES < behind; e++)
                if (e < entries && selects[e] != b) wrong_entry(e, SELECT);
    }
    mine = __reduce_add_sync(FULL, mine);
    if (mine > 0 && threadIdx.x % 32 == 0) atomicAdd(ones, u64(mine));
    if (first > 0) return;
    if (size % 64 && words[all_words - 1] >> (size % 64)) wrong(size, BEHIND);
    if (rules & BEGINS_WITH_ONE && !(words[0] & 1)) wrong(0, FIRST);
    if (rules & ENDS_WITH_ONE && !(words[all_words - 1] >> ((size - 1) % 64) & 1))
        wrong(size - 1, LAST);
    if (ranks && rules & FILLED && blocks % 2 && ranks[blocks]) wrong_entry(blocks, RANK_FILLER);
    if (!selects || stated == 0) return;
    if (selects[entries] != (size - 1) / BLOCK_BITS) wrong_entry(entries, SELECT);
    if (rules & FILLED && entries % 2 == 0 && selects[entries + 1])
        wrong_entry(entries + 1, SELECT_FILLER);
}

extern "C" __global__ void check_bitmap_32(const u64* words, const u32* ranks, const u32* selects,
                                           u64 size, u64 stated, u32 rules, u64* found,
                                           u64* ones) {
    check_bitmap(words, ranks, selects, size, stated, rules, found, ones);
}

extern "C" __global__ void check_bitmap_64(const u64* words, const u64* ranks, const u32* selects,
                                           u64 size, u64 stated, u32 rules, u64* found,
                                           u64* ones) {
    check_bitmap(words, ranks, selects, size, stated, rules, found, ones);
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
