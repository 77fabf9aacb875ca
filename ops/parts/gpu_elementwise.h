// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels of GPUs: what surrounds their launches, which files of kernels give (ops/parts/elementwise.cuh).
// The rules of shapes, broadcasting and reuse of buffers are those of ops/parts/elementwise.h.
// Implemented in ops/parts/gpu_elementwise.cpp.
#pragma once
#include <initializer_list>
#include <span>
#include <string_view>

#include "gpu/compute.h"
#include "ops/parts/broadcast.h"
#include "troupe/kernel.h"

namespace troupe {

/// All types that GPUs have in their memory.
std::vector<DType> gpu_dtypes();
/// Those that GPUs calculate with.
std::vector<DType> gpu_numbers();

/// Tells the stream what a kernel is about to use: its inputs that are in the GPU's memory, and what it writes.
void declare_uses(const KernelContext& c, std::span<const Tensor* const> written);
void declare_uses(const KernelContext& c, std::initializer_list<const Tensor*> written);

/// How an element-wise kernel reads an input.
enum class Reads { kDense, kOne, kStrided };
/// How it reads an input of so many elements for a result of n. Of 1 element for 1 it is dense.
Reads reads_of(const Tensor& input, int64_t n);

/// out[i] = f(x[i]) for i < n, n > 0.
struct GpuUnary {
  const gpu::Compute& gpu;
  void* out;
  const void* x;
  int64_t n;
  double parameter;
};
using GpuUnaryLaunch = Status (*)(const GpuUnary& u);

/// out[i] = f(a[..], b[..]) for i < n, n > 0.
struct GpuBinary {
  const gpu::Compute& gpu;
  void* out;
  const void *a, *b;
  int64_t n;
  Reads a_reads, b_reads;
  const Broadcast& plan;
  double parameter;
};
using GpuBinaryLaunch = Status (*)(const GpuBinary& b);

class GpuUnaryKernel final : public ComputeKernel {
 public:
  GpuUnaryKernel(GpuUnaryLaunch launch, DType out, double parameter = 0)
      : launch_(launch), out_(out), parameter_(parameter) {}
  Status compute(KernelContext& c) override;
  bool shareable() const override { return true; }

 private:
  const GpuUnaryLaunch launch_;
  const DType out_;
  const double parameter_;
};

class GpuBinaryKernel final : public ComputeKernel {
 public:
  GpuBinaryKernel(GpuBinaryLaunch launch, DType out, bool broadcasts, double parameter = 0)
      : launch_(launch), out_(out), broadcasts_(broadcasts), parameter_(parameter) {}
  Status compute(KernelContext& c) override;
  bool shareable() const override { return true; }

 private:
  const GpuBinaryLaunch launch_;
  const DType out_;
  const bool broadcasts_;
  const double parameter_;
};

/// Register a kernel for inputs `in` and results `out`, chosen by type attribute T. `parameter` names a float attribute
/// or is empty.
void add_gpu_unary(KernelRegistry& kernels, std::string_view op, DType in, DType out, GpuUnaryLaunch launch,
                   std::string_view parameter);
void add_gpu_binary(KernelRegistry& kernels, std::string_view op, DType in, DType out, GpuBinaryLaunch launch,
                    bool broadcasts, std::string_view parameter);

}  // namespace troupe
