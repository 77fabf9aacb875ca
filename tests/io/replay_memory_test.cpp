// SPDX-License-Identifier: Apache-2.0
// The replay memory: which elements it has, how often each is drawn, priorities, its dataset.
#include "troupe/replay_memory.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <thread>

namespace troupe {
namespace {

using Catch::Contains;

ReplayMemory memory_of(ReplayOptions options) {
  auto made = ReplayMemory::create({DType::kFloat32, DType::kString}, {{2}, PartialShape::scalar()}, options);
  INFO((made.ok() ? std::string() : made.error().str()));
  REQUIRE(made.ok());
  return *made;
}

Element element(int64_t i) {
  const auto x = static_cast<float>(i);
  return {Tensor::of<float>({x, -x}), Tensor::scalar(std::to_string(i))};
}

/// How often each id was drawn, by its share of all draws.
std::map<int64_t, double> shares(const ReplayMemory& memory, int64_t draws) {
  const ReplaySample sample = memory.sample(draws).value();
  std::map<int64_t, double> out;
  for (const int64_t id : sample.ids) out[id] += 1. / static_cast<double>(draws);
  return out;
}

TEST_CASE("a replay memory has the newest elements, and draws all of them alike") {
  const int64_t capacity = GENERATE(1, 3, 4, 7, 100);
  const ReplayMemory memory = memory_of({.capacity = capacity});
  CHECK(memory.sample(1).error().code == Code::kFailedPrecondition);
  for (int64_t i = 0; i < 25; ++i) {
    CHECK(memory.add(element(i)).value() == i);
    CHECK(memory.size() == std::min(i + 1, capacity));
    const ReplaySample sample = memory.sample(50).value();
    REQUIRE(sample.batch[0].shape() == Shape{50, 2});
    for (size_t k = 0; k < 50; ++k) {
      CHECK(sample.ids[k] <= i);
      CHECK(sample.ids[k] > i - capacity);
      CHECK(sample.batch[0].data<float>()[2 * k + 1] == -static_cast<float>(sample.ids[k]));
      CHECK(sample.batch[1].data<std::string>()[k] == std::to_string(sample.ids[k]));
      CHECK(sample.weights[k] == 1);
    }
  }
  CHECK(memory.added() == 25);
  const auto drawn = shares(memory, 20'000);
  CHECK(std::ssize(drawn) == memory.size());
  for (const auto& [id, share] : drawn) CHECK(share == Approx(1. / static_cast<double>(memory.size())).margin(0.02));
}

TEST_CASE("elements are drawn by their priorities, and weights make up for them") {
  const ReplayMemory memory = memory_of({.capacity = 4, .priority_exponent = 0.5, .weight_exponent = 1});
  for (int64_t i = 0; i < 3; ++i) REQUIRE(memory.add(element(i), std::pow(4., i)).ok());  // 1, 2, 4 of 7
  const auto drawn = shares(memory, 50'000);
  for (int64_t i = 0; i < 3; ++i) CHECK(drawn.at(i) == Approx(std::pow(2., i) / 7).margin(0.01));
  const ReplaySample sample = memory.sample(1000).value();
  for (size_t k = 0; k < sample.ids.size(); ++k)
    CHECK(sample.weights[k] == Approx(std::pow(.5, static_cast<double>(sample.ids[k]))));
  // A new one has the largest priority so far; the first goes for the fifth.
  REQUIRE(memory.add(element(3)).ok());
  REQUIRE(memory.add(element(4), 16).ok());
  const auto later = shares(memory, 50'000);
  CHECK_FALSE(later.contains(0));
  CHECK(later.at(1) == Approx(2. / 14).margin(0.01));
  CHECK(later.at(3) == Approx(4. / 14).margin(0.01));
  // Those that are gone are passed over.
  REQUIRE(memory.set_priorities(std::vector<int64_t>{0, 1, 3}, std::vector<double>{1e9, 400, 100}).ok());
  const auto changed = shares(memory, 50'000);
  CHECK_FALSE(changed.contains(0));
  CHECK(changed.at(1) == Approx(20. / 38).margin(0.01));
  CHECK(changed.at(3) == Approx(10. / 38).margin(0.01));
}

TEST_CASE("the largest and the smallest priorities can be drawn by") {
  const ReplayMemory memory = memory_of({.capacity = 3, .priority_exponent = 10, .weight_exponent = 1});
  REQUIRE(memory.add(element(0), 1e300).ok());
  REQUIRE(memory.add(element(1), 1e-300).ok());
  REQUIRE(memory.add(element(2), 1e300).ok());
  const auto drawn = shares(memory, 10'000);
  CHECK(drawn.at(0) == Approx(0.5).margin(0.03));
  CHECK(drawn.at(2) == Approx(0.5).margin(0.03));
  const auto some = memory.sample(100);
  REQUIRE(some.ok());
  for (const float weight : some->weights) CHECK(std::isfinite(weight));
}

TEST_CASE("the same calls draw the same, another seed others") {
  const auto draw = [](uint64_t seed) {
    const ReplayMemory memory = memory_of({.capacity = 100, .seed = seed});
    for (int64_t i = 0; i < 50; ++i) REQUIRE(memory.add(element(i)).ok());
    return memory.sample(30)->ids;
  };
  CHECK(draw(1) == draw(1));
  CHECK(draw(1) != draw(2));
}

TEST_CASE("what a replay memory cannot take is an error with its values") {
  const auto refused = [](std::vector<DType> dtypes, std::vector<PartialShape> shapes, ReplayOptions options = {}) {
    const auto made = ReplayMemory::create(std::move(dtypes), std::move(shapes), options);
    REQUIRE_FALSE(made.ok());
    return made.error().str();
  };
  CHECK_THAT(refused({}, {}), Contains("dtypes"));
  CHECK_THAT(refused({DType::kFloat32}, {}), Contains("1 dtypes, but 0 shapes"));
  CHECK_THAT(refused({DType::kFloat32}, {{-1}}), Contains("[?]"));
  CHECK_THAT(refused({DType::kFloat32}, {PartialShape::unknown()}), Contains("all sizes must be known"));
  CHECK_THAT(refused({DType::kFloat32}, {PartialShape::scalar()}, {.capacity = 0}), Contains("at least 1, got 0"));
  CHECK_THAT(refused({DType::kFloat32}, {PartialShape::scalar()}, {.priority_exponent = -1}), Contains("got -1"));
  CHECK_THAT(refused({DType::kFloat32}, {PartialShape::scalar()}, {.weight_exponent = NAN}), Contains("nan"));

  const ReplayMemory memory = memory_of({.capacity = 2});
  CHECK_THAT(memory.add({Tensor::scalar(1.f)}).error().str(), Contains("1 components, 2 were declared"));
  CHECK_THAT(memory.add({Tensor::scalar(1.f), Tensor::scalar(std::string())}).error().str(), Contains("float32[2]"));
  for (const double priority : {0., -1., std::nan(""), std::numeric_limits<double>::infinity()})
    CHECK_THAT(memory.add(element(0), priority).error().str(), Contains("above 0 and finite"));
  CHECK(memory.added() == 0);
  REQUIRE(memory.add(element(0)).ok());
  CHECK_THAT(memory.sample(0).error().str(), Contains("got 0"));
  CHECK_THAT(memory.sample(INT64_MAX).error().str(), Contains("1 to 16777216"));
  CHECK_FALSE(memory.samples(INT64_MAX).ok());
  const auto set = [&](std::vector<int64_t> ids, std::vector<double> priorities) {
    return memory.set_priorities(ids, priorities).error().str();
  };
  CHECK_THAT(set({0}, {}), Contains("0 priorities for 1 elements"));
  CHECK_THAT(set({1}, {1}), Contains("no element 1; 1 were added"));
  CHECK_THAT(set({-1}, {1}), Contains("no element -1"));
  CHECK_THAT(set({0}, {0}), Contains("got 0"));
  CHECK_FALSE(memory.samples(0).ok());
  CHECK_FALSE(memory.samples(1, 3).ok());
}

TEST_CASE("a dataset of a replay memory waits for its elements, and ends when it is closed") {
  const ReplayMemory memory = memory_of({.capacity = 10});
  const Dataset data = memory.samples(4, 2).value();
  CHECK(data.dtypes() == std::vector{DType::kFloat32, DType::kString, DType::kInt64, DType::kFloat32});
  CHECK(data.shapes()[0] == PartialShape{4, 2});
  CHECK_FALSE(data.repeatable());
  auto batches = data.iterate().value();
  std::jthread adding([&] {
    for (int64_t i = 0; i < 2; ++i) (void)memory.add(element(i));
  });
  const Element batch = **batches->next();
  REQUIRE(batch.size() == 4);
  CHECK(batch[0].shape() == Shape{4, 2});
  for (int k = 0; k < 4; ++k) CHECK(batch[0].data<float>()[2 * k] == static_cast<float>(batch[2].data<int64_t>()[k]));
  memory.close();
  CHECK_FALSE(*batches->next());
  CHECK(memory.add(element(2)).error().code == Code::kFailedPrecondition);
  auto waiting = memory_of({.capacity = 10});
  auto none = waiting.samples(1).value().iterate().value();
  std::jthread closing([&] { none->cancel(); });
  const auto cancelled = none->next();
  CHECK((!cancelled.ok() || !*cancelled));
}

TEST_CASE("threads may add, draw and set priorities at once") {
  const ReplayMemory memory = memory_of({.capacity = 50, .priority_exponent = 1});
  REQUIRE(memory.add(element(0)).ok());
  std::vector<std::jthread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = 1; i < 500; ++i) (void)memory.add(element(i));
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const ReplaySample sample = memory.sample(8).value();
        (void)memory.set_priorities(sample.ids, std::vector<double>(8, 1 + i % 3));
      }
    });
  }
  threads.clear();
  CHECK(memory.added() == 2 * 499 + 1);
  CHECK(memory.size() == 50);
}

}  // namespace
}  // namespace troupe
