// SPDX-License-Identifier: Apache-2.0
// What the engine adds to a GPU: matrix products beside cuBLASLt called directly, small kernels one after the other,
// and how soon the host is told that work is done. Prints one Markdown table; beside it PyTorch on the same card, where
// it is installed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <future>

#include "bench/gpu/platform.h"
#include "bench/turns.h"
#include "gpu/blas.h"
#include "gpu/logical_device.h"
#include "gpu/pinned_memory.h"
#include "programs/program.h"
#include "troupe/engine.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace {

using namespace troupe;
using Clock = std::chrono::steady_clock;

struct Settings {
  int64_t size = 8192;
  int kernels = 10'000, repeats = 15;
  bool fake = false;
};

constexpr int kProducts = 10;  // in one step

double us_since(Clock::time_point t) { return std::chrono::duration<double, std::micro>(Clock::now() - t).count(); }

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  const auto at = v.begin() + static_cast<long>(q * static_cast<double>(v.size() - 1));
  std::nth_element(v.begin(), at, v.end());
  return *at;
}

/// An engine with one GPU, and a session that runs graphs as they are written.
struct OnGpu {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Session> session;

  static Result<OnGpu> make(const std::shared_ptr<const GpuPlatform>& platform) {
    OnGpu out;
    TROUPE_ASSIGN(out.engine, Engine::create({.cpu_threads = {1}, .gpus = {.cards = 1, .platform = platform}}));
    out.graph = std::make_unique<Graph>(out.engine->ops());
    out.session = std::make_unique<Session>(*out.engine, *out.graph, SessionOptions{.passes = GraphPasses::none()});
    return out;
  }
  Scope scope() const { return Scope(*graph).device("/gpu:0"); }
};

/// Steps before any is measured: the first ones time each node (SessionOptions::timed_steps).
constexpr int kFirstSteps = 5;

/// Microseconds of each step that runs `target`.
Result<std::vector<double>> time_steps(OnGpu& on, const Node* target, int repeats) {
  TROUPE_ASSIGN(const auto prepared, on.session->prepare({}, {}, {target}));
  std::vector<double> out;
  for (int i = 0; i < kFirstSteps + repeats; ++i) {
    const auto begun = Clock::now();
    TROUPE_RETURN_IF_ERROR(on.session->run(prepared, {}));
    if (i >= kFirstSteps) out.push_back(us_since(begun));
  }
  return out;
}

Result<double> products_by_session(const std::shared_ptr<const GpuPlatform>& platform, const Settings& s) {
  TROUPE_ASSIGN(OnGpu on, OnGpu::make(platform));
  const Scope scope = on.scope();
  const PartialShape shape{s.size, s.size};
  const Output v = scope.op("VarHandleOp", {}, {{"dtype", DType::kBFloat16}, {"shape", shape}});
  const Output filled = scope.op("Cast",
                                 {scope.op("Fill", {scope.constant(Tensor::of<int64_t>({s.size, s.size})),
                                                    scope.constant(1.f / static_cast<float>(s.size))})},
                                 {{"DstT", DType::kBFloat16}});
  const Node* const init = scope.node("AssignVariableOp", {v, filled});
  const Output weight = scope.op("ReadVariableOp", {v}, {{"dtype", DType::kBFloat16}});
  Output x = weight;
  for (int i = 0; i < kProducts; ++i) x = scope.op("MatMul", {x, weight});
  TROUPE_RETURN_IF_ERROR(scope.status());
  TROUPE_RETURN_IF_ERROR(on.session->run({init}));
  TROUPE_ASSIGN(const auto times, time_steps(on, x.node, s.repeats));
  return quantile(times, 0.5) / kProducts;
}

/// A device without an engine.
struct Bare {
  std::unique_ptr<gpu::Completions> completions;
  std::unique_ptr<gpu::LogicalDevice> device;

  static Result<Bare> make(const GpuPlatform& platform) {
    Bare out;
    out.completions = std::make_unique<gpu::Completions>(platform.runtime, gpu::CompletionsOptions{.card = 0});
    TROUPE_ASSIGN(auto blas, platform.make_blas(0));
    const gpu::Card& card = platform.runtime->cards()[0];
    TROUPE_ASSIGN(out.device,
                  gpu::LogicalDevice::make(platform.runtime, {.memory = card.memory / 10 * 9}, std::move(blas), nullptr,
                                           gpu::make_pinned_allocator(platform.runtime), *out.completions));
    return out;
  }
  ~Bare() { completions.reset(); }
  Bare() = default;
  Bare(Bare&&) = default;

  Status wait() const {
    std::promise<Status> done;
    device->mark([&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
};

Result<double> products_directly(const GpuPlatform& platform, const Settings& s) {
  TROUPE_ASSIGN(const Bare bare, Bare::make(platform));
  gpu::Compute& gpu = bare.device->compute();
  const Shape shape{s.size, s.size};
  TROUPE_ASSIGN(Tensor host, Tensor::make(DType::kBFloat16, shape));
  std::fill_n(host.mutable_data<bfloat16>(), host.elements(), bfloat16(1.f / static_cast<float>(s.size)));
  TROUPE_ASSIGN(const Tensor weight, bare.device->copy_in(host));
  Tensor turns[2];
  for (Tensor& t : turns) {
    TROUPE_ASSIGN(t, Tensor::make(DType::kBFloat16, shape, gpu.allocator));
  }
  std::vector<double> times;
  for (int i = 0; i <= s.repeats; ++i) {
    const auto begun = Clock::now();
    for (int k = 0; k < kProducts; ++k) {
      gpu::Product p{.dtype = DType::kBFloat16, .m = s.size, .n = s.size, .k = s.size};
      p.a = k == 0 ? weight.address() : turns[(k + 1) % 2].address();
      p.b = weight.address();
      p.c = turns[k % 2].mutable_address();
      TROUPE_RETURN_IF_ERROR(gpu.blas->multiply(gpu, p));
    }
    TROUPE_RETURN_IF_ERROR(bare.wait());
    if (i > 0) times.push_back(us_since(begun));
  }
  return quantile(times, 0.5) / kProducts;
}

Result<double> small_kernels(const std::shared_ptr<const GpuPlatform>& platform, const Settings& s) {
  TROUPE_ASSIGN(OnGpu on, OnGpu::make(platform));
  const Scope scope = on.scope();
  Output x = scope.op("Fill", {scope.constant(Tensor::of<int64_t>({16})), scope.constant(1.f)});
  for (int i = 0; i < s.kernels; ++i) x = scope.op("Neg", {x});
  TROUPE_RETURN_IF_ERROR(scope.status());
  TROUPE_ASSIGN(const auto times, time_steps(on, x.node, s.repeats));
  return quantile(times, 0.5) / s.kernels;
}

/// From before a mark is put into an idle stream to its answer, which a device's actor gets in the same way.
Result<std::vector<double>> ends(const GpuPlatform& platform, int count) {
  TROUPE_ASSIGN(const Bare bare, Bare::make(platform));
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    const auto begun = Clock::now();
    TROUPE_RETURN_IF_ERROR(bare.wait());
    out.push_back(us_since(begun));
  }
  return out;
}

Status run(const Settings& s) {
  TROUPE_ASSIGN(const auto platform, bench::platform_of(s.fake));
  const gpu::Card& card = platform->runtime->cards()[0];
  programs::print("{}{}\n\n", card.name, s.fake ? ": stands in for CUDA, its times mean nothing" : "");
  programs::print("| question | Troupe | beside it | ratio | must reach |\n|---|---|---|---|---|\n");
  TROUPE_ASSIGN(const double session, products_by_session(platform, s));
  TROUPE_ASSIGN(const double direct, products_directly(*platform, s));
  const double flops = 2.0 * static_cast<double>(s.size * s.size * s.size);
  programs::print(
      "| {0} x {0} x {0} bfloat16, TFLOP/s | {1:.1f} | {2:.1f} by the library directly | {3:.3f} | 0.97 |\n", s.size,
      flops / session / 1e6, flops / direct / 1e6, direct / session);
  const std::string peer =
      fmt::format("python3 {}/peer_pytorch.py --size {} --kernels {}", bench::peers_folder("gpu"), s.size, s.kernels);
  const auto numbers = s.fake ? std::vector<double>() : bench::measure(peer);
  if (numbers.size() >= 2)
    programs::print("| the same, PyTorch | {:.1f} | {:.1f} | {:.3f} | |\n", flops / session / 1e6,
                    flops / numbers[0] / 1e6, numbers[0] / session);
  TROUPE_ASSIGN(const double small, small_kernels(platform, s));
  programs::print("| {} small kernels, us each | {:.2f} | {} | | 3.5 |\n", s.kernels, small,
                  numbers.size() >= 2 ? fmt::format("{:.2f} by PyTorch", numbers[1]) : "");
  TROUPE_ASSIGN(const auto told, ends(*platform, 1000));
  programs::print("| end of work to its host, us: median, p99 | {:.1f}, {:.1f} | | | 15, 50 |\n", quantile(told, 0.5),
                  quantile(told, 0.99));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("What the engine adds to a GPU");
  app.add_option("--size", settings.size, "Rows and columns of the matrices")
      ->check(CLI::Range(16, 65536))
      ->capture_default_str();
  app.add_option("--kernels", settings.kernels, "Small kernels in a step")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--repeats", settings.repeats, "Steps of each, of which the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--fake", settings.fake, "Run on what stands in for CUDA, to try the program");
  return programs::run(app, argc, argv, [&] { return run(settings); });
}
