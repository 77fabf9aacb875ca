// SPDX-License-Identifier: Apache-2.0
// Bodies of messages: what goes in comes out, what is cut or changed is an error or another message, never a crash.
#include "net/wire.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "net/messages.h"

using namespace troupe;
using namespace troupe::net;
using Catch::Contains;

namespace {

Error full_error() {
  Error out = invalid_argument("inner sizes differ: {}", "[2,3] x [4,5]");
  out.op = "MatMul", out.node = "fc1/matmul", out.device = "/job:worker/task:1/device:cpu:0", out.step = -7;
  return out;
}

/// Every message once, with all its fields in use.
template <class F> void for_each_message(F&& f) {
  f(Hello{1, 3, "mine", {"ps", 0}, {"worker", 2}, PeerRole::kClient, {1, 2}, {3, 4}, 5, 6, 7});
  f(Welcome{2, {"worker", 2}, {7, 8}, true, 9});
  f(Refused{Refusal::kWrongWay, "the other way"});
  f(Ping{-5}), f(Pong{INT64_MIN, 7}), f(Ack{}), f(Bye{"done"});
  f(Peers{3, {{{"ps", 0}, "host:1", {1, 2}}, {{"worker", 1}, "unix:/x", {}}}});
  f(Ready{4, full_error(), {{"/job:worker/replica:0/task:1/device:cpu:0", 1, 2, 3, INFINITY, 5, -6}}});
  f(RegisterProgram{1, 2, 3, {"x", "y"}, {"loss:0"}, {{7, {"worker", 1}, true}, {UINT32_MAX, {"ps", 0}, false}}});
  f(ReleaseProgram{UINT64_MAX, 1});
  f(RunProgram{1, 2, 3, -1, RunProgram::kTrace | RunProgram::kTime});
  f(StepDone{1, full_error(), {{"n", "cpu", 1.5, INFINITY, 7, -0.0}}, {{1, "n", "d", 2, 3}, {4, "", "", -1, 0}}, 4, 5});
  f(EdgeTensor{9, 1, 2, true, {0, 5, UINT32_MAX}, "form"});
  f(AbortRun{3, full_error()});
  f(ResetContainer{1, "c"}), f(SnapshotContainer{2, "", {3, UINT64_MAX}}), f(RestoreContainer{3, "c", {}});
  f(RequestDone{4, true, full_error(), {"a"}}), f(RestartDataset{5, "numbers"});
}

}  // namespace

TEST_CASE("every message comes out as it went in, and each shorter body is an error that names it") {
  int messages = 0;
  for_each_message([&]<class M>(const M& message) {
    ++messages;
    const std::string body = encode(message);
    const auto out = decode<M>(body);
    REQUIRE(out.ok());
    CHECK(encode(*out) == body);
    for (size_t n = 0; n < body.size(); ++n) {
      const auto cut = decode<M>(std::string_view(body).substr(0, n));
      REQUIRE_FALSE(cut.ok());
      CHECK(cut.error().code == Code::kDataLoss);
      REQUIRE_THAT(cut.error().message, Contains(net::to_string(M::kType)));
    }
    const bool may_grow = M::kType == FrameType::kHello || M::kType == FrameType::kRefused;
    CHECK(decode<M>(body + "x").ok() == may_grow);
  });
  CHECK(messages == 20);
}

TEST_CASE("each flipped bit of a message is an error or another message") {
  for_each_message([&]<class M>(const M& message) {
    const std::string body = encode(message);
    for (size_t bit = 0; bit < 8 * body.size(); ++bit) {
      std::string flipped = body;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      const auto out = decode<M>(flipped);
      if (out.ok()) REQUIRE(encode(*out) != body);
    }
  });
}

TEST_CASE("an error crosses whole") {
  const Error error = full_error();
  const auto out = decode<Ready>(encode(Ready{0, error}));
  REQUIRE(out->error);
  CHECK(out->error->code == Code::kInvalidArgument);
  CHECK(out->error->message == error.message);
  CHECK(out->error->op == "MatMul");
  CHECK(out->error->node == "fc1/matmul");
  CHECK(out->error->device == error.device);
  CHECK(out->error->step == -7);
  CHECK(out->error->str() == error.str());
  CHECK_FALSE(decode<Ready>(encode(Ready{}))->error);
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    const Error one(static_cast<Code>(code), "text with \x1b and \\n");
    const auto back = decode<Ready>(encode(Ready{0, one}))->error;
    CHECK(back->code == one.code);
    CHECK(back->message == one.message);
  }
}

TEST_CASE("what an error of another process says does not reach a terminal as it is") {
  Error error = full_error();
  error.message = "a\x1b[2J\n";  // as no constructor makes it
  CHECK(decode<Ready>(encode(Ready{0, error}))->error->message == "a\\x1b[2J\\n");
}

TEST_CASE("floating-point numbers keep their bits") {
  for (const double value : std::vector<double>{0.0, -0.0, INFINITY, -INFINITY, 5e-324, std::nan("0x123"), -1.5}) {
    WireWriter to;
    to.f64(value);
    const std::string bytes = to.take();
    CHECK(std::bit_cast<uint64_t>(WireReader(bytes).f64()) == std::bit_cast<uint64_t>(value));
  }
}

TEST_CASE("a count that what is left cannot hold is an error before memory is taken") {
  WireWriter to;
  to.u32(UINT32_MAX);
  to.text("abc");
  const std::string bytes = to.take();
  WireReader from(bytes);
  const auto list = from.list(4, [&] { return from.u32(); });
  CHECK(list.capacity() == 0);
  CHECK(from.status().error().message == "a list of 4294967295 elements and 7 bytes are left");
  WireReader text(bytes);
  CHECK(text.text().empty());
  CHECK(text.status().error().message == "4294967295 bytes are due and 7 are left");
}

TEST_CASE("a reader keeps its first fault, and reads zeros from then on") {
  const std::string bytes("\x07\x01\x02", 3);
  WireReader from(bytes);
  CHECK_FALSE(from.boolean());
  CHECK(from.u8() == 0);
  CHECK(from.u32() == 0);
  CHECK(from.finish().error().message == "7 where at most 1 has a meaning");
  WireReader left(bytes);
  CHECK(left.u8() == 7);
  CHECK(left.finish().error().message == "2 bytes are left");
}

TEST_CASE("shapes, tasks and dtypes that mean nothing are errors") {
  const auto fault = [](auto&& write, auto&& read) {
    WireWriter to;
    write(to);
    const std::string bytes = to.take();
    WireReader from(bytes);
    read(from);
    return from.status().ok() ? std::string() : from.status().error().message;
  };
  const auto shape = [](WireReader& r) { r.shape(); };
  CHECK(fault([](WireWriter& w) { w.u8(17); }, shape) == "a shape of rank 17, at most 16");
  CHECK_THAT(fault([](WireWriter& w) { w.u8(1), w.i64(-2); }, shape), Contains("size -2"));
  CHECK_THAT(fault([](WireWriter& w) { w.u8(2), w.i64(INT64_MAX), w.i64(INT64_MAX); }, shape),
             Contains("more elements"));
  CHECK(fault([](WireWriter& w) { w.u8(99); }, [](WireReader& r) { r.dtype(); }) == "unknown dtype 99");
  CHECK_THAT(fault([](WireWriter& w) { w.text("9"), w.u32(0); }, [](WireReader& r) { r.task(); }),
             Contains("'9' is not a name of a job"));
  CHECK_THAT(fault([](WireWriter& w) { w.text("a"), w.u32(UINT32_MAX); }, [](WireReader& r) { r.task(); }),
             Contains("task -1 of job 'a'"));
}

TEST_CASE("a code of refusal from a later version is read as closing") {
  std::string body = encode(Refused{Refusal::kLate, "why"});
  body[0] = 77;
  CHECK(decode<Refused>(body)->code == Refusal::kClosing);
  CHECK(decode<Refused>(body)->reason == "why");
}

TEST_CASE("a message becomes a frame with its tensors") {
  const FrameRef frame = make_frame(EdgeTensor{9, 1, 2, false}, {Tensor::scalar(1.f)}).value();
  CHECK(frame->type() == FrameType::kTensor);
  CHECK(frame->parts().size() == 2);
}
