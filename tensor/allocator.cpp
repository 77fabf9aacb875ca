// SPDX-License-Identifier: Apache-2.0
// The caching allocator. Invariants:
//  1. A block is of the heap, if it is large and there is room, or of a class c; that has exactly class_bytes(c) bytes,
//     so any cached block of the class serves.
//  2. in_use + cached is what the system gave; in_use <= limit when there is one. So only what the system gives is
//     counted beside in_use, and a block that comes from the cache and goes back costs two atomic operations each way.
//  3. held_ is in_use, and 1 more while the allocator has owners: at 0 it goes.
#include "troupe/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "tensor/block_heap.h"

namespace troupe {
namespace {

/// `size` bytes of the system, of which `used` are to be written; nullptr where it refuses. Large blocks begin at a
/// huge page and ask for such as far as they will be written.
void* system_memory(size_t size, size_t used) {
  const bool large = used >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, large ? kHugePage : kAlignment, size) != 0) return nullptr;
  // Where there are no huge pages it is as good without.
  if (large) (void)madvise(memory, used / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

class SystemAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    if (bytes > SIZE_MAX - kAlignment) return nullptr;  // rounded up it would be 0
    return system_memory((bytes + kAlignment - 1) / kAlignment * kAlignment, bytes);
  }
  void deallocate(void* memory, size_t) noexcept override { std::free(memory); }
  AllocatorStats stats() const override { return {}; }
  void release() noexcept override { delete this; }
};

/// A lock for a few instructions: it spins, and yields when the holder seems to have been descheduled.
class SpinLock {
 public:
  void lock() {
    for (int tries = 0; flag_.exchange(true, std::memory_order_acquire); ++tries)
      if (tries > 64) std::this_thread::yield();
  }
  void unlock() { flag_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> flag_{false};
};

constexpr int kMinShift = 6;  // the smallest class: 64 bytes
constexpr int kClasses = (48 - kMinShift) * 4;

/// Four classes to a power of two: 64, 80, 96, 112, 128, 160, ... but multiples of 64 bytes.
int class_of(size_t bytes) {
  if (bytes <= 64) return 0;
  const int shift = std::bit_width(bytes - 1) - 1;  // 2^shift < bytes <= 2^(shift+1)
  const size_t quarter = size_t{1} << (shift - 2);
  const int part = static_cast<int>((bytes - 1 - (size_t{1} << shift)) / quarter);
  return (shift - kMinShift) * 4 + part + 1;
}

size_t class_bytes(int c) {
  if (c == 0) return 64;
  const int shift = kMinShift + (c - 1) / 4;
  const size_t bytes = (size_t{1} << shift) + static_cast<size_t>((c - 1) % 4 + 1) * (size_t{1} << (shift - 2));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(int64_t limit, int64_t cache_limit)
      : limit_(std::max<int64_t>(limit, 0)), cache_limit_(std::clamp<int64_t>(cache_limit, 0, kMostCached)) {}
  void* allocate(size_t bytes) override {
    if (bytes >= kLarge)
      if (void* memory = allocate_large(bytes)) return memory;
    const int c = class_of(bytes);
    if (c >= kClasses) return refuse();
    const auto size = static_cast<int64_t>(class_bytes(c));
    const int64_t in_use = take(size);
    if (in_use < 0) return refuse();
    if (in_use > peak_.load(std::memory_order_relaxed)) raise_peak(in_use);
    if (void* memory = pop(c, true)) return memory;
    const int64_t given = given_.fetch_add(size, std::memory_order_relaxed) + size;
    if (limit_ > 0 && given > limit_) trim();
    else trim_to_most();
    void* memory = system_memory(static_cast<size_t>(size), bytes);
    if (!memory) {
      trim();
      memory = system_memory(static_cast<size_t>(size), bytes);
    }
    if (!memory) {
      given_.fetch_sub(size, std::memory_order_relaxed);
      held_.fetch_sub(size, std::memory_order_relaxed);
      return refuse();
    }
    return memory;
  }

  void deallocate(void* memory, size_t bytes) noexcept override {
    if (bytes >= kLarge && heap_.holds(memory)) {
      const auto size = static_cast<int64_t>(BlockHeap::rounded(bytes));
      const bool keep = cache_limit_ > 0 && given_.load(std::memory_order_relaxed) <= most();
      heap_.deallocate(memory, bytes, keep);
      if (!keep) given_.fetch_sub(size, std::memory_order_relaxed);
      let_go(size);
      return;
    }
    const int c = class_of(bytes);
    const auto size = static_cast<int64_t>(class_bytes(c));
    if (cache_limit_ == 0 || given_.load(std::memory_order_relaxed) > most()) {
      give_back(memory, c);
    } else {
      std::lock_guard guard(lists_[c].lock);
      *static_cast<void**>(memory) = lists_[c].head;
      lists_[c].head = memory;
    }
    let_go(size);
  }

  void release() noexcept override { let_go(kOwned); }

  AllocatorStats stats() const override {
    int64_t asked = large_asked_.load(), hits = large_hits_.load();
    for (FreeList& list : lists_) {
      std::lock_guard guard(list.lock);
      asked += list.asked;
      hits += list.hits;
    }
    const int64_t in_use = held_.load() - kOwned;
    return {in_use, peak_.load(), std::max<int64_t>(given_.load() - in_use, 0), limit_, asked, hits, failures_.load()};
  }

  void trim() override {
    while (give_back_largest()) {
    }
    for (int c = 0; c < kClasses; ++c)
      while (void* memory = pop(c, false)) give_back(memory, c);
  }

 private:
  /// Counts `size` bytes as in use: how many are then, or -1, with nothing counted, beyond the limit. What is refused
  /// is never counted, or it would refuse what others ask meanwhile.
  int64_t take(int64_t size) {
    if (limit_ == 0) return held_.fetch_add(size, std::memory_order_relaxed) + size - kOwned;
    int64_t held = held_.load(std::memory_order_relaxed);
    do {
      if (held - kOwned > limit_ - size) return -1;
    } while (!held_.compare_exchange_weak(held, held + size, std::memory_order_relaxed));
    return held + size - kOwned;
  }

  /// What the system may have given while blocks are kept for reuse.
  int64_t most() const { return peak_.load(std::memory_order_relaxed) + cache_limit_; }

  /// A block of the heap, or nullptr where that has no room or the limit would be passed.
  void* allocate_large(size_t bytes) {
    const auto size = static_cast<int64_t>(BlockHeap::rounded(bytes));
    const int64_t in_use = size < 0 ? -1 : take(size);
    if (in_use < 0) return nullptr;
    size_t fresh = 0;
    void* const memory = heap_.allocate(bytes, fresh);
    if (!memory) {
      held_.fetch_sub(size, std::memory_order_relaxed);
      return nullptr;
    }
    if (in_use > peak_.load(std::memory_order_relaxed)) raise_peak(in_use);
    large_asked_.fetch_add(1, std::memory_order_relaxed);
    if (fresh == 0) {
      large_hits_.fetch_add(1, std::memory_order_relaxed);
      return memory;
    }
    const auto more = static_cast<int64_t>(fresh);
    const int64_t given = given_.fetch_add(more, std::memory_order_relaxed) + more;
    if (limit_ > 0 && given > limit_) trim();
    else trim_to_most();
    return memory;
  }

  bool give_back_largest() {
    const auto bytes = static_cast<int64_t>(heap_.give_back_largest());
    given_.fetch_sub(bytes, std::memory_order_relaxed);
    return bytes > 0;
  }

  /// Gives cached blocks back, the largest first, as far as that is passed.
  void trim_to_most() {
    while (given_.load(std::memory_order_relaxed) > most() && give_back_largest()) {
    }
    for (int c = kClasses - 1; c >= 0; --c)
      while (given_.load(std::memory_order_relaxed) > most()) {
        void* memory = pop(c, false);
        if (!memory) break;
        give_back(memory, c);
      }
  }

  void give_back(void* memory, int c) noexcept {
    std::free(memory);
    given_.fetch_sub(static_cast<int64_t>(class_bytes(c)), std::memory_order_relaxed);
  }

  ~CachingAllocator() override { trim(); }

  void let_go(int64_t held) {
    if (held_.fetch_sub(held, std::memory_order_acq_rel) == held) delete this;
  }

  struct FreeList {
    SpinLock lock;
    void* head = nullptr;  // each free block begins with a pointer to the next
    int64_t asked = 0, hits = 0;
  };

  void* pop(int c, bool counted) {
    std::lock_guard guard(lists_[c].lock);
    void* memory = lists_[c].head;
    lists_[c].asked += counted;
    if (!memory) return nullptr;
    lists_[c].hits += counted;
    void* next = lists_[c].head = *static_cast<void**>(memory);
    if (next) {
      // The next block may have left the cache since it was freed; the next allocation will write its first lines.
      __builtin_prefetch(next, 1);
      __builtin_prefetch(static_cast<char*>(next) + kAlignment, 1);
    }
    return memory;
  }

  void* refuse() {
    failures_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }

  void raise_peak(int64_t in_use) {
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (in_use > peak && !peak_.compare_exchange_weak(peak, in_use, std::memory_order_relaxed)) {
    }
  }

  static constexpr size_t kLarge = size_t{1} << 20;
  static constexpr int64_t kOwned = 1;
  static constexpr int64_t kMostCached = INT64_MAX / 2;  // leaves room for a sum with bytes in use
  const int64_t limit_;
  const int64_t cache_limit_;
  std::atomic<int64_t> held_{kOwned}, peak_{0}, given_{0}, failures_{0};
  std::atomic<int64_t> large_asked_{0}, large_hits_{0};
  BlockHeap heap_;
  mutable FreeList lists_[kClasses];
};

}  // namespace

std::shared_ptr<Allocator> own_allocator(Allocator* allocator) {
  return {allocator, [](Allocator* a) { a->release(); }};
}

std::shared_ptr<Allocator> make_caching_allocator(int64_t limit, int64_t cache_limit) {
  return own_allocator(new CachingAllocator(limit, cache_limit));
}

const std::shared_ptr<Allocator>& system_allocator() {
  static const std::shared_ptr<Allocator>& allocator =
      *new std::shared_ptr<Allocator>(own_allocator(new SystemAllocator));
  return allocator;
}

}  // namespace troupe
