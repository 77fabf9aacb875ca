// SPDX-License-Identifier: Apache-2.0
// Boxes out of tensors and into them: Slice, StridedSlice, StridedSliceGrad, TensorStridedSliceUpdate, XlaDynamicSlice,
// XlaDynamicUpdateSlice.
#include <algorithm>
#include <span>

#include "ops/array/register.h"
#include "ops/array/slice_spec.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/moves.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// Elements begin, begin + stride, ... of each dimension of x, in `shape`, which may drop or add sizes of 1.
Result<Tensor> sliced(KernelContext& c, const Moves& moves, const Tensor& x, std::span<const int64_t> begin,
                      std::span<const int64_t> stride, std::span<const int64_t> count, const Shape& shape) {
  // A view where only the first dimension is cut.
  bool rows = x.rank() > 0 && (stride[0] == 1 || count[0] <= 1) && shape.elements() > 0;
  for (int i = 1; i < x.rank() && rows; ++i) rows = count[i] == x.shape()[i] && stride[i] == 1;
  if (rows) {
    TROUPE_ASSIGN(const Tensor view, x.slice(begin[0], begin[0] + count[0]));
    return view.reshape(shape);
  }
  TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
  if (shape.elements() == 0) return y;
  const auto strides = strides_of(x.shape());
  StridedCopy box;
  int64_t start = 0, step = shape.elements();
  for (int i = 0; i < x.rank(); ++i) {
    start += begin[i] * strides[i];
    step /= count[i];
    box.push(count[i], strides[i] * stride[i], step);
  }
  TROUPE_RETURN_IF_ERROR(moves.copy(c, y, 0, x, start, box));
  return y;
}

/// begin and size of a Slice checked against the input; size -1 is the rest.
Result<IntList> slice_counts(const PartialShape& x, const IntList& begin, IntList size) {
  if (static_cast<int>(begin.size()) != x.rank() || static_cast<int>(size.size()) != x.rank())
    return invalid_argument("begin and size have {} and {} numbers for a tensor of shape {}", begin.size(), size.size(),
                            x.str());
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t from = begin[static_cast<size_t>(d)];
    int64_t& n = size[static_cast<size_t>(d)];
    if (n == -1 && x[d] >= 0 && from >= 0) n = x[d] - from;
    const bool fits = from >= 0 && n >= -1 && (x[d] < 0 || (n >= 0 && from <= x[d] && n <= x[d] - from));
    if (!fits) return invalid_argument("begin {} and size {} of dimension {} go beyond {}", from, n, d, x.str());
  }
  return size;
}

class Slice final : public ComputeKernel {
 public:
  Slice(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const IntList begin, int_list(c.input(1), "begin"));
    TROUPE_ASSIGN(const IntList size, int_list(c.input(2), "size"));
    TROUPE_ASSIGN(const IntList count, slice_counts(x.shape(), begin, size));
    TROUPE_ASSIGN(const Shape shape, Shape::make(count));
    IntList ones;
    for (size_t i = 0; i < begin.size(); ++i) ones.push_back(1);
    TROUPE_ASSIGN(Tensor y, sliced(c, moves_, x, begin, ones, count, shape));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
};

Status slice_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  const auto begin = c.constant_input(1), size = c.constant_input(2);
  if (!size) {
    if (x.has_rank()) c.set_output(0, PartialShape::of_rank(x.rank()));
    else if (c.input(1).has_rank() && c.input(1).rank() == 1 && c.input(1)[0] >= 0 && c.input(1)[0] <= kMaxRank)
      c.set_output(0, PartialShape::of_rank(static_cast<int>(c.input(1)[0])));
    return {};
  }
  TROUPE_ASSIGN(IntList counts, int_list(*size, "size"));
  if (x.has_rank() && static_cast<int>(counts.size()) != x.rank())
    return invalid_argument("size has {} numbers for a tensor of shape {}", counts.size(), x.str());
  if (begin && x.has_rank()) {
    TROUPE_ASSIGN(const IntList from, int_list(*begin, "begin"));
    TROUPE_ASSIGN(counts, slice_counts(x, from, counts));
  }
  TROUPE_ASSIGN(const PartialShape out, PartialShape::make(counts));
  c.set_output(0, out);
  return {};
}

std::optional<std::vector<int64_t>> constant_ints(Output from) {
  const Tensor* value = from.node->op().name() == "Const" ? from.node->attrs().get<Tensor>("value") : nullptr;
  if (!value) return {};
  const auto ints = int_values(*value, "a constant");
  return ints.ok() ? std::optional(*ints) : std::nullopt;
}

Status slice_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0);
  if (!dy) return {};
  const auto begin = constant_ints(c.input(1));
  const PartialShape& y = c.output(0).shape();
  if (begin && x.shape().fully_known() && y.fully_known()) {
    std::vector<int64_t> pads;
    for (int i = 0; i < y.rank(); ++i) {
      pads.push_back((*begin)[i]);
      pads.push_back(x.shape()[i] - (*begin)[i] - y[i]);
    }
    c.set_dx(0, c.op("Pad", {dy, c.constant(Tensor::of<int64_t>(std::span<const int64_t>(pads), Shape{y.rank(), 2}))}));
    return {};
  }
  const Attrs type = {{"out_type", c.input(1).dtype()}};
  const Output rest = c.op("Sub", {c.op("Sub", {c.op("Shape", {x}, type), c.input(1)}), c.op("Shape", {dy}, type)});
  c.set_dx(0, c.op("Pad", {dy, c.op("Pack", {c.input(1), rest}, {{"axis", int64_t{1}}})}));
  return {};
}

Result<SliceSpec> spec_of(const PartialShape& x, const Tensor& begin, const Tensor& end, const Tensor& strides,
                          const SliceMasks& masks) {
  TROUPE_ASSIGN(const IntList b, int_list(begin, "begin"));
  TROUPE_ASSIGN(const IntList e, int_list(end, "end"));
  TROUPE_ASSIGN(const IntList s, int_list(strides, "strides"));
  return slice_spec(x, b, e, s, masks);
}

class StridedSlice final : public ComputeKernel {
 public:
  StridedSlice(const KernelInit& init, const Moves& moves) : moves_(moves), masks_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const SliceSpec spec, spec_of(x.shape(), c.input(1), c.input(2), c.input(3), masks_));
    TROUPE_ASSIGN(Tensor y, sliced(c, moves_, x, spec.begin, spec.stride, spec.count, spec.result.shape()));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
  const SliceMasks masks_;
};

Status strided_slice_shape(ShapeContext& c) {
  const auto begin = c.constant_input(1), end = c.constant_input(2), strides = c.constant_input(3);
  if (!begin || !end || !strides) return {};
  TROUPE_ASSIGN(const SliceSpec spec, spec_of(c.input(0), *begin, *end, *strides, SliceMasks(c.attrs())));
  c.set_output(0, spec.result);
  return {};
}

/// The node's masks, for its gradient.
Attrs masks_of(const Node& node) {
  Attrs out;
  for (const char* name : {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"})
    out.set(name, node.attrs().get_or<int64_t>(name, 0));
  return out;
}

Status strided_slice_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  std::vector<Output> in;
  for (int i = 1; i < 4; ++i) in.push_back(int32_or_int64(c, c.input(i)));
  in.insert(in.begin(), c.op("Shape", {c.input(0)}, {{"out_type", in[0].dtype()}}));
  in.push_back(c.dy(0));
  c.set_dx(0, c.op("StridedSliceGrad", in, masks_of(c.node())));
  return {};
}

class StridedSliceGrad final : public ComputeKernel {
 public:
  StridedSliceGrad(const KernelInit& init, const Moves& moves) : moves_(moves), masks_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(0), "shape"));
    TROUPE_ASSIGN(const SliceSpec spec, spec_of(shape, c.input(1), c.input(2), c.input(3), masks_));
    const Tensor& dy = c.input(4);
    if (!(PartialShape(dy.shape()) == spec.result))
      return invalid_argument("dy has shape {}, the slice {}", dy.shape().str(), spec.result.str());
    TROUPE_ASSIGN(const Shape count, Shape::make(spec.count));
    TROUPE_ASSIGN(const Tensor part, dy.reshape(count));
    if (std::ranges::all_of(spec.stride, [](int64_t stride) { return stride == 1; })) {
      TROUPE_ASSIGN(Tensor dx, c.allocate(dy.dtype(), shape));
      TROUPE_RETURN_IF_ERROR(moves_.pad(c, dx, part, spec.begin, nullptr));
      c.set_output(0, std::move(dx));
      return {};
    }
    TROUPE_ASSIGN(Tensor dx, moves_.zeros(c, dy.dtype(), shape));
    const SliceBox box = slice_box(spec, shape);
    TROUPE_RETURN_IF_ERROR(moves_.copy(c, dx, box.begin, part, 0, box.copy));
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const Moves& moves_;
  const SliceMasks masks_;
};

class StridedSliceUpdate final : public ComputeKernel {
 public:
  explicit StridedSliceUpdate(const KernelInit& init) : masks_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &value = c.input(4);
    TROUPE_ASSIGN(const SliceSpec spec, spec_of(x.shape(), c.input(1), c.input(2), c.input(3), masks_));
    TROUPE_ASSIGN(const Tensor part, broadcast_to(value, spec.result.shape(), c.device().allocator, c.threads()));
    TROUPE_ASSIGN(Tensor y, writable_input(c, 0, value));
    write_slice(spec, y, part, c.threads());
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const SliceMasks masks_;
};

Status strided_slice_update_shape(ShapeContext& c) {
  const auto begin = c.constant_input(1), end = c.constant_input(2), strides = c.constant_input(3);
  if (begin && end && strides) {
    TROUPE_ASSIGN(const SliceSpec spec, spec_of(c.input(0), *begin, *end, *strides, SliceMasks(c.attrs())));
    TROUPE_ASSIGN(const PartialShape both, broadcast(c.input(4), spec.result));
    if (!both.compatible(spec.result))
      return invalid_argument("{} does not broadcast to {}", c.input(4).str(), spec.result.str());
  }
  c.set_output(0, c.input(0));
  return {};
}

Status strided_slice_update_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  if (!dy) return {};
  const Attrs masks = masks_of(c.node());
  const Output begin = c.input(1), end = c.input(2), strides = c.input(3), value = c.input(4);
  c.set_dx(0, c.op("TensorStridedSliceUpdate", {dy, begin, end, strides, c.op("ZerosLike", {value})}, masks));
  const Output part = c.op("StridedSlice", {dy, begin, end, strides}, masks);
  c.set_dx(4, sum_to(c, part, value, part));
  return {};
}

/// Where a box of `size` begins in x, moved so that it lies within. Errors: another rank, a box larger than x.
Result<std::vector<int64_t>> box_within(const PartialShape& x, const Tensor& start, std::span<const int64_t> size) {
  TROUPE_ASSIGN(std::vector<int64_t> begin, int_values(start, "start_indices"));
  if (std::ssize(begin) != x.rank() || std::ssize(size) != x.rank())
    return invalid_argument("{} start indices of a box of {} dimensions in a tensor of shape {}", begin.size(),
                            size.size(), x.str());
  for (int i = 0; i < x.rank(); ++i) {
    if (size[i] < 0 || size[i] > x[i])
      return invalid_argument("a box of size {} in dimension {} is not within {}", size[i], i, x.str());
    begin[i] = std::clamp<int64_t>(begin[i], 0, x[i] - size[i]);
  }
  return begin;
}

class DynamicSlice final : public ComputeKernel {
 public:
  DynamicSlice(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const std::vector<int64_t> size, int_values(c.input(2), "size_indices"));
    TROUPE_ASSIGN(const std::vector<int64_t> begin, box_within(x.shape(), c.input(1), size));
    TROUPE_ASSIGN(const Shape shape, Shape::make(size));
    const std::vector<int64_t> ones(begin.size(), 1);
    TROUPE_ASSIGN(Tensor y, sliced(c, moves_, x, begin, ones, size, shape));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
};

class DynamicUpdateSlice final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& update = c.input(1);
    const Shape shape = c.input(0).shape();
    TROUPE_ASSIGN(const std::vector<int64_t> begin, box_within(shape, c.input(2), update.shape().dims()));
    TROUPE_ASSIGN(Tensor y, writable_input(c, 0, update));
    if (update.elements() > 0) {
      const auto from = strides_of(update.shape()), to = strides_of(shape);
      StridedCopy box;
      int64_t first = 0;
      for (int i = 0; i < shape.rank(); ++i) {
        first += begin[i] * to[i];
        box.push(update.dim(i), from[i], to[i]);
      }
      strided_copy(y.dtype(), advance(y.mutable_raw(), first, y.dtype()), update.raw(), box, c.threads());
    }
    c.set_output(0, std::move(y));
    return {};
  }
};

Status dynamic_slice_shape(ShapeContext& c) {
  if (const auto size = c.constant_input(2)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*size, "size_indices"));
    c.set_output(0, shape);
  } else if (c.input(0).has_rank()) {
    c.set_output(0, PartialShape::of_rank(c.input(0).rank()));
  }
  return {};
}

Status dynamic_update_slice_shape(ShapeContext& c) {
  const PartialShape &x = c.input(0), &update = c.input(1);
  if (x.has_rank() && update.has_rank() && x.rank() != update.rank())
    return invalid_argument("a box of shape {} in a tensor of shape {}", update.str(), x.str());
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1).status());
  c.set_output(0, x);
  return {};
}

using SliceIndexTypes = TypeList<int16_t, int32_t, int64_t>;

template <class Types = IndexTypes> OpDef strided(OpDef op, Types types = {}) {
  return op.attr("T: type")
      .attr(type_attr("Index", types))
      .attr("begin_mask: int = 0")
      .attr("end_mask: int = 0")
      .attr("ellipsis_mask: int = 0")
      .attr("new_axis_mask: int = 0")
      .attr("shrink_axis_mask: int = 0");
}

}  // namespace

void register_slice_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Slice")
              .input("input: T")
              .input("begin: Index")
              .input("size: Index")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Index", IndexTypes{}))
              .shape(slice_shape)
              .cost(pick_cost)
              .doc("The box of `size` elements from `begin`; size -1 is the rest of a dimension. A view where only the "
                   "first dimension is cut."),
          gradient(slice_gradient));
  ops.add(strided(OpDef("StridedSlice")
                      .input("input: T")
                      .input("begin: Index")
                      .input("end: Index")
                      .input("strides: Index")
                      .output("output: T"),
                  SliceIndexTypes{})
              .shape(strided_slice_shape)
              .cost(pick_cost)
              .doc("input[begin:end:strides, ...]. Bit i of a mask is for entry i: begin_mask and end_mask ignore it, "
                   "ellipsis_mask is '...', new_axis_mask adds a dimension, shrink_axis_mask takes one index."),
          gradient(strided_slice_gradient));
  ops.add(strided(OpDef("StridedSliceGrad")
                      .input("shape: Index")
                      .input("begin: Index")
                      .input("end: Index")
                      .input("strides: Index")
                      .input("dy: T")
                      .output("output: T"))
              .shape([](ShapeContext& c) -> Status {
                const auto shape = c.constant_input(0);
                if (!shape) return {};
                TROUPE_ASSIGN(const Shape s, shape_from(*shape, "shape"));
                c.set_output(0, s);
                return {};
              })
              .cost(move_cost)
              .doc("The gradient of StridedSlice: dy in its place in zeros of `shape`."),
          gradient([](GradientContext& c) -> Status {
            if (!c.dy(0)) return {};
            c.set_dx(4, c.op("StridedSlice", {c.dy(0), c.input(1), c.input(2), c.input(3)}, masks_of(c.node())));
            return {};
          }));
  ops.add(strided(OpDef("TensorStridedSliceUpdate")
                      .input("input: T")
                      .input("begin: Index")
                      .input("end: Index")
                      .input("strides: Index")
                      .input("value: T")
                      .output("output: T"))
              .shape(strided_slice_update_shape)
              .doc("The input with value, which is broadcast, in place of what StridedSlice would read."),
          gradient(strided_slice_update_gradient));
  ops.add(OpDef("XlaDynamicSlice")
              .input("input: T")
              .input("start_indices: Tindices")
              .input("size_indices: Tindices")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Tindices", IndexTypes{}))
              .shape(dynamic_slice_shape)
              .cost(pick_cost)
              .doc("The box of `size_indices` elements from `start_indices`, which is moved so that it lies within the "
                   "input. Error for a box that is larger than the input."),
          undefined_gradient());
  ops.add(OpDef("XlaDynamicUpdateSlice")
              .input("input: T")
              .input("update: T")
              .input("indices: Tindices")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Tindices", IndexTypes{}))
              .shape(dynamic_update_slice_shape)
              .doc("The input with `update` in the box from `indices` on, which is moved so that it lies within the "
                   "input. Error for an update that is larger than the input."),
          undefined_gradient());
  register_slice_moves(kernels, host_moves());
  kernels.add<DynamicUpdateSlice>("XlaDynamicUpdateSlice", DeviceKind::kCpu, {});
  kernels.add<StridedSliceUpdate>("TensorStridedSliceUpdate", DeviceKind::kCpu, {});
}

void register_slice_moves(KernelRegistry& kernels, const Moves& moves) {
  moves.add<Slice>(kernels, "Slice", {1, 2});
  moves.add<StridedSlice>(kernels, "StridedSlice", {1, 2, 3});
  moves.add<StridedSliceGrad>(kernels, "StridedSliceGrad", {0, 1, 2, 3});
  moves.add<DynamicSlice>(kernels, "XlaDynamicSlice", {1, 2});
}

}  // namespace troupe
