// SPDX-License-Identifier: Apache-2.0
// Running totals along one axis: Cumsum, Cumprod, CumulativeLogsumexp.
#include "ops/math/scan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "devices/parallel.h"
#include "ops/math/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {

Result<ScanBox> plan_scan(const Shape& x, const Tensor& axis, const Attrs& attrs) {
  TROUPE_ASSIGN(const int along, axis_from(axis, x.rank()));
  ScanBox box;
  box.outer = sizes_product(x, 0, along);
  box.n = x[along];
  box.inner = sizes_product(x, along + 1, x.rank());
  box.exclusive = attrs.get_or<bool>("exclusive", false);
  box.reverse = attrs.get_or<bool>("reverse", false);
  return box;
}

namespace {

struct ScanLogSumExp {
  template <class A> static A nothing() { return -std::numeric_limits<A>::infinity(); }
  template <class A> static A join(A a, A b) {
    // As TensorFlow compares: a NaN of the input counts as the total so far, and two infinities are NaN.
    const A high = b > a ? b : a, low = b < a ? b : a;
    return high == nothing<A>() ? high : high + std::log1p(std::exp(low - high));
  }
};

/// Threads take blocks of columns.
template <class F, class T> void scan_box(const T* in, T* out, const ScanBox& box, int threads) {
  constexpr int64_t kBlock = 128;
  using A = Arithmetic<T>;
  const int64_t blocks = (box.inner + kBlock - 1) / kBlock, width = std::min(box.inner, kBlock);
  const int64_t grain = std::max<int64_t>(kCheapGrain / std::max<int64_t>(box.n * width, 1), 1);
  parallel_for(threads, box.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    A total[kBlock];
    for (int64_t u = begin; u < end; ++u) {
      const int64_t first = u % blocks * kBlock, columns = std::min(kBlock, box.inner - first);
      std::fill_n(total, columns, F::template nothing<A>());
      for (int64_t k = 0; k < box.n; ++k) {
        const int64_t row = u / blocks * box.n + (box.reverse ? box.n - 1 - k : k);
        const T* x = in + row * box.inner + first;
        T* y = out + row * box.inner + first;
        for (int64_t j = 0; j < columns; ++j) {
          const A joined = F::join(total[j], widen(x[j]));
          y[j] = narrow<T>(box.exclusive ? total[j] : joined);
          total[j] = joined;
        }
      }
    }
  });
}

template <class F, class Types> class Scan final : public ComputeKernel {
 public:
  explicit Scan(const KernelInit& init) : attrs_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const ScanBox box, plan_scan(x.shape(), c.input(1), attrs_));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    if (x.elements() > 0)
      with_type(x.dtype(), Types{},
                [&]<class T>() { scan_box<F, T>(x.data<T>(), y.mutable_data<T>(), box, c.threads()); });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Attrs attrs_;
};

Status scan_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  if (const auto axis = c.constant_input(1); axis && x.has_rank())
    TROUPE_RETURN_IF_ERROR(axis_from(*axis, x.rank()).status());
  c.set_output(0, x);
  return {};
}

/// The node's attributes, the other way round if asked.
Attrs direction(GradientContext& c, bool other) {
  const Attrs& attrs = c.node().attrs();
  return {{"exclusive", attrs.get_or<bool>("exclusive", false)},
          {"reverse", attrs.get_or<bool>("reverse", false) != other}};
}

Status cumsum_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op("Cumsum", {c.dy(0), c.input(1)}, direction(c, true)));
  return {};
}

/// Each product over the factor asked for, summed over the products it is in; 0 at factors of 0, as in TensorFlow.
Status cumprod_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output parts = c.op("Mul", {c.dy(0), conj(c, c.output(0))});
  c.set_dx(0, c.op("DivNoNan", {c.op("Cumsum", {parts, c.input(1)}, direction(c, true)), conj(c, c.input(0))}));
  return {};
}

/// exp(x) times the sum of dy exp(-y) from there on, positive and negative parts apart so that both have logarithms.
Status logsumexp_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0), y = c.output(0);
  if (!dy) return {};
  const Output zero = scalar_like(c, dy.dtype(), 0), one = scalar_like(c, dy.dtype(), 1);
  const Output least = scalar_like(c, dy.dtype(), dy.dtype() == DType::kFloat16 ? -65504 : -3e38);
  const auto part = [&](Output g) {
    const Output positive = c.op("Greater", {g, zero});
    const Output log = c.op("SelectV2", {positive, c.op("Log", {c.op("SelectV2", {positive, g, one})}), least});
    const Output total = c.op("CumulativeLogsumexp", {c.op("Sub", {log, y}), c.input(1)}, direction(c, true));
    return c.op("Exp", {c.op("AddV2", {total, x})});
  };
  c.set_dx(0, c.op("Sub", {part(dy), part(c.op("Neg", {dy}))}));
  return {};
}

template <class F, class... T>
void add_scan(OpRegistry& ops, KernelRegistry& kernels, const char* name, TypeList<T...> types, std::string doc,
              GradientFn by) {
  ops.add(OpDef(name)
              .input("x: T")
              .input("axis: Tidx")
              .output("out: T")
              .attr("exclusive: bool = false")
              .attr("reverse: bool = false")
              .attr(type_attr("T", types))
              .attr(type_attr("Tidx", IndexTypes{}, "int32"))
              .shape(scan_shape)
              .doc(std::move(doc) +
                   " From the end with reverse; without the element itself with exclusive, where the first is that of "
                   "nothing."),
          gradient(std::move(by)));
  kernels.add<Scan<F, TypeList<T...>>>(name, DeviceKind::kCpu, {{"T", TypeList<T...>::dtypes()}});
}

}  // namespace

void register_scan_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const NumberOrComplexTypes all;
  add_scan<ScanSum>(ops, kernels, "Cumsum", all, "Each element becomes the sum of those up to it along an axis.",
                    cumsum_gradient);
  add_scan<ScanProduct>(ops, kernels, "Cumprod", all,
                        "Each element becomes the product of those up to it along an axis.", cumprod_gradient);
  add_scan<ScanLogSumExp>(ops, kernels, "CumulativeLogsumexp", FloatTypes{},
                          "Each element becomes log(sum(exp)) of those up to it along an axis.", logsumexp_gradient);
}

}  // namespace troupe
