// Memory of a device, which is memory of the host at addresses of its own, and is accessible as long as it is allocated.
//
// Each allocation ends (but for its alignment) where its last page ends, with a page before and behind it that nobody may
// access; what is left of its own pages holds a pattern. An address is not used again before all others were, so that who
// uses memory after its release finds none. Memory is filled with NaNs when it is allocated.
#pragma once
#include <sys/mman.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

// As the real driver aligns what a pool gives out.
constexpr uint64_t ALIGNMENT = 512;
constexpr uint64_t PAGE = 4096;
constexpr uint64_t ARENA_BYTES = 1ull << 38;
constexpr unsigned char GUARD = 0xa5, FRESH = 0xff;

constexpr uint64_t rounded(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

struct Allocation {
    uint64_t bytes = 0;
    // Pages of its own: they hold the allocation and the pattern.
    uint64_t first_page = 0, end = 0;
    // Not before its place in its stream was reached, and not after its release was asked for.
    bool is_born = false, is_released = false;
    // The host may access it too.
    bool is_managed = false;
};

class Arena {
  public:
    ~Arena() {
        if (base) munmap((void*)base, ARENA_BYTES);
    }

    // Address of a new allocation that is not accessible yet, or 0.
    uint64_t reserve(uint64_t bytes) {
        if (!base) {
            void* at = mmap(nullptr, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (at == MAP_FAILED) return 0;
            base = next = (uint64_t)at;
        }
        const uint64_t own = rounded(rounded(bytes, ALIGNMENT), PAGE), span = own + 2 * PAGE;
        // Twice around: what lies before `next` now may be free too.
        bool is_free = false;
        for (int turns = 0; !is_free && turns < 2;) {
            auto after = all.upper_bound(next);
            if (next + span > base + ARENA_BYTES) {
                next = base;
                ++turns;
            } else if (after != all.begin() && std::prev(after)->second.end + PAGE > next) {
                next = std::prev(after)->second.end + PAGE;
            } else if (after != all.end() && after->second.first_page < next + span) {
                next = after->second.end + PAGE;
            } else {
                is_free = true;
            }
        }
        if (!is_free) return 0;
        Allocation allocation;
        allocation.bytes = bytes;
        allocation.first_page = next + PAGE;
        allocation.end = allocation.first_page + own;
        next = allocation.end + PAGE;
        const uint64_t address = allocation.end - rounded(bytes, ALIGNMENT);
        all[address] = allocation;
        return address;
    }

    void bear(uint64_t address) {
        Allocation& allocation = all.at(address);
        const uint64_t own = allocation.end - allocation.first_page;
        if (mprotect((void*)allocation.first_page, own, PROT_READ | PROT_WRITE) != 0) {
            perror("the test driver's memory");
            abort();
        }
        memset((void*)allocation.first_page, GUARD, address - allocation.first_page);
        memset((void*)address, FRESH, allocation.bytes);
        memset((void*)(address + allocation.bytes), GUARD, allocation.end - address - allocation.bytes);
        allocation.is_born = true;
    }

    void bury(uint64_t address) {
        const Allocation& allocation = all.at(address);
        const uint64_t own = allocation.end - allocation.first_page;
        madvise((void*)allocation.first_page, own, MADV_DONTNEED);
        mprotect((void*)allocation.first_page, own, PROT_NONE);
        all.erase(address);
    }

    // The allocation that bytes are within, or none.
    Allocation* of(uint64_t address, uint64_t bytes) {
        auto after = all.upper_bound(address);
        if (after == all.begin()) return nullptr;
        auto& [first, allocation] = *std::prev(after);
        const uint64_t at = address - first;
        return at <= allocation.bytes && bytes <= allocation.bytes - at ? &allocation : nullptr;
    }

    Allocation* at(uint64_t address) {
        auto found = all.find(address);
        return found == all.end() ? nullptr : &found->second;
    }

    // Whether the patterns beside all allocations are whole.
    bool is_whole() const {
        for (const auto& [address, allocation] : all) {
            if (!allocation.is_born) continue;
            if (!is_guard(allocation.first_page, address)) return false;
            if (!is_guard(address + allocation.bytes, allocation.end)) return false;
        }
        return true;
    }

    uint64_t count() const { return all.size(); }

  private:
    static bool is_guard(uint64_t from, uint64_t to) {
        const unsigned char* at = (const unsigned char*)from;
        const uint64_t bytes = to - from;
        return bytes == 0 || (at[0] == GUARD && memcmp(at, at + 1, bytes - 1) == 0);
    }

    uint64_t base = 0, next = 0;
    std::map<uint64_t, Allocation> all;
};
