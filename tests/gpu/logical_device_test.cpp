// SPDX-License-Identifier: Apache-2.0
// LogicalDevice: what copies use stays until they are done, also where that cannot be watched.
#include "gpu/logical_device.h"

#include <catch2/catch.hpp>

#include "gpu/fake/fake_runtime.h"
#include "gpu/pinned_memory.h"

namespace troupe::gpu {

TEST_CASE("logical device: its end waits for copies that could not be watched") {
  auto fake = std::make_shared<FakeRuntime>();
  {
    Completions completions(fake, {.passive = true});
    auto device =
        LogicalDevice::make(fake, {.memory = 64 << 20}, nullptr, nullptr, make_pinned_allocator(fake), completions)
            .value();
    const bool out = GENERATE(true, false);
    Tensor value = *Tensor::zeros(DType::kFloat32, {64});
    if (out) value = *Tensor::make(DType::kFloat32, {64}, device->compute().allocator);
    // The first record orders the two streams; what the second marks would be watched.
    fake->fail(FakeCall::kRecord, 2, Code::kInternal);
    Status told;
    if (out) REQUIRE(device->copy_out(value, [&](Result<Tensor> here) { told = here.status(); }).ok());
    else REQUIRE(device->copy_in(value).ok());
    CHECK(completions.poll() == 1);
    if (out) CHECK(told.error().code == Code::kInternal);
    value.reset();
    CHECK(fake->pending() > 0);
  }
  for (const std::string& fault : fake->faults()) FAIL_CHECK(fault);
  CHECK(fake->mapped(0) == 0);
}

}  // namespace troupe::gpu
