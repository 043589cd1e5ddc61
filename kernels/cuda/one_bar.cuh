// New bars of every symbol, from states that stay in memory: a block takes a group of LANES symbols, each lane with the number
// of its own bars, so that symbols of any age share a group and a symbol without a new bar stays as it is.
//
// A part of the plan takes its steps' states from memory, advances them by a bar and puts them back; rings stay where they
// are. What one part makes for another, and the bars, pass through shared memory: parts of one level run side by side, with
// a barrier between levels. See docs/adr/0069. Part of a kernel's text, and of no other kernel's.
#ifndef TRAWL_ONE_BAR
#define TRAWL_ONE_BAR

// Words of eight bytes that a state takes.
template <class S>
constexpr int words_of = (int)((sizeof(S) + sizeof(u64) - 1) / sizeof(u64));

// The states of a block's group as one thread of it sees them. Of `Run` it reads: `out`, the last value of output o at
// o*out_stride + symbol; `scratch`, the group's words and behind them its rings, `scratch_slots` rows of LANES each; `table`;
// `visible`, by row and symbol whether there is a bar; `all`, whether symbols begin without bars.
constexpr int NO_BAR = 0, LAST_BAR = 2;

template <int WARPS>
struct States {
    static constexpr int threads = WARPS * LANES;

    const Run& run;
    // The lane's first word: the number of its bars. States follow, and behind `ring_row` rows the rings.
    u64* words;
    int ring_row;
    // Bars that the symbol has seen.
    int t;
    // Whether it has a bar in this row, and whether that is the last one of this launch, whose values are wanted.
    bool has_bar, is_last;

    __device__ __forceinline__ States(const Run& told, int rows) : run(told), ring_row(rows) {
        words = (u64*)told.scratch + (i64)blockIdx.x * told.scratch_slots * LANES + lane();
        t = told.all ? 0 : (int)words[0];
        has_bar = is_last = false;
    }

    // What follows from the thread alone is computed where it is needed: registers are for the states.
    static __device__ __forceinline__ int warp() { return (int)threadIdx.x / LANES; }
    static __device__ __forceinline__ int lane() { return (int)threadIdx.x % LANES; }
    static __device__ __forceinline__ i64 symbol() { return (i64)blockIdx.x * LANES + lane(); }

    // Brings a row of a column, whose rows hold every symbol, into row `at` of shared memory.
    __device__ __forceinline__ void fetch(const real* column, int at, int row) const {
        if (warp() == at % WARPS) series(at) = column[row * run.out_stride + symbol()];
    }

    __device__ __forceinline__ real& series(int at) const { return ((real*)shared_memory())[at * LANES + lane()]; }

    __device__ __forceinline__ Ring ring(u32 row, u32 slots) const {
        return Ring{(real*)words + ((i64)ring_row + row) * LANES, (int)slots};
    }

    // Every slot is NA at first.
    __device__ __forceinline__ void blank_ring(const Ring& ring) const {
        for (int i = 0; i < ring.slots; ++i) ring[i] = blank();
    }

    template <class S>
    __device__ __forceinline__ void load(S& state, int at) const {
        u64 held[words_of<S>];
#pragma unroll
        for (int i = 0; i < words_of<S>; ++i) held[i] = words[(i64)(at + i) * LANES];
        memcpy(&state, held, sizeof(S));
    }

    template <class S>
    __device__ __forceinline__ void store(const S& state, int at) const {
        u64 held[words_of<S>];
        held[words_of<S> - 1] = 0;
        memcpy(held, &state, sizeof(S));
#pragma unroll
        for (int i = 0; i < words_of<S>; ++i) words[(i64)(at + i) * LANES] = held[i];
    }

    // Tells the value of output `output`. NaNs are canonical.
    __device__ __forceinline__ void put(int output, real x) const {
        if (is_last) run.out[output * run.out_stride + symbol()] = is_nan(x) ? na() : x;
    }

    __device__ __forceinline__ void begin_row(int row) {
        const int told = run.visible[row * run.out_stride + symbol()];
        has_bar = told != NO_BAR;
        is_last = told == LAST_BAR;
    }
    __device__ __forceinline__ void end_row() { t += has_bar ? 1 : 0; }

    // By one warp, behind a barrier: every warp has read it.
    __device__ __forceinline__ void keep() const {
        if (warp() == 0) words[0] = (u64)t;
    }
};
#endif
