// The frame of a kernel: a block takes a group of LANES symbols through time, tile by tile. Its warps each run a part of
// the plan; what one part makes for another, and the columns, pass through shared memory.
//
// At step s of the block, part of level l works on tile s - l, so that what it reads of lower levels was made a step
// before; columns of the next tile arrive in the background meanwhile. One barrier a step keeps them apart.
#pragma once
#include "base.cuh"

// What every kernel is told. `kernels/src/cuda/launch.rs` writes the same fields in the same order.
struct Run {
    // Output o of symbol lane l of group g: every bar at o*out_stride + (first_row[g] + t)*LANES + l, or the last bar at
    // o*out_stride + g*LANES + l.
    double* out;
    // `scratch_slots` slots a block, for rings that find no room in shared memory.
    double* scratch;
    // Tables of the host's.
    const double* table;
    // Of each group, and where they end.
    const i64* first_row;
    // Visible bars of each lane of each group.
    const int* visible;
    // Of each group: the first bar that steps of finite windows are wanted from.
    const int* tail;
    i64 out_stride;
    i64 scratch_slots;
    // Slots of rings in shared memory.
    int ring_slots;
    // Whether every bar is wanted.
    int all;
};

// A block's group as one thread of it sees it; TILE bars are brought into shared memory at a time.
template <int TILE>
struct Frame {
    const Run& run;
    i64 first_row;
    int group, lane, warp, threads;
    int rows, visible, tail;
    int first_tile, tiles;
    double* shared;
    double* rings;
    double* scratch;

    // `series_rows`: rows of shared memory in front of the rings. `whole`: whether a step needs every bar.
    __device__ __forceinline__ Frame(const Run& told, int series_rows, bool whole)
        : run(told), group((int)blockIdx.x), lane((int)threadIdx.x % LANES), warp((int)threadIdx.x / LANES),
          threads((int)blockDim.x) {
        first_row = told.first_row[group];
        rows = (int)(told.first_row[group + 1] - first_row);
        visible = told.visible[(i64)group * LANES + lane];
        tail = told.tail[group];
        first_tile = whole ? 0 : tail / TILE;
        tiles = (rows + TILE - 1) / TILE;
        shared = shared_memory();
        rings = shared + (i64)series_rows * LANES;
        scratch = told.scratch + (i64)group * told.scratch_slots * LANES;
        for (i64 i = threadIdx.x; i < (i64)told.ring_slots * LANES; i += threads) rings[i] = na();
        for (i64 i = threadIdx.x; i < told.scratch_slots * LANES; i += threads) scratch[i] = na();
    }

    __device__ __forceinline__ int bars_of(int tile) const { return least(TILE, rows - tile * TILE); }

    // Row 0 of a tile of a series whose buffers begin at row `base` of shared memory and are `depth` tiles.
    __device__ __forceinline__ double* tile_of(int base, int depth, int tile) const {
        return shared + ((i64)base + (i64)(tile % depth) * TILE) * LANES;
    }

    // The group's first row of a column. An odd address is that of a table of such rows, one a group: columns that stay on
    // the device between calls lie where they came to lie.
    __device__ __forceinline__ const double* first_of(const double* column) const {
        const u64 place = (u64)column;
        return place & SCATTERED ? ((const double* const*)(place - SCATTERED))[group] : column + first_row * LANES;
    }

    // Brings a tile of a column, by all threads of the block.
    __device__ __forceinline__ void fetch(const double* column, int base, int depth, int tile) const {
        if (tile >= tiles) return;
        double* to = tile_of(base, depth, tile);
        const double* from = first_of(column) + (i64)tile * TILE * LANES;
        const int pairs = bars_of(tile) * (LANES / 2);
        for (int i = (int)threadIdx.x; i < pairs; i += threads) copy_pair(to + 2 * i, from + 2 * i);
    }

    __device__ __forceinline__ Ring ring(u32 place, u32 slots) const {
        double* all = place & IN_SCRATCH ? scratch : rings;
        return Ring{all + (i64)(place & ~IN_SCRATCH) * LANES + lane, (int)slots};
    }

    // Tells the value of output `output` at bar `t`. NaNs are canonical.
    __device__ __forceinline__ void put(int output, int t, double x) const {
        const i64 base = (i64)output * run.out_stride + lane;
        const double value = is_nan(x) ? na() : x;
        if (run.all) {
            if (t < visible) run.out[base + (first_row + t) * LANES] = value;
        } else if (t + 1 == visible) {
            run.out[base + (i64)group * LANES] = value;
        }
    }
};
