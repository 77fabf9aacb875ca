// SPDX-License-Identifier: Apache-2.0
// The two allocators of a device, which live until their memory came back.
#include "gpu/device_memory.h"

#include <atomic>
#include <utility>

#include "gpu/device_segments.h"

namespace troupe::gpu {
namespace {

class SegmentAllocator final : public Allocator {
 public:
  SegmentAllocator(std::shared_ptr<DeviceSegments> segments, DeviceSegments::Owner owner)
      : segments_(std::move(segments)), owner_(owner) {}

  void* allocate(size_t bytes) override {
    void* const memory = segments_->allocate(owner_, bytes);
    if (memory) held_.fetch_add(1, std::memory_order_relaxed);
    return memory;
  }
  void deallocate(void* memory, size_t bytes) noexcept override {
    segments_->deallocate(owner_, memory, bytes);
    release();
  }
  Space space() const override { return Space::kGpu; }
  AllocatorStats stats() const override { return segments_->stats(owner_); }
  void trim() override { segments_->trim(); }
  void release() noexcept override {
    if (held_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  const std::shared_ptr<DeviceSegments> segments_;
  const DeviceSegments::Owner owner_;
  std::atomic<int64_t> held_{1};  // blocks that are used, and 1 while it has owners
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::make(std::shared_ptr<Runtime> runtime,
                                                         std::shared_ptr<Stream> compute, DeviceMemoryOptions options) {
  const int card = options.card, cards = static_cast<int>(runtime->cards().size());
  if (card < 0 || card >= cards || compute->card() != card)
    return make_error(Code::kInternal, "memory of card {}: there are {} cards, and the stream is of card {}", card,
                      cards, compute->card());
  auto segments = std::make_shared<DeviceSegments>(std::move(runtime), std::move(compute), std::move(options));
  TROUPE_RETURN_IF_ERROR(segments->reserve());
  return std::unique_ptr<DeviceMemory>(new DeviceMemory(std::move(segments)));
}

DeviceMemory::DeviceMemory(std::shared_ptr<DeviceSegments> segments)
    : segments_(std::move(segments)), stream_(own_allocator(new SegmentAllocator(segments_, DeviceSegments::kStream))),
      transfers_(own_allocator(new SegmentAllocator(segments_, DeviceSegments::kTransfers))) {}

DeviceMemory::~DeviceMemory() = default;

void DeviceMemory::trim() { segments_->trim(); }

AllocatorStats DeviceMemory::stats() const { return segments_->stats(); }

bool DeviceMemory::holds(const void* at) const { return segments_->holds(at); }

}  // namespace troupe::gpu
