// What tests and nvml.cpp ask of the driver, which the real one does not have. Included once, by driver.cpp.
#pragma once
#include "nvml.h"
#include "process.h"

// Appends what each device did to the file that the environment names, when the process ends.
struct Report {
    ~Report() {
        const char* path = getenv("TRAWL_TEST_DRIVER_REPORT");
        if (!path) return;
        std::string lines;
        for (Device& device : process().devices) {
            std::lock_guard<std::recursive_mutex> guard(device.mutex);
            const Counts& c = device.counts;
            auto add = [&](const char* name, uint64_t value) { lines += std::string("\"") + name + "\":" + std::to_string(value) + ","; };
            lines += "{";
            add("device", (uint64_t)device.ordinal), add("launches", c.launches), add("modules", c.modules);
            add("kernels", c.kernels), add("graph_launches", c.graph_launches);
            add("allocations", c.allocations), add("most_bytes", c.most_bytes), add("copies_in", c.copies_in);
            add("bytes_in", c.bytes_in), add("copies_out", c.copies_out), add("bytes_out", c.bytes_out);
            lines += "\"ended\":" + std::to_string(device.ended) + "}\n";
        }
        if (FILE* file = fopen(path, "a")) {
            fwrite(lines.data(), 1, lines.size(), file);
            fclose(file);
        }
    }
};

static Report report;

extern "C" {

int trawl_test_device(const char* settings) {
    Process& all = process();
    const Settings parsed = settings_of(settings);
    std::lock_guard<std::mutex> guard(all.mutex);
    all.devices.emplace_back((int)all.devices.size(), parsed);
    return all.devices.back().ordinal;
}

void trawl_test_counts(int ordinal, Counts* counts) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    *counts = device->counts;
    counts->used_bytes = device->used_bytes;
    counts->live_allocations = device->arena.count();
    counts->live_events = device->events.size();
    counts->live_graphs = device->graphs.size() + device->instances.size();
    for (const auto& [address, bytes] : device->pinned) counts->pinned_bytes += bytes;
}

// Memory of a device as it is now; no copy that counts.
bool trawl_test_read(int ordinal, uint64_t address, void* to, uint64_t bytes) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    if (!device->is_accessible(address, bytes)) return false;
    memcpy(to, (const void*)address, bytes);
    return true;
}

// A stream of another library, whose work waits until `trawl_test_go_on` if it is blocked.

void* trawl_test_stream(int ordinal) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    auto stream = std::make_unique<Stream>(Stream{device, {}});
    void* handle = stream.get();
    device->streams[handle] = std::move(stream);
    return handle;
}

void trawl_test_block(int ordinal, void* handle) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    Stream* stream = device->stream_of(handle);
    if (!stream) abort();
    Work work{Kind::WAIT};
    work.mark = std::make_shared<Record>(Record{&device->gate});
    device->gates.push_back(work.mark);
    device->put(*stream, NO_ENGINE, 0, std::move(work));
}

void trawl_test_go_on(int ordinal) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    for (auto& gate : device->gates) gate->is_reached = true;
    device->gates.clear();
}

// Lets what is in a stream happen; false if there is none, or if it waits still.
bool trawl_test_run(int ordinal, void* handle) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    Stream* stream = device->stream_of(handle);
    if (!stream) return false;
    device->run(*stream);
    return stream->work.empty();
}

// A fault as of a kernel of another library: the context has ended.
void trawl_test_end(int ordinal) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    device->end_with(ILLEGAL_ADDRESS, "by a test");
}

void trawl_test_destroy(int ordinal, void* handle) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    device->streams.erase(handle);
}

uint64_t trawl_test_calls(int ordinal, const char* function) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    return device->calls[function];
}

// Changes what NVML says of a device from now on: the words of settings.h that are about it; XIDs are reported in addition.
void trawl_test_health(int ordinal, const char* words) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    const Settings parsed = settings_of(words);
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    device->health = parsed.health;
    device->xids.insert(device->xids.end(), parsed.xids.begin(), parsed.xids.end());
}

// What nvml.cpp asks: how many devices there are, what one is, which code the settings want of a call, and an XID that was not
// reported yet. `ordinal` -1: a call that is about no device.

int trawl_test_nvml_count() {
    std::lock_guard<std::mutex> guard(process().mutex);
    return (int)process().devices.size();
}

void trawl_test_nvml_read(int ordinal, NvmlDevice* read) {
    Device* device = device_of(ordinal);
    if (!device) abort();
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    const Health& health = device->health;
    const bool has_errors = health.counts && device->counts.launches >= health.errors_from;
    *read = {};
    read->errors = has_errors ? health.errors : 0;
    read->throttle = health.throttle;
    read->counts = health.counts, read->is_pending = health.is_pending, read->has_failed = health.has_failed;
    read->is_slice = device->is_slice();
    const auto own = uuid_of(*device, device->is_slice()), whole = uuid_of(*device, false);
    snprintf(read->uuid, sizeof read->uuid, "%s", text_of_uuid(device->is_slice() ? "MIG" : "GPU", own).c_str());
    snprintf(read->whole, sizeof read->whole, "%s", text_of_uuid("GPU", whole).c_str());
}

int trawl_test_nvml_called(int ordinal, const char* function) {
    if (Device* device = device_of(ordinal)) {
        std::lock_guard<std::recursive_mutex> guard(device->mutex);
        return device->called_nvml(function);
    }
    Process& all = process();
    std::lock_guard<std::mutex> guard(all.mutex);
    const uint64_t number = ++all.calls[function];
    for (const Fault& fault : all.settings.faults) {
        if (fault.function == function && number >= fault.first && number <= fault.last) return fault.code;
    }
    return NVML_SUCCESS;
}

int trawl_test_nvml_xid(int ordinal, uint64_t* number, uint32_t* instance) {
    Device* device = device_of(ordinal);
    if (!device) return 0;
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    for (auto xid = device->xids.begin(); xid != device->xids.end(); ++xid) {
        if (device->counts.launches < xid->launch) continue;
        *number = xid->number, *instance = xid->instance;
        device->xids.erase(xid);
        return 1;
    }
    return 0;
}
}
