// SPDX-License-Identifier: Apache-2.0
// The memory of a device: blocks apart and never lost, merging, limits, trimming, the life of what outlives its owners.
// Who may get freed memory when: device_memory_order_test.
#include "gpu/device_memory.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "gpu/fake/fake_runtime.h"
#include "tests/gpu/sizes.h"
#include "tests/repeats.h"
#include "troupe/tensor.h"

namespace troupe::gpu {
namespace {

struct OneDevice {
  explicit OneDevice(FakeOptions options = {}, int64_t limit = 0)
      : fake(std::make_shared<FakeRuntime>(options)), compute(fake->make_stream(0).value()),
        memory(DeviceMemory::make(fake, compute, {.card = 0, .limit = limit}).value()) {}
  Allocator& stream() { return *memory->in_stream_order(); }
  Allocator& transfers() { return *memory->for_transfers(); }
  std::shared_ptr<FakeRuntime> fake;
  std::shared_ptr<Stream> compute;
  std::unique_ptr<DeviceMemory> memory;
};

}  // namespace

TEST_CASE("device memory: small blocks share 2 MiB, a freed block serves again at once") {
  OneDevice d;
  CHECK(d.stream().space() == Space::kGpu);
  CHECK(d.fake->mapped(0) == 0);
  std::set<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.insert(d.stream().allocate(0));
  CHECK(blocks.size() == 100);
  CHECK(blocks.count(nullptr) == 0);
  CHECK(d.fake->mapped(0) == 2 * kMiB);
  CHECK(d.stream().stats().in_use == 100 * 512);
  CHECK(d.stream().stats().cache_hits == 99);
  void* const large = d.stream().allocate(5 * kMiB + 1);
  CHECK(d.fake->mapped(0) == 8 * kMiB);
  CHECK(reinterpret_cast<uintptr_t>(large) % 512 == 0);
  d.stream().deallocate(large, 5 * kMiB + 1);
  CHECK(d.stream().allocate(5 * kMiB) == large);
  d.stream().deallocate(large, 5 * kMiB);
  for (void* at : blocks) d.stream().deallocate(at, 0);
  CHECK(d.memory->stats().in_use == 0);
  CHECK(d.memory->stats().cached == 8 * kMiB);
  CHECK(d.memory->stats().peak == 100 * 512 + 5 * kMiB + 512);
}

TEST_CASE("device memory: freed neighbours merge, so that one block may take the place of many") {
  OneDevice d({}, 32 * kMiB);
  for (const int64_t size : {64 * int64_t{1024}, 3 * kMiB / 2, 4 * kMiB}) {
    std::vector<void*> blocks;
    while (void* const at = d.stream().allocate(size)) blocks.push_back(at);
    CHECK(d.fake->mapped(0) == 32 * kMiB);
    CHECK(blocks.size() == static_cast<size_t>(32 * kMiB / size));
    for (size_t i = 0; i < blocks.size(); i += 2) d.stream().deallocate(blocks[i], size);
    CHECK(d.stream().allocate(2 * size > kMiB ? 2 * size : 5 * kMiB) == nullptr);
    for (size_t i = 1; i < blocks.size(); i += 2) d.stream().deallocate(blocks[i], size);
    void* const all = d.stream().allocate(32 * kMiB);
    REQUIRE(all);
    d.stream().deallocate(all, 32 * kMiB);
  }
}

TEST_CASE("device memory: what is free apart is put together by mapping it elsewhere, once it is idle") {
  OneDevice d({}, 12 * kMiB);
  void* blocks[3];
  for (void*& at : blocks) at = d.stream().allocate(4 * kMiB);
  d.compute->enqueue([] {});
  d.stream().deallocate(blocks[0], 4 * kMiB);
  d.stream().deallocate(blocks[2], 4 * kMiB);
  CHECK(d.stream().allocate(6 * kMiB) == nullptr);  // work may use the blocks yet
  d.fake->drain();
  void* const at = d.stream().allocate(6 * kMiB);
  REQUIRE(at);
  CHECK(d.fake->mapped(0) <= 12 * kMiB);
  std::memset(at, 1, 6 * kMiB);
  d.stream().deallocate(at, 6 * kMiB);
  d.stream().deallocate(blocks[1], 4 * kMiB);
  CHECK(d.fake->faults().empty());
}

TEST_CASE("device memory: trim gives whole free pieces back when they are idle") {
  OneDevice d;
  void* const kept = d.stream().allocate(100);
  void* const large = d.stream().allocate(9 * kMiB);
  void* const moved = d.transfers().allocate(3 * kMiB);
  CHECK(d.fake->mapped(0) == 2 * kMiB + 10 * kMiB + 4 * kMiB);
  d.compute->enqueue([] {});
  d.stream().deallocate(large, 9 * kMiB);
  d.transfers().deallocate(moved, 3 * kMiB);
  d.memory->trim();
  CHECK(d.fake->mapped(0) == 16 * kMiB);
  d.fake->drain();
  d.memory->trim();
  CHECK(d.fake->mapped(0) == 2 * kMiB);
  d.stream().deallocate(kept, 100);
  d.memory->trim();
  d.fake->drain();
  d.stream().trim();
  CHECK(d.fake->mapped(0) == 0);
  CHECK(d.memory->stats().cached == 0);
  CHECK(d.fake->faults().empty());
}

TEST_CASE("device memory: devices that share a card keep their limits, and one gets what the card has left") {
  OneDevice d({.memory = 20 * kMiB}, 8 * kMiB);
  auto other_stream = std::shared_ptr<Stream>(d.fake->make_stream(0).value());
  auto other = DeviceMemory::make(d.fake, other_stream, {.card = 0}).value();
  void* const a = d.stream().allocate(8 * kMiB);
  REQUIRE(a);
  CHECK(d.stream().allocate(1) == nullptr);
  CHECK(d.stream().stats().failures == 1);
  CHECK(d.stream().stats().limit == 8 * kMiB);
  void* const b = other->in_stream_order()->allocate(12 * kMiB);
  REQUIRE(b);
  CHECK(other->in_stream_order()->allocate(1) == nullptr);
  CHECK(other->in_stream_order()->allocate(SIZE_MAX) == nullptr);
  d.stream().deallocate(a, 8 * kMiB);
  d.memory->trim();
  d.fake->drain();
  d.memory->trim();
  void* const c = other->in_stream_order()->allocate(8 * kMiB);
  REQUIRE(c);
  other->in_stream_order()->deallocate(b, 12 * kMiB);
  other->in_stream_order()->deallocate(c, 8 * kMiB);
}

TEST_CASE("device memory: refused memory and a lost card give nullptr, and nothing is lost by it") {
  OneDevice d({.memory = 256 * kMiB});
  d.fake->fail(FakeCall::kMap, 2, Code::kResourceExhausted);  // the second piece of 32 MiB; a second try works
  void* const at = d.stream().allocate(100 * kMiB);
  REQUIRE(at);
  CHECK(d.fake->mapped(0) == d.memory->stats().in_use + d.memory->stats().cached);
  std::memset(at, 1, 100 * kMiB);
  d.stream().deallocate(at, 100 * kMiB);
  d.fake->lose(0, 0);
  CHECK(d.stream().allocate(200 * kMiB) == nullptr);
  d.memory->trim();
  CHECK(d.fake->mapped(0) == 0);
  CHECK(d.stream().allocate(1) == nullptr);
}

TEST_CASE("device memory: a card that is not there, or not the stream's, is an error") {
  auto fake = std::make_shared<FakeRuntime>(FakeOptions{.cards = 2});
  std::shared_ptr<Stream> stream = fake->make_stream(1).value();
  for (const int card : {-1, 0, 2})
    CHECK(DeviceMemory::make(fake, stream, {.card = card}).error().code == Code::kInternal);
  CHECK(DeviceMemory::make(fake, stream, {.card = 1}).ok());
  fake->fail(FakeCall::kReserve, 1, Code::kResourceExhausted);
  CHECK(DeviceMemory::make(fake, stream, {.card = 1}).error().code == Code::kResourceExhausted);
}

TEST_CASE("device memory: an event that cannot be had only puts reuse off") {
  OneDevice d;
  d.fake->fail(FakeCall::kMakeEvent, 1, Code::kResourceExhausted);
  d.fake->fail(FakeCall::kEventDone, 1, Code::kInternal);
  void* const a = d.transfers().allocate(3 * kMiB);
  d.transfers().deallocate(a, 3 * kMiB);  // no mark
  void* const b = d.transfers().allocate(3 * kMiB);
  CHECK(b != a);
  d.transfers().deallocate(b, 3 * kMiB);  // a mark for both
  d.fake->drain();
  void* const c = d.transfers().allocate(3 * kMiB);  // looked in vain
  CHECK(c != a);
  void* const e = d.transfers().allocate(3 * kMiB);
  CHECK((e == a || e == b));
  d.transfers().deallocate(c, 3 * kMiB);
  d.transfers().deallocate(e, 3 * kMiB);
}

TEST_CASE("device memory: tensors outlive the device, its stream and the runtime, and give all back at the end") {
  for (const bool by_hand : {true, false}) {
    auto d = std::make_unique<OneDevice>(FakeOptions{.by_hand = by_hand});
    std::weak_ptr<FakeRuntime> runtime = d->fake;
    Tensor a = Tensor::make(DType::kFloat32, Shape{1000}, d->memory->in_stream_order()).value();
    Tensor b = Tensor::make(DType::kFloat32, Shape{1000}, d->memory->for_transfers()).value();
    CHECK(a.space() == Space::kGpu);
    CHECK(d->compute->fill(b.mutable_address(), 0, b.bytes()).ok());
    d.reset();
    a.reset();
    CHECK_FALSE(runtime.expired());
    b.reset();
    CHECK(runtime.expired());
  }
}

TEST_CASE("device memory: blocks lie apart, keep what is in them and are all found again, whatever is asked") {
  for (int seed = 0; seed < repeats(16); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](uint64_t n) { return static_cast<size_t>(random() % n); };
    const int64_t limit = seed % 2 ? 24 * kMiB : 0;
    OneDevice d({.seed = static_cast<uint64_t>(seed), .memory = 40 * kMiB}, limit);
    struct Given {
      size_t bytes;
      bool transfers;
      unsigned char mark;
    };
    std::map<unsigned char*, Given> given;
    // The ends of a block are enough: whoever lies over it covers one.
    const auto ends = [](const Given& g) { return std::min<size_t>(g.bytes, 32); };
    const auto give_back = [&](std::map<unsigned char*, Given>::iterator it) {
      const auto [at, g] = *it;
      for (size_t k = 0; k < ends(g); ++k) REQUIRE((at[k] == g.mark && at[g.bytes - 1 - k] == g.mark));
      (g.transfers ? d.transfers() : d.stream()).deallocate(at, g.bytes);
      given.erase(it);
    };
    for (int i = 0; i < 600; ++i) {
      const size_t choice = draw(20);
      if (choice < 11) {
        const size_t bytes = draw(4) ? draw(20000) : draw(6 * kMiB);
        Given g{bytes, draw(4) == 0, static_cast<unsigned char>(i)};
        auto* const at = static_cast<unsigned char*>((g.transfers ? d.transfers() : d.stream()).allocate(bytes));
        if (!at) continue;
        const auto after = given.lower_bound(at + std::max<size_t>(bytes, 1));
        if (after != given.begin()) {
          const auto before = std::prev(after);
          REQUIRE(before->first + std::max<size_t>(before->second.bytes, 1) <= at);
        }
        for (size_t k = 0; k < ends(g); ++k) at[k] = at[bytes - 1 - k] = g.mark;
        given[at] = g;
      } else if (choice < 18 && !given.empty()) {
        give_back(std::next(given.begin(), static_cast<long>(draw(given.size()))));
      } else if (choice == 18) {
        d.compute->enqueue([] {});
        d.fake->step();
      } else {
        d.memory->trim();
      }
      int64_t sum = 0;
      for (const auto& [at, g] : given) sum += static_cast<int64_t>(std::max<size_t>((g.bytes + 511) / 512 * 512, 512));
      REQUIRE(d.memory->stats().in_use == sum);
      REQUIRE(d.stream().stats().in_use + d.transfers().stats().in_use == sum);
      REQUIRE(d.memory->stats().cached == d.stream().stats().cached + d.transfers().stats().cached);
      REQUIRE(d.fake->mapped(0) == sum + d.memory->stats().cached);
      REQUIRE((limit == 0 || d.fake->mapped(0) <= limit));
    }
    while (!given.empty()) give_back(given.begin());
    d.memory->trim();
    d.fake->drain();
    const size_t all = static_cast<size_t>(limit ? limit : 40 * kMiB);
    void* const one = (seed % 4 < 2 ? d.stream() : d.transfers()).allocate(all);
    REQUIRE(one);
    (seed % 4 < 2 ? d.stream() : d.transfers()).deallocate(one, all);
    d.memory->trim();
    d.fake->drain();
    d.memory->trim();
    CHECK(d.fake->mapped(0) == 0);
    CHECK(d.fake->faults().empty());
  }
}

TEST_CASE("device memory: threads allocate and free at once, each other's blocks too") {
  OneDevice d({.memory = 64 * kMiB, .by_hand = false});
  struct Passed {
    unsigned char* at;
    size_t bytes;
    unsigned char mark;
    Allocator* from;
  };
  std::mutex mutex;
  std::vector<Passed> passed;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < repeats(2000); ++i) {
        if (random() % 2) {
          Passed p{nullptr, 1 + random() % (random() % 8 ? 50000 : 3 * kMiB), static_cast<unsigned char>(random()),
                   random() % 3 ? &d.stream() : &d.transfers()};
          p.at = static_cast<unsigned char*>(p.from->allocate(p.bytes));
          if (!p.at) continue;
          p.at[0] = p.at[p.bytes - 1] = p.mark;
          std::lock_guard guard(mutex);
          passed.push_back(p);
        } else {
          std::unique_lock lock(mutex);
          if (passed.empty()) continue;
          std::swap(passed[random() % passed.size()], passed.back());
          const Passed p = passed.back();
          passed.pop_back();
          lock.unlock();
          wrong += p.at[0] != p.mark || p.at[p.bytes - 1] != p.mark;
          p.from->deallocate(p.at, p.bytes);
        }
        if (i % 64 == 0) d.memory->trim();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const Passed& p : passed) p.from->deallocate(p.at, p.bytes);
  CHECK(wrong == 0);
  CHECK(d.memory->stats().in_use == 0);
  d.memory->trim();
  d.fake->drain();
  d.memory->trim();
  CHECK(d.fake->mapped(0) == 0);
}

}  // namespace troupe::gpu
