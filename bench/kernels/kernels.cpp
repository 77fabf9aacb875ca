// SPDX-License-Identifier: Apache-2.0
// How long do the kernels of small networks take, alone? Prints one row for each: op, shape, best time. peers.py prints
// PyTorch's for the same rows. With --others: those of other programs. With --layouts: which layout of images are they
// faster in?
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "devices/parallel.h"
#include "programs/program.h"
#include "troupe/op_library.h"
#include "troupe/scope.h"

namespace {
using namespace troupe;

struct Bench {
  const std::shared_ptr<const OpLibrary> library = make_op_library();
  DeviceInfo device;

  /// Prints the best of the calls that fit in 0.2 s, in microseconds.
  void row(const char* name, const std::string& op, std::vector<Tensor> values, Attrs attrs, Tensor* out = nullptr) {
    const double best = time(name, op, std::move(values), std::move(attrs), out);
    if (best > 0) std::printf("%-22s %-34s %10.1f\n", name, op.c_str(), best);
  }

  /// That; also one call's first output.
  double time(const char* name, const std::string& op, std::vector<Tensor> values, Attrs attrs, Tensor* out = nullptr) {
    const auto failed = [&](const Error& error) {
      std::printf("%s: %s\n", name, error.str().c_str());
      return 0.0;
    };
    Graph graph(library->ops);
    const Scope scope(graph);
    std::vector<Output> constants;
    for (const Tensor& value : values) constants.push_back(scope.constant(value));
    const Node* node = scope.node(op, constants, std::move(attrs));
    if (!scope.ok()) return failed(scope.status().error());
    const int inputs = static_cast<int>(values.size()), outputs = node->num_outputs();
    KernelInit init;
    init.op = op;
    init.attrs = &node->attrs();
    for (const Output& in : constants) init.input_dtypes.push_back(in.dtype());
    for (int i = 0; i < outputs; ++i) init.output_dtypes.push_back(node->out(i).dtype());
    auto kernel = library->kernels.make(init, DeviceKind::kCpu);
    if (!kernel.ok()) return failed(kernel.error());
    std::vector<uint32_t> slots(inputs);
    for (int i = 0; i < inputs; ++i) slots[i] = i;
    values.resize(inputs + outputs);
    const std::vector<int32_t> uses(values.size(), 2);
    double best = 1e9, total = 0;
    for (int n = 0; n < 3 || (total < 0.2 && n < 10000); ++n) {
      for (int i = 0; i < outputs; ++i) values[inputs + i] = Tensor();
      KernelContext context(values.data(), uses.data(), slots.data(), inputs, inputs, outputs, device, 0);
      const auto begin = std::chrono::steady_clock::now();
      const Status s = static_cast<ComputeKernel&>(**kernel).compute(context);
      const double time = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (!s.ok()) return failed(s.error());
      best = std::min(best, time);
      total += time;
    }
    if (out) *out = values[inputs];
    return best * 1e6;
  }
};

Tensor filled(const Shape& shape) {
  Tensor t = *Tensor::make(DType::kFloat32, shape);
  for (int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<float>()[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
  return t;
}

Tensor sizes(const Tensor& t) {
  const std::vector<int32_t> v(t.shape().begin(), t.shape().end());
  return Tensor::of<int32_t>(std::span<const int32_t>(v));
}

void dense(Bench& b, const char* name, int64_t m, int64_t k, int64_t n) {
  const Tensor x = filled({m, k}), w = filled({k, n}), g = filled({m, n});
  b.row(name, "MatMul", {x, w}, {{"transpose_a", false}, {"transpose_b", false}});
  b.row(name, "MatMul", {x, g}, {{"transpose_a", true}, {"transpose_b", false}});
  b.row(name, "MatMul", {g, w}, {{"transpose_a", false}, {"transpose_b", true}});
}

void conv(Bench& b, const char* name, int64_t size, int64_t in, int64_t window, int64_t out, const char* padding) {
  const Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string(padding)}};
  const Attrs pool{{"ksize", std::vector<int64_t>{1, 2, 2, 1}},
                   {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                   {"padding", std::string("VALID")}};
  const Tensor x = filled({64, size, size, in}), w = filled({window, window, in, out});
  Tensor y, p;
  b.row(name, "Conv2D", {x, w}, attrs, &y);
  b.row(name, "Conv2DBackpropFilter", {x, sizes(w), y}, attrs);
  if (in > 1) b.row(name, "Conv2DBackpropInput", {sizes(x), w, y}, attrs);
  b.row(name, "BiasAdd", {y, filled({out})}, {});
  b.row(name, "BiasAddGrad", {y}, {});
  b.row(name, "MaxPool", {y}, pool, &p);
  b.row(name, "MaxPoolGrad", {y, p, p}, pool);
}

/// One row for each kernel with images of this shape: NHWC, NCHW, and their quotient.
void layouts(Bench& b, int64_t batch, int64_t size, int64_t channels) {
  struct Row {
    std::string op;
    double time[2];
  };
  std::vector<Row> rows;
  const auto shape = [](bool first, int64_t n, int64_t side, int64_t c) {
    return first ? Shape{n, c, side, side} : Shape{n, side, side, c};
  };
  for (const bool first : {false, true}) {
    size_t at = 0;
    const auto add = [&](const char* what, const std::string& op, std::vector<Tensor> in, Attrs attrs, Tensor* out) {
      if (!first) rows.push_back({op + what, {}});
      attrs.set("data_format", std::string(first ? "NCHW" : "NHWC"));
      rows[at++].time[first] = b.time(op.c_str(), op, std::move(in), std::move(attrs), out);
    };
    const auto windows = [&](int64_t stride) -> Attrs {
      const Shape s = shape(first, 1, stride, 1);
      return {{"strides", std::vector<int64_t>(s.begin(), s.end())}, {"padding", std::string("SAME")}};
    };
    const Tensor x = filled(shape(first, batch, size, channels)), v = filled({channels});
    Tensor y, variance = *Tensor::make(DType::kFloat32, {channels});
    std::fill_n(variance.mutable_data<float>(), channels, 2.f);
    for (const auto& [what, op, filter] : {std::tuple(" 1x1", "Conv2D", Shape{1, 1, channels, 64}),
                                           {" 3x3", "Conv2D", Shape{3, 3, channels, 64}},
                                           {" 3x3", "DepthwiseConv2dNative", Shape{3, 3, channels, 1}}}) {
      const Tensor w = filled(filter);
      add(what, op, {x, w}, windows(1), &y);
      add(what, std::string(op) + "BackpropFilter", {x, sizes(w), y}, windows(1), nullptr);
      add(what, std::string(op) + "BackpropInput", {sizes(x), w, y}, windows(1), nullptr);
    }
    Attrs pool = windows(2);
    pool.set("ksize", *pool.get<std::vector<int64_t>>("strides"));
    add(" 2x2", "MaxPool", {x}, pool, &y);
    add(" 2x2", "MaxPoolGrad", {x, y, y}, pool, nullptr);
    add(" 2x2", "AvgPool", {x}, pool, nullptr);
    add(" 2x2", "AvgPoolGrad", {sizes(x), y}, pool, nullptr);
    add("", "BiasAdd", {x, v}, {}, nullptr);
    add("", "BiasAddGrad", {x}, {}, nullptr);
    add(" inference", "FusedBatchNormV3", {x, v, v, v, variance}, {{"is_training", false}}, nullptr);
    add(" training", "FusedBatchNormV3", {x, v, v, v, variance}, {{"is_training", true}}, nullptr);
    add("", "FusedBatchNormGradV3", {x, x, v, v, variance, v}, {{"is_training", true}}, nullptr);
  }
  const std::string images = fmt::format("[{},{},{},{}]", batch, size, size, channels);
  for (const Row& r : rows)
    std::printf("%-18s %-40s %10.1f %10.1f %8.2f\n", images.c_str(), r.op.c_str(), r.time[0], r.time[1],
                r.time[1] / r.time[0]);
  const Tensor order = Tensor::of<int32_t>({0, 3, 1, 2});
  std::printf("%-18s %-40s %10.1f\n", images.c_str(), "Transpose",
              b.time("Transpose", "Transpose", {filled(shape(false, batch, size, channels)), order},
                     {{"Tperm", DType::kInt32}}));
}

template <class T, class F> Tensor as(const Tensor& x, F&& f) {
  Tensor out = *Tensor::make(dtype_of<T>, x.shape());
  std::transform(x.data<float>(), x.data<float>() + x.elements(), out.mutable_data<T>(), f);
  return out;
}

/// Kernels of logistic regressions, preprocessing, spectra, scientific programs.
void others(Bench& b) {
  const Tensor long_row = filled({1 << 20}), truth = as<bool>(long_row, [](float v) { return v > 0; });
  b.row("1M", "SelectV2", {truth, long_row, long_row}, {});
  b.row("1M", "LogicalAnd", {truth, truth}, {});
  b.row("1M", "Erfc", {long_row}, {});
  b.row("1M", "Log1p", {long_row}, {});
  const Tensor images = filled({8, 224, 224, 3}), channels = filled({3});
  b.row("8x224x224x3", "Sub", {images, channels}, {});
  b.row("32768x32", "Sum", {filled({32768, 32}), Tensor::of<int32_t>({1})}, {});
  b.row("64x10000", "TopKV2", {filled({64, 10000}), Tensor::scalar<int32_t>(10000)}, {});
  const Tensor square = filled({512, 512});
  const auto same = [](float v) { return v; };
  const auto product = [&](const char* name, const Tensor& x) { b.row(name, "MatMul", {x, x}, {}); };
  product("512x512x512 float64", as<double>(square, same));
  product("512x512x512 int32", as<int32_t>(square, [](float v) { return static_cast<int32_t>(1000 * v); }));
  product("512x512x512 complex64", as<complex64>(square, same));
  Tensor a = filled({512, 512});
  for (int64_t i = 0; i < 512; ++i) a.mutable_data<float>()[i * 513] += 100;
  b.row("512x512", "MatrixSolve", {a, a}, {});
  b.row("128x1024", "RFFT", {filled({128, 1024}), Tensor::of<int32_t>({1024})}, {});
  b.row("262144", "FFT", {as<complex64>(filled({1 << 18}), same)}, {});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Measures the kernels of small networks one by one, batch 64; prints one table. peers.py is PyTorch's side.");
  Bench b;
  b.device.threads = 1;
  app.add_option("threads", b.device.threads, "Threads a kernel may use")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  bool by_layout = false, of_others = false;
  app.add_flag("--others", of_others,
               "Kernels of other programs instead: element by element, products, sorts, transforms");
  app.add_flag("--layouts", by_layout, "Kernels on images instead, in each of their layouts");
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  b.device.allocator = make_caching_allocator();
  set_team(b.device.threads);
  if (of_others) {
    std::printf("%-22s %-34s %10s   (%d threads)\n", "size", "op", "us", b.device.threads);
    others(b);
    return programs::end({});
  }
  if (by_layout) {
    std::printf("%-18s %-40s %10s %10s %8s   (%d threads)\n", "NHWC images", "op", "NHWC, us", "NCHW, us", "ratio",
                b.device.threads);
    layouts(b, 64, 28, 6);
    layouts(b, 64, 24, 64);
    layouts(b, 8, 56, 144);
    layouts(b, 8, 14, 384);
    layouts(b, 8, 7, 960);
    layouts(b, 1, 14, 384);
    return programs::end({});
  }
  std::printf("%-22s %-34s %10s   (batch 64, %d threads)\n", "layer", "op", "us", b.device.threads);
  dense(b, "784x512", 64, 784, 512);
  dense(b, "512x10", 64, 512, 10);
  dense(b, "400x120", 64, 400, 120);
  dense(b, "9216x128", 64, 9216, 128);
  conv(b, "1x5x5x6", 28, 1, 5, 6, "SAME");
  conv(b, "6x5x5x16", 14, 6, 5, 16, "VALID");
  conv(b, "1x3x3x32", 28, 1, 3, 32, "VALID");
  conv(b, "32x3x3x64", 26, 32, 3, 64, "VALID");
  Tensor labels = *Tensor::zeros(DType::kInt64, {64});
  b.row("10 classes", "SparseSoftmaxCrossEntropyWithLogits", {filled({64, 10}), labels}, {});
  return programs::end({});
}
