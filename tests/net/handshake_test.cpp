// SPDX-License-Identifier: Apache-2.0
// Handshakes: both sides agree, in pieces of any size; each reason to refuse is told to both with its values.
#include "net/handshake.h"

#include <catch2/catch.hpp>

#include "tests/net/frames.h"

using namespace troupe;
using namespace troupe::net;
using Catch::Contains;

namespace {

constexpr int64_t kSecond = 1'000'000'000;

Identity task(const std::string& job, int number, uint64_t life) {
  Identity out;
  out.cluster = ClusterSpec::parse(R"({"cluster": {"ps": ["a:1"], "worker": ["a:2", "a:3"]}, "name": "mine"})").value();
  out.task = {job, number};
  out.incarnation = {life, 1};
  return out;
}
Identity client(uint64_t life) {
  Identity out = task(std::string(kClientJob), 77, life);
  out.role = PeerRole::kClient;
  return out;
}

/// Writes one side's output into the other.
void carry(Handshake& from, Handshake& to, size_t piece = SIZE_MAX) {
  while (!from.output().empty()) {
    const std::string_view some = from.output().substr(0, std::min(piece, std::max<size_t>(to.wanted(), 1)));
    if (to.done()) break;
    CHECK(to.feed(some, 0) == some.size());
    from.consumed(some.size());
  }
}

struct Both {
  PeerBook book;
  Acceptor::Sessions sessions = [](const Hello&) { return std::optional<uint64_t>(); };

  /// One handshake; what both sides say.
  struct Outcome {
    std::optional<Accepted> dialer, acceptor;
    std::optional<Rejected> dialer_no, acceptor_no;
  };
  Outcome run(Identity from, TaskId to, Identity at, uint32_t lane = 0, Incarnation known = {}, uint64_t received = 0,
              size_t piece = SIZE_MAX) {
    Dialer dialer(std::move(from), std::move(to), lane, known, received, 0);
    Acceptor acceptor(std::move(at), book, sessions, 0);
    carry(dialer, acceptor, piece);
    carry(acceptor, dialer, piece);
    CHECK(acceptor.done());
    CHECK(dialer.done());
    CHECK(dialer.wanted() == 0);
    Outcome out;
    if (const auto* a = dialer.accepted()) out.dialer = *a;
    if (const auto* a = acceptor.accepted()) out.acceptor = *a;
    if (const auto* r = dialer.rejected()) out.dialer_no = *r;
    if (const auto* r = acceptor.rejected()) out.acceptor_no = *r;
    if (out.acceptor) book.remember(out.acceptor->peer, out.acceptor->incarnation);
    return out;
  }
  /// The refusal that both sides report.
  Rejected refusal(Identity from, TaskId to, Identity at, uint32_t lane = 0) {
    const Outcome out = run(std::move(from), std::move(to), std::move(at), lane);
    REQUIRE(out.acceptor_no);
    REQUIRE(out.dialer_no);
    CHECK(out.acceptor_no->code == out.dialer_no->code);
    CHECK(out.acceptor_no->reason == out.dialer_no->reason);
    CHECK(out.dialer_no->by_peer);
    CHECK_FALSE(out.acceptor_no->by_peer);
    return *out.acceptor_no;
  }
};

std::string hello_bytes(const std::function<void(Hello&)>& change) {
  Hello hello{1, 1, "mine", {"ps", 0}, {"worker", 0}, PeerRole::kTask, {1, 1}, {}, 0, 0};
  change(hello);
  return testing::bytes_of(make_frame(hello).value());
}

/// What an acceptor, worker 0, makes of bytes.
Rejected verdict(std::string_view bytes) {
  PeerBook book;
  Acceptor acceptor(
      task("worker", 0, 2), book, [](const Hello&) { return std::optional<uint64_t>(); }, 0);
  acceptor.feed(bytes, 0);
  REQUIRE(acceptor.rejected());
  return *acceptor.rejected();
}

}  // namespace

TEST_CASE("two tasks, and a client and a task, find one another, whatever the pieces") {
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{48}, SIZE_MAX}) {
    Both both;
    const auto out = both.run(task("ps", 0, 1), {"worker", 1}, task("worker", 1, 2), 3, {}, 0, piece);
    REQUIRE(out.dialer);
    REQUIRE(out.acceptor);
    CHECK(out.dialer->peer == TaskId{"worker", 1});
    CHECK(out.dialer->incarnation == Incarnation{2, 1});
    CHECK(out.dialer->version == 1);
    CHECK_FALSE(out.dialer->resumed);
    CHECK(out.acceptor->peer == TaskId{"ps", 0});
    CHECK(out.acceptor->incarnation == Incarnation{1, 1});
    CHECK(out.acceptor->lane == 3);
    CHECK(out.acceptor->role == PeerRole::kTask);
    CHECK_FALSE(out.acceptor->resumed);
    const auto asked = both.run(client(5), {"ps", 0}, task("ps", 0, 1));
    REQUIRE(asked.acceptor);
    CHECK(asked.acceptor->role == PeerRole::kClient);
    CHECK(asked.acceptor->peer == TaskId{"client", 77});
  }
}

TEST_CASE("what follows a handshake stays where it is") {
  PeerBook book;
  Dialer dialer(task("ps", 0, 1), {"worker", 0}, 0, {}, 0, 0);
  Acceptor acceptor(
      task("worker", 0, 2), book, [](const Hello&) { return std::optional<uint64_t>(); }, 0);
  CHECK(acceptor.wanted() == 48);
  const std::string bytes = std::string(dialer.output()) + "TRPE...";
  CHECK(acceptor.feed(bytes, 0) == bytes.size() - 7);
  CHECK(acceptor.accepted());
  CHECK(acceptor.feed("more", 0) == 0);
}

TEST_CASE("two lives that talked before go on where they were") {
  Both both;
  std::optional<uint64_t> has;
  std::string asked;
  both.sessions = [&](const Hello& hello) {
    asked += hello.from.str() + " " + std::to_string(hello.lane);
    return has;
  };
  const Identity from = task("ps", 0, 1), at = task("worker", 0, 2);
  const auto dial = [&](Incarnation known, uint64_t received) {
    return both.run(from, at.task, at, 1, known, received);
  };
  CHECK_FALSE(dial({}, 0).dialer->resumed);
  CHECK(asked == "/job:ps/task:0 1");
  has = 7;
  auto out = dial(at.incarnation, 5);
  CHECK(out.dialer->resumed);
  CHECK(out.dialer->received == 7);
  CHECK(out.acceptor->resumed);
  CHECK(out.acceptor->received == 5);
  // The acceptor has given the session up.
  has.reset();
  out = dial(at.incarnation, 5);
  CHECK_FALSE(out.dialer->resumed);
  CHECK_FALSE(out.acceptor->resumed);
  CHECK(out.acceptor->received == 0);
  // The dialer never saw a WELCOME, and so sent nothing: the acceptor's frames go again.
  has = 0;
  out = dial({}, 0);
  CHECK(out.dialer->resumed);
  CHECK(out.acceptor->resumed);
  CHECK(out.acceptor->received == 0);
  // The dialer has given the session up.
  has = 7;
  CHECK_FALSE(dial({}, 0).acceptor->resumed);
  // The acceptor is another life than the one that the dialer knew.
  CHECK_FALSE(dial({9, 9}, 5).acceptor->resumed);
  // The dialer is another life.
  Identity again = from;
  again.incarnation = {3, 1};
  out = both.run(again, at.task, at, 1);
  CHECK_FALSE(out.acceptor->resumed);
  CHECK(both.refusal(from, at.task, at).code == Refusal::kOldIncarnation);
}

TEST_CASE("each reason to refuse is told to both sides, with its values") {
  Both both;
  const auto message = [&](Refusal code, Identity from, TaskId to, Identity at, uint32_t lane = 0) {
    const Rejected out = both.refusal(std::move(from), std::move(to), std::move(at), lane);
    CHECK(to_string(out.code) == std::string(to_string(code)));
    return out.reason;
  };
  Identity newer = task("ps", 0, 1);
  newer.lowest = 2, newer.highest = 4;
  CHECK(message(Refusal::kVersion, newer, {"worker", 0}, task("worker", 0, 2)) ==
        "/job:ps/task:0 speaks versions 2 to 4, /job:worker/task:0 speaks 1 to 1");
  Identity stranger = task("ps", 0, 1);
  stranger.cluster = ClusterSpec::parse(R"({"cluster": {"ps": ["a:1"], "worker": ["a:2"]}, "name": "theirs"})").value();
  CHECK(message(Refusal::kCluster, stranger, {"worker", 0}, task("worker", 0, 2)) ==
        "/job:ps/task:0 is of cluster 'theirs', /job:worker/task:0 of 'mine'");
  CHECK(message(Refusal::kUnknownTask, task("ps", 3, 1), {"worker", 0}, task("worker", 0, 2)) ==
        "cluster 'mine' has no /job:ps/task:3: job 'ps' has 1 tasks, the last is 0");
  CHECK(message(Refusal::kNotMe, task("ps", 0, 1), {"worker", 1}, task("worker", 0, 2)) ==
        "/job:worker/task:1 was dialed, this is /job:worker/task:0");
  CHECK_THAT(message(Refusal::kSelf, task("ps", 0, 1), {"ps", 0}, task("ps", 0, 1)), Contains("dialed itself"));
  CHECK_THAT(message(Refusal::kSelf, task("ps", 0, 1), {"ps", 0}, task("ps", 0, 2)), Contains("another process is"));
  CHECK_THAT(message(Refusal::kSelf, task("ps", 0, 1), {"worker", 0}, task("worker", 0, 1)), Contains("itself"));
  CHECK(message(Refusal::kWrongWay, task("worker", 1, 1), {"worker", 0}, task("worker", 0, 2)) ==
        "/job:worker/task:1 waits for /job:worker/task:0 to dial: of two tasks the lower one does");
  CHECK_THAT(message(Refusal::kBadHello, task("ps", 0, 1), {"worker", 0}, task("worker", 0, 2), 16),
             Contains("lane 16, they are below 16"));
  Identity guest = client(5);
  guest.task.job = "ps";
  CHECK_THAT(message(Refusal::kUnknownTask, guest, {"worker", 0}, task("worker", 0, 2)),
             Contains("says it is a client"));
  Identity guised = client(5);
  guised.role = PeerRole::kTask;
  CHECK_THAT(message(Refusal::kUnknownTask, guised, {"worker", 0}, task("worker", 0, 2)), Contains("no job 'client'"));

  both.book.remember({"ps", 0}, {1, 1});
  both.book.remember({"ps", 0}, {2, 1});
  CHECK_THAT(message(Refusal::kOldIncarnation, task("ps", 0, 1), {"worker", 0}, task("worker", 0, 9)),
             Contains("of incarnation 00000000000000010000000000000001 was followed by 0000000000000002"));
  both.sessions = [](const Hello&) -> Result<std::optional<uint64_t>> {
    return make_error(Code::kCancelled, "ending");
  };
  CHECK(message(Refusal::kClosing, task("ps", 0, 2), {"worker", 0}, task("worker", 0, 9)) == "ending");
  both.sessions = [](const Hello&) -> Result<std::optional<uint64_t>> {
    return make_error(Code::kAlreadyExists, "it serves another");
  };
  CHECK(message(Refusal::kBusy, task("ps", 0, 2), {"worker", 0}, task("worker", 0, 9)) == "it serves another");
}

TEST_CASE("a range of versions meets at the highest that both speak") {
  Both both;
  Identity from = task("ps", 0, 1), at = task("worker", 0, 2);
  from.lowest = 1, from.highest = 5;
  at.lowest = 2, at.highest = 3;
  const auto out = both.run(from, at.task, at);
  CHECK(out.dialer->version == 3);
  CHECK(out.acceptor->version == 3);
}

TEST_CASE("what is not Troupe is found by its first byte and not answered") {
  const Rejected http = verdict("GET / HTTP/1.1\r\n\r\n");
  CHECK(http.code == Refusal::kNotTroupe);
  CHECK(http.reason == "the first bytes are 'GET ', not those of a frame");
  CHECK(verdict("\x16\x04\x01").reason == "the first bytes are '\\x16\\x04\\x01', not those of a frame");
  CHECK(verdict("TRPX").code == Refusal::kNotTroupe);
  PeerBook book;
  Acceptor acceptor(task("worker", 0, 2), book, {}, 0);
  CHECK(acceptor.feed("X", 0) == 1);
  CHECK(acceptor.rejected());
  CHECK(acceptor.output().empty());
}

TEST_CASE("one who dials with TLS is told that there is none") {
  PeerBook book;
  Acceptor acceptor(task("worker", 0, 2), book, {}, 0);
  CHECK(acceptor.feed("\x16", 0) == 1);
  CHECK_FALSE(acceptor.done());
  acceptor.feed("\x03\x01", 0);
  REQUIRE(acceptor.rejected());
  CHECK(acceptor.rejected()->code == Refusal::kTls);
  CHECK(acceptor.rejected()->reason == "the dialer talks TLS, and /job:worker/task:0 does not");
  Dialer dialer(task("ps", 0, 1), {"worker", 0}, 0, {}, 0, 0);
  carry(acceptor, dialer);
  REQUIRE(dialer.rejected());
  CHECK(dialer.rejected()->code == Refusal::kTls);
  CHECK(dialer.rejected()->by_peer);
}

TEST_CASE("a peer is whom its certificate names") {
  PeerBook book;
  const auto sessions = [](const Hello&) { return std::optional<uint64_t>(); };
  const auto accepts = [&](Identity from, const CertificateName& name) {
    Dialer dialer(std::move(from), {"worker", 0}, 0, {}, 0, 0);
    Acceptor acceptor(task("worker", 0, 2), book, sessions, 0);
    acceptor.certified(name);
    carry(dialer, acceptor);
    REQUIRE(acceptor.done());
    if (acceptor.accepted()) return std::string();
    CHECK(acceptor.rejected()->code == Refusal::kTls);
    carry(acceptor, dialer);
    CHECK(dialer.rejected()->reason == acceptor.rejected()->reason);
    return acceptor.rejected()->reason;
  };
  const TaskId ps{"ps", 0};
  CHECK(accepts(task("ps", 0, 1), {"mine", ps}) == "");
  CHECK(accepts(client(1), {"mine", {}}) == "");
  CHECK(accepts(client(1), {"mine", {}, "alice"}) == "");
  CHECK(accepts(task("ps", 0, 1), {"mine", TaskId{"ps", 1}}) ==
        "/job:ps/task:0 shows the certificate of troupe://mine/job:ps/task:1");
  CHECK(accepts(task("ps", 0, 1), {"mine", {}}) == "/job:ps/task:0 shows the certificate of troupe://mine/client");
  CHECK(accepts(task("ps", 0, 1), {"other", ps}) ==
        "/job:ps/task:0 shows the certificate of troupe://other/job:ps/task:0");
  CHECK(accepts(client(1), {"mine", ps}) == "/job:client/task:77 shows the certificate of troupe://mine/job:ps/task:0");
  CHECK(accepts(client(1), {"other", {}}) == "/job:client/task:77 shows the certificate of troupe://other/client");

  Dialer right(task("ps", 0, 1), {"worker", 0}, 0, {}, 0, 0);
  right.certified({"mine", TaskId{"worker", 0}});
  CHECK_FALSE(right.done());
  for (const CertificateName& wrong :
       {CertificateName{"mine", TaskId{"worker", 1}}, {"mine", {}}, {"other", TaskId{"worker", 0}}}) {
    Dialer dialer(task("ps", 0, 1), {"worker", 0}, 0, {}, 0, 0);
    dialer.certified(wrong);
    REQUIRE(dialer.rejected());
    CHECK(dialer.output().empty());
    CHECK(dialer.rejected()->reason == "/job:worker/task:0 shows the certificate of " + wrong.uri());
  }
}

TEST_CASE("a HELLO that cannot be read is refused, at most 4 KiB are taken") {
  CHECK_THAT(verdict(hello_bytes([](Hello& h) { h.lowest = 3; })).reason, Contains("versions from 3 to 1"));
  CHECK_THAT(verdict(hello_bytes([](Hello& h) { h.incarnation = {}; })).reason, Contains("has no incarnation"));
  CHECK_THAT(verdict(hello_bytes([](Hello& h) { h.from.job = "9"; })).reason, Contains("'9' is not a name of a job"));
  CHECK_THAT(verdict(hello_bytes([](Hello& h) { h.cluster = std::string(5000, 'x'); })).reason,
             Contains("bytes of body, at most 4048"));
  CHECK_THAT(verdict(hello_bytes([](Hello& h) { h.cluster = std::string(1000, '\x1b'); })).reason,
             Contains("\\x1b\\x1b"));
  CHECK(verdict(testing::bytes_of(make_frame(Ping{}).value())).reason == "PING where a HELLO is due");
  CHECK_THAT(verdict(testing::bytes_of(testing::encoded({FrameType::kTensor, "", {Tensor::scalar(1.f)}}))).reason,
             Contains("TENSOR with 1 tensors, at most 0"));
}

TEST_CASE("each flipped bit of a HELLO is refused or another HELLO, each shorter one waits") {
  const std::string bytes = hello_bytes([](Hello&) {});
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    PeerBook book;
    Acceptor acceptor(
        task("worker", 0, 2), book, [](const Hello&) { return std::optional<uint64_t>(); }, 0);
    acceptor.feed(flipped, 0);
    CHECK((acceptor.rejected() || acceptor.accepted()));
    if (bit < 8 * 48) CHECK(acceptor.rejected());
  }
  for (size_t n = 0; n < bytes.size(); ++n) {
    PeerBook book;
    Acceptor acceptor(task("worker", 0, 2), book, {}, 0);
    CHECK(acceptor.feed(std::string_view(bytes).substr(0, n), 0) == n);
    CHECK_FALSE(acceptor.done());
    acceptor.closed();
    CHECK(acceptor.rejected()->code == Refusal::kClosing);
  }
}

TEST_CASE("a handshake has five seconds by the clock given") {
  PeerBook book;
  Acceptor acceptor(task("worker", 0, 2), book, {}, kSecond);
  CHECK(acceptor.deadline() == 6 * kSecond);
  acceptor.feed("TRPE", 6 * kSecond - 1);
  CHECK_FALSE(acceptor.done());
  acceptor.tick(6 * kSecond);
  REQUIRE(acceptor.rejected());
  CHECK(acceptor.rejected()->code == Refusal::kLate);
  CHECK(acceptor.rejected()->reason == "no handshake within 5000 ms: 4 of 48 bytes of its header");
  CHECK_FALSE(acceptor.output().empty());
  CHECK(acceptor.rejected()->error({"ps", 0}).code == Code::kDeadlineExceeded);
  Dialer dialer(task("ps", 0, 1), {"worker", 0}, 0, {}, 0, 0);
  dialer.tick(5 * kSecond);
  CHECK(dialer.rejected()->code == Refusal::kLate);
}

TEST_CASE("a dialer looks at who answers") {
  const auto answer = [](const std::function<void(Welcome&)>& change, Incarnation known = {}) {
    Dialer dialer(task("ps", 0, 1), {"worker", 0}, 0, known, 0, 0);
    Welcome welcome{1, {"worker", 0}, {2, 1}, false, 0};
    change(welcome);
    dialer.feed(testing::bytes_of(make_frame(welcome).value()), 0);
    REQUIRE(dialer.done());
    return dialer.accepted() ? std::string("accepted") : dialer.rejected()->reason;
  };
  CHECK(answer([](Welcome&) {}) == "accepted");
  CHECK(answer([](Welcome& w) { w.version = 2; }) == "it chose version 2 of 1 to 1");
  CHECK(answer([](Welcome& w) { w.from.task = 1; }) ==
        "/job:worker/task:1 answers where /job:worker/task:0 was dialed");
  CHECK_THAT(answer([](Welcome& w) { w.incarnation = {}; }), Contains("its incarnation is 0000"));
  CHECK_THAT(answer([](Welcome& w) { w.incarnation = {1, 1}; }), Contains("its incarnation is"));
  CHECK_THAT(answer([](Welcome& w) { w.received = 3; }), Contains("it resumes at 3"));
  CHECK_THAT(answer([](Welcome& w) { w.resumed = true; }, {9, 9}), Contains("a life that it is not"));
  Dialer dialer(task("ps", 0, 1), {"worker", 0}, 0, {}, 0, 0);
  dialer.feed(testing::bytes_of(make_frame(Bye{}).value()), 0);
  CHECK(dialer.rejected()->reason == "BYE where a WELCOME is due");
}

TEST_CASE("a refusal reads well on both sides") {
  const TaskId peer{"ps", 0};
  CHECK(Rejected{Refusal::kCluster, "why", true}.error(peer).str() ==
        "failed precondition: /job:ps/task:0 refused the connection (cluster): why");
  CHECK(Rejected{Refusal::kClosing, "why", false}.error(peer).str() ==
        "cancelled: /job:ps/task:0 was refused a connection (closing): why");
  CHECK(Rejected{Refusal::kBusy, "why", true}.error(peer).str() ==
        "already exists: /job:ps/task:0 refused the connection (busy): why");
}

TEST_CASE("a peer book tells lives apart, and forgets the oldest") {
  PeerBook book;
  const TaskId peer{"ps", 0};
  using J = PeerBook::Judgement;
  CHECK(book.judge(peer, {1, 0}) == J::kNew);
  for (uint64_t life = 1; life <= 100; ++life) book.remember(peer, {life, 0});
  CHECK(book.judge(peer, {100, 0}) == J::kCurrent);
  CHECK(book.judge(peer, {99, 0}) == J::kPast);
  CHECK(book.judge(peer, {37, 0}) == J::kPast);
  CHECK(book.judge(peer, {36, 0}) == J::kNew);
  CHECK(book.current(peer) == Incarnation{100, 0});
  book.forget(peer);
  CHECK_FALSE(book.current(peer));
}
