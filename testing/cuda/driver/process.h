// What the functions of driver.cpp share: the process's devices, which context a call is in, and what they check.
#pragma once
#include <array>

#include "device.h"

struct Process {
    std::mutex mutex;
    bool is_initialised = false;
    std::map<std::string, uint64_t> calls;
    std::deque<Device> devices;
    Settings settings;
};

// Never destroyed: threads may call until the process ends.
inline Process& process() {
    static Process* process = [] {
        auto* made = new Process;
        // Devices are separated by semicolons; calls that are of no device follow the first one's settings.
        const char* all = getenv("TRAWL_TEST_DRIVER");
        std::istringstream devices(all && *all ? all : " ");
        for (std::string one; std::getline(devices, one, ';');) {
            made->devices.emplace_back((int)made->devices.size(), settings_of(one.c_str()));
        }
        made->settings = made->devices.front().settings;
        return made;
    }();
    return *process;
}

inline thread_local Device* current = nullptr;

// Result of a call that needs no context, by the settings of the environment.
inline int called(const char* function) {
    Process& all = process();
    std::lock_guard<std::mutex> guard(all.mutex);
    const uint64_t number = ++all.calls[function];
    for (const Fault& fault : all.settings.faults) {
        if (fault.function == function && number >= fault.first && number <= fault.last) return fault.code;
    }
    const bool needs_none = strcmp(function, "cuInit") == 0 || strcmp(function, "cuDriverGetVersion") == 0;
    return all.is_initialised || needs_none ? SUCCESS : NOT_INITIALIZED;
}

inline Device* device_of(int ordinal) {
    Process& all = process();
    std::lock_guard<std::mutex> guard(all.mutex);
    return ordinal >= 0 && (size_t)ordinal < all.devices.size() ? &all.devices[(size_t)ordinal] : nullptr;
}

// The 16 bytes of a device's UUID, or of the slice that it is.
inline std::array<unsigned char, 16> uuid_of(const Device& device, bool of_slice) {
    std::array<unsigned char, 16> uuid = {0x7e, 0x57, 0xd2, 0x1e, 0, 0, 0x40, 0, 0x80, 0};
    uuid[11] = of_slice, uuid[14] = (unsigned char)(device.ordinal >> 8), uuid[15] = (unsigned char)device.ordinal;
    return uuid;
}

inline std::string text_of_uuid(const char* kind, const std::array<unsigned char, 16>& uuid) {
    std::string text = std::string(kind) + "-";
    for (size_t at = 0; at < uuid.size(); ++at) {
        char byte[3];
        snprintf(byte, sizeof byte, "%02x", uuid[at]);
        if (at == 4 || at == 6 || at == 8 || at == 10) text += "-";
        text += byte;
    }
    return text;
}

inline bool is_context(void* handle) {
    Process& all = process();
    std::lock_guard<std::mutex> guard(all.mutex);
    for (Device& device : all.devices) {
        if (&device == handle && device.retained > 0) return true;
    }
    return false;
}

// The stream of a handle: a stream of another context, or none, is an invalid handle.
#define STREAM(NAME, HANDLE)                          \
    Stream* NAME = device.stream_of((void*)(HANDLE)); \
    if (!NAME) return INVALID_HANDLE

#define EVENT(NAME, HANDLE)                            \
    auto NAME##_found = device.events.find((HANDLE)); \
    if (NAME##_found == device.events.end()) return INVALID_HANDLE; \
    Event* NAME = NAME##_found->second.get()

// In the current context, one call at a time: `device`. Ends with the result that the settings or an earlier fault want.
#define IN_CONTEXT                                                     \
    if (const int wanted = called(__func__)) return wanted;            \
    if (!current) return INVALID_CONTEXT;                              \
    Device& device = *current;                                         \
    std::unique_lock<std::recursive_mutex> guard(device.mutex);        \
    if (device.retained == 0) return INVALID_CONTEXT;                  \
    if (const int wanted = device.called(__func__)) return wanted

#define NO_CONTEXT \
    if (const int wanted = called(__func__)) return wanted

inline void sleep_until(int64_t at) {
    const int64_t left = at - now_ns();
    if (left > 0) usleep((useconds_t)(left / 1000 + 1));
}

// The same while other threads call: what was looked up before has to be looked up again.
inline void sleep_until(int64_t at, std::unique_lock<std::recursive_mutex>& guard) {
    guard.unlock();
    sleep_until(at);
    guard.lock();
}

// While other devices and other threads work.
inline void wait_a_little(std::unique_lock<std::recursive_mutex>& guard) {
    guard.unlock();
    usleep(200);
    guard.lock();
}

// Whether an address is of pinned memory, and whether so many bytes there are.
enum class Host { PAGEABLE, PINNED, BEYOND };

inline Host host_of(Device& device, uint64_t address, uint64_t bytes) {
    auto after = device.pinned.upper_bound(address);
    if (after == device.pinned.begin()) return Host::PAGEABLE;
    const auto& [first, size] = *std::prev(after);
    if (address - first >= size) return Host::PAGEABLE;
    return bytes <= size - (address - first) ? Host::PINNED : Host::BEYOND;
}

inline bool is_allocated(Device& device, uint64_t address, uint64_t bytes) {
    const Allocation* allocation = device.arena.of(address, bytes);
    return allocation && !allocation->is_released;
}

inline int copy(Device& device, Stream& stream, Work work, Engine engine, uint64_t host, bool waits) {
    if (work.bytes == 0) return SUCCESS;
    if (work.to_device && !is_allocated(device, work.to, work.bytes)) return INVALID_VALUE;
    if (work.from_device && !is_allocated(device, work.from, work.bytes)) return INVALID_VALUE;
    const Host kind = host ? host_of(device, host, work.bytes) : Host::PINNED;
    if (kind == Host::BEYOND) return INVALID_VALUE;
    // Memory that is not pinned is read before the call returns, and is written before it returns.
    if (kind == Host::PAGEABLE && work.to_device) work.held.assign((const char*)host, (const char*)host + work.bytes);
    waits = waits || (kind == Host::PAGEABLE && !work.to_device);
    const double takes = (double)work.bytes / device.settings.copy_bytes_per_s * 1e9;
    device.put(stream, engine, (int64_t)takes, std::move(work));
    if (waits) {
        sleep_until(stream.end);
        device.run(stream);
    }
    return device.ended;
}

inline int copy_in(Device& device, Stream& stream, uint64_t to, const void* from, size_t bytes, bool waits) {
    Work work{Kind::COPY};
    work.to = to, work.from = (uint64_t)from, work.bytes = bytes, work.to_device = true;
    return copy(device, stream, std::move(work), COPIES_IN, (uint64_t)from, waits);
}

inline int copy_out(Device& device, Stream& stream, void* to, uint64_t from, size_t bytes, bool waits) {
    Work work{Kind::COPY};
    work.to = (uint64_t)to, work.from = from, work.bytes = bytes, work.from_device = true;
    return copy(device, stream, std::move(work), COPIES_OUT, (uint64_t)to, waits);
}

inline bool attribute_of(const Settings& settings, int ordinal, int attribute, int* value) {
    const Card& card = *settings.card;
    const int known[][2] = {
        {1, THREADS_MAX},  // MAX_THREADS_PER_BLOCK
        {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535},
        {8, SHARED_USUAL},  // MAX_SHARED_MEMORY_PER_BLOCK
        {9, 65536},         // TOTAL_CONSTANT_MEMORY
        {10, 32},           // WARP_SIZE
        {12, 65536},        // MAX_REGISTERS_PER_BLOCK
        {13, card.clock_khz},
        {16, settings.multiprocessors},
        {18, 0},  // INTEGRATED
        {31, 1},  // CONCURRENT_KERNELS
        {36, card.memory_khz},
        {37, card.bus_bits},
        {38, card.l2_bytes},
        {39, 2048},  // MAX_THREADS_PER_MULTIPROCESSOR
        {40, settings.copy_engines},  // ASYNC_ENGINE_COUNT
        {41, 1},     // UNIFIED_ADDRESSING
        {75, card.major},
        {76, card.minor},
        {81, card.shared_multiprocessor},
        {82, 65536},  // MAX_REGISTERS_PER_MULTIPROCESSOR
        {83, 1},      // MANAGED_MEMORY
        {87, card.f32_per_f64},  // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
        {88, card.is_coherent || settings.hmm},  // PAGEABLE_MEMORY_ACCESS
        {89, card.major > 7},                    // CONCURRENT_MANAGED_ACCESS
        {100, card.is_coherent},                 // PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
        {97, card.shared_optin},
        {106, 32},    // MAX_BLOCKS_PER_MULTIPROCESSOR
        {111, 1024},  // RESERVED_SHARED_MEMORY_PER_BLOCK
        {115, 1},     // MEMORY_POOLS_SUPPORTED
        {134, ordinal % 2},  // HOST_NUMA_ID
    };
    for (const auto& [number, figure] : known) {
        if (number == attribute) return *value = figure, true;
    }
    return false;
}

// A text that lives until this thread's next call: with what a kernel did wrong, where that is known.
inline const char* text_with_problem(const ResultText& result) {
    static thread_local std::string text;
    text = result.text;
    if (result.ends_context && current) {
        std::lock_guard<std::recursive_mutex> guard(current->mutex);
        if (current->ended == result.code && !current->problem.empty()) text += ": " + current->problem;
    }
    return text.c_str();
}
