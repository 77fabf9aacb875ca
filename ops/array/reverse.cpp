// SPDX-License-Identifier: Apache-2.0
// Other orders along dimensions: Reverse, ReverseV2, ReverseSequence, Roll.
#include "ops/array/reverse.h"

#include <algorithm>

#include "devices/parallel.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/moves.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// The dimensions to be reversed, by name (ReverseV2) or by flag (Reverse).
Result<std::array<bool, kMaxRank>> reversed_axes(const Tensor& t, int rank) {
  std::array<bool, kMaxRank> out{};
  if (t.dtype() == DType::kBool) {
    if (t.rank() != 1 || t.elements() != rank)
      return invalid_argument("dims of shape {} for a tensor of rank {}", t.shape().str(), rank);
    std::ranges::copy(t.values<bool>(), out.begin());
    return out;
  }
  TROUPE_ASSIGN(const auto axes, int_values(t, "axis"));
  for (int64_t a : axes) {
    TROUPE_ASSIGN(const int axis, axis_from(a, rank));
    if (out[axis]) return invalid_argument("axis {} is named twice", axis);
    out[axis] = true;
  }
  return out;
}

class Reverse final : public ComputeKernel {
 public:
  Reverse(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto reversed, reversed_axes(c.input(1), x.rank()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    const auto strides = strides_of(x.shape());
    int64_t start = 0;
    StridedCopy box;
    for (int i = 0; i < x.rank(); ++i) {
      if (reversed[i]) start += (x.shape()[i] - 1) * strides[i];
      box.push(x.shape()[i], reversed[i] ? -strides[i] : strides[i], strides[i]);
    }
    TROUPE_RETURN_IF_ERROR(moves_.copy(c, y, 0, x, start, box));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
};

Status reverse_shape(ShapeContext& c) {
  const auto axes = c.constant_input(1);
  if (axes && c.input(0).has_rank()) TROUPE_RETURN_IF_ERROR(reversed_axes(*axes, c.input(0).rank()).status());
  return unchanged_shape(c);
}

Status reverse_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op(c.node().op().name(), {c.dy(0), c.input(1)}));
  return {};
}

// --- sequences of different lengths ---

Result<SequenceAxes> sequence_axes(const Attrs& attrs, int rank) {
  SequenceAxes a;
  TROUPE_ASSIGN(a.sequence, axis_from(*attrs.get<int64_t>("seq_dim"), rank));
  TROUPE_ASSIGN(a.batch, axis_from(*attrs.get<int64_t>("batch_dim"), rank));
  if (a.sequence == a.batch) return invalid_argument("seq_dim and batch_dim are both {}", a.batch);
  return a;
}

}  // namespace

Result<SequenceAxes> plan_reverse_sequence(const Attrs& attrs, const Shape& x, const Shape& lengths) {
  TROUPE_ASSIGN(const SequenceAxes axes, sequence_axes(attrs, x.rank()));
  if (lengths.rank() > 1) return invalid_argument("seq_lengths must be a vector, not {}", lengths.str());
  if (lengths.elements() != x[axes.batch])
    return invalid_argument("{} seq_lengths for dimension {} of {}", lengths.elements(), axes.batch, x.str());
  return axes;
}

namespace {

class ReverseSequence final : public ComputeKernel {
 public:
  explicit ReverseSequence(const KernelInit& init) : attrs_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const SequenceAxes axes, plan_reverse_sequence(attrs_, x.shape(), c.input(1).shape()));
    TROUPE_ASSIGN(const auto lengths, int_values(c.input(1), "seq_lengths"));
    const int64_t steps = x.shape()[axes.sequence], batch = x.shape()[axes.batch];
    for (size_t i = 0; i < lengths.size(); ++i)
      if (lengths[i] < 0 || lengths[i] > steps)
        return invalid_argument("seq_lengths[{}] = {} is not in [0, {}]", i, lengths[i], steps);
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    // For each sequence of the batch: its beginning backwards, then the rest as it is.
    const auto strides = strides_of(x.shape());
    const int64_t step = strides[axes.sequence];
    for (int64_t b = 0; b < batch && x.elements() > 0; ++b) {
      const auto copy = [&](int64_t first, int64_t n, bool backwards) {
        StridedCopy box;
        for (int d = 0; d < x.rank(); ++d) {
          if (d == axes.batch) continue;
          const bool here = d == axes.sequence;
          box.push(here ? n : x.shape()[d], here && backwards ? -step : strides[d], strides[d]);
        }
        const int64_t to = b * strides[axes.batch] + first * step, from = to + (backwards ? (n - 1) * step : 0);
        strided_copy(x.dtype(), advance(y.mutable_raw(), to, x.dtype()), advance(x.raw(), from, x.dtype()), box,
                     c.threads());
      };
      if (lengths[b] > 0) copy(0, lengths[b], true);
      if (lengths[b] < steps) copy(lengths[b], steps - lengths[b], false);
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Attrs attrs_;
};

Status reverse_sequence_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape lengths, c.with_rank(1, 1));
  const PartialShape& x = c.input(0);
  if (x.has_rank()) {
    TROUPE_ASSIGN(const SequenceAxes axes, sequence_axes(c.attrs(), x.rank()));
    if (lengths[0] >= 0 && x[axes.batch] >= 0 && lengths[0] != x[axes.batch])
      return invalid_argument("{} seq_lengths for dimension {} of {}", lengths[0], axes.batch, x.str());
  }
  return unchanged_shape(c);
}

Status reverse_sequence_gradient(GradientContext& c) {
  Attrs attrs;
  for (const char* name : {"seq_dim", "batch_dim"}) attrs.set(name, c.node().attrs().get_or<int64_t>(name, 0));
  if (c.dy(0)) c.set_dx(0, c.op("ReverseSequence", {c.dy(0), c.input(1)}, std::move(attrs)));
  return {};
}

// --- roll ---

/// How far each dimension moves, in [0, its size).
Result<std::array<int64_t, kMaxRank>> shifts_of(const Shape& x, const Tensor& shift, const Tensor& axis) {
  if (shift.rank() > 1 || shift.shape() != axis.shape())
    return invalid_argument("shift of shape {} and axis of shape {} must be scalars or vectors of one size",
                            shift.shape().str(), axis.shape().str());
  TROUPE_ASSIGN(const auto by, int_values(shift, "shift"));
  TROUPE_ASSIGN(const auto along, int_values(axis, "axis"));
  std::array<int64_t, kMaxRank> out{};
  for (size_t i = 0; i < by.size(); ++i) {
    TROUPE_ASSIGN(const int d, axis_from(along[i], x.rank()));
    const int64_t n = std::max<int64_t>(x[d], 1);
    out[d] = (out[d] + by[i] % n + n) % n;
  }
  return out;
}

class Roll final : public ComputeKernel {
 public:
  Roll(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() == 0) return invalid_argument("a scalar has no dimension to roll along");
    TROUPE_ASSIGN(const auto shifts, shifts_of(x.shape(), c.input(1), c.input(2)));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    // Each dimension that moves parts in two; so many boxes there are.
    const auto strides = strides_of(x.shape());
    for (int corner = 0; corner < 1 << x.rank() && x.elements() > 0; ++corner) {
      StridedCopy box;
      int64_t from = 0, to = 0;
      bool empty = false;
      for (int d = 0; d < x.rank(); ++d) {
        const int64_t n = x.shape()[d], by = shifts[d];
        const bool wraps = (corner >> d & 1) != 0;  // the last `by` places come first
        empty |= wraps && by == 0;
        box.push(wraps ? by : n - by, strides[d], strides[d]);
        (wraps ? from : to) += (wraps ? n - by : by) * strides[d];
      }
      if (!empty) TROUPE_RETURN_IF_ERROR(moves_.copy(c, y, to, x, from, box));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
};

Status roll_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(0, 1).status());
  const auto shift = c.constant_input(1), axis = c.constant_input(2);
  if (shift && axis && c.input(0).fully_known())
    TROUPE_RETURN_IF_ERROR(shifts_of(c.input(0).shape(), *shift, *axis).status());
  return unchanged_shape(c);
}

}  // namespace

void register_reverse_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Reverse")
              .input("tensor: T")
              .input("dims: bool")
              .output("output: T")
              .attr("T: type")
              .shape(reverse_shape)
              .cost(move_cost)
              .doc("The tensor with the order of elements reversed along each dimension i where dims[i] is true."),
          gradient(reverse_gradient));
  ops.add(OpDef("ReverseV2")
              .input("tensor: T")
              .input("axis: Tidx")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Tidx", IndexTypes{}, "int32"))
              .shape(reverse_shape)
              .cost(move_cost)
              .doc("The tensor with the order of elements reversed along the dimensions in `axis`."),
          gradient(reverse_gradient));
  ops.add(OpDef("ReverseSequence")
              .input("input: T")
              .input("seq_lengths: Tlen")
              .output("output: T")
              .attr("seq_dim: int")
              .attr("batch_dim: int = 0")
              .attr("T: type")
              .attr(type_attr("Tlen", IndexTypes{}, "int64"))
              .shape(reverse_sequence_shape)
              .cost(move_cost)
              .doc("The first seq_lengths[i] elements along seq_dim in reverse order, for each i along batch_dim. A "
                   "length beyond the dimension is an error."),
          gradient(reverse_sequence_gradient));
  kernels.add<ReverseSequence>("ReverseSequence", DeviceKind::kCpu, {});
  ops.add(
      OpDef("Roll")
          .input("input: T")
          .input("shift: Tshift")
          .input("axis: Taxis")
          .output("output: T")
          .attr("T: type")
          .attr(type_attr("Tshift", IndexTypes{}))
          .attr(type_attr("Taxis", IndexTypes{}))
          .shape(roll_shape)
          .cost(move_cost)
          .doc("Elements moved by shift[i] places along axis[i]; those that go beyond the end come in at the start. "
               "Shifts along one dimension add up."),
      gradient([](GradientContext& c) -> Status {
        if (c.dy(0)) c.set_dx(0, c.op("Roll", {c.dy(0), c.op("Neg", {c.input(1)}), c.input(2)}));
        return {};
      }));
  register_reverse_moves(kernels, host_moves());
}

void register_reverse_moves(KernelRegistry& kernels, const Moves& moves) {
  for (const char* op : {"Reverse", "ReverseV2"}) moves.add<Reverse>(kernels, op, {1});
  moves.add<Roll>(kernels, "Roll", {1, 2});
}

}  // namespace troupe
