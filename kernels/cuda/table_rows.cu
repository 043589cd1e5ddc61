// Features of bars, from outputs that kernels left in the device's memory, as rows of a table in single precision.
#include "kernel.cuh"

struct TableRows {
    // Per feature: address of its numbers. With the lowest bit set they are doubles, one for each pair, in their order.
    const unsigned long long* sources;
    // Per feature: what is subtracted, then what the difference is divided by; 0 for neither.
    const double* scales;
    // A row of the table, and which of the numbers it takes. Null: so many rows from the first one on get no value.
    const unsigned* pairs;
    float* table;
    long long count, features;
};

extern "C" __global__ void __launch_bounds__(256, TRAWL_BLOCKS) @(const __grid_constant__ TableRows told) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= told.count) return;
    float* const row = told.table + (told.pairs ? told.pairs[2 * at] : at) * told.features;
    for (long long feature = 0; feature < told.features; ++feature) {
        double value = (double)na();
        if (told.pairs) {
            const unsigned long long source = told.sources[feature], numbers = source & ~1ull;
            value = source & 1 ? ((const double*)numbers)[at] : (double)((const real*)numbers)[told.pairs[2 * at + 1]];
            const double divisor = told.scales[2 * feature + 1];
            if (divisor != 0.0) value = (value - told.scales[2 * feature]) / divisor;
        }
        row[feature] = (float)value;
    }
}

TRAWL_ENTRY(@, TableRows)
