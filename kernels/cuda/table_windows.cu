// Windows over a table of features: the rows of the last times of a symbol, with where there is a value.
#include "kernel.cuh"

struct TableWindows {
    const float* table;
    // Per sample: the row of its newest bar.
    const unsigned* samples;
    // `[sample, window, feature]`: values, 0 without one, and 1 where there is one.
    float* values;
    unsigned char* mask;
    // Values of all samples; bars of a window; rows between a bar of a symbol and its next one.
    long long count, window, features, width;
};

extern "C" __global__ void __launch_bounds__(256, TRAWL_BLOCKS) @(const __grid_constant__ TableWindows told) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= told.count) return;
    const long long bar = at / told.features, feature = at % told.features;
    const long long sample = bar / told.window, before = told.window - 1 - bar % told.window;
    const long long row = (long long)told.samples[sample] - before * told.width;
    const float value = row < 0 ? (float)na() : told.table[row * told.features + feature];
    // False of NaN and of infinities.
    const bool is_there = value - value == 0.0f;
    told.values[at] = is_there ? value : 0.0f;
    told.mask[at] = is_there ? 1 : 0;
}

TRAWL_ENTRY(@, TableWindows)
