// From keywords to key ids, a keyword a thread.
//
// A lookup is a chain of some eight dependent loads a token; hundreds of thousands of threads wait
// for theirs at once.
#include "trie.cuh"

// Whether the tail is the tokens from `at` up to `stop`.
__device__ bool tail_is(const Trie& trie, Tail tail, const u32* tokens, u64 at, u64 stop) {
    for (; at < stop; at++) {
        if (tail.label == NONE || rank_of_token(trie, tokens[at]) != tail.label) return false;
        if (tail.ends) return at + 1 == stop;
        tail = tail_in_store(trie, tail.next);
    }
    return false;
}

__device__ i64 find_keyword(const Trie& trie, const u32* tokens, u64 at, u64 stop) {
    if (at >= stop || stop - at > trie.max_length) return -1;
    u32 label = rank_of_token(trie, tokens[at]);
    if (label == NONE || !bit((const u32*)trie.root, label)) return -1;
    u32 node = rank(trie.root, trie.root_rank, u64(label));
    node = smaller(node, u32(trie.levels[0].nodes) - 1);
    for (u64 row = 0;; row++) {
        const Level& level = trie.levels[row];
        at++;
        u32 before;
        if (!find_inner(level, node, before)) {
            bool whole = at == stop;
            if (has_tail(level, node - before)) {
                u64 value;
                bool in_store = tail_of_leaf(trie, level, node - before, value);
                whole = tail_is(trie, tail_at(trie, in_store, value), tokens, at, stop);
            }
            return whole ? i64(key_id(trie, level, node)) : -1;
        }
        if (at == stop) {
            u64 number = smaller(u64(before), level.inner - 1);
            return bit((const u32*)level.terminal, number) ? i64(key_id(trie, level, node)) : -1;
        }
        label = rank_of_token(trie, tokens[at]);
        if (label == NONE) return -1;
        const Level& below = trie.levels[row + 1];
        Children in = children(level, below, before);
        uint4 place = make_uint4(in.start, in.stop - in.start, in.lows, in.high);
        node = find_child(below, place, label);
        if (node == NONE) return -1;
    }
}

// found[i] is the key id of tokens[offsets[i]] up to tokens[offsets[i + 1]], -1 where absent.
extern "C" __global__ void find_keywords(
    const __grid_constant__ Trie trie, const u32* tokens, const u64* offsets, i64* found, u64 n) {
    for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < n;
         i += u64(gridDim.x) * blockDim.x) {
        found[i] = find_keyword(trie, tokens, offsets[i], offsets[i + 1]);
    }
}
