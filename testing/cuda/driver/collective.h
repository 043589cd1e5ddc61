// Work of several devices at once: each rank's stream waits in it until the streams of all ranks have got there.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

struct Device;
struct Stream;

struct Collective {
    struct Rank {
        Device* device = nullptr;
        Stream* stream = nullptr;
        bool has_arrived = false;
        std::vector<char> data;
    };
    std::mutex mutex;
    std::vector<Rank> ranks;
    uint64_t bytes = 0;
    // Ends without a result, or never.
    bool is_aborted = false, is_stalled = false;

    bool is_complete() const {
        for (const Rank& rank : ranks) {
            if (!rank.has_arrived) return false;
        }
        return true;
    }
};
