// SPDX-License-Identifier: Apache-2.0
// The kernel registry, the context of a kernel, and parallel_for.
#include <atomic>
#include <catch2/catch.hpp>

#include "devices/parallel.h"
#include "troupe/kernel.h"

using namespace troupe;

namespace {

struct Plain : ComputeKernel {
  Status compute(KernelContext&) override { return {}; }
};
struct Knowing : ComputeKernel {
  explicit Knowing(const KernelInit& init) : node(init.node) {}
  std::string node;
  Status compute(KernelContext&) override { return {}; }
};

KernelInit init_of(const Attrs& attrs, std::string_view op = "Add") {
  KernelInit init;
  init.op = op;
  init.node = "sum";
  init.attrs = &attrs;
  return init;
}

}  // namespace

TEST_CASE("a kernel is chosen by op, device and types") {
  KernelRegistry registry;
  registry.add<Plain>("Add", DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
  registry.add<Knowing>("Add", DeviceKind::kCpu, {{"T", {DType::kInt32, DType::kInt64}}});
  const Attrs f{{"T", DType::kFloat32}}, i{{"T", DType::kInt64}}, s{{"T", DType::kString}};
  CHECK(dynamic_cast<Plain*>(registry.make(init_of(f), DeviceKind::kCpu)->get()));
  auto made = registry.make(init_of(i), DeviceKind::kCpu);
  REQUIRE(made.ok());
  auto* knowing = dynamic_cast<Knowing*>(made->get());
  REQUIRE(knowing);
  CHECK(knowing->node == "sum");

  auto missing = registry.make(init_of(s), DeviceKind::kCpu);
  REQUIRE(!missing.ok());
  CHECK(missing.error().code == Code::kUnimplemented);
  CHECK_THAT(missing.error().message,
             Catch::Contains("T=string") && Catch::Contains("int32,int64") && Catch::Contains("cpu"));
  CHECK(registry.make(init_of(f), DeviceKind::kCuda).error().code == Code::kUnimplemented);
  CHECK_THAT(registry.make(init_of(f, "Nope"), DeviceKind::kCpu).error().message, Catch::Contains("none"));
  CHECK(registry.has("Add", DeviceKind::kCpu));
  CHECK(!registry.has("Add", DeviceKind::kCuda));
  CHECK(!registry.has("Nope", DeviceKind::kCpu));
  CHECK(registry.kernels("Add").size() == 2);
  CHECK(registry.kernels("Nope").empty());
}

TEST_CASE("a kernel's error of construction is passed on") {
  KernelRegistry registry;
  registry.add("Bad", DeviceKind::kCpu, {},
               [](const KernelInit&) -> Result<std::unique_ptr<Kernel>> { return invalid_argument("wrong strides"); });
  const Attrs none;
  CHECK(registry.make(init_of(none, "Bad"), DeviceKind::kCpu).error().message == "wrong strides");
}

TEST_CASE("an input's buffer is forwarded only to its last, single holder of the same form") {
  DeviceInfo device;
  device.allocator = make_caching_allocator();
  Tensor values[2] = {*Tensor::zeros(DType::kFloat32, {4}, device.allocator), Tensor()};
  int32_t uses[2] = {1, 0};
  const uint32_t slots[1] = {0};
  KernelContext context(values, uses, slots, 1, 1, 1, device, 5);
  const void* memory = values[0].raw();
  CHECK(context.forward_or_allocate(0, DType::kFloat32, {4})->raw() == memory);
  CHECK(context.forward_or_allocate(0, DType::kInt32, {4})->raw() != memory);
  CHECK(context.forward_or_allocate(0, DType::kFloat32, {2, 2})->raw() != memory);
  uses[0] = 2;
  CHECK(context.forward_or_allocate(0, DType::kFloat32, {4})->raw() != memory);
  uses[0] = 1;
  {
    const Tensor held = values[0];
    CHECK(context.forward_or_allocate(0, DType::kFloat32, {4})->raw() != memory);
  }
  context.set_output(0, Tensor::scalar(1.f));
  CHECK(values[1].defined());
  CHECK(context.step() == 5);
}

TEST_CASE("parallel_for covers every index once, in no more pieces than threads") {
  for (int threads : {0, 1, 3, 8})
    for (int64_t n : {0, 1, 7, 1000})
      for (int64_t grain : {0, 1, 10, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        std::atomic<int> pieces{0};
        parallel_for(threads, n, grain, [&](int64_t begin, int64_t end) {
          ++pieces;
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (const auto& s : seen) REQUIRE(s == 1);
        CHECK(pieces <= std::max(threads, 1));
      }
}
