// SPDX-License-Identifier: Apache-2.0
// Who gets freed memory when: whoever works in the compute stream at once, transfers and the card when it is idle. The
// fake's checker judges a program of kernels and copies in three streams.
#include <catch2/catch.hpp>
#include <random>

#include "gpu/device_memory.h"
#include "gpu/fake/fake_runtime.h"
#include "tests/gpu/sizes.h"
#include "tests/repeats.h"

namespace troupe::gpu {
namespace {

/// A device whose freed blocks are poisoned in the order of the compute stream.
struct PoisonedDevice {
  explicit PoisonedDevice(FakeOptions options = {}, int64_t limit = 0)
      : fake(std::make_shared<FakeRuntime>(options)), compute(fake->make_stream(0).value()) {
    DeviceMemoryOptions made{.limit = limit};
    made.poison = [fake = fake.get(), compute = compute.get()](void* at, size_t bytes) {
      fake->poison(at, bytes, *compute);
    };
    memory = DeviceMemory::make(fake, compute, made).value();
  }
  Allocator& stream() { return *memory->in_stream_order(); }
  Allocator& transfers() { return *memory->for_transfers(); }
  std::shared_ptr<FakeRuntime> fake;
  std::shared_ptr<Stream> compute;
  std::unique_ptr<DeviceMemory> memory;
};

}  // namespace

TEST_CASE("memory order: transfers get a freed block only when the compute stream passed its end") {
  PoisonedDevice d;
  void* const a = d.transfers().allocate(3 * kMiB);
  d.transfers().deallocate(a, 3 * kMiB);  // its poison waits in the compute stream
  void* const b = d.transfers().allocate(3 * kMiB);
  CHECK(b != a);
  CHECK(d.fake->step());  // the poison
  void* const c = d.transfers().allocate(3 * kMiB);
  CHECK(c != a);
  CHECK(d.fake->step());  // the mark behind it
  void* const e = d.transfers().allocate(3 * kMiB);
  CHECK(e == a);
  for (void* at : {b, c, e}) d.transfers().deallocate(at, 3 * kMiB);

  void* const small = d.transfers().allocate(100);
  d.transfers().deallocate(small, 100);
  void* const other = d.transfers().allocate(100);
  CHECK(other != small);
  d.transfers().deallocate(other, 100);
}

TEST_CASE("memory order: what transfers freed last does not keep what is free around it from them") {
  const size_t bytes = GENERATE(size_t{1000}, 3 * kMiB);
  PoisonedDevice d;
  // Two blocks one after the other, while the card is behind; then it catches up. As by updates whose gradients come
  // in.
  int64_t mapped = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2; ++i) d.transfers().deallocate(d.transfers().allocate(bytes), bytes);
    d.fake->drain();
    if (round == 1) mapped = d.fake->mapped(0);
  }
  CHECK(d.fake->mapped(0) == mapped);
  // They are one again when they are idle.
  void* const all = d.transfers().allocate(static_cast<size_t>(mapped));
  CHECK(all);
  CHECK(d.fake->mapped(0) == mapped);
  d.transfers().deallocate(all, static_cast<size_t>(mapped));
  CHECK(d.fake->faults().empty());
}

TEST_CASE("memory order: without memory, the stream's allocator takes what transfers freed, at once") {
  PoisonedDevice d({}, 8 * kMiB);
  void* const a = d.transfers().allocate(4 * kMiB);
  void* const b = d.transfers().allocate(4 * kMiB);
  CHECK(d.stream().allocate(1000) == nullptr);
  d.transfers().deallocate(a, 4 * kMiB);
  void* const c = d.stream().allocate(4 * kMiB);
  CHECK(c == a);
  d.transfers().deallocate(b, 4 * kMiB);
  void* const small = d.stream().allocate(1000);
  CHECK(small != nullptr);
  d.stream().deallocate(c, 4 * kMiB);
  d.stream().deallocate(small, 1000);
}

TEST_CASE("memory order: without memory, transfers take what the stream freed when it is idle") {
  PoisonedDevice d({}, 8 * kMiB);
  void* const a = d.stream().allocate(4 * kMiB);
  void* const b = d.stream().allocate(4 * kMiB);
  d.stream().deallocate(a, 4 * kMiB);
  CHECK(d.transfers().allocate(3 * kMiB) == nullptr);  // it has a mark put in, though
  CHECK(d.transfers().allocate(1000) == nullptr);
  d.fake->drain();
  void* const c = d.transfers().allocate(3 * kMiB);
  CHECK(c == a);
  d.stream().deallocate(b, 4 * kMiB);
  d.transfers().deallocate(c, 3 * kMiB);
  CHECK(d.transfers().allocate(8 * kMiB) == nullptr);
  d.fake->drain();
  void* const all = d.transfers().allocate(8 * kMiB);
  REQUIRE(all);
  d.transfers().deallocate(all, 8 * kMiB);
  CHECK(d.fake->faults().empty());
}

TEST_CASE("memory order: new memory beside a block that is not idle is idle") {
  PoisonedDevice d;
  void* const a = d.transfers().allocate(2 * kMiB);
  d.transfers().deallocate(a, 2 * kMiB);
  void* const b = d.transfers().allocate(4 * kMiB);
  CHECK(b == static_cast<char*>(a) + 2 * kMiB);
  d.transfers().deallocate(b, 4 * kMiB);
}

namespace {

/// A program that makes batches by copies, uses them by kernels, and copies results back, with the order that
/// device_memory.h asks for; `careless` copies into memory in stream order instead. Gives the faults.
std::vector<std::string> faults_of_program(uint64_t seed, bool careless, bool by_hand) {
  std::mt19937_64 random(seed);
  PoisonedDevice d({.seed = seed, .memory = 24 * kMiB, .by_hand = by_hand}, 20 * kMiB);
  FakeRuntime& fake = *d.fake;
  auto in = fake.make_stream(0).value(), out = fake.make_stream(0).value();
  auto arrived = fake.make_event(0).value(), computed = fake.make_event(0).value(), left = fake.make_event(0).value();
  auto order = fake.make_event(0).value();
  const size_t host_bytes = 3 * kMiB;
  void* const host_in = fake.pin(host_bytes).value();
  void* const host_out = fake.pin(host_bytes).value();
  const auto ok = [](const Status& status) { REQUIRE(status.ok()); };

  Allocator& for_batches = careless ? d.stream() : d.transfers();
  for (int step = 0; step < repeats(40) + 8; ++step) {
    const size_t bytes = 1 + random() % (random() % 4 ? 30000 : host_bytes);
    const size_t temporary_bytes = 1 + random() % (random() % 4 ? 30000 : host_bytes);
    Allocator* from = &for_batches;
    void* batch = from->allocate(bytes);
    if (!batch) {  // the way that in_stream_order() names
      from = &d.stream();
      batch = from->allocate(bytes);
      REQUIRE(batch);
      ok(d.compute->record(*order));
      ok(in->wait(*order));
    }
    ok(in->copy(batch, host_in, bytes));
    ok(in->record(*arrived));
    ok(d.compute->wait(*arrived));
    void* const temporary = d.stream().allocate(temporary_bytes);
    void* const result = d.stream().allocate(bytes);
    REQUIRE((temporary && result));
    const Access first[] = {{batch, bytes, false}, {temporary, temporary_bytes, true}};
    d.compute->uses(first);
    d.compute->enqueue([] {});
    ok(d.compute->check_launch("first"));
    const Access second[] = {{temporary, temporary_bytes, false}, {batch, bytes, false}, {result, bytes, true}};
    d.compute->uses(second);
    d.compute->enqueue([] {});
    ok(d.compute->check_launch("second"));
    d.stream().deallocate(temporary, temporary_bytes);
    from->deallocate(batch, bytes);
    ok(d.compute->record(*computed));
    ok(out->wait(*computed));
    ok(out->copy(host_out, result, bytes));
    ok(out->record(*left));
    if (random() % 2) ok(d.compute->wait(*left));  // what frees `result` knows that the copy is done
    else ok(left->wait());
    d.stream().deallocate(result, bytes);
    if (random() % 8 == 0) d.memory->trim();
    for (size_t k = random() % 8; by_hand && k > 0; --k) fake.step();
  }
  fake.drain();
  const auto faults = fake.faults();
  fake.unpin(host_in, host_bytes);
  fake.unpin(host_out, host_bytes);
  return faults;
}

}  // namespace

TEST_CASE("memory order: a program of three streams races nowhere, and the same without care for transfers does") {
  int careless = 0;
  for (int seed = 0; seed < repeats(24); ++seed) {
    CAPTURE(seed);
    const auto faults = faults_of_program(seed, false, seed % 4 != 0);
    CAPTURE(faults.empty() ? "" : faults[0]);
    REQUIRE(faults.empty());
    careless += !faults_of_program(seed, true, true).empty();
  }
  CHECK(careless > repeats(24) / 2);
}

}  // namespace troupe::gpu
