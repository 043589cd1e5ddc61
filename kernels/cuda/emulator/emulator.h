// Runs the text of kernels on a CPU: one fiber is one thread of a block, and goes on until it waits. For tests: shared
// memory is poisoned, copies in the background happen when they are waited for and not before, threads and blocks run in
// any order, and waiting of which nothing can come is an error. Built by g++ or clang++, under their sanitizers too.
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

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void* __tsan_get_current_fiber();
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#define WITH_TSAN(...) __VA_ARGS__
#else
#define WITH_TSAN(...)
#endif
#if defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* save, const void** bottom, size_t* size);
}
#define WITH_ASAN(...) __VA_ARGS__
#else
#define WITH_ASAN(...)
#endif

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define EMULATOR_SWITCHES 1
#endif

// The emulator's own words are no part of the kernel's races.
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

struct Copy {
    double* to;
    const double* from;
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
    WITH_TSAN(void* tsan = nullptr;)
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
__attribute__((naked, noinline)) inline void switch_stack(void** from, void* to) {
    asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret");
}
#else
inline ucontext_t scheduler;
#endif
inline std::function<void()>* body;
inline double* shared;
inline std::string problem;
inline std::mutex one_launch;
// Where a launch goes on whose kernel accessed memory that there is not, and whether one runs.
inline sigjmp_buf after_fault;
inline bool runs;
WITH_TSAN(inline void* tsan_scheduler; inline char tsan_barrier, tsan_begin, tsan_end;)
WITH_ASAN(inline void* asan_fake; inline const void* asan_bottom; inline size_t asan_size;)

EMULATOR_QUIET void to_scheduler() {
    Fiber* self = current;
    WITH_TSAN(__tsan_switch_to_fiber(tsan_scheduler, 1);)
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
    // 1: switching orders nothing; only what the kernel waits for does.
    WITH_TSAN(__tsan_switch_to_fiber(fiber.tsan, 1);)
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
    WITH_TSAN(__tsan_acquire(&tsan_begin);)
    (*body)();
    for (const auto& group : current->copies) {
        if (!group.empty()) problem = "a thread ended with copies under way";
    }
    WITH_TSAN(__tsan_release(&tsan_end);)
    current->state = State::DONE;
    to_scheduler();
    abort();
}

EMULATOR_QUIET void wait_for(int expected) {
    current->expected = expected;
    current->state = State::WAITS;
    WITH_TSAN(__tsan_release(&tsan_barrier);)
    to_scheduler();
    WITH_TSAN(__tsan_acquire(&tsan_barrier);)
}

EMULATOR_QUIET bool vote_of_all(bool vote) {
    current->vote = vote;
    current->state = State::VOTES;
    WITH_TSAN(__tsan_release(&tsan_barrier);)
    to_scheduler();
    WITH_TSAN(__tsan_acquire(&tsan_barrier);)
    return current->vote;
}

inline void finish_copies(size_t left) {
    auto& groups = current->copies;
    while (groups.size() > left + 1) {
        for (const Copy& copy : groups.front()) memcpy(copy.to, copy.from, 2 * sizeof(double));
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
    WITH_TSAN(tsan_scheduler = __tsan_get_current_fiber();)
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
        WITH_TSAN(fiber.tsan = __tsan_create_fiber(0);)
    }
    WITH_TSAN(__tsan_release(&tsan_begin);)
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
        }
    }
    WITH_TSAN(__tsan_acquire(&tsan_end); for (unsigned i = 0; i < count; ++i) __tsan_destroy_fiber(fibers[i].tsan);)
}

// Ends the running launch: for who handles the signal of an access to memory that there is not. False if none runs.
EMULATOR_QUIET bool end_at_fault() {
    if (!runs) return false;
    siglongjmp(after_fault, 1);
}

// Runs a kernel; what went wrong, or nothing. The text stays until this thread's next launch.
inline const char* launch(unsigned blocks, unsigned block_threads, uint64_t shared_bytes, int how, uint64_t seed,
                          std::function<void()> kernel) {
    static thread_local std::string told;
    std::lock_guard<std::mutex> guard(one_launch);
    problem.clear();
    body = &kernel;
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
        shared = (double*)memory;
        run_block((Order)how, random);
        free(memory);
        if (!problem.empty()) {
            told = problem + " (block " + std::to_string(i) + ")";
            runs = false;
            return told.c_str();
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

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }

inline void block_barrier(int threads) { emulator::wait_for(threads); }

// Other digits than the device's: what is made of it does not depend on them.
inline double reciprocal_near(double x) {
    long long bits = __double_as_longlong(1.0 / x) & ~0xfffffffffLL;
    return __longlong_as_double(bits);
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
inline void copy_pair(double* to, const double* from) {
    if ((uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0) emulator::problem = "a copy that is not aligned";
    memset(to, 0xff, 2 * sizeof(double));
    emulator::current->copies.back().push_back({to, from});
}

inline void copies_end() { emulator::current->copies.push_back({}); }

template <int LEFT>
inline void copies_wait() { emulator::finish_copies(LEFT); }

inline double* shared_memory() { return emulator::shared; }

// How a test starts the kernel NAME, whose argument is ARGUMENTS.
#define TRAWL_ENTRY(NAME, ARGUMENTS)                                                                                  \
    extern "C" const char* NAME##_emulated(const void* arguments, unsigned blocks, unsigned threads, uint64_t bytes,  \
                                           int order, uint64_t seed) {                                               \
        ARGUMENTS told;                                                                                               \
        memcpy(&told, arguments, sizeof told);                                                                        \
        return emulator::launch(blocks, threads, bytes, order, seed, [&] { NAME(told); });                            \
    }                                                                                                                 \
    extern "C" uint64_t NAME##_argument_bytes() { return sizeof(ARGUMENTS); }                                         \
    extern "C" bool NAME##_fault() { return emulator::end_at_fault(); }
