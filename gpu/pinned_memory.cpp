// SPDX-License-Identifier: Apache-2.0
// Segments are multiples of 2 MiB. Blocks of at most 1 MiB share segments of their own, so that they do not keep large
// ones from being used as a whole.
#include "gpu/pinned_memory.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"
#include "tensor/address_blocks.h"

namespace troupe::gpu {
namespace {

constexpr size_t kPinnedRound = 512;
constexpr size_t kMostShared = size_t{1} << 20;
constexpr size_t kPinnedUnit = size_t{2} << 20;

class PinnedAllocator final : public Allocator {
 public:
  PinnedAllocator(std::shared_ptr<Runtime> runtime, int64_t limit) : runtime_(std::move(runtime)) {
    stats_.limit = std::max<int64_t>(limit, 0);
  }

  void* allocate(size_t bytes) override {
    std::lock_guard guard(mutex_);
    ++stats_.allocations;
    AddressBlock* block = nullptr;
    const size_t rounded = bytes > SIZE_MAX / 2 ? 0 : rounded_to(bytes);
    if (rounded > 0) {
      const int pool = rounded <= kMostShared ? kShared : kLarge;
      block = blocks_.best_fit(pool, rounded);
      stats_.cache_hits += block != nullptr;
      if (!block) block = pin(pool, rounded);
    }
    if (!block) {
      ++stats_.failures;
      return nullptr;
    }
    ++held_;
    stats_.in_use += static_cast<int64_t>(rounded);
    stats_.peak = std::max(stats_.peak, stats_.in_use);
    return blocks_.use(block, block->at, rounded)->at;
  }

  void deallocate(void* memory, size_t bytes) noexcept override {
    std::unique_lock lock(mutex_);
    AddressBlock* const block = blocks_.find(memory);
    TROUPE_CHECK(block && block->bytes == rounded_to(bytes));
    stats_.in_use -= static_cast<int64_t>(block->bytes);
    blocks_.give_back(block);
    let_go(lock);
  }

  void release() noexcept override {
    std::unique_lock lock(mutex_);
    let_go(lock);
  }

  AllocatorStats stats() const override {
    std::lock_guard guard(mutex_);
    AllocatorStats out = stats_;
    out.cached = pinned_ - stats_.in_use;
    return out;
  }

  void trim() override {
    std::lock_guard guard(mutex_);
    unpin_free();
  }

 private:
  enum { kShared, kLarge, kPinnedPools };

  ~PinnedAllocator() override { unpin_free(); }

  static size_t rounded_to(size_t bytes) {
    return std::max((bytes + kPinnedRound - 1) / kPinnedRound * kPinnedRound, kPinnedRound);
  }

  AddressBlock* pin(int pool, size_t bytes) {
    const size_t segment = (bytes + kPinnedUnit - 1) / kPinnedUnit * kPinnedUnit;
    const auto fits = [&] {
      if (stats_.limit == 0) return true;
      return segment <= static_cast<size_t>(stats_.limit) && pinned_ <= stats_.limit - static_cast<int64_t>(segment);
    };
    if (!fits()) unpin_free();
    if (!fits()) return nullptr;
    auto at = runtime_->pin(segment);
    if (!at.ok() && at.error().code == Code::kResourceExhausted) {
      unpin_free();
      at = runtime_->pin(segment);
    }
    if (!at.ok()) return nullptr;
    pinned_ += static_cast<int64_t>(segment);
    return blocks_.add(static_cast<char*>(*at), segment, pool);
  }

  void unpin_free() {
    for (const int pool : {kShared, kLarge}) {
      const std::vector<AddressBlock*> free(blocks_.free(pool).begin(), blocks_.free(pool).end());
      for (AddressBlock* const block : free) {
        if (block->before || block->after) continue;  // a part of its segment is used
        pinned_ -= static_cast<int64_t>(block->bytes);
        runtime_->unpin(block->at, block->bytes);
        blocks_.remove(block);
      }
    }
  }

  void let_go(std::unique_lock<std::mutex>& lock) {
    const bool last = --held_ == 0;
    lock.unlock();
    if (last) delete this;
  }

  const std::shared_ptr<Runtime> runtime_;
  mutable std::mutex mutex_;
  AddressBlocks blocks_{kPinnedPools};
  int64_t held_ = 1;  // blocks that are used, and 1 while it has owners
  int64_t pinned_ = 0;
  AllocatorStats stats_;
};

}  // namespace

std::shared_ptr<Allocator> make_pinned_allocator(std::shared_ptr<Runtime> runtime, int64_t limit) {
  return own_allocator(new PinnedAllocator(std::move(runtime), limit));
}

}  // namespace troupe::gpu
