// SPDX-License-Identifier: Apache-2.0
// Values as a network of few bits would round them: FakeQuantWithMinMaxArgs, ...Vars, ...VarsPerChannel, and their
// gradients, which pass where nothing was cut off. Source: Jacob et al., "Quantization and Training of Neural Networks
// for Efficient Integer-Arithmetic-Only Inference", 2018.
#include <cmath>

#include "devices/parallel.h"
#include "ops/parts/type_dispatch.h"
#include "ops/quantized/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// The steps of a range, moved so that zero is one of them.
struct Steps {
  float low = 0, high = 0, scale = 1;

  Steps(float min, float max, int64_t bits, bool narrow) {
    const float first = narrow ? 1.f : 0.f, last = static_cast<float>((int64_t{1} << bits) - 1);
    scale = (max - min) / (last - first);
    const float zero_at = first - min / scale;
    const float zero = zero_at < first ? first : zero_at > last ? last : std::round(zero_at);
    low = (first - zero) * scale;
    high = (last - zero) * scale;
  }
  float rounded(float x) const {
    const float inverse = 1.f / scale, zero = std::floor(-low * inverse + 0.5f);
    const float inside = std::min(std::max(x, low), high) - low;
    return std::floor(inside * inverse - zero + 0.5f) * scale;
  }
  bool holds(float x) const { return x >= low && x <= high; }
};

struct FakeQuantOptions {
  int64_t bits;
  bool narrow;
  explicit FakeQuantOptions(const KernelInit& init)
      : bits(init.attr<int64_t>("num_bits")), narrow(init.attr<bool>("narrow_range")) {}
};

Status check_bits(const Attrs& attrs) {
  const int64_t bits = *attrs.get<int64_t>("num_bits");
  if (bits < 2 || bits > 16) return invalid_argument("num_bits must be from 2 to 16, not {}", bits);
  return {};
}

// --- a range in attributes ---

class Args final : public ComputeKernel {
 public:
  explicit Args(const KernelInit& init)
      : options_(init), min_(init.attr<float>("min")), max_(init.attr<float>("max")),
        gradient_(init.input_dtypes.size() == 2) {}
  Status compute(KernelContext& c) override {
    if (!(min_ < max_)) return invalid_argument("min {} is not below max {}", min_, max_);
    const Tensor& x = c.input(c.num_inputs() - 1);
    if (c.input(0).shape() != x.shape())
      return invalid_argument("gradients {} and inputs {} differ", c.input(0).shape().str(), x.shape().str());
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    const Steps steps(min_, max_, options_.bits, options_.narrow);
    const float *in = x.data<float>(), *g = c.input(0).data<float>();
    float* out = y.mutable_data<float>();
    parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = !gradient_ ? steps.rounded(in[i]) : steps.holds(in[i]) ? g[i] : 0;
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const FakeQuantOptions options_;
  const float min_, max_;
  const bool gradient_;
};

// --- a range in tensors, one or one for each channel ---

/// Checks min and max against the last dimension of x, or for being scalars.
Status check_range(const Tensor& x, const Tensor& min, const Tensor& max, bool channels) {
  for (const Tensor* t : {&min, &max}) {
    const bool fits = channels ? x.rank() > 0 && t->rank() == 1 && t->dim(0) == x.dim(-1) : t->rank() == 0;
    if (!fits)
      return invalid_argument("min {} and max {} do not fit inputs {}", min.shape().str(), max.shape().str(),
                              x.shape().str());
  }
  for (int64_t i = 0; i < min.elements(); ++i)
    if (min.data<float>()[i] > max.data<float>()[i])
      return invalid_argument("min {} is above max {}", min.data<float>()[i], max.data<float>()[i]);
  return {};
}

class Vars final : public ComputeKernel {
 public:
  explicit Vars(const KernelInit& init) : options_(init), channels_(init.op.ends_with("PerChannel")) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &min = c.input(1), &max = c.input(2);
    TROUPE_RETURN_IF_ERROR(check_range(x, min, max, channels_));
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    const float* in = x.data<float>();
    float* out = y.mutable_data<float>();
    const int64_t n = min.elements();
    for (int64_t k = 0; k < n; ++k) {
      const float low = min.data<float>()[k], high = max.data<float>()[k];
      const bool none = low == 0 && high == 0;
      const Steps steps(low, high, options_.bits, options_.narrow);
      parallel_for(c.threads(), x.elements() / n, kCheapGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i * n + k] = none ? 0 : steps.rounded(in[i * n + k]);
      });
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const FakeQuantOptions options_;
  const bool channels_;
};

class VarsGradient final : public ComputeKernel {
 public:
  explicit VarsGradient(const KernelInit& init)
      : options_(init), channels_(init.op.find("PerChannel") != std::string_view::npos) {}
  Status compute(KernelContext& c) override {
    const Tensor &gradients = c.input(0), &x = c.input(1), &min = c.input(2), &max = c.input(3);
    if (gradients.shape() != x.shape())
      return invalid_argument("gradients {} and inputs {} differ", gradients.shape().str(), x.shape().str());
    TROUPE_RETURN_IF_ERROR(check_range(x, min, max, channels_));
    TROUPE_ASSIGN(Tensor dx, c.allocate(x.dtype(), x.shape()));
    TROUPE_ASSIGN(Tensor by_min, c.allocate(x.dtype(), min.shape()));
    TROUPE_ASSIGN(Tensor by_max, c.allocate(x.dtype(), max.shape()));
    const int64_t n = min.elements();
    for (int64_t k = 0; k < n; ++k) {
      const float low = min.data<float>()[k], high = max.data<float>()[k];
      const bool none = low == 0 && high == 0;
      const Steps steps(low, high, options_.bits, options_.narrow);
      double below = 0, above = 0;
      for (int64_t i = k; i < x.elements(); i += n) {
        const float g = gradients.data<float>()[i], v = x.data<float>()[i];
        dx.mutable_data<float>()[i] = none || steps.holds(v) ? g : 0;
        if (!none && v < steps.low) below += g;
        if (!none && v > steps.high) above += g;
      }
      by_min.mutable_data<float>()[k] = static_cast<float>(below);
      by_max.mutable_data<float>()[k] = static_cast<float>(above);
    }
    c.set_output(0, std::move(dx));
    c.set_output(1, std::move(by_min));
    c.set_output(2, std::move(by_max));
    return {};
  }

 private:
  const FakeQuantOptions options_;
  const bool channels_;
};

Status args_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(check_bits(c.attrs()));
  TROUPE_ASSIGN(PartialShape x, PartialShape::merge(c.input(0), c.input(c.num_inputs() - 1)));
  c.set_output(0, std::move(x));
  return {};
}

template <bool channels> Status vars_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(check_bits(c.attrs()));
  const int first = c.num_inputs() - 2;  // min; max is the next
  PartialShape x = c.input(0);
  if (first == 2) {
    TROUPE_ASSIGN(x, PartialShape::merge(c.input(0), c.input(1)));
  }
  for (int i = first; i < first + 2; ++i) {
    TROUPE_ASSIGN(const PartialShape range, c.with_rank(i, channels ? 1 : 0));
    if (channels && x.has_rank() && (x.rank() == 0 || (x.dim(-1) >= 0 && range[0] >= 0 && x.dim(-1) != range[0])))
      return invalid_argument("{} ranges do not fit inputs {}", range[0], x.str());
    if (first == 2) c.set_output(i - 1, range);
  }
  c.set_output(0, x);
  return {};
}

Attrs attrs_of(GradientContext& c) {
  Attrs out;
  for (const char* name : {"min", "max", "num_bits", "narrow_range"})
    if (const AttrValue* v = c.node().attrs().find(name)) out.set(name, *v);
  return out;
}

Status args_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op("FakeQuantWithMinMaxArgsGradient", {c.dy(0), c.input(0)}, attrs_of(c)));
  return {};
}
Status vars_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const auto d = c.ops(c.node().op().name() + "Gradient", {c.dy(0), c.input(0), c.input(1), c.input(2)}, attrs_of(c));
  for (size_t i = 0; i < d.size(); ++i) c.set_dx(static_cast<int>(i), d[i]);
  return {};
}

OpDef with_bits(OpDef op) { return op.attr("num_bits: int = 8").attr("narrow_range: bool = false"); }

}  // namespace

void register_fake_quant_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* none = "TensorFlow gives it none";
  const std::string steps = " num_bits (2 to 16) say how many steps there are; narrow_range leaves the lowest out.";
  ops.add(
      with_bits(OpDef("FakeQuantWithMinMaxArgs").input("inputs: float32").output("outputs: float32"))
          .attr("min: float = -6.0")
          .attr("max: float = 6.0")
          .shape(args_shape)
          .doc("Inputs cut off at min and max and rounded to equal steps between them, of which zero is one." + steps),
      gradient(args_gradient));
  ops.add(with_bits(OpDef("FakeQuantWithMinMaxArgsGradient")
                        .input("gradients: float32")
                        .input("inputs: float32")
                        .output("backprops: float32"))
              .attr("min: float = -6.0")
              .attr("max: float = 6.0")
              .shape(args_shape)
              .doc("The gradient of FakeQuantWithMinMaxArgs: zero where inputs were cut off."),
          not_differentiable(none));
  for (const char* op : {"FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxArgsGradient"})
    kernels.add<Args>(op, DeviceKind::kCpu, {});
  for (const bool channels : {false, true}) {
    const std::string name = std::string("FakeQuantWithMinMaxVars") + (channels ? "PerChannel" : "");
    const ShapeFn shape = channels ? vars_shape<true> : vars_shape<false>;
    const std::string what = channels ? "FakeQuantWithMinMaxArgs with a range for each channel, the last dimension."
                                      : "FakeQuantWithMinMaxArgs with a range that may change.";
    ops.add(with_bits(OpDef(name).input("inputs: float32").input("min: float32").input("max: float32"))
                .output("outputs: float32")
                .shape(shape)
                .doc(what + " All is zero where min and max are." + steps),
            gradient(vars_gradient));
    ops.add(with_bits(OpDef(name + "Gradient")
                          .input("gradients: float32")
                          .input("inputs: float32")
                          .input("min: float32")
                          .input("max: float32"))
                .output("backprops_wrt_input: float32")
                .output("backprop_wrt_min: float32")
                .output("backprop_wrt_max: float32")
                .shape(shape)
                .doc("The gradients of " + name + ": those of inputs cut off go to min and max."),
            not_differentiable(none));
    kernels.add<Vars>(name, DeviceKind::kCpu, {});
    kernels.add<VarsGradient>(name + "Gradient", DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
