// SPDX-License-Identifier: Apache-2.0
// Local response normalisation and its gradient on GPUs, a thread for each element. An infinity reaches the channels
// around it, not all of its pixel as on CPUs.
#include "ops/nn/lrn.h"

#include <cmath>

#include "ops/nn/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// Pixels of n channels.
struct LrnPlan {
  int64_t elements;
  float bias, alpha, beta;
  int64_t radius;
  GpuSizes sizes;  // [pixels, n]

  LrnPlan(const LrnParameters& p, const Shape& images)
      : elements(images.elements()), bias(p.bias), alpha(p.alpha), beta(p.beta),
        radius(std::min(p.radius, images[images.rank() - 1])) {
    const int64_t n = images[images.rank() - 1], both[] = {elements / n, n};
    sizes = GpuSizes(both, 2);
  }
  /// The sum of f(j) for the elements j of the channels around that of element i.
  template <class F> __device__ float around(int64_t i, F f) const {
    int64_t pixel = i;
    const int64_t channel = sizes.pop(1, pixel), first = i - channel, n = sizes.size[1];
    const int64_t begin = channel > radius ? channel - radius : 0,
                  end = channel + radius < n ? channel + radius + 1 : n;
    float sum = 0;
    for (int64_t j = first + begin; j < first + end; ++j) sum += f(j);
    return sum;
  }
  template <class T> __device__ float norm(const T* x, int64_t i) const {
    return bias + alpha * around(i, [x](int64_t j) { return widen(x[j]) * widen(x[j]); });
  }
};

template <class F> __device__ inline void for_each_element(int64_t n, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

template <class T> __global__ void normalise_channels(T* out, const T* x, const __grid_constant__ LrnPlan p) {
  for_each_element(p.elements, [&](int64_t i) { out[i] = narrow<T>(widen(x[i]) * std::pow(p.norm(x, i), -p.beta)); });
}

/// What an element's gradient takes from each element around it: 1 / norm^beta, and dy * y / norm.
struct LrnPart {
  float power, product;
};

template <class T>
__global__ void prepare_lrn_gradients(LrnPart* out, const T* dy, const T* x, const T* y,
                                      const __grid_constant__ LrnPlan p) {
  for_each_element(p.elements, [&](int64_t i) {
    const float norm = p.norm(x, i);
    out[i] = {std::pow(norm, -p.beta), widen(dy[i]) * widen(y[i]) / norm};
  });
}
template <class T>
__global__ void lrn_gradients(T* dx, const T* dy, const T* x, const LrnPart* parts, const __grid_constant__ LrnPlan p) {
  for_each_element(p.elements, [&](int64_t i) {
    const float sum = p.around(i, [parts](int64_t j) { return parts[j].product; });
    dx[i] = narrow<T>(widen(dy[i]) * parts[i].power - 2 * p.alpha * p.beta * widen(x[i]) * sum);
  });
}

template <class T> class GpuLrn final : public ComputeKernel {
 public:
  explicit GpuLrn(const KernelInit& init) : p_(init) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_RETURN_IF_ERROR(check_lrn(x.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, x.shape()));
    if (const int64_t n = x.elements(); n > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, normalise_channels<T>, pack_blocks<1>(gpu, n), kElementThreads,
                                           0, static_cast<T*>(y.mutable_address()), static_cast<const T*>(x.address()),
                                           LrnPlan(p_, x.shape())));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const LrnParameters p_;
};

template <class T> class GpuLrnGrad final : public ComputeKernel {
 public:
  explicit GpuLrnGrad(const KernelInit& init) : p_(init) {}
  Status compute(KernelContext& c) override {
    const Tensor &g = c.input(0), &x = c.input(1), &y = c.input(2);
    TROUPE_RETURN_IF_ERROR(check_lrn_gradient(c));
    TROUPE_ASSIGN(Tensor dx, c.allocate(dtype_of<T>, x.shape()));
    if (const int64_t n = x.elements(); n > 0) {
      TROUPE_ASSIGN(Tensor scratch, c.allocate(DType::kUInt8, {n * static_cast<int64_t>(sizeof(LrnPart))}));
      declare_uses(c, {&dx, &scratch});
      const gpu::Compute& gpu = *c.device().gpu;
      const LrnPlan plan(p_, x.shape());
      auto* parts = static_cast<LrnPart*>(scratch.mutable_address());
      const auto *dy = static_cast<const T*>(g.address()), *in = static_cast<const T*>(x.address()),
                 *out = static_cast<const T*>(y.address());
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, prepare_lrn_gradients<T>, pack_blocks<1>(gpu, n),
                                           kElementThreads, 0, parts, dy, in, out, plan));
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, lrn_gradients<T>, pack_blocks<1>(gpu, n), kElementThreads, 0,
                                           static_cast<T*>(dx.mutable_address()), dy, in, parts, plan));
    }
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const LrnParameters p_;
};

template <class... T> void add_kernels(KernelRegistry& kernels, TypeList<T...>) {
  (kernels.add("LRN", DeviceKind::kCuda, "T", dtype_of<T>, KernelFactory::of<GpuLrn<T>>()), ...);
  (kernels.add("LRNGrad", DeviceKind::kCuda, "T", dtype_of<T>, KernelFactory::of<GpuLrnGrad<T>>()), ...);
}

}  // namespace

void register_lrn_gpu(KernelRegistry& kernels) { add_kernels(kernels, TypeList<float, float16, bfloat16>{}); }

}  // namespace troupe::TROUPE_GPU_VARIANT
