// Runs the text of kernels on a CPU: one fiber is one thread of a block, and goes on until it waits. For tests: shared
// memory is poisoned, copies in the background happen when they are waited for and not before, threads and blocks run in
// any order, and waiting of which nothing can come is an error. Built by g++ or clang++, under their sanitizers too.
//
// Built with -fsanitize=thread and EMULATOR_SHADOW, and linked without that sanitizer's library, it sees every access of a kernel:
// each cell of shared memory knows who last wrote and read it since which barrier, so that two threads which access it without
// a barrier between them are found in whatever order they run, and an access that is not aligned is an error. With
// -fsanitize=float-cast-overflow so is a number that an integer cannot hold.
//
// It knows what our kernels use: one barrier, background copies, no shuffles, no atomics, blocks of one dimension.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>
// With overloads for float.
#include <math.h>
#include <setjmp.h>
#include <ucontext.h>

#define TRAWL_EMULATOR 1
#define __global__
#define __device__
#define __host__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

#if defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* save, const void** bottom, size_t* size);
}
#define WITH_ASAN(...) __VA_ARGS__
#else
#define WITH_ASAN(...)
#endif

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define EMULATOR_SWITCHES 1
#endif

// The emulator's own accesses are no part of the kernel's races.
#define EMULATOR_QUIET __attribute__((no_sanitize("thread"), noinline)) inline

namespace emulator {

// WAITS: at the barrier of the block; VOTES: for the other lanes of its warp.
enum class State { RUNS, WAITS, VOTES, DONE };

constexpr unsigned WARP = 32;

// In which order threads and blocks run.
enum Order { FORWARD = 0, REVERSE = 1, RANDOM = 2 };

struct Index {
    unsigned x;
};

// Bytes of a copy in the background.
constexpr size_t COPY_BYTES = 16;

struct Copy {
    char* to;
    const char* from;
};

struct Fiber {
    Index thread{0};
    State state = State::DONE;
    int expected = 0;
    // What the lane said, and then what all lanes of the warp said.
    bool vote = false;
    // Groups of copies under way, the open one last.
    std::vector<std::vector<Copy>> copies;
#ifdef EMULATOR_SWITCHES
    void* at = nullptr;
#else
    ucontext_t context;
#endif
    std::vector<char> stack;
    WITH_ASAN(void* fake = nullptr;)
};

constexpr size_t STACK_BYTES = 512 * 1024;

inline Fiber* current;
inline Index block, threads;
inline std::vector<Fiber> fibers;
#ifdef EMULATOR_SWITCHES
inline void* scheduler;

// Goes on at the stack `to`, and keeps its own place in `from`: what swapcontext does without asking the system each time, which
// takes longer than most of what lies between two barriers.
__attribute__((naked, noinline, no_sanitize("thread"))) inline void switch_stack(void** from, void* to) {
    asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret");
}
#else
inline ucontext_t scheduler;
#endif
inline std::function<void()>* body;
inline char* shared;
inline std::string problem;
inline std::mutex one_launch;
// Where a launch goes on whose kernel accessed memory that there is not, and whether one runs.
inline sigjmp_buf after_fault;
inline bool runs;
WITH_ASAN(inline void* asan_fake; inline const void* asan_bottom; inline size_t asan_size;)

#ifdef EMULATOR_SHADOW
// What the threads of a block did with a number of shared memory.
struct Cell {
    // Barriers that the block had passed, counted from 1.
    uint32_t written, read;
    // MANY: of more than one.
    uint16_t writer, reader;
    // Of the thread whose copy to it is under way, and one more.
    uint16_t copier;
};

constexpr uint16_t MANY = 0xffff;

// No vector: what is called at every access may call nothing that is seen itself.
inline Cell* shadow;
inline size_t shadow_cells;
// The logarithm of a cell's bytes: those of the kernel's numbers, so that what neighbouring lanes do is distinguished.
inline unsigned cell_shift = 3;
inline uint32_t barriers;
// Whether accesses are looked at: not those of texts about them.
inline bool looks;

EMULATOR_QUIET void raced(size_t cell, const char* first, unsigned one, const char* then, unsigned other) {
    looks = false;
    const std::string who = one == MANY ? "others" : "thread " + std::to_string(one);
    problem = "a race: shared cell " + std::to_string(cell) + " is " + first + " by " + who + " and " + then + " by thread " +
              std::to_string(other) + " without a barrier between";
}

// An access to shared memory by the thread that runs, or to other memory.
EMULATOR_QUIET void touched(uintptr_t at, size_t bytes, bool writes) {
    if (!looks) return;
    const size_t first = at - (uintptr_t)shared;
    if (first >= shadow_cells << cell_shift) return;
    const uint16_t self = (uint16_t)current->thread.x;
    for (size_t i = first >> cell_shift; looks && i <= (first + bytes - 1) >> cell_shift && i < shadow_cells; ++i) {
        Cell& cell = shadow[i];
        if (cell.copier) raced(i, "copied to", cell.copier - 1u, writes ? "written" : "read", self);
        if (cell.written == barriers && cell.writer != self) raced(i, "written", cell.writer, writes ? "written" : "read", self);
        if (!writes) {
            cell.reader = cell.read == barriers && cell.reader != self ? MANY : self;
            cell.read = barriers;
            continue;
        }
        if (cell.read == barriers && cell.reader != self) raced(i, "read", cell.reader, "written", self);
        cell.written = barriers;
        cell.writer = self;
    }
}

EMULATOR_QUIET void aligned(uintptr_t at, size_t bytes) {
    // The compiler reports the copy of a structure of two numbers as an access of 16 bytes; it is aligned as a number. Kernels
    // have no type whose 16 bytes a device accesses at once; copies in the background are checked by themselves.
    if (at % (bytes < sizeof(double) ? bytes : sizeof(double)) == 0 || !looks) return;
    looks = false;
    problem = "an access of " + std::to_string(bytes) + " bytes that is not aligned";
}

EMULATOR_QUIET void set_copier(const char* to, uint16_t copier) {
    for (size_t i = 0; i < COPY_BYTES >> cell_shift; ++i) {
        const size_t cell = ((size_t)(to - shared) >> cell_shift) + i;
        if (cell < shadow_cells) shadow[cell].copier = copier;
    }
}

EMULATOR_QUIET void begin_copy(const char* to) {
    touched((uintptr_t)to, COPY_BYTES, true);
    set_copier(to, (uint16_t)(current->thread.x + 1));
}

// A copy that has arrived was written by who waited for it.
EMULATOR_QUIET void end_copy(const char* to) {
    set_copier(to, 0);
    touched((uintptr_t)to, COPY_BYTES, true);
}
#define WITH_SHADOW(...) __VA_ARGS__
#else
#define WITH_SHADOW(...)
#endif

EMULATOR_QUIET void to_scheduler() {
    Fiber* self = current;
    WITH_SHADOW(looks = false;)
    WITH_ASAN(__sanitizer_start_switch_fiber(self->state == State::DONE ? nullptr : &self->fake, asan_bottom, asan_size);)
#ifdef EMULATOR_SWITCHES
    switch_stack(&self->at, scheduler);
#else
    swapcontext(&self->context, &scheduler);
#endif
    WITH_ASAN(__sanitizer_finish_switch_fiber(self->fake, &asan_bottom, &asan_size);)
}

EMULATOR_QUIET void to_fiber(Fiber& fiber) {
    current = &fiber;
    WITH_SHADOW(looks = problem.empty();)
    WITH_ASAN(__sanitizer_start_switch_fiber(&asan_fake, fiber.stack.data(), fiber.stack.size());)
#ifdef EMULATOR_SWITCHES
    switch_stack(&scheduler, fiber.at);
#else
    swapcontext(&scheduler, &fiber.context);
#endif
    WITH_ASAN(__sanitizer_finish_switch_fiber(asan_fake, nullptr, nullptr);)
}

EMULATOR_QUIET void enter() {
    WITH_ASAN(__sanitizer_finish_switch_fiber(nullptr, &asan_bottom, &asan_size);)
    (*body)();
    for (const auto& group : current->copies) {
        if (!group.empty()) problem = "a thread ended with copies under way";
    }
    current->state = State::DONE;
    to_scheduler();
    abort();
}

EMULATOR_QUIET void wait_for(int expected) {
    current->expected = expected;
    current->state = State::WAITS;
    to_scheduler();
}

EMULATOR_QUIET bool vote_of_all(bool vote) {
    current->vote = vote;
    current->state = State::VOTES;
    to_scheduler();
    return current->vote;
}

EMULATOR_QUIET void finish_copies(size_t left) {
    auto& groups = current->copies;
    while (groups.size() > left + 1) {
        for (const Copy& copy : groups.front()) {
            memcpy(copy.to, copy.from, COPY_BYTES);
            WITH_SHADOW(end_copy(copy.to);)
        }
        groups.erase(groups.begin());
    }
}

// Numbers that depend on the seed alone.
struct Random {
    uint64_t state;

    uint64_t below(uint64_t n) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (state >> 11) % n;
    }
};

inline void arrange(std::vector<unsigned>& order, Order how, Random& random) {
    for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
    if (how == REVERSE) std::reverse(order.begin(), order.end());
    for (size_t i = order.size(); how == RANDOM && i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
}

inline Order order_now;
inline uint64_t seed_now;

// Lets the warps go on of which every lane has voted.
EMULATOR_QUIET void count_votes() {
    for (unsigned first = 0; first < threads.x; first += WARP) {
        unsigned voting = 0;
        bool all = true;
        for (unsigned i = first; i < first + WARP; ++i) {
            voting += fibers[i].state == State::VOTES;
            all = all && fibers[i].vote;
        }
        if (voting == 0) continue;
        if (voting < WARP) {
            problem = std::to_string(voting) + " lanes of a warp vote, and the others never do";
            return;
        }
        for (unsigned i = first; i < first + WARP; ++i) {
            fibers[i].vote = all;
            fibers[i].state = State::RUNS;
        }
    }
}

EMULATOR_QUIET void run_block(Order how, Random& random) {
    const unsigned count = threads.x;
    for (unsigned i = 0; i < count; ++i) {
        Fiber& fiber = fibers[i];
        fiber.thread.x = i;
        fiber.state = State::RUNS;
        fiber.copies.assign(1, {});
        fiber.stack.resize(STACK_BYTES);
#ifdef EMULATOR_SWITCHES
        // As after a call of `enter`: its return address, which is none, and in front of it what `switch_stack` takes.
        void** top = (void**)((uintptr_t)(fiber.stack.data() + STACK_BYTES) & ~(uintptr_t)15) - 2;
        *top = (void*)enter;
        fiber.at = top - 6;
#else
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, enter, 0);
#endif
    }
    std::vector<unsigned> order(count);
    unsigned done = 0;
    while (done < count && problem.empty()) {
        arrange(order, how, random);
        unsigned waiting = 0;
        done = 0;
        for (unsigned i : order) {
            if (fibers[i].state == State::RUNS) to_fiber(fibers[i]);
        }
        for (unsigned i = 0; i < count; ++i) {
            done += fibers[i].state == State::DONE;
            waiting += fibers[i].state == State::WAITS;
            if (fibers[i].state == State::WAITS && fibers[i].expected != (int)count) {
                problem = "a barrier of " + std::to_string(fibers[i].expected) + " threads in a block of " +
                          std::to_string(count);
            }
        }
        count_votes();
        if (!problem.empty()) break;
        if (waiting > 0 && done > 0) {
            problem = std::to_string(waiting) + " threads wait at a barrier that " + std::to_string(done) + " never reach";
        } else if (waiting == count) {
            for (unsigned i = 0; i < count; ++i) fibers[i].state = State::RUNS;
            WITH_SHADOW(++barriers;)
        }
    }
}

// Ends the running launch: for who handles the signal of an access to memory that there is not. False if none runs.
EMULATOR_QUIET bool end_at_fault() {
    if (!runs) return false;
    siglongjmp(after_fault, 1);
}

// Runs a kernel whose numbers are of `number_bytes`; what went wrong, or nothing. The text stays until this thread's next launch.
inline const char* launch(unsigned blocks, unsigned block_threads, uint64_t shared_bytes, size_t number_bytes, int how,
                          uint64_t seed, std::function<void()> kernel) {
    // Without a destructor: one of a thread that goes on would keep the kernel's library, and the stacks of its fibers, loaded.
    static thread_local char told[512];
    std::lock_guard<std::mutex> guard(one_launch);
    problem.clear();
    body = &kernel;
    (void)number_bytes;
    WITH_SHADOW(cell_shift = number_bytes == 4 ? 2 : 3;)
    order_now = (Order)how;
    seed_now = seed;
    if (block_threads % WARP != 0) return "a block is not of whole warps";
    threads.x = block_threads;
    if (fibers.size() < block_threads) fibers.resize(block_threads);
    Random random{seed * 0x9e3779b97f4a7c15ull + 1};
    std::vector<unsigned> order(blocks);
    arrange(order, (Order)how, random);
    if (sigsetjmp(after_fault, 1) != 0) {
        runs = false;
        free(shared);
        return "an access to memory that there is not";
    }
    runs = true;
    for (unsigned i : order) {
        block.x = i;
        // Of exactly its size, so that AddressSanitizer sees what lies beyond; all ones are NaN.
        void* memory = nullptr;
        if (posix_memalign(&memory, 128, shared_bytes ? shared_bytes : 1) != 0) abort();
        memset(memory, 0xff, shared_bytes);
        shared = (char*)memory;
        WITH_SHADOW(shadow_cells = shared_bytes >> cell_shift; shadow = (Cell*)calloc(shadow_cells + 1, sizeof(Cell)); barriers = 1;)
        run_block((Order)how, random);
        free(memory);
        WITH_SHADOW(free(shadow);)
        if (!problem.empty()) {
            snprintf(told, sizeof told, "%s (block %u)", problem.c_str(), i);
            runs = false;
            return told;
        }
    }
    runs = false;
    return nullptr;
}

}  // namespace emulator

#define threadIdx (emulator::current->thread)
#define blockIdx emulator::block
#define blockDim emulator::threads

inline double __longlong_as_double(long long bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline long long __double_as_longlong(double x) {
    long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }

inline void block_barrier(int threads) { emulator::wait_for(threads); }

// Other digits than the device's.
inline double reciprocal_near(double x) {
    // From the upper word to an upper word and a last digit of 1, as the device's: exactly 1 for the divisor just below 1 would give quotients
    // that are off by a unit.
    const auto upper = [](double x) { return __double_as_longlong(x) & ~0xffffffffLL; };
    return __longlong_as_double(upper(1.0 / __longlong_as_double(upper(x))) | 1);
}

// Off by a unit in the last place; what is below the normal numbers is 0, as on the device.
inline float reciprocal_near(float x) {
    const auto flushed = [](float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; };
    const float near = flushed(1.0f / flushed(x));
    return near != 0.0f && fabsf(near) < INFINITY ? __uint_as_float(__float_as_uint(near) ^ 1u) : near;
}

inline bool warp_all(bool holds) { return emulator::vote_of_all(holds); }

// In random order a warp goes back to the long way now and then, the same for all of its lanes.
inline bool goes_on(bool before, int tile) {
    if (emulator::order_now != emulator::RANDOM) return before;
    emulator::Random random{(emulator::seed_now + 1) * 0x9e3779b97f4a7c15ull + emulator::block.x * 7919u +
                            emulator::current->thread.x / emulator::WARP * 104729u + (unsigned)tile * 1299709u};
    random.below(2);
    random.below(2);
    return before && random.below(4) != 0;
}

// What is under way holds no value yet.
inline void copy_across(void* to, const void* from) {
    using emulator::COPY_BYTES;
    if ((uintptr_t)to % COPY_BYTES != 0 || (uintptr_t)from % COPY_BYTES != 0) emulator::problem = "a copy that is not aligned";
    WITH_SHADOW(emulator::begin_copy((char*)to);)
    memset(to, 0xff, COPY_BYTES);
    emulator::current->copies.back().push_back({(char*)to, (const char*)from});
}

inline void copies_end() { emulator::current->copies.push_back({}); }

template <int LEFT>
inline void copies_wait() { emulator::finish_copies(LEFT); }

// Of the kernel's numbers, whose type its text names after this one.
struct SharedMemory {
    template <class T>
    operator T*() const {
        return (T*)emulator::shared;
    }
};
inline SharedMemory shared_memory() { return {}; }

#ifdef EMULATOR_SHADOW
// What the compiler calls at every access, in place of the sanitizer's library.
#define EMULATOR_HOOK extern "C" __attribute__((no_sanitize("thread"), noinline, used, visibility("hidden")))
#define EMULATOR_ACCESS(BYTES)                                                                                  \
    EMULATOR_HOOK void __tsan_read##BYTES(void* at) {                                                           \
        emulator::aligned((uintptr_t)at, BYTES);                                                                \
        emulator::touched((uintptr_t)at, BYTES, false);                                                         \
    }                                                                                                           \
    EMULATOR_HOOK void __tsan_write##BYTES(void* at) {                                                          \
        emulator::aligned((uintptr_t)at, BYTES);                                                                \
        emulator::touched((uintptr_t)at, BYTES, true);                                                          \
    }                                                                                                           \
    EMULATOR_HOOK void __tsan_unaligned_read##BYTES(void* at) { __tsan_read##BYTES(at); }                       \
    EMULATOR_HOOK void __tsan_unaligned_write##BYTES(void* at) { __tsan_write##BYTES(at); }
EMULATOR_ACCESS(1)
EMULATOR_ACCESS(2)
EMULATOR_ACCESS(4)
EMULATOR_ACCESS(8)
EMULATOR_ACCESS(16)
EMULATOR_HOOK void __tsan_read_range(void* at, size_t bytes) { emulator::touched((uintptr_t)at, bytes, false); }
EMULATOR_HOOK void __tsan_write_range(void* at, size_t bytes) { emulator::touched((uintptr_t)at, bytes, true); }
EMULATOR_HOOK void __tsan_func_entry(void*) {}
EMULATOR_HOOK void __tsan_func_exit() {}
EMULATOR_HOOK void __tsan_vptr_update(void**, void*) {}
EMULATOR_HOOK void __tsan_init() {}
EMULATOR_HOOK unsigned char __tsan_atomic8_load(const volatile unsigned char* at, int) { return *at; }
EMULATOR_HOOK void __ubsan_handle_float_cast_overflow(void*, unsigned long) {
    if (!emulator::looks) return;
    emulator::looks = false;
    emulator::problem = "a number that the integer it is converted to cannot hold";
}
#endif

// How a test starts the kernel NAME, whose argument is ARGUMENTS.
#define TRAWL_ENTRY(NAME, ARGUMENTS)                                                                                  \
    extern "C" const char* NAME##_emulated(const void* arguments, unsigned blocks, unsigned threads, uint64_t bytes,  \
                                           int order, uint64_t seed) {                                               \
        ARGUMENTS told;                                                                                               \
        memcpy(&told, arguments, sizeof told);                                                                        \
        return emulator::launch(blocks, threads, bytes, sizeof(real), order, seed, [&] { NAME(told); });                            \
    }                                                                                                                 \
    extern "C" uint64_t NAME##_argument_bytes() { return sizeof(ARGUMENTS); }                                         \
    extern "C" bool NAME##_fault() { return emulator::end_at_fault(); }
