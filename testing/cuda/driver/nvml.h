// What nvml.cpp reads of a device of driver.cpp: two libraries, as NVIDIA's are, and one process's devices.
#pragma once
#include <cstdint>

struct NvmlDevice {
    // Errors of memory that could not be corrected since the driver was loaded, and the bits of why clocks are low.
    uint64_t errors, throttle;
    // Whether errors are counted; rows are replaced at the next reset; there was no spare row; it is a slice.
    int32_t counts, is_pending, has_failed, is_slice;
    // UUIDs as text: its own, and the whole GPU's.
    char uuid[48], whole[48];
};
