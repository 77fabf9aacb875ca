// SPDX-License-Identifier: Apache-2.0
#include "tensor/phantom_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <sys/mman.h>

namespace troupe {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSmallest = 16 << 10;        // of a phantom block
constexpr size_t kFirstRegion = 64ull << 20;  // each is twice the one before

class PhantomAllocator final : public Allocator {
 public:
  explicit PhantomAllocator(int64_t limit) : limit_(limit) {}

  void* allocate(size_t bytes) override {
    std::lock_guard guard(mutex_);
    const auto size = static_cast<int64_t>(bytes);
    ++stats_.allocations;
    if (limit_ > 0 && stats_.in_use + size > limit_) return refuse();
    void* memory =
        bytes < kSmallest ? std::aligned_alloc(kAlignment, rounded(bytes, kAlignment)) : take(rounded(bytes, kPage));
    if (!memory) return refuse();
    if (bytes < kSmallest) std::memset(memory, 0, bytes);
    stats_.in_use += size;
    stats_.peak = std::max(stats_.peak, stats_.in_use);
    ++live_;
    return memory;
  }

  void deallocate(void* memory, size_t bytes) noexcept override {
    bool last = false;
    {
      std::lock_guard guard(mutex_);
      stats_.in_use -= static_cast<int64_t>(bytes);
      if (bytes < kSmallest) {
        std::free(memory);
      } else {
        const size_t size = rounded(bytes, kPage);
        madvise(memory, size, MADV_DONTNEED);  // it is zero again
        free_[size].push_back(memory);
      }
      last = --live_ == 0 && !owned_;
    }
    if (last) delete this;
  }

  AllocatorStats stats() const override {
    std::lock_guard guard(mutex_);
    AllocatorStats out = stats_;
    out.limit = limit_;
    return out;
  }

  void release() noexcept override {
    bool last = false;
    {
      std::lock_guard guard(mutex_);
      owned_ = false;
      last = live_ == 0;
    }
    if (last) delete this;
  }

 private:
  struct Region {
    char* begin;
    size_t bytes, used;
  };

  ~PhantomAllocator() override {
    for (const Region& region : regions_) munmap(region.begin, region.bytes);
  }

  static size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

  void* refuse() {
    ++stats_.failures;
    return nullptr;
  }

  void* take(size_t size) {
    if (auto at = free_.find(size); at != free_.end() && !at->second.empty()) {
      ++stats_.cache_hits;
      void* memory = at->second.back();
      at->second.pop_back();
      return memory;
    }
    if (regions_.empty() || regions_.back().used + size > regions_.back().bytes) {
      const size_t bytes = std::max(size, regions_.empty() ? kFirstRegion : 2 * regions_.back().bytes);
      void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (begin == MAP_FAILED) return nullptr;
      regions_.push_back({static_cast<char*>(begin), bytes, 0});
    }
    Region& region = regions_.back();
    void* memory = region.begin + region.used;
    region.used += size;
    return memory;
  }

  const int64_t limit_;
  mutable std::mutex mutex_;  // guards what follows
  AllocatorStats stats_;
  int64_t live_ = 0;  // blocks
  bool owned_ = true;
  std::vector<Region> regions_;
  std::unordered_map<size_t, std::vector<void*>> free_;  // by size
};

}  // namespace

std::shared_ptr<Allocator> make_phantom_allocator(int64_t limit) { return own_allocator(new PhantomAllocator(limit)); }

}  // namespace troupe
