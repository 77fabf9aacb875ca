// SPDX-License-Identifier: Apache-2.0
// Sparse tensors joined and parted: SparseConcat, SparseSplit, SparseSlice and its gradient.
#include <numeric>

#include "base/join.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/wrapping.h"
#include "ops/sparse/input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// A part of a sparse tensor: which values, and their indices in it.
struct ChosenValues {
  std::vector<int64_t> values, indices;
  int64_t size() const { return static_cast<int64_t>(values.size()); }
};

/// Sets outputs `at`, at + step and at + 2 step: indices, values and sizes.
Status set_sparse(KernelContext& c, int at, int step, const ChosenValues& chosen, const Tensor& values,
                  const Shape& shape) {
  const int64_t sizes[] = {chosen.size(), shape.rank()};
  TROUPE_ASSIGN(const Shape rows, Shape::make(sizes));
  TROUPE_ASSIGN(Tensor indices, c.allocate(DType::kInt64, rows));
  TROUPE_ASSIGN(Tensor out, c.allocate(values.dtype(), Shape{chosen.size()}));
  std::ranges::copy(chosen.indices, indices.mutable_data<int64_t>());
  with_storage(values.dtype(), [&]<class S>() {
    S* to = static_cast<S*>(out.mutable_raw());
    for (int64_t i : chosen.values) *to++ = static_cast<const S*>(values.raw())[i];
  });
  c.set_output(at, std::move(indices));
  c.set_output(at + step, std::move(out));
  c.set_output(at + 2 * step, Tensor::of<int64_t>(shape.dims()));
  return {};
}

/// The values of x inside the box.
ChosenValues inside(const SparseInput& x, std::span<const int64_t> begin, const Shape& size) {
  ChosenValues out;
  const int rank = x.shape.rank();
  for (int64_t i = 0; i < x.size(); ++i) {
    bool in = true;
    for (int d = 0; in && d < rank; ++d) in = x.at(i)[d] >= begin[d] && x.at(i)[d] - begin[d] < size[d];
    if (!in) continue;
    out.values.push_back(i);
    for (int d = 0; d < rank; ++d) out.indices.push_back(x.at(i)[d] - begin[d]);
  }
  return out;
}

class SparseConcat final : public ComputeKernel {
 public:
  explicit SparseConcat(const KernelInit& init) : axis_(init.attr<int64_t>("concat_dim")) {}
  Status compute(KernelContext& c) override {
    const int n = c.num_inputs() / 3;
    std::vector<SparseInput> all;
    int64_t count = 0;
    for (int i = 0; i < n; ++i) {
      TROUPE_ASSIGN(SparseInput x, SparseInput::read(c.input(i), c.input(n + i), c.input(2 * n + i)));
      count += x.size();
      all.push_back(std::move(x));
    }
    Shape shape = all[0].shape;
    TROUPE_ASSIGN(const int axis, axis_from(axis_, shape.rank()));
    std::vector<int64_t> sizes(shape.begin(), shape.end());
    sizes[static_cast<size_t>(axis)] = 0;
    for (int i = 0; i < n; ++i) {
      Shape own = all[static_cast<size_t>(i)].shape;
      if (own.rank() == shape.rank()) {
        if (__builtin_add_overflow(sizes[static_cast<size_t>(axis)], own[axis], &sizes[static_cast<size_t>(axis)]))
          return invalid_argument("sizes along dimension {} overflow", axis);
        own.set(axis, shape[axis]);
      }
      if (own != shape)
        return invalid_argument("sparse tensor {} of {} does not join {} along dimension {}", i,
                                all[static_cast<size_t>(i)].shape.str(), shape.str(), axis);
    }
    TROUPE_ASSIGN(shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor values, c.allocate(c.input(n).dtype(), Shape{count}));
    std::vector<int64_t> indices, places;  // in the whole, of the values of one input after the other
    int64_t begin = 0;
    for (const SparseInput& x : all) {
      copy_elements(values.dtype(), x.values->raw(),
                    advance(values.mutable_raw(), static_cast<int64_t>(places.size()), values.dtype()), x.size());
      for (int64_t k = 0; k < x.size(); ++k) {
        int64_t place = 0;
        for (int d = 0; d < shape.rank(); ++d) {
          indices.push_back(x.at(k)[d] + (d == axis ? begin : 0));
          place = place * shape[d] + indices.back();
        }
        places.push_back(place);
      }
      begin += x.shape[axis];
    }
    ChosenValues sorted{std::vector<int64_t>(places.size()), {}};
    std::iota(sorted.values.begin(), sorted.values.end(), int64_t{0});
    std::ranges::stable_sort(sorted.values, {}, [&](int64_t i) { return places[static_cast<size_t>(i)]; });
    for (int64_t i : sorted.values)
      for (int d = 0; d < shape.rank(); ++d)
        sorted.indices.push_back(indices[static_cast<size_t>(i * shape.rank() + d)]);
    return set_sparse(c, 0, 1, sorted, values, shape);
  }

 private:
  const int64_t axis_;
};

class SparseSplit final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(1), c.input(2), c.input(3)));
    TROUPE_ASSIGN(const int axis, axis_from(c.input(0), x.shape.rank()));
    const int n = c.num_outputs() / 3;
    const int64_t whole = x.shape[axis];
    if (whole < n) return invalid_argument("dimension {} of {} does not part into {}", axis, x.shape.str(), n);
    std::vector<int64_t> begin(static_cast<size_t>(x.shape.rank()), 0);
    for (int i = 0; i < n; ++i) {  // the first parts are one longer where they do not come out even
      Shape part = x.shape;
      part.set(axis, whole / n + (i < whole % n ? 1 : 0));
      TROUPE_RETURN_IF_ERROR(set_sparse(c, i, n, inside(x, begin, part), c.input(2), part));
      begin[static_cast<size_t>(axis)] += part[axis];
    }
    return {};
  }
};

class SparseSlice final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(const auto start, int_values(c.input(3), "start"));
    TROUPE_ASSIGN(const auto size, int_values(c.input(4), "size"));
    const auto rank = static_cast<size_t>(x.shape.rank());
    if (start.size() != rank || size.size() != rank)
      return invalid_argument("start [{}] and size [{}] of {}", join(start), join(size), x.shape.str());
    Shape part = x.shape;
    for (size_t d = 0; d < rank; ++d) {
      if (start[d] < 0 || size[d] < 0)
        return invalid_argument("start [{}] or size [{}] is negative", join(start), join(size));
      const int64_t whole = x.shape[static_cast<int>(d)];
      part.set(static_cast<int>(d), start[d] < whole ? std::min(size[d], whole - start[d]) : 0);
    }
    return set_sparse(c, 0, 1, inside(x, start, part), c.input(1), part);
  }
};

/// For each value of the input what belongs to the same place of the slice, whose values are in the same order.
class SparseSliceGrad final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &g = c.input(0), &in = c.input(1), &out = c.input(3);
    TROUPE_ASSIGN(const auto start, int_values(c.input(2), "input_start"));
    const auto rank = static_cast<int64_t>(start.size());
    if (in.rank() != 2 || out.rank() != 2 || in.dim(1) != rank || out.dim(1) != rank || g.rank() != 1 ||
        g.dim(0) != out.dim(0))
      return invalid_argument("backprop_val_grad {}, input_indices {}, output_indices {} and {} numbers of input_start",
                              g.shape().str(), in.shape().str(), out.shape().str(), rank);
    TROUPE_ASSIGN(Tensor d, Tensor::zeros(g.dtype(), Shape{in.dim(0)}, c.device().allocator));
    const int64_t *from = in.data<int64_t>(), *to = out.data<int64_t>();
    std::vector<int64_t> places;  // of the values of g
    int64_t next = 0;
    for (int64_t i = 0; i < in.dim(0); ++i, from += rank) {
      bool same = next < out.dim(0);
      for (int64_t k = 0; same && k < rank; ++k)
        same = wrapping_subtract(from[k], start[static_cast<size_t>(k)]) == to[next * rank + k];
      if (!same) continue;
      places.push_back(i);
      ++next;
    }
    if (next != out.dim(0))
      return invalid_argument("{} of output_indices are not among the input's", out.dim(0) - next);
    with_storage(g.dtype(), [&]<class S>() {
      const S* value = static_cast<const S*>(g.raw());
      for (int64_t i : places) static_cast<S*>(d.mutable_raw())[i] = *value++;
    });
    c.set_output(0, std::move(d));
    return {};
  }
};

Status sparse_concat_shape(ShapeContext& c) {
  const int n = c.num_inputs() / 3;
  int64_t count = 0, rank = -1;
  for (int i = 0; i < n; ++i) {
    TROUPE_ASSIGN(const PartialShape x, sparse_shapes(c, i, n + i, 2 * n + i));
    count = count < 0 || x[0] < 0 ? -1 : count + x[0];
    TROUPE_RETURN_IF_ERROR(PartialShape::merge(PartialShape{rank}, PartialShape{x[1]}).status());
    rank = std::max(rank, x[1]);
  }
  c.set_output(0, PartialShape{count, rank});
  c.set_output(1, PartialShape{count});
  c.set_output(2, PartialShape{rank});
  return {};
}

Status sparse_split_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0).status());
  TROUPE_ASSIGN(const PartialShape x, sparse_shapes(c, 1, 2, 3));
  const int n = c.num_outputs() / 3;
  for (int i = 0; i < n; ++i) {
    c.set_output(i, PartialShape{-1, x[1]});
    c.set_output(n + i, PartialShape{-1});
    c.set_output(2 * n + i, PartialShape{x[1]});
  }
  return {};
}

Status sparse_slice_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, sparse_shapes(c, 0, 1, 2));
  for (int i : {3, 4}) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 1).status());
  c.set_output(0, PartialShape{-1, x[1]});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{x[1]});
  return {};
}

}  // namespace

void register_sparse_slice_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* none = "TensorFlow gives it none";
  ops.add(OpDef("SparseConcat")
              .input("indices: N * int64")
              .input("values: N * T")
              .input("shapes: N * int64")
              .output("output_indices: int64")
              .output("output_values: T")
              .output("output_shape: int64")
              .attr("concat_dim: int")
              .attr("N: int >= 2")
              .attr("T: type")
              .shape(sparse_concat_shape)
              .doc("Sparse tensors joined along a dimension, their values in the order of places; their other sizes "
                   "agree."),
          not_differentiable(none));
  kernels.add<SparseConcat>("SparseConcat", DeviceKind::kCpu, {});
  ops.add(OpDef("SparseSplit")
              .input("split_dim: int64")
              .input("indices: int64")
              .input("values: T")
              .input("shape: int64")
              .output("output_indices: num_split * int64")
              .output("output_values: num_split * T")
              .output("output_shape: num_split * int64")
              .attr("num_split: int >= 1")
              .attr("T: type")
              .shape(sparse_split_shape)
              .doc("The parts of a sparse tensor along a dimension, of one size or, the first ones, one longer."),
          undefined_gradient());
  kernels.add<SparseSplit>("SparseSplit", DeviceKind::kCpu, {});
  ops.add(OpDef("SparseSlice")
              .input("indices: int64")
              .input("values: T")
              .input("shape: int64")
              .input("start: int64")
              .input("size: int64")
              .output("output_indices: int64")
              .output("output_values: T")
              .output("output_shape: int64")
              .attr("T: type")
              .shape(sparse_slice_shape)
              .doc("The part of a sparse tensor that begins at `start` and has `size`, or what of it is there."),
          gradient([](GradientContext& c) -> Status {
            if (c.dy(1)) c.set_dx(1, c.op("SparseSliceGrad", {c.dy(1), c.input(0), c.input(3), c.output(0)}));
            return {};
          }));
  kernels.add<SparseSlice>("SparseSlice", DeviceKind::kCpu, {});
  ops.add(OpDef("SparseSliceGrad")
              .input("backprop_val_grad: T")
              .input("input_indices: int64")
              .input("input_start: int64")
              .input("output_indices: int64")
              .output("val_grad: T")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(const PartialShape rows, c.with_rank(1, 2));
                c.set_output(0, PartialShape{rows.has_rank() ? rows[0] : -1});
                return {};
              })
              .doc("The gradient of SparseSlice by the values: zero for those that are not in the slice."),
          undefined_gradient());
  kernels.add<SparseSliceGrad>("SparseSliceGrad", DeviceKind::kCpu, {{"T", NumberOrComplexTypes::dtypes()}});
}

}  // namespace troupe
