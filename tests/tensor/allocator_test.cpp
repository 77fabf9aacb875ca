// SPDX-License-Identifier: Apache-2.0
// The caching allocator: alignment, reuse, limits, and its counters under threads.
#include "troupe/allocator.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "troupe/tensor.h"

using namespace troupe;

TEST_CASE("blocks are aligned, large enough and apart, whatever their size") {
  auto a = make_caching_allocator();
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (size_t n = 0; n < 3000; n += 1 + n / 16) {
    auto* p = static_cast<unsigned char*>(a->allocate(n));
    REQUIRE(p);
    CHECK(reinterpret_cast<uintptr_t>(p) % kAlignment == 0);
    std::memset(p, static_cast<int>(blocks.size()), n);
    blocks.emplace_back(p, n);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t k = 0; k < blocks[i].second; ++k) REQUIRE(blocks[i].first[k] == static_cast<unsigned char>(i));
    a->deallocate(blocks[i].first, blocks[i].second);
  }
  CHECK(a->stats().in_use == 0);
}

TEST_CASE("no size is given less than it asks, at every border of a size class") {
  auto a = make_caching_allocator(0, 0);
  for (int shift = 5; shift < 26; ++shift)
    for (int64_t quarter = 4; quarter < 8; ++quarter)
      for (int64_t off = -65; off <= 65; off += 13) {
        const int64_t n = (int64_t{1} << shift) / 4 * quarter + off;
        if (n < 0) continue;
        void* p = a->allocate(static_cast<size_t>(n));
        REQUIRE(p);
        CHECK(a->stats().in_use >= n);
        CHECK(a->stats().in_use <= std::max<int64_t>(n * 5 / 4 + 128, 64));  // at most a class too large
        a->deallocate(p, static_cast<size_t>(n));
      }
  CHECK(a->stats().in_use == 0);
  CHECK(a->stats().cached == 0);
}

TEST_CASE("a freed block serves the next of its class, and trim gives it back") {
  auto a = make_caching_allocator();
  void* first = a->allocate(1000);
  a->deallocate(first, 1000);
  CHECK(a->stats().cached >= 1000);
  void* second = a->allocate(1010);
  CHECK(second == first);
  CHECK(a->stats().cache_hits == 1);
  CHECK(a->stats().cached == 0);
  a->deallocate(second, 1010);
  a->trim();
  const AllocatorStats s = a->stats();
  CHECK(s.cached == 0);
  CHECK(s.in_use == 0);
  CHECK(s.allocations == 2);
  CHECK(s.peak >= 1010);
}

TEST_CASE("a limit refuses what passes it, and cached blocks go first") {
  auto a = make_caching_allocator(1 << 20);
  void* p = a->allocate(900'000);
  REQUIRE(p);
  CHECK(a->allocate(400'000) == nullptr);
  CHECK(a->stats().failures == 1);
  a->deallocate(p, 900'000);
  CHECK(a->stats().cached >= 900'000);
  void* q = a->allocate(400'000);  // another class: the cached block must go
  REQUIRE(q);
  CHECK(a->stats().cached == 0);
  CHECK(a->stats().limit == 1 << 20);
  a->deallocate(q, 400'000);
  CHECK(a->allocate(SIZE_MAX) == nullptr);
  CHECK(a->allocate(SIZE_MAX - 64) == nullptr);
  CHECK(a->allocate(size_t{1} << 62) == nullptr);
  CHECK(a->stats().in_use == 0);
}

TEST_CASE("all that was in use at once serves again, and the cache takes no more than its limit beside") {
  constexpr int64_t kLimit = 4096, kMany = 100, kSize = 1024;
  auto a = make_caching_allocator(0, kLimit);
  const auto round = [&](int64_t count, size_t bytes) {
    std::vector<void*> blocks;
    for (int64_t i = 0; i < count; ++i) blocks.push_back(a->allocate(bytes));
    const int64_t given = a->stats().in_use + a->stats().cached;
    for (void* p : blocks) a->deallocate(p, bytes);
    return given;
  };
  CHECK(round(kMany, kSize) == kMany * kSize);
  CHECK(a->stats().cached == kMany * kSize);
  CHECK(round(kMany, kSize) == kMany * kSize);
  CHECK(a->stats().cache_hits == kMany);
  // Blocks of another size take the place of these.
  CHECK(round(kMany, 2 * kSize) <= 2 * kMany * kSize + kLimit);
  CHECK(round(kMany / 2, kSize) <= 2 * kMany * kSize + kLimit);
  CHECK(a->stats().cached <= 2 * kMany * kSize + kLimit);
  CHECK(a->stats().peak == 2 * kMany * kSize);
  CHECK(a->stats().in_use == 0);
}

TEST_CASE("threads allocate, hand over and free without losing a byte") {
  auto a = make_caching_allocator(0, 1 << 20);
  constexpr int kThreads = 4, kRounds = 4000, kSlots = 64;
  std::atomic<unsigned char*> slots[kSlots] = {};  // each block begins with its size
  std::atomic<int> torn{0};
  auto take = [&](unsigned char* p) {
    size_t n;
    std::memcpy(&n, p, sizeof n);
    for (size_t i = sizeof n; i < n; ++i) torn += p[i] != static_cast<unsigned char>(n);
    a->deallocate(p, n);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const size_t n = 16 + static_cast<size_t>((i * 37 + t * 101) % 900);
        auto* p = static_cast<unsigned char*>(a->allocate(n));
        std::memset(p, static_cast<int>(n), n);
        std::memcpy(p, &n, sizeof n);
        if (unsigned char* other = slots[(i * 7 + t) % kSlots].exchange(p)) take(other);
        if (i % 500 == 0) a->trim();
      }
    });
  for (auto& t : threads) t.join();
  for (auto& slot : slots)
    if (unsigned char* p = slot.load()) take(p);
  CHECK(torn == 0);
  const AllocatorStats s = a->stats();
  CHECK(s.in_use == 0);
  CHECK(s.allocations == kThreads * kRounds);
  CHECK(s.cached <= s.peak + (1 << 20));
  a->trim();
  CHECK(a->stats().cached == 0);
}

TEST_CASE("threads together never pass the limit") {
  constexpr int64_t kLimit = 1 << 16;
  auto a = make_caching_allocator(kLimit);
  std::vector<std::thread> threads;
  std::atomic<int64_t> held{0};
  std::atomic<int> passed{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        void* p = a->allocate(8192);
        if (!p) continue;
        if (held.fetch_add(8192) + 8192 > kLimit) ++passed;
        held.fetch_sub(8192);
        a->deallocate(p, 8192);
      }
    });
  for (auto& t : threads) t.join();
  CHECK(passed == 0);
  CHECK(a->stats().in_use == 0);
  CHECK(a->stats().peak <= kLimit);
}

TEST_CASE("an allocator goes with the last of its owners and memory, in any order") {
  struct Watched final : Allocator {
    explicit Watched(bool& gone) : gone(gone) {}
    ~Watched() override { gone = true; }
    void* allocate(size_t bytes) override {
      ++held;
      return inner->allocate(bytes);
    }
    void deallocate(void* memory, size_t bytes) noexcept override {
      inner->deallocate(memory, bytes);
      release();
    }
    AllocatorStats stats() const override { return inner->stats(); }
    void release() noexcept override {
      if (--held == 0) delete this;
    }
    bool& gone;
    int held = 1;
    std::shared_ptr<Allocator> inner = make_caching_allocator();
  };
  for (bool tensor_first : {false, true}) {
    bool gone = false;
    auto owner = own_allocator(new Watched(gone));
    Tensor t = *Tensor::make(DType::kFloat32, {3}, owner);
    Tensor view = t;
    if (tensor_first) t = view = Tensor();
    else owner.reset();
    CHECK_FALSE(gone);
    t = Tensor();
    owner.reset();
    CHECK(gone == tensor_first);
    view = Tensor();
    CHECK(gone);
  }
}

TEST_CASE("threads give back the memory of an allocator without owners") {
  auto owner = make_caching_allocator();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([t = *Tensor::make(DType::kFloat32, {100}, owner)]() mutable {
      t.mutable_data<float>()[0] = 1;
      t = Tensor();
    });
  owner.reset();
  for (auto& t : threads) t.join();  // a sanitizer would see a leak or a use after it
}

TEST_CASE("a request that is refused never makes another one fail that there is room for") {
  constexpr size_t kLimit = 1 << 20;
  auto a = make_caching_allocator(kLimit);
  std::atomic<bool> done{false};
  std::atomic<int> given{0};
  std::thread greedy([&] {
    while (!done) given += a->allocate(kLimit + 1) != nullptr;
  });
  int refused = 0;
  for (int i = 0; i < 50000; ++i) {
    void* p = a->allocate(kLimit / 2);
    if (p) a->deallocate(p, kLimit / 2);
    else ++refused;
  }
  done = true;
  greedy.join();
  CHECK(refused == 0);
  CHECK(given == 0);
  CHECK(a->stats().in_use == 0);
}

TEST_CASE("limits at the ends of their range, and negative ones, do what they say") {
  auto all = make_caching_allocator(INT64_MAX, INT64_MAX);
  void* p = all->allocate(1000);
  REQUIRE(p);
  all->deallocate(p, 1000);
  CHECK(all->stats().cached >= 1000);
  CHECK(all->allocate(1000) == p);
  all->deallocate(p, 1000);

  auto none = make_caching_allocator(-1, -1);
  CHECK(none->stats().limit == 0);
  p = none->allocate(1000);
  REQUIRE(p);
  none->deallocate(p, 1000);
  CHECK(none->stats().cached == 0);

  auto exact = make_caching_allocator(1024);
  p = exact->allocate(1024);
  REQUIRE(p);
  CHECK(exact->allocate(0) == nullptr);
  exact->deallocate(p, 1024);
}

TEST_CASE("system memory is one object, is aligned, and refuses what no system has") {
  const auto& a = system_allocator();
  CHECK(&a == &system_allocator());
  for (size_t n : {0, 1, 63, 64, 65, 4097}) {
    void* p = a->allocate(n);
    CHECK(reinterpret_cast<uintptr_t>(p) % kAlignment == 0);
    a->deallocate(p, n);
  }
  for (size_t n = SIZE_MAX; n > SIZE_MAX - kAlignment; --n) CHECK(a->allocate(n) == nullptr);
  CHECK_NOTHROW(a->trim());
}

TEST_CASE("large blocks begin at a huge page, and all of them may be written") {
  constexpr size_t kHuge = size_t{2} << 20;
  const auto caching = make_caching_allocator();
  for (const auto& a : {system_allocator(), caching})
    for (const size_t n : {2 * kHuge, 2 * kHuge + 1, 3 * kHuge - 1, 5 * kHuge + 4097}) {
      auto* p = static_cast<char*>(a->allocate(n));
      REQUIRE(p);
      CHECK(reinterpret_cast<uintptr_t>(p) % kHuge == 0);
      std::memset(p, 7, n);
      a->deallocate(p, n);
    }
}
