// SPDX-License-Identifier: Apache-2.0
// CUDA itself: on a machine without driver or card, or without CUDA in the build, one line that says so; else bytes go
// to each card and back.
#include "gpu/cuda_runtime.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "gpu/device_memory.h"
#include "gpu/pinned_memory.h"

namespace troupe::gpu {

TEST_CASE("cuda: a machine without cards is an error of one line, and cards carry bytes there and back") {
  auto made = make_cuda_runtime();
  if (!made.ok()) {
    CHECK(made.error().code == Code::kUnavailable);
    CHECK(made.error().message.find("CUDA: ") == 0);
    CHECK(made.error().message.size() > 15);
    CHECK(made.error().message.find('\n') == std::string::npos);
    CHECK(make_cuda_runtime().error().message == made.error().message);
    WARN(made.error().message);
    return;
  }
  const std::shared_ptr<Runtime> cuda = *made;
  REQUIRE_FALSE(cuda->cards().empty());
  for (int card = 0; card < static_cast<int>(cuda->cards().size()); ++card) {
    CAPTURE(card, cuda->cards()[card].name);
    std::shared_ptr<Stream> stream = cuda->make_stream(card).value();
    auto memory = DeviceMemory::make(cuda, stream, {.card = card, .limit = int64_t{64} << 20}).value();
    auto pinned = make_pinned_allocator(cuda);
    constexpr size_t kBytes = 1000000;
    auto* const host = static_cast<unsigned char*>(pinned->allocate(kBytes));
    auto* const there = static_cast<unsigned char*>(memory->in_stream_order()->allocate(kBytes));
    REQUIRE((host && there));
    std::memset(host, 5, kBytes);
    CHECK(stream->copy(there, host, kBytes).ok());
    CHECK(stream->fill(there + 10, 6, 10).ok());
    auto event = cuda->make_event(card).value();
    CHECK(stream->record(*event).ok());
    CHECK(event->wait().ok());
    std::memset(host, 0, kBytes);
    CHECK(stream->copy(host, there, kBytes).ok());
    CHECK(stream->record(*event).ok());
    CHECK(event->wait().ok());
    CHECK(event->done().value());
    CHECK(host[9] == 5);
    CHECK(host[10] == 6);
    CHECK(host[kBytes - 1] == 5);
    CHECK(stream->check_launch("none").ok());
    pinned->deallocate(host, kBytes);
    memory->in_stream_order()->deallocate(there, kBytes);
    memory->trim();
  }
  CHECK(cuda->make_stream(1000).error().code == Code::kInternal);
}

}  // namespace troupe::gpu
