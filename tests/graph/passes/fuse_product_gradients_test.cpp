// SPDX-License-Identifier: Apache-2.0
// Fusing of gradients with products on GPUs: what is rewritten, and what is not.
#include "graph/passes/fuse_product_gradients.h"

#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

/// y = Relu(x w + b), and the gradient of the next layer's product by it.
struct ProductGradientFixture : test::PassFixture {
  Output x = placeholder("x", {4, 3}), w = placeholder("w", {3, 2}), b = placeholder("b", {2});
  Output dz = placeholder("dz", {4, 5}), v = placeholder("v", {2, 5});
  Output y = s.op("Relu", {s.op("BiasAdd", {s.op("MatMul", {x, w}), b})});
  Output product = s.op("MatMul", {dz, v}, {{"transpose_b", true}});
  Output d = s.op("ReluGrad", {product, y});
  Output sums = s.op("BiasAddGrad", {d});
  Output of_weight = s.op("MatMul", {x, d}, {{"transpose_a", true}});

  /// What stands for the fetches, where all nodes run on a GPU or on none.
  std::vector<std::string> fused(const Outputs& fetches, const Outputs& fed = {}, bool on_gpu = true) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, fed, fetches, {});
    return with_epilogues(step, fetches, on_gpu);
  }
  std::string fused_one(const Output& fetch, const Outputs& fed = {}) { return fused({fetch}, fed)[0]; }
};

const std::string kForward = "_FusedMatMul(x, w, b)";
const std::string kGradient = "_FusedMatMulReluGrad(dz, v, " + kForward + ")";

}  // namespace

TEST_CASE("the gradient of Relu and that of the bias before it go into the product") {
  ProductGradientFixture f;
  CHECK(f.fused({f.d, f.sums, f.of_weight, f.y}) ==
        std::vector<std::string>{kGradient, kGradient + ":1", "MatMul(x, " + kGradient + ")", kForward});
  CHECK(f.fused_one(f.d) == kGradient);
  CHECK(f.fused({f.d, f.sums}, {}, false) ==
        std::vector<std::string>{"ReluGrad(MatMul(dz, v), " + kForward + ")",
                                 "BiasAddGrad(ReluGrad(MatMul(dz, v), " + kForward + "))"});
}

TEST_CASE("a product and the gradient of a bias by one of its operands become one node") {
  ProductGradientFixture f;
  const Output h = f.placeholder("h", {4, 2}), of_last = f.s.op("BiasAddGrad", {f.dz});
  const Output by_b = f.s.op("MatMul", {h, f.dz}, {{"transpose_a", true}}),
               by_a = f.s.op("MatMul", {f.dz, h}, {{"transpose_a", true}});
  CHECK(f.fused({by_b, of_last}) ==
        std::vector<std::string>{"_FusedMatMulBiasAddGrad(h, dz)", "_FusedMatMulBiasAddGrad(h, dz):1"});
  CHECK(f.fused({of_last, by_a}) ==
        std::vector<std::string>{"_FusedMatMulBiasAddGrad(dz, h):1", "_FusedMatMulBiasAddGrad(dz, h)"});
  // One of two takes it.
  const auto both = f.fused({by_a, by_b, of_last});
  CHECK((both[0].starts_with("MatMul") != both[1].starts_with("MatMul")));
  CHECK(both[2].ends_with(":1"));
  // The other operand, and sums over the other dimension.
  const Output not_transposed = f.s.op("MatMul", {f.dz, f.placeholder("q", {5, 2})}),
               transposed = f.s.op("MatMul", {f.placeholder("r", {2, 5}), f.dz}, {{"transpose_b", true}});
  CHECK(f.fused({not_transposed, of_last})[1] == "BiasAddGrad(dz)");
  CHECK(f.fused({transposed, of_last})[1] == "BiasAddGrad(dz)");
  // Where Relu's gradient has no product, the weight's has the sums.
  const Output relu = f.s.op("ReluGrad", {f.placeholder("g", {4, 2}), f.y});
  CHECK(f.fused({f.s.op("BiasAddGrad", {relu}), f.s.op("MatMul", {f.x, relu}, {{"transpose_a", true}})})[0] ==
        "_FusedMatMulBiasAddGrad(x, ReluGrad(g, " + kForward + ")):1");
}

TEST_CASE("a bias's gradient does not wait for an operand that comes after it") {
  ProductGradientFixture f;
  const Output of_last = f.s.op("BiasAddGrad", {f.dz});
  const Output late = f.s.op("BiasAdd", {f.placeholder("h", {4, 5}), of_last});
  const auto both = f.fused({f.s.op("MatMul", {late, f.dz}, {{"transpose_a", true}}), of_last});
  CHECK(both[0] == "MatMul(BiasAdd(h, BiasAddGrad(dz)), dz)");
}

TEST_CASE("gradients of what others read, of what is fed and of what waits are left alone") {
  ProductGradientFixture f;
  CHECK(f.fused({f.d, f.product})[0] == "ReluGrad(MatMul(dz, v), " + kForward + ")");
  CHECK(f.fused_one(f.d, {f.product}) == "ReluGrad(MatMul_1, " + kForward + ")");
  CHECK(f.fused_one(f.sums, {f.d}).starts_with("BiasAddGrad"));
  CHECK(f.fused({f.d, f.sums}, {f.sums})[0] == kGradient);
  const Output late = f.s.after({f.dz}).op("ReluGrad", {f.s.op("MatMul", {f.dz, f.v}, {{"transpose_b", true}}), f.y});
  CHECK(f.fused_one(late).starts_with("ReluGrad"));
  const Output there =
      f.s.device("/gpu:1").op("ReluGrad", {f.s.op("MatMul", {f.dz, f.v}, {{"transpose_b", true}}), f.y});
  CHECK(f.fused_one(there).starts_with("ReluGrad"));
}

TEST_CASE("whatever Relu's gradient goes by, it goes into the product") {
  ProductGradientFixture f;
  const Output plain = f.s.op("Relu", {f.placeholder("p", {4, 2})});
  CHECK(f.fused_one(f.s.op("ReluGrad", {f.s.op("MatMul", {f.dz, f.v}, {{"transpose_b", true}}), plain})) ==
        "_FusedMatMulReluGrad(dz, v, Relu(p))");
  CHECK(f.fused_one(f.d, {f.y}) == "_FusedMatMulReluGrad(dz, v, Relu)");
  const Output other = f.s.op("ReluGrad", {f.s.op("MatMul", {f.dz, f.v}, {{"transpose_b", true}}), f.y});
  CHECK(f.fused({f.d, other}) == std::vector<std::string>{kGradient, kGradient});
}

TEST_CASE("the gradient of GELU by tanh goes into the product, with that of the bias") {
  ProductGradientFixture f;
  const Output x = f.s.op("BiasAdd", {f.s.op("MatMul", {f.x, f.w}), f.b});
  const Output d = f.s.op("_GeluApproximateGrad", {f.product, x}), sums = f.s.op("BiasAddGrad", {d});
  CHECK(f.fused({d, sums}) == std::vector<std::string>{"_FusedMatMulGeluGrad(dz, v, " + kForward + ")",
                                                       "_FusedMatMulGeluGrad(dz, v, " + kForward + "):1"});
  CHECK(f.fused({d, sums}, {}, false)[0] == "_GeluApproximateGrad(MatMul(dz, v), " + kForward + ")");
  CHECK(f.fused_one(f.s.op("_GeluExactGrad", {f.product, x})).starts_with("_GeluExactGrad"));
}

TEST_CASE("a product that is reshaped takes the gradient too, and sums of its columns alone") {
  ProductGradientFixture f;
  const auto shape = [&](std::initializer_list<int64_t> sizes) { return f.s.constant(Tensor::of<int64_t>(sizes)); };
  for (const char* op : {"ReluGrad", "_GeluApproximateGrad"}) {
    const std::string fused = std::string(op) == "ReluGrad" ? "_FusedMatMulReluGrad" : "_FusedMatMulGeluGrad";
    const Output x = f.placeholder("f", {2, 2, 2});
    const Output d = f.s.op(op, {f.s.op("Reshape", {f.product, shape({2, 2, 2})}), x});
    CHECK(f.fused({d, f.s.op("BiasAddGrad", {d})})[1] == fused + "(dz, v, " + x.node->name() + "):1");
    const Output flat = f.placeholder("g", {2, 4});
    const Output other = f.s.op(op, {f.s.op("Reshape", {f.product, shape({2, 4})}), flat});
    const std::string alone = fused + "(dz, v, " + flat.node->name() + ")";
    CHECK(f.fused({other, f.s.op("BiasAddGrad", {other})}) ==
          std::vector<std::string>{alone, "BiasAddGrad(" + alone + ")"});
    const Output between = f.s.op("Reshape", {f.product, shape({2, 2, 2})});
    CHECK(f.fused({f.s.op(op, {between, x}), between})[0].starts_with(op));
    CHECK(f.fused({f.s.op(op, {between, x})}, {between})[0].starts_with(op));
  }
}

TEST_CASE("with control flow the shape of a product may be dead, so that a constant one alone goes along") {
  ProductGradientFixture f;
  const Output x = f.placeholder("f", {2, 2, 2}), sizes = f.placeholder("sizes", {3}, DType::kInt64);
  const auto gradient = [&](const Output& shape) {
    return f.s.op("ReluGrad", {f.s.op("Reshape", {f.s.op("MatMul", {f.dz, f.v}, {{"transpose_b", true}}), shape}), x});
  };
  const Output by_constant = gradient(f.s.constant(Tensor::of<int64_t>({2, 2, 2})));
  CHECK(f.fused_one(gradient(sizes)).starts_with("_FusedMatMulReluGrad"));
  const Node* side = f.s.node("Switch", {sizes, f.placeholder("p", {}, DType::kBool)});
  const auto both = f.fused({gradient(side->out(1)), by_constant});
  CHECK(both[0].starts_with("ReluGrad"));
  CHECK(both[1].starts_with("_FusedMatMulReluGrad"));
}

TEST_CASE("with control flow an operand may be dead, so that sums stay on their own") {
  ProductGradientFixture f;
  const Node* side = f.s.node("Switch", {f.placeholder("h", {4, 2}), f.placeholder("p", {}, DType::kBool)});
  const Output product = f.s.op("MatMul", {side->out(1), f.dz}, {{"transpose_a", true}}),
               of_last = f.s.op("BiasAddGrad", {f.dz});
  CHECK(f.fused({product, of_last})[1] == "BiasAddGrad(dz)");
}
