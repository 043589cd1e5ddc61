// A `libcuda.so.1` for tests: the driver's functions that are called by Trawl and by cudarc, on devices of device.h.
//
// As strict as the real one: unknown handles, pointers that are no device's, sizes beyond an allocation, contexts of other
// devices and launches beyond a device's limits are refused with its results. A fault within a kernel ends the context. Of
// what is not called here there is nothing, or CUDA_ERROR_NOT_SUPPORTED.
#include "collectives.h"
#include "graphs.h"
#include "process.h"
#include "tests.h"

constexpr int PRIORITY_GREATEST = -5;

extern "C" {

// The driver's functions.

int cuInit(unsigned flags) {
    NO_CONTEXT;
    if (flags != 0) return INVALID_VALUE;
    std::lock_guard<std::mutex> guard(process().mutex);
    process().is_initialised = true;
    return SUCCESS;
}

int cuDriverGetVersion(int* version) {
    NO_CONTEXT;
    if (!version) return INVALID_VALUE;
    *version = 13000;
    return SUCCESS;
}

int cuGetErrorString(int code, const char** text) {
    const ResultText* result = text_of(code);
    *text = result ? text_with_problem(*result) : nullptr;
    return result ? SUCCESS : INVALID_VALUE;
}

int cuGetErrorName(int code, const char** text) {
    const ResultText* result = text_of(code);
    *text = result ? result->name : nullptr;
    return result ? SUCCESS : INVALID_VALUE;
}

int cuDeviceGetCount(int* count) {
    NO_CONTEXT;
    if (!count) return INVALID_VALUE;
    std::lock_guard<std::mutex> guard(process().mutex);
    *count = (int)process().devices.size();
    return SUCCESS;
}

int cuDeviceGet(int* handle, int ordinal) {
    NO_CONTEXT;
    if (!handle) return INVALID_VALUE;
    if (!device_of(ordinal)) return INVALID_DEVICE;
    *handle = ordinal;
    return SUCCESS;
}

int cuDeviceGetName(char* name, int size, int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    if (!name || size <= 0) return INVALID_VALUE;
    // A slice's name ends in its profile, as the real driver's does; here in front of the word that says what this is.
    std::string text = device->settings.card->name;
    if (device->is_slice()) text.insert(text.rfind(" ("), " MIG " + device->settings.profile);
    snprintf(name, (size_t)size, "%s", text.c_str());
    return SUCCESS;
}

// Of a slice the whole GPU's; the newer function names the slice.
int cuDeviceGetUuid(unsigned char* uuid, int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    if (!uuid) return INVALID_VALUE;
    memcpy(uuid, uuid_of(*device, false).data(), 16);
    return SUCCESS;
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    if (!uuid) return INVALID_VALUE;
    memcpy(uuid, uuid_of(*device, device->is_slice()).data(), 16);
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t* bytes, int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    if (!bytes) return INVALID_VALUE;
    *bytes = device->settings.memory_bytes;
    return SUCCESS;
}

int cuDeviceGetAttribute(int* value, int attribute, int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    return value && attribute_of(device->settings, handle, attribute, value) ? SUCCESS : INVALID_VALUE;
}

int cuDeviceGetPCIBusId(char* text, int bytes, int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    if (!text || bytes < 13) return INVALID_VALUE;
    snprintf(text, (size_t)bytes, "FFFF:%02X:00.0", (unsigned)handle & 255);
    return SUCCESS;
}

int cuDeviceGetMemPool(void** pool, int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    if (!pool) return INVALID_VALUE;
    *pool = &device->arena;
    return SUCCESS;
}

int cuDeviceGetDefaultMemPool(void** pool, int handle) { return cuDeviceGetMemPool(pool, handle); }

int cuDevicePrimaryCtxRetain(void** context, int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    if (!context) return INVALID_VALUE;
    std::lock_guard<std::mutex> guard(process().mutex);
    device->retained += 1;
    *context = device;
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int handle) {
    NO_CONTEXT;
    Device* device = device_of(handle);
    if (!device) return INVALID_DEVICE;
    std::lock_guard<std::recursive_mutex> guard(device->mutex);
    std::lock_guard<std::mutex> all(process().mutex);
    if (device->retained == 0) return INVALID_CONTEXT;
    if (--device->retained == 0) device->destroy();
    return SUCCESS;
}

int cuCtxGetCurrent(void** context) {
    NO_CONTEXT;
    if (!context) return INVALID_VALUE;
    *context = current;
    return SUCCESS;
}

int cuCtxSetCurrent(void* context) {
    NO_CONTEXT;
    if (context && !is_context(context)) return INVALID_CONTEXT;
    current = (Device*)context;
    return SUCCESS;
}

int cuCtxGetDevice(int* handle) {
    IN_CONTEXT;
    *handle = device.ordinal;
    return SUCCESS;
}

int cuCtxSynchronize() {
    IN_CONTEXT;
    int64_t end = 0;
    for (auto& [handle, stream] : device.streams) end = std::max(end, stream->end);
    sleep_until(end, guard);
    device.run_all();
    // What waits for other devices.
    for (bool is_idle = false; !is_idle && device.ended == SUCCESS;) {
        is_idle = std::all_of(device.streams.begin(), device.streams.end(), [](auto& one) { return one.second->work.empty(); });
        if (!is_idle) wait_a_little(guard);
        device.run_all();
    }
    device.waited();
    return device.ended;
}

int cuStreamCreate(void** handle, unsigned flags) {
    IN_CONTEXT;
    if (!handle || flags > 1) return INVALID_VALUE;
    auto stream = std::make_unique<Stream>(Stream{&device, {}});
    *handle = stream.get();
    device.streams[*handle] = std::move(stream);
    return SUCCESS;
}

int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    IN_CONTEXT;
    if (least) *least = 0;
    if (greatest) *greatest = PRIORITY_GREATEST;
    return device.ended;
}

// A priority beyond the range is the nearest one, as the real driver does.
int cuStreamCreateWithPriority(void** handle, unsigned flags, int priority) {
    IN_CONTEXT;
    const int made = cuStreamCreate(handle, flags);
    if (made == SUCCESS) device.stream_of(*handle)->priority = std::min(0, std::max(PRIORITY_GREATEST, priority));
    return made;
}

int cuStreamDestroy_v2(void* handle) {
    IN_CONTEXT;
    STREAM(stream, handle);
    if (!handle) return INVALID_HANDLE;
    device.run(*stream);
    const auto forget = [&](const std::shared_ptr<Record>& mark) {
        if (mark && mark->stream == stream) mark->stream = nullptr;
    };
    for (auto& [key, event] : device.events) forget(event->last);
    for (auto& [key, instance] : device.instances) forget(instance->done->last);
    for (auto& [key, other] : device.streams) {
        for (const Work& work : other->work) forget(work.mark);
    }
    device.streams.erase(handle);
    return device.ended;
}

int cuStreamQuery(void* handle) {
    IN_CONTEXT;
    STREAM(stream, handle);
    if (now_ns() < stream->end) return NOT_READY;
    device.run(*stream);
    if (device.ended == SUCCESS && !stream->work.empty()) return NOT_READY;
    return device.ended;
}

int cuStreamSynchronize(void* handle) {
    IN_CONTEXT;
    STREAM(now, handle);
    sleep_until(now->end, guard);
    STREAM(stream, handle);
    device.run(*stream);
    while (device.ended == SUCCESS && !stream->work.empty()) {
        wait_a_little(guard);
        device.run(*stream);
    }
    device.waited();
    return device.ended;
}

int cuStreamWaitEvent(void* handle, void* of, unsigned flags) {
    IN_CONTEXT;
    STREAM(stream, handle);
    EVENT(event, of);
    if (flags > 1) return INVALID_VALUE;
    device.wait(*stream, *event);
    return device.ended;
}

int cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
    IN_CONTEXT;
    if (!address || bytes == 0 || flags > 7) return INVALID_VALUE;
    // Pages of its own, which are gone when it is freed: thousands of devices in one process would leave holes in the heap.
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return OUT_OF_MEMORY;
    memset(*address = pages, FRESH, bytes);
    device.pinned[(uint64_t)*address] = bytes;
    return SUCCESS;
}

int cuMemFreeHost(void* address) {
    IN_CONTEXT;
    auto found = device.pinned.find((uint64_t)address);
    if (found == device.pinned.end()) return INVALID_VALUE;
    device.run_all();
    munmap(address, found->second);
    device.pinned.erase(found);
    return device.ended;
}

int cuMemGetInfo_v2(size_t* free, size_t* total) {
    IN_CONTEXT;
    if (!free || !total) return INVALID_VALUE;
    *free = device.free_bytes();
    *total = device.settings.memory_bytes;
    return SUCCESS;
}

int cuMemAllocAsync(uint64_t* address, size_t bytes, void* handle) {
    IN_CONTEXT;
    STREAM(stream, handle);
    if (!address || bytes == 0) return INVALID_VALUE;
    device.counts.allocations += 1;
    *address = device.allocate(*stream, bytes, false);
    return *address ? device.ended : (int)OUT_OF_MEMORY;
}

int cuMemFreeAsync(uint64_t address, void* handle) {
    IN_CONTEXT;
    STREAM(stream, handle);
    Allocation* allocation = device.arena.at(address);
    if (!allocation || allocation->is_released) return INVALID_VALUE;
    allocation->is_released = true;
    stream->leaving_bytes += rounded(allocation->bytes, ALIGNMENT);
    stream->leaving_used += allocation->bytes;
    Work work{Kind::BURIAL};
    work.to = address, work.bytes = allocation->bytes;
    device.put(*stream, NO_ENGINE, 0, std::move(work));
    return device.ended;
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    IN_CONTEXT;
    if (!address || bytes == 0) return INVALID_VALUE;
    device.counts.allocations += 1;
    *address = device.allocate(*device.stream_of(nullptr), bytes, true);
    return *address ? device.ended : (int)OUT_OF_MEMORY;
}

int cuMemAllocManaged(uint64_t* address, size_t bytes, unsigned flags) {
    IN_CONTEXT;
    if (!address || bytes == 0 || (flags != 1 && flags != 2)) return INVALID_VALUE;
    device.counts.allocations += 1;
    *address = device.allocate(*device.stream_of(nullptr), bytes, true);
    if (!*address) return OUT_OF_MEMORY;
    device.arena.at(*address)->is_managed = true;
    return device.ended;
}

// A place in memory, as it is passed by value: a kind, and a number.
struct Location {
    int kind, id;
};

static int managed_at(Device& device, uint64_t address, size_t bytes, Location to) {
    const Allocation* allocation = device.arena.of(address, bytes);
    if (bytes == 0 || !allocation || !allocation->is_managed || allocation->is_released) return INVALID_VALUE;
    return to.kind == 1 && to.id != device.ordinal ? (int)INVALID_DEVICE : (int)SUCCESS;
}

int cuMemAdvise_v2(uint64_t address, size_t bytes, int advice, Location to) {
    IN_CONTEXT;
    if (advice < 1 || advice > 6) return INVALID_VALUE;
    return managed_at(device, address, bytes, to);
}

int cuMemPrefetchAsync_v2(uint64_t address, size_t bytes, Location to, unsigned flags, void* handle) {
    IN_CONTEXT;
    STREAM(stream, handle);
    if (flags != 0) return INVALID_VALUE;
    if (const int wrong = managed_at(device, address, bytes, to)) return wrong;
    Work work{Kind::MOVE};
    work.to = address, work.bytes = bytes;
    device.put(*stream, COPIES_IN, (int64_t)((double)bytes / device.settings.copy_bytes_per_s * 1e9), std::move(work));
    return device.ended;
}

// Waits for all work of the device, as the real one does.
int cuMemFree_v2(uint64_t address) {
    IN_CONTEXT;
    if (!address) return SUCCESS;
    const Allocation* now = device.arena.at(address);
    if (!now || now->is_released) return INVALID_VALUE;
    int64_t end = 0;
    for (auto& [handle, stream] : device.streams) end = std::max(end, stream->end);
    sleep_until(end, guard);
    device.run_all();
    const Allocation* allocation = device.arena.at(address);
    if (!allocation || allocation->is_released) return INVALID_VALUE;
    if (device.ended == SUCCESS) device.bury(address, allocation->bytes);
    return device.ended;
}

int cuMemPoolSetAttribute(void* pool, int attribute, void* value) {
    IN_CONTEXT;
    if (pool != &device.arena || !value) return INVALID_VALUE;
    if (attribute >= 1 && attribute <= 3) {
        device.reuse[attribute - 1] = *(int*)value;
    } else if (attribute == 4) {
        device.threshold = *(uint64_t*)value;
    } else {
        return INVALID_VALUE;
    }
    return SUCCESS;
}

int cuMemPoolTrimTo(void* pool, size_t bytes) {
    IN_CONTEXT;
    if (pool != &device.arena) return INVALID_VALUE;
    device.counts.trims += 1;
    device.trim(bytes);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* handle) {
    IN_CONTEXT;
    STREAM(stream, handle);
    return copy_in(device, *stream, to, from, bytes, false);
}

int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* handle) {
    IN_CONTEXT;
    STREAM(stream, handle);
    return copy_out(device, *stream, to, from, bytes, false);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* handle) {
    IN_CONTEXT;
    STREAM(stream, handle);
    Work work{Kind::COPY};
    work.to = to, work.from = from, work.bytes = bytes, work.to_device = work.from_device = true;
    return copy(device, *stream, std::move(work), KERNELS, 0, false);
}

int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
    IN_CONTEXT;
    return copy_in(device, *device.stream_of(nullptr), to, from, bytes, true);
}

int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
    IN_CONTEXT;
    return copy_out(device, *device.stream_of(nullptr), to, from, bytes, true);
}

int cuModuleLoadData(void** handle, const void* image) {
    IN_CONTEXT;
    if (!handle || !image) return INVALID_VALUE;
    return device.load(image, (Module**)handle);
}

int cuModuleGetFunction(void** handle, void* of, const char* name) {
    IN_CONTEXT;
    auto found = device.modules.find(of);
    if (found == device.modules.end()) return INVALID_HANDLE;
    if (!handle || !name) return INVALID_VALUE;
    Module* module = found->second.get();
    auto symbol = [&](const char* end) { return dlsym(module->library, (std::string(name) + end).c_str()); };
    auto function = std::make_unique<Function>();
    function->module = module;
    function->entry = (decltype(function->entry))symbol("_emulated");
    function->fault = (decltype(function->fault))symbol("_fault");
    auto bytes = (uint64_t(*)())symbol("_argument_bytes");
    if (!function->entry || !function->fault || !bytes) return NOT_FOUND;
    function->argument_bytes = bytes();
    *handle = function.get();
    device.functions[*handle] = std::move(function);
    return SUCCESS;
}

int cuFuncSetAttribute(void* handle, int attribute, int value) {
    IN_CONTEXT;
    auto found = device.functions.find(handle);
    if (found == device.functions.end()) return INVALID_HANDLE;
    if (attribute == 8) {
        if (value < 0 || value > device.settings.card->shared_optin) return INVALID_VALUE;
        found->second->shared_max = value;
    } else if (attribute == 9) {
        if (value < -1 || value > 100) return INVALID_VALUE;
        found->second->carve_out = value;
    } else {
        return INVALID_VALUE;
    }
    return SUCCESS;
}

int cuLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, void* on, void** parameters, void** extra) {
    IN_CONTEXT;
    STREAM(stream, on);
    Work work{Kind::LAUNCH};
    const KernelParameters of{handle, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, parameters, extra, nullptr, nullptr};
    if (const int wrong = work_of(device, of, &work)) return wrong;
    device.counts.launches += 1;
    put_kernel(device, *stream, std::move(work), device.settings.launch_ns);
    return device.ended;
}

int cuEventCreate(void** handle, unsigned flags) {
    IN_CONTEXT;
    if (!handle || flags > 7) return INVALID_VALUE;
    auto event = std::make_unique<Event>(Event{&device, (flags & 2) == 0});
    *handle = event.get();
    device.events[*handle] = std::move(event);
    return SUCCESS;
}

int cuEventDestroy_v2(void* handle) {
    IN_CONTEXT;
    // Who waits for it waits for its record.
    return device.events.erase(handle) == 0 ? INVALID_HANDLE : SUCCESS;
}

int cuEventRecord(void* handle, void* on) {
    IN_CONTEXT;
    STREAM(stream, on);
    EVENT(event, handle);
    device.record(*stream, *event);
    return device.ended;
}

int cuEventQuery(void* handle) {
    IN_CONTEXT;
    EVENT(event, handle);
    if (!event->last) return SUCCESS;
    if (now_ns() < event->at) return NOT_READY;
    if (!event->is_reached() && event->last->stream) device.run(*event->last->stream, event->last.get());
    if (device.ended == SUCCESS && !event->is_reached()) return NOT_READY;
    return device.ended;
}

int cuEventSynchronize(void* handle) {
    IN_CONTEXT;
    EVENT(now, handle);
    if (!now->last) return SUCCESS;
    sleep_until(now->at, guard);
    EVENT(event, handle);
    // The one that is the last now, whatever is recorded meanwhile.
    const std::shared_ptr<Record> last = event->last;
    while (!last->is_reached && last->stream && device.ended == SUCCESS) {
        device.run(*last->stream, last.get());
        if (!last->is_reached) wait_a_little(guard);
    }
    device.waited();
    return device.ended;
}

int cuEventElapsedTime_v2(float* ms, void* first, void* last) {
    IN_CONTEXT;
    EVENT(one, first);
    EVENT(other, last);
    if (!ms) return INVALID_VALUE;
    if (!one->is_timed || !other->is_timed || !one->last || !other->last) return INVALID_HANDLE;
    const bool are_reached = one->is_reached() && other->is_reached();
    if (!are_reached || now_ns() < std::max(one->at, other->at)) return NOT_READY;
    *ms = (float)((double)(other->at - one->at) / 1e6);
    return SUCCESS;
}
}
