// SPDX-License-Identifier: Apache-2.0
// The fake's collectives: results, the order of sums, and that what hangs or breaks down ends when it is told to.
#include "gpu/fake/fake_collectives.h"

#include <catch2/catch.hpp>
#include <thread>

#include "gpu/fake/block.h"

namespace troupe::gpu {
namespace {

using Kind = Collective::Kind;

/// Cards with a stream each, and memory for a vector that a rank gives and one that it gets.
struct Ranks {
  static constexpr size_t kBytes = size_t{2} << 20;

  explicit Ranks(int cards, FakeOptions options = {}) {
    options.cards = cards;
    runtime = std::make_shared<FakeRuntime>(options);
    fake = std::make_unique<FakeCollectives>(runtime);
    for (int card = 0; card < cards; ++card) {
      streams.push_back(runtime->make_stream(card).value());
      inputs.push_back(static_cast<char*>(memory(card)));
      outputs.push_back(static_cast<char*>(memory(card)));
      numbers.push_back(card);
    }
    comm = fake->make(numbers).value();
  }
  ~Ranks() {
    if (comm) comm->abort();
    streams.clear();
    for (const std::string& fault : runtime->faults()) FAIL_CHECK(fault);
    for (void* at : mapped) {
      runtime->unmap(at, kBytes);
      runtime->unreserve(at, kBytes);
    }
  }
  void* memory(int card) {
    void* const at = runtime->reserve(card, kBytes).value();
    REQUIRE(runtime->map(card, at, kBytes).ok());
    return mapped.emplace_back(at);
  }
  /// Puts values into a rank's input.
  template <class T> void give(size_t rank, const std::vector<T>& values) {
    auto* const pinned = static_cast<T*>(runtime->pin(kBytes).value());
    std::copy(values.begin(), values.end(), pinned);
    REQUIRE(streams[rank]->copy(inputs[rank], pinned, values.size() * sizeof(T)).ok());
    runtime->drain();
    runtime->unpin(pinned, kBytes);
  }
  /// What a rank got.
  template <class T> std::vector<T> got(size_t rank, size_t count) {
    std::vector<T> out(count);
    REQUIRE(streams[rank]->copy(out.data(), outputs[rank], count * sizeof(T)).ok());
    return out;
  }
  Status launch(Collective collective) {
    std::vector<Stream*> of;
    for (size_t rank = 0; rank < streams.size(); ++rank) {
      collective.ranks.push_back({inputs[rank], outputs[rank]});
      of.push_back(streams[rank].get());
    }
    return comm->launch(collective, of);
  }

  std::shared_ptr<FakeRuntime> runtime;
  std::unique_ptr<FakeCollectives> fake;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<char*> inputs, outputs;
  std::vector<void*> mapped;
  std::vector<int> numbers;
  std::unique_ptr<Communicator> comm;
};

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("fake collectives: every kind, in whatever order the streams come") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Ranks r(3, {.seed = seed});
    for (size_t i = 0; i < 3; ++i) {
      const auto n = static_cast<float>(i);
      r.give(i, Floats{n, 10 * n, 100 * n, 1000 * n});
    }
    REQUIRE(r.launch({.kind = Kind::kAllReduce, .counts = {4}}).ok());
    for (size_t i = 0; i < 3; ++i) CHECK(r.got<float>(i, 4) == Floats{3, 30, 300, 3000});
    REQUIRE(r.launch({.kind = Kind::kReduceScatter, .counts = {2, 1, 1}}).ok());
    CHECK(r.got<float>(0, 2) == Floats{3, 30});
    CHECK(r.got<float>(1, 1) == Floats{300});
    CHECK(r.got<float>(2, 1) == Floats{3000});
    REQUIRE(r.launch({.kind = Kind::kAllGather, .counts = {1, 0, 3}}).ok());
    for (size_t i = 0; i < 3; ++i) CHECK(r.got<float>(i, 4) == Floats{0, 2, 20, 200});
    REQUIRE(r.launch({.kind = Kind::kBroadcast, .counts = {2}, .root = 1}).ok());
    for (size_t i : {0, 2}) CHECK(r.got<float>(i, 2) == Floats{1, 10});
    CHECK(r.comm->ready().value());
    CHECK(r.fake->counts().launched == 4);
  }
}

TEST_CASE("fake collectives: sums of each chunk begin behind its own rank, and integers wrap around") {
  Ranks r(3);
  const float values[] = {1e8f, 1, -1e8f};
  for (size_t i = 0; i < 3; ++i) r.give(i, Floats(3, values[i]));
  REQUIRE(r.launch({.kind = Kind::kAllReduce, .counts = {3}}).ok());
  const auto expected = [&](size_t c) { return (values[(c + 1) % 3] + values[(c + 2) % 3]) + values[c]; };
  for (size_t i = 0; i < 3; ++i) CHECK(r.got<float>(i, 3) == Floats{expected(0), expected(1), expected(2)});
  for (size_t i = 0; i < 3; ++i) r.give(i, std::vector<int32_t>{INT32_MAX, -1});
  REQUIRE(r.launch({.kind = Kind::kAllReduce, .dtype = DType::kInt32, .counts = {2}}).ok());
  CHECK(r.got<int32_t>(2, 2) == std::vector<int32_t>{INT32_MAX - 2, -3});
  for (size_t i = 0; i < 3; ++i) r.give(i, std::vector<float16>{float16(1.5f), float16(float(i))});
  REQUIRE(r.launch({.kind = Kind::kAllReduce, .dtype = DType::kFloat16, .counts = {2}}).ok());
  CHECK(r.got<float16>(0, 2) == std::vector<float16>{float16(4.5f), float16(3.f)});
}

TEST_CASE("fake collectives: a rank whose stream is not there yet holds the others up") {
  Ranks r(2);
  r.runtime->hold(*r.streams[1]);
  REQUIRE(r.launch({.kind = Kind::kAllReduce, .counts = {1}}).ok());
  auto event = r.runtime->make_event(0).value();
  REQUIRE(r.streams[0]->record(*event).ok());
  r.runtime->drain();
  CHECK_FALSE(event->done().value());
  r.runtime->hold(*r.streams[1], false);
  r.runtime->drain();
  CHECK(event->done().value());
}

TEST_CASE("fake collectives: what hangs, breaks down or loses a card ends by revoke() or abort()") {
  const bool revoked = GENERATE(true, false);
  const std::string what = GENERATE("hangs", "breaks down", "is lost");
  INFO(what << ", " << revoked);
  Ranks r(3);
  for (size_t i = 0; i < 3; ++i) r.give(i, Floats{1, 2});
  if (what == "hangs") r.fake->hang(1);
  if (what == "breaks down") r.fake->break_down(1, Code::kInternal);
  REQUIRE(r.launch({.kind = Kind::kAllReduce, .counts = {2}}).ok());
  if (what == "is lost") r.runtime->lose(1, 0);
  auto event = r.runtime->make_event(0).value();
  REQUIRE(r.streams[0]->record(*event).ok());
  r.runtime->drain();
  CHECK_FALSE(event->done().value());
  const auto ready = r.comm->ready();
  CHECK(ready.ok() == (what == "hangs"));
  if (what == "is lost") CHECK(ready.error().code == Code::kUnavailable);
  if (revoked) REQUIRE(r.comm->revoke().ok());
  else r.comm->abort();
  r.runtime->drain();
  CHECK(event->done().value());
  CHECK(std::isnan(r.got<float>(0, 2)[1]));
  if (!revoked) return;
  CHECK(r.comm->ready().value());
  const int without[] = {1};
  auto rest = r.comm->shrink(without).value();
  CHECK(std::ranges::equal(rest->cards(), std::vector{0, 2}));
  CHECK(rest->ready().value());
  Stream* const streams[] = {r.streams[0].get(), r.streams[2].get()};
  r.comm->abort();
  REQUIRE(rest->launch({.kind = Kind::kAllReduce,
                        .counts = {2},
                        .ranks = {{r.inputs[0], r.outputs[0]}, {r.inputs[2], r.outputs[2]}}},
                       streams)
              .ok());
  CHECK(r.got<float>(2, 2) == Floats{2, 4});
  rest->abort();
  rest.reset();
  CHECK(r.fake->counts().alive == 1);
}

TEST_CASE("fake collectives: calls take their time, fail on demand, and abort waits where it is told to") {
  Ranks r(2);
  r.fake->be_slow(2);
  REQUIRE(r.launch({.kind = Kind::kBroadcast, .counts = {1}}).ok());
  CHECK_FALSE(r.comm->ready().value());
  CHECK_FALSE(r.comm->ready().value());
  CHECK(r.comm->ready().value());
  r.fake->fail(FakeCollectiveCall::kMake, 1, Code::kInternal);
  CHECK(r.fake->make(r.numbers).error().code == Code::kInternal);
  r.fake->be_old();
  CHECK(r.comm->revoke().error().code == Code::kUnimplemented);
  const int without[] = {0};
  CHECK(r.comm->shrink(without).error().code == Code::kUnimplemented);
  const int twice[] = {0, 0}, beyond[] = {0, 2};
  CHECK_FALSE(r.fake->make(twice).ok());
  CHECK_FALSE(r.fake->make(beyond).ok());
  (void)fake::take_faults();
  CHECK_FALSE(r.launch({.kind = Kind::kAllReduce, .dtype = DType::kInt16, .counts = {1}}).ok());
  CHECK_FALSE(r.launch({.kind = Kind::kAllGather, .counts = {1}}).ok());
  CHECK(fake::take_faults().size() == 2);
  r.fake->block_aborts();
  std::thread aborting([&] { r.comm->abort(); });
  r.fake->block_aborts(false);
  aborting.join();
  r.comm.reset();
  CHECK(r.fake->counts().aborted == 1);
  CHECK(r.fake->counts().alive == 0);
}

}  // namespace troupe::gpu
