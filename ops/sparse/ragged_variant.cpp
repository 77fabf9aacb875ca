// SPDX-License-Identifier: Apache-2.0
// Ragged tensors as elements of lists: RaggedTensorToVariant, RaggedTensorFromVariant and their gradients. An element
// is a list of its splits, the outermost first, and its values. tf.map_fn goes over rows so.
#include "ops/parts/element_list.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/type_dispatch.h"
#include "ops/sparse/ragged_input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

class ToVariant final : public ComputeKernel {
 public:
  explicit ToVariant(const KernelInit& init)
      : rank_(static_cast<int>(init.attr<int64_t>("RAGGED_RANK"))), batched_(init.attr<bool>("batched_input")) {}
  Status compute(KernelContext& c) override {
    if (!batched_) {
      TensorList list;
      for (int i = 0; i < c.num_inputs(); ++i) list.elements.push_back(c.input(i));
      c.set_output(0, list_tensor(std::move(list)));
      return {};
    }
    TROUPE_ASSIGN(const RaggedInput x, RaggedInput::read(c, 0, rank_, rank_));
    const int64_t sizes[] = {x.rows()};
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor out, c.allocate(DType::kVariant, shape));
    auto* elements = out.mutable_data<TensorListRef>();
    for (int64_t row = 0; row < x.rows(); ++row) {
      auto list = std::make_shared<TensorList>();
      TROUPE_RETURN_IF_ERROR(add_row(c, x, row, list->elements));
      elements[row] = std::move(list);
    }
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  Status add_row(const KernelContext& c, const RaggedInput& x, int64_t row, std::vector<Tensor>& out) const {
    int64_t begin = row, end = row + 1;
    for (size_t level = 0; level < x.splits.size(); ++level) {
      const auto from = x.splits[level].begin() + begin, to = x.splits[level].begin() + end;
      if (level > 0) {  // the row's own, from 0 on
        std::vector<int64_t> own(from, to + 1);
        for (int64_t& split : own) split -= *from;
        TROUPE_ASSIGN(Tensor splits, int_tensor(c.input(0).dtype(), own, Shape{std::ssize(own)}));
        out.push_back(std::move(splits));
      }
      begin = *from;
      end = *to;
    }
    TROUPE_ASSIGN(Tensor values, x.values->slice(begin, end));
    if (rank_ == 0) {
      TROUPE_ASSIGN(values, values.reshape(Shape(x.values->shape().dims().subspan(1))));
    }
    out.push_back(std::move(values));
    return {};
  }

  const int rank_;
  const bool batched_;
};

/// The parts of a ragged tensor that an element of a variant tensor is. Errors: it is empty, or has other parts.
Result<const std::vector<Tensor>*> parts_of(const TensorListRef& element, int ragged_rank, DType values, DType splits) {
  if (!element) return invalid_argument("an element was never set");
  const std::vector<Tensor>& parts = element->elements;
  if (std::ssize(parts) != ragged_rank + 1)
    return invalid_argument("an element of {} parts, where {} splits and values are expected", parts.size(),
                            ragged_rank);
  for (size_t i = 0; i < parts.size(); ++i) {
    const DType expected = i + 1 == parts.size() ? values : splits;
    if (!parts[i].defined() || parts[i].dtype() != expected)
      return invalid_argument("part {} of an element is {}, where {} is expected", i,
                              parts[i].defined() ? to_string(parts[i].dtype()) : "not set", to_string(expected));
    if (i + 1 < parts.size() && (parts[i].rank() != 1 || parts[i].elements() == 0))
      return invalid_argument("splits must be a vector, not {}", parts[i].shape().str());
  }
  return &parts;
}

class FromVariant final : public ComputeKernel {
 public:
  explicit FromVariant(const KernelInit& init)
      : in_rank_(init.attr<int64_t>("input_ragged_rank")),
        out_rank_(static_cast<int>(init.attr<int64_t>("output_ragged_rank"))), values_(init.attr<DType>("Tvalues")),
        splits_(init.attr<DType>("Tsplits")) {}
  Status compute(KernelContext& c) override {
    const Tensor& in = c.input(0);
    const int64_t in_rank = in_rank_ >= 0 ? in_rank_ : std::max<int64_t>(out_rank_ - in.rank(), 0);
    const bool dense = out_rank_ == 0 && in_rank == 0;
    if (!dense && out_rank_ != in.rank() + in_rank)
      return invalid_argument("output_ragged_rank is {}; elements of ragged rank {} in shape {} give {}", out_rank_,
                              in_rank, in.shape().str(), in.rank() + in_rank);
    std::vector<const std::vector<Tensor>*> elements;
    for (int64_t i = 0; i < in.elements(); ++i) {
      TROUPE_ASSIGN(elements.emplace_back(),
                    parts_of(in.data<TensorListRef>()[i], static_cast<int>(in_rank), values_, splits_));
    }
    if (in.rank() == 0) {
      for (size_t i = 0; i < elements[0]->size(); ++i) c.set_output(static_cast<int>(i), (*elements[0])[i]);
      return {};
    }
    std::vector<Tensor> values;
    for (const auto* parts : elements) values.push_back(parts->back());
    return dense ? stack(c, in.shape(), values) : join(c, in.shape(), elements, values);
  }

 private:
  Status stack(KernelContext& c, const Shape& outer, std::span<const Tensor> values) const {
    TROUPE_ASSIGN(const Tensor rows, stack_elements(c, values, values_, PartialShape::unknown()));
    std::vector<int64_t> sizes(outer.dims().begin(), outer.dims().end());
    for (int d = 1; d < rows.rank(); ++d) sizes.push_back(rows.dim(d));
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor out, rows.reshape(shape));
    c.set_output(0, std::move(out));
    return {};
  }

  /// The outer dimensions but the first as splits, then the elements' rows, then their own splits.
  Status join(KernelContext& c, const Shape& outer, const std::vector<const std::vector<Tensor>*>& elements,
              std::span<const Tensor> values) const {
    int output = 0;
    int64_t rows = 1;
    const auto set_splits = [&](const std::vector<int64_t>& splits) -> Status {
      TROUPE_ASSIGN(Tensor t, int_tensor(splits_, splits, Shape{std::ssize(splits)}));
      c.set_output(output++, std::move(t));
      return {};
    };
    for (int d = 1; d < outer.rank(); ++d) {
      rows *= outer[d - 1];
      std::vector<int64_t> splits = {0};
      for (int64_t row = 0; row < rows; ++row) splits.push_back(splits.back() + outer[d]);
      TROUPE_RETURN_IF_ERROR(set_splits(splits));
    }
    std::vector<int64_t> lengths = {0};
    for (const auto* parts : elements) {
      const Tensor& first = parts->front();
      if (first.rank() == 0) return invalid_argument("the values of a ragged tensor must not be a scalar");
      lengths.push_back(lengths.back() + first.dim(0) - (parts->size() > 1 ? 1 : 0));
    }
    TROUPE_RETURN_IF_ERROR(set_splits(lengths));
    for (size_t level = 0; output < out_rank_; ++level) {
      std::vector<int64_t> splits = {0};
      for (const auto* parts : elements) {
        TROUPE_ASSIGN(const std::vector<int64_t> own, int_values((*parts)[level], "splits"));
        const int64_t before = splits.back();
        for (size_t i = 1; i < own.size(); ++i) splits.push_back(before + own[i]);
      }
      TROUPE_RETURN_IF_ERROR(set_splits(splits));
    }
    // Without elements nothing tells the inner sizes.
    const PartialShape shape = values.empty() ? PartialShape{0} : PartialShape::unknown();
    TROUPE_ASSIGN(Joined joined, join_elements(c, values, values_, shape));
    c.set_output(out_rank_, std::move(joined.tensor));
    return {};
  }

  const int64_t in_rank_;  // -1: what out_rank_ and the shape leave
  const int out_rank_;
  const DType values_, splits_;
};

class ToVariantGradient final : public ComputeKernel {
 public:
  explicit ToVariantGradient(const KernelInit& init) : values_(init.attr<DType>("Tvalues")) {}
  Status compute(KernelContext& c) override {
    const Tensor& in = c.input(0);
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(2), "dense_values_shape"));
    TROUPE_ASSIGN(const std::vector<int64_t> splits, int_values(c.input(1), "row_splits"));
    TROUPE_ASSIGN(Tensor out, Tensor::zeros(values_, shape, c.device().allocator));
    int64_t at = 0;
    for (int64_t i = 0; i < in.elements(); ++i) {
      const TensorListRef& element = in.data<TensorListRef>()[i];
      if (!element || element->elements.empty() || !element->elements.back().defined()) {
        const auto row = static_cast<size_t>(i);
        if (row + 1 < splits.size())
          at += (splits[row + 1] - splits[row]) * sizes_product(shape, std::min(1, shape.rank()), shape.rank());
        continue;
      }
      const Tensor& dy = element->elements.back();
      if (dy.dtype() != values_ || at < 0 || at > shape.elements() - dy.elements())
        return invalid_argument("element {}, {}{}, does not fit values {}{}", i, to_string(dy.dtype()),
                                dy.shape().str(), to_string(values_), shape.str());
      char* to = static_cast<char*>(out.mutable_raw()) + static_cast<size_t>(at) * size_of(values_);
      copy_elements(values_, dy.raw(), to, dy.elements());
      at += dy.elements();
    }
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  const DType values_;
};

Status to_variant_shape(ShapeContext& c) {
  const auto rank = static_cast<int>(c.attr<int64_t>("RAGGED_RANK"));
  for (int i = 0; i < rank; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 1).status());
  if (!c.attr<bool>("batched_input")) {
    c.set_output(0, PartialShape::scalar());
    return {};
  }
  const PartialShape& outer = c.input(0);  // splits, or the values themselves
  if (outer.has_rank() && outer.rank() == 0)
    return invalid_argument("the values of a ragged tensor must not be a scalar");
  const int64_t n = outer.has_rank() ? outer[0] : -1;
  c.set_output(0, PartialShape{n > 0 && rank > 0 ? n - 1 : rank > 0 ? -1 : n});
  return {};
}

Status from_variant_shape(ShapeContext& c) {
  for (int i = 0; i + 1 < c.num_outputs(); ++i) c.set_output(i, PartialShape{-1});
  return {};
}

Status to_variant_gradient_shape(ShapeContext& c) {
  if (const auto sizes = c.constant_input(2)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "dense_values_shape"));
    c.set_output(0, PartialShape(shape));
  }
  return {};
}

Status to_variant_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const auto rank = static_cast<int>(*c.node().attrs().get<int64_t>("RAGGED_RANK"));
  const Output values = c.input(rank);
  const Output splits = rank > 0 ? c.input(0) : c.constant(Tensor::scalar<int64_t>(0));
  c.set_dx(rank, c.op("RaggedTensorToVariantGradient", {c.dy(0), splits, c.op("Shape", {values})},
                      {{"Tvalues", values.dtype()}}));
  return {};
}

Status from_variant_gradient(GradientContext& c) {
  const auto rank = static_cast<int>(*c.node().attrs().get<int64_t>("output_ragged_rank"));
  if (!c.dy(rank)) return {};
  std::vector<Output> parts;
  for (int i = 0; i < rank; ++i) parts.push_back(c.output(i));
  parts.push_back(c.dy(rank));
  const PartialShape& in = c.input(0).shape();
  Attrs attrs = {{"RAGGED_RANK", static_cast<int64_t>(rank)}, {"batched_input", !in.has_rank() || in.rank() > 0}};
  attrs.set("Tsplits", *c.node().attrs().find("Tsplits"));
  c.set_dx(0, c.op("RaggedTensorToVariant", parts, std::move(attrs)));
  return {};
}

}  // namespace

void register_ragged_variant_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* splits = "Tsplits: {int32, int64} = int64";
  ops.add(OpDef("RaggedTensorToVariant")
              .input("rt_nested_splits: RAGGED_RANK * Tsplits")
              .input("rt_dense_values: Tvalues")
              .output("encoded_ragged: variant")
              .attr("RAGGED_RANK: int >= 0")
              .attr("Tvalues: type")
              .attr(splits)
              .attr("batched_input: bool")
              .shape(to_variant_shape)
              .doc("A ragged tensor as an element of a list, or with batched_input each of its rows as one. Error for "
                   "splits that are not those of the values."),
          gradient(to_variant_gradient));
  ops.add(OpDef("RaggedTensorFromVariant")
              .input("encoded_ragged: variant")
              .output("output_nested_splits: output_ragged_rank * Tsplits")
              .output("output_dense_values: Tvalues")
              .attr("input_ragged_rank: int >= -1")
              .attr("output_ragged_rank: int >= 0")
              .attr("Tvalues: type")
              .attr(splits)
              .shape(from_variant_shape)
              .doc("The ragged tensor that an element of a list is, or that several of ragged rank input_ragged_rank "
                   "are together, one row each; of rank -1 what the output's and the shape leave. Error for elements "
                   "that are something else."),
          gradient(from_variant_gradient));
  ops.add(
      OpDef("RaggedTensorToVariantGradient")
          .input("encoded_ragged_grad: variant")
          .input("row_splits: Tsplits")
          .input("dense_values_shape: int32")
          .output("dense_values_grad: Tvalues")
          .attr("Tvalues: type")
          .attr(splits)
          .shape(to_variant_gradient_shape)
          .doc("The gradient of RaggedTensorToVariant by the values: those of its elements one after another, zeros "
               "for elements that are not set."),
      undefined_gradient());
  kernels.add<ToVariant>("RaggedTensorToVariant", DeviceKind::kCpu, {});
  kernels.add<FromVariant>("RaggedTensorFromVariant", DeviceKind::kCpu, {});
  kernels.add<ToVariantGradient>("RaggedTensorToVariantGradient", DeviceKind::kCpu, {});
}

}  // namespace troupe
