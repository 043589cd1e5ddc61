// What the test compiler makes, and the test driver loads, in place of a CUBIN: a head, and a shared object behind it.
#pragma once
#include <cstdint>
#include <cstring>

constexpr char IMAGE_MAGIC[8] = {'T', 'R', 'A', 'W', 'L', 'E', 'M', '1'};

struct Image {
    char magic[8];
    // Such as 90.
    int32_t architecture;
    // Most threads of a block, as the text bounds them.
    int32_t threads_max;
    uint64_t code_bytes;
    uint64_t checksum;

    static uint64_t checksum_of(const void* code, uint64_t bytes) {
        // FNV-1a.
        uint64_t hash = 0xcbf29ce484222325ull;
        for (uint64_t i = 0; i < bytes; ++i) hash = (hash ^ ((const unsigned char*)code)[i]) * 0x100000001b3ull;
        return hash;
    }

    bool is_whole() const {
        return memcmp(magic, IMAGE_MAGIC, sizeof magic) == 0 && checksum_of(this + 1, code_bytes) == checksum;
    }
};
