// Lanes that are chunks of a symbol's bars, and how a step walks their rows and applies the maps of earlier chunks. See
// docs/adr/0019.
//
// One warp runs a step and nothing hides its waits: so reads are issued in batches before their values are used, and
// divisions of a batch's rows side by side. In double only, as the maps (chunked.cuh).
#pragma once
#ifndef TRAWL_SHORT
#include "base.cuh"
#include "run.cuh"

// The first bar of each lane; what stands before it in the table tells of all lanes. `kernels/src/cuda/time_chunks/plan.rs` writes it.
constexpr int CHUNK_TABLE_HEAD = 2;

// Number of the bar in a lane's row 0: below 0 in the first chunk of a symbol, whose rows before bar 0 are of nothing.
STEP int first_bar_of(const double* table, int lane) { return (int)table[CHUNK_TABLE_HEAD + lane]; }

// The bar that a step starts with whose lane begins with `first` and looks at rows from `tail` on.
STEP int start_of(int first, int tail) { return first + tail < 0 ? 0 : first + tail; }

// Number of maps that are read before the first of them is applied, and of rows while a step is not past its seed.
constexpr int MAPS_AHEAD = 8, SEED_ROWS_AHEAD = 4;

// Length of an array of N values: C++ has no arrays of none.
template <int N>
constexpr int SLOTS = N > 0 ? N : 1;

// Output of rows whose values are not needed.
struct NoOutput {
    __device__ __forceinline__ void put(int, double) const {}
    template <int ROWS>
    __device__ __forceinline__ void put_rows(int, const double (&)[ROWS]) const {}
};

// Lanes as recursive steps see them: a warp is a step of the lanes of its group.
//
// Generated code defines a step as the type `Bars` (`kernels/src/cuda/time_chunks/codegen.rs`): `step`, the state or the map; `next`
// of a row's values; `is_settled`, whether the step is past its seed; for rows past it `next_settled`, which gives the same
// without a branch, or, if the step DIVIDES, `operands` and `with_quotient`; `carry`, which applies a map, false if it is not valid.
struct Chunks {
    const Run& run;
    const double* table;
    int width, lead, lane, warp;

    __device__ __forceinline__ Chunks(const Run& told, const double* lanes)
        : run(told), table(lanes), width((int)lanes[0]), lead((int)lanes[1]),
          lane((int)blockIdx.x * LANES + (int)threadIdx.x % LANES), warp((int)threadIdx.x / LANES) {}

    // The lane of the first chunk of this lane's symbol.
    __device__ __forceinline__ int first() const { return lane - (first_bar_of(table, lane) + lead) / width; }

    // Rows whose bars count for the state: `from` is the row that the state of every chunk but the first is of.
    __device__ __forceinline__ int begin(int of, int from) const {
        const int before = -first_bar_of(table, of);
        return from < before ? before : from;
    }
    __device__ __forceinline__ int end(int of, int from) const { return least(from + width, run.visible[of]); }

    __device__ __forceinline__ i64 place(int of, int row) const {
        return (run.first_row[of / LANES] + row) * LANES + of % LANES;
    }

    // Applies `bars` to the values of N series at rows `from..to` of lane `of`, and passes the results to `output`.
    template <int N, bool DIVIDES, class Bars, class Output>
    __device__ __forceinline__ void walk(const double* const* series, int of, int from, int to, Bars& bars, const Output& output) const {
        // As many as registers allow.
        constexpr int AHEAD = N > 2 ? 4 : 8;
        const double* at[SLOTS<N>];
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] = series[k] + place(of, 0);
        for (int row = from; row < to;) {
            if (row + AHEAD <= to && bars.is_settled()) {
                row = walk_settled<N, AHEAD, DIVIDES>(at, row, to, bars, output);
                continue;
            }
            double x[SEED_ROWS_AHEAD][SLOTS<N>];
#pragma unroll
            for (int i = 0; i < SEED_ROWS_AHEAD; ++i) {
#pragma unroll
                for (int k = 0; k < N; ++k) x[i][k] = at[k][(i64)least(row + i, to - 1) * LANES];
            }
#pragma unroll
            for (int i = 0; i < SEED_ROWS_AHEAD; ++i) {
                if (row + i < to) output.put(row + i, bars.next(x[i]));
            }
            row += SEED_ROWS_AHEAD;
        }
    }

    // Takes `bars` through the chunks of this lane's symbol before this one: by their maps, or, where one is not valid for the
    // state, by `walk_lane` of the chunk's lane.
    template <class Map, class Bars, class Walk>
    __device__ __forceinline__ void carry_before(const double* const* words, Bars& bars, Walk walk_lane) const {
        for (int of = first(); of < lane;) {
            const auto before = bars.step;
            if (of + MAPS_AHEAD <= lane) {
                Map maps[MAPS_AHEAD];
#pragma unroll
                for (int i = 0; i < MAPS_AHEAD; ++i) maps[i] = map_of<Map>(words, of + i);
                bool valid = true;
#pragma unroll
                for (int i = 0; i < MAPS_AHEAD; ++i) valid = bars.carry(maps[i]) && valid;
                if (valid) {
                    of += MAPS_AHEAD;
                    continue;
                }
                // One after another, to find the chunk that has to be walked.
                bars.step = before;
            }
            if (!bars.carry(map_of<Map>(words, of))) {
                bars.step = before;
                walk_lane(of);
            }
            ++of;
        }
    }

    // The numbers of a map are the last bars of as many outputs.
    template <class Map>
    __device__ __forceinline__ void tell(const Map& map, int output) const {
        const double* words = (const double*)&map;
#pragma unroll
        for (int i = 0; i < (int)(sizeof(Map) / sizeof(double)); ++i) run.out[(i64)(output + i) * run.out_stride + lane] = words[i];
    }

    template <class Map>
    __device__ __forceinline__ Map map_of(const double* const* words, int of) const {
        Map map;
        double* to = (double*)&map;
#pragma unroll
        for (int i = 0; i < (int)(sizeof(Map) / sizeof(double)); ++i) to[i] = words[i][of];
        return map;
    }

private:
    // Whole batches of rows from `row` on, of a step past its seed; returns the row after the last one.
    template <int N, int AHEAD, bool DIVIDES, class Bars, class Output>
    __device__ __forceinline__ int walk_settled(const double* const* at, int row, int to, Bars& bars, const Output& output) const {
        const int last = row + (to - row) / AHEAD * AHEAD - AHEAD;
        double x[AHEAD][SLOTS<N>], following[AHEAD][SLOTS<N>];
        read<N>(at, row, x);
        for (; row <= last; row += AHEAD) {
            // The last batch is read twice: cheaper than a branch.
            read<N>(at, least(row + AHEAD, last), following);
            double values[AHEAD];
            batch<DIVIDES>(bars, x, values);
            output.put_rows(row, values);
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
#pragma unroll
                for (int k = 0; k < N; ++k) x[i][k] = following[i][k];
            }
        }
        return row;
    }

    template <int N, int AHEAD, int SLOTS_OF_ROW>
    static __device__ __forceinline__ void read(const double* const* at, int row, double (&x)[AHEAD][SLOTS_OF_ROW]) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const double* from = at[k] + (i64)row * LANES;
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) x[i][k] = from[i * LANES];
        }
    }

    // Divisions of all rows side by side, with one question whether the short way holds for all of them.
    template <bool DIVIDES, int SLOTS_OF_ROW, int AHEAD, class Bars>
    static __device__ __forceinline__ void batch(Bars& bars, const double (&x)[AHEAD][SLOTS_OF_ROW], double (&values)[AHEAD]) {
        if constexpr (DIVIDES) {
            double a[AHEAD], b[AHEAD], quotients[AHEAD];
            bool usual = true;
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                bars.operands(x[i], a[i], b[i]);
                quotients[i] = quotient_short(a[i], b[i], usual);
            }
            if (!usual) {
#pragma unroll
                for (int i = 0; i < AHEAD; ++i) quotients[i] = a[i] / b[i];
            }
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) values[i] = bars.with_quotient(quotients[i], x[i]);
        } else {
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) values[i] = bars.next_settled(x[i]);
        }
    }
};

// Writes an output's values at rows of this lane. NaNs are canonical.
struct LaneOutput {
    const Chunks& lanes;
    // Of every bar its row 0, of the last bar its only value.
    double* first;

    __device__ __forceinline__ LaneOutput(const Chunks& of, int output)
        : lanes(of), first(of.run.out + (i64)output * of.run.out_stride + (of.run.all ? of.place(of.lane, 0) : of.lane)) {}

    __device__ __forceinline__ void put(int row, double x) const {
        if (lanes.run.all) {
            first[(i64)row * LANES] = canonical(x);
        } else if (row + 1 == lanes.run.visible[lanes.lane]) {
            *first = canonical(x);
        }
    }

    template <int ROWS>
    __device__ __forceinline__ void put_rows(int row, const double (&x)[ROWS]) const {
        if (lanes.run.all) {
            double* to = first + (i64)row * LANES;
#pragma unroll
            for (int i = 0; i < ROWS; ++i) to[i * LANES] = canonical(x[i]);
        } else {
            // The last visible row is the batch's last row or in a later batch.
            put(row + ROWS - 1, x[ROWS - 1]);
        }
    }

private:
    static __device__ __forceinline__ double canonical(double x) { return is_nan(x) ? na() : x; }
};
#endif
