// SPDX-License-Identifier: Apache-2.0
// AddressBlocks against a model that keeps who has each unit of the address space.
#include "tensor/address_blocks.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/repeats.h"

namespace troupe {
namespace {

char space[4096];

}  // namespace

TEST_CASE("blocks: the smallest that fits is taken, and the rest stays free") {
  AddressBlocks blocks(2);
  blocks.add(space, 100, 0);
  blocks.add(space + 1000, 40, 0);
  CHECK(blocks.best_fit(1, 1) == nullptr);
  CHECK(blocks.best_fit(0, 101) == nullptr);
  AddressBlock* const fit = blocks.best_fit(0, 30);
  REQUIRE(fit);
  CHECK(fit->at == space + 1000);
  AddressBlock* const used = blocks.use(fit, fit->at, 30);
  CHECK(used->bytes == 30);
  CHECK(blocks.find(space + 1000) == used);
  CHECK(blocks.find(space + 1001) == nullptr);
  CHECK(blocks.free_bytes(0) == 110);
  CHECK(blocks.best_fit(0, 1)->at == space + 1030);
  AddressBlock* const amid = blocks.use(blocks.best_fit(0, 50), space + 10, 50);
  CHECK(amid->at == space + 10);
  CHECK(blocks.free(0).size() == 3);
  CHECK(blocks.give_back(amid)->bytes == 100);
  CHECK(blocks.give_back(used)->bytes == 40);
  CHECK(blocks.free(0).size() == 2);
}

TEST_CASE("blocks: in a pool that keeps them apart, neighbours merge where marks are the same or settled") {
  AddressBlocks blocks(1);
  blocks.keep_apart(0);
  blocks.add(space, 100, 0);
  AddressBlock* used[5];
  for (int i = 0; i < 5; ++i) used[i] = blocks.use(blocks.best_fit(0, 20), space + 20 * i, 20);
  blocks.give_back(used[0], 1);
  blocks.give_back(used[1], 2);
  CHECK(blocks.give_back(used[2], 2)->bytes == 40);
  blocks.give_back(used[4], 4);
  CHECK(blocks.free(0).size() == 3);
  CHECK(blocks.best_fit(0, 1, 1)->bytes == 20);
  blocks.settle(2);
  CHECK(blocks.free(0).size() == 2);
  CHECK(blocks.best_fit(0, 60, 2)->at == space);
  CHECK(blocks.give_back(used[3], 3)->bytes == 20);
  blocks.settle(4);
  CHECK(blocks.free(0).size() == 1);
  CHECK(blocks.best_fit(0, 100, 4)->at == space);
  CHECK(blocks.free_bytes(0) == 100);
}

TEST_CASE("blocks: neighbours merge within pool and slab, and keep the highest mark") {
  AddressBlocks blocks(2);
  blocks.add(space, 100, 0);
  AddressBlock* const a = blocks.use(blocks.best_fit(0, 10), space, 10);
  AddressBlock* const b = blocks.use(blocks.best_fit(0, 10), space + 10, 10);
  AddressBlock* const c = blocks.use(blocks.best_fit(0, 80), space + 20, 80);
  blocks.give_back(a, 5);
  blocks.give_back(c, 3);
  CHECK(blocks.best_fit(0, 1, 4)->at == space + 20);
  CHECK(blocks.best_fit(0, 1, 2) == nullptr);
  AddressBlock* const all = blocks.give_back(b, 4);
  CHECK(all->bytes == 100);
  CHECK(all->mark == 5);
  AddressBlock* const moved = blocks.move(all, space + 40, 20, 1, 7);
  CHECK(moved->bytes == 20);
  CHECK(moved->mark == 7);
  CHECK(blocks.free(0).size() == 2);
  CHECK(blocks.move(blocks.best_fit(0, 40, 5), space, 40, 1, 1)->bytes == 60);  // next to what was moved before
  AddressBlock* const slab = blocks.move(blocks.best_fit(1, 60), space + 20, 40, 1, 0, space + 20);
  CHECK(slab->bytes == 40);
  CHECK(blocks.free(1).size() == 2);  // the slab does not merge with what is before it
  CHECK(blocks.move(slab, space + 20, 40, 1, 0)->bytes == 60);
}

TEST_CASE("blocks: no byte is lost or given twice, whatever is taken, given back and moved") {
  for (int seed = 0; seed < repeats(40); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](uint64_t n) { return static_cast<size_t>(random() % n); };
    AddressBlocks blocks(3);
    constexpr size_t kBytes = 512;
    std::vector<int> owner(kBytes, 0);  // of each byte: its pool, or 3 and more: the id of who uses it
    blocks.add(space, kBytes, 0);
    std::map<int, AddressBlock*> used;
    int next = 3;
    for (int i = 0; i < 400; ++i) {
      const int pool = static_cast<int>(draw(3));
      const size_t bytes = 1 + draw(draw(4) ? 16 : 128);
      const size_t choice = draw(5);
      if (choice < 2) {
        AddressBlock* const fit = blocks.best_fit(pool, bytes);
        size_t longest = 0, run = 0;
        for (const int o : owner) longest = std::max(longest, run = o == pool ? run + 1 : 0);
        REQUIRE((fit != nullptr) == (longest >= bytes));  // all that is free together is one block
        if (!fit) continue;
        char* const at = fit->at + draw(fit->bytes - bytes + 1);
        AddressBlock* const block = blocks.use(fit, at, bytes);
        for (size_t k = 0; k < bytes; ++k) {
          REQUIRE(owner[static_cast<size_t>(at - space) + k] == pool);
          owner[static_cast<size_t>(at - space) + k] = next;
        }
        used[next++] = block;
      } else if (choice < 4 && !used.empty()) {
        const auto it = std::next(used.begin(), static_cast<long>(draw(used.size())));
        REQUIRE(blocks.find(it->second->at) == it->second);
        for (size_t k = 0; k < it->second->bytes; ++k)
          owner[static_cast<size_t>(it->second->at - space) + k] = it->second->pool;
        blocks.give_back(it->second);
        used.erase(it);
      } else if (AddressBlock* const fit = blocks.best_fit(pool, bytes)) {
        char* const at = fit->at + draw(fit->bytes - bytes + 1);
        const int to = static_cast<int>(draw(3));
        blocks.move(fit, at, bytes, to, 0);
        for (size_t k = 0; k < bytes; ++k) owner[static_cast<size_t>(at - space) + k] = to;
      }
      for (int p = 0; p < 3; ++p)
        REQUIRE(blocks.free_bytes(p) == static_cast<size_t>(std::count(owner.begin(), owner.end(), p)));
    }
    for (const auto& [id, block] : used) {
      AddressBlock* const rest = blocks.give_back(block);
      blocks.move(rest, rest->at, rest->bytes, 0, 0);
    }
    for (const int p : {1, 2})
      while (AddressBlock* const rest = blocks.best_fit(p, 1)) blocks.move(rest, rest->at, rest->bytes, 0, 0);
    REQUIRE(blocks.free(0).size() == 1);
    CHECK((*blocks.free(0).begin())->bytes == kBytes);
    blocks.remove(*blocks.free(0).begin());
    CHECK(blocks.free_bytes(0) == 0);
  }
}

}  // namespace troupe
