// SPDX-License-Identifier: Apache-2.0
// The kernel registry, the context of a kernel, and parallel_for.
#include <atomic>
#include <catch2/catch.hpp>

#include "devices/parallel.h"
#include "troupe/blocking_kernel.h"

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

struct Asking : ResourceKernel {
  void execute(Resource&, ResourceRequest) override {}
};
struct Waiting : BlockingKernel {
  Result<std::vector<Tensor>> run(const BlockingRequest&) override { return std::vector<Tensor>(); }
};
struct Bare : Kernel {};

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

TEST_CASE("the kind of a kernel is told by its class or by what its factory returns") {
  KernelRegistry registry;
  const DeviceKind cpu = DeviceKind::kCpu;
  registry.add<Plain>("Class", cpu, {{"T", {DType::kFloat32}}});
  registry.add<Asking>("Class", cpu, {{"T", {DType::kInt32}}});
  registry.add<Waiting>("Class", cpu, {{"T", {DType::kInt64}}});
  registry.add<Bare>("Bare", cpu, {});
  registry.add("Plain", cpu, {}, [](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
    return std::unique_ptr<Kernel>(std::make_unique<Plain>());
  });
  registry.add("Resource", cpu, {}, [](const KernelInit&) -> Result<std::unique_ptr<ResourceKernel>> {
    return std::unique_ptr<ResourceKernel>(std::make_unique<Asking>());
  });
  registry.add("Own", cpu, "T", DType::kFloat32,
               [](const KernelInit&) -> Result<std::unique_ptr<Waiting>> { return std::make_unique<Waiting>(); });
  registry.add("Wrong", cpu, {}, [](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
    return invalid_argument("wrong strides");
  });
  registry.add("Named", cpu, {}, {KernelKind::kNoOp, [](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
                                    return std::unique_ptr<Kernel>(std::make_unique<BuiltinKernel>(Builtin::kNoOp));
                                  }});
  registry.add(
      "Chosen", cpu, {},
      {[](const Attrs& attrs) { return attrs.at<bool>("waits") ? KernelKind::kBlocking : KernelKind::kCompute; },
       make_kernel<Plain>});

  const auto kind = [&](const char* op, const Attrs& attrs = {}) { return *registry.kind(op, cpu, attrs); };
  CHECK(kind("Class", {{"T", DType::kFloat32}}) == KernelKind::kCompute);
  CHECK(kind("Class", {{"T", DType::kInt32}}) == KernelKind::kResource);
  CHECK(kind("Class", {{"T", DType::kInt64}}) == KernelKind::kBlocking);
  CHECK(kind("Bare") == KernelKind::kUnknown);
  CHECK(kind("Plain") == KernelKind::kUnknown);
  CHECK(kind("Resource") == KernelKind::kResource);
  CHECK(kind("Own", {{"T", DType::kFloat32}}) == KernelKind::kBlocking);
  CHECK(kind("Wrong") == KernelKind::kCompute);
  CHECK(kind("Named") == KernelKind::kNoOp);
  CHECK(kind("Chosen", {{"waits", true}}) == KernelKind::kBlocking);
  CHECK(kind("Chosen", {{"waits", false}}) == KernelKind::kCompute);
  CHECK(registry.kind("Chosen", cpu, {}).error().code == Code::kInternal);  // at() throws

  const Attrs none, typed{{"T", DType::kString}}, floats{{"T", DType::kFloat32}};
  CHECK(registry.make(init_of(none, "Wrong"), cpu).error().message == "wrong strides");
  CHECK(kind_of(**registry.make(init_of(none, "Plain"), cpu)) == KernelKind::kCompute);
  CHECK(kind_of(**registry.make(init_of(none, "Resource"), cpu)) == KernelKind::kResource);
  CHECK(kind_of(**registry.make(init_of(floats, "Own"), cpu)) == KernelKind::kBlocking);
  CHECK(kind_of(**registry.make(init_of(none, "Bare"), cpu)) == KernelKind::kUnknown);
  const auto missing = registry.kind("Class", cpu, typed);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Code::kUnimplemented);
  CHECK(missing.error().message == registry.make(init_of(typed, "Class"), cpu).error().message);
}

TEST_CASE("a factory is a value that keeps the kind of its kernels") {
  const KernelFactory waits = [](const KernelInit&) -> Result<std::unique_ptr<Waiting>> {
    return std::make_unique<Waiting>();
  };
  KernelFactory copy;
  CHECK_FALSE(copy);
  copy = waits;
  CHECK(copy);
  const Attrs none;
  CHECK(copy.kind(none) == KernelKind::kBlocking);
  CHECK(kind_of(**copy(init_of(none))) == KernelKind::kBlocking);
  const std::function<Result<std::unique_ptr<Kernel>>(const KernelInit&)> plain = make_kernel<Plain>;
  CHECK(KernelFactory(plain).kind(none) == KernelKind::kUnknown);
  CHECK(KernelFactory::of<Plain>().kind(none) == KernelKind::kCompute);
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

TEST_CASE("an input or output that a node has not is out of range") {
  DeviceInfo device;
  device.allocator = make_caching_allocator();
  Tensor values[2] = {*Tensor::zeros(DType::kFloat32, {4}, device.allocator), Tensor()};
  const int32_t uses[2] = {1, 0};
  const uint32_t slots[1] = {0};
  KernelContext context(values, uses, slots, 1, 1, 1, device, 5);
  for (int i : {1, 2, -1, INT_MAX, INT_MIN}) {
    CHECK_THROWS_AS(context.input(i), std::out_of_range);
    CHECK_THROWS_AS(context.set_output(i, Tensor::scalar(1.f)), std::out_of_range);
    CHECK_THROWS_AS(context.forward_or_allocate(i, DType::kFloat32, {4}), std::out_of_range);
  }
  CHECK(values[0].elements() == 4);
  CHECK(!values[1].defined());
}

TEST_CASE("a frozen buffer is forwarded to write in when nobody else has it, and a view as a view") {
  DeviceInfo device;
  device.allocator = make_caching_allocator();
  Tensor values[1] = {*Tensor::make(DType::kInt32, {4}, device.allocator)};
  for (int32_t i = 0; i < 4; ++i) values[0].mutable_data<int32_t>()[i] = i;
  values[0] = *values[0].slice(1, 3);
  values[0].freeze();
  const void* memory = values[0].raw();
  const int32_t uses[1] = {1};
  const uint32_t slots[1] = {0};
  KernelContext context(values, uses, slots, 1, 0, 1, device, 5);
  auto forwarded = context.forward_or_allocate(0, DType::kInt32, {2});
  REQUIRE(forwarded.ok());
  CHECK(forwarded->raw() == memory);
  CHECK(forwarded->mutable_raw() == memory);  // no copy on writing
  CHECK(forwarded->values<int32_t>()[1] == 2);
}

TEST_CASE("what a factory throws is an error, and without memory kResourceExhausted") {
  KernelRegistry registry;
  const auto throws = [](auto thrown) {
    return [thrown](const KernelInit&) -> Result<std::unique_ptr<Kernel>> { throw thrown; };
  };
  registry.add("Memory", DeviceKind::kCpu, {}, throws(std::bad_alloc()));
  registry.add("Word", DeviceKind::kCpu, {}, throws(std::runtime_error("my words")));
  registry.add("Number", DeviceKind::kCpu, {}, throws(7));
  const Attrs none;
  CHECK(registry.make(init_of(none, "Memory"), DeviceKind::kCpu).error().code == Code::kResourceExhausted);
  CHECK(registry.make(init_of(none, "Word"), DeviceKind::kCpu).error().code == Code::kInternal);
  CHECK_THAT(registry.make(init_of(none, "Word"), DeviceKind::kCpu).error().message, Catch::Contains("my words"));
  CHECK(registry.make(init_of(none, "Number"), DeviceKind::kCpu).error().code == Code::kInternal);
}
