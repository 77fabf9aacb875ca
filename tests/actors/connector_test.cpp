// SPDX-License-Identifier: Apache-2.0
// Connectors that find one another: over each kind of socket, in any order of starting, and what ends a dial.
// connector_faults_test.cpp has peers that misbehave.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>

#include "tests/actors/connectors.h"

namespace troupe {
namespace {

using namespace testing;
using Catch::Contains;
using net::TaskId;

const TaskId kWorker0 = {"worker", 0}, kWorker1 = {"worker", 1}, kPs = {"ps", 0};

/// The first failure of one dial from `from` to `to`, which listens as `at`; checks whether it will be tried again.
Error failure_of(const net::Identity& from, const TaskId& to, const net::Identity& at, bool again, uint32_t lane = 0) {
  Party listener(at, loopback()), dialer(from);
  dialer.start();
  dialer->dial(to, listener.address(), lane, {}, 0);
  const auto failure = dialer.next_failure();
  CHECK(failure.again == again);
  CHECK(failure.to == to);
  CHECK_THAT(failure.why.message, Contains(to.str()) && Contains(listener.address().str()));
  if (!again) CHECK(dialer->counters().failed_tries == 1);
  CHECK(dialer.ups() == 0);
  CHECK(listener.ups() == 0);
  return failure.why;
}

TEST_CASE("two tasks connect over TCP and UNIX sockets, and what follows the handshake is whole") {
  const ClosesAll closes_all;
  const TemporaryDirectory directory;
  net::Address six, mapped;
  six.host = "::1", mapped.host = "::ffff:127.0.0.1";
  const bool has_ipv6 = Listeners::at(six).ok();
  for (const net::Address& listen : {loopback(), six, mapped, unix_path(directory.file("socket"))}) {
    CAPTURE(listen.str());
    if ((listen == six || listen == mapped) && !has_ipv6) continue;
    Party ps(identity_of("ps", 0)), worker(identity_of("worker", 1));
    ps.greeting = "from the ps", worker.greeting = "from the worker";
    worker.options.listen = listen;
    worker.start(), ps.start();
    CHECK(ps.address() == net::Address());
    CHECK(worker.address().kind == listen.kind);
    CHECK((worker.address().port > 0) == (listen.kind == net::Address::Kind::kTcp));
    ps->dial(kWorker1, worker.address(), 3, {}, 0);
    const auto up = ps.next_up(), there = worker.next_up();
    CHECK(up.accepted.peer == kWorker1);
    CHECK(up.accepted.lane == 3);
    CHECK(up.accepted.version == net::kHighestVersion);
    CHECK(up.accepted.incarnation == worker.options.identity.incarnation);
    CHECK(there.accepted.peer == kPs);
    CHECK(there.accepted.lane == 3);
    CHECK(there.accepted.incarnation == ps.options.identity.incarnation);
    CHECK(read_exactly(up.socket.get(), worker.greeting.size()) == worker.greeting);
    CHECK(read_exactly(there.socket.get(), ps.greeting.size()) == ps.greeting);
    for (const int fd : {up.socket.get(), there.socket.get()}) {
      CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
      CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
      int no_delay = 0;
      socklen_t size = sizeof no_delay;
      if (listen.kind == net::Address::Kind::kTcp) {
        REQUIRE(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size) == 0);
        CHECK(no_delay != 0);
      }
    }
    CHECK(ps->counters().dialed == 1);
    CHECK(worker->counters().accepted == 1);
    CHECK(worker->counters().handshakes == 0);
    CHECK(ps.failures() == 0);
  }
}

TEST_CASE("a client and both lanes of a task connect at the same time") {
  const ClosesAll closes_all;
  Party ps(identity_of("ps", 0)), client(identity_of("client", 77)), worker(identity_of("worker", 0), loopback());
  ps.start(), client.start();
  ps->dial(kWorker0, worker.address(), 0, {}, 0);
  ps->dial(kWorker0, worker.address(), 1, {}, 0);
  client->dial(kWorker0, worker.address(), 0, {}, 0);
  ps.next_up(), ps.next_up(), client.next_up();
  std::vector<std::string> who;
  for (int i = 0; i < 3; ++i) {
    const auto up = worker.next_up();
    who.push_back(up.accepted.peer.str() + " " + std::to_string(up.accepted.lane));
  }
  std::ranges::sort(who);
  CHECK(who == std::vector<std::string>{"/job:client/task:77 0", "/job:ps/task:0 0", "/job:ps/task:0 1"});
}

TEST_CASE("two lives that talked before resume where each says") {
  const ClosesAll closes_all;
  Party ps(identity_of("ps", 0)), worker(identity_of("worker", 0));
  worker.options.listen = loopback();
  worker.options.sessions = [](const net::Hello& hello) -> std::optional<uint64_t> {
    return hello.lane == 2 ? std::optional<uint64_t>(7) : std::nullopt;
  };
  worker.start(), ps.start();
  ps->dial(kWorker0, worker.address(), 2, {}, 0);
  CHECK_FALSE(ps.next_up().accepted.resumed);
  CHECK_FALSE(worker.next_up().accepted.resumed);
  ps->dial(kWorker0, worker.address(), 2, worker.options.identity.incarnation, 5);
  const auto up = ps.next_up(), there = worker.next_up();
  CHECK(up.accepted.resumed);
  CHECK(up.accepted.received == 7);
  CHECK(there.accepted.resumed);
  CHECK(there.accepted.received == 5);
}

TEST_CASE("a task may start before or after those who dial it") {
  const ClosesAll closes_all;
  const TemporaryDirectory directory;
  const DeadPort reserved;
  for (const net::Address& address : {reserved.address, unix_path(directory.file("socket"))}) {
    CAPTURE(address.str());
    Party ps(identity_of("ps", 0));
    ps.start();
    ps->dial(kWorker0, address, 0, {}, 0);
    for (int i = 0; i < 3; ++i) {
      const auto failure = ps.next_failure();
      CHECK(failure.again);
      CHECK_THAT(failure.why.str(), Contains("/job:worker/task:0") && Contains(address.str()) &&
                                        (Contains("refused") || Contains("No such file")));
    }
    Party worker(identity_of("worker", 0), address);
    CHECK(worker.address() == address);
    CHECK(ps.next_up().accepted.peer == kWorker0);
    worker.next_up();
  }
}

TEST_CASE("a refusal of another process than the one that is meant does not end the dial") {
  const ClosesAll closes_all;
  const auto ps = identity_of("ps", 0), worker = identity_of("worker", 0);
  SECTION("another cluster") {
    auto other = ps;
    other.cluster = net::ClusterSpec::make("other", ps.cluster.jobs()).value();
    CHECK_THAT(failure_of(other, kWorker0, worker, true).message, Contains("'other'") && Contains("'mine'"));
  }
  SECTION("another version") {
    auto newer = ps;
    newer.lowest = 2, newer.highest = 3;
    CHECK_THAT(failure_of(newer, kWorker0, worker, true).message, Contains("versions 2 to 3") && Contains("1 to 1"));
  }
  SECTION("a task that the cluster does not have") {
    CHECK_THAT(failure_of(identity_of("ps", 9), kWorker0, worker, true).message, Contains("9"));
  }
  SECTION("meant for another task") {
    CHECK_THAT(failure_of(ps, kWorker1, worker, true).message, Contains("/job:worker/task:0"));
  }
  SECTION("the right one follows") {
    const TemporaryDirectory directory;
    const net::Address address = unix_path(directory.file("socket"));
    auto other = std::make_unique<Party>(identity_of("worker", 1), address);
    Party dialer(ps);
    dialer.start();
    dialer->dial(kWorker0, address, 0, {}, 0);
    CHECK(dialer.next_failure().again);
    other.reset();
    Party right(worker, address);
    CHECK(dialer.next_up().accepted.peer == kWorker0);
    right.next_up();
  }
}

TEST_CASE("a refusal that will not change ends the dial") {
  const ClosesAll closes_all;
  const auto ps = identity_of("ps", 0), worker = identity_of("worker", 0);
  SECTION("the higher task dials") {
    CHECK_THAT(failure_of(worker, kPs, ps, false).message, Contains("the lower one does"));
  }
  SECTION("itself") { CHECK_THAT(failure_of(ps, kPs, ps, false).message, Contains("dialed itself")); }
  SECTION("a lane that nobody has") {
    CHECK_THAT(failure_of(ps, kWorker0, worker, false, net::kMostLanes).message, Contains("lane 16"));
  }
  SECTION("a path that is too long") {
    Party dialer(ps);
    dialer.start();
    dialer->dial(kWorker0, unix_path("/" + std::string(200, 'x')), 0, {}, 0);
    const auto failure = dialer.next_failure();
    CHECK_FALSE(failure.again);
    CHECK_THAT(failure.why.message, Contains("201"));
  }
}

TEST_CASE("the book of lives is kept by those who accept and by those who remember and forget") {
  const ClosesAll closes_all;
  Party worker(identity_of("worker", 0), loopback());
  const auto dial = [&](uint64_t life) {
    Party ps(identity_of("ps", 0, life));
    ps.start();
    ps->dial(kWorker0, worker.address(), 0, {}, 0);
    const bool up = ps.wait_for_either();
    if (!up) CHECK_THAT(ps.next_failure().why.message, Contains("was followed by"));
    return up;
  };
  CHECK(dial(1));
  CHECK(dial(1));
  CHECK(dial(2));
  CHECK_FALSE(dial(1));
  worker->remember(kPs, identity_of("ps", 0, 3).incarnation);
  CHECK_FALSE(dial(2));
  CHECK(dial(3));
  worker->forget(kPs);
  CHECK(dial(1));
  CHECK(worker->counters().refused == 2);
}

TEST_CASE("a peer that is closing is dialed again") {
  const ClosesAll closes_all;
  Party ps(identity_of("ps", 0)), worker(identity_of("worker", 0));
  std::atomic<int> asked = 0;
  worker.options.listen = loopback();
  worker.options.sessions = [&](const net::Hello&) -> Result<std::optional<uint64_t>> {
    if (++asked < 3) return invalid_argument("not yet");
    return std::optional<uint64_t>(4);
  };
  worker.start(), ps.start();
  worker->remember(kPs, ps.options.identity.incarnation);
  ps->dial(kWorker0, worker.address(), 0, worker.options.identity.incarnation, 0);
  for (int i = 0; i < 2; ++i) {
    const auto failure = ps.next_failure();
    CHECK(failure.again);
    CHECK_THAT(failure.why.message, Contains("closing") && Contains("not yet"));
  }
  CHECK(ps.next_up().accepted.received == 4);
  CHECK(worker->counters().refused == 2);
}

TEST_CASE("a cancelled dial tells nothing any more") {
  const ClosesAll closes_all;
  const DeadPort nobody;
  Party ps(identity_of("ps", 0));
  ps.start();
  ps->dial(kWorker0, nobody.address, 0, {}, 0);
  ps->dial(kWorker0, nobody.address, 1, {}, 0);
  ps.next_failure();
  ps->cancel(kWorker0);
  ps->cancel(kPs);  // nobody dials it
  ps->dial(kWorker1, nobody.address, 0, {}, 0);
  while (ps.next_failure().to == kWorker0) {
  }
  for (int i = 0; i < 3; ++i) CHECK(ps.next_failure().to == kWorker1);  // until 140 ms later
}

TEST_CASE("a second dial of a task and lane replaces the first") {
  const ClosesAll closes_all;
  Party ps(identity_of("ps", 0)), worker(identity_of("worker", 0), loopback());
  ps.start();
  SECTION("one that waits to try again") {
    const DeadPort nobody;
    ps->dial(kWorker0, nobody.address, 0, {}, 0);
    CHECK(ps.next_failure().again);
    ps->dial(kWorker0, worker.address(), 0, {}, 0);
  }
  SECTION("one in its handshake") {
    const auto silent = Listeners::at(loopback()).value();
    ps->dial(kWorker0, silent.address(), 0, {}, 0);
    await(silent.sockets()[0].get(), POLLIN);
    const Descriptor there = accept_next(silent.sockets()[0].get());
    CHECK(read_exactly(there.get(), 4) == "TRPE");
    ps->dial(kWorker0, worker.address(), 0, {}, 0);
    rest_of(there.get());
  }
  CHECK(ps.next_up().accepted.incarnation == worker.options.identity.incarnation);
  worker.next_up();
  CHECK(ps->counters().dialed == 1);
}

TEST_CASE("an address in use is an error that names it") {
  const ClosesAll closes_all;
  const TemporaryDirectory directory;
  for (const net::Address& address : {loopback(), unix_path(directory.file("socket"))}) {
    Party first(identity_of("worker", 0), address), second(identity_of("worker", 0));
    second.options.listen = first.address();
    const auto made = Connector::start(second.options);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code == Code::kAlreadyExists);
    CHECK_THAT(made.error().message, Contains(first.address().str()) && Contains("in use"));
    Party ps(identity_of("ps", 0));  // the first is still there
    ps.start();
    ps->dial(kWorker0, first.address(), 0, {}, 0);
    ps.next_up();
  }
}

TEST_CASE("the file of a UNIX socket is replaced when it is stale, and goes with its connector") {
  const ClosesAll closes_all;
  const TemporaryDirectory directory;
  const auto address = unix_path(directory.file("socket"));
  const auto where = addresses_without_look_up(address).value().value()[0];
  struct stat file;
  {
    const Descriptor stale(socket(AF_UNIX, SOCK_STREAM, 0));
    REQUIRE(bind(stale.get(), where.get(), where.size) == 0);
  }
  REQUIRE(stat(address.path.c_str(), &file) == 0);
  { const Party worker(identity_of("worker", 0), address); }
  CHECK(stat(address.path.c_str(), &file) != 0);

  directory.write("socket", "a file of somebody");
  Party worker(identity_of("worker", 0));
  worker.options.listen = address;
  CHECK(Connector::start(worker.options).error().code == Code::kAlreadyExists);
  CHECK(TemporaryDirectory::read(address.path) == "a file of somebody");

  // What another has put into its place stays.
  std::filesystem::remove(address.path);
  worker.start();
  std::filesystem::remove(address.path);
  directory.write("socket", "a file of somebody");
  worker.connector.reset();
  CHECK(TemporaryDirectory::read(address.path) == "a file of somebody");
}

TEST_CASE("the host of a dial is looked up by a thread that may wait") {
  const ClosesAll closes_all;
  Party ps(identity_of("ps", 0)), worker(identity_of("worker", 0), loopback());
  std::vector<std::thread> threads;
  std::atomic<int> asked = 0;
  ps.options.run_job = [&](std::function<void()> job) -> Status {
    switch (++asked) {
      case 1: return make_error(Code::kResourceExhausted, "no thread is left");
      case 2: return {};  // destroys the job
      default: threads.emplace_back(std::move(job)); return {};
    }
  };
  ps.start();
  net::Address address = worker.address();
  address.host = "localhost";  // it may have an address of IPv6 too, where nobody listens
  ps->dial(kWorker0, address, 0, {}, 0);
  CHECK_THAT(ps.next_failure().why.message, Contains("no thread is left") && Contains("localhost"));
  CHECK_THAT(ps.next_failure().why.message, Contains("nobody has looked up host 'localhost'"));
  CHECK(ps.next_up().accepted.peer == kWorker0);
  CHECK(asked == 3);
  ps.connector.reset();
  for (auto& thread : threads) thread.join();
}

TEST_CASE("of faults of a dial the code tells whether nobody listens, at none of the host's addresses") {
  const ClosesAll closes_all;
  const DeadPort nobody;
  Party ps(identity_of("ps", 0));
  ps.options.run_job = [](const std::function<void()>& job) -> Status { return job(), Status(); };
  ps.start();
  ps->dial(kWorker0, nobody.address, 0, {}, 0);
  CHECK(ps.next_failure().why.code == Code::kNotFound);
  // The server of names may be out of reach, and the machine be there.
  net::Address unknown = nobody.address;
  unknown.host = "no..host";
  ps->cancel(kWorker0);
  ps->dial(kWorker1, unknown, 0, {}, 0);
  auto failure = ps.next_failure();
  while (failure.to == kWorker0) failure = ps.next_failure();
  CHECK_THAT(failure.why.message, Contains("no address of host 'no..host'"));
  CHECK(failure.why.code == Code::kUnavailable);
}

TEST_CASE("callbacks may dial and cancel, and so may many threads") {
  const ClosesAll closes_all;
  const DeadPort nobody;
  Party worker(identity_of("worker", 0), loopback()), ps(identity_of("ps", 0));
  const auto up = ps.options.up;
  Connector* connector = nullptr;  // while it is destroyed too, when `ps` has none any more
  std::atomic<int> left = 5;
  ps.options.up = [&](net::Accepted accepted, Connection connection) {
    const uint32_t lane = accepted.lane;
    up(std::move(accepted), std::move(connection));
    connector->cancel(kWorker1);
    if (lane == 0 && --left > 0) connector->dial(kWorker0, worker.address(), 0, {}, 0);
  };
  ps.start();
  connector = ps.connector.get();
  std::vector<std::thread> threads;
  for (uint32_t t = 1; t <= 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        ps->dial(kWorker1, nobody.address, t, {}, 0);
        ps->remember(kWorker1, {t, 1});
        ps->counters();
        ps->cancel(kWorker1);
        ps->forget(kWorker1);
        ps->dial({"worker", 0}, worker.address(), t, {}, 0);
      }
    });
  ps->dial(kWorker0, worker.address(), 0, {}, 0);
  for (auto& thread : threads) thread.join();
  for (int on_lane_0 = 0; on_lane_0 < 5;) on_lane_0 += ps.next_up().accepted.lane == 0;
  ps.connector.reset();
  worker.connector.reset();
}

}  // namespace
}  // namespace troupe
