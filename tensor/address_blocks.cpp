// SPDX-License-Identifier: Apache-2.0
// Splits and merges. Every block is in just one place: among the used ones or in a pool.
#include "tensor/address_blocks.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "base/check.h"

namespace troupe {
namespace {

bool smaller_block(const AddressBlock* a, const AddressBlock* b) {
  return std::tie(a->bytes, a->at) < std::tie(b->bytes, b->at);
}

}  // namespace

AddressBlocks::Pool::Pool() : blocks(smaller_block) {}

AddressBlocks::~AddressBlocks() {
  for (const auto& [at, block] : used_) delete block;
  for (const Pool& pool : free_)
    for (const AddressBlock* block : pool.blocks) delete block;
}

void AddressBlocks::insert(AddressBlock* block) {
  free_[block->pool].blocks.insert(block);
  free_[block->pool].bytes += block->bytes;
}

void AddressBlocks::erase(AddressBlock* block) {
  free_[block->pool].blocks.erase(block);
  free_[block->pool].bytes -= block->bytes;
}

AddressBlock* AddressBlocks::add(char* at, size_t bytes, int pool) {
  auto* const block = new AddressBlock{.at = at, .bytes = bytes, .pool = pool};
  insert(block);
  return block;
}

void AddressBlocks::remove(AddressBlock* block) {
  TROUPE_CHECK(!block->used && !block->before && !block->after);
  erase(block);
  delete block;
}

AddressBlock* AddressBlocks::best_fit(int pool, size_t bytes, uint64_t mark) const {
  const AddressBlock least{.bytes = bytes};
  const Free& blocks = free_[pool].blocks;
  for (auto it = blocks.lower_bound(const_cast<AddressBlock*>(&least)); it != blocks.end(); ++it)
    if ((*it)->mark <= mark) return *it;
  return nullptr;
}

AddressBlock* AddressBlocks::cut(AddressBlock* block, size_t bytes) {
  auto* const rest = new AddressBlock(*block);
  rest->at += bytes;
  rest->bytes -= bytes;
  rest->before = block;
  if (rest->after) rest->after->before = rest;
  block->after = rest;
  block->bytes = bytes;
  return rest;
}

AddressBlock* AddressBlocks::take(AddressBlock* block, char* at, size_t bytes) {
  erase(block);
  if (at > block->at) {
    AddressBlock* const rest = cut(block, static_cast<size_t>(at - block->at));
    insert(block);
    block = rest;
  }
  if (block->bytes > bytes) insert(cut(block, bytes));
  return block;
}

AddressBlock* AddressBlocks::use(AddressBlock* block, char* at, size_t bytes) {
  block = take(block, at, bytes);
  block->used = true;
  used_[block->at] = block;
  return block;
}

AddressBlock* AddressBlocks::find(const void* at) const {
  const auto it = used_.find(at);
  return it == used_.end() ? nullptr : it->second;
}

AddressBlock* AddressBlocks::give_back(AddressBlock* block, uint64_t mark) {
  used_.erase(block->at);
  block->used = false;
  block->mark = mark;
  return merge(block);
}

void AddressBlocks::join(AddressBlock* block, AddressBlock* after) {
  block->bytes += after->bytes;
  block->mark = std::max(block->mark, after->mark);
  block->after = after->after;
  if (block->after) block->after->before = block;
  delete after;
}

bool AddressBlocks::fit_together(const AddressBlock* block, const AddressBlock* other) const {
  if (!other || other->used || other->pool != block->pool || other->slab != block->slab) return false;
  return !free_[block->pool].apart || block->mark == other->mark || std::max(block->mark, other->mark) <= settled_;
}

void AddressBlocks::settle(uint64_t mark) {
  settled_ = mark;
  for (Pool& pool : free_) {
    if (!pool.apart) continue;
    std::vector<AddressBlock*> blocks;
    for (AddressBlock* const block : pool.blocks)
      if (block->mark <= mark && fit_together(block, block->after)) blocks.push_back(block);
    // From the last one on, so that none of them is joined to another before its turn.
    std::ranges::sort(blocks, std::greater<>(), &AddressBlock::at);
    for (AddressBlock* const block : blocks) {
      erase(block->after);
      erase(block);
      join(block, block->after);
      insert(block);
    }
  }
}

AddressBlock* AddressBlocks::merge(AddressBlock* block) {
  const auto fits = [&](const AddressBlock* other) { return fit_together(block, other); };
  if (AddressBlock* const after = block->after; fits(after)) {
    erase(after);
    join(block, after);
  }
  if (AddressBlock* const before = block->before; fits(before)) {
    erase(before);
    join(before, block);
    block = before;
  }
  insert(block);
  return block;
}

AddressBlock* AddressBlocks::move(AddressBlock* block, char* at, size_t bytes, int pool, uint64_t mark,
                                  const char* slab) {
  block = take(block, at, bytes);
  block->pool = pool;
  block->mark = mark;
  block->slab = slab;
  return merge(block);
}

}  // namespace troupe
