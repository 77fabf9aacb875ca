// SPDX-License-Identifier: Apache-2.0
// AddressBlocks: how address space is divided among who uses it. Free blocks are kept by size, in pools, and merge with
// free neighbours of their pool, in some pools only with such as are as free. What the memory is and when it may be
// used again is decided by who has an AddressBlocks: see tensor/block_heap.h, gpu/device_memory.h and
// gpu/pinned_memory.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

namespace troupe {

/// A range of addresses that is used or free as a whole.
struct AddressBlock {
  char* at = nullptr;
  size_t bytes = 0;
  int pool = 0;
  bool used = false;
  /// Of a free one: the highest that a part of it was given back with.
  uint64_t mark = 0;
  /// Blocks merge with those of the same slab alone; null: in none.
  const char* slab = nullptr;
  AddressBlock* before = nullptr;  // the neighbours by address
  AddressBlock* after = nullptr;
};

/// Not thread-safe. Owns its blocks: a pointer to a free one is good until the next call that changes blocks, but for
/// what add() says, one to a used one until give_back().
class AddressBlocks {
 public:
  explicit AddressBlocks(int pools) : free_(static_cast<size_t>(pools)) {}
  ~AddressBlocks();
  AddressBlocks(const AddressBlocks&) = delete;

  /// New address space, free; it borders on nothing. What begins at `at` stays this very AddressBlock until remove().
  AddressBlock* add(char* at, size_t bytes, int pool);
  /// Forgets address space that was added, is free and one block.
  void remove(AddressBlock* block);

  /// The smallest free block of a pool of at least `bytes` whose mark is at most `mark`; of several the one with the
  /// lowest address. nullptr: none.
  AddressBlock* best_fit(int pool, size_t bytes, uint64_t mark = UINT64_MAX) const;
  /// Takes [at, at + bytes) of a free block, in which it lies, into use; the rest stays free.
  AddressBlock* use(AddressBlock* block, char* at, size_t bytes);
  /// The block in use that begins at an address; nullptr: none does.
  AddressBlock* find(const void* at) const;
  /// Has free blocks of a pool merge only where the marks of both are the same, or settled. Before blocks come there.
  void keep_apart(int pool) { free_[pool].apart = true; }
  /// Marks up to this one are settled: blocks that were kept apart by them merge. At first none above 0 are.
  void settle(uint64_t mark);

  /// A used block becomes free, and one with its free neighbours of the same pool and slab: that one.
  AddressBlock* give_back(AddressBlock* block, uint64_t mark = 0);
  /// Makes [at, at + bytes) of a free block, in which it lies, a block of its own of another pool, slab and mark, and
  /// merges it there: the block that it then is, or is a part of.
  AddressBlock* move(AddressBlock* block, char* at, size_t bytes, int pool, uint64_t mark, const char* slab = nullptr);

  using Free = std::set<AddressBlock*, bool (*)(const AddressBlock*, const AddressBlock*)>;
  /// The free blocks of a pool, the smallest first.
  const Free& free(int pool) const { return free_[pool].blocks; }
  size_t free_bytes(int pool) const { return free_[pool].bytes; }

 private:
  struct Pool {
    Pool();
    Free blocks;
    size_t bytes = 0;
    bool apart = false;
  };
  void insert(AddressBlock* block);
  void erase(AddressBlock* block);
  /// Takes [at, at + bytes) out of a free block and its pool; what is left of it stays there.
  AddressBlock* take(AddressBlock* block, char* at, size_t bytes);
  /// Cuts what is behind the first `bytes` off, neither in use nor in a pool.
  AddressBlock* cut(AddressBlock* block, size_t bytes);
  AddressBlock* merge(AddressBlock* block);
  /// Whether two neighbours, the first of them free, become one.
  bool fit_together(const AddressBlock* block, const AddressBlock* other) const;
  /// Takes `after` into `block`.
  void join(AddressBlock* block, AddressBlock* after);

  std::vector<Pool> free_;
  uint64_t settled_ = 0;
  std::unordered_map<const void*, AddressBlock*> used_;
};

}  // namespace troupe
