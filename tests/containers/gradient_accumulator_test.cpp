// SPDX-License-Identifier: Apache-2.0
// GradientAccumulator: stale gradients, waiting, means, and sums that do not depend on the order of arrival.
#include "containers/gradient_accumulator.h"

#include <algorithm>
#include <random>

#include "tests/queues/recording_sink.h"

using namespace troupe;
using Catch::Contains;

namespace {

const auto kMemory = system_allocator();

struct Asked {
  std::unique_ptr<Resource> resource;
  RecordingSink sink;
  GradientAccumulator& a;
  explicit Asked(PartialShape shape = {}, GradientAccumulator::Reduction r = GradientAccumulator::Reduction::kMean)
      : resource(GradientAccumulator::make("g", DType::kFloat32, shape, r).value()),
        a(dynamic_cast<GradientAccumulator&>(*resource)) {}
  ~Asked() { resource.reset(); }
  uint32_t take(int64_t n, int64_t step = 1) { return a.take_gradient(n, sink.reply(1, step)), sink.last(); }
};

Tensor vec(float x, float y) { return Tensor::of<float>({x, y}); }

}  // namespace

TEST_CASE("a take waits for enough gradients and gives the mean of all") {
  Asked f({2});
  const Tensor mine = vec(1, 2);
  REQUIRE(f.a.apply_gradient(0, mine, -1, kMemory).ok());
  const auto two = f.take(2), one = f.take(1);
  CHECK_FALSE(f.sink.answered(two));
  REQUIRE(f.a.apply_gradient(0, vec(3, 6), -1, kMemory).ok());
  CHECK(f.sink.outputs(two)[0].identical(vec(2, 4)));
  CHECK(mine.identical(vec(1, 2)));  // the accumulator adds to a copy of its own
  CHECK(f.a.num_accumulated() == 0);
  CHECK(f.a.global_step() == 1);
  CHECK_FALSE(f.sink.answered(one));
  REQUIRE(f.a.apply_gradient(0, vec(9, 9), -1, kMemory).ok());  // stale
  CHECK(f.a.num_accumulated() == 0);
  REQUIRE(f.a.apply_gradient(1, vec(5, 5), -1, kMemory).ok());
  CHECK(f.sink.outputs(one)[0].identical(vec(5, 5)));
  f.a.set_global_step(10);
  REQUIRE(f.a.apply_gradient(9, vec(1, 1), -1, kMemory).ok());
  CHECK(f.a.num_accumulated() == 0);
  CHECK_THAT(f.sink.error(f.take(0)).message, Contains("'g'") && Contains("0 gradients"));
}

TEST_CASE("a sum is not divided; a cancelled take leaves the gradients to the next") {
  Asked f({2}, GradientAccumulator::Reduction::kSum);
  const auto dropped = f.take(3, 7), next = f.take(2, 8);
  REQUIRE(f.a.apply_gradient(0, vec(1, 1), -1, kMemory).ok());
  REQUIRE(f.a.apply_gradient(0, vec(2, 3), -1, kMemory).ok());
  CHECK_FALSE(f.sink.answered(next));
  f.a.cancel(1, 7);
  CHECK(f.sink.error(dropped).code == Code::kCancelled);
  CHECK(f.sink.outputs(next)[0].identical(vec(3, 4)));
}

TEST_CASE("gradients that do not fit are refused with both shapes") {
  Asked f({-1});
  CHECK_THAT(f.a.apply_gradient(0, Tensor::of<float>({1, 2}, {1, 2}), -1, kMemory).error().message,
             Contains("[?]") && Contains("[1,2]"));
  CHECK_FALSE(f.a.apply_gradient(0, Tensor::of<double>({1}), -1, kMemory).ok());
  REQUIRE(f.a.apply_gradient(0, vec(1, 1), 3, kMemory).ok());
  CHECK_THAT(f.a.apply_gradient(0, Tensor::of<float>({1, 2, 3}), 1, kMemory).error().message,
             Contains("[2]") && Contains("[3]"));
  CHECK(f.a.num_accumulated() == 1);
  CHECK_FALSE(GradientAccumulator::make("g", DType::kInt32, {}, GradientAccumulator::Reduction::kSum).ok());
}

TEST_CASE("gradients of replicas are summed in their order, whoever comes first") {
  std::mt19937 random(5);
  std::vector<std::pair<int, Tensor>> gradients;
  for (int replica = 0; replica < 7; ++replica)
    gradients.emplace_back(replica, vec(std::ldexp(1.f + static_cast<float>(random()) / 5e9f, replica * 3),
                                        1.f / static_cast<float>(random() % 1000 + 1)));
  Tensor first;
  for (int shuffle = 0; shuffle < 50; ++shuffle) {
    Asked f({2});
    const auto taken = f.take(7);
    std::shuffle(gradients.begin(), gradients.end(), random);
    for (const auto& [replica, g] : gradients) REQUIRE(f.a.apply_gradient(0, g, replica, kMemory).ok());
    const Tensor mean = f.sink.outputs(taken)[0];
    if (!first.defined()) first = mean;
    REQUIRE(mean.identical(first));
  }
}
