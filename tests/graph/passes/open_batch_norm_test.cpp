// SPDX-License-Identifier: Apache-2.0
// Opening of batch norms in training: what is rewritten, and what is not. tests/engine/pass_property_test.cpp compares
// results.
#include "graph/passes/open_batch_norm.h"

#include "tests/graph/passes/pass_fixture.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

/// Swish(norm(x)) and its gradients.
struct OpenFixture : test::PassFixture {
  Output scale = placeholder("scale", {5}), offset = placeholder("offset", {5}), mean = placeholder("mean", {0});

  Output norm(Output x, Attrs attrs = {{"is_training", true}}) {
    return s.op("FusedBatchNormV3", {x, scale, offset, mean, mean}, std::move(attrs));
  }
  Output swish(Output x) { return s.op("Mul", {x, s.op("Sigmoid", {x})}); }
  Outputs gradients_of(Output y, Output x) { return *gradients(s, {s.op("Square", {y})}, {x}); }

  int64_t count(const Outputs& fetches, std::string_view op, bool on_gpu = false) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, {}, fetches, {});
    run_device_passes(step, only(&GraphPasses::fuse_training), {.on_gpu = [=](const Node&) { return on_gpu; }});
    return std::ranges::count_if(step.nodes(), [&](const Node* n) { return n->op().name() == op; });
  }
  bool opened(const Outputs& fetches, bool on_gpu = false) {
    const bool open = count(fetches, "_BatchNormStatistics", on_gpu) == 1;
    CHECK(count(fetches, "FusedBatchNormV3", on_gpu) == (open ? 0 : 1));
    return open;
  }
};

}  // namespace

TEST_CASE("a norm whose result element-wise nodes alone read in training is computed by these") {
  OpenFixture f;
  const Output x = f.placeholder("x", {2, 90, 90, 5});  // so large that Sigmoid is computed again
  const Output y = f.swish(f.norm(x));
  Outputs fetches = f.gradients_of(y, x);
  CHECK(f.opened(fetches));
  fetches.push_back(y);
  fetches.push_back({f.norm(x).node, 1});  // a second norm, of which nobody reads y
  CHECK(f.count(fetches, "_BatchNormStatistics") == 1);
  CHECK(f.count(fetches, "Sub") + f.count(fetches, "AddV2") + f.count(fetches, "Sigmoid") == 0);
  StepGraph step(f.graph, {}, fetches, {});
  run_device_passes(step, f.only(&GraphPasses::fuse_training), {});
  const std::string statistics = "_BatchNormStatistics(x, scale, offset, mean, mean)";
  CHECK(f.text(step, y) == fmt::format("_FusedElementwise(x, {0}:2, {0}:4, offset)", statistics));
  // The gradient that goes on to the norm's reads the same in place of what the norm gave.
  const std::string dx = f.text(step, fetches[0]);
  CHECK_THAT(dx, Catch::StartsWith(
                     fmt::format("FusedBatchNormGradV3(_FusedElementwise(x, {0}:2, {0}:4, offset, ", statistics)));
}

TEST_CASE("the statistics of an opened norm are those of the norm") {
  OpenFixture f;
  const Output x = f.placeholder("x", {2, 3, 4, 5});
  const Node& norm = *f.norm(x).node;
  Outputs fetches = f.gradients_of(f.s.op("Relu", {norm.out()}), x);
  for (int port = 1; port < 5; ++port) fetches.push_back({&norm, port});
  StepGraph step(f.graph, {}, fetches, {});
  run_device_passes(step, f.only(&GraphPasses::fuse_training), {});
  for (int port = 1; port < 5; ++port) {
    const Output now = step.now({&norm, port});
    CHECK(now.node->op().name() == "_BatchNormStatistics");
    CHECK(now.port == port - 1);
  }
}

TEST_CASE("a norm stays where others read it, on GPUs, with channels first, of 16-bit images and in inference") {
  OpenFixture f;
  const Output x = f.placeholder("x", {2, 3, 4, 5});
  const Output y = f.norm(x);
  Outputs fetches = f.gradients_of(f.swish(y), x);
  REQUIRE(f.opened(fetches));
  CHECK_FALSE(f.opened(fetches, true));
  fetches.push_back(y);
  CHECK_FALSE(f.opened(fetches));
  fetches.back() = f.s.op("Sum", {y, f.s.constant(Tensor::of<int32_t>({0}))});
  CHECK_FALSE(f.opened(fetches));
  fetches.back() = f.s.op("AddV2", {y, f.placeholder("wide", {7, 2, 3, 4, 5})});  // y is repeated there
  CHECK_FALSE(f.opened(fetches));
  fetches.back() = f.s.op("Identity", {y});
  CHECK_FALSE(f.opened(fetches));

  const Output columns = f.placeholder("columns", {2, 5, 3, 4});
  CHECK_FALSE(f.opened(f.gradients_of(
      f.swish(f.norm(columns, {{"is_training", true}, {"data_format", std::string("NCHW")}})), columns)));
  const Output half = f.placeholder("half", {2, 3, 4, 5}, DType::kBFloat16);
  CHECK_FALSE(f.opened(f.gradients_of(f.swish(f.norm(half)), half)));
  CHECK_FALSE(f.opened({f.swish(f.norm(x))}));
  f.mean = f.scale;
  CHECK_FALSE(f.opened(f.gradients_of(f.swish(f.norm(x, {{"is_training", false}})), x)));
}
