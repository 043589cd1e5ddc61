// The frame of a kernel: a block takes a group of LANES symbols through time, tile by tile. Its warps each run a part of
// the plan; what one part makes for another, and the columns, pass through shared memory.
//
// At step s of the block, part of level l works on tile s - l, so that what it reads of lower levels was made a step
// before; one warp brings columns of the next tile in the background meanwhile. One barrier a step keeps them apart.
#pragma once
#include "base.cuh"

// What every kernel is given. `kernels/src/cuda/device/arguments.rs` writes the same fields in the same order.
struct Run {
    // Output o of symbol lane l of group g: every bar at o*out_stride + (first_row[g] + t)*LANES + l, or the last bar at
    // o*out_stride + g*LANES + l.
    real* out;
    // `scratch_slots` rows a block, for rings that find no room in shared memory.
    real* scratch;
    // Tables of the host's, in double.
    const double* table;
    // Of each group, and where they end.
    const i64* first_row;
    // Visible bars of each lane of each group.
    const int* visible;
    // Of each group: the first bar that steps of finite windows are wanted from.
    const int* tail;
    i64 out_stride;
    i64 scratch_slots;
    // Rows of rings in shared memory.
    int ring_slots;
    // Whether every bar is wanted.
    int all;
    // Bars before a lane's last one that steps of finite windows are wanted from.
    int reach;
    int unused;
};

// A block's group as one thread of it sees it; TILE bars at a time are in shared memory for its WARPS warps.
template <int TILE, int WARPS>
struct Frame {
    static constexpr int threads = WARPS * LANES;

    const Run& run;
    i64 first_row;
    int group, lane, warp;
    int rows, visible, tail;
    int first_tile, tiles;
    real* shared;
    real* rings;
    real* scratch;

    // `series_rows`: rows of shared memory in front of the rings. `whole`: whether a step needs every bar.
    __device__ __forceinline__ Frame(const Run& told, int series_rows, bool whole)
        : run(told), group((int)blockIdx.x), lane((int)threadIdx.x % LANES), warp((int)threadIdx.x / LANES) {
        first_row = told.first_row[group];
        rows = (int)(told.first_row[group + 1] - first_row);
        visible = told.visible[(i64)group * LANES + lane];
        tail = told.tail[group];
        first_tile = whole ? 0 : tail / TILE;
        tiles = (rows + TILE - 1) / TILE;
        shared = shared_memory();
        rings = shared + (i64)series_rows * LANES;
        scratch = told.scratch + (i64)group * told.scratch_slots * LANES;
        for (i64 i = threadIdx.x; i < (i64)told.ring_slots * LANES; i += threads) rings[i] = blank();
        for (i64 i = threadIdx.x; i < told.scratch_slots * LANES; i += threads) scratch[i] = blank();
    }

    __device__ __forceinline__ int bars_of(int tile) const { return least(TILE, rows - tile * TILE); }

    // Bars of a tile before those that steps of finite windows are wanted from: all of them, where no lane wants any, as between
    // the ends of histories far from each other. Every lane asks.
    __device__ __forceinline__ int before_tail(int tile) const {
        const int before = tail - tile * TILE, bars = bars_of(tile);
        // Bars from the tile's first one to the lane's last one; a very large number where the lane has ended before.
        const u32 left = (u32)(visible - 1 - tile * TILE);
        return warp_all(left >= (u32)(TILE + run.reach)) ? bars : least(before < 0 ? 0 : before, bars);
    }

    // Whether steps of finite windows leave out a tile, behind bars that they ran at: what they know of earlier bars is then too old
    // to be wanted, but windows in blocks have to know where the next one begins.
    __device__ __forceinline__ bool leaves_out(int tile, int before) const {
        return tile * TILE >= tail && before == bars_of(tile);
    }

    // Row 0 of a tile of a series whose buffers begin at row `base` of shared memory and are `depth` tiles.
    __device__ __forceinline__ real* tile_of(int base, int depth, int tile) const {
        return shared + (base + (int)((u32)tile % (u32)depth) * TILE) * LANES;
    }

    // The group's first row of a column. An odd address is that of a table of such rows, one a group: columns that stay on
    // the device between calls lie where they came to lie.
    __device__ __forceinline__ const real* first_of(const real* column) const {
        const u64 place = (u64)column;
        return place & SCATTERED ? ((const real* const*)(place - SCATTERED))[group] : column + first_row * LANES;
    }

    // Brings a tile of a column whose first row lies at `rows_at`, by the lanes of one warp: code that each warp went
    // through would fill the instruction caches.
    __device__ __forceinline__ void fetch(const real* rows_at, int base, int depth, int tile) const {
        if (tile >= tiles) return;
        // Values of a copy, and copies of a tile.
        constexpr int EACH = COPY_BYTES / (int)sizeof(real), COPIES = TILE * (LANES / EACH);
        real* to = tile_of(base, depth, tile) + EACH * lane;
        const real* from = rows_at + (i64)tile * (TILE * LANES) + EACH * lane;
        const int copies = bars_of(tile) * (LANES / EACH);
        if (copies == COPIES) {
#pragma unroll
            for (int i = 0; i < COPIES; i += LANES) {
                if (i + LANES <= COPIES || i + lane < COPIES) copy_across(to + EACH * i, from + EACH * i);
            }
        } else {
            for (int i = 0; i + lane < copies; i += LANES) copy_across(to + EACH * i, from + EACH * i);
        }
    }

    // A ring in shared memory: its accesses are known to be of shared memory when the text is compiled.
    __device__ __forceinline__ Ring shared_ring(u32 place, u32 slots) const {
        return Ring{rings + (i64)place * LANES + lane, (int)slots};
    }

    // A ring in shared memory or in scratch memory, as the launch says.
    __device__ __forceinline__ Ring ring(u32 place, u32 slots) const {
        real* all = place & IN_SCRATCH ? scratch : rings;
        return Ring{all + (i64)(place & ~IN_SCRATCH) * LANES + lane, (int)slots};
    }

    // The same of a wide step.
    __device__ __forceinline__ WideRing wide_shared_ring(u32 place, u32 slots) const {
        return WideRing{(double*)(rings + (i64)place * LANES) + lane, (int)slots};
    }
    __device__ __forceinline__ WideRing wide_ring(u32 place, u32 slots) const {
        real* all = place & IN_SCRATCH ? scratch : rings;
        return WideRing{(double*)(all + (i64)(place & ~IN_SCRATCH) * LANES) + lane, (int)slots};
    }

    // Whether a part whose steps are past their seeds or not, as `settled` says, may go on by the short way: lanes behind
    // their last bar do not matter.
    __device__ __forceinline__ bool all_settled(int tile, bool settled) const {
        return warp_all(settled || tile * TILE >= visible);
    }

    // Whether values are wanted at bar `t`.
    __device__ __forceinline__ bool wants(int t) const { return run.all ? t < visible : t + 1 == visible; }

    // Whether values are wanted at one of so many bars from `t` on.
    __device__ __forceinline__ bool wants_any(int t, int bars) const {
        return t < visible && (run.all || visible <= t + bars);
    }

    // Stores the value of output `output` at bar `t`, which is wanted. NaNs are canonical.
    __device__ __forceinline__ void put(int output, int t, real x) const {
        const i64 row = run.all ? first_row + t : (i64)group;
        run.out[(i64)output * run.out_stride + row * LANES + lane] = is_nan(x) ? na() : x;
    }
};
