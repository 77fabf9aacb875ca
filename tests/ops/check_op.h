// SPDX-License-Identifier: Apache-2.0
// What tests of op families check with: random tensors, closeness, errors, and gradients against finite differences.
#pragma once
#include <catch2/catch.hpp>
#include <random>

#include "tests/ops/evaluate.h"
#include "troupe/gradients.h"

namespace troupe::testing {

/// Uniform values in [-1, 1).
template <class T> Tensor random_tensor(const Shape& shape, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-1.f, 1.f);
  Tensor t = *Tensor::make(dtype_of<T>, shape);
  for (int64_t i = 0; i < t.elements(); ++i) t.mutable_data<T>()[i] = T(uniform(rng));
  return t;
}

/// The elements as doubles; of complex numbers the real and the imaginary parts in turn.
inline std::vector<double> doubles(const Tensor& t) {
  if (t.dtype() == DType::kComplex64) {
    const float* parts = reinterpret_cast<const float*>(t.data<complex64>());
    return {parts, parts + 2 * t.elements()};
  }
  if (t.dtype() == DType::kComplex128) {
    const double* parts = reinterpret_cast<const double*>(t.data<complex128>());
    return {parts, parts + 2 * t.elements()};
  }
  std::vector<double> out(t.elements());
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (t.dtype() == DType::kFloat32) out[i] = t.data<float>()[i];
    if (t.dtype() == DType::kFloat64) out[i] = t.data<double>()[i];
    if (t.dtype() == DType::kFloat16) out[i] = static_cast<float>(t.data<float16>()[i]);
    if (t.dtype() == DType::kBFloat16) out[i] = static_cast<float>(t.data<bfloat16>()[i]);
    if (t.dtype() == DType::kInt32) out[i] = t.data<int32_t>()[i];
    if (t.dtype() == DType::kInt64) out[i] = static_cast<double>(t.data<int64_t>()[i]);
  }
  return out;
}

/// Every element of `got` within `tolerance` of `want`, relative to the larger of 1 and |want|.
inline void check_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::abs(got[i] - want[i]) <= tolerance * std::max(1.0, std::abs(want[i]))) continue;
    INFO("element " << i);
    REQUIRE(got[i] == Approx(want[i]).epsilon(tolerance).margin(tolerance));
  }
}

/// A node of this op on constants; its outputs. Faults show in the scope.
inline const Node* add_node(const Scope& scope, const std::string& op, const std::vector<Tensor>& inputs,
                            Attrs attrs = {}) {
  std::vector<Output> in;
  for (const Tensor& t : inputs) in.push_back(scope.constant(t));
  return scope.node(op, in, std::move(attrs));
}

/// Output `port` of an op on constants, or the error of building or running it.
inline Result<Tensor> apply(const std::string& op, const std::vector<Tensor>& inputs, Attrs attrs = {}, int port = 0,
                            int threads = 1) {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Node* node = add_node(scope, op, inputs, std::move(attrs));
  if (!scope.ok()) return scope.status();
  auto out = Evaluator(threads).run({node->out(port)});
  if (!out.ok()) return out.status();
  const PartialShape& inferred = node->shape(port);
  if (!inferred.compatible((*out)[0].shape()))
    return invalid_argument("inferred {} but computed {}", inferred.str(), (*out)[0].shape().str());
  return (*out)[0];
}

/// The same with inputs of unknown shape, so that only the kernel can find what is wrong.
inline Result<Tensor> apply_unshaped(const std::string& op, const std::vector<Tensor>& inputs, Attrs attrs = {},
                                     int port = 0) {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  std::vector<Output> in;
  std::vector<std::pair<Output, Tensor>> feeds;
  for (const Tensor& t : inputs) {
    in.push_back(scope.op("Placeholder", {}, Attrs{{"dtype", t.dtype()}}));
    feeds.emplace_back(in.back(), t);
  }
  const Node* node = scope.node(op, in, std::move(attrs));
  if (!scope.ok()) return scope.status();
  auto out = Evaluator().run({node->out(port)}, feeds);
  if (!out.ok()) return out.status();
  return (*out)[0];
}

/// The value, which there must be.
inline Tensor must(Result<Tensor> r) {
  INFO((r.ok() ? "" : r.error().str()));
  REQUIRE(r.ok());
  return *r;
}

/// Checks that the kernel fails on these inputs, whose shapes the builder does not know, and says `words`.
inline void check_kernel_fails(const std::string& op, const std::vector<Tensor>& inputs, const std::string& words,
                               const Attrs& attrs = {}) {
  const auto r = apply_unshaped(op, inputs, attrs);
  INFO(op << " " << words);
  REQUIRE_FALSE(r.ok());
  CHECK_THAT(r.error().message, Catch::Contains(words));
}

/// Checks that the op fails, whether the builder knows shapes and values or only the kernel does, and says `words`.
inline void check_always_fails(const std::string& op, const std::vector<Tensor>& inputs, const std::string& words,
                               const Attrs& attrs = {}) {
  for (const auto& r : {apply(op, inputs, attrs), apply_unshaped(op, inputs, attrs)}) {
    INFO(op << " " << words);
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().message, Catch::Contains(words));
  }
}

/// Checks the gradients by `checked` inputs (float64) of sum(w * op(inputs)[port]), w random, against central
/// differences.
inline void check_gradients(const std::string& op, std::vector<Tensor> inputs, Attrs attrs = {},
                            std::vector<int> checked = {0}, int port = 0, double tolerance = 1e-6) {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  std::vector<Output> in;
  std::vector<std::pair<Output, Tensor>> feeds;
  for (const Tensor& t : inputs) {
    in.push_back(scope.op("Placeholder", {}, Attrs{{"dtype", t.dtype()}, {"shape", PartialShape(t.shape())}}));
    feeds.emplace_back(in.back(), t);
  }
  const Node* node = scope.node(op, in, std::move(attrs));
  INFO(op << ": " << (scope.ok() ? "" : scope.status().error().str()));
  REQUIRE(scope.ok());
  Evaluator evaluator;
  const Tensor y = evaluator.value(node->out(port), feeds);
  REQUIRE(y.defined());
  const Tensor w = random_tensor<double>(y.shape(), 99);
  std::vector<Output> xs;
  for (int i : checked) xs.push_back(in[i]);
  auto dxs = gradients(scope, {node->out(port)}, xs, {scope.constant(w)});
  INFO((dxs.ok() ? "" : dxs.error().str()));
  REQUIRE(dxs.ok());
  const auto loss = [&] {
    const std::vector<double> v = doubles(evaluator.value(node->out(port), feeds)), u = doubles(w);
    double sum = 0;
    for (size_t i = 0; i < v.size(); ++i) sum += v[i] * u[i];
    return sum;
  };
  for (size_t j = 0; j < checked.size(); ++j) {
    REQUIRE((*dxs)[j]);
    const Tensor got = evaluator.value((*dxs)[j], feeds);
    REQUIRE(got.defined());
    const Tensor x = feeds[checked[j]].second;
    REQUIRE(got.shape() == x.shape());
    std::vector<double> want(x.elements());
    for (int64_t i = 0; i < x.elements(); ++i) {
      const double h = 1e-6;
      double at[2];
      for (int side = 0; side < 2; ++side) {
        Tensor moved = *x.clone();
        moved.mutable_data<double>()[i] += side ? h : -h;
        feeds[checked[j]].second = moved;
        at[side] = loss();
      }
      feeds[checked[j]].second = x;
      want[i] = (at[1] - at[0]) / (2 * h);
    }
    INFO("input " << checked[j]);
    check_close(doubles(got), want, tolerance);
  }
}

}  // namespace troupe::testing
