// SPDX-License-Identifier: Apache-2.0
// Arithmetic of sparse tensors, with sparse and with dense ones: SparseAdd and its gradient, SparseTensorDenseAdd,
// SparseDenseCwiseAdd, -Mul and -Div, SparseSparseMaximum and -Minimum.
#include <numeric>

#include "ops/parts/gradient_math.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/wrapping.h"
#include "ops/sparse/input.h"
#include "ops/sparse/register.h"

namespace troupe {
namespace {

using AddTypes = TypeList<float, double, int64_t, int32_t, int16_t, int8_t, complex64, complex128>;

/// A value of one of two sparse tensors.
struct ValueEntry {
  int64_t place;
  int from;
  int64_t index;
};

/// The values of both in the order of their places, those of a before those of b.
std::vector<ValueEntry> in_order(const SparseInput& a, const SparseInput& b) {
  std::vector<ValueEntry> out;
  for (int from = 0; const SparseInput* x : {&a, &b}) {
    for (int64_t i = 0; i < x->size(); ++i) out.push_back({x->places[static_cast<size_t>(i)], from, i});
    ++from;
  }
  std::ranges::stable_sort(out, {}, &ValueEntry::place);
  return out;
}

/// The two sparse tensors of a node's first six inputs. Errors: shapes that differ.
Result<std::pair<SparseInput, SparseInput>> two_sparse(const KernelContext& c) {
  TROUPE_ASSIGN(SparseInput a, SparseInput::read(c.input(0), c.input(1), c.input(2)));
  TROUPE_ASSIGN(SparseInput b, SparseInput::read(c.input(3), c.input(4), c.input(5)));
  if (a.shape != b.shape) return invalid_argument("sparse tensors of {} and {}", a.shape.str(), b.shape.str());
  return std::pair(std::move(a), std::move(b));
}

template <class T> Real<T> magnitude(T x) {
  if constexpr (std::is_integral_v<T>) return x < 0 ? wrapping_subtract(T(0), x) : x;
  else return std::abs(x);
}

/// The sums of values at one place, but for those of two or more values below `least`; the places of these sums.
template <class T>
std::vector<int64_t> add_up(const std::vector<ValueEntry>& entries, const T* a, const T* b, Real<T> least, T* sums) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < entries.size();) {
    const int64_t place = entries[i].place;
    T sum(0);
    const size_t begin = i;
    for (; i < entries.size() && entries[i].place == place; ++i)
      sum = wrapping_add(sum, (entries[i].from == 0 ? a : b)[entries[i].index]);
    if (i - begin > 1 && !(least <= magnitude(sum))) continue;
    places.push_back(place);
    *sums++ = sum;
  }
  return places;
}

class SparseAdd final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const DType dtype = c.input(1).dtype();
    TROUPE_ASSIGN(const auto both, two_sparse(c));
    if (c.input(6).rank() != 0) return invalid_argument("thresh must be a scalar, not {}", c.input(6).shape().str());
    if (c.input(6).dtype() != real_of(dtype))
      return invalid_argument("thresh is {} for values of {}", to_string(c.input(6).dtype()), to_string(dtype));
    const auto entries = in_order(both.first, both.second);
    TROUPE_ASSIGN(Tensor sums, c.allocate(dtype, Shape{static_cast<int64_t>(entries.size())}));
    std::vector<int64_t> places;
    with_type(dtype, AddTypes{}, [&]<class T>() {
      places = add_up(entries, c.input(1).data<T>(), c.input(4).data<T>(), *c.input(6).data<Real<T>>(),
                      sums.mutable_data<T>());
    });
    TROUPE_ASSIGN(Tensor indices, indices_of(c, places, both.first.shape));
    TROUPE_ASSIGN(Tensor out, c.allocate(dtype, Shape{static_cast<int64_t>(places.size())}));
    copy_elements(dtype, sums.raw(), out.mutable_raw(), out.elements());
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(out));
    c.set_output(2, c.input(2));
    return {};
  }
};

/// For each row of a and of b what belongs to the same row of the sum.
class SparseAddGrad final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &g = c.input(0), &sum = c.input(3);
    for (int i : {1, 2, 3})
      if (c.input(i).rank() != 2 || c.input(i).dim(1) != sum.dim(-1))
        return invalid_argument("indices {}, {} and {} must be matrices of as many columns", c.input(1).shape().str(),
                                c.input(2).shape().str(), sum.shape().str());
    if (g.rank() != 1 || g.dim(0) != sum.dim(0))
      return invalid_argument("backprop_val_grad {} for sum_indices {}", g.shape().str(), sum.shape().str());
    const int64_t rank = sum.dim(1);
    const auto row = [rank](const Tensor& t, int64_t i) {
      return std::span(t.data<int64_t>() + i * rank, static_cast<size_t>(rank));
    };
    const auto before = [](auto a, auto b) { return std::ranges::lexicographical_compare(a, b); };
    std::vector<int64_t> order(static_cast<size_t>(sum.dim(0)));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::sort(order, [&](int64_t a, int64_t b) { return before(row(sum, a), row(sum, b)); });
    std::vector<int64_t> from;  // -1: none
    for (int k : {1, 2}) {
      const Tensor& rows = c.input(k);
      from.clear();
      for (int64_t i = 0; i < rows.dim(0); ++i) {
        const auto at =
            std::ranges::partition_point(order, [&](int64_t s) { return before(row(sum, s), row(rows, i)); });
        from.push_back(at != order.end() && std::ranges::equal(row(sum, *at), row(rows, i)) ? *at : -1);
      }
      TROUPE_ASSIGN(Tensor d, c.allocate(g.dtype(), Shape{rows.dim(0)}));
      with_type(g.dtype(), AddTypes{}, [&]<class T>() {
        std::ranges::transform(from, d.mutable_data<T>(),
                               [in = g.data<T>()](int64_t at) { return at < 0 ? T(0) : in[at]; });
      });
      c.set_output(k - 1, std::move(d));
    }
    return {};
  }
};

/// Where in a tensor of `shape` the values are that a_indices, int32 or int64, tell of.
Result<std::vector<int64_t>> places_of(const Tensor& indices, const Tensor& values, const Shape& shape) {
  if (indices.rank() != 2 || indices.dim(1) != shape.rank() || values.rank() != 1 || values.dim(0) != indices.dim(0))
    return invalid_argument("a_indices of shape {} and a_values of shape {} in {}", indices.shape().str(),
                            values.shape().str(), shape.str());
  const bool wide = indices.dtype() == DType::kInt64;
  std::vector<int64_t> places;
  for (int64_t i = 0; i < values.elements(); ++i) {
    int64_t place = 0;
    for (int d = 0; d < shape.rank(); ++d) {
      const int64_t at = i * shape.rank() + d;
      const int64_t index = wide ? indices.data<int64_t>()[at] : indices.data<int32_t>()[at];
      if (index < 0 || index >= shape[d])
        return invalid_argument("index {} at [{},{}] is not in [0, {})", index, i, d, shape[d]);
      place = place * shape[d] + index;
    }
    places.push_back(place);
  }
  return places;
}

template <class T> void add_at(const std::vector<int64_t>& places, const T* values, T* out) {
  for (size_t i = 0; i < places.size(); ++i)
    out[places[i]] = narrow<T>(wrapping_add(widen(out[places[i]]), widen(values[i])));
}

class SparseTensorDenseAdd final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &values = c.input(1), &b = c.input(3);
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(2), "a_shape"));
    if (shape != b.shape()) return invalid_argument("a of {} and b of {}", shape.str(), b.shape().str());
    TROUPE_ASSIGN(const auto places, places_of(c.input(0), values, shape));
    TROUPE_ASSIGN(Tensor y, writable_input(c, 3, values));
    with_type(y.dtype(), NumberOrComplexTypes{},
              [&]<class T>() { add_at(places, values.data<T>(), y.mutable_data<T>()); });
    c.set_output(0, std::move(y));
    return {};
  }
};

struct Plus {
  template <class T> static T apply(T a, T b) { return wrapping_add(a, b); }
};
struct Times {
  template <class T> static T apply(T a, T b) { return wrapping_multiply(a, b); }
};
struct Over {
  template <class T> static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
      if (b == T(-1)) return wrapping_subtract(T(0), a);
    return static_cast<T>(a / b);
  }
};
struct Larger {
  template <class T> static T apply(T a, T b) { return a < b || b != b ? b : a; }
};
struct Smaller {
  template <class T> static T apply(T a, T b) { return b < a || b != b ? b : a; }
};

/// For each value of a sparse tensor its place in a dense one, which is broadcast.
Result<std::vector<int64_t>> places_in(const SparseInput& x, const Tensor& dense) {
  const int added = x.shape.rank() - dense.rank();
  bool fits = added >= 0;
  for (int d = 0; fits && d < dense.rank(); ++d) fits = dense.shape()[d] == 1 || dense.shape()[d] == x.shape[added + d];
  if (!fits) return invalid_argument("dense {} does not broadcast to {}", dense.shape().str(), x.shape.str());
  const auto strides = strides_of(dense.shape());
  std::vector<int64_t> places;
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t at = 0;
    for (int d = 0; d < dense.rank(); ++d)
      if (dense.shape()[d] != 1) at += x.at(i)[added + d] * strides[d];
    places.push_back(at);
  }
  return places;
}

/// Each of `values` with the value of a dense tensor at its place. False for an integer division by zero.
template <class F, class T>
bool with_dense(const std::vector<int64_t>& places, const T* values, const T* dense, T* out) {
  for (size_t i = 0; i < places.size(); ++i) {
    const auto b = widen(dense[places[i]]);
    if constexpr (std::is_same_v<F, Over> && std::is_integral_v<T>)
      if (b == T(0)) return false;
    out[i] = narrow<T>(F::apply(widen(values[i]), b));
  }
  return true;
}

enum class With { kAdd, kMul, kDiv };
class WithDense final : public ComputeKernel {
 public:
  explicit WithDense(const KernelInit& init)
      : with_(init.op.ends_with("Add")   ? With::kAdd
              : init.op.ends_with("Mul") ? With::kMul
                                         : With::kDiv) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const SparseInput x, SparseInput::read(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(const auto places, places_in(x, c.input(3)));
    TROUPE_ASSIGN(Tensor y, c.allocate(c.input(1).dtype(), c.input(1).shape()));
    bool defined = true;
    with_type(y.dtype(), NumberTypes{}, [&]<class T>() {
      const auto run = with_ == With::kAdd   ? with_dense<Plus, T>
                       : with_ == With::kMul ? with_dense<Times, T>
                                             : with_dense<Over, T>;
      defined = run(places, x.values->data<T>(), c.input(3).data<T>(), y.mutable_data<T>());
    });
    if (!defined) return invalid_argument("integer division by zero");
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const With with_;
};

/// For each place where in a and in b its value is; -1: nowhere, it is 0.
template <class F, class T>
void of_both(const std::vector<std::array<int64_t, 2>>& from, const T* a, const T* b, T* out) {
  using A = Arithmetic<T>;
  for (const auto& [i, k] : from) *out++ = narrow<T>(F::apply(i < 0 ? A(0) : widen(a[i]), k < 0 ? A(0) : widen(b[k])));
}

/// The larger or the smaller of two sparse tensors, which are 0 where they have no value.
class OfBoth final : public ComputeKernel {
 public:
  explicit OfBoth(const KernelInit& init) : larger_(init.op.ends_with("Maximum")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const auto both, two_sparse(c));
    std::vector<int64_t> places;
    std::vector<std::array<int64_t, 2>> from;
    for (const ValueEntry& e : in_order(both.first, both.second)) {
      if (places.empty() || places.back() != e.place) {
        places.push_back(e.place);
        from.push_back({-1, -1});
      }
      from.back()[static_cast<size_t>(e.from)] = e.index;
    }
    TROUPE_ASSIGN(Tensor found, c.allocate(c.input(1).dtype(), Shape{static_cast<int64_t>(places.size())}));
    with_type(found.dtype(), NumberTypes{}, [&]<class T>() {
      const auto run = larger_ ? of_both<Larger, T> : of_both<Smaller, T>;
      run(from, c.input(1).data<T>(), c.input(4).data<T>(), found.mutable_data<T>());
    });
    TROUPE_ASSIGN(Tensor indices, indices_of(c, places, both.first.shape));
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(found));
    return {};
  }

 private:
  const bool larger_;
};

// --- shapes and gradients ---

/// Of ops on two sparse tensors: how many values there are is not known.
Status two_sparse_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape a, sparse_shapes(c, 0, 1, 2));
  TROUPE_ASSIGN(const PartialShape b, sparse_shapes(c, 3, 4, 5));
  if (c.num_inputs() > 6) TROUPE_RETURN_IF_ERROR(c.with_rank(6, 0).status());
  const int64_t rank = std::max(a[1], b[1]);
  TROUPE_RETURN_IF_ERROR(PartialShape::merge(PartialShape{a[1]}, PartialShape{b[1]}).status());
  c.set_output(0, PartialShape{-1, rank});
  c.set_output(1, PartialShape{-1});
  if (c.num_outputs() > 2) c.set_output(2, PartialShape{rank});
  return {};
}

Status sparse_add_gradient(GradientContext& c) {
  if (!c.dy(1)) return {};
  const auto d = c.ops("SparseAddGrad", {c.dy(1), c.input(0), c.input(3), c.output(0)});
  if (d.size() != 2) return {};
  c.set_dx(1, d[0]);
  c.set_dx(4, d[1]);
  return {};
}

/// For each value of the sparse tensor (inputs 0 to 2) the indices into the dense one, input 3.
Output dense_indices(GradientContext& c) {
  const auto number = [&](int64_t v) { return c.constant(Tensor::scalar<int64_t>(v)); };
  const Output sizes = c.op("Shape", {c.input(3)}, {{"out_type", DType::kInt64}});
  const Output rank = c.op("Size", {sizes}, {{"out_type", DType::kInt64}});
  const Output first = c.op("Sub", {c.op("Size", {c.input(2)}, {{"out_type", DType::kInt64}}), rank});
  // Where the dense tensor has one element along a dimension, that is taken.
  const Output one = c.op("Equal", {sizes, number(1)}), begin = c.op("Pack", {number(0), first});
  const Output own = c.op("Slice", {c.input(0), begin, c.constant(Tensor::of<int64_t>({-1, -1}))});
  return c.op("SelectV2", {one, c.op("ZerosLike", {own}), own});
}

template <With with> Status with_dense_gradient(GradientContext& c) {
  const Output g = c.dy(0), values = c.input(1);
  if (!g) return {};
  const Output at = dense_indices(c), sizes = c.op("Shape", {c.input(3)}, {{"out_type", DType::kInt64}});
  const Output dense = c.op("GatherNd", {c.input(3), at});
  Output by_values = g, by_dense = g;
  if (with == With::kMul) {
    by_values = c.op("Mul", {g, dense});
    by_dense = c.op("Mul", {g, values});
  } else if (with == With::kDiv) {
    by_values = c.op("RealDiv", {g, dense});
    by_dense = c.op("Mul", {g, c.op("Neg", {c.op("RealDiv", {values, c.op("Square", {dense})})})});
  }
  c.set_dx(1, by_values);
  c.set_dx(3, c.op("ScatterNd", {at, by_dense, sizes}));
  return {};
}

Status dense_add_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  c.set_dx(1, c.op("GatherNd", {c.dy(0), c.input(0)}));
  c.set_dx(3, c.dy(0));
  return {};
}

Status dense_add_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape a, sparse_shapes(c, 0, 1, 2));
  PartialShape out = c.input(3);
  if (a[1] >= 0 && out.has_rank() && a[1] != out.rank())
    return invalid_argument("a has {} dimensions, b has the shape {}", a[1], out.str());
  if (const auto sizes = c.constant_input(2)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*sizes, "a_shape"));
    TROUPE_ASSIGN(out, PartialShape::merge(out, shape));
  }
  c.set_output(0, std::move(out));
  return {};
}

void add_with_dense(OpRegistry& ops, KernelRegistry& kernels, const std::string& name, const char* what,
                    GradientFn dx) {
  ops.add(OpDef(name)
              .input("sp_indices: int64")
              .input("sp_values: T")
              .input("sp_shape: int64")
              .input("dense: T")
              .output("output: T")
              .attr(type_attr("T", NumberTypes{}))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(const PartialShape x, sparse_shapes(c, 0, 1, 2));
                c.set_output(0, PartialShape{x[0]});
                return {};
              })
              .doc(std::string("The values of a sparse tensor ") + what +
                   " those of a dense one at their places; the dense one broadcasts to the sparse."),
          gradient(std::move(dx)));
  kernels.add<WithDense>(name, DeviceKind::kCpu, {{"T", NumberTypes::dtypes()}});
}

OpDef two_sparse_op(const char* name) {
  OpDef op(name);
  op.input("a_indices: int64").input("a_values: T").input("a_shape: int64");
  op.input("b_indices: int64").input("b_values: T").input("b_shape: int64");
  return op;
}

}  // namespace

void register_sparse_math_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(two_sparse_op("SparseAdd")
              .input("thresh: Treal")
              .output("sum_indices: int64")
              .output("sum_values: T")
              .output("sum_shape: int64")
              .attr(type_attr("T", AddTypes{}))
              .attr(type_attr("Treal", TypeList<float, double, int64_t, int32_t, int16_t, int8_t>{}))
              .shape(two_sparse_shape)
              .doc("The sum of two sparse tensors of one shape, in the order of places, without sums of two values "
                   "whose magnitude is below thresh."),
          gradient(sparse_add_gradient));
  kernels.add<SparseAdd>("SparseAdd", DeviceKind::kCpu, {{"T", AddTypes::dtypes()}});
  ops.add(OpDef("SparseAddGrad")
              .input("backprop_val_grad: T")
              .input("a_indices: int64")
              .input("b_indices: int64")
              .input("sum_indices: int64")
              .output("a_val_grad: T")
              .output("b_val_grad: T")
              .attr(type_attr("T", AddTypes{}))
              .shape([](ShapeContext& c) -> Status {
                for (int i : {1, 2}) {
                  TROUPE_ASSIGN(const PartialShape rows, c.with_rank(i, 2));
                  c.set_output(i - 1, PartialShape{rows.has_rank() ? rows[0] : -1});
                }
                return {};
              })
              .doc("The gradients of SparseAdd by the values of both: zero where the sum has none."),
          undefined_gradient("TensorFlow gives it none; here a path through it is an error"));
  kernels.add<SparseAddGrad>("SparseAddGrad", DeviceKind::kCpu, {{"T", AddTypes::dtypes()}});
  ops.add(OpDef("SparseTensorDenseAdd")
              .input("a_indices: Tindices")
              .input("a_values: T")
              .input("a_shape: Tindices")
              .input("b: T")
              .output("output: T")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .attr(type_attr("Tindices", IndexTypes{}))
              .shape(dense_add_shape)
              .doc("The sum of a sparse tensor and a dense one of its shape, which is dense."),
          gradient(dense_add_gradient));
  kernels.add<SparseTensorDenseAdd>("SparseTensorDenseAdd", DeviceKind::kCpu,
                                    {{"T", NumberOrComplexTypes::dtypes()}, {"Tindices", IndexTypes::dtypes()}});
  add_with_dense(ops, kernels, "SparseDenseCwiseAdd", "plus", with_dense_gradient<With::kAdd>);
  add_with_dense(ops, kernels, "SparseDenseCwiseMul", "times", with_dense_gradient<With::kMul>);
  add_with_dense(ops, kernels, "SparseDenseCwiseDiv", "divided by", with_dense_gradient<With::kDiv>);
  const auto both = [&](const char* name, const char* which) {
    ops.add(
        two_sparse_op(name)
            .output("output_indices: int64")
            .output("output_values: T")
            .attr(type_attr("T", NumberTypes{}))
            .shape(two_sparse_shape)
            .doc(std::string("The ") + which +
                 " of two sparse tensors of one shape, wherever one has a value; the other is 0 where it has none."),
        not_differentiable("TensorFlow gives it none"));
    kernels.add<OfBoth>(name, DeviceKind::kCpu, {{"T", NumberTypes::dtypes()}});
  };
  both("SparseSparseMaximum", "larger");
  both("SparseSparseMinimum", "smaller");
}

}  // namespace troupe
