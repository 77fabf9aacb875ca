// SPDX-License-Identifier: Apache-2.0
// Broadcasting, threads and buffer reuse around element-wise loops.
#include "ops/parts/elementwise.h"

#include <atomic>

namespace troupe {

Status same_shapes(const Shape& a, const Shape& b) {
  if (a != b) return invalid_argument("shapes {} and {} differ", a.str(), b.str());
  return {};
}

Status BinaryKernel::compute(KernelContext& c) {
  const Tensor &a = c.input(0), &b = c.input(1);
  const bool same = a.shape() == b.shape();
  if (!same && !broadcasts_) return same_shapes(a.shape(), b.shape());
  if (same || b.elements() == 1 || a.elements() == 1) {
    // One loop over all. A one-element operand counts as a scalar unless its rank makes the result's larger.
    const bool left = !same && a.elements() == 1 && a.rank() <= b.rank();
    const bool right = !same && !left && b.elements() == 1 && b.rank() <= a.rank();
    if (same || left || right) {
      const Tensor& big = left ? b : a;
      const int64_t n = big.elements();
      const int reuse = left || (same && !a.unique()) ? 1 : 0;
      TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(reuse, out_, big.shape()));
      bool ok = true;
      if (n < 2 * grain_ || c.threads() == 1) {
        ok = n == 0 || loop_(y.mutable_raw(), a.raw(), b.raw(), n,
                             left    ? Operands::kLeftScalar
                             : right ? Operands::kRightScalar
                                     : Operands::kBoth);
      } else {
        std::atomic<bool> all{true};
        const auto size = static_cast<int64_t>(size_of(a.dtype())), out_size = static_cast<int64_t>(size_of(out_));
        const int64_t size_a = left ? 0 : size, size_b = right ? 0 : size;
        parallel_for(c.threads(), n, grain_, [&](int64_t begin, int64_t end) {
          if (!loop_(static_cast<char*>(y.mutable_raw()) + begin * out_size,
                     static_cast<const char*>(a.raw()) + begin * size_a,
                     static_cast<const char*>(b.raw()) + begin * size_b, end - begin,
                     left    ? Operands::kLeftScalar
                     : right ? Operands::kRightScalar
                             : Operands::kBoth))
            all = false;
        });
        ok = all;
      }
      if (!ok) return invalid_argument("{}", fault_);
      c.set_output(0, std::move(y));
      return {};
    }
  }
  TROUPE_ASSIGN(const Broadcast plan, plan_broadcast(a.shape(), b.shape()));
  TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(a.shape() == plan.shape ? 0 : 1, out_, plan.shape));
  const auto size = static_cast<int64_t>(size_of(a.dtype())), out_size = static_cast<int64_t>(size_of(out_));
  const bool left = plan.stride[0][plan.rank - 1] == 0, right = plan.stride[1][plan.rank - 1] == 0;
  const Operands operands = left ? Operands::kLeftScalar : right ? Operands::kRightScalar : Operands::kBoth;
  std::atomic<bool> ok{true};
  char* out = static_cast<char*>(y.mutable_raw());
  for_each_run(plan, c.threads(), grain_, [&](int64_t at, const std::array<int64_t, 3>& in, int64_t n) {
    if (!loop_(out + at * out_size, static_cast<const char*>(a.raw()) + in[0] * size,
               static_cast<const char*>(b.raw()) + in[1] * size, n, operands))
      ok = false;
  });
  if (!ok) return invalid_argument("{}", fault_);
  c.set_output(0, std::move(y));
  return {};
}

Status UnaryKernel::compute(KernelContext& c) {
  const Tensor& x = c.input(0);
  TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, out_, x.shape()));
  const auto in_size = static_cast<int64_t>(size_of(x.dtype())), out_size = static_cast<int64_t>(size_of(out_));
  const char* in = static_cast<const char*>(x.raw());
  char* out = static_cast<char*>(y.mutable_raw());
  parallel_for(c.threads(), x.elements(), grain_, [&](int64_t begin, int64_t end) {
    loop_(out + begin * out_size, in + begin * in_size, end - begin, parameters_);
  });
  c.set_output(0, std::move(y));
  return {};
}

void add_binary_loops(KernelRegistry& kernels, std::string_view op, std::span<const TypedLoop<BinaryLoop>> loops,
                      int64_t grain, const char* fault, bool broadcasts) {
  for (const auto& [in, out, loop] : loops)
    kernels.add(op, DeviceKind::kCpu, "T", in,
                [=, loop = loop, out = out](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new BinaryKernel(loop, out, grain, fault, broadcasts));
                });
}

void add_unary_loops(KernelRegistry& kernels, std::string_view op, std::span<const TypedLoop<UnaryLoop>> loops,
                     int64_t grain, std::string_view parameter) {
  for (const auto& [in, out, loop] : loops)
    kernels.add(op, DeviceKind::kCpu, "T", in,
                [loop = loop, out = out, grain,
                 parameter = std::string(parameter)](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                  const double p = parameter.empty() ? 0.0 : init.attr<float>(parameter);
                  return std::unique_ptr<ComputeKernel>(new UnaryKernel(loop, out, grain, p));
                });
}

}  // namespace troupe
