// SPDX-License-Identifier: Apache-2.0
// The allocator of pinned memory: segments, reuse, limits, threads, and its life behind that of its owners.
#include "gpu/pinned_memory.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "gpu/fake/fake_runtime.h"
#include "tests/gpu/sizes.h"
#include "tests/repeats.h"
#include "troupe/tensor.h"

namespace troupe::gpu {
TEST_CASE("pinned memory: small blocks share a segment, a freed one serves again, trim unpins") {
  auto fake = std::make_shared<FakeRuntime>();
  auto pinned = make_pinned_allocator(fake);
  CHECK(pinned->space() == Space::kHost);
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(pinned->allocate(i));
  CHECK(fake->pinned() == 2 * kMiB);
  CHECK(std::set<void*>(blocks.begin(), blocks.end()).size() == 100);  // that of 0 bytes too
  for (void* at : blocks) CHECK(reinterpret_cast<uintptr_t>(at) % kAlignment == 0);
  void* const large = pinned->allocate(3 * kMiB);
  CHECK(fake->pinned() == 6 * kMiB);
  CHECK(pinned->stats().in_use == 100 * 512 + 3 * kMiB);
  pinned->deallocate(large, 3 * kMiB);
  CHECK(pinned->allocate(2 * kMiB) == large);
  CHECK(pinned->stats().cache_hits == 99 + 1);
  pinned->trim();
  CHECK(fake->pinned() == 6 * kMiB);
  pinned->deallocate(large, 2 * kMiB);
  pinned->trim();
  CHECK(fake->pinned() == 2 * kMiB);
  for (int i = 0; i < 100; ++i) pinned->deallocate(blocks[i], i);
  CHECK(pinned->stats().cached == 2 * kMiB);
  pinned->trim();
  CHECK(fake->pinned() == 0);
  CHECK(pinned->stats().in_use == 0);
}

TEST_CASE("pinned memory: limits and refusals give nullptr, after what is free was unpinned") {
  auto fake = std::make_shared<FakeRuntime>();
  auto pinned = make_pinned_allocator(fake, 6 * kMiB);
  void* const a = pinned->allocate(4 * kMiB);
  REQUIRE(a);
  CHECK(pinned->allocate(3 * kMiB) == nullptr);
  pinned->deallocate(a, 4 * kMiB);
  void* const b = pinned->allocate(6 * kMiB);  // not in the 4 MiB that are free
  REQUIRE(b);
  CHECK(fake->pinned() == 6 * kMiB);
  pinned->deallocate(b, 6 * kMiB);
  fake->fail(FakeCall::kPin, 1, Code::kResourceExhausted);
  void* const c = pinned->allocate(100);  // another try after trimming
  REQUIRE(c);
  pinned->deallocate(c, 100);
  CHECK(pinned->allocate(SIZE_MAX) == nullptr);
  CHECK(pinned->allocate(SIZE_MAX / 2) == nullptr);
  CHECK(pinned->stats().failures == 3);
  CHECK(pinned->stats().limit == 6 * kMiB);
}

TEST_CASE("pinned memory: tensors outlive allocator and runtime") {
  auto fake = std::make_shared<FakeRuntime>();
  std::weak_ptr<FakeRuntime> runtime = fake;
  auto pinned = make_pinned_allocator(fake);
  Tensor kept = Tensor::zeros(DType::kFloat32, Shape{10}, pinned).value();
  pinned.reset();
  fake.reset();
  CHECK_FALSE(runtime.expired());
  CHECK(kept.values<float>()[9] == 0);
  kept.reset();
  CHECK(runtime.expired());
}

TEST_CASE("pinned memory: copies from and to its tensors do not block") {
  auto fake = std::make_shared<FakeRuntime>();
  auto pinned = make_pinned_allocator(fake);
  auto stream = fake->make_stream(0).value();
  void* const at = fake->reserve(0, 2 * kMiB).value();
  REQUIRE(fake->map(0, at, 2 * kMiB).ok());
  {
    Tensor from = Tensor::zeros(DType::kFloat32, Shape{10}, pinned).value();
    CHECK(stream->copy(at, from.address(), from.bytes()).ok());
    CHECK(fake->pending() == 1);
    CHECK(fake->unpinned_copies() == 0);
    fake->drain();
  }
  fake->unmap(at, 2 * kMiB);
}

TEST_CASE("pinned memory: threads get blocks apart from each other") {
  auto fake = std::make_shared<FakeRuntime>();
  auto pinned = make_pinned_allocator(fake, 64 * kMiB);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::pair<unsigned char*, size_t>> mine;
      for (int i = 0; i < repeats(1000); ++i) {
        if (mine.size() < 20 && random() % 2) {
          const size_t bytes = random() % (random() % 8 ? 5000 : 2000000);
          if (auto* const at = static_cast<unsigned char*>(pinned->allocate(bytes))) {
            std::memset(at, t, std::min<size_t>(bytes, 64));
            mine.emplace_back(at, bytes);
          }
        } else if (!mine.empty()) {
          std::swap(mine[random() % mine.size()], mine.back());
          const auto [at, bytes] = mine.back();
          for (size_t k = 0; k < std::min<size_t>(bytes, 64); ++k) wrong += at[k] != t;
          pinned->deallocate(at, bytes);
          mine.pop_back();
        }
        if (i % 100 == 0) pinned->trim();
      }
      for (const auto& [at, bytes] : mine) pinned->deallocate(at, bytes);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(pinned->stats().in_use == 0);
  pinned->trim();
  CHECK(fake->pinned() == 0);
}

}  // namespace troupe::gpu
