// SPDX-License-Identifier: Apache-2.0
// Streams against the invariants of net/session.h, by hand and under seeded schedules of losses and reconnections;
// heartbeats at their edges.
#include "net/session.h"

#include <catch2/catch.hpp>
#include <deque>

#include "tests/net/frames.h"
#include "tests/repeats.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using net::Heartbeat;
using net::OutgoingFrame;
using net::Stream;
using net::StreamOptions;

namespace {

FrameRef numbered(uint64_t i, size_t bytes = 0) {
  std::string body = std::to_string(i);
  body.resize(std::max(body.size(), bytes), ' ');
  return encoded({FrameType::kTensor, body, {}});
}
FrameHeader header_of(const OutgoingFrame& out) { return out.frame->header(out.sequence, out.acknowledged); }
FrameHeader ack_of(uint64_t acknowledged) {
  FrameHeader out;
  out.type = FrameType::kAck;
  out.acknowledged = acknowledged;
  return out;
}
std::string body_of(const FrameRef& frame) {
  const auto part = frame->parts().at(0);
  return {part.data(), part.size()};
}

}  // namespace

TEST_CASE("frames are numbered from 1 on, and kept until they are acknowledged") {
  Stream s;
  for (int i = 1; i <= 3; ++i) s.push(numbered(i));
  CHECK(s.waiting_frames() == 3);
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto out = s.next();
    REQUIRE(out);
    CHECK(out->sequence == i);
    CHECK(body_of(out->frame) == std::to_string(i));
  }
  CHECK_FALSE(s.next());
  CHECK(s.in_flight_frames() == 3);
  CHECK(s.in_flight_bytes() == 3 * 49);
  CHECK(s.receive(ack_of(2), 0).value());
  CHECK(s.in_flight_frames() == 1);
  CHECK(s.receive(ack_of(1), 0).value());  // an old one
  CHECK(s.acknowledged() == 2);
  CHECK(s.receive(ack_of(3), 0).value());
  CHECK(s.in_flight_bytes() == 0);
  const auto wrong = s.receive(ack_of(4), 0);
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().message == "sequence 4 is acknowledged, the last that was sent is 3");
}

TEST_CASE("a peer that never acknowledges gets as much as its credit") {
  Stream by_number({1 << 20, 10});
  for (int i = 0; i < 50; ++i) by_number.push(numbered(i));
  int sent = 0;
  while (by_number.next()) ++sent;
  CHECK(sent == 10);
  CHECK(by_number.waiting_frames() == 40);
  REQUIRE(by_number.receive(ack_of(4), 0).ok());
  while (by_number.next()) ++sent;
  CHECK(sent == 14);

  Stream by_bytes({1000, 100});
  for (int i = 0; i < 50; ++i) by_bytes.push(numbered(i, 152));  // 200 bytes each
  for (sent = 0; by_bytes.next();) ++sent;
  CHECK(sent == 5);
  CHECK(by_bytes.in_flight_bytes() == 1000);
  CHECK(by_bytes.waiting_bytes() == 45 * 200);
}

TEST_CASE("a frame larger than the credit goes when nothing else is in flight") {
  Stream s({1000, 100});
  s.push(numbered(1)), s.push(numbered(2, 5000)), s.push(numbered(3));
  CHECK(s.next()->sequence == 1);
  CHECK_FALSE(s.next());
  REQUIRE(s.receive(ack_of(1), 0).ok());
  CHECK(s.next()->sequence == 2);
  CHECK_FALSE(s.next());
  CHECK(s.in_flight_bytes() == 5048);
  REQUIRE(s.receive(ack_of(2), 0).ok());
  CHECK(s.next()->sequence == 3);
}

TEST_CASE("frames are delivered once, in order; a gap is an error") {
  Stream from, to;
  for (int i = 1; i <= 3; ++i) from.push(numbered(i));
  const auto one = *from.next(), two = *from.next(), three = *from.next();
  CHECK(to.receive(header_of(one), 0).value());
  CHECK_FALSE(to.receive(header_of(one), 0).value());
  CHECK(to.counters().duplicates == 1);
  const auto gap = to.receive(header_of(three), 0);
  REQUIRE_FALSE(gap.ok());
  CHECK(gap.error().message == "TENSOR with sequence 3 where 2 is due");
  CHECK(to.receive(header_of(two), 0).value());
  CHECK(to.receive(header_of(three), 0).value());
  CHECK(to.received() == 3);
  const auto ping = to.unsequenced(encoded({FrameType::kPing, "", {}}));
  CHECK(ping.sequence == 0);
  CHECK(ping.acknowledged == 3);
  CHECK(from.receive(header_of(ping), 0).value());
  CHECK(from.in_flight_frames() == 0);
}

TEST_CASE("an ACK is due after a delay, or at once after many frames or bytes; what goes out spares it") {
  StreamOptions options;
  options.ack_frames = 4, options.ack_bytes = 1000, options.ack_delay_ns = 20;
  Stream from, to(options);
  for (int i = 1; i <= 20; ++i) from.push(numbered(i, i == 10 ? 2000 : 0));
  const auto hear = [&](int64_t now) { CHECK(to.receive(header_of(*from.next()), now).value()); };
  CHECK_FALSE(to.ack(0));
  hear(100);
  CHECK(to.ack_at() == 120);
  hear(110);
  CHECK(to.ack_at() == 120);  // from the first on
  CHECK_FALSE(to.ack(119));
  auto ack = to.ack(120);
  REQUIRE(ack);
  CHECK(ack->frame->type() == FrameType::kAck);
  CHECK(ack->acknowledged == 2);
  CHECK_FALSE(to.ack(1000));
  for (int i = 0; i < 4; ++i) hear(200);
  CHECK(to.ack(200)->acknowledged == 6);
  hear(300);
  to.push(numbered(1));
  CHECK(to.next()->acknowledged == 7);
  CHECK_FALSE(to.ack_at());
  CHECK_FALSE(to.ack(1000));
  hear(400), hear(400);
  CHECK_FALSE(to.ack(400));
  hear(400);  // the large one
  CHECK(to.ack(400)->acknowledged == 10);
  CHECK(to.counters().acks == 3);
}

TEST_CASE("a stream goes on where its peer has come to") {
  Stream s;
  for (int i = 1; i <= 5; ++i) s.push(numbered(i));
  for (int i = 0; i < 4; ++i) s.next();
  REQUIRE(s.receive(ack_of(1), 0).ok());
  REQUIRE(s.resume(2).ok());
  CHECK(s.in_flight_frames() == 0);
  CHECK(s.in_flight_bytes() == 0);
  CHECK(s.next()->sequence == 3);
  CHECK(s.next()->sequence == 4);
  CHECK(s.next()->sequence == 5);
  CHECK(s.counters().resent == 2);
  CHECK(s.counters().resumes == 1);
  CHECK_THAT(s.resume(6).error().message, Contains("sequence 6 is acknowledged, the last that was sent is 5"));
  REQUIRE(s.resume(1).ok());  // said before the old connection brought the acknowledgement of 2
  CHECK(s.acknowledged() == 2);
  CHECK(s.next()->sequence == 3);
  REQUIRE(s.resume(2).ok());
  // What an earlier connection sent may be acknowledged before it is sent again.
  REQUIRE(s.receive(ack_of(4), 0).ok());
  CHECK(s.in_flight_bytes() == 0);
  CHECK(s.next()->sequence == 5);
}

namespace {

/// Two streams and the bytes between them, under a schedule that a seed draws: frames wait, connections break and lose
/// what is under way, new ones stand after a handshake that may break as well.
class Link {
 public:
  explicit Link(uint32_t seed) : random_(seed) {
    options_.credit_frames = 1 + random_() % 20;
    options_.credit_bytes = 100 + random_() % 3000;
    options_.ack_frames = 1 + random_() % 10;
    options_.ack_bytes = 1 + random_() % 2000;
    options_.ack_delay_ns = random_() % 50;
    for (Side& side : sides_) side.stream.emplace(options_);
  }

  /// Sends `count` frames each way; whether all came, in order.
  void run(uint64_t count) {
    bool healed = false;  // from then on nothing breaks
    for (int64_t now = 0; !finished(count); ++now) {
      REQUIRE(now < 200'000);
      healed |= now > 3000;
      Side& side = sides_[random_() % 2];
      Side& other = &side == &sides_[0] ? sides_[1] : sides_[0];
      if (side.pushed < count && random_() % 3 == 0) side.stream->push(numbered(++side.pushed, random_() % 400));
      if (connected_ && random_() % 2 == 0) {
        if (auto ack = side.stream->ack(now)) side.out.push_back(*ack);
        for (size_t n = random_() % 5; n > 0; --n)
          if (auto out = side.stream->next()) side.out.push_back(*out);
        CHECK((side.stream->in_flight_frames() <= 1 || (side.stream->in_flight_frames() <= options_.credit_frames &&
                                                        side.stream->in_flight_bytes() <= options_.credit_bytes)));
      }
      for (size_t n = random_() % 4; n > 0 && !side.out.empty(); --n) deliver(side, other, now);
      if (!healed && connected_ && random_() % 40 == 0) {
        connected_ = false;
        for (Side& s : sides_) s.out.clear();  // lost, also what was written
      }
      if (!connected_ && (healed || random_() % 10 == 0)) connect(healed);
    }
    for (Side& side : sides_)
      duplicates += side.stream->counters().duplicates, resent += side.stream->counters().resent;
  }

  uint64_t duplicates = 0, resent = 0;

 private:
  struct Side {
    std::optional<Stream> stream;
    std::deque<OutgoingFrame> out;
    uint64_t pushed = 0, delivered = 0;
  };

  bool finished(uint64_t count) const {
    for (const Side& side : sides_)
      if (side.delivered < count || side.stream->waiting_frames() + side.stream->in_flight_frames() > 0) return false;
    return true;
  }

  void deliver(Side& from, Side& to, int64_t now) {
    const OutgoingFrame out = from.out.front();
    from.out.pop_front();
    const auto fresh = to.stream->receive(header_of(out), now);
    REQUIRE(fresh.ok());
    if (!*fresh || out.sequence == 0) return;
    ++to.delivered;
    REQUIRE(body_of(out.frame).substr(0, body_of(out.frame).find(' ')) == std::to_string(to.delivered));
  }

  /// What a side says it has received, now and then too little, though never less than it has acknowledged.
  uint64_t told(const Side& side, const Side& other) {
    const uint64_t least = other.stream->acknowledged(), received = side.stream->received();
    return random_() % 3 == 0 ? least + random_() % (received - least + 1) : received;
  }

  /// HELLO and WELCOME carry what each has received; without the WELCOME only one side resumes, and the connection
  /// breaks again.
  void connect(bool healed) {
    const uint64_t dialer = told(sides_[0], sides_[1]), acceptor = told(sides_[1], sides_[0]);
    REQUIRE(sides_[1].stream->resume(dialer).ok());
    if (!healed && random_() % 4 == 0) {
      while (sides_[1].stream->next()) {
      }  // all lost
      return;
    }
    REQUIRE(sides_[0].stream->resume(acceptor).ok());
    connected_ = true;
  }

  std::mt19937 random_;
  StreamOptions options_;
  Side sides_[2];
  bool connected_ = true;
};

}  // namespace

TEST_CASE("under any schedule of breaks each frame comes exactly once and in order") {
  uint64_t resent = 0, duplicates = 0;
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(300)); ++seed) {
    INFO("seed " << seed);
    Link link(seed);
    link.run(100);
    resent += link.resent;
    duplicates += link.duplicates;
  }
  CHECK(resent > 1000);
  CHECK(duplicates > 100);
}

TEST_CASE("a heartbeat asks each interval, and gives up after its limit") {
  Heartbeat h(1000, {100, 1000});
  using V = Heartbeat::Verdict;
  CHECK(h.next() == 1100);
  CHECK(h.tick(1099) == V::kQuiet);
  CHECK(h.tick(1100) == V::kPing);
  CHECK(h.tick(1100) == V::kQuiet);
  CHECK(h.next() == 1200);
  int64_t now = 1100;
  while (h.tick(now += 100) == V::kPing) {
  }
  CHECK(now == 2000);
  CHECK(h.silence(now) == 1000);
  h.heard(now);
  CHECK(h.tick(now) == V::kLost);  // for good
}

TEST_CASE("a heartbeat's limit counts from what was heard last") {
  Heartbeat h(0, {100, 1000});
  using V = Heartbeat::Verdict;
  for (int64_t now = 100; now <= 900; now += 100) CHECK(h.tick(now) == V::kPing);
  h.pong(850, 999);
  CHECK(h.round_trip_ns() == 149);
  h.pong(5000, 999);  // a peer that makes up times
  CHECK(h.round_trip_ns() == 149);
  h.heard(10);  // an old time changes nothing
  for (int64_t now = 1000; now <= 1900; now += 100) CHECK(h.tick(now) == V::kPing);
  CHECK(h.next() == 1999);
  CHECK(h.tick(1998) == V::kQuiet);
  CHECK(h.tick(1999) == V::kLost);
}

TEST_CASE("a side that stood still does not blame its peer") {
  Heartbeat h(0, {100, 1000});
  using V = Heartbeat::Verdict;
  CHECK(h.tick(100) == V::kPing);
  CHECK(h.tick(5000) == V::kPing);  // stopped for 4.9 s; what came meanwhile may not be read yet
  int64_t now = 5000;
  while (h.tick(now += 100) == V::kPing) {
  }
  CHECK(now <= 6000);  // and a peer that has gone is found all the same
  CHECK(now > 5700);
}
