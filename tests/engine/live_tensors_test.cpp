// SPDX-License-Identifier: Apache-2.0
// A device without memory left: the error tells what its steps hold, and the session goes on.
#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct Memory : TestEngine {
  explicit Memory(int64_t limit) : TestEngine({1}, limit) {
    session = std::make_unique<Session>(*engine, graph, SessionOptions{.passes = GraphPasses::none()});
  }
  Output filled(std::string_view name, int32_t elements, float value = 1) {
    const Output size = scope.constant(Tensor::of<int32_t>({elements}));
    return scope.named(name).op("Fill", {size, scope.constant(value)});
  }
  Error error(Output fetch) {
    auto result = session->run(std::vector<Feed>{}, {fetch});
    REQUIRE_FALSE(result.ok());
    return result.error();
  }
};

}  // namespace

TEST_CASE("who runs out of memory is told of the largest tensors that are live, and may go on") {
  Memory t(1'000'000);
  const Output small = t.filled("small", 10'000), large = t.filled("large", 100'000);
  const Output larger = t.scope.named("larger").op("ConcatV2", {large, small, t.scope.constant(0)});
  const Output sum = t.scope.named("sum").op("Sum", {larger, t.scope.constant(0)});
  const Output all = t.scope.named("all").op("Mul", {t.scope.named("last").op("Neg", {large}), sum});
  for (int i = 0; i < 2; ++i) {
    const Error error = t.error(t.scope.op("AddV2", {all, t.scope.op("Mul", {large, small.node->inputs()[1]})}));
    CHECK(error.code == Code::kResourceExhausted);
    CHECK_THAT(error.message, Contains("limit 1000000") && Contains("'large:0' float32[100000] 400000 bytes (step") &&
                                  Contains("live tensors in 1 steps"));
    // The largest first.
    if (const size_t at = error.message.find("'small:0'"); at != std::string::npos)
      CHECK(error.message.find("'large:0'") < at);
    CHECK(t.value({}, sum).data<float>()[0] == 110'000);
  }
}

TEST_CASE("what another step of the device holds is told as well") {
  Memory t(1'200'000);
  const Output q = t.queue("q", DType::kFloat32);
  const Output held = t.filled("held", 120'000), element = t.dequeue(q, DType::kFloat32);
  auto waiting = t.session->run_future({}, {t.scope.op("AddV2", {held, element})});
  const Output a = t.filled("a", 120'000);
  const Error error = t.error(t.scope.op("AddV2", {t.scope.op("Neg", {a}), t.scope.op("Exp", {a})}));
  CHECK(error.code == Code::kResourceExhausted);
  CHECK_THAT(error.message, Contains("'held:0' float32[120000] 480000 bytes (step 1)") &&
                                Contains("'a:0' float32[120000] 480000 bytes (step 2)") && Contains("in 2 steps"));
  const Node* put = t.scope.node("QueueEnqueueV2", {q, t.scope.constant(2.f)});
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {put}).ok());
  const auto result = waiting.get();
  REQUIRE(result.ok());
  CHECK((*result)[0].data<float>()[0] == 3);
}

TEST_CASE("the values of a loop, and the elements of lists, are told of") {
  Memory t(1'000'000);
  const Output limit = t.placeholder(DType::kInt32, {});
  const Output list =
      t.scope.op("EmptyTensorList", {t.scope.constant(-1), t.scope.constant(-1)}, {{"element_dtype", DType::kFloat32}});
  const std::vector<Output> grown = while_loop(
      t.scope, {t.scope.constant(0), t.filled("start", 20'000), list},
      [&](const Scope& s, const std::vector<Output>& v) {
        return s.op("Less", {v[0], limit});
      },
      [](const Scope& s, const std::vector<Output>& v) {
        return std::vector<Output>{s.op("AddV2", {v[0], s.constant(1)}), s.named("next_value").op("Neg", {v[1]}),
                                   s.named("push").op("TensorListPushBack", {v[2], v[1]})};
      });
  const Output length = t.scope.op("TensorListLength", {grown[2]});
  const auto run = [&](int times) { return t.session->run({{limit, Tensor::scalar(times)}}, {grown[1], length}); };
  CHECK(run(3).ok());
  const auto failed = run(1000);
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().code == Code::kResourceExhausted);
  CHECK_THAT(failed.error().message, Contains("float32[20000] 80000 bytes") && Contains("variant[]"));
  CHECK(run(4).ok());
}
