// A `libnccl.so.2` for tests: communicators of the test driver's devices, and all-gathers between them.
//
// As strict as the real one: devices that there are not or that are named twice, communicators that were aborted or destroyed,
// streams of other devices are refused with its results; ranks that do not come, or that differ about the size, wait for
// ever, until the communicator is aborted. The n-th collective of a device can be had to wait for ever (`stall=`), the end of a
// group not to return (`hang=`), and every call to return any result (`fault=`).
#include <dlfcn.h>
#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

enum { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
constexpr int VERSION = 22703;
// Bytes of each type, by NCCL's numbers.
constexpr int SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

// The functions of the driver that is loaded.
static void* driver_function(const char* name) {
    for (const char* library : {"libcuda.so", "libcuda.so.1"}) {
        void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
        if (void* found = handle ? dlsym(handle, name) : nullptr) return found;
    }
    fprintf(stderr, "the test driver's libnccl.so.2 finds no driver with %s\n", name);
    abort();
}

template <typename F>
static F of_driver(const char* name) {
    return (F)driver_function(name);
}

struct Clique {
    std::vector<int> ordinals;
    // Collectives by their number in each rank's order.
    std::map<uint64_t, void*> collectives;
    bool is_aborted = false;
};

struct Communicator {
    std::shared_ptr<Clique> clique;
    int rank;
    uint64_t next = 0;
};

struct Gather {
    Communicator* communicator;
    uint64_t send, receive, bytes;
    void* stream;
};

static std::mutex mutex;
static std::set<Communicator*> live;
static thread_local int depth = 0;
static thread_local std::vector<Gather> group;

static int wanted(int ordinal, const char* function) { return of_driver<int (*)(int, const char*)>("trawl_test_collective_call")(ordinal, function); }

static Communicator* known(void* handle) {
    auto found = live.find((Communicator*)handle);
    return found == live.end() ? nullptr : *found;
}

static int post(const Gather& gather) {
    std::lock_guard<std::mutex> guard(mutex);
    Communicator* communicator = known(gather.communicator);
    if (!communicator) return INVALID_ARGUMENT;
    Clique& clique = *communicator->clique;
    void*& collective = clique.collectives[communicator->next++];
    if (!collective) collective = of_driver<void* (*)(int)>("trawl_test_collective")((int)clique.ordinals.size());
    const int ordinal = clique.ordinals[(size_t)communicator->rank];
    return of_driver<int (*)(void*, int, int, void*, uint64_t, uint64_t, uint64_t)>("trawl_test_collective_post")(
        collective, communicator->rank, ordinal, gather.stream, gather.send, gather.receive, gather.bytes);
}

extern "C" {

int ncclGetVersion(int* version) {
    if (!version) return INVALID_ARGUMENT;
    *version = VERSION;
    return SUCCESS;
}

const char* ncclGetErrorString(int result) {
    switch (result) {
        case SUCCESS: return "no error";
        case UNHANDLED_CUDA_ERROR: return "unhandled cuda error";
        case SYSTEM_ERROR: return "unhandled system error";
        case INTERNAL_ERROR: return "internal error";
        case INVALID_ARGUMENT: return "invalid argument";
        case INVALID_USAGE: return "invalid usage";
        case REMOTE_ERROR: return "remote process exited or there was a network error";
        case IN_PROGRESS: return "NCCL operation in progress";
        default: return "unknown result code";
    }
}

int ncclCommInitAll(void** handles, int count, const int* devices) {
    if (!handles || count < 1) return INVALID_ARGUMENT;
    auto clique = std::make_shared<Clique>();
    std::set<int> distinct;
    for (int rank = 0; rank < count; ++rank) {
        const int ordinal = devices ? devices[rank] : rank;
        if (!distinct.insert(ordinal).second) return INVALID_USAGE;
        const int result = wanted(ordinal, "ncclCommInitAll");
        if (result != 0) return result < 0 ? (int)UNHANDLED_CUDA_ERROR : result;
        clique->ordinals.push_back(ordinal);
    }
    std::lock_guard<std::mutex> guard(mutex);
    for (int rank = 0; rank < count; ++rank) {
        auto* communicator = new Communicator{clique, rank};
        live.insert(communicator);
        handles[rank] = communicator;
    }
    return SUCCESS;
}

int ncclGroupStart() {
    ++depth;
    return SUCCESS;
}

int ncclAllGather(const void* send, void* receive, size_t count, int type, void* handle, void* stream) {
    int ordinal;
    {
        std::lock_guard<std::mutex> guard(mutex);
        Communicator* communicator = known(handle);
        if (!communicator || type < 0 || type > 9) return INVALID_ARGUMENT;
        ordinal = communicator->clique->ordinals[(size_t)communicator->rank];
    }
    if (const int result = wanted(ordinal, "ncclAllGather")) return result;
    if (count > 0 && (!send || !receive)) return INVALID_ARGUMENT;
    const Gather gather{(Communicator*)handle, (uint64_t)send, (uint64_t)receive, count * (uint64_t)SIZES[type], stream};
    if (depth > 0) {
        group.push_back(gather);
        return SUCCESS;
    }
    return post(gather);
}

int ncclGroupEnd() {
    if (depth == 0) return INVALID_USAGE;
    if (--depth > 0) return SUCCESS;
    std::vector<Gather> all;
    all.swap(group);
    int result = SUCCESS;
    for (const Gather& gather : all) {
        std::shared_ptr<Clique> clique;
        int ordinal = 0;
        {
            std::lock_guard<std::mutex> guard(mutex);
            Communicator* communicator = known(gather.communicator);
            if (!communicator) return INVALID_ARGUMENT;
            clique = communicator->clique;
            ordinal = clique->ordinals[(size_t)communicator->rank];
        }
        if (const int wrong = wanted(ordinal, "ncclGroupEnd")) return wrong;
        if (of_driver<int (*)(int)>("trawl_test_collective_hangs")(ordinal)) {
            for (;;) {
                usleep(1000);
                std::lock_guard<std::mutex> guard(mutex);
                if (clique->is_aborted) return REMOTE_ERROR;
            }
        }
        const int posted = post(gather);
        if (posted != SUCCESS) result = posted;
    }
    return result;
}

int ncclCommGetAsyncError(void* handle, int* error) {
    std::lock_guard<std::mutex> guard(mutex);
    Communicator* communicator = known(handle);
    if (!communicator || !error) return INVALID_ARGUMENT;
    *error = wanted(communicator->clique->ordinals[(size_t)communicator->rank], "ncclCommGetAsyncError");
    return SUCCESS;
}

int ncclCommAbort(void* handle) {
    std::lock_guard<std::mutex> guard(mutex);
    Communicator* communicator = known(handle);
    if (!communicator) return INVALID_ARGUMENT;
    Clique& clique = *communicator->clique;
    wanted(clique.ordinals[(size_t)communicator->rank], "ncclCommAbort");
    clique.is_aborted = true;
    for (auto& [number, collective] : clique.collectives) of_driver<void (*)(void*)>("trawl_test_collective_abort")(collective);
    live.erase(communicator);
    delete communicator;
    return SUCCESS;
}

int ncclCommDestroy(void* handle) {
    std::lock_guard<std::mutex> guard(mutex);
    Communicator* communicator = known(handle);
    if (!communicator) return INVALID_ARGUMENT;
    wanted(communicator->clique->ordinals[(size_t)communicator->rank], "ncclCommDestroy");
    live.erase(communicator);
    delete communicator;
    return SUCCESS;
}
}
