// SPDX-License-Identifier: Apache-2.0
// Local response normalisation and its gradient on GPUs: a row of threads for each pixel, and a thread for each element
// of gradients.
#include "ops/nn/lrn.h"

#include <cmath>
#include <limits>

#include "gpu/warp.cuh"
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
    const int64_t channel = sizes.pop(1, pixel), first = i - channel;
    const int64_t end = last(channel);
    float sum = 0;
    for (int64_t k = begin(channel); k < end; ++k) sum += f(first + k);
    return sum;
  }
  /// Channels [begin, last) are around this one.
  __device__ int64_t begin(int64_t channel) const { return channel > radius ? channel - radius : 0; }
  __device__ int64_t last(int64_t channel) const {
    return channel + radius < sizes.size[1] ? channel + radius + 1 : sizes.size[1];
  }
};

template <class T> __device__ inline float square(const T* x, int64_t i) { return widen(x[i]) * widen(x[i]); }
__device__ inline bool is_wild(float x) { return !(x - x == 0); }

/// As on CPUs, an infinity or NaN reaches all sums of its pixel: as NaN those that it is not in.
template <class T> __global__ void normalise_channels(T* out, const T* x, const __grid_constant__ LrnPlan p) {
  const int64_t n = p.sizes.size[1];
  for_each_row(p.sizes.size[0], [&](int64_t pixel) {
    const T* const in = x + pixel * n;
    int wild = 0;
    for (int64_t k = threadIdx.x; k < n; k += blockDim.x) wild += is_wild(square(in, k));
    wild = reduce_row(wild, 0, [](int a, int b) { return a + b; });
    for (int64_t k = threadIdx.x; k < n; k += blockDim.x) {
      float sum = 0;
      int inside = 0;
      for (int64_t j = p.begin(k); j < p.last(k); ++j) {
        const float s = square(in, j);
        sum += s;
        inside += is_wild(s);
      }
      if (inside < wild) sum = std::numeric_limits<float>::quiet_NaN();
      out[pixel * n + k] = narrow<T>(widen(in[k]) * std::pow(p.bias + p.alpha * sum, -p.beta));
    }
  });
}

template <class F> __device__ inline void for_each_element(int64_t n, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

/// What an element's gradient takes from each element around it: 1 / norm^beta, and dy * y / norm.
struct LrnPart {
  float power, product;
};

template <class T>
__global__ void prepare_lrn_gradients(LrnPart* out, const T* dy, const T* x, const T* y,
                                      const __grid_constant__ LrnPlan p) {
  for_each_element(p.elements, [&](int64_t i) {
    const float norm = p.bias + p.alpha * p.around(i, [x](int64_t j) { return square(x, j); });
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
    if (x.elements() > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      const LrnPlan plan(p_, x.shape());
      const int64_t n = plan.sizes.size[1];
      TROUPE_RETURN_IF_ERROR(
          TROUPE_LAUNCH(gpu.stream, normalise_channels<T>, row_blocks(gpu.card, plan.sizes.size[0], n), row_threads(n),
                        0, static_cast<T*>(y.mutable_address()), static_cast<const T*>(x.address()), plan));
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
