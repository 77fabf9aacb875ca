// SPDX-License-Identifier: Apache-2.0
// Connector: dials and accepts the connections of a cluster on a thread of its own, carries out their handshakes and
// hands over sockets that stand. Nobody else waits for a connection. Implemented in actors/connector.cpp.
// Source of the idea: Zeek Broker's connector (libbroker/broker/internal/connector.cc).
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "actors/sockets.h"
#include "net/handshake.h"
#include "net/tls.h"
#include "troupe/error.h"

namespace troupe {

/// All functions are called on the connector's thread, without a lock held. They must not wait and must not throw. They
/// may call the Connector, but not destroy it.
struct ConnectorOptions {
  net::Identity identity;
  /// Where to accept connections; a port of 0 gets a free one. None: accepts nobody, as a client does.
  std::optional<net::Address> listen;
  /// Has a thread that may wait call a job, which looks a host's name up, or destroys it. It may keep the job for as
  /// long as it likes, even beyond the Connector. Errors count as a failed try.
  std::function<Status(std::function<void()>)> run_job;
  /// See net/handshake.h.
  net::Acceptor::Sessions sessions;
  /// With it all connections are of TLS, and both sides show certificates. Without, none is.
  std::shared_ptr<const net::TlsContext> tls = {};
  /// A connection stands, dialed or accepted. No byte behind the handshake has been taken out of its transport, which
  /// may have read some.
  std::function<void(net::Accepted, Connection)> up;
  /// Somebody who dialed was refused by this side: who that is, as far as his socket tells, and why. May be empty.
  std::function<void(const std::string& from, const net::Rejected& why)> refused = {};
  /// A try to connect failed. `again`: it will be tried again, else the dial is over. `why` names task and address; its
  /// code is kNotFound where nobody listens at any address of the host, and then alone.
  std::function<void(const net::TaskId& to, uint32_t lane, const Error& why, bool again)> failed;
  /// For each address of a host, until the connection is there; the handshake has identity.deadline_ns besides.
  std::chrono::nanoseconds connect_limit{1'000'000'000};
  /// Accepted connections whose handshake is not done, at least 1. One more closes the oldest.
  size_t most_handshakes = 256;
};

/// Any thread may call any function, also from the callbacks. What dial() and cancel() ask for happens soon after their
/// return, in the order of the calls: until then callbacks of what was asked before may still come.
class Connector {
 public:
  struct Counters {
    uint64_t dialed = 0;        // dialed connections that stand
    uint64_t failed_tries = 0;  // calls of `failed`
    uint64_t accepted = 0;      // accepted connections that stand
    uint64_t refused = 0;       // of the accepted: refused by this side, for any reason but the deadline
    uint64_t timed_out = 0;     // of the accepted: not done by the deadline
    uint64_t broken = 0;        // of the accepted: ended by the peer within the handshake
    uint64_t dropped = 0;       // of the accepted: the oldest, closed to make room or for want of descriptors
    uint64_t pauses = 0;        // of accepting for 100 ms, when the system has nothing left
    uint64_t handshakes = 0;    // accepted connections whose handshake is not done now
  };

  /// Binds and listens before it returns, so that whoever dials from then on is heard. May wait for the look-up of a
  /// host's name. A UNIX socket's file is replaced when nobody answers there. Errors: those of the system, naming the
  /// address; kAlreadyExists for one that is in use.
  static Result<std::unique_ptr<Connector>> start(ConnectorOptions options);
  /// Closes what was not handed over and joins the thread. Callbacks come until it returns, when a unique_ptr that is
  /// being reset is null already. Not from a callback.
  ~Connector();
  Connector(const Connector&) = delete;

  /// Dials a task until it is connected (`up`), cancelled or refused for good (`failed` without `again`). It tries at
  /// once, then again 20 ms after a failure, 40 ms after the next, and so on up to 1 s: a process of the right task,
  /// cluster and version may follow one that is not. A fault of this side's own ends the dial: a task that dials itself
  /// or a lower one, a process that another has followed, a HELLO that nobody reads. A second dial of (task, lane)
  /// replaces the first. `known`, `received` and `epoch`: net::Dialer's.
  void dial(const net::TaskId& to, const net::Address& address, uint32_t lane, net::Incarnation known,
            uint64_t received, uint64_t epoch = 0);
  /// Tries those dials of the task at once that wait to be tried again.
  void hurry(const net::TaskId& to);
  /// Ends all dials of the task.
  void cancel(const net::TaskId& to);

  /// As PeerBook's: `incarnation` is the task's present life. A HELLO that comes after the return is judged by it. A
  /// peer that was accepted has been remembered before `up` was called.
  void remember(const net::TaskId& task, const net::Incarnation& incarnation);
  /// The same, of a client that has gone: call it for each, or the book grows.
  void forget(const net::TaskId& task);

  /// Where it listens, with the port that was got for port 0. Without options.listen: an empty one.
  net::Address address() const;
  /// Without options.listen: none.
  const Listeners& listeners() const;
  Counters counters() const;

 private:
  class Impl;
  explicit Connector(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
