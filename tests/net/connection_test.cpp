// SPDX-License-Identifier: Apache-2.0
// All of net/ together: two lives with handshakes, lanes and streams over sockets that break at any byte. Each frame
// arrives exactly once, in order, bit for bit; and a new life begins anew.
#include <fcntl.h>

#include <catch2/catch.hpp>
#include <deque>

#include "net/handshake.h"
#include "net/lane.h"
#include "net/session.h"
#include "tests/net/frames.h"
#include "tests/net/sockets.h"
#include "tests/repeats.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::net;

namespace {

Identity member(const std::string& job, uint64_t life) {
  Identity out;
  out.cluster = ClusterSpec::parse(R"({"cluster": {"ps": ["a:1"], "worker": ["a:2"]}})").value();
  out.task = {job, 0};
  out.incarnation = {life, 7};
  return out;
}

/// One process: what it knows of the other, and its end of the present connection.
struct Peer {
  explicit Peer(Identity identity) : self(std::move(identity)) {}

  /// A new connection on `fd`: writes its part of the handshake, or reads.
  void begin(int fd, bool dials, int64_t now) {
    lane.reset();
    if (dials) handshake = std::make_unique<Dialer>(self, TaskId{"worker", 0}, 0, known, stream->received(), now);
    else
      handshake = std::make_unique<Acceptor>(
          self, book, [&](const Hello&) { return std::optional<uint64_t>(stream->received()); }, now);
    socket = fd;
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }

  /// Does what can be done now; false when the connection has ended.
  bool work(int64_t now) {
    if (!lane) return shake(now);
    while (auto out = stream->next()) lane->add(out->frame, out->sequence, out->acknowledged);
    if (auto out = stream->ack(now)) lane->add(out->frame, out->sequence, out->acknowledged);
    if (!lane->write().ok()) return false;
    const auto read = lane->read([&](ReceivedFrame frame) -> Status {
      TROUPE_ASSIGN(const bool fresh, stream->receive(frame.header, now));
      if (fresh && frame.header.sequence > 0) got.push_back(std::move(frame.frame));
      return {};
    });
    if (!read.ok()) CHECK(read.error().code == Code::kInternal);  // never for what it read
    return read.ok();
  }

  Identity self;
  std::optional<Stream> stream = Stream();
  PeerBook book;
  Incarnation known;
  std::unique_ptr<Handshake> handshake;
  std::optional<Lane> lane;
  int socket = -1;
  std::vector<Frame> got;
  int fresh_starts = 0;

 private:
  bool shake(int64_t now) {
    const auto out = handshake->output();
    const ssize_t wrote = out.empty() ? 0 : send(socket, out.data(), out.size(), MSG_NOSIGNAL);
    if (wrote < 0) return false;
    handshake->consumed(static_cast<size_t>(wrote));
    while (handshake->wanted() > 0) {
      char bytes[64];
      const ssize_t n = recv(socket, bytes, std::min(sizeof bytes, handshake->wanted()), 0);
      if (n == 0) return false;
      if (n < 0) break;
      handshake->feed({bytes, static_cast<size_t>(n)}, now);
    }
    if (handshake->rejected()) {
      send(socket, handshake->output().data(), handshake->output().size(), MSG_NOSIGNAL);
      return false;
    }
    const Accepted* accepted = handshake->accepted();
    if (!accepted || !handshake->output().empty()) return true;
    known = accepted->incarnation;
    book.remember(accepted->peer, accepted->incarnation);
    if (accepted->resumed) {
      REQUIRE(stream->resume(accepted->received).ok());
    } else {
      ++fresh_starts;
      if (stream->sent() > 0 || stream->received() > 0) stream.emplace();
    }
    lane.emplace(socket);
    return true;
  }
};

}  // namespace

TEST_CASE("frames survive connections that break anywhere, handshakes included") {
  constexpr size_t kFrames = kSlowness > 1 ? 40 : 100;  // each way
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(30)); ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Peer ps(member("ps", 1)), worker(member("worker", 2));
    std::vector<Frame> from_ps, from_worker;
    int connections = 0;
    for (int64_t now = 0; connections == 0 || ps.got.size() < kFrames || worker.got.size() < kFrames;) {
      REQUIRE(++connections < 1000);
      SocketPair sockets(seed % 2 == 0);
      ps.begin(sockets.a, true, now);
      worker.begin(sockets.b, false, now);
      // The first connection stands, so that what is pushed belongs to it; the last ones do, so that this ends.
      const size_t turns = connections == 1 || connections > 50 ? 1000 : random() % 30;
      for (size_t turn = 0; turn < turns; ++turn, now += 1'000'000) {
        const bool dialer = random() % 2 == 0;
        Peer& peer = dialer ? ps : worker;
        auto& pushed = dialer ? from_ps : from_worker;
        if (peer.lane && pushed.size() < kFrames && random() % 3 == 0) {
          pushed.push_back(random_frame(random));
          if (random() % 5 == 0) pushed.back().tensors.push_back(random_tensor(DType::kInt32, {200'000}, random));
          peer.stream->push(encoded(pushed.back()));
        }
        REQUIRE(peer.work(now));
        if (connections == 1 && ps.lane && worker.lane && turn > 20) break;
      }
      ps.lane.reset(), worker.lane.reset();  // what they hold is lost with the sockets
    }
    REQUIRE(ps.got.size() == kFrames);
    REQUIRE(worker.got.size() == kFrames);
    for (size_t i = 0; i < kFrames; ++i) {
      REQUIRE(same(ps.got[i], from_worker[i]));
      REQUIRE(same(worker.got[i], from_ps[i]));
    }
    CHECK(ps.fresh_starts == 1);
    CHECK(worker.fresh_starts == 1);
    CHECK(ps.stream->counters().resent + worker.stream->counters().resent > 0);
  }
}

TEST_CASE("a process that started anew is another life to its peer") {
  Peer ps(member("ps", 1)), worker(member("worker", 2));
  const auto meet = [](Peer& a, Peer& b) {
    SocketPair sockets;
    a.begin(sockets.a, true, 0);
    b.begin(sockets.b, false, 0);
    bool a_stands = true, b_stands = true;
    for (int turn = 0; turn < 6; ++turn) {
      a_stands = a_stands && a.work(0);
      b_stands = b_stands && b.work(0);
    }
    return a_stands && b_stands;
  };
  ps.stream->push(encoded({FrameType::kRun, "before", {}}));
  CHECK(meet(ps, worker));
  ps.stream->push(encoded({FrameType::kRun, "1", {}}));
  CHECK(meet(ps, worker));
  REQUIRE(worker.got.size() == 2);
  CHECK(worker.got[0].body == "before");
  CHECK(worker.got[1].body == "1");
  CHECK(worker.fresh_starts == 1);
  Peer again(member("ps", 3));
  CHECK(meet(again, worker));
  CHECK(worker.fresh_starts == 2);
  CHECK(worker.stream->received() == 0);
  CHECK_FALSE(meet(ps, worker));
  CHECK(ps.handshake->rejected()->code == Refusal::kOldIncarnation);
  CHECK(meet(again, worker));
}
