// SPDX-License-Identifier: Apache-2.0
// Epilogues by the kernels of their ops, one after the other.
#include "ops/nn/epilogue.h"

#include <algorithm>

#include "base/check.h"
#include "base/join.h"
#include "ops/nn/activation_functors.h"
#include "ops/parts/elementwise.h"

namespace troupe {
namespace {

constexpr std::string_view kActivations[] = {"Relu",  "Relu6",           "Elu",      "Tanh", "Sigmoid",
                                             "Swish", "GeluApproximate", "GeluExact"};

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
  const auto format = init.attrs->get_or<std::string>("data_format", "NHWC");
  for (const std::string& op : init.attr<std::vector<std::string>>("fused_ops")) {
    out.steps_.push_back(kernels.find(op, init.attr<DType>("T"), format));
    TROUPE_CHECK(out.steps_.back());
  }
  return out;
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
