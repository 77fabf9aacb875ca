// SPDX-License-Identifier: Apache-2.0
// LaneHandler: how it ends. What frames come over it is in peer_stream_test.
#include "actors/lane_handler.h"

#include <sys/socket.h>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <catch2/catch.hpp>

#include <future>
#include <thread>

#include "tests/actors/middleman_config.h"

namespace troupe {
namespace {

/// A peer that has closed the connection, and whose last bytes came with the handshake.
class ClosedTransport final : public net::Transport {
 public:
  using Transport::Transport;
  Moved read(std::span<const iovec>) override { return std::optional<size_t>(0); }
  Moved write(std::span<const iovec>) override { return std::optional<size_t>(0); }
  bool pending() const override { return true; }
};

struct Sockets {
  int ends[2] = {-1, -1};
  Sockets() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }
};

/// Returns once the multiplexer, which carries on by itself, has let go of it.
void wait_for_end(const std::weak_ptr<LaneHandler>& lane) {
  while (!lane.expired()) std::this_thread::yield();
}

TEST_CASE("a lane whose peer has left before it began ends, and closes its socket") {
  testing::MiddlemanConfig config;
  caf::actor_system system(config);
  auto& multiplexer = dynamic_cast<caf::io::network::default_multiplexer&>(system.middleman().backend());
  const Sockets sockets;
  const Descriptor other(sockets.ends[1]);
  std::promise<Error> broken;
  LaneHandler::Callbacks callbacks;
  callbacks.broken = [&](Error why) { broken.set_value(std::move(why)); };
  auto lane =
      LaneHandler::make(multiplexer, {Descriptor(sockets.ends[0]), std::make_unique<ClosedTransport>(sockets.ends[0])},
                        {}, std::move(callbacks));
  lane->start();
  CHECK_FALSE(broken.get_future().get().message.empty());
  const std::weak_ptr<LaneHandler> weak = lane;
  lane.reset();
  wait_for_end(weak);
  char byte = 0;
  CHECK(recv(other.get(), &byte, 1, 0) == 0);
}

TEST_CASE("a lane that is closed ends, whether it has begun or not") {
  testing::MiddlemanConfig config;
  caf::actor_system system(config);
  auto& multiplexer = dynamic_cast<caf::io::network::default_multiplexer&>(system.middleman().backend());
  for (const bool starts : {false, true}) {
    const Sockets sockets;
    const Descriptor other(sockets.ends[1]);
    auto lane = LaneHandler::make(multiplexer,
                                  {Descriptor(sockets.ends[0]), net::make_plain_transport(sockets.ends[0])}, {}, {});
    if (starts) lane->start();
    lane->close();
    const std::weak_ptr<LaneHandler> weak = lane;
    lane.reset();
    wait_for_end(weak);
    char byte = 0;
    CHECK(recv(other.get(), &byte, 1, 0) == 0);
  }
}

}  // namespace
}  // namespace troupe
