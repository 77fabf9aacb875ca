// SPDX-License-Identifier: Apache-2.0
// Epilogues by the kernels of their ops, one after the other.
#include "ops/nn/epilogue.h"

#include <algorithm>

#include "base/check.h"
#include "base/join.h"
#include "ops/nn/activation_functors.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/instruction_sets.h"

namespace troupe {
namespace {

constexpr std::string_view kActivations[] = {"Relu",  "Relu6",           "Elu",      "Tanh", "Sigmoid",
                                             "Swish", "GeluApproximate", "GeluExact"};

/// kActivations[which] of float32 in place.
TROUPE_SIMD_CLONES void activate(int which, float* x, int64_t n) {
  namespace f = activation_functors;
  const auto each = [&]<class F>(F) __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) x[i] = F::apply(x[i]);
  };
  switch (which) {
    case 0: return each(f::Relu());
    case 1: return each(f::Relu6());
    case 2: return each(f::Elu());
    case 3: return each(f::Tanh());
    case 4: return each(f::Sigmoid());
    case 5: return each(f::Swish());
    case 6: return each(f::GeluApproximate());
    case 7: return each(f::GeluExact());
  }
}

/// to = sums [+ bias] [+ image].
TROUPE_SIMD_CLONES void add_rest(const float* sums, const float* bias, const float* image, float* to, int64_t n) {
  if (bias && image)
    for (int64_t i = 0; i < n; ++i) to[i] = sums[i] + bias[i] + image[i];
  else if (bias || image)
    for (int64_t i = 0; i < n; ++i) to[i] = sums[i] + (bias ? bias : image)[i];
  else std::copy_n(sums, n, to);
}

std::string key(std::string_view op, DType dtype, std::string_view data_format) {
  return fmt::format("{} {} {}", op, to_string(dtype), op == "BiasAdd" ? data_format : "");
}

}  // namespace

EpilogueKernels::EpilogueKernels(const KernelRegistry& kernels) {
  for (const char* op : {"BiasAdd", "Add", "Relu", "Relu6", "Elu", "Tanh", "Sigmoid"})
    for (const char* format : {"NHWC", "NCHW"})
      for (DType dtype : FullFloatTypes::dtypes()) {
        Attrs attrs;
        attrs.set("T", dtype);
        attrs.set("data_format", std::string(format));
        KernelInit init;
        init.op = op;
        init.attrs = &attrs;
        auto kernel = kernels.make(init, DeviceKind::kCpu);
        TROUPE_CHECK(kernel.ok());
        auto* compute = dynamic_cast<ComputeKernel*>(kernel->release());
        TROUPE_CHECK(compute);
        kernels_[key(op, dtype, format)].reset(compute);
      }
  const auto add = [&]<class F>(F, const char* name) {
    for (const TypedLoop<UnaryLoop>& loop : {elementwise::unary_loop<F, float>(), elementwise::unary_loop<F, double>()})
      kernels_[key(name, loop.in, "")] = std::make_shared<UnaryKernel>(loop.loop, loop.out, kDearGrain);
  };
  add(activation_functors::Swish{}, "Swish");
  add(activation_functors::GeluApproximate{}, "GeluApproximate");
  add(activation_functors::GeluExact{}, "GeluExact");
}

std::shared_ptr<ComputeKernel> EpilogueKernels::find(std::string_view op, DType dtype,
                                                     std::string_view data_format) const {
  const auto at = kernels_.find(key(op, dtype, data_format));
  return at == kernels_.end() ? nullptr : at->second;
}

Result<EpilogueForm> EpilogueForm::parse(const KernelInit& init, bool takes_image) {
  EpilogueForm out;
  const auto& ops = init.attr<std::vector<std::string>>("fused_ops");
  for (const std::string& op : ops) {
    const bool fits = op == "BiasAdd" ? !out.bias && !out.image && out.activation.empty()
                      : op == "Add"
                          ? takes_image && !out.image && out.activation.empty()
                          : std::ranges::find(kActivations, op) != std::end(kActivations) && out.activation.empty();
    if (!fits)
      return invalid_argument(
          "fused_ops are [{}]; BiasAdd may come first{} and one of Relu, Relu6, Elu, Tanh, Sigmoid, Swish, "
          "GeluApproximate "
          "and GeluExact last",
          join(ops, ", "), takes_image ? ", Add next" : "");
    if (op == "BiasAdd") out.bias = true;
    else if (op == "Add") out.image = true;
    else out.activation = op;
  }
  if (const auto args = init.attr<int64_t>("num_args"); args != int{out.bias} + int{out.image})
    return invalid_argument("num_args is {} for fused_ops [{}]", args, join(ops, ", "));
  return out;
}

Result<Epilogue> Epilogue::make(const KernelInit& init, const EpilogueKernels& kernels, bool takes_image) {
  Epilogue out;
  TROUPE_ASSIGN(out.form_, EpilogueForm::parse(init, takes_image));
  if (!out.form_.activation.empty())
    out.activation_ = static_cast<int>(std::ranges::find(kActivations, out.form_.activation) - kActivations);
  const auto format = init.attrs->get_or<std::string>("data_format", "NHWC");
  for (const std::string& op : init.attr<std::vector<std::string>>("fused_ops")) {
    out.steps_.push_back(kernels.find(op, init.attr<DType>("T"), format));
    TROUPE_CHECK(out.steps_.back());
  }
  return out;
}

void Epilogue::apply_part(const KernelContext& c, const Part& part, float* y) const {
  const float* bias = form_.bias ? c.input(2).data<float>() + part.at % part.n : nullptr;
  const float* image = form_.image ? c.input(this->image()).data<float>() + part.at : nullptr;
  for (int64_t row = 0; row < part.rows; ++row) {
    float* const to = y + part.at + row * part.n;
    add_rest(part.sums + row * part.row_of_sums, bias, image ? image + row * part.n : nullptr, to, part.columns);
    activate(activation_, to, part.columns);
  }
}

Status Epilogue::apply(const KernelContext& c, Tensor& y) const {
  const uint32_t slots[] = {0, 1};
  const int32_t uses[] = {1, 2};  // only y may be written into
  for (size_t i = 0; i < steps_.size(); ++i) {
    const bool is_bias = form_.bias && i == 0, adds = is_bias || (form_.image && i == size_t{form_.bias});
    Tensor values[3] = {std::move(y), adds ? c.input(is_bias ? 2 : image()) : Tensor(), Tensor()};
    KernelContext step(values, uses, slots, adds ? 2 : 1, 2, 1, c.device(), c.step());
    TROUPE_RETURN_IF_ERROR(steps_[i]->compute(step));
    y = std::move(values[2]);
  }
  return {};
}

}  // namespace troupe
