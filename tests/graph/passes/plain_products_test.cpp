// SPDX-License-Identifier: Apache-2.0
// Products of many matrices by one: which become a product of one matrix.
#include "graph/passes/plain_products.h"

#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

TEST_CASE("many matrices times one are one matrix times one, with the bias") {
  test::PassFixture f;
  const auto plain = [&](Output o, std::vector<Output> fed = {}) {
    return f.after(f.only(&GraphPasses::fuse_inference), o, std::move(fed), [](auto&&...) { return std::nullopt; });
  };
  const auto product = [&](Output x, Output w, bool adj_x = false, bool adj_y = false) {
    return f.s.op("BatchMatMulV2", {x, w}, {{"adj_x", adj_x}, {"adj_y", adj_y}});
  };
  const Output x = f.placeholder("x", {-1, 5, 4}), w = f.placeholder("w", {4, 6}), b = f.placeholder("b", {6});
  const std::string back = Tensor::of<int64_t>({-1, 5, 6}).str(4), flat = Tensor::of<int64_t>({-1, 4}).str(4);
  const Output y = product(x, w);
  CHECK(plain(y) == "Reshape(MatMul(Reshape(x, " + flat + "), w), " + back + ")");
  CHECK(plain(f.s.op("BiasAdd", {product(x, w), b})) ==
        "Reshape(_FusedMatMul(Reshape(x, " + flat + "), w, b), " + back + ")");
  CHECK(plain(product(x, f.placeholder("v", {6, 4}), false, true)).find("MatMul(Reshape(x, ") != std::string::npos);
  // Sizes that no one Reshape says, other matrices for each, what does not fit or is fed.
  const auto stays = [&](Output o) { return plain(o).starts_with("BatchMatMulV2("); };
  CHECK(stays(product(f.placeholder("u", {-1, -1, 4}), w)));
  CHECK(stays(product(x, f.placeholder("many", {-1, 4, 6}))));
  CHECK(stays(product(f.placeholder("t", {-1, 4, 5}), w, true)));
  CHECK(stays(product(f.placeholder("r", PartialShape::unknown()), w)));
  CHECK(plain(f.s.op("Neg", {y}), {y}) == "Neg(" + y.node->name() + ")");
  // Values.
  Tensor in = *Tensor::make(DType::kFloat32, {2, 3, 4}), by = *Tensor::make(DType::kFloat32, {6, 4});
  for (int64_t i = 0; i < 24; ++i) {
    in.mutable_data<float>()[i] = static_cast<float>(i % 5) - 2;
    by.mutable_data<float>()[i] = static_cast<float>(i % 7) - 3;
  }
  const Output constants = product(f.s.constant(in), f.s.constant(by), false, true);
  const auto want = f.compute(*constants.node, std::vector<Tensor>{in, by});
  StepGraph step(f.graph, {}, {&constants, 1}, {});
  run_passes(step, f.only(&GraphPasses::fuse_inference), {});
  const auto value = [&](auto& self, Output o) -> Tensor {
    o = step.now(o);
    if (const Tensor* constant = step.constant(o)) return *constant;
    std::vector<Tensor> inputs;
    for (const Output& input : o.node->inputs()) inputs.push_back(self(self, input));
    return (*f.compute(*o.node, inputs))[0];
  };
  REQUIRE(step.now(constants).node->op().name() == "Reshape");
  REQUIRE(want);
  CHECK(value(value, constants).identical((*want)[0]));
}
