// SPDX-License-Identifier: Apache-2.0
// Memory with a strip behind each block that must not be written: finds what kernels and generated code, which
// sanitizers do not see into, write beyond their buffers.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "troupe/allocator.h"

namespace troupe::testing {

class GuardedAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    void* memory = inner_->allocate(bytes + kStrip);
    if (!memory) return nullptr;
    std::fill_n(static_cast<unsigned char*>(memory) + bytes, kStrip, kMark);
    ++held_;
    return memory;
  }
  void deallocate(void* memory, size_t bytes) noexcept override {
    const unsigned char* strip = static_cast<unsigned char*>(memory) + bytes;
    const auto* written = std::find_if(strip, strip + kStrip, [](unsigned char c) { return c != kMark; });
    if (written != strip + kStrip) {
      std::fprintf(stderr, "a block of %zu bytes was written at byte %zu\n", bytes, bytes + (written - strip));
      std::abort();
    }
    inner_->deallocate(memory, bytes + kStrip);
    release();
  }
  AllocatorStats stats() const override { return inner_->stats(); }
  void release() noexcept override {
    if (--held_ == 0) delete this;
  }

 private:
  static constexpr size_t kStrip = 512;
  static constexpr unsigned char kMark = 0xA5;
  const std::shared_ptr<Allocator> inner_ = make_caching_allocator();
  std::atomic<int64_t> held_{1};  // blocks that are out, and 1 while it has owners
};

}  // namespace troupe::testing
