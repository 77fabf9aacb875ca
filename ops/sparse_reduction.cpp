// SPDX-License-Identifier: Apache-2.0
// Sums and maxima of sparse tensors over dimensions, as dense tensors and as sparse ones: SparseReduceSum,
// SparseReduceMax, -Sparse; SparseSoftmax over the last dimension.
#include <cmath>
#include <map>

#include "ops/sparse_input.h"
#include "ops/sparse_parts.h"
#include "ops/wrapping.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using SoftmaxTypes = TypeList<float, double, float16>;

struct Sum {
  template <class T> static T apply(T a, T b) { return wrapping_add(a, b); }
};
struct Max {
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

template <class F> struct Reduce {
  template <class T> class Kernel final : public ComputeKernel {
   public:
    explicit Kernel(const KernelInit& init)
        : keep_(init.attr<bool>("keep_dims")), sparse_(init.op.ends_with("Sparse")) {}
    Status compute(KernelContext& c) override {
      TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
      TROUPE_ASSIGN(const auto gone, reduced(c.input(3), x.shape.rank()));
      const Shape shape = rest_of(x.shape, gone, keep_);
      std::map<int64_t, Arithmetic<T>> groups;  // by place in the result
      for (int64_t i = 0; i < x.size(); ++i) {
        int64_t place = 0;
        for (int d = 0; d < x.shape.rank(); ++d)
          if (!gone[static_cast<size_t>(d)]) place = place * x.shape[d] + x.at(i)[d];
        const Arithmetic<T> v = widen(x.values->data<T>()[i]);
        const auto [at, first] = groups.try_emplace(place, v);
        if (!first) at->second = F::apply(at->second, v);
      }
      if (!sparse_) {
        TROUPE_ASSIGN(Tensor y, Tensor::zeros(dtype_of<T>, shape, c.device().allocator));
        for (const auto& [place, v] : groups) y.mutable_data<T>()[place] = narrow<T>(v);
        c.set_output(0, std::move(y));
        return {};
      }
      std::vector<int64_t> places;
      TROUPE_ASSIGN(Tensor values, c.allocate(dtype_of<T>, Shape{static_cast<int64_t>(groups.size())}));
      for (const auto& [place, v] : groups) {
        values.mutable_data<T>()[places.size()] = narrow<T>(v);
        places.push_back(place);
      }
      TROUPE_ASSIGN(Tensor indices, indices_of(c, places, shape));
      c.set_output(0, std::move(indices));
      c.set_output(1, std::move(values));
      c.set_output(2, Tensor::of<int64_t>(shape.dims()));
      return {};
    }

   private:
    const bool keep_, sparse_;
  };
};

template <class T> class SparseSoftmax final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    if (x.shape.rank() < 2) return invalid_argument("sp_shape {} must have rank 2 or more", x.shape.str());
    using A = Arithmetic<T>;
    struct Row {
      A most, sum;
    };
    std::map<int64_t, Row> rows;
    const T* in = x.values->data<T>();
    const auto row_of = [&](int64_t i) { return x.places[static_cast<size_t>(i)] / x.shape.dim(-1); };
    for (int64_t i = 0; i < x.size(); ++i) {
      const auto [at, first] = rows.try_emplace(row_of(i), Row{widen(in[i]), A(0)});
      at->second.most = std::max(at->second.most, widen(in[i]));
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, c.input(1).shape()));
    for (int64_t i = 0; i < x.size(); ++i) {
      Row& row = rows.at(row_of(i));
      row.sum += std::exp(widen(in[i]) - row.most);
    }
    for (int64_t i = 0; i < x.size(); ++i) {
      const Row& row = rows.at(row_of(i));
      y.mutable_data<T>()[i] = narrow<T>(std::exp(widen(in[i]) - row.most) / row.sum);
    }
    c.set_output(0, std::move(y));
    return {};
  }
};

Status reduce_shape(ShapeContext& c) {
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
Status sum_gradient(GradientContext& c) {
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
Status softmax_gradient(GradientContext& c) {
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
                .shape(reduce_shape)
                .doc(std::string(what) +
                     " of the values of a sparse tensor over dimensions, which are dropped, or stay with size 1 if "
                     "keep_dims; " +
                     (sparse ? "where there are any." : "0 where there are none.")),
            dx);
  };
  const Gradient none = not_differentiable("TensorFlow gives it none");
  const std::string all = type_attr("T", NumberOrComplexTypes{}), real = type_attr("T", NumberTypes{});
  add("SparseReduceSum", all, "The sum", gradient(sum_gradient));
  add("SparseReduceSumSparse", all, "The sum", none);
  add("SparseReduceMax", real, "The largest", none);
  add("SparseReduceMaxSparse", real, "The largest", none);
  for (const char* op : {"SparseReduceSum", "SparseReduceSumSparse"})
    add_cpu_kernels<Reduce<Sum>::template Kernel>(kernels, op, NumberOrComplexTypes{});
  for (const char* op : {"SparseReduceMax", "SparseReduceMaxSparse"})
    add_cpu_kernels<Reduce<Max>::template Kernel>(kernels, op, NumberTypes{});
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
      gradient(softmax_gradient));
  add_cpu_kernels<SparseSoftmax>(kernels, "SparseSoftmax", SoftmaxTypes{});
}

}  // namespace troupe
