// SPDX-License-Identifier: Apache-2.0
// Connectors among peers that say nothing, half of it or something else, when the system has no descriptors left, and
// when they are destroyed in the middle of something.
#include <netinet/in.h>
#include <sys/resource.h>

#include "tests/actors/connectors.h"

namespace troupe {
namespace {

using namespace testing;
using Catch::Contains;
using net::TaskId;

const TaskId kBusyWorker = {"worker", 0};

/// The refusal that came; none: bytes that are not one.
std::optional<net::Refused> refusal_in(const std::string& bytes) {
  if (bytes.size() < net::FrameHeader::kBytes) return {};
  const auto header = net::FrameHeader::decode(
      std::span<const char, net::FrameHeader::kBytes>(bytes.data(), net::FrameHeader::kBytes), {});
  if (!header.ok() || header->type != net::FrameType::kRefused) return {};
  const auto refused = net::decode<net::Refused>(std::string_view(bytes).substr(net::FrameHeader::kBytes));
  return refused.ok() ? std::optional(*refused) : std::nullopt;
}

void write_all(int fd, std::string_view bytes) {
  REQUIRE(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

/// A HELLO of the parameter server to worker 0.
std::string good_hello() { return std::string(net::Dialer(identity_of("ps", 0), kBusyWorker, 0, {}, 0, 0).output()); }

TEST_CASE("those who say nothing, or half, keep nobody out and are dropped at the deadline") {
  const ClosesAll closes_all;
  const TemporaryDirectory directory;
  for (const net::Address& listen : {loopback(), unix_path(directory.file("socket"))}) {
    CAPTURE(listen.str());
    Party ps(identity_of("ps", 0)), worker(identity_of("worker", 0));
    worker.options.identity.deadline_ns = 500 * kMilliseconds;
    worker.options.listen = listen;
    worker.start(), ps.start();
    std::vector<Descriptor> clients;
    for (int i = 0; i < 200; ++i) {
      clients.push_back(plain_client(worker.address()));
      const size_t part = static_cast<size_t>(i) % (good_hello().size() - 1);
      if (i % 2) write_all(clients.back().get(), good_hello().substr(0, part + 1));
    }
    ps->dial(kBusyWorker, worker.address(), 0, {}, 0);
    CHECK(ps.next_up().accepted.peer == kBusyWorker);
    worker.next_up();
    for (const Descriptor& client : clients) {
      const auto refused = refusal_in(rest_of(client.get()));
      REQUIRE(refused);
      REQUIRE(refused->code == net::Refusal::kLate);
    }
    CHECK(worker->counters().timed_out == 200);
    CHECK(worker->counters().dropped == 0);
    CHECK(worker->counters().accepted == 1);
    CHECK(worker->counters().handshakes == 0);
  }
}

TEST_CASE("one handshake more than allowed closes the oldest") {
  const ClosesAll closes_all;
  Party ps(identity_of("ps", 0)), worker(identity_of("worker", 0));
  worker.options.most_handshakes = 8;
  worker.options.listen = loopback();
  worker.start(), ps.start();
  std::vector<Descriptor> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(plain_client(worker.address()));
  for (int i = 0; i < 12; ++i) CHECK(rest_of(clients[static_cast<size_t>(i)].get()).empty());
  ps->dial(kBusyWorker, worker.address(), 0, {}, 0);
  ps.next_up();
  worker.next_up();
  CHECK(worker->counters().dropped == 13);
  CHECK(worker->counters().handshakes == 7);
}

TEST_CASE("what is no HELLO is answered where it can be read, and closed") {
  const ClosesAll closes_all;
  Party ps(identity_of("ps", 0)), worker(identity_of("worker", 0), loopback());
  ps.start();
  const auto answer = [&](const std::string& bytes) {
    const Descriptor client = plain_client(worker.address());
    write_all(client.get(), bytes);
    return rest_of(client.get());
  };
  CHECK(answer("GET / HTTP/1.1\r\nHost: a\r\n\r\n").empty());
  CHECK(answer(std::string(50'000, '\0')).empty());
  std::string broken = good_hello();
  broken[9] ^= 1;  // the checksum of its header tells
  CHECK(refusal_in(answer(broken + std::string(1000, 'x'))).value().code == net::Refusal::kBadHello);
  std::string unreadable = good_hello();
  unreadable[net::FrameHeader::kBytes + 8] = '\xff';  // a length
  CHECK(refusal_in(answer(unreadable)).value().code == net::Refusal::kBadHello);
  const std::string ping = [] {
    net::FrameHeader header;
    header.type = net::FrameType::kPing;
    header.body = 8;
    const auto bytes = header.encode();
    return std::string(bytes.data(), bytes.size()) + std::string(8, '\0');
  }();
  CHECK(refusal_in(answer(ping)).value().code == net::Refusal::kBadHello);
  CHECK(worker->counters().refused == 5);
  {
    const Descriptor gone = plain_client(worker.address());
    write_all(gone.get(), "TRPE");
  }
  ps->dial(kBusyWorker, worker.address(), 0, {}, 0);
  ps.next_up(), worker.next_up();
  CHECK(worker->counters().broken == 1);
}

TEST_CASE("one who dials something else, or somebody silent, is told and tries again") {
  const ClosesAll closes_all;
  const auto other = Listeners::at(loopback()).value();
  Party ps(identity_of("ps", 0));
  ps.options.identity.deadline_ns = 100 * kMilliseconds;
  ps.start();
  ps->dial(kBusyWorker, other.address(), 0, {}, 0);
  const auto next = [&] {
    await(other.sockets()[0].get(), POLLIN);
    return accept_next(other.sockets()[0].get());
  };
  {
    const Descriptor http = next();
    write_all(http.get(), "HTTP/1.1 400 Bad Request\r\n\r\n");
    const auto failure = ps.next_failure();
    CHECK(failure.again);
    CHECK_THAT(failure.why.message, Contains("not those of a frame"));
  }
  {
    next();
    const auto failure = ps.next_failure();
    CHECK(failure.again);
    CHECK_THAT(failure.why.message, Contains("the connection was closed within the handshake"));
  }
  const Descriptor silent = next();
  const auto failure = ps.next_failure();
  CHECK(failure.again);
  CHECK(failure.why.code == Code::kDeadlineExceeded);
  CHECK_THAT(failure.why.message, Contains("no handshake within 100 ms"));
  rest_of(silent.get());
}

/// An address where connecting neither succeeds nor fails: its queue is full.
struct FullPort {
  FullPort() {
    TROUPE_CHECK(listen(port.fd(), 0) == 0);
    const auto where = addresses_without_look_up(port.address).value().value()[0];
    for (int i = 0; i < 4; ++i) fill.push_back(start_connect(where));
    await(fill[0].get(), POLLOUT);
  }
  DeadPort port;
  std::vector<Descriptor> fill;
};

TEST_CASE("connecting has a limit") {
  const ClosesAll closes_all;
  const FullPort full;
  Party ps(identity_of("ps", 0));
  ps.options.connect_limit = std::chrono::milliseconds(50);
  ps.start();
  ps->dial(kBusyWorker, full.port.address, 0, {}, 0);
  for (int i = 0; i < 2; ++i) {
    const auto failure = ps.next_failure();
    CHECK(failure.again);
    CHECK(failure.why.code == Code::kDeadlineExceeded);
    CHECK_THAT(failure.why.message, Contains("no connection within 50 ms") && Contains(full.port.address.str()));
  }
}

TEST_CASE("a connector may go in the middle of dials and handshakes") {
  const ClosesAll closes_all;
  const FullPort full;
  const DeadPort nobody;
  const auto silent = Listeners::at(loopback()).value();
  Descriptor half;
  std::function<void()> kept;
  {
    Party worker(identity_of("worker", 0), loopback()), ps(identity_of("ps", 0));
    std::mutex mutex;
    std::condition_variable changed;
    ps.options.run_job = [&](std::function<void()> job) -> Status {
      const std::lock_guard lock(mutex);
      kept = std::move(job);
      changed.notify_all();
      return {};
    };
    ps.start();
    ps->dial({"worker", 1}, full.port.address, 0, {}, 0);
    ps->dial({"worker", 1}, nobody.address, 1, {}, 0);
    ps->dial({"worker", 1}, silent.address(), 2, {}, 0);
    net::Address named = nobody.address;
    named.host = "localhost";
    ps->dial({"worker", 1}, named, 3, {}, 0);
    half = plain_client(worker.address());
    write_all(half.get(), good_hello().substr(0, 60));
    ps.next_failure();  // of lane 1, which waits now
    await(silent.sockets()[0].get(), POLLIN);
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return static_cast<bool>(kept); }));
    lock.unlock();
    ps.connector.reset();
    worker.connector.reset();
    CHECK(ps.ups() == 0);
  }
  CHECK(rest_of(half.get()).empty());
  const Descriptor there = accept_next(silent.sockets()[0].get());
  REQUIRE(there);
  rest_of(there.get());
  const size_t open = open_descriptors();
  kept();  // a look-up that ends later finds nobody
  kept = nullptr;
  CHECK(open_descriptors() == open);
}

/// While it lives, this process gets no further descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    TROUPE_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(Descriptor(dup(0)).get());  // the lowest that is free
    TROUPE_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { TROUPE_CHECK(setrlimit(RLIMIT_NOFILE, &before_) == 0); }

 private:
  rlimit before_;
};

TEST_CASE("without descriptors dials are tried again and accepting pauses") {
  const ClosesAll closes_all;
  Party ps(identity_of("ps", 0)), worker(identity_of("worker", 0), loopback());
  ps.start();
  Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto where = addresses_without_look_up(worker.address()).value().value()[0];
  const auto begin = std::chrono::steady_clock::now();
  {
    const NoDescriptors none;
    REQUIRE(connect(client.get(), where.get(), where.size) == 0);
    write_all(client.get(), good_hello());
    ps->dial(kBusyWorker, worker.address(), 1, {}, 0);
    for (int i = 0; i < 5; ++i) {  // for 300 ms
      const auto failure = ps.next_failure();
      CHECK(failure.again);
      CHECK_THAT(failure.why.message, Contains("Too many open files"));
    }
    CHECK(worker.ups() == 0);
  }
  CHECK(ps.next_up().accepted.peer == kBusyWorker);
  worker.next_up(), worker.next_up();
  const auto took = std::chrono::steady_clock::now() - begin;
  const uint64_t pauses = worker->counters().pauses;
  CHECK(pauses >= 1);
  CHECK(pauses <= static_cast<uint64_t>(took / std::chrono::milliseconds(100)) + 1);
}

TEST_CASE("without descriptors the oldest handshake makes room") {
  const ClosesAll closes_all;
  Party worker(identity_of("worker", 0), loopback());
  const Descriptor silent = plain_client(worker.address());
  {  // the silent one has been accepted when this one is answered
    const Descriptor good = plain_client(worker.address());
    write_all(good.get(), good_hello());
    worker.next_up();
  }
  const Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto where = addresses_without_look_up(worker.address()).value().value()[0];
  {
    const NoDescriptors none;
    REQUIRE(connect(client.get(), where.get(), where.size) == 0);
    CHECK(rest_of(silent.get()).empty());
    // The one that waits stays, although the system has nothing left for one more.
    write_all(client.get(), good_hello());
    CHECK(worker.next_up().accepted.peer == TaskId{"ps", 0});
  }
  CHECK(worker->counters().dropped == 1);
}

TEST_CASE("a socket that the system connects to itself is no connection") {
  const ClosesAll closes_all;
  const DeadPort self;
  const auto where = addresses_without_look_up(self.address).value().value()[0];
  REQUIRE(connect(self.fd(), where.get(), where.size) == 0);
  CHECK(connect_result(self.fd()) == ECONNREFUSED);
}

}  // namespace
}  // namespace troupe
