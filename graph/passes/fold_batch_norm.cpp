// SPDX-License-Identifier: Apache-2.0
// scale (w * x + b - mean) / sqrt(variance + epsilon) + offset = (f w) * x + f (b - mean) + offset.
#include "graph/passes/fold_batch_norm.h"

#include <cmath>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

/// The constants of a convolution and a batch norm.
struct Constants {
  const Tensor *filter, *bias, *scale, *offset, *mean, *variance;  // bias: nullptr where there is none
  float epsilon;
};

/// x times a number for each channel, which is the last axis, or the last two together.
template <class T, class F> Result<Tensor> times_channels(const Tensor& x, const F* by, int64_t channels) {
  TROUPE_ASSIGN(Tensor y, Tensor::make(dtype_of<T>, x.shape()));
  const T* from = x.data<T>();
  T* to = y.mutable_data<T>();
  for (int64_t row = 0; row < x.elements(); row += channels)
    for (int64_t i = 0; i < channels; ++i) to[row + i] = static_cast<T>(from[row + i] * by[i]);
  return y;
}

/// The new filter and bias. The channels of the result are the last of a filter's dimensions, of a depthwise one the
/// last two.
template <class T> Result<std::pair<Tensor, Tensor>> folded(const Constants& c) {
  const int64_t channels = c.scale->elements();
  std::vector<double> factor;
  TROUPE_ASSIGN(Tensor bias, Tensor::make(dtype_of<T>, {channels}));
  for (int64_t i = 0; i < channels; ++i) {
    const double deviation =
        std::sqrt(static_cast<double>(c.variance->data<T>()[i]) + static_cast<double>(static_cast<T>(c.epsilon)));
    factor.push_back(static_cast<double>(c.scale->data<T>()[i]) / deviation);
    const double before = c.bias ? static_cast<double>(c.bias->data<T>()[i]) : 0.0;
    bias.mutable_data<T>()[i] =
        static_cast<T>((before - static_cast<double>(c.mean->data<T>()[i])) * factor.back() + c.offset->data<T>()[i]);
  }
  TROUPE_ASSIGN(Tensor filter, times_channels<T>(*c.filter, factor.data(), channels));
  return std::pair(std::move(filter), std::move(bias));
}

/// Filter and bias of a convolution whose result is multiplied by a number for each channel, or has one added.
template <class T>
Result<std::pair<Tensor, Tensor>> with_vector(bool product, const Tensor& filter, const Tensor* bias,
                                              const Tensor& vector) {
  const int64_t channels = vector.elements();
  const T* by = vector.data<T>();
  TROUPE_ASSIGN(Tensor shift, Tensor::make(dtype_of<T>, {channels}));
  for (int64_t i = 0; i < channels; ++i) {
    const T before = bias ? bias->data<T>()[i] : T(0);
    shift.mutable_data<T>()[i] = product ? before * by[i] : before + by[i];
  }
  Tensor scaled = filter;
  if (product) {
    TROUPE_ASSIGN(scaled, times_channels<T>(filter, by, channels));
  }
  return std::pair(std::move(scaled), std::move(shift));
}

bool is_batch_norm(const Node& n) {
  const std::string& op = n.op().name();
  return (op == "FusedBatchNorm" || op == "FusedBatchNormV2" || op == "FusedBatchNormV3") &&
         !n.attrs().get_or("is_training", true);
}

}  // namespace

BatchNormFolding::BatchNormFolding(StepGraph& step) : step_(step), readers_(step) {}

bool BatchNormFolding::folds_away(const Node& node, const Node& reader) const {
  return (readers_.one(node) || read_once_.contains(&node)) && node.control_inputs().empty() && !step_.is_fed(node) &&
         same_place(node, reader) && data_format(node) == data_format(reader);
}

bool BatchNormFolding::fold_vector(const Node& node) {
  if (step_.is_fed(node) || !node.control_inputs().empty()) return false;
  const bool product = node.op().name() == "Mul";
  for (const size_t i : {0, 1}) {
    const Tensor* vector = step_.constant(node.inputs()[1 - i]);
    if (!vector) continue;
    const Output to = step_.now(node.inputs()[i]);
    const Node* bias_add = to.node->op().name() == "BiasAdd" ? to.node : nullptr;
    if (bias_add && !folds_away(*bias_add, node)) return false;
    const Output of_conv = bias_add ? step_.now(bias_add->inputs()[0]) : to;
    const Node& conv = *of_conv.node;
    const bool depthwise = conv.op().name() == "DepthwiseConv2dNative";
    if ((conv.op().name() != "Conv2D" && !depthwise) || !folds_away(conv, node)) return false;
    const Tensor* filter = step_.constant(conv.inputs()[1]);
    const Tensor* bias = bias_add ? step_.constant(bias_add->inputs()[1]) : nullptr;
    if (!filter || filter->rank() != 4 || filter->dtype() != node.dtype(0) || (bias_add && !bias)) return false;
    const int64_t channels = filter->dim(3) * (depthwise ? filter->dim(2) : 1);
    if (vector->elements() != channels || vector->rank() < 1 || vector->rank() > 4 || vector->dim(-1) != channels)
      return false;
    if (bias && bias->shape() != Shape{channels}) return false;
    auto made = node.dtype(0) == DType::kFloat32 ? with_vector<float>(product, *filter, bias, *vector)
                : node.dtype(0) == DType::kFloat64
                    ? with_vector<double>(product, *filter, bias, *vector)
                    : Result<std::pair<Tensor, Tensor>>(make_error(Code::kUnimplemented, ""));
    if (!made.ok()) return false;
    Output by = of_conv;
    if (product) {
      const auto scaled = step_.add_constant(std::move(made->first), node);
      if (scaled.ok()) by = step_.add_like(node, conv.op().name(), {conv.inputs()[0], *scaled}, conv.attrs());
      if (!scaled.ok() || !by) return false;
      read_once_.insert(by.node);
    }
    if (bias || !product) {
      const auto shift = step_.add_constant(std::move(made->second), node);
      if (shift.ok()) by = step_.add_like(node, "BiasAdd", {by, *shift}, {{"data_format", data_format(conv)}});
      if (!shift.ok() || !by) return false;
      read_once_.insert(by.node);
    }
    if (!readers_.one(node)) read_once_.erase(by.node);
    step_.replace(node, {&by, 1});
    return true;
  }
  return false;
}

bool BatchNormFolding::visit(const Node& norm) {
  const std::string& op = norm.op().name();
  if (op == "Mul" || op == "AddV2" || op == "Add") return fold_vector(norm);
  if (!is_batch_norm(norm) || !readers_.first_output_only(norm) || step_.is_fed(norm) || !norm.control_inputs().empty())
    return false;
  const Node* before = step_.now(norm.inputs()[0]).node;
  const Node* bias_add = nullptr;
  if (before->op().name() == "BiasAdd" && folds_away(*before, norm)) {
    bias_add = before;
    before = step_.now(bias_add->inputs()[0]).node;
  }
  const Node& conv = *before;
  const bool depthwise = conv.op().name() == "DepthwiseConv2dNative";
  if ((conv.op().name() != "Conv2D" && !depthwise) || !folds_away(conv, norm)) return false;

  const auto input = [&](int i) { return step_.constant(norm.inputs()[static_cast<size_t>(i)]); };
  const Constants c = {step_.constant(conv.inputs()[1]),
                       bias_add ? step_.constant(bias_add->inputs()[1]) : nullptr,
                       input(1),
                       input(2),
                       input(3),
                       input(4),
                       norm.attrs().get_or("epsilon", 0.0001f)};
  if (!c.filter || c.filter->rank() != 4 || (bias_add && !c.bias)) return false;
  const int64_t channels = c.filter->dim(3) * (depthwise ? c.filter->dim(2) : 1);
  const auto fits = [&](const Tensor* t) {
    return t && t->dtype() == norm.dtype(0) && (t == c.filter || t->shape() == Shape{channels});
  };
  for (const Tensor* t : {c.filter, c.scale, c.offset, c.mean, c.variance})
    if (!fits(t)) return false;
  if (c.bias && !fits(c.bias)) return false;
  auto made = norm.dtype(0) == DType::kFloat32 ? folded<float>(c)
              : norm.dtype(0) == DType::kFloat64
                  ? folded<double>(c)
                  : Result<std::pair<Tensor, Tensor>>(make_error(Code::kUnimplemented, ""));
  if (!made.ok()) return false;
  const auto filter = step_.add_constant(std::move(made->first), norm);
  const auto bias = step_.add_constant(std::move(made->second), norm);
  if (!filter.ok() || !bias.ok()) return false;
  const Output product = step_.add_like(norm, conv.op().name(), {conv.inputs()[0], *filter}, conv.attrs());
  if (!product) return false;
  const Output sum = step_.add_like(norm, "BiasAdd", {product, *bias}, {{"data_format", data_format(conv)}});
  if (!sum) return false;
  // Nobody reads the others, which would be the statistics.
  std::vector<Output> by(static_cast<size_t>(norm.num_outputs()), step_.now(norm.inputs()[3]));
  by[0] = sum;
  step_.replace(norm, by);
  return true;
}

}  // namespace troupe
