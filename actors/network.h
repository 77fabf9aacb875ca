// SPDX-License-Identifier: Apache-2.0
// Network: the other tasks of a cluster as one process sees them. It has a connector that dials and accepts, an actor
// for each task that is connected, and knows who is there; it brings values to other tasks' workers and is, to a
// client, its link to each of them. Thread-safe; nothing in it waits but connect().
//
// Who connects to whom: a client to every task; of two tasks the lower one to the higher, once a client has told them
// of one another (PEERS). A task serves one client at a time.
#pragma once
#include <caf/io/network/default_multiplexer.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "actors/connector.h"
#include "actors/engine_impl.h"
#include "actors/peer_actor.h"
#include "troupe/cluster.h"

namespace troupe {

/// As long as waits and silences are at most: beyond it times of the clock would pass its end.
inline constexpr std::chrono::nanoseconds kForEver = std::chrono::hours(24 * 365);

struct NetworkOptions {
  net::ClusterSpec cluster;
  std::optional<net::TaskId> task;  // of the cluster; none: a client
  net::HeartbeatOptions heartbeat = {};
  std::shared_ptr<const net::TlsContext> tls = {};  // none: nothing is encrypted
};

/// "/job:worker/replica:0/task:1", as in the names of devices.
std::string task_name(const net::TaskId& task);

class Network : public std::enable_shared_from_this<Network> {
 public:
  /// Listens, if it is a task. Errors: kFailedPrecondition where the engine's actor system has no middleman, or one
  /// without CAF's own multiplexer; those of Connector::start.
  static Result<std::shared_ptr<Network>> start(Engine::Impl& engine, NetworkOptions options);
  ~Network();

  /// Of a client: connects to every task and has the engine join them. Waits at most so long, but for tasks that are
  /// busy only if `queues`. Of two clients that come at once one gets all: who queues for a task keeps none that comes
  /// after it. Error: kUnavailable that names the tasks that are not there, with reasons; what a task answers.
  Status connect(std::chrono::nanoseconds limit, bool queues = true);
  /// Brings a value to the worker of another task. A device actor calls it. True: see StepSink::sent().
  bool send(const std::string& task, EdgeValue value);
  /// Says goodbye to all. Then nothing comes any more.
  void stop(const std::string& reason);
  /// Where it listens.
  net::Address address() const { return connector_->address(); }
  net::TaskId self() const { return identity_.task; }
  Result<net::TaskId> task_id(const std::string& name) const;
  /// The cluster's tasks but this one.
  std::vector<TaskStatus> status() const;
  /// See watch_cluster().
  std::shared_ptr<void> watch(std::function<void()> changed);
  /// Who is connected.
  std::vector<std::string> connected() const;

  // -- for the actors of peers ----------------------------------------------------------------------------------------

  Worker& worker() { return *engine_.worker; }
  Engine::Impl& engine() { return engine_; }
  caf::io::network::default_multiplexer& multiplexer() { return multiplexer_; }
  const OpRegistry& ops() const { return engine_.ops; }
  /// Of what comes: the first device's or, where that has a limit, the system's. A limit is for what a device makes;
  /// what is sent to it was made elsewhere, as what a caller feeds is.
  std::shared_ptr<Allocator> allocator() const {
    const std::shared_ptr<Allocator>& own = engine_.devices[0].allocator;
    return own->stats().limit > 0 ? system_allocator() : own;
  }
  /// All lanes of a peer are connected, for the first time.
  void is_up(const PeerContext& peer);
  /// The lane is to be dialled again: it broke, though the peer may be there.
  void dial_again(const PeerContext& peer, uint32_t lane, uint64_t received);
  /// `left`: it has said goodbye.
  void lost(const PeerContext& peer, const Error& why, bool left);
  /// Values of these steps were on their way to another task, and may never come. The parts of the steps here may have
  /// ended well, so the clients are told.
  void cut_off(const std::set<StepOfClient>& steps, const Error& why);
  /// Messages about the cluster.
  void told_peers(const net::TaskId& from, const net::Peers& peers);
  void told_ready(const net::TaskId& from, const net::Ready& ready);
  /// Of a client: a step of its cannot end well. Error: kInvalidArgument for a task, which has none.
  Status told_abort(const net::TaskId& from, const net::AbortRun& message);

 private:
  class Link;
  struct Peer {
    net::Incarnation life;
    uint64_t epoch = 0;
    net::PeerRole role = net::PeerRole::kTask;
    caf::actor actor;
    std::array<std::shared_ptr<PeerStream>, kPeerLanes> streams;
    std::array<bool, kPeerLanes> lanes = {};  // that were connected
    bool up = false;
  };

  Network(Engine::Impl& engine, NetworkOptions options, caf::io::network::default_multiplexer& multiplexer);
  void has_connected(net::Accepted accepted, Connection connection);
  void has_refused(const std::string& from, const net::Rejected& why);
  void has_failed(const net::TaskId& to, const Error& why, bool again);
  /// Of a client that connects: whether nothing is to be waited for.
  bool done_connecting(const std::vector<net::TaskId>& tasks, bool queues) const;
  Result<std::optional<uint64_t>> session(const net::Hello& hello) const;
  /// Under mutex_: all lanes of the task, in an epoch of their own.
  void dial(const net::TaskId& task);
  /// Under mutex_: what is dialled for it is of no use any more.
  void stop_dialling(const net::TaskId& task);
  /// Under mutex_: whether the task is to be dialled where it is not connected.
  bool wants(const net::TaskId& task) const;
  /// Of a client, under mutex_: whether a task is busy with another one. Dials and leaves tasks as that asks for.
  void is_busy(const net::TaskId& task, bool busy);
  /// Under mutex_: whether this side dials that one.
  bool dials(const net::TaskId& task, net::PeerRole role) const;
  /// Under mutex_: the peer whose actor has that context, unless another has taken its place.
  std::map<net::TaskId, Peer>::iterator current(const PeerContext& context);
  /// Under mutex_: whether all tasks that a client has found are up; then it is told.
  void answer_ready();
  /// Under mutex_: tells a client that waits for that why they are not.
  void cannot_be_ready(const Error& why);
  /// Under mutex_: tells the client of a task, which was ready, why it is not any more: it has lost another one.
  void is_apart(const Error& why);
  /// Of a client, not under mutex_: the steps end of which the task has run a part, or runs one. What a part that has
  /// ended well sent to others may be lost with the task.
  void end_steps_of(const std::string& task, const Error& why);
  /// Not under mutex_: that a task has gone, or a client. Of the latter its own actor tells it, which brings nothing
  /// any more: what comes late of it would be taken for its successor's.
  void tell_worker(const net::TaskId& task, net::PeerRole role, const net::Incarnation& life, const Error& why);
  /// Under mutex_: gives the actor of a peer a connection; that of a client when the worker knows that those before it
  /// have gone.
  void give(net::PeerRole role, const caf::actor& actor, LaneUp lane);
  void tell(const caf::actor& peer, Result<net::FrameRef> frame, PeerLane lane = PeerLane::kControl);
  net::Peers all_peers() const;
  /// Of a client, under mutex_: whether the task is up and connected to all others that are.
  bool is_ready(const net::TaskId& task) const;
  /// Of a client, under mutex_: whether a task that is up cannot be ready, however long one waits.
  bool cannot_change(const net::TaskId& task) const;
  /// Of a client, under mutex_, where it is not.
  std::string why_not_ready(const net::TaskId& task) const;
  /// Of a client, under mutex_: what the tasks that are up are to be told of who is there now. Of a task: nothing.
  void begin_round(net::Peers& peers, std::vector<caf::actor>& told);
  /// Of a client, under mutex_: one of `others` whose connection with the task they have not both told of. What the
  /// other sends before may go to the life that the task had before, and never come.
  std::optional<net::TaskId> apart_from(const net::TaskId& task, const std::vector<net::TaskId>& others) const;
  /// Not under mutex_.
  void tell_watchers();

  Engine::Impl& engine_;
  const NetworkOptions options_;
  net::Identity identity_;
  caf::io::network::default_multiplexer& multiplexer_;
  std::unique_ptr<Connector> connector_;
  std::map<net::TaskId, std::shared_ptr<Link>> links_;  // of a client
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<net::TaskId, Peer> peers_;
  /// Those that were lost, the latest last: what stands late of one of them is of no use.
  struct Gone {
    net::TaskId task;
    net::Incarnation life;
    uint64_t epoch = 0;
  };
  static constexpr size_t kMostGone = 64;
  std::deque<Gone> gone_;
  uint64_t last_epoch_ = 0;
  std::map<net::TaskId, uint64_t> dialled_;     // the epochs in which tasks were dialled last
  std::set<net::TaskId> dialling_;              // those of whom no lane stands yet
  std::map<net::TaskId, std::string> why_not_;  // connected
  std::set<net::TaskId> refuse_;                // to connect, for what waiting does not change
  std::set<net::TaskId> busy_;                  // with another client
  bool queues_ = false;                         // for tasks that are busy, and has not got all yet
  bool lets_go_ = false;                        // of all others meanwhile
  std::chrono::steady_clock::time_point patient_until_ = {};
  std::string last_refused_;  // logged
  std::chrono::steady_clock::time_point refused_at_ = {};
  std::map<net::TaskId, net::Ready> devices_;  // of a client: what tasks have, or why they are not ready
  uint64_t round_ = 0;                         // of PEERS, the latest that was sent or has come
  std::optional<net::TaskId> asked_by_;        // of a task: the client that waits for READY
  bool waits_ = false;                         // it still does, or again
  std::string told_why_;                       // it has been told, in this round or an earlier one
  bool told_why_round_ = false;
  std::set<net::TaskId> asked_for_;
  std::map<net::TaskId, net::Incarnation> there_;  // of those: that the client has found, and which it is
  std::map<net::TaskId, int64_t> lives_;           // of tasks, that were up
  std::map<net::TaskId, uint64_t> born_;           // of a client: the round in which a task's life was found
  std::map<net::TaskId, uint64_t> joined_;         // the last in which one was connected to all that are there
  int clients_leaving_ = 0;                        // clients of which the worker has not been told that they have gone
  std::vector<std::pair<caf::actor, LaneUp>> held_;  // connections of who comes after them
  bool stopped_ = false;

  std::recursive_mutex watch_mutex_;  // held while a watcher is called, which may begin watches and end them
  uint64_t next_watcher_ = 0;
  std::map<uint64_t, std::shared_ptr<const std::function<void()>>> watchers_;
};

}  // namespace troupe
