// SPDX-License-Identifier: Apache-2.0
// Convolutions, pools, batch normalisation, products and softmaxes of 16-bit floats: what float32 gives, rounded; and
// their gradients.
#include "tests/ops/check_op.h"

namespace troupe::testing {
namespace {

Tensor cast(const Tensor& t, DType to) {
  const auto out = apply("Cast", {t}, {{"DstT", to}});
  REQUIRE(out.ok());
  return *out;
}

struct HalfCase {
  std::string op;
  std::vector<Tensor> inputs;  // float32 ones become 16-bit, but those from `first_wide` on
  Attrs attrs = {};
  size_t first_wide = 99;
  int outputs = 1, rounded = 1;  // how many there are, and how many of them are 16-bit
};

std::vector<HalfCase> half_cases() {
  auto random = [seed = uint32_t{0}](const Shape& s) mutable { return random_tensor<float>(s, ++seed); };
  const Attrs window = {{"strides", std::vector<int64_t>{1, 2, 2, 1}}, {"padding", std::string("SAME")}};
  Attrs pool = window;
  pool.set("ksize", std::vector<int64_t>{1, 3, 3, 1});
  const Tensor x = random({2, 7, 6, 4}), y = random({2, 4, 3, 4}), filter = random({3, 3, 4, 5}),
               z = random({2, 4, 3, 5});
  const Tensor depthwise = random({3, 3, 4, 1}), one = Tensor::of<float>({1, 2, 3, 4}), two = random({4});
  const Tensor sizes = Tensor::of<int32_t>({2, 7, 6, 4}), filter_sizes = Tensor::of<int32_t>({3, 3, 4, 5});
  const Tensor rows = random({5, 7}), labels = Tensor::of<int32_t>({1, 0, 6, 3, 2});
  std::vector<HalfCase> out = {
      {"Conv2D", {x, filter}, window},
      {"Conv2DBackpropInput", {sizes, filter, z}, window},
      {"Conv2DBackpropFilter", {x, filter_sizes, z}, window},
      {"DepthwiseConv2dNative", {x, depthwise}, window},
      {"DepthwiseConv2dNativeBackpropInput", {sizes, depthwise, y}, window},
      {"DepthwiseConv2dNativeBackpropFilter", {x, Tensor::of<int32_t>({3, 3, 4, 1}), y}, window},
      {"MaxPool", {x}, pool},
      {"AvgPool", {x}, pool},
      {"AvgPoolGrad", {sizes, y}, pool},
      {"MatMul", {rows, random({7, 3})}},
      {"BatchMatMulV2", {random({2, 3, 4}), random({4, 2})}},
      {"Softmax", {rows}},
      {"LogSoftmax", {rows}},
      {"SparseSoftmaxCrossEntropyWithLogits", {rows, labels}, {}, 99, 2, 2},
      {"SoftmaxCrossEntropyWithLogits", {rows, rows}, {}, 99, 2, 2},
      {"BiasAdd", {x, two}},
  };
  for (bool training : {false, true}) {
    const Attrs attrs = {{"is_training", training}, {"epsilon", 0.01f}};
    out.push_back({"FusedBatchNormV3", {x, one, two, two, one}, attrs, 1, 5, 1});
    out.push_back({"FusedBatchNormGradV3", {x, x, one, two, one, two}, attrs, 2, 3, 1});
  }
  return out;
}

TEST_CASE("kernels of 16-bit floats give what float32 gives, rounded") {
  for (DType half : {DType::kFloat16, DType::kBFloat16})
    for (const HalfCase& k : half_cases())
      for (int threads : {1, 2}) {
        INFO(k.op << " of " << to_string(half));
        std::vector<Tensor> narrow = k.inputs, wide = k.inputs;
        for (size_t i = 0; i < std::min(k.first_wide, narrow.size()); ++i) {
          if (narrow[i].dtype() != DType::kFloat32) continue;
          narrow[i] = cast(narrow[i], half);
          wide[i] = cast(narrow[i], DType::kFloat32);
        }
        for (int port = 0; port < k.outputs; ++port) {
          const auto got = apply(k.op, narrow, k.attrs, port, threads),
                     want = apply(k.op, wide, k.attrs, port, threads);
          INFO((got.ok() ? "" : got.error().str()));
          REQUIRE((got.ok() && want.ok()));
          CHECK(got->identical(port < k.rounded ? cast(*want, half) : *want));
        }
      }
}

TEST_CASE("gradients of 16-bit floats are near those of float32") {
  for (DType half : {DType::kFloat16, DType::kBFloat16})
    for (const HalfCase& k : half_cases()) {
      INFO(k.op << " of " << to_string(half));
      const auto gradient_of = [&](bool narrow) {
        Graph graph(op_library()->ops);
        const Scope scope(graph);
        std::vector<Tensor> inputs = k.inputs;
        for (size_t i = 0; i < std::min(k.first_wide, inputs.size()); ++i)
          if (inputs[i].dtype() == DType::kFloat32) {
            const Tensor rounded = cast(inputs[i], half);
            inputs[i] = narrow ? rounded : cast(rounded, DType::kFloat32);
          }
        const Node* node = add_node(scope, k.op, inputs, k.attrs);
        REQUIRE(node);
        std::vector<Output> xs;
        for (const Output& in : node->inputs())
          if (is_floating(in.dtype())) xs.push_back(in);
        const auto dxs = gradients(scope, {node->out(0)}, xs);
        INFO((dxs.ok() ? "" : dxs.error().str()));
        REQUIRE(dxs.ok());
        std::vector<std::vector<double>> out;
        for (size_t i = 0; i < xs.size(); ++i) {
          if (!(*dxs)[i]) continue;
          CHECK((*dxs)[i].dtype() == xs[i].dtype());
          out.push_back(doubles(Evaluator().value((*dxs)[i])));
        }
        return out;
      };
      const auto got = gradient_of(true), want = gradient_of(false);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) check_close(got[i], want[i], half == DType::kFloat16 ? 2e-2 : 1e-1);
    }
}

TEST_CASE("MaxPool and Conv2D take integers") {
  const Attrs pool = {{"strides", std::vector<int64_t>{1, 1, 2, 1}},
                      {"ksize", std::vector<int64_t>{1, 1, 2, 1}},
                      {"padding", std::string("VALID")}};
  const Tensor x = Tensor::of<int8_t>({-3, -5, 7, 7}, {1, 1, 4, 1}), g = Tensor::of<int8_t>({1, 2}, {1, 1, 2, 1});
  const auto y = apply("MaxPool", {x}, pool);
  REQUIRE(y.ok());
  CHECK(y->identical(Tensor::of<int8_t>({-3, 7}, {1, 1, 2, 1})));
  const auto dx = apply("MaxPoolGrad", {x, *y, g}, pool);
  REQUIRE(dx.ok());
  CHECK(dx->identical(Tensor::of<int8_t>({1, 0, 2, 0}, {1, 1, 4, 1})));
  const Attrs window = {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("VALID")}};
  const auto z =
      apply("Conv2D", {Tensor::of<int32_t>({1, 2, INT32_MAX}, {1, 1, 3, 1}), Tensor::of<int32_t>({3, 1}, {1, 2, 1, 1})},
            window);
  REQUIRE(z.ok());
  CHECK(z->identical(Tensor::of<int32_t>({5, static_cast<int32_t>(6u + INT32_MAX)}, {1, 1, 2, 1})));
}

}  // namespace
}  // namespace troupe::testing
