// SPDX-License-Identifier: Apache-2.0
// Normal numbers between bounds that differ from batch to batch: ParameterizedTruncatedNormal and its stateless form.
// The numbers are those that TensorFlow draws on one thread. Source: Robert, "Simulation of truncated normal
// variables", 1995.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "ops/parts/broadcast.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/draws.h"
#include "ops/random/register.h"
#include "ops/random/source.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using TruncatedTypes = TypeList<float, double, float16>;

/// How many numbers may be refused one after the other.
constexpr int kMostRefused = 1000;
/// The most samples of a batch where all batches have the same parameters.
constexpr int64_t kBatch = 100;

/// What numbers of T are computed in: as TensorFlow, halves in halves.
template <class T> using Computing = std::conditional_t<std::is_same_v<T, float16>, Eigen::half, T>;

template <class A> auto uniform_numbers(const Philox::Block& w) {
  if constexpr (std::is_same_v<A, Eigen::half>) {
    std::array<A, 4> out;
    std::ranges::transform(w, out.begin(), [](uint32_t x) { return A(static_cast<float>(x & 0x3ff) * 0x1p-10f); });
    return out;
  } else {
    return uniforms<A>(w);
  }
}
template <class A> auto normal_numbers(const Philox::Block& w) {
  if constexpr (std::is_same_v<A, Eigen::half>) {
    std::array<A, 4> out;
    std::ranges::transform(normals<float>(w), out.begin(), [](float x) { return A(x); });
    return out;
  } else {
    return normals<A>(w);
  }
}

template <class A> struct TruncatedParameters {
  A mean, deviation, least, most;
  Status check() const {
    if (deviation > A(0) && least < most && ((Eigen::numext::isfinite)(least) || (Eigen::numext::isfinite)(most)))
      return {};
    return invalid_argument(
        "the standard deviation {} must be above 0, minval {} below maxval {}, and one of the two finite",
        static_cast<double>(deviation), static_cast<double>(least), static_cast<double>(most));
  }
};

/// Draws from one generator, whole blocks at a time.
template <class A> class TruncatedDraws {
 public:
  explicit TruncatedDraws(const Philox& random) : random_(random) {}

  /// Sets out[0], out[stride], ..., `count` of them. Errors: parameters that fit no distribution; bounds between which
  /// no number came.
  template <class T> Status draw(TruncatedParameters<A> p, T* out, int64_t count, int64_t stride) {
    TROUPE_RETURN_IF_ERROR(p.check());
    if (((Eigen::numext::isinf)(p.least) && p.least < A(0)) || p.most < p.mean) {  // the finite bound becomes the lower
      std::swap(p.least, p.most);
      p.deviation = -p.deviation;
    }
    low_ = (p.least - p.mean) / p.deviation;
    high_ = (p.most - p.mean) / p.deviation;
    refused_ = 0;
    const auto take = [&](A z) {
      *out = std::bit_cast<T>(A(z * p.deviation + p.mean));
      out += stride;
      refused_ = 0;
      return --count > 0;
    };
    const A wide = A(1.3), root = Eigen::numext::sqrt(low_ * low_ + A(4)), width = high_ - low_;
    const A cutoff = A(2) * Eigen::numext::exp(A(0.5) + low_ * (low_ - root) / A(4)) / (low_ + root);
    const bool around = (low_ < -wide && high_ >= A(0)) || (high_ > wide && low_ <= A(0));
    const bool drawn = around ? by_normal(take) : width < cutoff ? by_uniform(width, take) : by_exponential(root, take);
    if (drawn) return {};
    return make_error(Code::kInternal, "{} numbers in a row did not lie between minval {} and maxval {}", kMostRefused,
                      static_cast<double>(p.least), static_cast<double>(p.most));
  }

 private:
  // Each calls take(z) for standard numbers between the bounds until it returns false; false: too many were refused.

  template <class Take> bool by_normal(const Take& take) {
    for (;;)
      for (const A z : normal_numbers<A>(random_(block_++))) {
        if (z >= low_ && z <= high_) {
          if (!take(z)) return true;
        } else if (++refused_ > kMostRefused) {
          return false;
        }
      }
  }
  template <class Take> bool by_uniform(A width, const Take& take) {
    const A peak = low_ < A(0) ? A(0) : low_ * low_;
    for (;;) {
      const auto z = uniform_numbers<A>(random_(block_++)), u = uniform_numbers<A>(random_(block_++));
      for (size_t i = 0; i < z.size(); ++i) {
        const A at = z[i] * width + low_;
        if (u[i] <= Eigen::numext::exp((peak - at * at) / A(2))) {
          if (!take(at)) return true;
        } else if (++refused_ >= kMostRefused) {
          return false;
        }
      }
    }
  }
  template <class Take> bool by_exponential(A root, const Take& take) {
    const A rate = (low_ + root) / A(2);
    for (;;) {
      const auto u = uniform_numbers<A>(random_(block_++));
      for (size_t i = 0; i < u.size(); i += 2) {
        const A z = -Eigen::numext::log(u[i]) / rate + low_;
        const A x = low_ < rate ? rate - z : low_ - rate;
        if (u[i + 1] <= Eigen::numext::exp(-x * x / A(2)) && z < high_) {
          if (!take(z)) return true;
        } else if (++refused_ >= kMostRefused) {
          return false;
        }
      }
    }
  }

  const Philox random_;
  uint64_t block_ = 0;
  A low_{}, high_{};
  int refused_ = 0;
};

/// The parameters at these places of the four inputs from `first` on.
template <class A>
TruncatedParameters<A> parameters(const KernelContext& c, int first, const std::array<int64_t, 4>& at) {
  const auto value = [&](int i) { return static_cast<const A*>(c.input(first + i).raw())[at[static_cast<size_t>(i)]]; };
  return {value(0), value(1), value(2), value(3)};
}

/// A result of batches: those of the first dimension with parameters each, or any where all have the same.
class StatefulTruncated final : public ComputeKernel {
 public:
  explicit StatefulTruncated(const KernelInit& init) : source_(init) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(0), "shape"));
    const int64_t n = shape.elements();
    int64_t batches = shape.rank() ? shape[0] : 1, each = batches ? n / batches : 0;
    bool same = true;
    for (int i = 1; i <= 4; ++i) {
      const Tensor& p = c.input(i);
      same &= i < 3 ? p.elements() == 1 : p.rank() == 0;
      if (p.rank() > 1 || (p.elements() != 1 && p.elements() != batches))
        return invalid_argument("{} of shape {} is neither one number nor one for each of {} batches",
                                std::array{"means", "stdevs", "minvals", "maxvals"}[static_cast<size_t>(i - 1)],
                                p.shape().str(), batches);
    }
    if (same) {
      each = kBatch;
      batches = (n + kBatch - 1) / kBatch;
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(c.input(1).dtype(), shape));
    TROUPE_ASSIGN(const Philox random, source_.next(c, batches * 2 * kMostRefused * (each + 3) / 4));
    Status status;
    with_type(y.dtype(), TruncatedTypes{}, [&]<class T>() {
      using A = Computing<T>;
      TruncatedDraws<A> draws(random);
      for (int64_t b = 0; b < batches && each > 0 && status.ok(); ++b) {
        std::array<int64_t, 4> at{};
        for (int i = 0; i < 4; ++i) at[static_cast<size_t>(i)] = c.input(1 + i).elements() == 1 ? 0 : b;
        status = draws.draw(parameters<A>(c, 1, at), y.mutable_data<T>() + b * each, std::min(each, n - b * each), 1);
      }
    });
    TROUPE_RETURN_IF_ERROR(status);
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  RandomSource source_;
};

/// A result [samples..., batches...], where the batches are what the parameters broadcast to.
class StatelessTruncated final : public ComputeKernel {
 public:
  explicit StatelessTruncated(const KernelInit& init) : source_(init) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(0), "shape"));
    Shape own = c.input(2).shape();
    for (int i = 3; i <= 5; ++i) {
      TROUPE_ASSIGN(const Broadcast both, plan_broadcast(own, c.input(i).shape()));
      own = both.shape;
    }
    if (own.rank() > shape.rank() ||
        !std::ranges::equal(shape.dims().last(static_cast<size_t>(own.rank())), own.dims()))
      return invalid_argument("shape {} does not end with {}, that of the parameters", shape.str(), own.str());
    const int64_t batches = own.elements(), samples = batches ? shape.elements() / batches : 0;
    TROUPE_ASSIGN(Tensor y, c.allocate(c.input(2).dtype(), shape));
    TROUPE_ASSIGN(const Philox random, source_.next(c, 0));
    Status status;
    with_type(y.dtype(), TruncatedTypes{}, [&]<class T>() {
      using A = Computing<T>;
      TruncatedDraws<A> draws(random);
      for (int64_t b = 0; b < batches && samples > 0 && status.ok(); ++b) {
        std::array<int64_t, 4> at{};
        for (int i = 0; i < 4; ++i) at[static_cast<size_t>(i)] = place(c.input(2 + i).shape(), own, b);
        status = draws.draw(parameters<A>(c, 2, at), y.mutable_data<T>() + b, samples, batches);
      }
    });
    TROUPE_RETURN_IF_ERROR(status);
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// Where in a tensor of shape x its element for element `at` of the broadcast shape is.
  static int64_t place(const Shape& x, const Shape& broadcast, int64_t at) {
    int64_t out = 0, step = 1;
    for (int d = 1; d <= x.rank(); ++d) {
      const int64_t size = broadcast.dim(-d);
      if (x.dim(-d) != 1) out += at % size * step;
      at /= size;
      step *= x.dim(-d);
    }
    return out;
  }

  RandomSource source_;
};

// -- gradient ---------------------------------------------------------------------------------------------------------

/// The share of a standard normal distribution below x.
Output normal_below(GradientContext& c, Output x) {
  const auto number = [&](double v) { return scalar_like(c, x.dtype(), v); };
  const Output w = c.op("Mul", {x, number(std::numbers::sqrt2 / 2)}), size = c.op("Abs", {w});
  const Output rest = c.op("Erfc", {size});
  const Output far = c.op("SelectV2", {c.op("Greater", {w, number(0)}), c.op("Sub", {number(2), rest}), rest});
  const Output near = c.op("Add", {number(1), c.op("Erf", {w})});
  const Output chosen = c.op("SelectV2", {c.op("Less", {size, number(std::numbers::sqrt2 / 2)}), near, far});
  return c.op("Mul", {number(0.5), chosen});
}

/// How a sample changes with the parameters at its place among the numbers between the bounds (Figurnov et al.,
/// "Implicit reparameterization gradients", 2018).
Status truncated_gradient(GradientContext& c) {
  const Output dy = c.dy(0), mean = c.input(2), deviation = c.input(3), sample = c.output(0);
  if (!dy) return {};
  const DType dtype = sample.dtype();
  const auto number = [&](double v) { return scalar_like(c, dtype, v); };
  const auto standard = [&](Output x) { return c.op("RealDiv", {c.op("Sub", {x, mean}), deviation}); };
  const Output low = standard(c.input(4)), high = standard(c.input(5)), z = standard(sample);
  const Output from = normal_below(c, low);
  const Output share =
      c.op("RealDiv", {c.op("Sub", {normal_below(c, z), from}), c.op("Sub", {normal_below(c, high), from})});
  const bool half = dtype == DType::kFloat16, wide = dtype == DType::kFloat64;
  const double tiny = half ? 0x1p-14 : wide ? 0x1p-1022 : 0x1p-126, step = half ? 0x1p-10 : wide ? 0x1p-52 : 0x1p-23;
  const Output inside = c.op("ClipByValue", {share, number(tiny), number(1 - step)});
  const auto by_bound = [&](Output bound, Output log) {
    const Output apart = c.op("Sub", {c.op("Square", {z}), c.op("Square", {bound})});
    return c.op("Exp", {c.op("Add", {c.op("Mul", {number(0.5), apart}), log})});
  };
  const auto set = [&](int i, Output g) { c.set_dx(i, sum_to(c, g, c.input(i), sample)); };
  set(2, dy);
  set(3, c.op("Mul", {dy, z}));
  set(4, c.op("Mul", {dy, by_bound(low, c.op("Log1p", {c.op("Neg", {inside})}))}));
  set(5, c.op("Mul", {dy, by_bound(high, c.op("Log", {inside}))}));
  return {};
}

}  // namespace

void register_random_truncated_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string what =
      "Normal numbers between minvals and maxvals, of which one may be infinite. Errors: a standard deviation that is "
      "not above 0, bounds without a number between them. ";
  for (const bool stateful : {true, false}) {
    const std::string name = std::string(stateful ? "" : "Stateless") + "ParameterizedTruncatedNormal";
    const RandomForm form = stateful ? RandomForm::kStateful : RandomForm::kSeed;
    const std::string index = stateful ? "T" : "S";
    OpDef op(name);
    op.input("shape: " + index);
    add_random_inputs(op, form);
    op.input("means: dtype")
        .input(stateful ? "stdevs: dtype" : "stddevs: dtype")
        .input("minvals: dtype")
        .input("maxvals: dtype")
        .output("output: dtype")
        .attr(type_attr(index, IndexTypes{}, stateful ? "" : "int32"))
        .attr(type_attr("dtype", TruncatedTypes{}, stateful ? "" : "float32"))
        .shape(shape_of_input)
        .doc(what +
             (stateful ? "Each parameter is one number or has one for each row of the result."
                       : "`shape` ends with the shape that the parameters broadcast to.") +
             random_doc(form));
    if (stateful) ops.add(std::move(op), not_differentiable(kRandom));
    else ops.add(std::move(op), gradient(truncated_gradient));
  }
  kernels.add<StatefulTruncated>("ParameterizedTruncatedNormal", DeviceKind::kCpu, {});
  kernels.add<StatelessTruncated>("StatelessParameterizedTruncatedNormal", DeviceKind::kCpu, {});
}

}  // namespace troupe
