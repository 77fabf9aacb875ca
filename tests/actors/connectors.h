// SPDX-License-Identifier: Apache-2.0
// Connectors for tests: one with what it told, sockets of clients that are none, and a count of descriptors.
#pragma once
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "actors/connector.h"
#include "actors/sockets.h"
#include "tests/io/temporary_directory.h"
#include "tests/net/sockets.h"

namespace troupe::testing {

inline constexpr int64_t kMilliseconds = 1'000'000;

inline net::Identity identity_of(const std::string& job, int number, uint64_t life = 1) {
  net::Identity out;
  out.cluster =
      net::ClusterSpec::parse(R"({"cluster": {"ps": ["a:1"], "worker": ["a:2", "a:3"]}, "name": "mine"})").value();
  out.task = {job, number};
  out.incarnation = {life, std::hash<std::string>()(job) + static_cast<uint64_t>(number)};
  out.role = job == net::kClientJob ? net::PeerRole::kClient : net::PeerRole::kTask;
  return out;
}

inline net::Address loopback(uint16_t port = 0) {
  net::Address out;
  out.host = "127.0.0.1";
  out.port = port;
  return out;
}
inline net::Address unix_path(std::string path) {
  net::Address out;
  out.kind = net::Address::Kind::kUnix;
  out.path = std::move(path);
  return out;
}

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

/// Checks that a test closes what it opens: the first variable of the test.
class ClosesAll {
 public:
  ~ClosesAll() { CHECK(open_descriptors() == before_); }

 private:
  const size_t before_ = open_descriptors();
};

/// A connector and what it told. The sockets it handed over close with this.
class Party {
 public:
  struct Up {
    net::Accepted accepted;
    Descriptor socket;
    std::unique_ptr<net::Transport> transport;
  };
  struct Failure {
    net::TaskId to;
    Error why;
    bool again;
  };

  explicit Party(net::Identity identity) {
    options.identity = std::move(identity);
    options.sessions = [](const net::Hello&) { return std::optional<uint64_t>(); };
    options.run_job = [](std::function<void()>) { return invalid_argument("no test looks this up"); };
    options.up = [this](net::Accepted accepted, Connection connection) {
      const iovec piece = {greeting.data(), greeting.size()};
      if (!greeting.empty() && !connection.transport->write({&piece, 1}).ok()) ++not_greeted;
      const std::lock_guard lock(mutex_);
      ups_.push_back({std::move(accepted), std::move(connection.socket), std::move(connection.transport)});
      changed_.notify_all();
    };
    options.refused = [this](const std::string& from, const net::Rejected& why) {
      const std::lock_guard lock(mutex_);
      refusals_.push_back(from + ": " + why.reason);
      changed_.notify_all();
    };
    options.failed = [this](const net::TaskId& to, uint32_t, const Error& why, bool again) {
      const std::lock_guard lock(mutex_);
      failures_.push_back({to, why, again});
      changed_.notify_all();
    };
  }
  Party(net::Identity identity, net::Address listen) : Party(std::move(identity)) {
    options.listen = std::move(listen);
    start();
  }
  ~Party() { connector.reset(); }

  void start() {
    auto made = Connector::start(options);
    if (!made.ok()) FAIL(made.error().str());
    connector = std::move(*made);
  }
  Connector* operator->() { return connector.get(); }
  net::Address address() const { return connector->address(); }

  /// The next connection that was handed over, in their order.
  Up next_up() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !ups_.empty(); })) FAIL("no connection");
    Up out = std::move(ups_.front());
    ups_.erase(ups_.begin());
    return out;
  }
  Failure next_failure() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !failures_.empty(); })) FAIL("no failure");
    Failure out = std::move(failures_.front());
    failures_.erase(failures_.begin());
    return out;
  }
  /// Of somebody who dialed: where from, and why.
  std::string next_refusal() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !refusals_.empty(); })) FAIL("no refusal");
    std::string out = std::move(refusals_.front());
    refusals_.erase(refusals_.begin());
    return out;
  }
  /// Waits until there is one or the other; whether it is a connection.
  bool wait_for_either() {
    std::unique_lock lock(mutex_);
    const auto any = [&] { return !ups_.empty() || !failures_.empty(); };
    if (!changed_.wait_for(lock, std::chrono::seconds(60), any)) FAIL("neither a connection nor a failure");
    return !ups_.empty();
  }
  size_t ups() {
    const std::lock_guard lock(mutex_);
    return ups_.size();
  }
  size_t failures() {
    const std::lock_guard lock(mutex_);
    return failures_.size();
  }

  ConnectorOptions options;  // before start()
  std::string greeting;      // what it writes as soon as a connection stands; before start()
  std::atomic<int> not_greeted = 0;
  std::unique_ptr<Connector> connector;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Up> ups_;
  std::vector<Failure> failures_;
  std::vector<std::string> refusals_;
};

/// A socket that is connected to the address, and blocks.
inline Descriptor plain_client(const net::Address& address) {
  const auto where = addresses_without_look_up(address).value().value();
  Descriptor out(socket(where[0].family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  TROUPE_CHECK(connect(out.get(), where[0].get(), where[0].size) == 0);
  return out;
}

/// What comes until the other side closes.
inline std::string rest_of(int fd) {
  std::string out;
  char buffer[4096];
  for (;;) {
    await(fd, POLLIN);
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) return out;
    out.append(buffer, static_cast<size_t>(got));
  }
}

/// So many bytes.
inline std::string read_exactly(int fd, size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t at = 0; at < bytes;) {
    await(fd, POLLIN);
    const ssize_t got = recv(fd, out.data() + at, bytes - at, 0);
    if (got <= 0) return out.substr(0, at);
    at += static_cast<size_t>(got);
  }
  return out;
}

/// A port of loopback that is taken but where nobody listens, until this goes or a Connector does.
class DeadPort {
 public:
  DeadPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    auto any = addresses_without_look_up(loopback()).value().value()[0];
    TROUPE_CHECK(bind(socket_.get(), any.get(), any.size) == 0);
    TROUPE_CHECK(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&any.storage), &any.size) == 0);
    address = loopback(any.port());
  }
  net::Address address;
  int fd() const { return socket_.get(); }

 private:
  Descriptor socket_;
};

}  // namespace troupe::testing
