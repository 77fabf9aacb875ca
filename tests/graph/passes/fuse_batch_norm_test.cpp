// SPDX-License-Identifier: Apache-2.0
// Fusing of batch norms with the Relu behind them on GPUs: what is rewritten, and what is not.
#include "graph/passes/fuse_batch_norm.h"

#include "tests/graph/passes/pass_fixture.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

/// y = Relu(norm(x) + side).
struct BatchNormFixture : test::PassFixture {
  Output x = placeholder("x", {2, 3, 4, 5}), scale = placeholder("scale", {5}), offset = placeholder("offset", {5});
  Output mean = placeholder("mean", {0}), side = placeholder("side", {2, 3, 4, 5});
  Outputs norm = normed(s);
  Output y = s.op("Relu", {norm[0]}), block = s.op("Relu", {s.op("AddV2", {normed(s)[0], side})});

  Outputs normed(const Scope& scope, bool training = true) {
    const Node* const node =
        scope.node("FusedBatchNormV3", {x, scale, offset, training ? mean : scale, training ? mean : offset},
                   {{"is_training", training}});
    REQUIRE(node);
    Outputs out;
    for (int i = 0; i < node->num_outputs(); ++i) out.push_back(node->out(i));
    return out;
  }
  std::vector<std::string> fused(const Outputs& fetches, const Outputs& fed = {}, bool on_gpu = true) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, fed, fetches, {});
    run_device_passes(step, only(&GraphPasses::fuse_batch_norm),
                      {.has_kernel = [](const Node&, const std::string&, const Attrs&) { return true; },
                       .on_gpu = [on_gpu](const Node&) { return on_gpu; }});
    std::vector<std::string> out;
    for (const Output& fetch : fetches) out.push_back(text(step, fetch));
    return out;
  }
  std::string fused_one(const Output& fetch, const Outputs& fed = {}) { return fused({fetch}, fed)[0]; }
};

const std::string kPlain = "_FusedBatchNormRelu(x, scale, offset, mean, mean)",
                  kBlock = "_FusedBatchNormRelu(x, scale, offset, mean, mean, side)";

}  // namespace

TEST_CASE("a batch norm takes Relu along, and the sum before it") {
  BatchNormFixture f;
  CHECK(f.fused_one(f.y) == kPlain);
  CHECK(f.fused_one(f.block) == kBlock);
  CHECK(f.fused({f.y, f.norm[1], f.norm[5]}) == std::vector<std::string>{kPlain, kPlain + ":1", kPlain + ":5"});
  CHECK(f.fused({f.y}, {}, false)[0].starts_with("Relu("));
  // The norm may be the right operand, and of two norms the one that comes later takes the other.
  CHECK(f.fused_one(f.s.op("Relu", {f.s.op("Add", {f.side, f.normed(f.s)[0]})})) == kBlock);
  const Output first = f.normed(f.s)[0], second = f.normed(f.s)[0];
  CHECK(f.fused_one(f.s.op("Relu", {f.s.op("AddV2", {first, second})})) ==
        "_FusedBatchNormRelu(x, scale, offset, mean, mean, FusedBatchNormV3(x, scale, offset, mean, mean))");
}

TEST_CASE("norms that others read, that are fed, or whose sum broadcasts keep their Relu apart") {
  BatchNormFixture f;
  CHECK(f.fused({f.y, f.norm[0]})[0].starts_with("Relu("));
  CHECK(f.fused_one(f.y, {f.norm[0]}).starts_with("Relu"));
  CHECK(f.fused_one(f.y, {f.norm[1]}).starts_with("Relu"));
  const Output row = f.placeholder("row", {5}), unknown = f.placeholder("unknown", {-1, 3, 4, 5});
  for (const Output& other : {row, unknown})
    CHECK(f.fused_one(f.s.op("Relu", {f.s.op("AddV2", {f.normed(f.s)[0], other})})).starts_with("Relu(AddV2("));
  const Output sum = f.s.op("AddV2", {f.normed(f.s)[0], f.side});
  CHECK(f.fused({f.s.op("Relu", {sum}), sum})[0].starts_with("Relu("));
  CHECK(f.fused_one(f.s.after({f.side}).op("Relu", {f.normed(f.s)[0]})).starts_with("Relu("));
  // What comes after the norm cannot go into it: others may read its statistics before that.
  const Outputs early = f.normed(f.s);
  const Output late = f.s.op("BiasAdd", {f.side, early[1]});
  CHECK(f.fused_one(f.s.op("Relu", {f.s.op("AddV2", {early[0], late})})).starts_with("Relu(AddV2("));
}

TEST_CASE("gradients of both go together where the norm was trained") {
  BatchNormFixture f;
  const Output weight = f.placeholder("weight", {2, 3, 4, 5});
  for (const bool with_side : {false, true}) {
    const Output loss = f.s.op("Mul", {with_side ? f.block : f.y, weight});
    const auto by = gradients(f.s, {loss}, {f.x, f.scale, f.offset, f.side});
    REQUIRE(by.ok());
    const std::string forward = with_side ? kBlock : kPlain;
    Outputs wanted{(*by)[0], (*by)[1], (*by)[2]};
    if (with_side) wanted.push_back((*by)[3]);
    const auto got = f.fused(wanted);
    const std::string fused = got[0];
    INFO(fused);
    CHECK(fused.starts_with("_FusedBatchNormReluGrad(Mul("));
    CHECK(fused.ends_with(", x, scale, " + forward + ":3, " + forward + ":4, " + forward + ":5)"));
    CHECK(got[1] == fused + ":1");
    CHECK(got[2] == fused + ":2");
    if (with_side) CHECK(got[3] == fused + ":3");
  }
  // Of an inference nothing is kept.
  const Output frozen = f.s.op("Mul", {f.s.op("Relu", {f.normed(f.s, false)[0]}), weight});
  const auto by = gradients(f.s, {frozen}, {f.x});
  REQUIRE(by.ok());
  CHECK(f.fused_one((*by)[0]).starts_with("FusedBatchNormGradV3(ReluGrad("));
}
