// SPDX-License-Identifier: Apache-2.0
// Classes and ranks: OneHot, TopK, TopKV2, InTopK, InTopKV2.
#include "ops/array/top_k.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "ops/array/gather_gradient.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
Result<OneHotPlan> plan_one_hot(const Shape& indices, const Tensor& depth, const Shape& on, const Shape& off,
                                int64_t axis) {
  OneHotPlan plan;
  TROUPE_ASSIGN(plan.depth, int_scalar(depth, "depth"));
  if (plan.depth < 0) return invalid_argument("depth {}", plan.depth);
  if (on.rank() != 0 || off.rank() != 0) return invalid_argument("on_value and off_value must be scalars");
  TROUPE_ASSIGN(const int at, axis_from(axis, indices.rank() + 1));
  std::vector<int64_t> sizes(indices.begin(), indices.end());
  sizes.insert(sizes.begin() + at, plan.depth);
  TROUPE_ASSIGN(plan.shape, Shape::make(sizes));
  plan.inner = sizes_product(indices, at, indices.rank());
  return plan;
}

Result<int64_t> rank_asked(const KernelContext& c, int64_t attribute, int input) {
  return c.num_inputs() > input ? int_scalar(c.input(input), "k") : Result<int64_t>(attribute);
}

Result<Shape> top_shape(const Shape& x, int64_t k) {
  if (x.rank() == 0 || k < 0 || k > x.dim(-1)) return invalid_argument("the top {} of shape {}", k, x.str());
  Shape shape = x;
  shape.set(x.rank() - 1, k);
  return shape;
}

Status check_in_top(const Shape& predictions, const Shape& targets) {
  if (predictions.rank() != 2 || targets.rank() != 1 || predictions[0] != targets[0])
    return invalid_argument("predictions {} and targets {}", predictions.str(), targets.str());
  return {};
}

namespace {

using OneHotIndices = TypeList<uint8_t, int8_t, int32_t, int64_t>;

class OneHot final : public ComputeKernel {
 public:
  explicit OneHot(const KernelInit& init) : axis_(init.attr<int64_t>("axis")) {}
  Status compute(KernelContext& c) override {
    const Tensor &indices = c.input(0), &on = c.input(2), &off = c.input(3);
    TROUPE_ASSIGN(const OneHotPlan plan, plan_one_hot(indices.shape(), c.input(1), on.shape(), off.shape(), axis_));
    TROUPE_ASSIGN(Tensor y, c.allocate(on.dtype(), plan.shape));
    const int64_t depth = plan.depth, inner = plan.inner, n = indices.elements();
    std::vector<int64_t> places;  // an index outside [0, depth) gives a row of off_value, as in TensorFlow
    with_type(indices.dtype(), OneHotIndices{}, [&]<class I>() {
      const I* at = indices.data<I>();
      for (int64_t i = 0; i < n; ++i)
        if (at[i] >= 0 && static_cast<int64_t>(at[i]) < depth)
          places.push_back((i / inner * depth + static_cast<int64_t>(at[i])) * inner + i % inner);
    });
    with_storage(on.dtype(), [&]<class S>() {
      S* out = static_cast<S*>(y.mutable_raw());
      std::fill_n(out, y.elements(), *static_cast<const S*>(off.raw()));
      for (int64_t place : places) out[place] = *static_cast<const S*>(on.raw());
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const int64_t axis_;
};

Status one_hot_shape(ShapeContext& c) {
  for (int i = 1; i < 4; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  const PartialShape& indices = c.input(0);
  if (!indices.has_rank()) return {};
  TROUPE_ASSIGN(const int axis, axis_from(c.attr<int64_t>("axis"), indices.rank() + 1));
  int64_t depth = -1;
  if (const auto constant = c.constant_input(1)) {
    TROUPE_ASSIGN(depth, int_scalar(*constant, "depth"));
    if (depth < 0) return invalid_argument("depth {}", depth);
  }
  std::vector<int64_t> sizes(indices.dims().begin(), indices.dims().end());
  sizes.insert(sizes.begin() + axis, depth);
  TROUPE_ASSIGN(const PartialShape out, PartialShape::make(sizes));
  c.set_output(0, out);
  return {};
}

using TopKIndices = TypeList<int16_t, int32_t, int64_t>;

/// What elements are compared as, so that there are few types: small integers as int32, 16-bit floats as float.
template <class T> using SortKey = std::conditional_t<std::is_integral_v<T> && (sizeof(T) < 4), int32_t, Arithmetic<T>>;

/// A number that is the smaller the larger x is, the same for 0 and -0, and largest for NaN.
inline uint32_t descending(float x) {
  if (x != x) return ~0u;
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return bits >> 31 ? bits : ~(bits | 1u << 31);
}
inline uint32_t descending(int32_t x) { return ~(static_cast<uint32_t>(x) ^ 1u << 31); }
inline uint32_t descending(uint32_t x) { return ~x; }

/// The order of sort_first(), sorted, by numbers that hold key and index: no look at x for each comparison.
template <class K> void sort_packed(const K* x, int64_t k, std::vector<int32_t>& order) {
  std::vector<uint64_t> packed(order.size());
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = uint64_t{descending(x[i])} << 32 | i;
  const auto end = packed.begin() + k;
  if (end != packed.end()) std::nth_element(packed.begin(), end, packed.end());
  std::sort(packed.begin(), end);
  for (int64_t i = 0; i < k; ++i) order[i] = static_cast<int32_t>(packed[i] & 0xffffffff);
}

/// Puts the first k of the order of x first: larger first, the smaller index where equal; NaN counts as smallest so
/// that the order is strict. If not `sorted`, these are in the order of TensorFlow, whose samplers draw from them by
/// their places: that of a heap of k elements, the last of the order on top, through which all others went.
template <class K> [[gnu::noinline]] void sort_first(const K* x, int64_t k, bool sorted, std::vector<int32_t>& order) {
  std::iota(order.begin(), order.end(), 0);
  const auto before = [x](int32_t a, int32_t b) {
    const K p = x[a], q = x[b];
    if (p != p || q != q) return p == p ? true : q == q ? false : a < b;
    return p > q || (p == q && a < b);
  };
  const auto first = order.begin();
  const auto n = static_cast<int64_t>(order.size());
  if constexpr (sizeof(K) == 4) {
    if (sorted && k > n / 8) return sort_packed(x, k, order);
  }
  if (sorted && k > n / 8) {  // where heaps, as partial_sort has them, are slower
    if (k < n) std::nth_element(first, first + k, order.end(), before);
    return std::sort(first, first + k, before);
  }
  if (sorted || k <= 1 || k == static_cast<int64_t>(order.size())) {
    std::partial_sort(first, first + k, order.end(), before);
    return;
  }
  std::make_heap(first, first + k + 1, before);
  std::pop_heap(first, first + k + 1, before);
  for (auto i = static_cast<int32_t>(k) + 1; i < static_cast<int32_t>(order.size()); ++i) {
    if (!before(i, *first)) continue;
    std::pop_heap(first, first + k, before);
    first[k - 1] = i;
    std::push_heap(first, first + k, before);
  }
}

/// The k first of each row of n elements, and their indices.
template <class T> void top(const T* in, int64_t rows, int64_t n, int64_t k, bool sorted, T* values, int32_t* indices) {
  std::vector<int32_t> order(static_cast<size_t>(rows > 0 ? n : 0));
  std::vector<SortKey<T>> keys;
  for (int64_t r = 0; r < rows; ++r, in += n) {
    if constexpr (std::is_same_v<T, SortKey<T>>) {
      sort_first(in, k, sorted, order);
    } else {
      keys.resize(order.size());
      std::transform(in, in + n, keys.begin(), widen<T>);
      sort_first(keys.data(), k, sorted, order);
    }
    for (int64_t i = 0; i < k; ++i) *values++ = in[order[i]];
    indices = std::copy_n(order.begin(), k, indices);
  }
}

class TopK final : public ComputeKernel {
 public:
  explicit TopK(const KernelInit& init)
      : k_attr_(init.attrs->get_or<int64_t>("k", 0)), sorted_(init.attrs->get_or("sorted", true)),
        index_(init.output_dtypes[1]) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const int64_t k, rank_asked(c, k_attr_, 1));
    TROUPE_ASSIGN(const Shape shape, top_shape(x.shape(), k));
    TROUPE_ASSIGN(Tensor values, c.allocate(x.dtype(), shape));
    TROUPE_ASSIGN(Tensor indices, c.allocate(index_, shape));
    const int64_t n = x.dim(-1), rows = n > 0 ? x.elements() / n : 0;
    std::vector<int32_t> order(static_cast<size_t>(rows * k));
    with_type(x.dtype(), NumberTypes{},
              [&]<class T>() { top(x.data<T>(), rows, n, k, sorted_, values.mutable_data<T>(), order.data()); });
    with_type(index_, TopKIndices{}, [&]<class I>() {
      std::ranges::transform(order, indices.mutable_data<I>(), [](int32_t i) { return static_cast<I>(i); });
    });
    c.set_output(0, std::move(values));
    c.set_output(1, std::move(indices));
    return {};
  }

 private:
  const int64_t k_attr_;
  const bool sorted_;
  const DType index_;
};

Status top_k_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape x, c.with_rank_at_least(0, 1));
  std::optional<int64_t> k;
  if (c.num_inputs() == 1) {
    k = c.attr<int64_t>("k");
  } else {
    TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
    if (const auto constant = c.constant_input(1)) {
      TROUPE_ASSIGN(k, int_scalar(*constant, "k"));
    }
  }
  if (!x.has_rank()) return {};
  if (k && (*k < 0 || (x.dim(-1) >= 0 && *k > x.dim(-1))))
    return invalid_argument("the top {} of shape {}", *k, x.str());
  x.set(x.rank() - 1, k.value_or(-1));
  c.set_output(0, x);
  c.set_output(1, x);
  return {};
}

/// dy scattered to where the values came from: a one-hot row for each, summed.
Status top_k_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0);
  if (!dy) return {};
  if (!x.shape().has_rank())
    return invalid_argument("the gradient needs the rank of the input, whose shape is {}", x.shape().str());
  const int last = x.shape().rank() - 1;
  c.set_dx(0, gather_gradient(c, x, int32_or_int64(c, c.output(1)), dy, last, last));
  return {};
}

class InTopK final : public ComputeKernel {
 public:
  explicit InTopK(const KernelInit& init) : k_attr_(init.attrs->get_or<int64_t>("k", 0)) {}
  Status compute(KernelContext& c) override {
    const Tensor &predictions = c.input(0), &targets = c.input(1);
    TROUPE_ASSIGN(const int64_t k, rank_asked(c, k_attr_, 2));
    TROUPE_RETURN_IF_ERROR(check_in_top(predictions.shape(), targets.shape()));
    TROUPE_ASSIGN(const std::vector<int64_t> wanted, int_values(targets, "targets"));
    const int64_t rows = predictions.shape()[0], classes = predictions.shape()[1];
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kBool, Shape{rows}));
    for (int64_t r = 0; r < rows; ++r) {
      const float* p = predictions.data<float>() + r * classes;
      const int64_t target = wanted[r];
      bool in = target >= 0 && target < classes && std::isfinite(p[target]);
      int64_t better = 0;
      for (int64_t j = 0; j < classes && in; ++j) {
        in = std::isfinite(p[j]);
        better += p[j] > p[target];
      }
      y.mutable_data<bool>()[r] = in && better < k;
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const int64_t k_attr_;
};

Status in_top_k_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape predictions, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape targets, c.with_rank(1, 1));
  TROUPE_ASSIGN(PartialShape rows, PartialShape::merge(PartialShape{predictions[0]}, targets));
  c.set_output(0, rows);
  return {};
}

}  // namespace

void register_top_k_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("OneHot")
              .input("indices: TI")
              .input("depth: int32")
              .input("on_value: T")
              .input("off_value: T")
              .output("output: T")
              .attr("axis: int = -1")
              .attr("T: type")
              .attr(type_attr("TI", OneHotIndices{}, "int64"))
              .shape(one_hot_shape)
              .cost(move_cost)
              .doc("For each index a row of `depth` values: on_value at the index, off_value "
                   "elsewhere; all off_value where the index is out of range."),
          not_differentiable("it is constant in indices"));
  kernels.add<OneHot>("OneHot", DeviceKind::kCpu, {{"TI", OneHotIndices::dtypes()}});
  for (const bool v2 : {false, true}) {
    OpDef op(v2 ? "TopKV2" : "TopK");
    op.input("input: T");
    if (v2) op.input("k: Tk");
    op.output("values: T").output(v2 ? "indices: index_type" : "indices: int32");
    if (!v2) op.attr("k: int >= 0");
    op.attr("sorted: bool = true").attr(type_attr("T", NumberTypes{}));
    if (v2) op.attr(type_attr("Tk", TopKIndices{}, "int32")).attr(type_attr("index_type", TopKIndices{}, "int32"));
    op.shape(top_k_shape)
        .doc(
            "The k largest of the last dimension, largest first, and their indices; the smaller index first where "
            "equal. Without sorted, on CPUs, in the order in which TensorFlow has them.");
    const std::string name = op.name();
    ops.add(std::move(op), gradient(top_k_gradient));
    kernels.add<TopK>(name, DeviceKind::kCpu, {{"T", NumberTypes::dtypes()}});
  }
  const std::string targets = type_attr("T", IndexTypes{}, "int32");
  ops.add(OpDef("InTopK")
              .input("predictions: float32")
              .input("targets: T")
              .output("precision: bool")
              .attr("k: int")
              .attr(targets)
              .shape(in_top_k_shape)
              .doc("Whether the target's prediction is among the k largest of its row."),
          not_differentiable("its result is boolean"));
  ops.add(OpDef("InTopKV2")
              .input("predictions: float32")
              .input("targets: T")
              .input("k: T")
              .output("precision: bool")
              .attr(targets)
              .shape(in_top_k_shape)
              .doc("Whether the target's prediction is among the k largest of its row."),
          not_differentiable("its result is boolean"));
  for (const char* name : {"InTopK", "InTopKV2"})
    kernels.add<InTopK>(name, DeviceKind::kCpu, {{"T", IndexTypes::dtypes()}});
}

}  // namespace troupe
