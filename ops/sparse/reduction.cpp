// SPDX-License-Identifier: Apache-2.0
// Sums and maxima of sparse tensors over dimensions, as dense tensors and as sparse ones: SparseReduceSum,
// SparseReduceMax, -Sparse; SparseSoftmax over the last dimension.
#include <cmath>
#include <map>

#include "ops/parts/gradient_math.h"
#include "ops/parts/wrapping.h"
#include "ops/sparse/input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using SoftmaxTypes = TypeList<float, double, float16>;

struct SparseSum {
  template <class T> static T apply(T a, T b) { return wrapping_add(a, b); }
};
struct SparseMax {
  template <class T> static T apply(T a, T b) { return a < b || b != b ? b : a; }
};

/// Which dimensions `axes` names. Errors: one that there is not.
Result<std::vector<bool>> reduced(const Tensor& axes, int rank) {
  TROUPE_ASSIGN(const auto list, int_values(axes, "reduction_axes"));
  std::vector<bool> out(static_cast<size_t>(rank), false);
  for (int64_t a : list) {
    TROUPE_ASSIGN(const int axis, axis_from(a, rank));
    out[static_cast<size_t>(axis)] = true;
  }
  return out;
}

/// What is left of the shape: reduced dimensions have size 1, or are gone.
Shape rest_of(const Shape& shape, const std::vector<bool>& gone, bool keep) {
  Shape out;
  for (int d = 0; d < shape.rank(); ++d)
    if (!gone[static_cast<size_t>(d)]) out.push_back(shape[d]);
    else if (keep) out.push_back(1);
  return out;
}

/// Groups of values by place, numbered in the order in which they come first.
struct Groups {
  std::map<int64_t, size_t> numbers;
  std::vector<size_t> of;  // each value

  void add(int64_t place) { of.push_back(numbers.try_emplace(place, numbers.size()).first->second); }
};

/// Writes what each group comes to, by its number, to its place in `to`.
template <class F, class T>
void reduce_groups(const std::vector<size_t>& groups, const T* in, std::span<int64_t> to, T* out) {
  std::vector<Arithmetic<T>> all(to.size());
  size_t known = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    auto& own = all[groups[i]];
    const bool first = groups[i] == known;
    own = first ? widen(in[i]) : F::apply(own, widen(in[i]));
    known += first;
  }
  for (size_t g = 0; g < to.size(); ++g) out[to[g]] = narrow<T>(all[g]);
}

class Reduce final : public ComputeKernel {
 public:
  explicit Reduce(const KernelInit& init)
      : keep_(init.attr<bool>("keep_dims")), sparse_(init.op.ends_with("Sparse")),
        largest_(init.op.starts_with("SparseReduceMax")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(const auto gone, reduced(c.input(3), x.shape.rank()));
    const Shape shape = rest_of(x.shape, gone, keep_);
    Groups groups;  // by place in the result
    for (int64_t i = 0; i < x.size(); ++i) {
      int64_t place = 0;
      for (int d = 0; d < x.shape.rank(); ++d)
        if (!gone[static_cast<size_t>(d)]) place = place * x.shape[d] + x.at(i)[d];
      groups.add(place);
    }
    Tensor y;
    std::vector<int64_t> places, to(groups.numbers.size());
    for (const auto& [place, group] : groups.numbers) {
      to[group] = sparse_ ? static_cast<int64_t>(places.size()) : place;
      places.push_back(place);
    }
    if (sparse_) {
      TROUPE_ASSIGN(y, c.allocate(x.values->dtype(), Shape{static_cast<int64_t>(places.size())}));
    } else {
      TROUPE_ASSIGN(y, Tensor::zeros(x.values->dtype(), shape, c.device().allocator));
    }
    with_type(y.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
      auto run = reduce_groups<SparseSum, T>;
      if constexpr (!is_complex_type<T>)
        if (largest_) run = reduce_groups<SparseMax, T>;
      run(groups.of, x.values->data<T>(), to, y.mutable_data<T>());
    });
    if (!sparse_) {
      c.set_output(0, std::move(y));
      return {};
    }
    TROUPE_ASSIGN(Tensor indices, indices_of(c, places, shape));
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(y));
    c.set_output(2, Tensor::of<int64_t>(shape.dims()));
    return {};
  }

 private:
  const bool keep_, sparse_, largest_;
};

template <class T> void softmax(const Groups& rows, const T* in, T* out) {
  using A = Arithmetic<T>;
  std::vector<A> most(rows.numbers.size()), sum(rows.numbers.size());
  const std::vector<size_t>& row = rows.of;
  size_t known = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] == known) most[known++] = widen(in[i]);
    most[row[i]] = std::max(most[row[i]], widen(in[i]));
  }
  for (size_t i = 0; i < row.size(); ++i) sum[row[i]] += std::exp(widen(in[i]) - most[row[i]]);
  for (size_t i = 0; i < row.size(); ++i) out[i] = narrow<T>(std::exp(widen(in[i]) - most[row[i]]) / sum[row[i]]);
}

class SparseSoftmax final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    if (x.shape.rank() < 2) return invalid_argument("sp_shape {} must have rank 2 or more", x.shape.str());
    Groups rows;
    for (int64_t place : x.places) rows.add(place / x.shape.dim(-1));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.values->dtype(), x.values->shape()));
    with_type(y.dtype(), SoftmaxTypes{}, [&]<class T>() { softmax(rows, x.values->data<T>(), y.mutable_data<T>()); });
    c.set_output(0, std::move(y));
    return {};
  }
};

Status sparse_reduce_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, sparse_shapes(c, 0, 1, 2));
  const bool sparse = c.num_outputs() == 3, keep = c.attr<bool>("keep_dims");
  const auto axes = c.constant_input(3), sizes = c.constant_input(2);
  if (sparse) {
    const int64_t rank = keep ? x[1] : -1;
    c.set_output(0, PartialShape{-1, rank});
    c.set_output(1, PartialShape{-1});
    c.set_output(2, PartialShape{rank});
  } else if (axes && sizes) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "input_shape"));
    TROUPE_ASSIGN(const auto gone, reduced(*axes, shape.rank()));
    c.set_output(0, rest_of(shape, gone, keep));
  } else if (keep && x[1] >= 0 && x[1] <= kMaxRank) {
    c.set_output(0, PartialShape::of_rank(static_cast<int>(x[1])));
  }
  return {};
}

/// Each value gets the gradient of the sum that it is in.
Status sparse_sum_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output sizes = c.input(2);
  const auto number = [&](int64_t v) { return c.constant(Tensor::scalar<int64_t>(v)); };
  const Output axes = c.op("Cast", {c.input(3)}, {{"DstT", DType::kInt64}});
  const Output rank = c.op("Size", {sizes}, {{"out_type", DType::kInt64}});
  const Output rows = c.op("Reshape", {c.op("FloorMod", {axes, rank}), c.constant(Tensor::of<int64_t>({-1, 1}))});
  const Output ones = c.op("OnesLike", {c.op("Reshape", {axes, c.constant(Tensor::of<int64_t>({-1}))})});
  const Output kept = c.op("TensorScatterUpdate", {sizes, rows, ones});
  // Along reduced dimensions index 0, along others the own one.
  const Output one = c.op("Equal", {kept, number(1)}), own = c.input(0);
  const Output at = c.op("SelectV2", {one, c.op("ZerosLike", {own}), own});
  c.set_dx(1, c.op("GatherNd", {c.op("Reshape", {c.dy(0), kept}), at}));
  return {};
}

/// y * (dy - the sum of dy * y in the row).
Status sparse_softmax_gradient(GradientContext& c) {
  const Output y = c.output(0), g = c.dy(0), indices = c.input(0), sizes = c.input(2);
  if (!g) return {};
  const Output sums =
      c.op("SparseReduceSum", {indices, c.op("Mul", {y, g}), sizes, c.constant(Tensor::of<int32_t>({-1}))},
           {{"keep_dims", true}});
  c.set_dx(1, c.op("Mul", {y, c.op("SparseDenseCwiseAdd", {indices, g, sizes, c.op("Neg", {sums})})}));
  return {};
}

}  // namespace

void register_sparse_reduction_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](const char* name, const std::string& type, const char* what, const Gradient& dx) {
    OpDef op(name);
    const bool sparse = op.name().ends_with("Sparse");
    op.input("input_indices: int64")
        .input("input_values: T")
        .input("input_shape: int64")
        .input("reduction_axes: int32");
    if (sparse) op.output("output_indices: int64").output("output_values: T").output("output_shape: int64");
    else op.output("output: T");
    ops.add(op.attr("keep_dims: bool = false")
                .attr(type)
                .shape(sparse_reduce_shape)
                .doc(std::string(what) +
                     " of the values of a sparse tensor over dimensions, which are dropped, or stay with size 1 if "
                     "keep_dims; " +
                     (sparse ? "where there are any." : "0 where there are none.")),
            dx);
  };
  const Gradient none = undefined_gradient();
  const std::string all = type_attr("T", NumberOrComplexTypes{}), real = type_attr("T", NumberTypes{});
  add("SparseReduceSum", all, "The sum", gradient(sparse_sum_gradient));
  add("SparseReduceSumSparse", all, "The sum", none);
  add("SparseReduceMax", real, "The largest", none);
  add("SparseReduceMaxSparse", real, "The largest", none);
  for (const char* op : {"SparseReduceSum", "SparseReduceSumSparse"})
    kernels.add<Reduce>(op, DeviceKind::kCpu, {{"T", NumberOrComplexTypes::dtypes()}});
  for (const char* op : {"SparseReduceMax", "SparseReduceMaxSparse"})
    kernels.add<Reduce>(op, DeviceKind::kCpu, {{"T", NumberTypes::dtypes()}});
  ops.add(
      OpDef("SparseSoftmax")
          .input("sp_indices: int64")
          .input("sp_values: T")
          .input("sp_shape: int64")
          .output("output: T")
          .attr(type_attr("T", SoftmaxTypes{}))
          .shape([](ShapeContext& c) -> Status {
            TROUPE_ASSIGN(const PartialShape x, sparse_shapes(c, 0, 1, 2));
            c.set_output(0, PartialShape{x[0]});
            return {};
          })
          .doc("Values exp(x) over the sum of all in a row, along the last dimension of a sparse tensor; what is not "
               "there has no part in it."),
      gradient(sparse_softmax_gradient));
  kernels.add<SparseSoftmax>("SparseSoftmax", DeviceKind::kCpu, {{"T", SoftmaxTypes::dtypes()}});
}

}  // namespace troupe
