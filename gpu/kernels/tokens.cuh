// Token ids of any integer type.
#pragma once
#include "words.cuh"

struct Tokens {
    const void* data;
    u64 bytes;  // of one
    u64 with_sign;
};

// 2^63 and more read as negative: both are no tokens.
__device__ __forceinline__ i64 token_at(const Tokens& tokens, u64 index) {
    switch (u32(tokens.bytes) * 2 + u32(tokens.with_sign)) {
        case 2: return ((const u8*)tokens.data)[index];
        case 3: return ((const signed char*)tokens.data)[index];
        case 4: return ((const u16*)tokens.data)[index];
        case 5: return ((const short*)tokens.data)[index];
        case 8: return ((const u32*)tokens.data)[index];
        case 9: return ((const int*)tokens.data)[index];
        default: return ((const i64*)tokens.data)[index];
    }
}
