// SPDX-License-Identifier: Apache-2.0
// Random numbers on GPUs: uniform, normal and truncated normal floats, integers, stateful and stateless. A thread makes
// the elements of one group or block of words, which are those of CPUs but for what CUDA's logarithm, sine and cosine
// round otherwise. Shapes, seeds, keys and bounds are in the host's memory.
#include "ops/parts/elementwise.cuh"
#include "ops/parts/index_tensors.h"
#include "ops/random/int_range.h"
#include "ops/random/register.h"
#include "ops/random/source.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

template <class Distribution, class T> __global__ void draw_numbers(T* out, int64_t n, bool packed, Philox random) {
  for_each_pack<4>(n, [&](int64_t i, int count) {
    Pack<T, 4> made;
    Distribution::group(random, i / 4, made.at);
    store_pack(out, made, i, count, packed);
  });
}

template <class T> __global__ void draw_integers(T* out, int64_t n, bool packed, Philox random, IntRange range) {
  constexpr int kCount = kIntsOfBlock<T>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    const Philox::Block w = random(static_cast<uint64_t>(i / kCount));
    Pack<T, kCount> made;
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) made.at[k] = int_of_block<T>(w, k, range);
    store_pack(out, made, i, count, packed);
  });
}

template <class Distribution, class T> class GpuRandom final : public ComputeKernel {
 public:
  explicit GpuRandom(const KernelInit& init) : source_(init) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(0), "shape"));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
    const int64_t n = shape.elements();
    TROUPE_ASSIGN(const Philox random, source_.next(c, n * kBlocksOfElement));
    if (n > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      T* const out = static_cast<T*>(y.mutable_address());
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, (draw_numbers<Distribution, T>), pack_blocks<4>(gpu, n),
                                           kElementThreads, 0, out, n, holds_packs<T, 4>(out), random));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  RandomSource source_;
};

template <class T> class GpuRandomInt final : public ComputeKernel {
 public:
  explicit GpuRandomInt(const KernelInit& init) : source_(init) {}
  Status compute(KernelContext& c) override {
    constexpr int kCount = kIntsOfBlock<T>;
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(0), "shape"));
    const int64_t n = shape.elements();
    TROUPE_ASSIGN(const IntRange range, int_range<T>(c, 1 + source_.inputs(), n));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
    TROUPE_ASSIGN(const Philox random, source_.next(c, n * kBlocksOfElement));
    if (n > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      T* const out = static_cast<T*>(y.mutable_address());
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, draw_integers<T>, pack_blocks<kCount>(gpu, n), kElementThreads,
                                           0, out, n, holds_packs<T, kCount>(out), random, range));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  RandomSource source_;
};

// Inputs that say where numbers come from follow the shape: none, a seed, or a key, a counter and an algorithm.

template <class Distribution, class... T>
void add_floats(KernelRegistry& kernels, const std::string& op, const std::string& stateless, TypeList<T...>) {
  const auto add = [&](const std::string& name, const KernelRegistry::HostMemory& host) {
    (kernels.add<GpuRandom<Distribution, T>>(name, DeviceKind::kCuda, {{"dtype", {dtype_of<T>}}}, host), ...);
  };
  add(op, {{0}, {}});
  add(stateless, {{0, 1}, {}});
  add(stateless + "V2", {{0, 1, 2, 3}, {}});
}

template <class... T>
void add_integers(KernelRegistry& kernels, const char* op, const char* type, const KernelRegistry::HostMemory& host,
                  TypeList<T...>) {
  (kernels.add<GpuRandomInt<T>>(op, DeviceKind::kCuda, {{type, {dtype_of<T>}}}, host), ...);
}

}  // namespace

void register_random_gpu(KernelRegistry& kernels) {
  add_floats<distributions::Uniform>(kernels, "RandomUniform", "StatelessRandomUniform", GpuFloats{});
  add_floats<distributions::Normal>(kernels, "RandomStandardNormal", "StatelessRandomNormal", GpuFloats{});
  add_floats<distributions::Truncated>(kernels, "TruncatedNormal", "StatelessTruncatedNormal", GpuFloats{});
  const IndexTypes some;
  const FullIntTypes all;
  add_integers(kernels, "RandomUniformInt", "Tout", {{0, 1, 2}, {}}, some);
  add_integers(kernels, "StatelessRandomUniformInt", "dtype", {{0, 1, 2, 3}, {}}, some);
  add_integers(kernels, "StatelessRandomUniformIntV2", "dtype", {{0, 1, 2, 3, 4, 5}, {}}, all);
  add_integers(kernels, "StatelessRandomUniformFullInt", "dtype", {{0, 1}, {}}, all);
  add_integers(kernels, "StatelessRandomUniformFullIntV2", "dtype", {{0, 1, 2, 3}, {}}, all);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
