// SPDX-License-Identifier: Apache-2.0
// Rows dealt out to several tensors and put together again: DynamicPartition, DynamicStitch, ParallelDynamicStitch.
#include <algorithm>

#include "ops/array/partition.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

class DynamicPartition final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &partitions = c.input(1);
    const auto at = partitions.values<int32_t>();
    TROUPE_RETURN_IF_ERROR(check_indices(at, c.num_outputs()));
    std::vector<int64_t> counts(static_cast<size_t>(c.num_outputs()));
    for (int32_t p : at) ++counts[p];
    std::vector<Tensor> parts;
    for (int64_t n : counts) {
      TROUPE_ASSIGN(const PartialShape shape, slices_shape(x.shape(), partitions.shape(), n, "partitions"));
      TROUPE_ASSIGN(parts.emplace_back(), c.allocate(x.dtype(), shape.shape()));
    }
    const int64_t inner = at.empty() ? 0 : x.elements() / static_cast<int64_t>(at.size());
    with_storage(x.dtype(), [&]<class S>() {
      std::vector<S*> next;
      for (Tensor& t : parts) next.push_back(static_cast<S*>(t.mutable_raw()));
      const S* in = static_cast<const S*>(x.raw());
      for (size_t i = 0; i < at.size(); ++i)
        next[at[i]] = std::copy_n(in + static_cast<int64_t>(i) * inner, inner, next[at[i]]);
    });
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, std::move(parts[i]));
    return {};
  }
};

Status partition_shape(ShapeContext& c) {
  std::vector<int64_t> counts(static_cast<size_t>(c.num_outputs()), -1);
  if (const auto constant = c.constant_input(1)) {
    TROUPE_RETURN_IF_ERROR(check_indices(constant->values<int32_t>(), c.num_outputs()));
    std::ranges::fill(counts, 0);
    for (int32_t p : constant->values<int32_t>()) ++counts[p];
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    TROUPE_ASSIGN(const PartialShape out, slices_shape(c.input(0), c.input(1), counts[i], "partitions"));
    c.set_output(i, out);
  }
  return {};
}

/// The gradients stitched together at the places that the rows came from.
Status partition_gradient(GradientContext& c) {
  const Output x = c.input(0), partitions = c.input(1);
  const int n = c.node().num_outputs();
  std::vector<Output> inputs;
  const Output zero = c.constant(Tensor::scalar<int32_t>(0)), one = c.constant(Tensor::scalar<int32_t>(1));
  const Output places =
      c.op("Reshape", {c.op("Range", {zero, c.op("Size", {partitions}), one}), c.op("Shape", {partitions})});
  inputs = c.ops("DynamicPartition", {places, partitions}, {{"num_partitions", int64_t{n}}});
  for (int i = 0; i < n; ++i) inputs.push_back(c.dy(i) ? c.dy(i) : c.op("ZerosLike", {c.output(i)}));
  const Output rows = c.op("DynamicStitch", inputs, {{"N", int64_t{n}}});
  c.set_dx(0, c.op("Reshape", {rows, sizes_of(c, x)}));
  return {};
}

}  // namespace

Result<Shape> stitched_shape(const KernelContext& c) {
  const int n = c.num_inputs() / 2;
  int64_t rows = 0;
  PartialShape sizes;
  for (int i = 0; i < n; ++i) {
    TROUPE_ASSIGN(const PartialShape own, slices_shape(c.input(n + i).shape(), c.input(i).shape(), -1, "indices"));
    TROUPE_ASSIGN(sizes, PartialShape::merge(sizes, own));
    for (int32_t row : c.input(i).values<int32_t>()) {
      if (row < 0) return invalid_argument("index {} in indices {}", row, i);
      rows = std::max<int64_t>(rows, int64_t{row} + 1);
    }
  }
  sizes.set(0, rows);
  return Shape::make(sizes.dims());
}

namespace {

class DynamicStitch final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const int n = c.num_inputs() / 2;
    TROUPE_ASSIGN(const Shape shape, stitched_shape(c));
    const int64_t rows = shape[0];
    const DType dtype = c.input(n).dtype();
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(dtype, shape, c.device().allocator));  // of rows nobody gives
    const int64_t inner = rows > 0 ? y.elements() / rows : 0;
    with_storage(dtype, [&]<class S>() {
      S* out = static_cast<S*>(y.mutable_raw());
      for (int i = 0; i < n; ++i) {
        const S* in = static_cast<const S*>(c.input(n + i).raw());
        for (int32_t row : c.input(i).values<int32_t>()) {
          std::copy_n(in, inner, out + row * inner);
          in += inner;
        }
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }
};

Status stitch_shape(ShapeContext& c) {
  const int n = c.num_inputs() / 2;
  PartialShape out;
  int64_t rows = 0;
  for (int i = 0; i < n; ++i) {
    const auto constant = c.constant_input(i);
    if (!constant) rows = -1;
    else if (rows >= 0)
      for (int32_t row : constant->values<int32_t>()) rows = std::max<int64_t>(rows, int64_t{row} + 1);
    TROUPE_ASSIGN(const PartialShape own, slices_shape(c.input(n + i), c.input(i), -1, "indices"));
    TROUPE_ASSIGN(out, PartialShape::merge(out, own));
  }
  if (out.has_rank()) out.set(0, rows);
  c.set_output(0, out);
  return {};
}

Status stitch_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const int n = c.num_inputs() / 2;
  const Output axis = c.constant(Tensor::scalar<int32_t>(0));
  for (int i = 0; i < n; ++i) c.set_dx(n + i, c.op("GatherV2", {c.dy(0), c.input(i), axis}));
  return {};
}

}  // namespace

void register_partition_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("DynamicPartition")
              .input("data: T")
              .input("partitions: int32")
              .output("outputs: num_partitions * T")
              .attr("num_partitions: int >= 1")
              .attr("T: type")
              .shape(partition_shape)
              .cost(move_cost)
              .doc("Rows of data, each appended to the output that partitions names for it. Error for one that is not "
                   "in [0, num_partitions)."),
          gradient(partition_gradient));
  kernels.add<DynamicPartition>("DynamicPartition", DeviceKind::kCpu, {});
  for (const char* name : {"DynamicStitch", "ParallelDynamicStitch"}) {
    ops.add(OpDef(name)
                .input("indices: N * int32")
                .input("data: N * T")
                .output("merged: T")
                .attr("N: int >= 1")
                .attr("T: type")
                .shape(stitch_shape)
                .cost(move_cost)
                .doc("Rows of all data, each at the row that its indices name; the last one counts where several go "
                     "to one row, and rows that none goes to are 0. Error for a negative index."),
            gradient(stitch_gradient));
    kernels.add<DynamicStitch>(name, DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
