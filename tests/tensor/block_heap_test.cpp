// SPDX-License-Identifier: Apache-2.0
// BlockHeap: blocks merge, are divided and go back to the system, and never overlap; alone and by the caching
// allocator.
#include "tensor/block_heap.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/repeats.h"
#include "troupe/allocator.h"

using namespace troupe;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct HeapFixture {
  BlockHeap heap;
  size_t fresh = 0;
  char* allocate(size_t bytes) { return static_cast<char*>(heap.allocate(bytes, fresh)); }
  void free(void* at, size_t bytes, bool keep = true) { heap.deallocate(at, bytes, keep); }
};

/// Memory of this process that the system gave, in bytes.
int64_t resident() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, pages = 0;
  file >> all >> pages;
  return pages * 4096;
}

}  // namespace

TEST_CASE("what blocks of one size leave serves larger and smaller ones") {
  HeapFixture f;
  char* const a = f.allocate(3 * kMiB);
  REQUIRE(a);
  CHECK(f.fresh == 3 * kMiB);
  char* const b = f.allocate(2 * kMiB - 5);
  CHECK(b == a + 3 * kMiB);
  CHECK((f.heap.holds(a) && f.heap.holds(b) && !f.heap.holds(&f)));
  f.free(a, 3 * kMiB);
  f.free(b, 2 * kMiB - 5);
  CHECK(f.allocate(5 * kMiB) == a);
  CHECK(f.fresh == 0);
  f.free(a, 5 * kMiB);
  CHECK(f.allocate(kMiB) == a);
  CHECK(f.allocate(4 * kMiB) == a + kMiB);
  CHECK(f.fresh == 0);
  // What is kept at the end grows by what is missing.
  f.free(a + kMiB, 4 * kMiB);
  CHECK(f.allocate(6 * kMiB) == a + kMiB);
  CHECK(f.fresh == 2 * kMiB);
  f.free(a + kMiB, 6 * kMiB);
  f.free(a, kMiB);
}

TEST_CASE("the smallest block that fits is taken") {
  HeapFixture f;
  char* const a = f.allocate(4 * kMiB);
  char* const wall = f.allocate(kMiB);
  char* const b = f.allocate(2 * kMiB);
  char* const end = f.allocate(kMiB);
  f.free(a, 4 * kMiB);
  f.free(b, 2 * kMiB);
  CHECK(f.allocate(2 * kMiB) == b);
  CHECK(f.allocate(2 * kMiB) == a);
  for (const auto& [at, bytes] : std::map<char*, size_t>{{a, 2 * kMiB}, {wall, kMiB}, {b, 2 * kMiB}, {end, kMiB}})
    f.free(at, bytes);
}

TEST_CASE("memory that is not kept goes back to the system, and its addresses serve again") {
  HeapFixture f;
  constexpr size_t kBytes = 64 * kMiB;
  char* const a = f.allocate(kBytes);
  std::memset(a, 1, kBytes);
  const int64_t before = resident();
  SECTION("at once") {
    f.free(a, kBytes, false);
    CHECK(f.heap.give_back_largest() == 0);
  }
  SECTION("later") {
    f.free(a, kBytes);
    CHECK(f.heap.give_back_largest() == kBytes);
    CHECK(f.heap.give_back_largest() == 0);
  }
  CHECK(resident() < before - static_cast<int64_t>(kBytes) / 2);
  char* const again = f.allocate(kBytes);
  CHECK(again == a);
  CHECK(f.fresh == kBytes);
  CHECK(again[kBytes - 1] == 0);
  f.free(again, kBytes);
}

TEST_CASE("more than the machine has is refused, and so is what no size can be") {
  HeapFixture f;
  CHECK(f.allocate(SIZE_MAX) == nullptr);
  CHECK(f.allocate(SIZE_MAX / 2) == nullptr);
  CHECK(f.allocate(size_t{1} << 46) == nullptr);
  CHECK(f.heap.give_back_largest() == 0);
}

TEST_CASE("blocks of random sizes never overlap, and memory that is kept is what was fresh and did not go back") {
  HeapFixture f;
  std::mt19937 random(7);
  struct Used {
    size_t bytes;
    unsigned char mark;
  };
  std::map<char*, Used> used;
  int64_t given = 0, in_use = 0;
  for (uint32_t i = 0; i < repeats(4000); ++i) {
    if (used.size() < 24 && random() % 3) {
      const size_t bytes = 1 + random() % (kMiB / 4);
      char* const at = f.allocate(bytes);
      REQUIRE(at);
      REQUIRE(reinterpret_cast<uintptr_t>(at) % BlockHeap::kUnit == 0);
      given += static_cast<int64_t>(f.fresh);
      in_use += static_cast<int64_t>(BlockHeap::rounded(bytes));
      const auto mark = static_cast<unsigned char>(random());
      at[0] = at[bytes - 1] = static_cast<char>(mark);
      const auto next = used.lower_bound(at);
      if (next != used.end()) REQUIRE(at + bytes <= next->first);
      if (next != used.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second.bytes <= at);
      used[at] = {bytes, mark};
    } else if (!used.empty()) {
      const auto it = std::next(used.begin(), static_cast<int64_t>(random() % used.size()));
      const auto& [at, block] = *it;
      REQUIRE(static_cast<unsigned char>(at[0]) == block.mark);
      REQUIRE(static_cast<unsigned char>(at[block.bytes - 1]) == block.mark);
      const bool keep = random() % 4;
      f.free(at, block.bytes, keep);
      in_use -= static_cast<int64_t>(BlockHeap::rounded(block.bytes));
      if (!keep) given -= static_cast<int64_t>(BlockHeap::rounded(block.bytes));
      used.erase(it);
    }
    if (random() % 50 == 0) given -= static_cast<int64_t>(f.heap.give_back_largest());
    REQUIRE(given >= in_use);
  }
  for (const auto& [at, block] : used) f.free(at, block.bytes);
  while (const size_t bytes = f.heap.give_back_largest()) given -= static_cast<int64_t>(bytes);
  CHECK(given == 0);
}

TEST_CASE("tensors of many sizes in turn need no more than the most at once") {
  const auto a = make_caching_allocator();
  for (int round = 0; round < 3; ++round)
    for (const size_t mib : {64, 40, 24, 50, 10, 60, 33, 7}) {
      void* const p = a->allocate(mib * kMiB);
      REQUIRE(p);
      a->deallocate(p, mib * kMiB);
    }
  AllocatorStats s = a->stats();
  CHECK(s.peak == int64_t{64} << 20);
  CHECK(s.in_use + s.cached == s.peak);
  CHECK(s.allocations == 24);
  CHECK(s.cache_hits == 23);
  a->trim();
  CHECK(a->stats().cached == 0);
}

TEST_CASE("a limit counts large blocks as they are, and what is kept goes before it is passed") {
  const auto a = make_caching_allocator(int64_t{8} << 20);
  void* const p = a->allocate(5 * kMiB);
  REQUIRE(p);
  CHECK(a->allocate(4 * kMiB) == nullptr);
  CHECK(a->stats().failures == 1);
  void* const q = a->allocate(3 * kMiB);
  REQUIRE(q);
  a->deallocate(p, 5 * kMiB);
  void* const r = a->allocate(512 << 10);
  REQUIRE(r);
  CHECK(a->stats().cached == 0);
  a->deallocate(q, 3 * kMiB);
  a->deallocate(r, 512 << 10);
  CHECK(a->stats().in_use == 0);
}

TEST_CASE("threads share a heap") {
  const auto a = make_caching_allocator(0, int64_t{16} << 20);
  std::vector<std::thread> threads;
  std::atomic<int> torn{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < repeats(300); ++i) {
        const size_t bytes = kMiB + (i * 7919 + static_cast<size_t>(t) * 104729) % kMiB;
        auto* const p = static_cast<unsigned char*>(a->allocate(bytes));
        p[0] = p[bytes / 2] = p[bytes - 1] = static_cast<unsigned char>(t);
        if (i % 50 == 0) a->trim();
        torn += p[0] != t || p[bytes / 2] != t || p[bytes - 1] != t;
        a->deallocate(p, bytes);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(torn == 0);
  CHECK(a->stats().in_use == 0);
  a->trim();
  CHECK(a->stats().cached == 0);
}
