// SPDX-License-Identifier: Apache-2.0
// Runs kernels of variables on the host, by the shim for those of GPUs, on a container of their own.
#pragma once
#include <catch2/catch.hpp>

#include "containers/container.h"
#include "tests/gpu/parity.h"

namespace troupe::testing {

/// The card that tests of variables share, where they run on a real one. Making it takes a while, and it is kept: CUDA
/// ends before what is static.
inline RealGpu* shared_real_gpu() {
  static RealGpu* const gpu = on_real_gpu() ? new RealGpu : nullptr;
  return gpu;
}

/// Kernels of the shim, or of the real card.
inline void register_tested_kernels(KernelRegistry& kernels) {
  if (RealGpu* const real = shared_real_gpu()) real->platform->register_kernels(kernels);
  else on_fake::register_gpu_kernels(kernels);
}

/// The variables of one device, and the kernels that read and update them.
class Variables final : ReplySink {
 public:
  Variables(const KernelRegistry& kernels, DeviceKind kind) : kernels_(kernels), kind_(kind) {
    if (kind != DeviceKind::kCuda) return;
    if ((real_ = shared_real_gpu())) {
      memory_ = real_->device->compute().allocator;
      gpu_ = &real_->device->compute();
    } else {
      gpu_ = &compute_.emplace(gpu::Compute{.stream = stream_,
                                            .card = card_,
                                            .allocator = memory_,
                                            .upload = [this](const Tensor& x) -> Result<Tensor> { return there(x); },
                                            .holds = [](const Tensor&) { return true; }});
    }
  }
  void assign(const std::string& name, const Tensor& value) {
    REQUIRE(container_.assign(*handle(name, value.dtype()), value.clone().value()).ok());
  }
  Tensor value(const std::string& name, DType dtype) {
    auto value = container_.read(*handle(name, dtype), Space::kHost);
    if (!value.ok()) value = container_.read(*handle(name, dtype), Space::kGpu);
    REQUIRE(value.ok());
    return at_host(*value);
  }
  /// Keeps the values, so that the next update finds them shared.
  void share() { shared_ = container_.snapshot(); }
  void let_go() { shared_.clear(); }
  bool at_host(const std::string& name, DType dtype) { return container_.read(*handle(name, dtype)).ok(); }

  /// Runs an op whose inputs are handles of variables of this dtype and then `rest`; the outputs at the host.
  Result<std::vector<Tensor>> run(const std::string& op, const Attrs& attrs, std::span<const std::string> variables,
                                  DType dtype, std::span<const Tensor> rest) {
    KernelInit init;
    init.op = op;
    init.attrs = &attrs;
    TROUPE_ASSIGN(const auto kernel, kernels_.make(init, kind_));
    std::vector<Tensor> inputs;
    for (const std::string& name : variables) inputs.push_back(Tensor::scalar<ResourceRef>(handle(name, dtype)));
    for (const Tensor& x : rest) inputs.push_back(there(x));
    answered_.reset();
    dynamic_cast<ResourceKernel&>(*kernel).execute(
        container_,
        {std::move(inputs), kind_ == DeviceKind::kCuda ? memory_ : system_allocator(), Reply(*this, {}), gpu_});
    REQUIRE(answered_);
    if (answered_->ok())
      for (Tensor& y : **answered_) y = at_host(y);
    return std::move(*answered_);
  }
  Status update(const std::string& op, const Attrs& attrs, std::span<const std::string> variables, DType dtype,
                std::span<const Tensor> rest) {
    return run(op, attrs, variables, dtype, rest).status();
  }

 private:
  void deliver(const RequestTag&, Result<std::vector<Tensor>> outputs) override { answered_ = std::move(outputs); }
  static ResourceRef handle(const std::string& name, DType dtype) {
    auto handle = std::make_shared<ResourceHandle>();
    handle->type = "variable";
    handle->name = name;
    handle->dtype = dtype;
    return handle;
  }
  Tensor at_host(const Tensor& x) const {
    if (real_ && x.space() == Space::kGpu) {
      auto here = real_->device->fetch(x);
      INFO((here.ok() ? "" : here.error().str()));
      REQUIRE(here.ok());
      return std::move(*here);
    }
    Tensor out = *Tensor::make(x.dtype(), x.shape());
    if (out.bytes() > 0) std::memcpy(out.mutable_raw(), x.address(), out.bytes());
    return out;
  }
  Tensor there(const Tensor& x) {
    if (kind_ == DeviceKind::kCpu) return x;
    Tensor y = *Tensor::make(x.dtype(), x.shape(), memory_);
    if (real_) {
      REQUIRE(gpu_->stream.copy(y.mutable_address(), x.raw(), x.bytes()).ok());
      REQUIRE(real_->device->fetch(y).ok());  // x may go
      return y;
    }
    if (x.bytes() > 0) std::memcpy(y.mutable_address(), x.raw(), x.bytes());
    return y;
  }

  const KernelRegistry& kernels_;
  const DeviceKind kind_;
  gpu::Card card_{.name = "fake", .multiprocessors = 2};
  InlineStream stream_;
  std::shared_ptr<Allocator> memory_ = own_allocator(new GpuMemory);
  std::optional<gpu::Compute> compute_;
  RealGpu* real_ = nullptr;
  gpu::Compute* gpu_ = nullptr;  // null on the CPU
  Container container_;
  std::map<std::string, Tensor> shared_;
  std::optional<Result<std::vector<Tensor>>> answered_;
};

/// Numbers between two, from a seed.
inline Tensor filled(DType dtype, const Shape& shape, uint64_t seed, double low, double high) {
  Tensor x = *Tensor::make(dtype, shape);
  std::mt19937_64 random(seed);
  const auto draw = [&] { return low + (high - low) * static_cast<double>(random() % 4096) / 4096; };
  with_type(dtype, NumberTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < x.elements(); ++i) x.mutable_data<T>()[i] = static_cast<T>(static_cast<float>(draw()));
  });
  return x;
}

/// The same but for rounding.
inline void check_near(const Tensor& actual, const Tensor& expected, const std::string& what) {
  INFO(what << "\n" << actual.str(8) << " but on the CPU " << expected.str(8));
  REQUIRE(actual.shape() == expected.shape());
  const bool floats = with_type(expected.dtype(), FloatTypes{}, [&]<class T>() {
    const double tolerance = sizeof(T) == 8 ? 1e-12 : sizeof(T) == 4 ? 1e-5 : 2e-2;
    for (int64_t i = 0; i < expected.elements(); ++i) {
      const double a = widen(actual.data<T>()[i]), b = widen(expected.data<T>()[i]);
      if (std::isnan(a) && std::isnan(b)) continue;
      CHECK(a == Approx(b).epsilon(tolerance).margin(tolerance));
    }
  });
  if (!floats) CHECK(actual.identical(expected));
}

}  // namespace troupe::testing
