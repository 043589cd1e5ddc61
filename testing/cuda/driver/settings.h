// What a test says of a device: words NAME=VALUE, separated by spaces, in any order.
//
//   card=h100|a100|t4|gh200|l4  whose figures the device reports; kernels of gh200 read host memory
//   hmm=1                       kernels of another card read host memory by page faults, as it says
//   copy_engines=N              how many directions are copied at a time: 1 or 2
//   memory=BYTES                its memory
//   kernel_us=N                 how long each kernel takes by the device's clock
//   launch_us=N                 how long each call that launches kernels takes before them, by the device's clock; 0 if it is not given
//   copy_bytes_per_s=N          how fast copies are, in each direction
//   slow=N:MS                   launch N takes so long
//   stall=N                     collective N of the device waits for ever
//   hang=N                      the end of group N with a collective of the device does not return before an abort
//   when=late|early|random      when work of streams happens: when it is waited for, at once, or at random times between
//   order=forward|reverse|random   in which order threads and blocks run
//   seed=N                      of everything that is random
//   fragments=1                 memory that was given back serves allocations of the same size alone, until the pool is trimmed
//   blank=FILE                  kernels that begin while there is this file do nothing, so that what is left is the host's time
//   damage=1                    what is copied to the host differs in one bit of each number, by 2e-10 of its value
//   slice=PROFILE:N             it is a MIG slice of this profile, such as 1g.10gb, with N multiprocessors; `memory` is the slice's
//   ecc=N, ecc=N:LAUNCH         N errors of memory that could not be corrected, from the start or from this launch on; ecc=off: it counts none
//   xid=N:LAUNCH[:INSTANCE]     the driver reports this XID at that launch, or at once where it is 0; of a slice, the instance that it is about
//   throttle=REASON+...         why its clocks are low: cap, slowdown, hot, thermal, brake, idle (results.h)
//   pending=1 remap_failed=1    rows of memory are replaced at the next reset; there was no spare row
//   gone=1                      NVML does not reach it
//   fault=FUNCTION:N:CODE       call N of a function of the driver returns CODE and does nothing; `kernel`: launch N ends so
//   fault=FUNCTION:N+:CODE      that call and every later one; of a function of NVML (nvml...), its codes
//
// Calls, launches and kernels count from 1. Settings of several devices are separated by semicolons. A mistake in the settings ends the process: a test must not run with others.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "results.h"

struct Card {
    const char* key;
    const char* name;
    int major, minor, multiprocessors, shared_optin, shared_multiprocessor, clock_khz, memory_khz, bus_bits, l2_bytes, f32_per_f64;
    uint64_t memory_bytes;
    bool is_coherent;
};

// The name says that there is no such card: what is measured on it is no measurement.
constexpr Card CARDS[] = {
    {"h100", "H100 of the test driver (emulated)", 9, 0, 132, 232448, 233472, 1980000, 2619000, 5120, 52428800, 2, 85045477376, false},
    {"a100", "A100 of the test driver (emulated)", 8, 0, 108, 166912, 167936, 1410000, 1215000, 5120, 41943040, 2, 42298834944, false},
    {"t4", "T4 of the test driver (emulated)", 7, 5, 40, 65536, 65536, 1590000, 5001000, 256, 4194304, 32, 15636627456, false},
    {"gh200", "GH200 of the test driver (emulated)", 9, 0, 132, 232448, 233472, 1980000, 2619000, 6144, 62914560, 2, 102005473280, true},
    {"l4", "L4 of the test driver (emulated)", 8, 9, 58, 101376, 102400, 2040000, 6251000, 192, 50331648, 64, 23609475072, false},
};

struct Fault {
    std::string function;
    uint64_t first = 0, last = 0;
    int code = 0;
};

// What NVML says of a device.
struct Health {
    uint64_t errors = 0, errors_from = 0, throttle = 0;
    bool counts = true, is_pending = false, has_failed = false, is_gone = false;
};

struct Xid {
    uint64_t number = 0, launch = 0;
    uint32_t instance = NO_INSTANCE;
};

enum class When { LATE, EARLY, RANDOM };

struct Settings {
    const Card* card = &CARDS[0];
    uint64_t memory_bytes = CARDS[0].memory_bytes;
    int64_t kernel_ns = 20'000, launch_ns = 0;
    double copy_bytes_per_s = 25e9;
    uint64_t slow_launch = 0, stall = 0, hang = 0;
    int64_t slow_ns = 0;
    When when = When::LATE;
    int order = 2;
    uint64_t seed = 1;
    bool fragments = false, damage = false, hmm = false;
    int copy_engines = 2;
    std::vector<Fault> faults;
    // Empty: a whole GPU.
    std::string profile;
    // Empty: kernels compute.
    std::string blank;
    int multiprocessors = CARDS[0].multiprocessors;
    Health health;
    std::vector<Xid> xids;
};

[[noreturn]] inline void wrong_settings(const std::string& word) {
    fprintf(stderr, "the test driver's settings: '%s' is not one of them\n", word.c_str());
    abort();
}

inline uint64_t number_of(const std::string& text, const std::string& word) {
    char* end = nullptr;
    const unsigned long long value = strtoull(text.c_str(), &end, 10);
    if (text.empty() || *end != 0) wrong_settings(word);
    return value;
}

inline Fault fault_of(const std::string& value, const std::string& word) {
    const size_t colon = value.find(':'), last = value.rfind(':');
    if (colon == std::string::npos || colon == last) wrong_settings(word);
    Fault fault;
    fault.function = value.substr(0, colon);
    std::string number = value.substr(colon + 1, last - colon - 1);
    const bool every = !number.empty() && number.back() == '+';
    if (every) number.pop_back();
    fault.first = number_of(number, word);
    fault.last = every ? UINT64_MAX : fault.first;
    fault.code = (int)number_of(value.substr(last + 1), word);
    const bool is_nvml = fault.function.compare(0, 4, "nvml") == 0;
    if (is_nvml ? !is_of_nvml(fault.code) : !text_of(fault.code)) wrong_settings(word);
    return fault;
}

// Numbers that are separated by colons, at least `least` of them.
inline std::vector<uint64_t> numbers_of(const std::string& value, size_t least, const std::string& word) {
    std::vector<uint64_t> numbers;
    std::istringstream parts(value);
    for (std::string one; std::getline(parts, one, ':');) numbers.push_back(number_of(one, word));
    if (numbers.size() < least) wrong_settings(word);
    return numbers;
}

inline uint64_t throttle_of(const std::string& value, const std::string& word) {
    uint64_t reasons = 0;
    std::istringstream names(value);
    for (std::string name; std::getline(names, name, '+');) {
        const ThrottleReason* found = nullptr;
        for (const ThrottleReason& reason : THROTTLE_REASONS) {
            if (name == reason.name) found = &reason;
        }
        if (!found) wrong_settings(word);
        reasons |= found->bit;
    }
    return reasons;
}

inline Settings settings_of(const char* text) {
    Settings settings;
    std::istringstream words(text ? text : "");
    bool memory = false;
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        if (equals == std::string::npos) wrong_settings(word);
        const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
        auto choice = [&](std::initializer_list<const char*> names) {
            int at = 0;
            for (const char* one : names) {
                if (value == one) return at;
                ++at;
            }
            wrong_settings(word);
        };
        if (name == "card") {
            settings.card = &CARDS[choice({"h100", "a100", "t4", "gh200", "l4"})];
            if (!memory) settings.memory_bytes = settings.card->memory_bytes;
            if (settings.profile.empty()) settings.multiprocessors = settings.card->multiprocessors;
        } else if (name == "memory") {
            settings.memory_bytes = number_of(value, word);
            memory = true;
        } else if (name == "kernel_us") {
            settings.kernel_ns = (int64_t)number_of(value, word) * 1000;
        } else if (name == "launch_us") {
            settings.launch_ns = (int64_t)number_of(value, word) * 1000;
        } else if (name == "copy_bytes_per_s") {
            settings.copy_bytes_per_s = (double)number_of(value, word);
        } else if (name == "slow") {
            const size_t colon = value.find(':');
            if (colon == std::string::npos) wrong_settings(word);
            settings.slow_launch = number_of(value.substr(0, colon), word);
            settings.slow_ns = (int64_t)number_of(value.substr(colon + 1), word) * 1'000'000;
        } else if (name == "stall") {
            settings.stall = number_of(value, word);
        } else if (name == "hang") {
            settings.hang = number_of(value, word);
        } else if (name == "when") {
            settings.when = (When)choice({"late", "early", "random"});
        } else if (name == "order") {
            settings.order = choice({"forward", "reverse", "random"});
        } else if (name == "seed") {
            settings.seed = number_of(value, word);
        } else if (name == "fragments") {
            settings.fragments = number_of(value, word) != 0;
        } else if (name == "damage") {
            settings.damage = number_of(value, word) != 0;
        } else if (name == "blank") {
            settings.blank = value;
        } else if (name == "hmm") {
            settings.hmm = number_of(value, word) != 0;
        } else if (name == "copy_engines") {
            settings.copy_engines = (int)number_of(value, word);
            if (settings.copy_engines != 1 && settings.copy_engines != 2) wrong_settings(word);
        } else if (name == "slice") {
            const size_t colon = value.find(':');
            if (colon == std::string::npos || colon == 0) wrong_settings(word);
            settings.profile = value.substr(0, colon);
            settings.multiprocessors = (int)number_of(value.substr(colon + 1), word);
        } else if (name == "ecc") {
            settings.health.counts = value != "off";
            if (settings.health.counts) {
                const std::vector<uint64_t> numbers = numbers_of(value, 1, word);
                settings.health.errors = numbers[0];
                settings.health.errors_from = numbers.size() > 1 ? numbers[1] : 0;
            }
        } else if (name == "xid") {
            const std::vector<uint64_t> numbers = numbers_of(value, 2, word);
            settings.xids.push_back({numbers[0], numbers[1], numbers.size() > 2 ? (uint32_t)numbers[2] : NO_INSTANCE});
        } else if (name == "throttle") {
            settings.health.throttle = throttle_of(value, word);
        } else if (name == "pending") {
            settings.health.is_pending = number_of(value, word) != 0;
        } else if (name == "remap_failed") {
            settings.health.has_failed = number_of(value, word) != 0;
        } else if (name == "gone") {
            settings.health.is_gone = number_of(value, word) != 0;
        } else if (name == "fault") {
            settings.faults.push_back(fault_of(value, word));
        } else {
            wrong_settings(word);
        }
    }
    return settings;
}
