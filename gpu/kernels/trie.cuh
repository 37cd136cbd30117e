// The trie on the device: from a node to its children, kind, key id and tail; docs/format.md.
//
// Memory: the artifact's sections as they are in the file, and arrays that are derived at loading
// because they pay (benchmarks/results has the figures). `kinds` and
// `kind_ranks`, 2.5 bits a node, save a hit two dependent ranks, and are one where a beam took two
// lookups. `firsts`, 64 bits an inner node, saves a beam a select of four dependent loads and two
// ranks. `tail_starts`, some 25 bits a leaf, saves one two ranks and a coded array, four dependent
// loads and more. The fine directory of the store, a quarter of a bit a label, makes a rank there
// two words and a tenth of the instructions, of which a lone warp feels every one.
// Everything that a payload gives is clamped before it is an index.
#pragma once
#include "words.cuh"

#ifndef DERIVED
#define DERIVED 1
#endif

// Of a node: it can be extended (it is inner, or a leaf with a tail); a keyword ends at it.
static constexpr u32 EXTENDS = 1;
static constexpr u32 ENDS = 2;

// The same in two bits, with what tells inner nodes: leaf, leaf with a tail, inner, terminal.
enum : u32 { LEAF, LEAF_WITH_TAIL, INNER, TERMINAL };

static constexpr u64 HIGH_BITS = 0xAAAAAAAAAAAAAAAAull;  // of kinds: those of inner nodes

static constexpr u32 KIND_NODES = 64;  // nodes to an entry of `kind_ranks`: 16 bytes of `kinds`

__device__ __forceinline__ u32 flags_of_kind(u32 kind) {
    constexpr u32 ALL = ENDS << 2 * LEAF | EXTENDS << 2 * LEAF_WITH_TAIL | EXTENDS << 2 * INNER |
                        (EXTENDS | ENDS) << 2 * TERMINAL;
    return ALL >> 2 * kind & 3;
}

// One level: formats.schema.PARAMETERS in its order, addresses in place of offsets, then what is
// derived. A test compares the names.
struct Level {
    u64 nodes, inner, terminals, tails, long_tails;
    u64 label_low_bits, label_high_bits, label_highs;
    u64 tail_token_low_bits, tail_token_high_bits, tail_token_highs;
    u64 tail_index_low_bits, tail_index_high_bits, tail_index_highs;
    u64 first_key, first_long_tail;
    const u32* label_low;
    const u64* label_flag;
    const u32* label_flag_rank;
    const u32* label_high;
    const u64* inner_bits;
    const u32* inner_rank;
    const u64* louds;
    const u32* louds_rank;
    const u32* louds_select;
    const u64* terminal;
    const u32* terminal_rank;
    const u64* tail;
    const u32* tail_rank;
    const u64* tail_long;
    const u32* tail_long_rank;
    const u32* tail_token_low;
    const u64* tail_token_flag;
    const u32* tail_token_flag_rank;
    const u32* tail_token_high;
    const u32* tail_index_low;
    const u64* tail_index_flag;
    const u32* tail_index_flag_rank;
    const u32* tail_index_high;
    uint2* firsts;    // of each inner node: its first child, and high parts before that one's
    u32* kinds;       // two bits a node
    u32* kind_ranks;   // inner nodes before each KIND_NODES nodes
    u32* tail_starts;  // of each leaf, Trie::tail_start_bits each; none where no leaf has a tail
};

// What belongs to no level. gpu/arguments.py fills it in this order.
struct Trie {
    const Level* levels;
    u64 depth;
    u64 keywords, alphabet_size, vocab_size, max_length;
    u64 implicit;
    u64 store_tokens, store_low_bits, store_high_bits, store_highs;
    u64 value_bits;
    i64 value_min;
    const u32* alphabet;
    const u64* root;
    const u32* root_rank;
    const u32* store_low;
    const u64* store_flag;
    const u64* store_flag_rank;
    const u32* store_high;
    const u64* store_end;
    const u64* store_end_rank;
    const u32* store_end_select;
    const u32* values;
    const u16* store_flag_fine;  // fine directory: ones before each word in its block
    u64 tail_start_bits;
    const u32* rank_table;  // by token; else a hash
    u64 rank_table_size;
    const u64* rank_hash;  // token in the high half, rank in the low; all ones where empty
    u64 rank_hash_shift;
};

static constexpr u64 EMPTY_SLOT = ~0ull;
static constexpr u64 HASH_MULTIPLIER = 0x9E3779B97F4A7C15ull;  // Fibonacci hashing

// Rank of a token, NONE where it is not in the alphabet. One random load; some where hashed.
__device__ __forceinline__ u32 rank_of_token(const Trie& trie, i64 token) {
    if (token < 0 || u64(token) >= trie.vocab_size) return NONE;
    if (trie.rank_table_size > 0) return __ldg(trie.rank_table + token);
    u64 mask = (1ull << (64 - trie.rank_hash_shift)) - 1;
    u64 slot = (u64(token) * HASH_MULTIPLIER) >> trie.rank_hash_shift;
    while (true) {
        u64 entry = __ldg(trie.rank_hash + slot);
        if (entry == EMPTY_SLOT) return NONE;
        if (entry >> 32 == u64(token)) return u32(entry);
        slot = (slot + 1) & mask;
    }
}

// Ones before bit `i`, with a fine directory where there is one.
template <class X>
__device__ __forceinline__ X rank_finely(
    const u64* words, const X* directory, const u16* fine, u64 i) {
    if (!DERIVED || !fine) return rank(words, directory, i);
    u32 rest = u32(i) & 63;
    u64 word = rest > 0 ? __ldg(words + i / 64) : 0;
    X ones = __ldg(directory + i / BLOCK_BITS) + __ldg(fine + i / 64);
    return ones + __popcll(word & ((1ull << rest) - 1));
}

// A coded array: where its sections stand, and how it is split. X: entries of the directory.
template <class X>
struct Coded {
    const u32* low;
    const u64* flag;
    const X* flag_rank;
    const u16* flag_fine;
    const u32* high;
    u32 low_bits, high_bits;
    u64 highs;

    // Element `i`: two dependent loads. The rank of its flag is looked up before it is known
    // whether it has one, since waiting costs more.
    __device__ __forceinline__ u64 operator[](u64 i) const {
        u64 value = packed(low, low_bits, i);
        if (highs > 0) {
            bool flagged = bit((const u32*)flag, i);
            u64 index = smaller(u64(rank_finely(flag, flag_rank, flag_fine, i)), highs - 1);
            if (flagged) value |= packed_wide(high, high_bits, index) << low_bits;
        }
        return value;
    }
};

__device__ __forceinline__ bool is_inner(const Level& level, u32 node) {
    return level.inner > 0 && bit((const u32*)level.inner_bits, node);
}

// Inner nodes before `node`: its number among them if it is one itself.
__device__ __forceinline__ u32 inners_before(const Level& level, u32 node) {
    u32 before = rank(level.inner_bits, level.inner_rank, u64(node));
    return smaller(before, smaller(node, u32(level.inner)));
}

__device__ __forceinline__ bool has_tail(const Level& level, u32 leaf) {
    return level.tails > 0 &&
           bit((const u32*)level.tail, smaller(u64(leaf), level.nodes - level.inner - 1));
}

// The kind of a node, read off the sections: two dependent ranks.
__device__ __forceinline__ u32 kind_from_sections(const Level& level, u32 node) {
    u32 before = inners_before(level, node);
    if (is_inner(level, node)) {
        u64 number = smaller(u64(before), level.inner - 1);
        return bit((const u32*)level.terminal, number) ? TERMINAL : INNER;
    }
    return has_tail(level, node - before) ? LEAF_WITH_TAIL : LEAF;
}

__device__ __forceinline__ u32 kind_of(const Level& level, u32 node) {
#if DERIVED
    return __ldg(level.kinds + node / 16) >> (node % 16 * 2) & 3;
#else
    return kind_from_sections(level, node);
#endif
}

// Whether a node is inner, and how many inner nodes are before it.
__device__ __forceinline__ bool find_inner(const Level& level, u32 node, u32& before) {
#if DERIVED
    u32 block = node / KIND_NODES;
    before = __ldg(level.kind_ranks + block);
    uint4 kinds = __ldg((const uint4*)level.kinds + block);
    u64 first = u64(kinds.y) << 32 | kinds.x, second = u64(kinds.w) << 32 | kinds.z;
    u32 shift = node % 32 * 2;
    bool in_second = node % KIND_NODES >= 32;
    u64 here = in_second ? second : first;
    if (in_second) before += __popcll(first & HIGH_BITS);
    before += __popcll(here & HIGH_BITS & ((1ull << shift) - 1));
    u32 kind = u32(here >> shift) & 3;
    before = smaller(before, smaller(node, u32(level.inner)));
    return kind >= INNER;
#else
    before = inners_before(level, node);
    return is_inner(level, node);
#endif
}

// The children of an inner node: nodes `start` up to `stop` of the level below. The labels of the
// first `lows` of them have no high part; those of the others begin at index `high` of the level's
// high parts.
struct Children {
    u32 start, stop, lows, high;
};

__device__ __forceinline__ Children clamped(
    const Level& below, u32 start, u32 stop, u32 highs_before, u32 highs_behind) {
    Children found;
    found.start = smaller(start, u32(below.nodes) - 1);
    found.stop = smaller(larger(stop, found.start), u32(below.nodes));
    u32 highs = smaller(larger(highs_behind, highs_before) - highs_before, u32(below.label_highs));
    highs = smaller(highs, found.stop - found.start);
    found.lows = found.stop - found.start - highs;
    found.high = smaller(highs_before, u32(below.label_highs) - highs);
    return found;
}

// Children of inner node number `inner`.
__device__ __forceinline__ Children children(const Level& level, const Level& below, u32 inner) {
    inner = smaller(inner, u32(level.inner) - 1);
#if DERIVED
    uint2 first = __ldg(level.firsts + inner);
    uint2 next = __ldg(level.firsts + inner + 1);
    return clamped(below, first.x, next.x, first.y, next.y);
#else
    u32 start =
        u32(select(level.louds, level.louds_rank, level.louds_select, below.nodes, inner));
    u32 stop = u32(below.nodes);
    if (inner + 1 < level.inner) {
        stop =
            u32(select(level.louds, level.louds_rank, level.louds_select, below.nodes, inner + 1));
    }
    u32 before = 0, behind = 0;
    if (below.label_highs > 0) {
        before = rank(below.label_flag, below.label_flag_rank, u64(start));
        behind = rank(below.label_flag, below.label_flag_rank, u64(stop));
    }
    return clamped(below, start, stop, before, behind);
#endif
}

// Siblings, those whose labels have a high part, or those whose labels have none: n from `base` on.
// High parts stand at `offset` from their nodes.
struct Siblings {
    u32 base, n, offset;
    bool high;

    __device__ __forceinline__ u32 label(const Level& level, u32 node) const {
        u32 low_bits = u32(level.label_low_bits);
        u32 value = packed(level.label_low, low_bits, node);
        if (high) {
            u32 index = offset + node;
            value |= packed(level.label_high, u32(level.label_high_bits), index) << low_bits;
        }
        return value;
    }
};

// Those that may have this label. `place` is the first of all siblings, their number, how many have
// labels without a high part, and where the high parts begin.
__device__ __forceinline__ Siblings siblings_with(const Level& level, uint4 place, u32 label) {
    bool high = label >> u32(level.label_low_bits) != 0;
    u32 offset = place.w - (place.x + place.z);
    if (high) return {place.x + place.z, place.y - place.z, offset, high};
    return {place.x, place.z, offset, high};
}

// The node with this label among siblings, NONE where there is none.
__device__ inline u32 find_child(const Level& level, uint4 place, u32 label) {
    Siblings left = siblings_with(level, place, label);
    while (left.n > 0) {
        u32 half = left.n >> 1;
        u32 middle = left.base + half;
        u32 value = left.label(level, middle);
        if (value == label) return middle;
        bool after = value < label;
        left.base = after ? middle + 1 : left.base;
        left.n = after ? left.n - half - 1 : half;
    }
    return NONE;
}

__device__ __forceinline__ u64 key_id(const Trie& trie, const Level& level, u32 node) {
    u32 before;
    find_inner(level, node, before);
    u64 result = level.first_key + node - before;
    if (level.inner > 0) {
        result += rank(level.terminal, level.terminal_rank, u64(before));
    }
    return smaller(result, trie.keywords - 1);
}

// A place in a tail: the label that extends it, whether the keyword ends with that, and the
// position in the store of the label behind it. A label of NONE is a dead end.
struct Tail {
    u32 label;
    bool ends;
    u64 next;
};

__device__ __forceinline__ Tail tail_in_store(const Trie& trie, u64 position) {
    position = smaller(position, trie.store_tokens - 1);
    Coded<u64> labels = {
        trie.store_low, trie.store_flag, trie.store_flag_rank, trie.store_flag_fine, trie.store_high,
        u32(trie.store_low_bits), u32(trie.store_high_bits), trie.store_highs};
    bool ends = bit((const u32*)trie.store_end, position);
    Tail tail;
    tail.label = u32(smaller(labels[position], trie.alphabet_size - 1));
    tail.ends = ends || position + 1 >= trie.store_tokens;
    tail.next = position + 1;
    return tail;
}

// Where the tail of leaf number `leaf` begins, if it has one, read off the sections: true with a
// position in the store, or false with its only label, NONE for a dead end. Four dependent loads
// where suffixes are indexed; tails of one token and indices of longer ones are read by the same
// code, so that lanes with either wait together.
__device__ __forceinline__ bool find_tail(
    const Trie& trie, const Level& level, u32 leaf, u64& value) {
    value = NONE;
    if (level.tails == 0) return false;
    leaf = u32(smaller(u64(leaf), level.nodes - level.inner - 1));
    u32 number = rank(level.tail, level.tail_rank, u64(leaf));
    number = smaller(number, u32(level.tails) - 1);
    u32 longs = rank(level.tail_long, level.tail_long_rank, u64(number));
    bool is_long = bit((const u32*)level.tail_long, number);
    u64 same_kind = is_long ? level.long_tails : level.tails - level.long_tails;
    if (same_kind == 0 || (is_long && trie.store_tokens == 0)) return false;
    u64 index = smaller(u64(is_long ? longs : number - smaller(longs, number)), same_kind - 1);
    if (is_long && trie.implicit) {
        u64 before = level.first_long_tail + index;
        value = before == 0 ? 0
                            : select(
                                  trie.store_end, trie.store_end_rank, trie.store_end_select,
                                  trie.store_tokens, before - 1) + 1;
        return true;
    }
    Coded<u32> values = {
        is_long ? level.tail_index_low : level.tail_token_low,
        is_long ? level.tail_index_flag : level.tail_token_flag,
        is_long ? level.tail_index_flag_rank : level.tail_token_flag_rank,
        nullptr,
        is_long ? level.tail_index_high : level.tail_token_high,
        u32(is_long ? level.tail_index_low_bits : level.tail_token_low_bits),
        u32(is_long ? level.tail_index_high_bits : level.tail_token_high_bits),
        is_long ? level.tail_index_highs : level.tail_token_highs};
    value = values[index];
    if (!is_long) value = smaller(value, trie.alphabet_size - 1);
    return is_long;
}

// The same with one load. What is derived is a position in the store, or behind these a label.
__device__ __forceinline__ bool tail_of_leaf(
    const Trie& trie, const Level& level, u32 leaf, u64& value) {
#if DERIVED
    value = NONE;
    if (level.tails == 0) return false;
    leaf = u32(smaller(u64(leaf), level.nodes - level.inner - 1));
    u64 start = packed_wide(level.tail_starts, u32(trie.tail_start_bits), leaf);
    bool in_store = start < trie.store_tokens;
    u64 label = start - trie.store_tokens;
    value = in_store ? start : label < trie.alphabet_size ? label : NONE;
    return in_store;
#else
    return find_tail(trie, level, leaf, value);
#endif
}

// The same as a place in the tail.
__device__ __forceinline__ Tail tail_at(const Trie& trie, bool in_store, u64 value) {
    if (in_store) return tail_in_store(trie, value);
    return {u32(value), true, 0};
}
