// SPDX-License-Identifier: Apache-2.0
// Conversion of elements on GPUs.
#include "ops/math/cast_functors.h"
#include "ops/math/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

using namespace cast_functors;

using GpuCastTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, uint8_t, int8_t, bool>;

template <class To> struct Converted {
  template <class From> static __device__ To apply(From x, double) { return convert<To>(x); }
};
template <class To> struct ConvertedTruncated {
  template <class From> static __device__ To apply(From x, double) { return convert<To>(without_excess_bits<To>(x)); }
};

GpuUnaryLaunch find_launch(DType from, DType to) {
  GpuUnaryLaunch out = nullptr;
  with_type(from, GpuCastTypes{}, [&]<class From>() {
    with_type(to, GpuCastTypes{}, [&]<class To>() {
      if constexpr (!std::is_same_v<To, From>) out = launch_map<Converted<To>, From, To>;
    });
  });
  return out;
}

/// For the types between which TensorFlow truncates, else nullptr.
GpuUnaryLaunch find_truncating_launch(DType from, DType to) {
  GpuUnaryLaunch out = nullptr;
  with_type(from, TypeList<float, double>{}, [&]<class From>() {
    with_type(to, TypeList<float, float16, bfloat16>{}, [&]<class To>() {
      if constexpr (kTruncates<To, From>) out = launch_map<ConvertedTruncated<To>, From, To>;
    });
  });
  return out;
}

/// Casts to the type it has.
class GpuUnchanged final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    c.set_output(0, c.input(0));
    return {};
  }
};

}  // namespace

void register_cast_gpu(KernelRegistry& kernels) {
  kernels.add("Cast", DeviceKind::kCuda, {{"SrcT", GpuCastTypes::dtypes()}, {"DstT", GpuCastTypes::dtypes()}},
              [](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                const DType from = init.input_dtypes[0], to = init.output_dtypes[0];
                if (from == to) return std::unique_ptr<ComputeKernel>(new GpuUnchanged);
                GpuUnaryLaunch launch = init.attr<bool>("Truncate") ? find_truncating_launch(from, to) : nullptr;
                if (!launch) launch = find_launch(from, to);
                return std::unique_ptr<ComputeKernel>(new GpuUnaryKernel(launch, to));
              });
}

}  // namespace troupe::TROUPE_GPU_VARIANT
