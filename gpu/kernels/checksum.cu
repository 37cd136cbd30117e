// xxh3-128 of the artifact's chunks, seed 0, as docs/format.md and the xxHash specification have it,
// for inputs of more than 240 bytes. Shorter ones have another formula, and are left to the host.
//
// Memory: each byte is read once, 1,024 consecutive bytes of a chunk at a time. Eight lanes work on
// a chunk, one for each accumulator; a chunk is a chain of 16,384 steps, so a large file, which
// has thousands, runs near the speed of memory, and a small one takes half a millisecond.
#include "words.cuh"

// Words of the default secret that begin at multiples of 8 bytes, and those that do not: of the
// last stripe (at byte 121), and of the two ends (at 11 and 117).
__constant__ u64 SECRET[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
    0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
    0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
    0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
    0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull,
};
__constant__ u64 LAST_SECRET[8] = {
    0xea647378d9c97e9full, 0xc5c3ebd33483acc5ull, 0x17eb6313faffa081ull, 0xd349daf0b751dd0dull,
    0x2b9e68d429265516ull, 0x8ffca1477d58be16ull, 0x45ce31d07ad1b8f8ull, 0xaf280416958f3acbull,
};
__constant__ u64 END_SECRET[2][8] = {
    {
        0x6dd4de1cad21f72cull, 0xa44072db979083e9ull, 0xe679cb1f67b3b7a4ull, 0xd05a8278e5c0cc4eull,
        0x4608b82172ffcc7dull, 0x9035e08e2443f774ull, 0x52283c4c263a81e6ull, 0x65d088cb00c391bbull,
    },
    {
        0xd9c97e9fc83159b4ull, 0x3483acc5ea647378ull, 0xfaffa081c5c3ebd3ull, 0xb751dd0d17eb6313ull,
        0x29265516d349daf0ull, 0x7d58be162b9e68d4ull, 0x7ad1b8f88ffca147ull, 0x958f3acb45ce31d0ull,
    },
};

static constexpr u64 P32_1 = 0x9E3779B1ull, P32_2 = 0x85EBCA77ull, P32_3 = 0xC2B2AE3Dull;
static constexpr u64 P64_1 = 0x9E3779B185EBCA87ull, P64_2 = 0xC2B2AE3D27D4EB4Full;
static constexpr u64 P64_3 = 0x165667B19E3779F9ull, P64_4 = 0x85EBCA77C2B2AE63ull;
static constexpr u64 P64_5 = 0x27D4EB2F165667C5ull;

static constexpr u32 LANES = 8;  // of a chunk
static constexpr u32 STRIPES = 16;  // of a block
static constexpr u32 STRIPE_WORDS = 8;
static constexpr u32 LONG = 240;  // bytes of the longest input that has another formula

__device__ __forceinline__ void accumulate(u64& sum, u64 data, u64 secret) {
    u64 key = data ^ secret;
    sum += __shfl_xor_sync(FULL, data, 1) + u64(u32(key)) * (key >> 32);
}

// Of products of neighbouring accumulators, the mixed sum, in all lanes of the chunk.
__device__ __forceinline__ u64 merge(u64 sum, u64 secret, u64 start) {
    u64 mixed = sum ^ secret;
    u64 other = __shfl_xor_sync(FULL, mixed, 1);
    u64 part = (mixed * other) ^ __umul64hi(mixed, other);
    part += __shfl_xor_sync(FULL, part, 2);
    part += __shfl_xor_sync(FULL, part, 4);
    u64 x = start + part;
    x ^= x >> 37;
    x *= 0x165667919E3779F9ull;
    return x ^ (x >> 32);
}

// Digest i, two words, low first, is of the `sizes[i]` bytes from `payload + offsets[i]` on, both
// multiples of 8. Inputs of LONG bytes or less are skipped.
extern "C" __global__ void digest_chunks(
    const u8* payload, const u64* offsets, const u64* sizes, u64* digests, u64 chunks) {
    const u64 initial[LANES] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    u32 lane = threadIdx.x % LANES;
    u64 together = u64(gridDim.x) * (blockDim.x / LANES);
    u64 first = (blockIdx.x * u64(blockDim.x) + threadIdx.x) / LANES;
    // All lanes of a warp stay to the end, since they exchange words.
    for (u64 round = 0; round * together < chunks; round++) {
        u64 chunk = first + round * together;
        bool there = chunk < chunks && sizes[chunk] > LONG;
        u64 size = there ? sizes[chunk] : 0;
        const u64* words = (const u64*)(payload + (there ? offsets[chunk] : 0));
        u64 sum = 0;
#pragma unroll
        for (u32 i = 0; i < LANES; i++) sum = lane == i ? initial[i] : sum;
        u64 stripes = there ? (size - 1) / 64 : 0;
        u64 blocks = stripes / STRIPES;
        u64 most_blocks = blocks;
        for (u32 step = LANES; step < 32; step <<= 1) {
            most_blocks = larger(most_blocks, __shfl_xor_sync(FULL, most_blocks, step));
        }
        for (u64 block = 0; block <= most_blocks; block++) {
            u64 data[STRIPES];
            u64 here = block * STRIPES;
#pragma unroll
            for (u32 i = 0; i < STRIPES; i++) {
                bool inside = here + i < stripes;
                data[i] = inside ? __ldg(words + (here + i) * STRIPE_WORDS + lane) : 0;
            }
#pragma unroll
            for (u32 i = 0; i < STRIPES; i++) {
                u64 before = sum;
                accumulate(sum, data[i], SECRET[i + lane]);
                if (here + i >= stripes) sum = before;
            }
            if (block < blocks) {
                sum = (sum ^ (sum >> 47) ^ SECRET[STRIPES + lane]) * P32_1;
            }
        }
        u64 last = there ? __ldg(words + size / 8 - STRIPE_WORDS + lane) : 0;
        accumulate(sum, last, LAST_SECRET[lane]);
        u64 low = merge(sum, END_SECRET[0][lane], size * P64_1);
        u64 high = merge(sum, END_SECRET[1][lane], ~(size * P64_2));
        if (there && lane == 0) {
            digests[2 * chunk] = low;
            digests[2 * chunk + 1] = high;
        }
    }
}
