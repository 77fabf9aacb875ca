// SPDX-License-Identifier: Apache-2.0
// Widening and rounding around a kernel for float32.
#include "ops/parts/through_float32.h"

#include <algorithm>
#include <numeric>

#include "devices/parallel.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

bool is_half_type(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

/// A tensor of 16-bit floats as floats, or back.
template <class From, class To> Result<Tensor> converted_all(const KernelContext& c, const Tensor& x) {
  TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<To>, x.shape()));
  const From* in = x.data<From>();
  To* out = y.template mutable_data<To>();
  parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (is_half<From>) out[i] = widen(in[i]);
      else out[i] = narrow<To>(in[i]);
    }
  });
  return y;
}

class ThroughFloat32 final : public ComputeKernel {
 public:
  ThroughFloat32(std::unique_ptr<ComputeKernel> inner, std::vector<DType> outputs)
      : inner_(std::move(inner)), outputs_(std::move(outputs)) {}

  Status compute(KernelContext& c) override {
    const int n = c.num_inputs();
    std::vector<Tensor> values(n + c.num_outputs());
    for (int i = 0; i < n; ++i) {
      const Tensor& x = c.input(i);
      values[i] = x;
      if (x.dtype() == DType::kFloat16) {
        TROUPE_ASSIGN(values[i], (converted_all<float16, float>(c, x)));
      } else if (x.dtype() == DType::kBFloat16) {
        TROUPE_ASSIGN(values[i], (converted_all<bfloat16, float>(c, x)));
      }
    }
    const std::vector<int32_t> uses(values.size(), 1);
    std::vector<uint32_t> slots(n);
    std::iota(slots.begin(), slots.end(), 0);
    KernelContext inner(values.data(), uses.data(), slots.data(), n, n, c.num_outputs(), c.device(), c.step());
    TROUPE_RETURN_IF_ERROR(inner_->compute(inner));
    for (int i = 0; i < c.num_outputs(); ++i) {
      Tensor y = std::move(values[n + i]);
      if (outputs_[i] == DType::kFloat16) {
        TROUPE_ASSIGN(y, (converted_all<float, float16>(c, y)));
      } else if (outputs_[i] == DType::kBFloat16) {
        TROUPE_ASSIGN(y, (converted_all<float, bfloat16>(c, y)));
      }
      c.set_output(i, std::move(y));
    }
    return {};
  }

 private:
  const std::unique_ptr<ComputeKernel> inner_;
  const std::vector<DType> outputs_;
};

Result<std::unique_ptr<ComputeKernel>> make_through_float32(const KernelInit& init, const KernelFactory& float32) {
  KernelInit wide = init;
  Attrs attrs = *init.attrs;
  attrs.set("T", DType::kFloat32);
  wide.attrs = &attrs;
  const auto widened = [](DType t) { return is_half_type(t) ? DType::kFloat32 : t; };
  std::ranges::transform(wide.input_dtypes, wide.input_dtypes.begin(), widened);
  std::ranges::transform(wide.output_dtypes, wide.output_dtypes.begin(), widened);
  for (Tensor& t : wide.constants)
    if (t.defined() && is_half_type(t.dtype())) t = Tensor();
  TROUPE_ASSIGN(std::unique_ptr<Kernel> inner, float32(wide));
  return std::unique_ptr<ComputeKernel>(new ThroughFloat32(
      std::unique_ptr<ComputeKernel>(static_cast<ComputeKernel*>(inner.release())), init.output_dtypes));
}

}  // namespace

void add_half_kernels(KernelRegistry& kernels, const std::string& op, const KernelFactory& float32,
                      const KernelRegistry::Types& types) {
  KernelRegistry::Types all = types;
  all["T"] = {DType::kFloat16, DType::kBFloat16};
  kernels.add(op, DeviceKind::kCpu, std::move(all),
              [float32](const KernelInit& init) { return make_through_float32(init, float32); });
}

}  // namespace troupe
