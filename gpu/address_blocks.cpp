// SPDX-License-Identifier: Apache-2.0
// Splits and merges. Every block is in just one place: among the used ones or in a pool.
#include "gpu/address_blocks.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace troupe::gpu {
namespace {

bool smaller_block(const Block* a, const Block* b) { return std::tie(a->bytes, a->at) < std::tie(b->bytes, b->at); }

}  // namespace

AddressBlocks::Pool::Pool() : blocks(smaller_block) {}

AddressBlocks::~AddressBlocks() {
  for (const auto& [at, block] : used_) delete block;
  for (const Pool& pool : free_)
    for (const Block* block : pool.blocks) delete block;
}

void AddressBlocks::insert(Block* block) {
  free_[block->pool].blocks.insert(block);
  free_[block->pool].bytes += block->bytes;
}

void AddressBlocks::erase(Block* block) {
  free_[block->pool].blocks.erase(block);
  free_[block->pool].bytes -= block->bytes;
}

Block* AddressBlocks::add(char* at, size_t bytes, int pool) {
  auto* const block = new Block{.at = at, .bytes = bytes, .pool = pool};
  insert(block);
  return block;
}

void AddressBlocks::remove(Block* block) {
  TROUPE_CHECK(!block->used && !block->before && !block->after);
  erase(block);
  delete block;
}

Block* AddressBlocks::best_fit(int pool, size_t bytes, uint64_t mark) const {
  const Block least{.bytes = bytes};
  const Free& blocks = free_[pool].blocks;
  for (auto it = blocks.lower_bound(const_cast<Block*>(&least)); it != blocks.end(); ++it)
    if ((*it)->mark <= mark) return *it;
  return nullptr;
}

Block* AddressBlocks::cut(Block* block, size_t bytes) {
  auto* const rest = new Block(*block);
  rest->at += bytes;
  rest->bytes -= bytes;
  rest->before = block;
  if (rest->after) rest->after->before = rest;
  block->after = rest;
  block->bytes = bytes;
  return rest;
}

Block* AddressBlocks::take(Block* block, char* at, size_t bytes) {
  erase(block);
  if (at > block->at) {
    Block* const rest = cut(block, static_cast<size_t>(at - block->at));
    insert(block);
    block = rest;
  }
  if (block->bytes > bytes) insert(cut(block, bytes));
  return block;
}

Block* AddressBlocks::use(Block* block, char* at, size_t bytes) {
  block = take(block, at, bytes);
  block->used = true;
  used_[block->at] = block;
  return block;
}

Block* AddressBlocks::find(const void* at) const {
  const auto it = used_.find(at);
  return it == used_.end() ? nullptr : it->second;
}

Block* AddressBlocks::give_back(Block* block, uint64_t mark) {
  used_.erase(block->at);
  block->used = false;
  block->mark = mark;
  return merge(block);
}

void AddressBlocks::join(Block* block, Block* after) {
  block->bytes += after->bytes;
  block->mark = std::max(block->mark, after->mark);
  block->after = after->after;
  if (block->after) block->after->before = block;
  delete after;
}

Block* AddressBlocks::merge(Block* block) {
  const auto fits = [&](const Block* other) {
    return other && !other->used && other->pool == block->pool && other->slab == block->slab;
  };
  if (Block* const after = block->after; fits(after)) {
    erase(after);
    join(block, after);
  }
  if (Block* const before = block->before; fits(before)) {
    erase(before);
    join(before, block);
    block = before;
  }
  insert(block);
  return block;
}

Block* AddressBlocks::move(Block* block, char* at, size_t bytes, int pool, uint64_t mark, const char* slab) {
  block = take(block, at, bytes);
  block->pool = pool;
  block->mark = mark;
  block->slab = slab;
  return merge(block);
}

}  // namespace troupe::gpu
