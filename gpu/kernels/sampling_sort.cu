// Candidates of rows that keep more than a short list: places sorted falling, then taken apart.
//
// sort_tiles sorts stretches of 2,048 on chip; each merge pass doubles them, every entry finding
// its new place by binary search in the sister stretch. 16 bytes of places an entry and pass.
#include "sampling.cuh"

#define TILE 2048

extern "C" __global__ void __launch_bounds__(TILE / 2)
sort_tiles(const Row* rows, u64* places, i64 width, u32 tiles) {
    __shared__ u64 tile[TILE];
    const i64 r = blockIdx.x / tiles, begin = blockIdx.x % tiles * (i64)TILE;
    if (rows[r].kept != NO_LIST) return;
    u64* own = places + r * width + begin;
    const i64 n = width - begin < TILE ? width - begin : TILE;
    for (u32 i = threadIdx.x; i < TILE; i += TILE / 2) tile[i] = i < n ? own[i] : 0;
    __syncthreads();
    for (u32 run = 2; run <= TILE; run <<= 1)
        for (u32 d = run >> 1; d; d >>= 1) {
            const u32 a = 2 * threadIdx.x - (threadIdx.x & (d - 1)), b = a + d;
            const u64 x = tile[a], y = tile[b];
            if ((x < y) == ((a & run) == 0)) tile[a] = y, tile[b] = x;
            __syncthreads();
        }
    for (u32 i = threadIdx.x; i < n; i += TILE / 2) own[i] = tile[i];
}

extern "C" __global__ void __launch_bounds__(512)
merge(const Row* rows, const u64* from, u64* to, i64 width, i64 run, u32 chunks) {
    const i64 r = blockIdx.x / chunks;
    if (rows[r].kept != NO_LIST) return;
    from += r * width;
    to += r * width;
    for (i64 i = blockIdx.x % chunks * (i64)blockDim.x + threadIdx.x; i < width;
         i += (i64)chunks * blockDim.x) {
        const u64 place = from[i];
        const i64 pair = i / (2 * run) * (2 * run);
        const bool left = i - pair < run;
        const i64 start = left ? pair + run : pair;
        i64 low = 0, high = start >= width ? 0 : (width - start < run ? width - start : run);
        while (low < high) {
            const i64 middle = (low + high) / 2;
            const u64 other = from[start + middle];
            if (left ? other > place : other >= place) low = middle + 1;
            else high = middle;
        }
        to[(left ? i : i - run) + low] = place;
    }
}

extern "C" __global__ void __launch_bounds__(512)
unpack(const element* logits, i64 stride, const Row* rows, const u64* places, i64* indices,
       element* values, i64 width, u32 chunks) {
    const i64 r = blockIdx.x / chunks;
    if (rows[r].kept != NO_LIST) return;
    for (i64 i = blockIdx.x % chunks * (i64)blockDim.x + threadIdx.x; i < width;
         i += (i64)chunks * blockDim.x) {
        const u64 place = places[r * width + i];
        const u32 index = ~(u32)place;
        indices[r * width + i] = place ? (i64)index : -1;
        values[r * width + i] = place ? logits[r * stride + index] : nothing();
    }
}
