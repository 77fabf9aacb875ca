// SPDX-License-Identifier: Apache-2.0
// The handshake of a connection, both sides, as state machines that take bytes and give bytes: a HELLO, answered by a
// WELCOME or a REFUSED. PeerBook: which lives of which tasks are known. Implemented in net/handshake.cpp.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "net/certificate_name.h"
#include "net/cluster_spec.h"
#include "net/messages.h"
#include "troupe/error.h"

namespace troupe::net {

/// The most bytes of a HELLO or its answer, header and all.
inline constexpr uint32_t kLongestHandshake = 4096;
inline constexpr int64_t kHandshakeDeadlineNs = 5'000'000'000;
/// Lanes are numbered below this.
inline constexpr uint32_t kMostLanes = 16;

/// Who takes part in handshakes, on this side.
struct Identity {
  ClusterSpec cluster = {};
  TaskId task = {};  // of the cluster; a client's: kClientJob and any number, best a random one
  PeerRole role = PeerRole::kTask;
  Incarnation incarnation = {};
  uint32_t lowest = kLowestVersion, highest = kHighestVersion;
  int64_t deadline_ns = kHandshakeDeadlineNs;
};

/// A connection that stands.
struct Accepted {
  TaskId peer = {};
  PeerRole role = PeerRole::kTask;
  Incarnation incarnation = {};
  uint32_t version = 0;
  uint32_t lane = 0;
  /// The two lives have talked on this lane before: Stream::resume(received). Else the lane's Stream is to be a new
  /// one, as one is that has neither sent nor received anything; what an old one kept is lost: the peer has started
  /// anew, or has given this side up.
  bool resumed = false;
  uint64_t received = 0;  // by the peer, on this lane
  uint64_t epoch = 0;     // Hello::epoch
};

/// Why a connection does not stand.
struct Rejected {
  Refusal code = Refusal::kBadHello;
  std::string reason = {};  // names both values
  bool by_peer = false;     // the peer sent it; else it was told to the peer, as far as that can be
  /// What the caller of this side should see: kFailedPrecondition where waiting does not help, but one of the two
  /// processes must be started otherwise; kAlreadyExists for kBusy.
  Error error(const TaskId& peer) const;
};

/// Remembers which life of each task is the present one, and which came before. One thread at a time.
class PeerBook {
 public:
  enum class Judgement { kNew, kCurrent, kPast };
  /// Whether that life is the present one of the task, an earlier one, or one never seen.
  Judgement judge(const TaskId& task, const Incarnation& incarnation) const;
  /// From now on this is the task's life; the one before, if another, is past. The last 64 of a task are remembered.
  void remember(const TaskId& task, const Incarnation& incarnation);
  /// The present life of a task; none: not known.
  Incarnation current(const TaskId& task) const;
  /// Takes out a client that has gone.
  void forget(const TaskId& task) { lives_.erase(task); }

 private:
  std::map<TaskId, std::vector<Incarnation>> lives_;  // the present one is the last
};

/// What both sides have in common. Use: where the peer shows a certificate, certified(); write output() to the socket
/// whenever there is any; read exactly wanted() bytes from it, no more, so that what follows stays for the lane; feed()
/// them; until done(). When it is rejected, write the output, as far as it goes at once, and close. One thread at a
/// time.
class Handshake {
 public:
  virtual ~Handshake() = default;

  /// How many bytes it needs next; 0: it is done.
  size_t wanted() const;
  /// Takes bytes that came, up to the end of the handshake; returns how many.
  size_t feed(std::string_view bytes, int64_t now);
  /// Ends it once its deadline has passed. Call it at deadline() at the latest.
  void tick(int64_t now);
  /// The peer closed the connection.
  void closed();
  /// Whom the peer's certificate names; once, before anything else. The peer is then to be nobody else.
  void certified(const CertificateName& name);
  /// The connection cannot be one of TLS: rejects it.
  void refuse(const std::string& why);
  int64_t deadline() const { return deadline_; }
  /// Bytes to be written; consumed() takes those away that were.
  std::string_view output() const { return std::string_view(output_).substr(written_); }
  void consumed(size_t bytes) { written_ += bytes; }

  bool done() const { return !std::holds_alternative<std::monostate>(outcome_); }
  /// nullptr: not, or not yet.
  const Accepted* accepted() const { return std::get_if<Accepted>(&outcome_); }
  const Rejected* rejected() const { return std::get_if<Rejected>(&outcome_); }

 protected:
  Handshake(Identity self, int64_t now);
  virtual void on_frame(FrameType type, std::string_view body) = 0;
  virtual void on_reject(const Rejected&) {}
  virtual void on_certified() {}
  /// Rejects the peer unless its certificate, if it shows one, names what it says it is.
  bool is_certified(const TaskId& peer, PeerRole role);
  void accept(Accepted accepted) { outcome_ = std::move(accepted); }
  void reject(Refusal code, std::string reason, bool by_peer = false);
  void send(FrameType type, std::string body);
  /// What is not written yet is not to be.
  void drop_output() { written_ = output_.size(); }

  const Identity self_;

 private:
  void on_input();
  std::optional<CertificateName> certificate_;

  const int64_t deadline_;
  std::string input_, output_;
  size_t written_ = 0;
  std::optional<FrameHeader> header_;
  std::variant<std::monostate, Accepted, Rejected> outcome_;
};

/// The side that called connect().
class Dialer final : public Handshake {
 public:
  /// `known`: the peer's incarnation as an earlier connection told it, or none; `received`: by the lane's Stream.
  /// `epoch`: Hello's.
  Dialer(Identity self, TaskId to, uint32_t lane, Incarnation known, uint64_t received, int64_t now,
         uint64_t epoch = 0);

 private:
  void on_frame(FrameType type, std::string_view body) override;
  void on_certified() override;
  void on_reject(const Rejected&) override { drop_output(); }  // who is not the one says no HELLO
  const TaskId to_;
  const uint32_t lane_;
  const Incarnation known_;
  const uint64_t epoch_;
};

/// The side that called accept().
class Acceptor final : public Handshake {
 public:
  /// Called with a HELLO that is right in all else. Returns what this lane's Stream of those two lives and that epoch
  /// has received; none: there is no such Stream. Error: refuses the connection with the error's message, as kBusy for
  /// one of kAlreadyExists, as kClosing for others.
  using Sessions = std::function<Result<std::optional<uint64_t>>(const Hello& hello)>;
  /// `book` outlives this. It is only read; its owner remembers who is accepted.
  Acceptor(Identity self, const PeerBook& book, Sessions sessions, int64_t now);

 private:
  void on_frame(FrameType type, std::string_view body) override;
  void on_reject(const Rejected& rejected) override;
  std::optional<Rejected> fault(const Hello& hello) const;
  const PeerBook& book_;
  const Sessions sessions_;
};

}  // namespace troupe::net
