// SPDX-License-Identifier: Apache-2.0
// Runs the kernel of a GPU on the host, by the shim, and that of the CPU, and compares: values, shapes, errors. The
// GPU's tensors lie in memory of their own, which other kernels may not read, with marks around them. The same tests
// run on a real GPU where there is one (tests/gpu/real_gpu.h).
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "devices/host_arguments.h"
#include "gpu/compute.h"
#include "gpu/fake/fake_blas.h"
#include "gpu/fake/fake_dnn.h"
#include "ops/gpu_kernels.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/type_dispatch.h"
#include "tests/gpu/inline_stream.h"
#include "tests/gpu/real_gpu.h"
#include "tests/ops/evaluate.h"
#include "tests/repeats.h"

namespace troupe::gpu::fake {
std::vector<std::string> take_faults();
void seed_launches(uint64_t seed);
}  // namespace troupe::gpu::fake

namespace troupe::testing {

/// Memory that counts as a GPU's. Blocks are of the very size asked for, so that AddressSanitizer sees what is beyond;
/// all bytes begin as 0xff, so that floats that nobody wrote are NaN.
class GpuMemory final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    const size_t all = bytes + 2 * kStrip;
    auto* memory = static_cast<unsigned char*>(::operator new (all, std::align_val_t{kAlignment}));
    std::fill_n(memory, all, 0xff);
    std::fill_n(memory, kStrip, kMark);
    std::fill_n(memory + kStrip + bytes, kStrip, kMark);
    ++held_;
    return memory + kStrip;
  }
  void deallocate(void* memory, size_t bytes) noexcept override {
    auto* begin = static_cast<unsigned char*>(memory) - kStrip;
    const auto written = [&](const unsigned char* strip) {
      return std::any_of(strip, strip + kStrip, [](unsigned char c) { return c != kMark; });
    };
    if (written(begin) || written(begin + kStrip + bytes)) {
      std::fprintf(stderr, "a kernel wrote beside a block of %zu bytes\n", bytes);
      std::abort();
    }
    ::operator delete (begin, std::align_val_t{kAlignment});
    release();
  }
  Space space() const override { return Space::kGpu; }
  AllocatorStats stats() const override { return {}; }
  void release() noexcept override {
    if (--held_ == 0) delete this;
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kStrip = 0;
#else
  static constexpr size_t kStrip = 256;
#endif
  static constexpr unsigned char kMark = 0xA5;
  std::atomic<int64_t> held_{1};
};

/// One call of an op.
struct ParityCase {
  std::string op;
  std::vector<Tensor> inputs;
  Attrs attrs = {};
  double tolerance = 0;  // how far floating results may differ, relative to 1 or the larger of them; 0: not at all
};

class Parity {
 public:
  explicit Parity(std::shared_ptr<gpu::Blas> blas = gpu::make_fake_blas(),
                  std::shared_ptr<gpu::Dnn> dnn = gpu::make_fake_dnn())
      : blas_(std::move(blas)), dnn_(std::move(dnn)) {
    if (real_) real_->platform->register_kernels(gpu_kernels_);
    else on_fake::register_gpu_kernels(gpu_kernels_);
    card_.name = "fake";
    card_.multiprocessors = 2;
    cpu_.name = "/job:localhost/task:0/device:cpu:0";
    cpu_.allocator = own_allocator(new GuardedAllocator);
    gpu_.name = "/job:localhost/task:0/device:gpu:0";
    gpu_.kind = DeviceKind::kCuda;
    gpu_.allocator = real_ ? real_->device->compute().allocator : memory_;
    gpu_.gpu = real_ ? &real_->device->compute() : &compute_;
  }

  const KernelRegistry& gpu_kernels() const { return gpu_kernels_; }
  InlineStream& stream() { return stream_; }

  /// Whether the GPU has a kernel for the op of a case.
  bool served(const ParityCase& c) {
    Graph graph(op_library()->ops);
    const Node* node = node_of(graph, c);
    return gpu_kernels_.serves(c.op, DeviceKind::kCuda, node->attrs());
  }

  enum class Layout { kOwn, kShared, kUnaligned };
  /// Runs a case: with inputs that kernels may write into, with such as others want too, or with such as begin
  /// anywhere in memory.
  Result<std::vector<Tensor>> run(DeviceKind kind, const ParityCase& c, Layout layout = Layout::kOwn) {
    Graph graph(op_library()->ops);
    const Node* node = node_of(graph, c);
    KernelInit init;
    init.op = node->op().name();
    init.node = node->name();
    init.attrs = &node->attrs();
    for (const Output& in : node->inputs()) {
      init.input_dtypes.push_back(in.dtype());
      init.input_shapes.push_back(in.shape());
      init.constants.emplace_back();
    }
    for (int p = 0; p < node->num_outputs(); ++p) init.output_dtypes.push_back(node->dtype(p));
    const bool gpu = kind == DeviceKind::kCuda;
    const KernelRegistry& kernels = gpu ? gpu_kernels_ : op_library()->kernels;
    TROUPE_ASSIGN(std::unique_ptr<Kernel> kernel, kernels.make(init, kind));
    KernelRegistry::HostMemory host;
    if (gpu) {
      TROUPE_ASSIGN(host, kernels.host_memory(c.op, kind, node->attrs()));
    }
    const int inputs = static_cast<int>(c.inputs.size()), outputs = node->num_outputs();
    std::vector<Tensor> values(inputs + outputs);
    std::vector<uint32_t> slots(inputs);
    for (int i = 0; i < inputs; ++i) {
      slots[i] = i;
      values[i] = gpu && !names_argument(host.inputs, i, inputs) ? upload(c.inputs[i], layout) : *c.inputs[i].clone();
    }
    const std::vector<int32_t> uses(inputs + outputs, layout == Layout::kShared ? 2 : 1);
    std::vector<Tensor> before;
    if (layout == Layout::kShared) before.assign(values.begin(), values.begin() + inputs);
    auto* compute = dynamic_cast<ComputeKernel*>(kernel.get());
    REQUIRE(compute);
    KernelContext context(values.data(), uses.data(), slots.data(), inputs, static_cast<uint32_t>(inputs), outputs,
                          gpu ? gpu_ : cpu_, 0, random_step);
    TROUPE_RETURN_IF_ERROR(compute->compute(context));
    std::vector<Tensor> out;
    for (int p = 0; p < outputs; ++p) {
      const Tensor& y = values[inputs + p];
      REQUIRE(y.defined());
      if (gpu) CHECK((y.space() == Space::kHost) == names_argument(host.outputs, p, outputs));
      out.push_back(download(y));
    }
    for (size_t i = 0; i < before.size(); ++i) CHECK(download(before[i]).identical(c.inputs[i]));
    return out;
  }

  /// The results of both agree, bit for bit or within the tolerance, or both have the same error: in each layout, or
  /// under a sanitizer in some.
  void check(const ParityCase& c) {
    std::string shapes;
    for (const Tensor& x : c.inputs) shapes += " " + std::string(to_string(x.dtype())) + x.shape().str();
    INFO(c.op << shapes);
    const auto expected = run(DeviceKind::kCpu, c);
    for (Layout layout : {Layout::kOwn, Layout::kShared, Layout::kUnaligned}) {
      if (!runs_case(static_cast<unsigned>(++seed_))) continue;
      gpu::fake::seed_launches(seed_);
      const auto actual = run(DeviceKind::kCuda, c, layout);
      if (!expected.ok()) {
        REQUIRE_FALSE(actual.ok());
        CHECK(actual.error().message == expected.error().message);
        CHECK(actual.error().code == expected.error().code);
        continue;
      }
      INFO((actual.ok() ? "" : actual.error().str()));
      REQUIRE(actual.ok());
      REQUIRE(actual->size() == expected->size());
      for (size_t p = 0; p < actual->size(); ++p) compare((*actual)[p], (*expected)[p], c.tolerance);
      const auto faults = gpu::fake::take_faults();
      CHECK(faults == std::vector<std::string>());
    }
  }

  /// They are the same, floats within the tolerance.
  void compare(const Tensor& actual, const Tensor& expected, double tolerance) {
    if (real_) tolerance = std::max(tolerance, rounding(actual.dtype()));
    // With AVX-512 loops over floats round a product and a sum once, which kernels compiled for hosts do not.
    if (has_avx512() && actual.dtype() == DType::kFloat32) tolerance = std::max(tolerance, 1e-6);
    REQUIRE(actual.dtype() == expected.dtype());
    REQUIRE(actual.shape() == expected.shape());
    const bool floats = with_type(actual.dtype(), FloatTypes{}, [&]<class T>() {
      const T *a = actual.data<T>(), *b = expected.data<T>();
      for (int64_t i = 0; i < actual.elements(); ++i) {
        const double x = widen(a[i]), y = widen(b[i]);
        const bool same = std::isnan(x) ? std::isnan(y)
                          : x == y      ? true
                                        : std::abs(x - y) <= tolerance * std::max({1.0, std::abs(x), std::abs(y)});
        if (!same) {
          INFO("element " << i << " of " << actual.shape().str() << ": " << x << " but on the CPU " << y);
          REQUIRE(same);
        }
      }
    });
    if (!floats) {
      INFO(actual.str() << " but on the CPU " << expected.str());
      CHECK(actual.identical(expected));
    }
  }

  int64_t random_step = -1;

 private:
  static const Node* node_of(Graph& graph, const ParityCase& c) {
    // Fed, so that shapes are checked by kernels rather than by what infers them.
    Scope scope(graph);
    std::vector<Output> inputs;
    for (const Tensor& x : c.inputs) inputs.push_back(scope.op("Placeholder", {}, {{"dtype", x.dtype()}}));
    const Node* node = scope.node(c.op, inputs, c.attrs);
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(node);
    return node;
  }

  Tensor upload(const Tensor& x, Layout layout) {
    if (is_object(x.dtype())) return x;
    Tensor y;
    if (layout == Layout::kUnaligned && x.rank() > 0) {
      Shape larger = x.shape();
      larger.set(0, larger[0] + 1);
      y = *Tensor::make(x.dtype(), larger, gpu_.allocator)->slice(1, larger[0]);
    } else {
      y = *Tensor::make(x.dtype(), x.shape(), gpu_.allocator);
    }
    if (real_) {
      REQUIRE(real_->device->compute().stream.copy(y.mutable_address(), x.raw(), x.bytes()).ok());
      REQUIRE(real_->device->fetch(y).ok());  // x may go
    } else if (x.bytes() > 0) {
      std::memcpy(y.mutable_address(), x.raw(), x.bytes());
    }
    return y;
  }
  Tensor download(const Tensor& x) {
    if (x.space() == Space::kHost) return x;
    if (real_) {
      auto here = real_->device->fetch(x);
      INFO((here.ok() ? "" : here.error().str()));
      REQUIRE(here.ok());
      return std::move(*here);
    }
    Tensor y = *Tensor::make(x.dtype(), x.shape());
    if (x.bytes() > 0) std::memcpy(y.mutable_raw(), x.address(), x.bytes());
    return y;
  }

  /// Of a real GPU, whose functions round otherwise than the host's.
  static double rounding(DType dtype) {
    switch (dtype) {
      case DType::kFloat64: return 1e-10;
      case DType::kFloat16: return 4e-3;
      case DType::kBFloat16: return 3e-2;
      default: return 2e-5;
    }
  }

  std::unique_ptr<RealGpu> real_ = on_real_gpu() ? std::make_unique<RealGpu>() : nullptr;
  KernelRegistry gpu_kernels_;
  gpu::Card card_;
  InlineStream stream_;
  std::shared_ptr<Allocator> memory_ = own_allocator(new GpuMemory);
  const std::shared_ptr<gpu::Blas> blas_;
  const std::shared_ptr<gpu::Dnn> dnn_;
  gpu::Compute compute_{.stream = stream_,
                        .card = card_,
                        .blas = blas_.get(),
                        .dnn = dnn_.get(),
                        .allocator = memory_,
                        .upload = [this](const Tensor& x) -> Result<Tensor> { return upload(x, Layout::kOwn); }};
  DeviceInfo cpu_, gpu_;
  uint64_t seed_ = 0;
};

/// Values of a dtype from a seed: small numbers of both signs and, with `extremes`, zeros, infinities and NaN.
inline Tensor random_values(DType dtype, const Shape& shape, uint64_t seed, bool extremes = false) {
  std::mt19937_64 random(seed);
  Tensor x = *Tensor::make(dtype, shape);
  if (dtype == DType::kBool) {
    for (int64_t i = 0; i < x.elements(); ++i) x.mutable_data<bool>()[i] = random() % 2;
    return x;
  }
  with_type(dtype, NumberTypes{}, [&]<class T>() {
    using A = Arithmetic<T>;
    T* out = x.mutable_data<T>();
    for (int64_t i = 0; i < x.elements(); ++i) {
      if constexpr (std::is_floating_point_v<A>) {
        double v = std::uniform_real_distribution<double>(-4, 4)(random);
        const double rare[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.0, 1e-30, 3e38, 90, -90, 0.5, 2.5, -1.5};
        if (extremes && random() % 3 == 0) v = rare[random() % std::size(rare)];
        out[i] = narrow<T>(static_cast<A>(v));
      } else {
        auto v = static_cast<T>(random() % 19) - (std::is_signed_v<T> ? 9 : 0);
        if (extremes && random() % 4 == 0)
          v = random() % 2 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
        out[i] = static_cast<T>(v);
      }
    }
  });
  return x;
}

}  // namespace troupe::testing
