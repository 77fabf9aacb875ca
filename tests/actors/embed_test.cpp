// SPDX-License-Identifier: Apache-2.0
// Steps asked for and answered by message.
#include "troupe/embed.h"

#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include "tests/actors/fixtures.h"

namespace troupe {
namespace {

TEST_CASE("an actor asks for steps and gets an answer for each") {
  TestEngine t;
  const Output x = t.placeholder(DType::kInt32, {});
  const Output y = t.scope.op("AddV2", {x, x});
  auto prepared = t.session->prepare({x}, {y});
  REQUIRE(prepared.ok());
  constexpr int kSteps = 100;
  std::promise<std::vector<int>> sums;
  actor_system(*t.engine).spawn([&](caf::event_based_actor* self) -> caf::behavior {
    for (int i = 0; i < kSteps; ++i)
      run_step(*t.session, *prepared, {Tensor::scalar(i)}, caf::actor_cast<caf::actor>(self), static_cast<uint64_t>(i));
    auto answers = std::make_shared<std::vector<int>>(kSteps, -1);
    return {[&, self, answers, left = kSteps](const StepDone& done) mutable {
      if (done.result->ok()) (*answers)[done.tag] = (**done.result)[0].data<int32_t>()[0];
      if (--left == 0) {
        sums.set_value(*answers);
        self->quit();
      }
    }};
  });
  const std::vector<int> got = sums.get_future().get();
  for (int i = 0; i < kSteps; ++i) CHECK(got[static_cast<size_t>(i)] == 2 * i);
}

TEST_CASE("a step that cannot start is answered too") {
  TestEngine t;
  const Output x = t.placeholder(DType::kInt32, {});
  auto prepared = t.session->prepare({x}, {x});
  REQUIRE(prepared.ok());
  caf::scoped_actor self(actor_system(*t.engine));
  run_step(*t.session, *prepared, {Tensor::scalar(1.f)}, caf::actor_cast<caf::actor>(self), 5);
  self->receive([&](const StepDone& done) {
    CHECK(done.tag == 5);
    REQUIRE_FALSE(done.result->ok());
    CHECK(done.result->error().code == Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace troupe
