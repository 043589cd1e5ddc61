// A `libnvidia-ml.so.1` for tests: the functions of NVML that Trawl calls, about the devices of driver.cpp, with NVML's codes.
//
// As strict as the real one: nothing works before nvmlInit_v2 and after the last nvmlShutdown, unknown handles, types and sizes are
// refused, a slice's handle is refused where a whole GPU is asked about, and a GPU in slices does not report replaced rows.
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <string>

#include "nvml.h"
#include "results.h"

constexpr char DRIVER_VERSION[] = "580.00.0";
// Types of events, and the one of XIDs.
constexpr uint64_t EVENT_TYPES = 0xFF, EVENT_XID = 0x8;

struct Handle {
    int ordinal;
    bool is_slice;
};

// As NVML lays it out.
struct EventData {
    void* device;
    uint64_t type, data;
    uint32_t gpu_instance, compute_instance;
};

struct EventSet {
    std::set<int> ordinals;
};

static std::mutex mutex;
static int initialised = 0;
// Never moved: handles are addresses.
static std::deque<Handle> handles;
static std::deque<EventSet> sets;
static std::set<EventSet*> live_sets;

// A function of the driver that this process uses, or of the one beside this library. Looked for at each call: NVML may be asked before the
// process opens its driver, which is another file than the one that is loaded then.
template <class F>
static F of_driver(const char* name) {
    void* library = nullptr;
    for (const char* loaded : {"libcuda.so", "libcuda.so.1"}) {
        void* found = library ? nullptr : dlopen(loaded, RTLD_NOW | RTLD_NOLOAD);
        if (found && dlsym(found, "trawl_test_nvml_count")) library = found;
    }
    if (!library) {
        Dl_info info;
        dladdr((void*)&mutex, &info);
        const std::string path = info.dli_fname;
        library = dlopen((path.substr(0, path.rfind('/')) + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    F function = library ? (F)dlsym(library, name) : nullptr;
    if (!function) {
        fprintf(stderr, "NVML of the test driver: no test driver beside it\n");
        abort();
    }
    return function;
}

static int count() { return of_driver<int (*)()>("trawl_test_nvml_count")(); }

static NvmlDevice read(int ordinal) {
    NvmlDevice device;
    of_driver<void (*)(int, NvmlDevice*)>("trawl_test_nvml_read")(ordinal, &device);
    return device;
}

static int called(int ordinal, const char* function) {
    return of_driver<int (*)(int, const char*)>("trawl_test_nvml_called")(ordinal, function);
}

static Handle* handle_of(void* address) {
    for (Handle& handle : handles) {
        if (&handle == address) return &handle;
    }
    return nullptr;
}

static Handle* known(int ordinal, bool is_slice) {
    for (Handle& handle : handles) {
        if (handle.ordinal == ordinal && handle.is_slice == is_slice) return &handle;
    }
    handles.push_back({ordinal, is_slice});
    return &handles.back();
}

#define LOCKED                                    \
    std::lock_guard<std::mutex> guard(mutex);     \
    if (initialised == 0) return NVML_UNINITIALIZED

// Of one device: `handle`.
#define OF_DEVICE(ADDRESS)                                 \
    LOCKED;                                                \
    Handle* handle = handle_of(ADDRESS);                   \
    if (!handle) return NVML_INVALID_ARGUMENT;             \
    if (const int wanted = called(handle->ordinal, __func__)) return wanted

// Of one whole GPU.
#define OF_WHOLE(ADDRESS) \
    OF_DEVICE(ADDRESS);   \
    if (handle->is_slice) return NVML_NOT_SUPPORTED

extern "C" {

int nvmlInit_v2() {
    std::lock_guard<std::mutex> guard(mutex);
    if (const int wanted = called(-1, __func__)) return wanted;
    initialised += 1;
    return NVML_SUCCESS;
}

int nvmlShutdown() {
    LOCKED;
    initialised -= 1;
    return NVML_SUCCESS;
}

const char* nvmlErrorString(int code) {
    for (const NvmlText& text : NVML_TEXTS) {
        if (text.code == code) return text.text;
    }
    return "Unknown Error";
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
    LOCKED;
    if (const int wanted = called(-1, __func__)) return wanted;
    if (!version) return NVML_INVALID_ARGUMENT;
    if (length < sizeof DRIVER_VERSION) return NVML_INSUFFICIENT_SIZE;
    memcpy(version, DRIVER_VERSION, sizeof DRIVER_VERSION);
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
    LOCKED;
    if (!uuid || !device) return NVML_INVALID_ARGUMENT;
    for (int ordinal = 0; ordinal < count(); ++ordinal) {
        const NvmlDevice found = read(ordinal);
        const bool is_own = strcmp(uuid, found.uuid) == 0;
        if (!is_own && strcmp(uuid, found.whole) != 0) continue;
        if (const int wanted = called(ordinal, __func__)) return wanted;
        *device = known(ordinal, is_own && found.is_slice);
        return NVML_SUCCESS;
    }
    return NVML_NOT_FOUND;
}

int nvmlDeviceIsMigDeviceHandle(void* device, unsigned* is_slice) {
    OF_DEVICE(device);
    if (!is_slice) return NVML_INVALID_ARGUMENT;
    *is_slice = handle->is_slice;
    return NVML_SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* slice, void** device) {
    OF_DEVICE(slice);
    if (!device || !handle->is_slice) return NVML_INVALID_ARGUMENT;
    *device = known(handle->ordinal, false);
    return NVML_SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(void* slice, unsigned* instance) {
    OF_DEVICE(slice);
    if (!instance) return NVML_INVALID_ARGUMENT;
    if (!handle->is_slice) return NVML_NOT_SUPPORTED;
    *instance = OWN_INSTANCE;
    return NVML_SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter, unsigned long long* errors) {
    OF_WHOLE(device);
    if (!errors || type < 0 || type > 1 || counter < 0 || counter > 1) return NVML_INVALID_ARGUMENT;
    const NvmlDevice found = read(handle->ordinal);
    if (!found.counts) return NVML_NOT_SUPPORTED;
    *errors = type == 1 ? found.errors : 0;
    return NVML_SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void* device, int* is_pending) {
    OF_WHOLE(device);
    if (!is_pending) return NVML_INVALID_ARGUMENT;
    // Cards that replace rows retire no pages.
    return NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* is_pending, unsigned* has_failed) {
    OF_WHOLE(device);
    if (!corrected || !uncorrected || !is_pending || !has_failed) return NVML_INVALID_ARGUMENT;
    const NvmlDevice found = read(handle->ordinal);
    if (found.is_slice || !found.counts) return NVML_NOT_SUPPORTED;
    *corrected = 0, *uncorrected = (unsigned)found.errors, *is_pending = found.is_pending, *has_failed = found.has_failed;
    return NVML_SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
    OF_WHOLE(device);
    if (!reasons) return NVML_INVALID_ARGUMENT;
    *reasons = read(handle->ordinal).throttle;
    return NVML_SUCCESS;
}

int nvmlEventSetCreate(void** set) {
    LOCKED;
    if (const int wanted = called(-1, __func__)) return wanted;
    if (!set) return NVML_INVALID_ARGUMENT;
    sets.emplace_back();
    live_sets.insert(&sets.back());
    *set = &sets.back();
    return NVML_SUCCESS;
}

int nvmlEventSetFree(void* set) {
    LOCKED;
    return live_sets.erase((EventSet*)set) ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
    OF_WHOLE(device);
    if (!live_sets.count((EventSet*)set) || types == 0 || (types & ~EVENT_TYPES)) return NVML_INVALID_ARGUMENT;
    if (types & EVENT_XID) ((EventSet*)set)->ordinals.insert(handle->ordinal);
    return NVML_SUCCESS;
}

int nvmlEventSetWait_v2(void* set, EventData* data, unsigned) {
    LOCKED;
    if (const int wanted = called(-1, __func__)) return wanted;
    if (!live_sets.count((EventSet*)set) || !data) return NVML_INVALID_ARGUMENT;
    const auto next = of_driver<int (*)(int, uint64_t*, uint32_t*)>("trawl_test_nvml_xid");
    for (int ordinal : ((EventSet*)set)->ordinals) {
        uint64_t number;
        uint32_t instance;
        if (!next(ordinal, &number, &instance)) continue;
        *data = {known(ordinal, false), EVENT_XID, number, instance, NO_INSTANCE};
        return NVML_SUCCESS;
    }
    // Nothing comes while a test waits for it.
    return NVML_TIMEOUT;
}
}
