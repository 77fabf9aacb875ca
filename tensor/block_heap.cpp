// SPDX-License-Identifier: Apache-2.0
// Invariants: each address of the range is in one block: used, kept or a hole. All below open_ may be written.
#include "tensor/block_heap.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#endif

namespace troupe {

BlockHeap::~BlockHeap() {
  char* const first = first_.load(std::memory_order_relaxed);
  if (!first) return;
  ASAN_UNPOISON_MEMORY_REGION(first, static_cast<size_t>(open_ - first));
  munmap(first, bytes_);
}

bool BlockHeap::reserve() {
  if (tried_) return bytes_ > 0;
  tried_ = true;
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return false;
  const auto pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return false;
  const size_t bytes = static_cast<size_t>(pages) * static_cast<size_t>(page) / kHugePage * kHugePage * 2;
  void* const at = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  // It begins at a huge page; what is around it goes back.
  char* const begin = static_cast<char*>(at);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(begin + before + bytes, kHugePage - before);
  bytes_ = bytes;
  open_ = begin + before;
  blocks_.add(open_, bytes, kHoles);
  first_.store(open_, std::memory_order_release);
  return true;
}

bool BlockHeap::open(char* end) {
  if (end <= open_) return true;
  const size_t bytes = (static_cast<size_t>(end - open_) + kHugePage - 1) / kHugePage * kHugePage;
  if (mprotect(open_, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  (void)madvise(open_, bytes, MADV_HUGEPAGE);  // where there are no huge pages it is as good without
  ASAN_POISON_MEMORY_REGION(open_, bytes);
  open_ += bytes;
  return true;
}

AddressBlock* BlockHeap::find(size_t bytes, size_t& fresh) {
  fresh = 0;
  if (AddressBlock* const fits = blocks_.best_fit(kKept, bytes)) return fits;
  // One that fits with the hole behind it, the largest, so that the system has to give the least.
  const auto& kept = blocks_.free(kKept);
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) {
    AddressBlock* const hole = (*it)->after;
    if (!hole || hole->used || (*it)->bytes + hole->bytes < bytes) continue;
    const size_t more = bytes - (*it)->bytes;
    if (!open(hole->at + more)) return nullptr;
    fresh = more;
    return blocks_.move(hole, hole->at, more, kKept, 0);
  }
  AddressBlock* const hole = blocks_.best_fit(kHoles, bytes);
  if (!hole || !open(hole->at + bytes)) return nullptr;
  fresh = bytes;
  return blocks_.move(hole, hole->at, bytes, kKept, 0);
}

void* BlockHeap::allocate(size_t bytes, size_t& fresh) {
  const std::lock_guard guard(mutex_);
  const size_t size = rounded(bytes);
  // More than the machine has is for the system to refuse.
  if (size < bytes || !reserve() || size > bytes_ / 2) return nullptr;
  AddressBlock* const block = find(size, fresh);
  if (!block) return nullptr;
  // A new block of a hole may have merged with a smaller kept one before it.
  char* const at = blocks_.use(block, block->at, size)->at;
  ASAN_UNPOISON_MEMORY_REGION(at, bytes);
  return at;
}

void BlockHeap::deallocate(void* memory, size_t bytes, bool keep) noexcept {
  const std::lock_guard guard(mutex_);
  AddressBlock* const block = blocks_.find(memory);
  TROUPE_CHECK(block && block->bytes == rounded(bytes));
  ASAN_POISON_MEMORY_REGION(memory, bytes);
  const size_t size = block->bytes;
  AddressBlock* const free = blocks_.give_back(block);
  if (keep) return;
  (void)madvise(memory, size, MADV_DONTNEED);
  blocks_.move(free, static_cast<char*>(memory), size, kHoles, 0);
}

size_t BlockHeap::give_back_largest() noexcept {
  const std::lock_guard guard(mutex_);
  const auto& kept = blocks_.free(kKept);
  if (kept.empty()) return 0;
  AddressBlock* const block = *kept.rbegin();
  const size_t bytes = block->bytes;
  (void)madvise(block->at, bytes, MADV_DONTNEED);
  blocks_.move(block, block->at, bytes, kHoles, 0);
  return bytes;
}

}  // namespace troupe
