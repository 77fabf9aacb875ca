// SPDX-License-Identifier: Apache-2.0
// What memory convolutions take for their filters. Winograd's filters, of processors with AVX-512, matter here: laying
// one out takes scratch memory of four times its size.
#include <malloc.h>

#include <thread>

#include "tests/ops/check_op.h"
#include "tests/ops/op_graph.h"

namespace troupe::testing {
namespace {

const Attrs kSame = {{"strides", std::vector<int64_t>{1, 1, 1, 1}},
                     {"dilations", std::vector<int64_t>{1, 1, 1, 1}},
                     {"padding", std::string("SAME")},
                     {"data_format", std::string("NHWC")}};

#ifdef __GLIBC__
TEST_CASE("a convolution that has laid its filter out holds no memory but the device's") {
  const auto held = [] {
    const auto m = mallinfo2();
    return static_cast<int64_t>(m.uordblks + m.hblkhd);
  };
  OpGraph g;
  const Tensor in = random_tensor<float>({2, 7, 7, 256}, 1), filter = random_tensor<float>({3, 3, 256, 256}, 2);
  const Output y = g.op("Conv2D", {g.of(in), g.of(filter)}, kSame);
  const int64_t before = held();
  REQUIRE(g.evaluator.value(y).defined());
  CHECK(held() - before < static_cast<int64_t>(filter.bytes()));
}
#endif

TEST_CASE("a convolution lays its constant filter out once for all shapes that want it so") {
  OpGraph g;
  const Output x = g.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
  const Tensor filter = random_tensor<float>({1, 1, 256, 512}, 2);
  const Output y = g.op("Conv2D", {x, g.of(filter)}, kSame);
  const auto held_after = [&](int64_t batch) {
    const Tensor in = random_tensor<float>({batch, 7, 7, 256}, 1);
    const Tensor got = g.evaluator.value(y, {{x, in}});
    OpGraph other;
    CHECK(got.identical(other.run(other.op("Conv2D", {other.of(in), other.of(filter)}, kSame))));
    return g.evaluator.device().allocator->stats().in_use - static_cast<int64_t>(got.bytes());
  };
  const int64_t first = held_after(2);
  for (const int64_t batch : {3, 5, 8}) CHECK(held_after(batch) - first < static_cast<int64_t>(filter.bytes()) / 2);
  // Of so many shapes the oldest go, and with the last its layout.
  for (int64_t batch = 9; batch < 30; ++batch) held_after(batch);
  CHECK(held_after(2) - first < static_cast<int64_t>(filter.bytes()) / 2);
}

TEST_CASE("threads share the filter that a convolution's kernel lays out, each with a shape of its own") {
  const Tensor filter = random_tensor<float>({3, 3, 128, 128}, 2);
  Attrs attrs = kSame;
  attrs.set("T", DType::kFloat32);
  KernelInit init;
  init.op = "Conv2D";
  init.attrs = &attrs;
  init.input_dtypes = {DType::kFloat32, DType::kFloat32};
  init.input_shapes = {PartialShape::unknown(), PartialShape(filter.shape())};
  init.output_dtypes = {DType::kFloat32};
  init.constants = {Tensor(), filter};
  DeviceInfo device;
  device.threads = 1;
  device.allocator = make_caching_allocator();
  const auto run = [&](Kernel& kernel, const Tensor& in) {
    set_team(1);
    std::vector<Tensor> values = {in, filter, Tensor()};
    const std::vector<int32_t> uses = {2, 2, 2};
    const std::vector<uint32_t> slots = {0, 1};
    KernelContext context(values.data(), uses.data(), slots.data(), 2, 2, 1, device, 1);
    return dynamic_cast<ComputeKernel&>(kernel).compute(context).ok() ? values[2] : Tensor();
  };
  constexpr int kThreads = 4, kRuns = 3;
  for (int round = 0; round < 5; ++round) {
    const auto shared = op_library()->kernels.make(init, DeviceKind::kCpu);
    REQUIRE(shared.ok());
    std::vector<int> right(kThreads);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
          const Tensor in = random_tensor<float>({2 + i, 8, 8, 128}, 3);
          const auto own = op_library()->kernels.make(init, DeviceKind::kCpu);
          if (!own.ok()) return;
          const Tensor wanted = run(**own, in);
          for (int k = 0; k < kRuns; ++k)
            if (const Tensor y = run(**shared, in); y.defined() && y.identical(wanted)) ++right[i];
        });
    }
    CHECK(right == std::vector<int>(kThreads, kRuns));
  }
}

}  // namespace
}  // namespace troupe::testing
