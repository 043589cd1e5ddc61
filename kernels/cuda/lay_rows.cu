// Bars as the host has them, one symbol after the other, laid out as kernels read them: rows of a group's symbols side by side.
// Numbers are moved, not computed with.
#include "kernel.cuh"

#ifdef TRAWL_SHORT
typedef u32 Bits;
#else
typedef u64 Bits;
#endif

// Bars that a thread reads one after the other: a line of the host's memory, where it reads that in place.
constexpr int AT_ONCE = 8;
constexpr int WARPS = 256 / LANES;

// Rows of a group, which one block lays out. `kernels/src/cuda/device/strips.rs` writes the same fields in the same order.
struct Strip {
    // The first of the rows, and their number.
    Bits* to;
    i64 rows;
    // Of each lane: its first bar, and how many it has. The rest of its column is padding.
    const Bits* from[LANES];
    int bars[LANES];
};

struct LayRows {
    const Strip* strips;
    u64 padding;
};

extern "C" __global__ void __launch_bounds__(256, TRAWL_BLOCKS) @(const __grid_constant__ LayRows told) {
    const Strip& strip = told.strips[blockIdx.x];
    const int lane = (int)threadIdx.x % LANES;
    const Bits* const from = strip.from[lane];
    const i64 rows = strip.rows, bars = strip.bars[lane];
    for (i64 row = (int)threadIdx.x / LANES * AT_ONCE; row < rows; row += WARPS * AT_ONCE) {
        Bits bits[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) bits[i] = row + i < bars ? from[row + i] : (Bits)told.padding;
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (row + i < rows) strip.to[(row + i) * LANES + lane] = bits[i];
        }
    }
}

TRAWL_ENTRY(@, LayRows)
