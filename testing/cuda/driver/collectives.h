// What the test driver's libnccl.so.2 (nccl.cpp) asks of the devices: all-gathers as work of their streams.
#pragma once
#include "process.h"

// A link between devices, and what a collective takes besides: a model.
constexpr double LINK_BYTES_PER_S = 300e9;
constexpr int64_t COLLECTIVE_NS = 20'000;

extern "C" {

// Counts a call of a function of NCCL, and gives the result that the settings of the device want of it, or 0.
int trawl_test_collective_call(int ordinal, const char* function) {
    Device* device = device_of(ordinal);
    if (!device) return -1;
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    const uint64_t number = ++device->calls[function];
    for (const Fault& fault : device->settings.faults) {
        if (fault.function == function && number >= fault.first && number <= fault.last) return fault.code;
    }
    return 0;
}

// Whether this call of a function does not return until the communicator is aborted.
int trawl_test_collective_hangs(int ordinal) {
    Device* device = device_of(ordinal);
    if (!device) return 0;
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    return device->settings.hang != 0 && ++device->groups == device->settings.hang;
}

// A collective of so many ranks, which lives until the process ends.
void* trawl_test_collective(int ranks) {
    static std::mutex mutex;
    static std::deque<std::shared_ptr<Collective>> all;
    std::lock_guard<std::mutex> guard(mutex);
    all.push_back(std::make_shared<Collective>());
    all.back()->ranks.resize((size_t)ranks);
    return &all.back();
}

// Puts a rank's part into its stream: 0, or 4 where there is no such stream.
int trawl_test_collective_post(const std::shared_ptr<Collective>* of, int rank, int ordinal, void* handle, uint64_t send,
                               uint64_t receive, uint64_t bytes) {
    Device* device = device_of(ordinal);
    if (!device) return 4;
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    Stream* stream = device->retained == 0 ? nullptr : device->stream_of(handle);
    if (!stream) return 4;
    std::shared_ptr<Collective> collective = *of;
    {
        std::lock_guard<std::mutex> own(collective->mutex);
        // Ranks that differ about the size wait for ever.
        if (collective->bytes != 0 && collective->bytes != bytes) collective->is_stalled = true;
        collective->bytes = bytes;
        collective->ranks[(size_t)rank].device = device;
        collective->ranks[(size_t)rank].stream = stream;
        device->collectives += 1;
        if (device->collectives == device->settings.stall) collective->is_stalled = true;
    }
    Work work{Kind::COLLECTIVE};
    work.from = send, work.to = receive, work.bytes = bytes, work.rank = (uint64_t)rank;
    const double all = (double)bytes * (double)collective->ranks.size();
    work.collective = std::move(collective);
    device->put(*stream, KERNELS, COLLECTIVE_NS + (int64_t)(all / LINK_BYTES_PER_S * 1e9), std::move(work));
    return 0;
}

// From now on its ranks do not wait for each other, and write nothing.
void trawl_test_collective_abort(const std::shared_ptr<Collective>* of) {
    std::lock_guard<std::mutex> own((*of)->mutex);
    (*of)->is_aborted = true;
}
}
