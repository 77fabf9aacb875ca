// SPDX-License-Identifier: Apache-2.0
// Tensors in memory that is not the host's: their header is apart, views and moves keep the space, the host may not
// read or copy them.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "troupe/kernel.h"
#include "troupe/tensor.h"

namespace troupe::testing {
namespace {

/// Says that its memory is a GPU's; fills what it gives out with a pattern, so that a header in there would be seen.
class FarMemory final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    if (refuse) return nullptr;
    ++live;
    char* const out = static_cast<char*>(std::malloc(bytes + 1));
    std::fill_n(out, bytes, '\x7e');
    return out;
  }
  void deallocate(void* memory, size_t bytes) noexcept override {
    const char* const at = static_cast<const char*>(memory);
    untouched &= std::all_of(at, at + bytes, [](char c) { return c == '\x7e'; });
    std::free(memory);
    --live;
  }
  Space space() const override { return Space::kGpu; }
  AllocatorStats stats() const override { return {}; }
  void release() noexcept override {}

  int live = 0;
  bool untouched = true, refuse = false;
};

}  // namespace

TEST_CASE("space: a tensor in a GPU's memory touches none of it, and gives it back") {
  FarMemory memory;
  const auto allocator = own_allocator(&memory);
  {
    auto made = Tensor::make(DType::kFloat32, Shape{4, 3}, allocator);
    REQUIRE(made.ok());
    Tensor a = *made;
    made->reset();
    CHECK(a.space() == Space::kGpu);
    CHECK(a.unique());
    CHECK(a.bytes() == 48);
    const Tensor rows = *a.slice(1, 3), flat = *a.reshape(Shape{12});
    CHECK(rows.space() == Space::kGpu);
    CHECK(flat.space() == Space::kGpu);
    CHECK(static_cast<const char*>(rows.address()) - static_cast<const char*>(a.address()) == 12);
    CHECK(a.identical(*flat.reshape(Shape{4, 3})));
    CHECK_FALSE(rows.identical(*a.slice(0, 2)));
    CHECK_FALSE(a.identical(*Tensor::zeros(DType::kFloat32, Shape{4, 3})));
    CHECK(a.str() == "float32[4,3] in a GPU's memory");
    Tensor moved = std::move(a);
    CHECK(moved.space() == Space::kGpu);
    CHECK(a.space() == Space::kHost);  // NOLINT: what is moved from is empty
    CHECK_FALSE(a.defined());
    moved.freeze();
    CHECK_THROWS_AS(moved.mutable_address(), std::logic_error);
    CHECK(memory.live == 1);
  }
  CHECK(memory.live == 0);
  CHECK(memory.untouched);
}

TEST_CASE("space: what the host cannot do with a tensor of a GPU is an error") {
  FarMemory memory;
  const auto allocator = own_allocator(&memory);
  const Tensor there = *Tensor::make(DType::kInt32, Shape{2}, allocator), here = Tensor::of<int32_t>({1, 2});
  CHECK(there.clone().error().code == Code::kInternal);
  CHECK(here.clone(allocator).error().code == Code::kInternal);
  CHECK(Tensor::zeros(DType::kInt32, Shape{2}, allocator).error().code == Code::kInternal);
  CHECK(Tensor::make(DType::kString, Shape{2}, allocator).error().code == Code::kInternal);
  memory.refuse = true;
  CHECK(Tensor::make(DType::kInt32, Shape{2}, allocator).error().code == Code::kResourceExhausted);
  CHECK(memory.live == 1);
}

TEST_CASE("space: a registry knows what kernels of GPUs have in the host's memory") {
  class Nothing final : public ComputeKernel {
    Status compute(KernelContext&) override { return {}; }
  };
  KernelRegistry kernels;
  kernels.add<Nothing>("Reshape", DeviceKind::kCuda, {{"T", {DType::kFloat32}}}, {{1}, {}});
  kernels.add<Nothing>("Reshape", DeviceKind::kCpu, {});
  Attrs floats, ints;
  floats.set("T", DType::kFloat32);
  ints.set("T", DType::kInt32);
  CHECK(kernels.host_memory("Reshape", DeviceKind::kCuda, floats)->inputs == std::vector<int>{1});
  CHECK(kernels.host_memory("Reshape", DeviceKind::kCpu, ints)->inputs.empty());
  CHECK(kernels.host_memory("Reshape", DeviceKind::kCuda, ints).error().code == Code::kUnimplemented);
  CHECK(kernels.serves("Reshape", DeviceKind::kCuda, floats));
  CHECK_FALSE(kernels.serves("Reshape", DeviceKind::kCuda, ints));
  CHECK_FALSE(kernels.serves("Cube", DeviceKind::kCpu, ints));
}

}  // namespace troupe::testing
