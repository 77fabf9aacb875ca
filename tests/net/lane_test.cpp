// SPDX-License-Identifier: Apache-2.0
// Lanes over socketpairs and loopback: many small frames in few calls, large ones straight into memory, ends and
// breaks.
#include "net/lane.h"

#include <catch2/catch.hpp>

#include "tests/net/frames.h"
#include "tests/net/sockets.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using net::Lane;

namespace {

/// Reads what has come; the frames go to `out`.
Result<Lane::ReadResult> read_into(Lane& lane, std::vector<ReceivedFrame>& out, uint64_t budget = 1 << 30) {
  return lane.read(
      [&](ReceivedFrame frame) {
        out.push_back(std::move(frame));
        return Status();
      },
      budget);
}

/// Writes and reads in turns until all is there.
std::vector<ReceivedFrame> carry(Lane& from, Lane& to, size_t frames) {
  std::vector<ReceivedFrame> out;
  while (out.size() < frames) {
    CHECK(from.write().ok());
    await(to.fd(), POLLIN);
    const auto read = read_into(to, out);
    REQUIRE(read.ok());
  }
  return out;
}

FrameRef small(int i) { return encoded({FrameType::kRun, "frame " + std::to_string(i), {}}); }
FrameRef large(size_t bytes) {
  std::mt19937 random(static_cast<unsigned>(bytes));
  return encoded({FrameType::kTensor, "large", {random_tensor(DType::kUInt8, {static_cast<int64_t>(bytes)}, random)}});
}

}  // namespace

TEST_CASE("many small frames go in few calls of the system, both ways") {
  SocketPair sockets;
  Lane a(sockets.a), b(sockets.b);
  for (int i = 1; i <= 200; ++i) a.add(small(i), i, i - 1);
  CHECK(a.unwritten() > 200 * 48);
  CHECK(a.write().value() == 0);
  CHECK(a.unwritten() == 0);
  CHECK(a.counters().writes <= 6);
  std::vector<ReceivedFrame> out;
  const auto read = read_into(b, out);
  REQUIRE(read.ok());
  CHECK(read->bytes == a.counters().bytes_out);
  CHECK_FALSE(read->more);
  CHECK(b.counters().reads <= 3);
  REQUIRE(out.size() == 200);
  for (int i = 1; i <= 200; ++i) {
    CHECK(out[i - 1].frame.body == "frame " + std::to_string(i));
    CHECK(out[i - 1].header.sequence == static_cast<uint64_t>(i));
    CHECK(out[i - 1].header.acknowledged == static_cast<uint64_t>(i - 1));
  }
  CHECK(a.counters().frames_out == 200);
  CHECK(b.counters().frames_in == 200);
  b.add(small(7), 1);
  CHECK(b.write().value() == 0);
  CHECK(carry(b, a, 1)[0].frame.body == "frame 7");
  CHECK(read_into(a, out)->bytes == 0);
}

TEST_CASE("random frames cross socketpairs and TCP bit for bit, in the order they were added") {
  for (const bool tcp : {false, true}) {
    SocketPair sockets(tcp);
    Lane a(sockets.a), b(sockets.b);
    std::mt19937 random(5);
    std::vector<Frame> frames;
    for (int i = 0; i < 300; ++i) {
      frames.push_back(random_frame(random));
      if (i % 50 == 0) frames.back().tensors.push_back(random_tensor(DType::kInt64, {100'000}, random));
      a.add(encoded(frames.back()), i + 1);
    }
    const auto out = carry(a, b, frames.size());
    for (size_t i = 0; i < out.size(); ++i) REQUIRE(same(out[i].frame, frames[i]));
    CHECK(a.counters().bytes_out == b.counters().bytes_in);
    CHECK(a.unwritten() == 0);
  }
}

TEST_CASE("a large frame waits for room, and its tensor lives until it is written") {
  SocketPair sockets;
  Lane a(sockets.a), b(sockets.b);
  FrameRef frame = large(8 << 20);
  std::weak_ptr<const EncodedFrame> watched = frame;
  const std::string bytes = bytes_of(frame);
  a.add(std::move(frame), 1);
  const uint64_t left = a.write().value();
  CHECK(left > 0);
  CHECK(left < bytes.size());
  CHECK(a.unwritten() == left);
  CHECK_FALSE(watched.expired());
  const auto out = carry(a, b, 1);
  CHECK(watched.expired());
  CHECK(bytes_of(encoded(out[0].frame)) == bytes);
}

TEST_CASE("a budget ends a read early, and says that there may be more") {
  SocketPair sockets;
  Lane a(sockets.a), b(sockets.b);
  for (int i = 0; i < 100; ++i) a.add(large(1000), i + 1);
  CHECK(a.write().value() == 0);
  std::vector<ReceivedFrame> out;
  const auto first = read_into(b, out, 1);
  REQUIRE(first.ok());
  CHECK(first->more);
  CHECK(out.size() < 100);
  while (out.size() < 100) REQUIRE(read_into(b, out).ok());
}

TEST_CASE("what was sent before the end still arrives; then the end is an error for good") {
  SocketPair sockets;
  Lane a(sockets.a), b(sockets.b);
  a.add(small(1), 1);
  CHECK(a.write().ok());
  sockets.close_a();
  std::vector<ReceivedFrame> out;
  auto read = read_into(b, out);
  if (read.ok()) read = read_into(b, out);
  CHECK(out.size() == 1);
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().code == Code::kInternal);
  CHECK(read.error().message == "the peer closed the connection");
  CHECK_FALSE(read_into(b, out).ok());
}

TEST_CASE("an end within a frame says how far it came") {
  const std::string bytes = bytes_of(encoded({FrameType::kTensor, "body", {Tensor::of<float>({1, 2, 3})}}));
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    SocketPair sockets;
    Lane b(sockets.b);
    REQUIRE(::write(sockets.a, bytes.data(), cut) == static_cast<ssize_t>(cut));
    sockets.close_a();
    std::vector<ReceivedFrame> out;
    auto read = read_into(b, out);
    if (read.ok()) read = read_into(b, out);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Code::kInternal);
    const char* part = cut < 48 ? "bytes of a header" : cut < 72 ? "bytes of the body of TENSOR" : "bytes of tensor 0";
    CHECK_THAT(read.error().message, Contains("closed the connection within a frame") && Contains(part));
    CHECK(out.empty());
  }
}

TEST_CASE("writing to a peer that has gone is an error, not a signal") {
  SocketPair sockets;
  Lane a(sockets.a);
  sockets.close_b();
  a.add(large(1 << 20), 1);
  const auto written = a.write();
  REQUIRE_FALSE(written.ok());
  CHECK(written.error().code == Code::kInternal);
  CHECK_THAT(written.error().message, Contains("the connection broke while writing: Broken pipe"));
  CHECK_FALSE(a.write().ok());
}

TEST_CASE("a bad frame, a frame beyond the limits and an error of the reader's end a lane's reading") {
  const auto fault = [](std::string bytes, net::LaneOptions options = {}) {
    SocketPair sockets;
    Lane b(sockets.b, options);
    TROUPE_CHECK(::write(sockets.a, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    std::vector<ReceivedFrame> out;
    const auto read = read_into(b, out);
    CHECK_FALSE(read_into(b, out).ok());
    return read.status().error();
  };
  CHECK(fault("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n").code == Code::kDataLoss);
  CHECK(fault(bytes_of(large(2000)), {{100, 1, 1000}}).code == Code::kResourceExhausted);
  CHECK(fault(bytes_of(large(2000)), {{}, counting(1000)}).code == Code::kResourceExhausted);
  SocketPair sockets;
  Lane a(sockets.a), b(sockets.b);
  a.add(small(1), 1), a.add(small(2), 2);
  CHECK(a.write().ok());
  int calls = 0;
  const auto read = b.read([&](ReceivedFrame) {
    ++calls;
    return Status(make_error(Code::kDataLoss, "not this one"));
  });
  CHECK(read.status().error().message == "not this one");
  CHECK(calls == 1);
}

TEST_CASE("a frame may be answered from within the reading") {
  SocketPair sockets;
  Lane a(sockets.a), b(sockets.b);
  a.add(small(1), 1), a.add(small(2), 2);
  CHECK(a.write().ok());
  REQUIRE(b.read([&](ReceivedFrame frame) {
             b.add(encoded(std::move(frame.frame)), frame.header.sequence);
             return b.write().status();
           }).ok());
  std::vector<ReceivedFrame> out;
  REQUIRE(read_into(a, out).ok());
  CHECK(out.size() == 2);
}
