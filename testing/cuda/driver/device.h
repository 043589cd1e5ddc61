// A device: its context with streams, events, modules and memory.
//
// Work put into a stream is *timed* then, by figures of the settings (one copy in, one kernel and one copy out at a time, as
// on a device), and *happens* when it is waited for, at once, or in between, as the settings say: a result that is read too
// early, or a source that is changed too early, gives wrong values. Kernels run on the emulator of kernels/cuda/emulator.
#pragma once
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "collective.h"
#include "image.h"
#include "memory.h"
#include "settings.h"

constexpr int SHARED_USUAL = 49152;
constexpr int THREADS_MAX = 1024;
constexpr uint64_t ARGUMENT_BYTES_MAX = 32764;

inline int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Device;

struct Module {
    Device* device;
    void* library;
    int threads_max;
};

struct Function {
    Module* module;
    const char* (*entry)(const void*, unsigned, unsigned, uint64_t, int, uint64_t);
    bool (*fault)();
    uint64_t argument_bytes;
    int shared_max = SHARED_USUAL, carve_out = -1;
};

// A call that records an event. Who waits for it waits for this one, also where the event is recorded again, in another stream too.
struct Record {
    // None once it was destroyed.
    struct Stream* stream;
    bool is_reached = false;
};

struct Event {
    Device* device;
    bool is_timed;
    // None before the first one.
    std::shared_ptr<Record> last;
    int64_t at = 0;

    bool is_reached() const { return !last || last->is_reached; }
};

enum class Kind { COPY, LAUNCH, BIRTH, BURIAL, RECORD, WAIT, MOVE, COLLECTIVE };

struct Work {
    Kind kind;
    // COPY: addresses; those of a device are looked up again when it happens. BIRTH, BURIAL: `to`.
    uint64_t to = 0, from = 0, bytes = 0;
    bool to_device = false, from_device = false;
    // What is copied of memory that is not pinned, and a kernel's arguments: as they were when the call was made.
    std::vector<char> held;
    Function* function = nullptr;
    unsigned blocks = 0, threads = 0, shared_bytes = 0;
    uint64_t launch = 0;
    // Of a record and of what waits for one.
    std::shared_ptr<Record> mark;
    // Of a collective.
    uint64_t rank = 0;
    std::shared_ptr<Collective> collective;
};

struct Stream {
    Device* device;
    std::deque<Work> work;
    int priority = 0;
    // When all of it is done, by the device's clock.
    int64_t end = 0;
    // Bytes whose release was asked for here and did not happen yet, rounded and not: allocations of this stream alone may take them.
    uint64_t leaving_bytes = 0, leaving_used = 0;
};

struct GraphNode {
    Work work{Kind::LAUNCH};
    std::vector<GraphNode*> behind;
};

struct Graph {
    std::vector<std::unique_ptr<GraphNode>> nodes;
};

// A graph that can be launched: kernels in order, each with the node that it was made of.
struct GraphInstance {
    void* graph = nullptr;
    std::vector<std::pair<GraphNode*, Work>> kernels;
    // Behind its last launch.
    std::unique_ptr<Event> done;
};

enum Engine { COPIES_IN, KERNELS, COPIES_OUT, NO_ENGINE };

struct Counts {
    uint64_t allocations, launches, modules, trims, copies_in, bytes_in, copies_out, bytes_out, used_bytes, most_bytes,
        live_allocations, live_events, bytes_moved, kernels, graph_launches, live_graphs, gathers, pinned_bytes;
};

// The folder of this library.
inline std::string folder() {
    Dl_info info;
    dladdr((void*)now_ns, &info);
    const std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

// The kernel that runs on this thread, for the handler of signals.
inline thread_local Function* running = nullptr;
inline struct sigaction handler_before;

inline void on_fault(int signal, siginfo_t* info, void* context) {
    if (running && running->fault()) return;
    if (handler_before.sa_flags & SA_SIGINFO) {
        handler_before.sa_sigaction(signal, info, context);
    } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
        handler_before.sa_handler(signal);
    } else {
        sigaction(signal, &handler_before, nullptr);
    }
}

inline void handle_faults() {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGSEGV, &action, &handler_before);
    });
}

struct Device {
    const int ordinal;
    const Settings settings;
    std::recursive_mutex mutex;

    int retained = 0;
    // The result of every call from now on, and what the kernel did.
    int ended = SUCCESS;
    std::string problem;

    Arena arena;
    // Bytes of allocations as they were asked for, and rounded as they take memory.
    uint64_t used_bytes = 0, taken_bytes = 0;
    // Bytes that the pool keeps beside those taken; of each size where memory fragments.
    uint64_t kept_bytes = 0;
    std::map<uint64_t, uint64_t> kept;
    uint64_t threshold = 0;
    int reuse[3] = {1, 1, 1};

    std::map<uint64_t, uint64_t> pinned;
    std::map<void*, std::unique_ptr<Stream>> streams;
    std::map<void*, std::unique_ptr<Event>> events;
    std::map<void*, std::unique_ptr<Module>> modules;
    std::map<void*, std::unique_ptr<Function>> functions;
    std::map<void*, std::unique_ptr<Graph>> graphs;
    std::map<void*, std::unique_ptr<GraphInstance>> instances;
    int64_t engines[3] = {0, 0, 0};
    // Collectives put into its streams, and ends of groups with one of them.
    uint64_t collectives = 0, groups = 0;

    // What tests let streams wait for, until they say that it is there: nothing is ever put into the stream.
    Stream gate{this, {}};
    std::vector<std::shared_ptr<Record>> gates;

    std::map<std::string, uint64_t> calls;
    Counts counts = {};
    uint64_t random;
    // What NVML says of it, and the XIDs that were not reported yet.
    Health health;
    std::vector<Xid> xids;

    Device(int ordinal, const Settings& settings)
        : ordinal(ordinal), settings(settings), random(settings.seed * 2 + 1), health(settings.health), xids(settings.xids) {}

    bool is_slice() const { return !settings.profile.empty(); }

    uint64_t below(uint64_t n) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return (random >> 11) % n;
    }

    // The code that the settings want of this call of NVML, or success.
    int called_nvml(const char* function) {
        const uint64_t number = ++calls[function];
        for (const Fault& fault : settings.faults) {
            if (fault.function == function && number >= fault.first && number <= fault.last) return fault.code;
        }
        return health.is_gone ? NVML_GPU_IS_LOST : NVML_SUCCESS;
    }

    // The result that the settings want of this call, the result of all, or success.
    int called(const char* function) {
        const uint64_t number = ++calls[function];
        for (const Fault& fault : settings.faults) {
            if (fault.function == function && number >= fault.first && number <= fault.last) return end_with(fault.code, "");
        }
        return ended;
    }

    int end_with(int code, const std::string& why) {
        if (text_of(code)->ends_context && ended == SUCCESS) {
            ended = code;
            problem = why;
        }
        return code;
    }

    // The stream of a handle, 0 and 1 for the context's own, 2 for that of the calling thread, or none.
    Stream* stream_of(void* handle) {
        if ((uint64_t)handle == 1) handle = nullptr;
        if ((uint64_t)handle == 2) {
            static thread_local std::map<Device*, Stream*> own;
            if (!own[this] || !streams.count(own[this])) {
                auto stream = std::make_unique<Stream>(Stream{this, {}});
                own[this] = stream.get();
                streams[own[this]] = std::move(stream);
            }
            return own[this];
        }
        if (!handle && !streams.count(nullptr)) streams[nullptr].reset(new Stream{this, {}});
        auto found = streams.find(handle);
        return found == streams.end() ? nullptr : found->second.get();
    }

    void put(Stream& stream, Engine engine, int64_t takes, Work work) {
        // With one engine for copies, one direction is copied at a time.
        if (engine == COPIES_OUT && settings.copy_engines == 1) engine = COPIES_IN;
        const int64_t free = engine == NO_ENGINE ? 0 : engines[engine];
        stream.end = std::max({now_ns(), stream.end, free}) + takes;
        if (engine != NO_ENGINE) engines[engine] = stream.end;
        stream.work.push_back(std::move(work));
        if (settings.when == When::EARLY) {
            run(stream);
        } else if (settings.when == When::RANDOM && below(2) == 0) {
            auto some = streams.begin();
            std::advance(some, below(streams.size()));
            for (uint64_t left = below(some->second->work.size() + 1); left > 0 && !some->second->work.empty(); --left) {
                if (!one(*some->second)) break;
            }
        }
        tidy(stream);
    }

    // What takes no time happens as soon as nothing is before it.
    void tidy(Stream& stream) {
        while (!stream.work.empty() && ended == SUCCESS) {
            const Kind kind = stream.work.front().kind;
            if (kind != Kind::BIRTH && kind != Kind::BURIAL && kind != Kind::RECORD) return;
            one(stream);
        }
    }

    // Records an event behind the work of a stream.
    void record(Stream& stream, Event& event) {
        Work work{Kind::RECORD};
        work.mark = event.last = std::make_shared<Record>(Record{&stream});
        put(stream, NO_ENGINE, 0, std::move(work));
        event.at = stream.end;
    }

    // Lets a stream wait for what an event records now.
    void wait(Stream& stream, const Event& event) {
        Work work{Kind::WAIT};
        work.mark = event.last ? event.last : std::make_shared<Record>(Record{nullptr, true});
        stream.end = std::max(stream.end, event.at);
        put(stream, NO_ENGINE, 0, std::move(work));
    }

    // Lets the work of a stream happen up to a record, or all of it; as far as it does not wait for other devices.
    void run(Stream& stream, const Record* until = nullptr) {
        while (!stream.work.empty() && ended == SUCCESS && !(until && until->is_reached)) {
            if (!one(stream)) break;
        }
        tidy(stream);
    }

    void run_all() {
        for (auto& [handle, stream] : streams) run(*stream);
    }

    // Lets the next work of a stream happen; false if it waits for another device.
    bool one(Stream& stream) {
        if (const Work& next = stream.work.front(); next.kind == Kind::COLLECTIVE || next.kind == Kind::WAIT) {
            if (next.kind == Kind::COLLECTIVE ? !gather(next) : !is_reached(next)) return false;
            stream.work.pop_front();
            return true;
        }
        Work work = std::move(stream.work.front());
        stream.work.pop_front();
        switch (work.kind) {
            case Kind::COPY: copy(work); break;
            case Kind::LAUNCH: launch(work); break;
            case Kind::MOVE: move(work); break;
            case Kind::BIRTH: arena.bear(work.to); break;
            case Kind::BURIAL:
                stream.leaving_bytes -= rounded(work.bytes, ALIGNMENT);
                stream.leaving_used -= work.bytes;
                bury(work.to, work.bytes);
                break;
            case Kind::RECORD: work.mark->is_reached = true; break;
            case Kind::WAIT:
            case Kind::COLLECTIVE: break;
        }
        return true;
    }

    // Whether the record that a stream waits for is there by now.
    bool is_reached(const Work& wait) {
        // `run` takes the work that it does out of the streams.
        const std::shared_ptr<Record> mark = wait.mark;
        if (!mark->stream) return true;
        run(*mark->stream, mark.get());
        return mark->is_reached || ended != SUCCESS;
    }

    // A rank's part of an all-gather; false if the others are not there yet.
    bool gather(const Work& work) {
        static thread_local bool drives = false;
        Collective& all = *work.collective;
        const size_t rank = (size_t)work.rank;
        std::unique_lock<std::mutex> guard(all.mutex);
        if (!is_accessible(work.from, work.bytes) || !is_accessible(work.to, work.bytes * all.ranks.size())) {
            end_with(ILLEGAL_ADDRESS, "a collective of memory that there is not, or is no more");
            return true;
        }
        if (!all.ranks[rank].has_arrived) {
            all.ranks[rank].data.assign((const char*)work.from, (const char*)work.from + work.bytes);
            all.ranks[rank].has_arrived = true;
        }
        if (all.is_aborted) {
            memset((void*)work.to, GUARD, work.bytes * all.ranks.size());
            return true;
        }
        if (all.is_stalled) return false;
        if (!all.is_complete() && !drives) {
            // Other devices work by themselves; here they do when they are not asked by another thread.
            drives = true;
            for (size_t other = 0; other < all.ranks.size(); ++other) {
                Device* device = all.ranks[other].device;
                Stream* stream = all.ranks[other].stream;
                if (!device || device == this || all.ranks[other].has_arrived) continue;
                guard.unlock();
                if (device->mutex.try_lock()) {
                    device->run(*stream);
                    device->mutex.unlock();
                }
                guard.lock();
            }
            drives = false;
        }
        if (all.is_stalled || !all.is_complete()) return false;
        for (size_t other = 0; other < all.ranks.size(); ++other) {
            memcpy((char*)work.to + other * work.bytes, all.ranks[other].data.data(), work.bytes);
        }
        counts.gathers += 1;
        return true;
    }

    void copy(const Work& work) {
        const bool is_there = (!work.to_device || is_accessible(work.to, work.bytes)) &&
                              (!work.from_device || is_accessible(work.from, work.bytes));
        if (!is_there) {
            end_with(ILLEGAL_ADDRESS, "a copy of memory that another stream has not allocated yet, or has released");
            return;
        }
        const void* from = work.held.empty() ? (const void*)work.from : work.held.data();
        memmove((void*)work.to, from, work.bytes);
        if (work.to_device && !work.from_device) {
            counts.copies_in += 1;
            counts.bytes_in += work.bytes;
        } else if (!work.to_device) {
            counts.copies_out += 1;
            counts.bytes_out += work.bytes;
            for (uint64_t at = 0; settings.damage && at + 8 <= work.bytes; at += 8) *(uint64_t*)(work.to + at) ^= 1 << 20;
        }
    }

    // Pages of managed memory to the device: the content is what the host wrote.
    void move(const Work& work) {
        Allocation* allocation = arena.of(work.to, work.bytes);
        if (!allocation || !allocation->is_managed) {
            end_with(ILLEGAL_ADDRESS, "a move of memory that was released");
            return;
        }
        counts.bytes_moved += work.bytes;
    }

    bool is_accessible(uint64_t address, uint64_t bytes) {
        const Allocation* allocation = arena.of(address, bytes);
        return allocation && allocation->is_born;
    }

    void launch(const Work& work) {
        for (const Fault& fault : settings.faults) {
            if (fault.function == "kernel" && work.launch >= fault.first && work.launch <= fault.last) {
                end_with(fault.code, "");
                return;
            }
        }
        if (!settings.blank.empty() && access(settings.blank.c_str(), F_OK) == 0) return;
        handle_faults();
        running = work.function;
        const char* why = work.function->entry(work.held.data(), work.blocks, work.threads, work.shared_bytes, settings.order,
                                               settings.seed + work.launch);
        running = nullptr;
        if (why) {
            end_with(strstr(why, "memory that there is not") ? ILLEGAL_ADDRESS : LAUNCH_FAILED, why);
        } else if (!arena.is_whole()) {
            end_with(ILLEGAL_ADDRESS, "a kernel wrote beside an allocation");
        }
    }

    // An allocation of a stream, or 0. `is_now`: not in the order of the stream.
    uint64_t allocate(Stream& stream, uint64_t bytes, bool is_now) {
        const uint64_t takes = rounded(bytes, ALIGNMENT);
        auto same = kept.find(takes);
        const bool is_kept = settings.fragments && same != kept.end() && same->second > 0;
        // What leaves in this stream is gone when the allocation begins.
        const uint64_t kept_then = settings.fragments ? kept_bytes : 0;
        const uint64_t taken = taken_bytes - stream.leaving_bytes + kept_then;
        if (!is_kept && (takes > settings.memory_bytes || taken > settings.memory_bytes - takes)) return 0;
        const uint64_t address = arena.reserve(bytes);
        if (!address) return 0;
        if (is_kept) same->second -= 1;
        if (is_kept || !settings.fragments) kept_bytes -= std::min(kept_bytes, takes);
        taken_bytes += takes;
        used_bytes += bytes;
        // As the limit above: what leaves in this stream is gone when the allocation begins.
        counts.most_bytes = std::max(counts.most_bytes, used_bytes - stream.leaving_used);
        if (is_now) {
            arena.bear(address);
        } else {
            Work work{Kind::BIRTH};
            work.to = address;
            put(stream, NO_ENGINE, 0, std::move(work));
        }
        return address;
    }

    void bury(uint64_t address, uint64_t bytes) {
        const uint64_t takes = rounded(bytes, ALIGNMENT);
        if (!arena.is_whole()) end_with(ILLEGAL_ADDRESS, "something wrote beside an allocation");
        arena.bury(address);
        used_bytes -= bytes;
        taken_bytes -= takes;
        kept_bytes += takes;
        kept[takes] += 1;
    }

    void trim(uint64_t bytes) {
        if (kept_bytes + taken_bytes <= bytes) return;
        kept_bytes = bytes > taken_bytes ? bytes - taken_bytes : 0;
        kept.clear();
    }

    uint64_t free_bytes() const { return settings.memory_bytes - std::min(settings.memory_bytes, taken_bytes + kept_bytes); }

    // Memory beyond the pool's threshold goes back when something was waited for.
    void waited() {
        if (kept_bytes + taken_bytes > threshold) trim(threshold);
    }

    // Loads an image: SUCCESS, or what the real driver says of it.
    int load(const void* image, Module** loaded) {
        const Image* head = (const Image*)image;
        if (!head || !head->is_whole()) return INVALID_IMAGE;
        if (head->architecture != settings.card->major * 10 + settings.card->minor) return NO_BINARY_FOR_GPU;
        // By a name that no other image has: the loader takes one of the same name for the same.
        std::string path = folder() + "/loaded.XXXXXX";
        const int file = mkstemp(path.data());
        if (file < 0) return OUT_OF_MEMORY;
        const char* code = (const char*)(head + 1);
        uint64_t written = 0;
        for (ssize_t some = 1; some > 0 && written < head->code_bytes; written += (uint64_t)std::max<ssize_t>(some, 0)) {
            some = write(file, code + written, head->code_bytes - written);
        }
        close(file);
        void* library = written == head->code_bytes ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
        if (!library) fprintf(stderr, "the test driver cannot load a kernel: %s\n", dlerror());
        unlink(path.c_str());
        if (!library) return INVALID_IMAGE;
        auto module = std::make_unique<Module>(Module{this, library, head->threads_max});
        *loaded = module.get();
        modules[*loaded] = std::move(module);
        counts.modules += 1;
        return SUCCESS;
    }

    // Everything of the context.
    void destroy() {
        for (auto& [handle, module] : modules) dlclose(module->library);
        for (auto& [address, bytes] : pinned) munmap((void*)address, bytes);
        graphs.clear(), instances.clear(), functions.clear(), modules.clear(), events.clear(), streams.clear(), pinned.clear(), kept.clear();
        arena.~Arena();
        new (&arena) Arena();
        used_bytes = taken_bytes = kept_bytes = threshold = 0;
        ended = SUCCESS;
    }
};
