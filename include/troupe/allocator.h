// SPDX-License-Identifier: Apache-2.0
// Memory for tensors: the Allocator interface and the caching allocator of CPU devices.
// Implemented in tensor/allocator.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "troupe/export.h"
#include "troupe/space.h"

namespace TROUPE_API troupe {

/// Alignment in bytes of every allocation.
inline constexpr size_t kAlignment = 64;

/// Counters of one allocator, in bytes and calls.
struct AllocatorStats {
  int64_t in_use = 0;  // bytes handed out now
  int64_t peak = 0;    // most bytes ever handed out at once
  int64_t cached = 0;  // bytes kept for reuse
  int64_t limit = 0;   // bytes that may be in use; 0: no limit
  int64_t allocations = 0;
  int64_t cache_hits = 0;
  int64_t failures = 0;  // allocations refused by the limit or the system
};

/// Where buffers come from. Implementations are thread-safe: any thread may allocate, another may free.
/// An allocator is shared by shared_ptr (own_allocator) and lives until its last owner is gone and all memory came
/// back: buffers, of which each step makes many, do not count as owners.
class Allocator {
 public:
  /// `bytes` of memory aligned to kAlignment, or nullptr when the limit or the system refuses.
  virtual void* allocate(size_t bytes) = 0;
  /// Gives back what allocate(bytes) returned, with the same `bytes`.
  virtual void deallocate(void* memory, size_t bytes) noexcept = 0;
  /// Where the memory is. What is not the host's is read and written by kernels of GPUs alone.
  virtual Space space() const { return Space::kHost; }
  virtual AllocatorStats stats() const = 0;
  /// Returns cached memory to the system.
  virtual void trim() {}
  /// The last owner is gone: the allocator goes now, or with the last of its memory that comes back.
  virtual void release() noexcept = 0;

 protected:
  virtual ~Allocator() = default;
};

/// The first owner of an allocator made by new.
std::shared_ptr<Allocator> own_allocator(Allocator* allocator);

/// A caching allocator of host memory: freed blocks wait in lists by size class (four classes to a power of two)
/// and are used again, so a training loop stops calling the system after its first step. Blocks of 1 MiB and more lie
/// side by side in one range of addresses, twice as large as the machine's memory, where free ones merge and are
/// divided again; but they are as the others where the process is limited in addresses (RLIMIT_AS). When the limit
/// would be passed, cached blocks go first. The system is asked for no more than was in use at once and `cache_limit`
/// bytes (0: no cache), so that a step that takes 3 GB finds them again. Negative limits count as 0.
std::shared_ptr<Allocator> make_caching_allocator(int64_t limit = 0, int64_t cache_limit = int64_t{1} << 30);

/// Plain system memory without cache or limit, for tensors made outside an engine. Always the same object.
const std::shared_ptr<Allocator>& system_allocator();

}  // namespace troupe
