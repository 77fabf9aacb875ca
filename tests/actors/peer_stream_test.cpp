// SPDX-License-Identifier: Apache-2.0
// PeerStream: whatever threads send comes once and in their order, while connections are replaced under it.
#include "actors/peer_stream.h"

#include <sys/socket.h>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <catch2/catch.hpp>

#include <map>
#include <thread>

#include "base/steady_clock.h"
#include "net/messages.h"
#include "tests/actors/middleman_config.h"
#include "tests/repeats.h"

namespace troupe {
namespace {

/// One end of a lane: a stream, and what has come for it. The frames are RELEASEs: program is the number among those
/// that one thread sends, session that thread.
struct End {
  std::shared_ptr<PeerLoad> load = std::make_shared<PeerLoad>();
  std::shared_ptr<PeerStream> stream = std::make_shared<PeerStream>(load);
  std::atomic<uint64_t> came = 0, faults = 0;
  std::atomic<bool> closed = false;
  std::map<uint64_t, uint64_t> last = {};  // by thread; the multiplexer's thread alone

  void take(Result<std::vector<net::ReceivedFrame>> fresh) {
    if (closed || !fresh.ok()) ++faults;
    if (!fresh.ok()) return;
    for (const net::ReceivedFrame& received : *fresh) {
      if (received.frame.type != net::FrameType::kRelease) continue;
      const auto message = net::decode<net::ReleaseProgram>(received.frame.body);
      if (!message.ok() || message->program != ++last[message->session]) ++faults;
      ++came;
    }
  }
};

/// Two ends in one process, over a pair of sockets.
struct Pair {
  End ends[2];
  testing::MiddlemanConfig config;
  caf::actor_system system{config};
  uint64_t connections = 0;

  ~Pair() {
    for (End& end : ends) end.stream->close();
  }

  /// A new connection in place of the one before, as two handshakes would agree on it.
  void connect() {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    const uint64_t received[] = {ends[0].stream->received(), ends[1].stream->received()};
    const bool resumed = ++connections > 1;
    auto& multiplexer = dynamic_cast<caf::io::network::default_multiplexer&>(system.middleman().backend());
    for (int i = 0; i < 2; ++i) {
      LaneHandler::Callbacks callbacks;
      callbacks.frames = [&end = ends[i], stream = ends[i].stream, number = connections](auto frames) {
        stream->receive(number, std::move(frames), steady_ns(), [&](auto fresh) { end.take(std::move(fresh)); });
      };
      auto handler = LaneHandler::make(multiplexer, {Descriptor(sockets[i]), net::make_plain_transport(sockets[i])}, {},
                                       std::move(callbacks));
      const Status well = ends[i].stream->connect(connections, std::move(handler), resumed, received[1 - i]);
      INFO((well.ok() ? "" : well.error().str()));
      REQUIRE(well.ok());
    }
  }
};

net::FrameRef numbered(uint64_t number, uint64_t thread) {
  return net::make_frame(net::ReleaseProgram{number, thread}).value();
}

TEST_CASE("what threads send comes once and in their order, over connections that are replaced at any time") {
  Pair pair;
  pair.connect();
  const uint64_t frames = static_cast<uint64_t>(many(20'000));
  constexpr uint64_t kThreads = 3;
  std::vector<std::thread> senders;
  for (End& end : pair.ends)
    for (uint64_t thread = 1; thread <= kThreads; ++thread)
      senders.emplace_back([&, thread, &stream = *end.stream] {
        for (uint64_t i = 1; i <= frames; ++i) stream.send(numbered(i, thread));
      });
  const auto all_came = [&] {
    return std::ranges::all_of(pair.ends, [&](const End& end) { return end.came == kThreads * frames; });
  };
  // A new connection after each so many frames; what comes late may come on the last one.
  for (uint64_t next = 50; !all_came();) {
    if (pair.ends[0].came + pair.ends[1].came >= next) pair.connect(), next += frames / 20;
    for (End& end : pair.ends) end.stream->tick(INT64_MAX);
    std::this_thread::yield();
  }
  for (std::thread& sender : senders) sender.join();
  CHECK(pair.connections > 20);
  for (End& end : pair.ends) {
    CHECK(end.faults == 0);
    CHECK(end.stream->received() == kThreads * frames);
    // All is acknowledged in the end, by the other side.
    while (end.load->bytes() > 0) {
      for (End& other : pair.ends) other.stream->tick(INT64_MAX);
      std::this_thread::yield();
    }
  }
}

TEST_CASE("a stream that is closed takes nothing any more, though frames are on their way") {
  for (int i = 0; i < repeats(100); ++i) {
    Pair pair;
    pair.connect();
    std::thread sender([&] {
      for (uint64_t k = 1; k <= 200; ++k) pair.ends[0].stream->send(numbered(k, 1));
    });
    while (pair.ends[1].came < static_cast<uint64_t>(i % 20)) std::this_thread::yield();
    pair.ends[1].stream->close();
    pair.ends[1].closed = true;
    sender.join();
    CHECK(pair.ends[1].faults == 0);
    CHECK_FALSE(pair.ends[1].stream->connected());
    CHECK(pair.ends[1].stream->send(numbered(1, 1)) == PeerStream::Sent::kClosed);
    CHECK(pair.ends[1].stream->queue(numbered(1, 1)) == PeerStream::Sent::kClosed);
    CHECK(pair.ends[1].load->bytes() == 0);
  }
}

TEST_CASE("a stream that is closed tells what was not acknowledged, sent or not") {
  Pair pair;
  pair.connect();
  PeerStream& from = *pair.ends[0].stream;
  from.send(numbered(1, 1));
  while (pair.ends[0].load->bytes() > 0) {
    pair.ends[1].stream->tick(INT64_MAX);
    std::this_thread::yield();
  }
  const net::FrameRef sent = numbered(2, 1), queued = numbered(3, 1);
  from.send(sent);
  from.queue(queued);
  CHECK(from.close() == std::vector<net::FrameRef>{sent, queued});
}

TEST_CASE("a stream counts what is queued and sent until it is acknowledged") {
  Pair pair;
  End& from = pair.ends[0];
  const net::FrameRef frame = numbered(1, 1);
  CHECK(from.stream->queue(frame) == PeerStream::Sent::kYes);
  CHECK(from.load->bytes() == frame->bytes());
  from.stream->flush();
  from.stream->send(numbered(2, 1));
  CHECK(from.load->bytes() == 2 * frame->bytes());
  CHECK_FALSE(from.stream->heard_ns().has_value());
  pair.connect();
  CHECK(from.stream->heard_ns().has_value());
  while (from.load->bytes() > 0) {
    pair.ends[1].stream->tick(INT64_MAX);
    std::this_thread::yield();
  }
  CHECK(pair.ends[1].came == 2);
  CHECK(pair.ends[1].faults == 0);
  CHECK(from.stream->heard());
}

}  // namespace
}  // namespace troupe
