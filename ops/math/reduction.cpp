// SPDX-License-Identifier: Apache-2.0
// Reductions: Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm, L2Loss, ArgMax, ArgMin.
#include <algorithm>
#include <type_traits>

#include "devices/parallel.h"
#include "ops/math/reduce_loops.h"
#include "ops/math/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/reducers.h"

namespace troupe {
namespace {

using namespace reducers;

template <class R> void init(void* acc, int64_t n) {
  std::fill_n(static_cast<typename R::Accumulator*>(acc), n, R::nothing());
}
template <class R> void merge(void* acc, const void* other, int64_t n) {
  using A = typename R::Accumulator;
  A* a = static_cast<A*>(acc);
  const A* b = static_cast<const A*>(other);
  for (int64_t i = 0; i < n; ++i) a[i] = R::merge(a[i], b[i]);
}
template <class R, class T> void run(void* acc, const void* in, int64_t n) {
  using A = typename R::Accumulator;
  const T* x = static_cast<const T*>(in);
  constexpr int kLanes = 16;
  A lanes[kLanes];
  std::fill_n(lanes, kLanes, R::nothing());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lanes[j] = R::take(lanes[j], x[i + j]);
  for (; i < n; ++i) lanes[0] = R::take(lanes[0], x[i]);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] = R::merge(lanes[j], lanes[j + width]);
  *static_cast<A*>(acc) = R::merge(*static_cast<A*>(acc), lanes[0]);
}
template <class R, class T> void rows(void* acc, const void* in, int64_t n) {
  auto* a = static_cast<typename R::Accumulator*>(acc);
  const T* x = static_cast<const T*>(in);
  for (int64_t i = 0; i < n; ++i) a[i] = R::take(a[i], x[i]);
}
template <class R, class A, class T> void finish(void* out, const void* acc, int64_t n, int64_t count) {
  for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[i] = R::finish(static_cast<const A*>(acc)[i], count);
}

/// What init, run, merge and finish make of each of `count` lines, in one loop without calls.
template <class R, class T> void lines(void* out, const void* in, int64_t count, int64_t n) {
  using A = typename R::Accumulator;
  for (int64_t i = 0; i < count; ++i) {
    A acc = R::Join::nothing(), block = R::Join::nothing();
    run<typename R::Start, T>(&block, static_cast<const T*>(in) + i * n, n);
    acc = R::Join::merge(acc, block);
    finish<typename R::End, A, T>(static_cast<T*>(out) + i, &acc, 1, n);
  }
}

template <class R, class T> ReduceLoops loops_of() {
  using A = typename R::Accumulator;
  static_assert(sizeof(A) <= sizeof(AccumulatorRoom));
  return {sizeof(A),
          init<typename R::Join>,
          run<typename R::Start, T>,
          rows<typename R::Start, T>,
          merge<typename R::Join>,
          finish<typename R::End, A, T>,
          lines<R, T>};
}

void add_kernel(KernelRegistry& kernels, const char* op, DType dtype, const ReduceLoops& loops, bool all) {
  kernels.add(op, DeviceKind::kCpu, "T", dtype, [=](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
    return std::unique_ptr<ComputeKernel>(new ReduceKernel(loops, init.attrs->get_or<bool>("keep_dims", false), all));
  });
}
template <template <class> class R, class... T>
void add_kernels(KernelRegistry& kernels, const char* op, TypeList<T...>, bool all = false) {
  (add_kernel(kernels, op, dtype_of<T>, loops_of<R<T>, T>(), all), ...);
}

Status reduce_shape(ShapeContext& c) {
  const bool keep = c.attr<bool>("keep_dims");
  const PartialShape& x = c.input(0);
  if (c.input(1).has_rank() && c.input(1).rank() > 1)
    return invalid_argument("axes must be a scalar or a vector, not {}", c.input(1).str());
  if (!x.has_rank()) return {};
  const auto axes = c.constant_input(1);
  if (!axes) {
    if (keep) c.set_output(0, PartialShape::of_rank(x.rank()));
    return {};
  }
  TROUPE_ASSIGN(const auto reduced, reduced_axes(*axes, x.rank()));
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i < x.rank(); ++i) {
    if (!reduced[i]) out.push_back(x[i]);
    else if (keep) out.push_back(1);
  }
  c.set_output(0, out);
  return {};
}

// --- gradients ---

/// The axes of a reduction where they are constant and the input's rank is known.
std::optional<std::array<bool, kMaxRank>> constant_axes(GradientContext& c) {
  const Node& axes = *c.input(1).node;
  const Tensor* value = axes.op().name() == "Const" ? axes.attrs().get<Tensor>("value") : nullptr;
  if (!value || !c.input(0).shape().has_rank()) return {};
  const auto reduced = reduced_axes(*value, c.input(0).shape().rank());
  return reduced.ok() ? std::optional(*reduced) : std::nullopt;
}

/// g, of the reduction's shape, with the reduced dimensions as 1.
Output kept(GradientContext& c, Output g) {
  if (c.node().attrs().get_or<bool>("keep_dims", false)) return g;
  const Output x = c.input(0);
  if (const auto reduced = constant_axes(c)) {
    const int rank = x.shape().rank();
    std::vector<int64_t> sizes;
    for (int i = 0; i < rank; ++i) sizes.push_back((*reduced)[i] ? 1 : x.shape()[i]);
    if (std::ranges::count(sizes, -1) <= 1) return c.op("Reshape", {g, int_vector(c, sizes)});
    for (int i = 0; i < rank; ++i)
      if ((*reduced)[i]) g = c.op("ExpandDims", {g, c.constant(Tensor::scalar<int32_t>(i))});
    return g;
  }
  const Output again = c.op(c.node().op().name(), {x, c.input(1)}, {{"keep_dims", true}});
  return c.op("Reshape", {g, c.op("Shape", {again})});
}

Output spread(GradientContext& c, Output g) { return c.op("BroadcastTo", {kept(c, g), sizes_of(c, c.input(0))}); }

Status sum_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, spread(c, c.dy(0)));
  return {};
}

Status mean_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0);
  if (!dy) return {};
  const PartialShape &in = x.shape(), &out = c.output(0).shape();
  Output count;
  if (in.fully_known() && out.fully_known()) {
    const int64_t results = std::max<int64_t>(out.shape().elements(), 1);
    count = scalar_like(c, dy.dtype(), static_cast<double>(in.shape().elements() / results));
  } else {
    const Output results = c.op("Maximum", {c.op("Size", {c.output(0)}), c.constant(Tensor::scalar<int32_t>(1))});
    count = c.op("Cast", {c.op("FloorDiv", {c.op("Size", {x}), results})}, {{"DstT", dy.dtype()}});
  }
  c.set_dx(0, spread(c, c.op("RealDiv", {dy, count})));
  return {};
}

/// Shares the gradient among the elements that equal the result.
Status extreme_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0);
  if (!dy) return {};
  const Output hits = c.op("Cast", {c.op("Equal", {kept(c, c.output(0)), x})}, {{"DstT", dy.dtype()}});
  const Output count = c.op("Sum", {hits, c.input(1)}, {{"keep_dims", true}});
  c.set_dx(0, c.op("Mul", {c.op("RealDiv", {hits, count}), kept(c, dy)}));
  return {};
}

/// The product of the others, also where factors are zero: with one zero only that one has a gradient, with more none.
Status prod_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0), axes = c.input(1);
  if (!dy) return {};
  const Output zero = scalar_like(c, x.dtype(), 0), one = scalar_like(c, x.dtype(), 1);
  const Output is_zero = c.op("Equal", {x, zero});
  const Output zeros = c.op("Sum", {c.op("Cast", {is_zero}, {{"DstT", x.dtype()}}), axes}, {{"keep_dims", true}});
  const Output safe = c.op("SelectV2", {is_zero, one, x});
  const Output product = c.op("Prod", {safe, axes}, {{"keep_dims", true}});
  const Output at_zero = c.op("SelectV2", {c.op("Equal", {zeros, one}), product, zero});
  const Output elsewhere = c.op("SelectV2", {c.op("Equal", {zeros, zero}), c.op("RealDiv", {product, safe}), zero});
  c.set_dx(0, c.op("Mul", {kept(c, dy), conj(c, c.op("SelectV2", {is_zero, at_zero, elsewhere}))}));
  return {};
}

Status norm_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  c.set_dx(0, c.op("Mul", {c.input(0), kept(c, c.op("RealDiv", {c.dy(0), c.output(0)}))}));
  return {};
}

// --- arg-max ---

using ArgTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                          uint32_t, uint64_t, bool>;
using ArgMaxResults = TypeList<int16_t, uint16_t, int32_t, int64_t>;

/// The index of the largest or smallest of n elements, `inner` apart. A NaN, wherever it is, is none of them; of NaN
/// alone it is 0.
template <class T, bool max> int64_t arg_extreme(const T* at, int64_t n, int64_t inner) {
  using Join = std::conditional_t<max, Largest<Arithmetic<T>>, Smallest<Arithmetic<T>>>;
  auto best = widen(*at);
  if (best != best) best = Join::nothing();
  int64_t where = 0;
  for (int64_t k = 1; k < n; ++k) {
    const auto v = widen(at[k * inner]);
    if (max ? v > best : v < best) {
      best = v;
      where = k;
    }
  }
  return where;
}

class ArgKernel final : public ComputeKernel {
 public:
  explicit ArgKernel(const KernelInit& init) : max_(init.op == "ArgMax"), out_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto axes, arg_axes(x.shape(), c.input(1)));
    const int axis = static_cast<int>(std::ranges::find(axes, true) - axes.begin());
    TROUPE_ASSIGN(Tensor found, c.allocate(DType::kInt64, reduced_shape(x.shape(), axes, false)));
    int64_t outer = 1, inner = 1;
    const int64_t n = x.shape()[axis];
    for (int i = 0; i < axis; ++i) outer *= x.shape()[i];
    for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape()[i];
    int64_t* out = found.mutable_data<int64_t>();
    parallel_for(c.threads(), outer * inner, std::max<int64_t>(kCheapGrain / n, 1), [&](int64_t begin, int64_t end) {
      with_type(x.dtype(), ArgTypes{}, [&]<class T>() {
        const auto extreme = max_ ? arg_extreme<T, true> : arg_extreme<T, false>;
        const T* in = x.data<T>();
        for (int64_t u = begin; u < end; ++u) out[u] = extreme(in + u / inner * n * inner + u % inner, n, inner);
      });
    });
    TROUPE_ASSIGN(Tensor y, out_ == DType::kInt64 ? Result<Tensor>(found) : c.allocate(out_, found.shape()));
    if (out_ != DType::kInt64)
      with_type(out_, ArgMaxResults{}, [&]<class I>() {
        std::ranges::transform(found.values<int64_t>(), y.mutable_data<I>(),
                               [](int64_t i) { return static_cast<I>(i); });
      });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool max_;
  const DType out_;
};

Status arg_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  if (!x.has_rank()) return {};
  const auto axis = c.constant_input(1);
  if (!axis) {
    c.set_output(0, PartialShape::of_rank(x.rank() - 1));
    return {};
  }
  TROUPE_ASSIGN(const auto reduced, reduced_axes(*axis, x.rank()));
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i < x.rank(); ++i)
    if (!reduced[i]) out.push_back(x[i]);
  c.set_output(0, out);
  return {};
}

OpDef reduction(const char* name, const std::vector<DType>& types, const char* doc) {
  return OpDef(name)
      .input("input: T")
      .input("reduction_indices: Tidx")
      .output("output: T")
      .attr("keep_dims: bool = false")
      .attr(type_attr("T", types))
      .attr(type_attr("Tidx", IndexTypes{}, "int32"))
      .shape(reduce_shape)
      .cost(reduction_cost)
      .doc(std::string(doc) +
           " Over the dimensions in reduction_indices, where negative ones count from the end; they "
           "are dropped, or stay with size 1 if keep_dims.");
}

}  // namespace

void register_reduction_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const NumberOrComplexTypes all;
  const NumberTypes numbers;
  ops.add(reduction("Sum", all.dtypes(), "The sum."), gradient(sum_gradient));
  ops.add(reduction("Mean", all.dtypes(),
                    "The mean; of integers truncated. Of nothing NaN, but 0 of integers and complex numbers."),
          gradient(mean_gradient));
  ops.add(reduction("Prod", all.dtypes(), "The product."), gradient(prod_gradient));
  ops.add(reduction("Max", numbers.dtypes(), "The largest; NaN where one is; of nothing the smallest there is."),
          gradient(extreme_gradient));
  ops.add(reduction("Min", numbers.dtypes(), "The smallest; NaN where one is; of nothing the largest there is."),
          gradient(extreme_gradient));
  ops.add(reduction("EuclideanNorm", all.dtypes(),
                    "The square root of the sum of squares, of complex numbers of magnitudes."),
          gradient(norm_gradient));
  add_kernels<Sum>(kernels, "Sum", all);
  add_kernels<Mean>(kernels, "Mean", all);
  add_kernels<Prod>(kernels, "Prod", all);
  add_kernels<Max>(kernels, "Max", numbers);
  add_kernels<Min>(kernels, "Min", numbers);
  add_kernels<EuclideanNorm>(kernels, "EuclideanNorm", all);
  for (const char* op : {"All", "Any"})
    ops.add(OpDef(op)
                .input("input: bool")
                .input("reduction_indices: Tidx")
                .output("output: bool")
                .attr("keep_dims: bool = false")
                .attr(type_attr("Tidx", IndexTypes{}, "int32"))
                .shape(reduce_shape)
                .cost(reduction_cost)
                .doc(std::string(op[1] == 'l' ? "Whether all are true" : "Whether any is true") +
                     ", over the dimensions in reduction_indices."),
            not_differentiable("its result is boolean"));
  add_kernels<All>(kernels, "All", TypeList<bool>{});
  add_kernels<Any>(kernels, "Any", TypeList<bool>{});
  ops.add(OpDef("L2Loss")
              .input("t: T")
              .output("output: T")
              .attr(type_attr("T", FloatTypes{}))
              .shape(scalar_shape)
              .cost(reduction_cost)
              .doc("Half the sum of squares."),
          gradient([](GradientContext& c) -> Status {
            if (c.dy(0)) c.set_dx(0, c.op("Mul", {c.input(0), c.dy(0)}));
            return {};
          }));
  add_kernels<HalfSquares>(kernels, "L2Loss", FloatTypes{}, true);
  for (const char* op : {"ArgMax", "ArgMin"}) {
    const bool max = std::string_view(op) == "ArgMax";
    ops.add(OpDef(op)
                .input("input: T")
                .input("dimension: Tidx")
                .output("output: output_type")
                .attr(type_attr("T", ArgTypes{}))
                .attr(max ? type_attr("Tidx", TypeList<int16_t, int32_t, int64_t>{}, "int32")
                          : type_attr("Tidx", IndexTypes{}, "int32"))
                .attr(max ? type_attr("output_type", ArgMaxResults{}, "int64")
                          : type_attr("output_type", IndexTypes{}, "int64"))
                .shape(arg_shape)
                .cost(reduction_cost)
                .doc(std::string("The index of the ") + (max ? "largest" : "smallest") +
                     " element along a dimension; the first where several are equal. NaN counts as nothing."),
            not_differentiable("it gives indices"));
  }
  for (const char* op : {"ArgMax", "ArgMin"}) kernels.add<ArgKernel>(op, DeviceKind::kCpu, {});
}

}  // namespace troupe
