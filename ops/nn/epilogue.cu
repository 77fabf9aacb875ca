// SPDX-License-Identifier: Apache-2.0
// Bias and activation behind a product of a GPU, in one pass.
#include "gpu/warp.cuh"
#include "ops/nn/activation_functors.h"
#include "ops/nn/bias.h"
#include "ops/nn/gpu_epilogue.h"
#include "ops/parts/elementwise.cuh"
#include "ops/parts/wrapping.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

struct NoActivation {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) { return x; }
};

/// y[i] = F(y[i] + bias[channel of i]); `sizes` are [outer, channels, inner]; `bias` may be null.
template <class F, class T>
__global__ void finish_product(T* y, const T* bias, int64_t n, bool packed, const __grid_constant__ GpuSizes sizes) {
  constexpr int kCount = kPack<T>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Pack<T, kCount> pack;
    load_pack(pack, y, i, count, packed);
    int64_t row = i, inner = 0, channel = 0;
    if (bias) {
      inner = sizes.pop(2, row);
      channel = sizes.pop(1, row);
    }
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) {
      auto x = widen(pack.at[k]);
      if (bias) {
        x = x + widen(bias[channel]);
        if (++inner == sizes.size[2]) {
          inner = 0;
          if (++channel == sizes.size[1]) channel = 0;
        }
      }
      pack.at[k] = narrow<T>(F::apply(x));
    }
    store_pack(y, pack, i, count, packed);
  });
}

template <class F, class T>
Status launch_finish(const gpu::Compute& gpu, const BiasView& v, const Tensor* bias, Tensor& y) {
  constexpr int kCount = kPack<T>;
  const int64_t sizes[] = {v.outer, v.channels, v.inner}, n = y.elements();
  auto* at = static_cast<T*>(y.mutable_address());
  return TROUPE_LAUNCH(gpu.stream, (finish_product<F, T>), pack_blocks<kCount>(gpu, n), kElementThreads, 0, at,
                       bias ? static_cast<const T*>(bias->address()) : nullptr, n, holds_packs<T, kCount>(at),
                       GpuSizes(sizes, 3));
}

/// dy[i] = F(dy[i], features[i]).
template <class F, class T> __global__ void finish_gradient(T* dy, const T* features, int64_t n, bool packed) {
  constexpr int kCount = kPack<T>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Pack<T, kCount> pack, at;
    load_pack(pack, dy, i, count, packed);
    load_pack(at, features, i, count, packed);
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) pack.at[k] = narrow<T>(F::apply(widen(pack.at[k]), widen(at.at[k])));
    store_pack(dy, pack, i, count, packed);
  });
}

template <class F> Status launch_gradient(const gpu::Compute& gpu, const Tensor& features, Tensor& dy) {
  Status status;
  const int64_t n = dy.elements();
  if (n == 0) return status;
  with_type(dy.dtype(), GpuFloats{}, [&]<class T>() {
    constexpr int kCount = kPack<T>;
    auto* to = static_cast<T*>(dy.mutable_address());
    const auto* from = static_cast<const T*>(features.address());
    status = TROUPE_LAUNCH(gpu.stream, (finish_gradient<F, T>), pack_blocks<kCount>(gpu, n), kElementThreads, 0, to,
                           from, n, holds_packs<T, kCount>(to) && holds_packs<T, kCount>(from));
  });
  return status;
}

/// A warp makes 32 bits at a time; `words` of these are a row of the mask.
template <class T>
__global__ void make_relu_mask(uint32_t* mask, const T* features, int64_t m, int64_t n, int64_t words) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x / 32;
  for (int64_t word = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; word < m * words; word += step) {
    const int64_t row = word / words, column = word % words * 32 + threadIdx.x % 32;
    const bool on = column < n && widen(features[row * n + column]) > Arithmetic<T>(0);
    const unsigned bits = __ballot_sync(kAllLanes, on);
    if (threadIdx.x % 32 == 0) mask[word] = bits;
  }
}

}  // namespace

Status launch_relu_mask(const gpu::Compute& gpu, const Tensor& features, Tensor& mask) {
  Status status;
  const int64_t m = features.dim(0), n = features.dim(1), words = (n + 127) / 128 * 4;
  if (m * words == 0) return status;
  with_type(features.dtype(), GpuFloats{}, [&]<class T>() {
    status = TROUPE_LAUNCH(gpu.stream, make_relu_mask<T>, gpu::blocks_for(gpu.card, m * words, kElementThreads / 32),
                           kElementThreads, 0, static_cast<uint32_t*>(mask.mutable_address()),
                           static_cast<const T*>(features.address()), m, n, words);
  });
  return status;
}

Status launch_relu_gradient(const gpu::Compute& gpu, const Tensor& features, Tensor& dy) {
  return launch_gradient<activation_functors::ReluGrad>(gpu, features, dy);
}

Status launch_gelu_gradient(const gpu::Compute& gpu, const Tensor& features, Tensor& dy) {
  return launch_gradient<activation_functors::GeluApproximateGrad>(gpu, features, dy);
}

Status launch_epilogue(const gpu::Compute& gpu, const GpuEpilogue& epilogue, Tensor& y) {
  using namespace activation_functors;
  BiasView view;
  if (epilogue.bias) {
    TROUPE_ASSIGN(view, bias_view(y.shape(), epilogue.channels_first));
    TROUPE_RETURN_IF_ERROR(check_bias(epilogue.bias->shape(), view, y.shape()));
  }
  const std::string& by = epilogue.form.activation;
  if (y.elements() == 0 || (!epilogue.bias && by.empty())) return {};
  Status status;
  with_type(y.dtype(), GpuFloats{}, [&]<class T>() {
    const auto launch = by == "Relu"              ? &launch_finish<Relu, T>
                        : by == "Relu6"           ? &launch_finish<Relu6, T>
                        : by == "Elu"             ? &launch_finish<Elu, T>
                        : by == "Tanh"            ? &launch_finish<Tanh, T>
                        : by == "Sigmoid"         ? &launch_finish<Sigmoid, T>
                        : by == "Swish"           ? &launch_finish<Swish, T>
                        : by == "GeluApproximate" ? &launch_finish<GeluApproximate, T>
                        : by == "GeluExact"       ? &launch_finish<GeluExact, T>
                                                  : &launch_finish<NoActivation, T>;
    status = launch(gpu, view, epilogue.bias, y);
  });
  return status;
}

}  // namespace troupe::TROUPE_GPU_VARIANT
