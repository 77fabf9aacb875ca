// SPDX-License-Identifier: Apache-2.0
// Connectors that talk TLS: who is let in, what both sides say when one is not, and strangers.
#include "tests/actors/connectors.h"
#include "tests/net/keys.h"
#include "tests/net/raw_tls.h"

namespace troupe {
namespace {

using namespace testing;
using Catch::Contains;
using net::TaskId;

const TaskId kTlsWorker = {"worker", 0};

/// A party with a certificate; by default its own.
struct TlsParty : Party {
  TlsParty(TestKeys& keys, net::Identity identity) : TlsParty(keys, identity, name_of(identity)) {}
  TlsParty(TestKeys& keys, net::Identity identity, const net::CertificateName& name) : Party(std::move(identity)) {
    options.tls = keys.context(name);
  }
  static net::CertificateName name_of(const net::Identity& identity) {
    if (identity.role == net::PeerRole::kClient) return client_named();
    return {identity.cluster.name(), identity.task};
  }
  void listen(net::Address address) {
    options.listen = std::move(address);
    start();
  }
};

std::string read_over(net::Transport& from, size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t at = 0; at < bytes;) {
    const iovec piece = {out.data() + at, bytes - at};
    const auto got = from.read({&piece, 1});
    if (!got.ok() || *got == std::optional<size_t>(0)) return out.substr(0, at);
    if (*got) at += **got;
    else await(from.fd(), POLLIN);
  }
  return out;
}

/// What one says who dials worker 0 in vain.
std::string in_vain(Party& dialer, Party& listener) {
  dialer->dial(kTlsWorker, listener.address(), 0, {}, 0);
  const auto failure = dialer.next_failure();
  dialer->cancel(kTlsWorker);
  CHECK(failure.again);  // certificates are renewed
  CHECK(failure.why.code == Code::kFailedPrecondition);
  CHECK(dialer.ups() == 0);
  CHECK(listener.ups() == 0);
  return failure.why.message;
}

TEST_CASE("tasks and clients connect by TLS, and what follows the handshake is whole") {
  const ClosesAll closes_all;
  const TemporaryDirectory directory;
  TestKeys keys;
  for (const net::Address& listen : {loopback(), unix_path(directory.file("socket"))}) {
    CAPTURE(listen.str());
    TlsParty ps(keys, identity_of("ps", 0)), client(keys, identity_of("client", 77)),
        worker(keys, identity_of("worker", 0));
    ps.greeting = "from the ps", worker.greeting = std::string(30'000, 'w'), client.greeting = "from the client";
    worker.listen(listen), ps.start(), client.start();
    for (TlsParty* dialer : {&ps, &client}) {
      (*dialer)->dial(kTlsWorker, worker.address(), 1, {}, 0);
      const auto up = dialer->next_up(), there = worker.next_up();
      CHECK(up.accepted.peer == kTlsWorker);
      CHECK(there.accepted.peer == dialer->options.identity.task);
      CHECK(there.accepted.role == dialer->options.identity.role);
      CHECK(read_over(*up.transport, worker.greeting.size()) == worker.greeting);
      CHECK(read_over(*there.transport, dialer->greeting.size()) == dialer->greeting);
    }
    CHECK(worker->counters().accepted == 2);
    CHECK(worker->counters().handshakes == 0);
  }
}

TEST_CASE("nothing readable crosses the wire") {
  const ClosesAll closes_all;
  TestKeys keys;
  const auto listener = Listeners::at(loopback()).value();
  TlsParty ps(keys, identity_of("ps", 0));
  ps.start();
  ps->dial(kTlsWorker, listener.address(), 0, {}, 0);
  await(listener.sockets()[0].get(), POLLIN);
  const Descriptor there = accept_next(listener.sockets()[0].get());
  await(there.get(), POLLIN);
  char bytes[4096];
  const ssize_t got = recv(there.get(), bytes, sizeof bytes, 0);
  REQUIRE(got > 0);
  const std::string hello(bytes, static_cast<size_t>(got));
  CHECK(hello.substr(0, 2) == "\x16\x03");
  for (const char* word : {"TRPE", "mine", "worker", "ps"}) CHECK(hello.find(word) == std::string::npos);
}

TEST_CASE("a certificate lets in whom it names, and nobody else") {
  const ClosesAll closes_all;
  TestKeys keys;
  const auto refused = [&](const net::Identity& from, const net::CertificateName& shows) {
    TlsParty worker(keys, identity_of("worker", 0)), dialer(keys, from, shows);
    worker.listen(loopback()), dialer.start();
    const std::string told = in_vain(dialer, worker);
    const std::string reason = fmt::format("{} shows the certificate of {}", from.task.str(), shows.uri());
    CHECK_THAT(told, Contains("refused the connection (TLS): " + reason));
    CHECK_THAT(worker.next_refusal(), Contains("127.0.0.1: " + reason));
  };
  refused(identity_of("ps", 0), task_named("worker", 1));
  refused(identity_of("ps", 0), client_named());
  refused(identity_of("ps", 0), task_named("ps", 0, "other"));
  refused(identity_of("client", 77), task_named("ps", 0));
  refused(identity_of("client", 77), {"other", {}});

  // The other way round: worker 1's certificate where worker 0 is to be.
  TlsParty worker(keys, identity_of("worker", 0), task_named("worker", 1)), ps(keys, identity_of("ps", 0));
  worker.listen(loopback()), ps.start();
  CHECK_THAT(in_vain(ps, worker),
             Contains("/job:worker/task:0 shows the certificate of troupe://mine/job:worker/task:1"));
}

TEST_CASE("a certificate of somebody else's authority is refused by both sides, in words") {
  const ClosesAll closes_all;
  TestKeys keys, others;
  {
    TlsParty dialed(keys, identity_of("worker", 0)), ps(others, identity_of("ps", 0));  // it may dial more than once
    dialed.listen(loopback()), ps.start();
    CHECK_THAT(in_vain(ps, dialed), Contains("troupe://mine/job:worker/task:0 is not of this cluster's authority"));
    CHECK_THAT(dialed.next_refusal(), Contains("does not know the authority"));
  }
  TlsParty worker(keys, identity_of("worker", 0));
  worker.listen(loopback());

  // One who takes any certificate, and shows a wrong one: the acceptor finds it, and the dialer reads why.
  const auto shown = [&](const net::TlsFiles& files) {
    const Descriptor client = plain_client(worker.address());
    RawTls raw(client.get(), false, files);
    CHECK(raw.open());
    char byte;
    CHECK(SSL_read(raw.ssl(), &byte, 1) <= 0);
    return std::string(ERR_reason_error_string(ERR_get_error()));
  };
  CHECK_THAT(shown(others.files(task_named("ps", 0))), Contains("unknown ca"));
  CHECK_THAT(worker.next_refusal(), Contains("troupe://mine/job:ps/task:0 is not of this cluster's authority"));
  CHECK_THAT(shown(keys.files(task_named("ps", 0), around_now(7200, -3600))), Contains("expired"));
  CHECK_THAT(worker.next_refusal(), Contains("troupe://mine/job:ps/task:0 has expired at 2"));
  CHECK_THAT(shown(keys.files(task_named("ps", 0), around_now(-3600, 7200))), Contains("bad certificate"));
  CHECK_THAT(worker.next_refusal(), Contains("troupe://mine/job:ps/task:0 is not valid before 2"));
  CHECK_THAT(shown({}), Contains("certificate required"));
  CHECK_THAT(worker.next_refusal(), Contains("did not return a certificate"));
}

TEST_CASE("with TLS on one side alone, both say so") {
  const ClosesAll closes_all;
  TestKeys keys;
  {
    TlsParty worker(keys, identity_of("worker", 0));
    Party ps(identity_of("ps", 0));
    worker.listen(loopback()), ps.start();
    CHECK_THAT(in_vain(ps, worker),
               Contains("refused the connection (TLS): the dialer talks no TLS, which is needed here (--tls)"));
    CHECK_THAT(worker.next_refusal(), Contains("the dialer talks no TLS"));
  }
  Party worker(identity_of("worker", 0), loopback());
  TlsParty ps(keys, identity_of("ps", 0));
  ps.start();
  CHECK_THAT(in_vain(ps, worker), Contains("it talks no TLS, which this side needs"));
  CHECK_THAT(worker.next_refusal(), Contains("the dialer talks TLS, and /job:worker/task:0 does not"));
}

TEST_CASE("silent and half-open strangers are dropped at the deadline, garbage at once, and keep nobody out") {
  const ClosesAll closes_all;
  TestKeys keys;
  TlsParty ps(keys, identity_of("ps", 0)), worker(keys, identity_of("worker", 0));
  worker.options.identity.deadline_ns = 1000 * kMilliseconds;
  worker.listen(loopback()), ps.start();
  // A first message of TLS, as one who dials sends it.
  std::string hello;
  {
    const auto listener = Listeners::at(loopback()).value();
    TlsParty other(keys, identity_of("ps", 0));
    other.start();
    other->dial(kTlsWorker, listener.address(), 0, {}, 0);
    await(listener.sockets()[0].get(), POLLIN);
    const Descriptor there = accept_next(listener.sockets()[0].get());
    await(there.get(), POLLIN);
    char bytes[4096];
    const ssize_t got = recv(there.get(), bytes, sizeof bytes, 0);
    REQUIRE(got > 0);
    hello.assign(bytes, static_cast<size_t>(got));
  }
  const auto write_all = [](const Descriptor& to, std::string_view text) {
    REQUIRE(send(to.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  };
  std::vector<Descriptor> silent, half_open, whole;
  for (size_t i = 0; i < 100; ++i) {
    silent.push_back(plain_client(worker.address()));
    half_open.push_back(plain_client(worker.address()));
    write_all(half_open.back(), hello.substr(0, 1 + i * (hello.size() - 1) / 100));
  }
  for (int i = 0; i < 20; ++i) {  // they say all, and then do not listen
    whole.push_back(plain_client(worker.address()));
    write_all(whole.back(), hello);
  }
  for (const char* garbage : {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff garbage", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    const Descriptor one = plain_client(worker.address());
    write_all(one, garbage);
    (void)rest_of(one.get());
    CHECK_THAT(worker.next_refusal(), Contains("127.0.0.1: it does not speak TLS 1.3 as it should"));
  }
  ps->dial(kTlsWorker, worker.address(), 0, {}, 0);
  CHECK(ps.next_up().accepted.peer == kTlsWorker);
  worker.next_up();
  for (const auto* them : {&silent, &half_open})
    for (const Descriptor& client : *them) CHECK(rest_of(client.get()).empty());
  for (const Descriptor& client : whole) CHECK_FALSE(rest_of(client.get()).empty());
  CHECK(worker->counters().timed_out == 220);
  CHECK(worker->counters().refused == 3);
  CHECK(worker->counters().accepted == 1);
  CHECK(worker->counters().handshakes == 0);
}

TEST_CASE("a connector may go in the middle of handshakes of TLS") {
  TestKeys keys;
  const ClosesAll closes_all;
  for (int i = 0; i < 20; ++i) {
    TlsParty worker(keys, identity_of("worker", 0)), ps(keys, identity_of("ps", 0));
    worker.listen(loopback()), ps.start();
    for (uint32_t lane = 0; lane < 8; ++lane) ps->dial(kTlsWorker, worker.address(), lane, {}, 0);
    if (i % 2) worker.next_up();
    (i % 3 ? worker : ps).connector.reset();
  }
}

}  // namespace
}  // namespace troupe
