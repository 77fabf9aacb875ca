// SPDX-License-Identifier: Apache-2.0
// Local response normalisation over channels and its gradient. Source: Krizhevsky, Sutskever, Hinton, "ImageNet
// classification with deep convolutional neural networks", 2012.
#include "ops/nn/lrn.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "devices/parallel.h"
#include "ops/nn/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {

LrnParameters::LrnParameters(const KernelInit& init)
    : radius(std::max<int64_t>(init.attr<int64_t>("depth_radius"), 0)), bias(init.attr<float>("bias")),
      alpha(init.attr<float>("alpha")), beta(init.attr<float>("beta")) {}

Status check_lrn(const Shape& images) {
  if (images.rank() != 4) return invalid_argument("images must have 4 dimensions, not {}", images.str());
  return {};
}

Status check_lrn_gradient(const KernelContext& c) {
  const Shape &g = c.input(0).shape(), &x = c.input(1).shape(), &y = c.input(2).shape();
  TROUPE_RETURN_IF_ERROR(check_lrn(x));
  if (g != x || y != x) return invalid_argument("shapes {}, {} and {} differ", g.str(), x.str(), y.str());
  return {};
}

namespace {

struct LrnRows : LrnParameters {
  using LrnParameters::LrnParameters;

  /// sums[k] = x[k - radius] + ... + x[k + radius], as far as these exist. TensorFlow's forward sums are products with
  /// a matrix of ones and zeros, so that infinities and NaN reach `all` sums of their pixel.
  void window_sums(const float* x, int64_t n, double* sums, bool all) const {
    const int64_t r = std::min(radius, n);
    const auto wild = [](float v) { return !std::isfinite(v); };
    if (const int64_t everywhere = std::count_if(x, x + n, wild)) {
      for (int64_t k = 0; k < n; ++k) {
        const float *begin = x + std::max<int64_t>(k - r, 0), *end = x + std::min(k + r + 1, n);
        const bool beyond = all && std::count_if(begin, end, wild) < everywhere;
        sums[k] = beyond ? NAN : std::accumulate(begin, end, 0.0);
      }
      return;
    }
    double sum = 0;
    for (int64_t k = 0; k < r; ++k) sum += x[k];
    for (int64_t k = 0; k < n; ++k) {
      if (k + r < n) sum += x[k + r];
      if (k - r - 1 >= 0) sum -= x[k - r - 1];
      sums[k] = sum;
    }
  }
  /// bias + alpha * the sum of squares around each channel.
  void norms(const float* x, int64_t n, float* squares, double* out, bool all) const {
    for (int64_t k = 0; k < n; ++k) squares[k] = x[k] * x[k];
    window_sums(squares, n, out, all);
    for (int64_t k = 0; k < n; ++k) out[k] = bias + alpha * out[k];
  }
};

class Lrn final : public ComputeKernel {
 public:
  explicit Lrn(const KernelInit& init) : p_(init) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_RETURN_IF_ERROR(check_lrn(x.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    const int64_t n = x.dim(-1), rows = n > 0 ? x.elements() / n : 0;
    parallel_for(c.threads(), rows, kDearGrain / std::max<int64_t>(n, 1) + 1, [&](int64_t begin, int64_t end) {
      std::vector<float> squares(static_cast<size_t>(n));
      std::vector<double> norms(static_cast<size_t>(n));
      for (int64_t r = begin; r < end; ++r) {
        const float* in = x.data<float>() + r * n;
        float* out = y.mutable_data<float>() + r * n;
        p_.norms(in, n, squares.data(), norms.data(), true);
        for (int64_t k = 0; k < n; ++k) out[k] = in[k] * static_cast<float>(std::pow(norms[k], -p_.beta));
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const LrnRows p_;
};

/// With y = x / norm^beta: dx = dy / norm^beta - 2 alpha beta x * (the sum of dy * y / norm around).
class LrnGrad final : public ComputeKernel {
 public:
  explicit LrnGrad(const KernelInit& init) : p_(init) {}
  Status compute(KernelContext& c) override {
    const Tensor &g = c.input(0), &x = c.input(1), &y = c.input(2);
    TROUPE_RETURN_IF_ERROR(check_lrn_gradient(c));
    TROUPE_ASSIGN(Tensor dx, c.allocate(x.dtype(), x.shape()));
    const int64_t n = x.dim(-1), rows = n > 0 ? x.elements() / n : 0;
    parallel_for(c.threads(), rows, kDearGrain / std::max<int64_t>(n, 1) + 1, [&](int64_t begin, int64_t end) {
      std::vector<float> parts(static_cast<size_t>(n));
      std::vector<double> norms(static_cast<size_t>(n)), around(static_cast<size_t>(n));
      for (int64_t r = begin; r < end; ++r) {
        const float *in = x.data<float>() + r * n, *dy = g.data<float>() + r * n, *out = y.data<float>() + r * n;
        float* to = dx.mutable_data<float>() + r * n;
        p_.norms(in, n, parts.data(), norms.data(), false);
        for (int64_t k = 0; k < n; ++k) parts[k] = static_cast<float>(dy[k] * out[k] / norms[k]);
        p_.window_sums(parts.data(), n, around.data(), false);
        for (int64_t k = 0; k < n; ++k)
          to[k] =
              static_cast<float>(dy[k] * std::pow(norms[k], -p_.beta) - 2.0 * p_.alpha * p_.beta * in[k] * around[k]);
      }
    });
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const LrnRows p_;
};

OpDef with_lrn_attrs(OpDef op) {
  op.attr("depth_radius: int = 5").attr("bias: float = 1.0").attr("alpha: float = 1.0").attr("beta: float = 0.5");
  op.attr(type_attr("T", TypeList<float16, bfloat16, float>{}, "float32"));
  return op;
}

}  // namespace

void register_lrn_ops(OpRegistry& ops, KernelRegistry& kernels) {
  OpDef forward("LRN"), backward("LRNGrad");
  forward.input("input: T").output("output: T");
  ops.add(with_lrn_attrs(std::move(forward))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 4));
                c.set_output(0, x);
                return {};
              })
              .doc("Images over (bias + alpha * the sum of squares of depth_radius channels to both sides) ^ beta."),
          gradient([](GradientContext& c) -> Status {
            if (!c.dy(0)) return {};
            Attrs attrs;
            for (const char* name : {"depth_radius", "bias", "alpha", "beta"})
              attrs.set(name, *c.node().attrs().find(name));
            c.set_dx(0, c.op("LRNGrad", {c.dy(0), c.input(0), c.output(0)}, attrs));
            return {};
          }));
  backward.input("input_grads: T").input("input_image: T").input("output_image: T").output("output: T");
  ops.add(with_lrn_attrs(std::move(backward))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(PartialShape x, c.with_rank(0, 4));
                for (int i = 1; i < 3; ++i) {
                  TROUPE_ASSIGN(x, PartialShape::merge(x, c.input(i)));
                }
                c.set_output(0, x);
                return {};
              })
              .doc("The gradient of LRN by its input, from the gradient of its output."),
          undefined_gradient());
  kernels.add<Lrn>("LRN", DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
  kernels.add<LrnGrad>("LRNGrad", DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
  add_half_kernels<Lrn>(kernels, "LRN");
  add_half_kernels<LrnGrad>(kernels, "LRNGrad");
}

}  // namespace troupe
