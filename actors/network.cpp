// SPDX-License-Identifier: Apache-2.0
#include "actors/network.h"

#include <caf/io/middleman.hpp>

#include <random>

#include "actors/network_link.h"
#include "actors/reach.h"
#include "actors/step_timer.h"
#include "base/engine_thread.h"
#include "base/join.h"
#include "base/log.h"
#include "net/packed.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// For so long a client that waits for a busy task keeps those before it.
constexpr auto kQueuePatience = 1s;

net::Incarnation draw_incarnation() {
  std::random_device device;
  const auto draw = [&] { return (uint64_t{device()} << 32) | device(); };
  return {draw(), draw() | 1};  // never none
}

net::Identity identity_of(const NetworkOptions& options) {
  net::Identity out;
  out.cluster = options.cluster;
  out.incarnation = draw_incarnation();
  out.role = options.task ? net::PeerRole::kTask : net::PeerRole::kClient;
  out.task = options.task
                 ? *options.task
                 : net::TaskId{std::string(net::kClientJob), static_cast<int>(out.incarnation.high % 1'000'000)};
  return out;
}

net::DeviceRecord record_of(const DeviceInfo& d) {
  return {d.name,        static_cast<uint8_t>(d.kind), static_cast<uint32_t>(d.threads),
          d.rates.flops, d.rates.memory_bandwidth,     d.rates.launch_ns,
          d.rates.memory};
}

DeviceInfo device_of(const net::DeviceRecord& r) {
  DeviceInfo out;
  out.name = r.name;
  out.kind = static_cast<DeviceKind>(r.kind);
  out.threads = static_cast<int>(r.threads);
  out.rates.flops = r.flops;
  out.rates.memory_bandwidth = r.memory_bandwidth;
  out.rates.launch_ns = r.launch_ns;
  out.rates.memory = r.memory;
  return out;
}

}  // namespace

std::string task_name(const net::TaskId& task) { return fmt::format("/job:{}/replica:0/task:{}", task.job, task.task); }

// -- starting and ending ----------------------------------------------------------------------------------------------

Network::Network(Engine::Impl& engine, NetworkOptions options, caf::io::network::default_multiplexer& multiplexer)
    : engine_(engine), options_(std::move(options)), identity_(identity_of(options_)), multiplexer_(multiplexer) {}

Result<std::shared_ptr<Network>> Network::start(Engine::Impl& engine, NetworkOptions options) {
  if (!engine.system().has_middleman())
    return make_error(Code::kFailedPrecondition,
                      "the actor system has no middleman: load<caf::io::middleman>() into its configuration");
  auto* const multiplexer =
      dynamic_cast<caf::io::network::default_multiplexer*>(&engine.system().middleman().backend());
  if (!multiplexer)
    return make_error(Code::kFailedPrecondition,
                      "the middleman of the actor system has a multiplexer of its own kind: "
                      "a cluster takes CAF's default_multiplexer");
  std::shared_ptr<Network> out(new Network(engine, std::move(options), *multiplexer));
  ConnectorOptions connector;
  connector.identity = out->identity_;
  if (out->options_.task) {
    TROUPE_ASSIGN(connector.listen, out->options_.cluster.address(*out->options_.task));
  }
  connector.run_job = [pool = engine.pool](std::function<void()> job) { return pool->run(std::move(job)); };
  // The connector ends before the network does.
  connector.sessions = [n = out.get()](const net::Hello& hello) { return n->session(hello); };
  connector.tls = out->options_.tls;
  connector.up = [n = out.get()](net::Accepted accepted, Connection connection) {
    n->has_connected(std::move(accepted), std::move(connection));
  };
  connector.refused = [n = out.get()](const std::string& from, const net::Rejected& why) { n->has_refused(from, why); };
  connector.failed = [n = out.get()](const net::TaskId& to, uint32_t, const Error& why, bool again) {
    n->has_failed(to, why, again);
  };
  // Who is silent for that long is dialled anew, and is to be found again as soon as it is back.
  connector.connect_limit =
      std::clamp<std::chrono::nanoseconds>(std::chrono::nanoseconds(out->options_.heartbeat.limit_ns / 8), 100ms, 1s);
  engine.connect([n = out.get()](const std::string& task, EdgeValue value) { return n->send(task, std::move(value)); });
  // Its thread calls at once, and is to find it.
  const std::lock_guard guard(out->mutex_);
  TROUPE_ASSIGN(out->connector_, Connector::start(std::move(connector)));
  if (out->options_.task)
    if (const auto why = why_not_reached(out->options_.cluster, *out->options_.task, out->connector_->listeners()))
      log_warning("{}", *why);
  return out;
}

Network::~Network() { stop("the engine ends"); }

void Network::stop(const std::string& reason) {
  std::vector<caf::actor> actors;
  std::unique_ptr<Connector> connector;  // its thread calls back, and takes the mutex
  {
    const std::lock_guard guard(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (const auto& [task, peer] : peers_) actors.push_back(peer.actor);
    connector = std::move(connector_);
  }
  connector.reset();
  for (const caf::actor& actor : actors) caf::anon_send(actor, LeavePeer{reason});
  changed_.notify_all();
}

void Network::dial(const net::TaskId& task) {
  const net::Address* address = options_.cluster.find(task);
  if (!address || !connector_) return;
  const uint64_t epoch = dialled_[task] = ++last_epoch_;
  dialling_.insert(task);
  for (uint32_t lane = 0; lane < kPeerLanes; ++lane) connector_->dial(task, *address, lane, {}, 0, epoch);
}

void Network::stop_dialling(const net::TaskId& task) {
  dialled_[task] = ++last_epoch_;
  dialling_.erase(task);
  if (connector_) connector_->cancel(task);
}

bool Network::wants(const net::TaskId& task) const {
  if (identity_.role == net::PeerRole::kTask) return asked_for_.contains(task);
  if (!queues_ || busy_.empty()) return true;
  return lets_go_ ? busy_.contains(task) : !(*busy_.begin() < task);
}

void Network::is_busy(const net::TaskId& task, bool busy) {
  const bool changed = busy ? busy_.insert(task).second : busy_.erase(task) > 0;
  const auto now = std::chrono::steady_clock::now();
  if (changed) patient_until_ = now + kQueuePatience;
  // Another one that waits would have let go by now. Who goes on with steps may need what this one has, to which it
  // came first when that started again.
  const bool let_go = std::exchange(lets_go_, queues_ && busy && now >= patient_until_);
  if (!changed && let_go == lets_go_) return;
  for (const net::TaskId& other : options_.cluster.tasks()) {
    const auto peer = peers_.find(other);
    const bool there = peer != peers_.end();
    if (wants(other)) {
      if (!there && !dialling_.contains(other)) dial(other);
      continue;
    }
    if (!there) stop_dialling(other);
    else caf::anon_send(peer->second.actor, LeavePeer{fmt::format("it waits for {} first", task.str())});
  }
}

bool Network::dials(const net::TaskId& task, net::PeerRole role) const {
  return identity_.role == net::PeerRole::kClient || (role == net::PeerRole::kTask && identity_.task < task);
}

Status Network::connect(std::chrono::nanoseconds limit, bool queues) {
  const std::vector<net::TaskId> tasks = options_.cluster.tasks();
  {
    const std::lock_guard guard(mutex_);
    queues_ = queues;
    for (const net::TaskId& task : tasks) links_[task] = std::make_shared<Link>(*this, task);
    for (const net::TaskId& task : tasks) dial(task);
  }
  std::vector<RemoteTask> remote;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::min(limit, kForEver), [&] { return done_connecting(tasks, queues); });
    std::vector<std::string> missing;
    for (const net::TaskId& task : tasks) {
      const auto there = devices_.find(task);
      if (!is_ready(task)) {
        missing.push_back(fmt::format("{} ({})", task.str(), why_not_ready(task)));
        continue;
      }
      RemoteTask& r = remote.emplace_back();
      r.name = task_name(task);
      for (const net::DeviceRecord& record : there->second.devices) r.devices.push_back(device_of(record));
      r.link = links_.at(task);
    }
    if (!missing.empty())
      return make_error(Code::kUnavailable, "{} of {} tasks of the cluster '{}' are not there: {}", missing.size(),
                        tasks.size(), options_.cluster.name(), join(missing, ", "));
    queues_ = false;
  }
  engine_.join(identity_.incarnation.low, std::move(remote));
  return {};
}

bool Network::done_connecting(const std::vector<net::TaskId>& tasks, bool queues) const {
  bool all = true, any_refuses = false, all_known = true;
  for (const net::TaskId& task : tasks) {
    const auto peer = peers_.find(task);
    const bool up = peer != peers_.end() && peer->second.up;
    all = all && (is_ready(task) || (!queues && busy_.contains(task)));
    any_refuses = any_refuses || (up ? cannot_change(task) : refuse_.contains(task));
    all_known = all_known && (up || why_not_.contains(task));
  }
  return stopped_ || all || (any_refuses && all_known);
}

// -- connections ------------------------------------------------------------------------------------------------------

Result<std::optional<uint64_t>> Network::session(const net::Hello& hello) const {
  const std::lock_guard guard(mutex_);
  if (stopped_) return make_error(Code::kUnavailable, "it is about to end");
  if (hello.lane >= kPeerLanes) return invalid_argument("there is no lane {}", hello.lane);
  if (hello.role == net::PeerRole::kClient)
    for (const auto& [task, peer] : peers_)
      if (peer.role == net::PeerRole::kClient && peer.life != hello.incarnation)
        return make_error(Code::kAlreadyExists, "it serves {} already, and serves one client at a time", task.str());
  const auto peer = peers_.find(hello.from);
  if (peer == peers_.end() || peer->second.life != hello.incarnation || hello.epoch > peer->second.epoch)
    return std::optional<uint64_t>();
  if (hello.epoch < peer->second.epoch) return make_error(Code::kUnavailable, "it has been dialed once more since");
  return std::optional<uint64_t>(peer->second.streams[hello.lane]->received());
}

void Network::has_refused(const std::string& from, const net::Rejected& why) {
  // For a reason of this side's, which it knows.
  if (why.code == net::Refusal::kClosing || why.code == net::Refusal::kBusy) return;
  // One that tries again and again is told of once a minute.
  const std::string text = fmt::format("{} was refused a connection ({}): {}", from, to_string(why.code), why.reason);
  const auto now = std::chrono::steady_clock::now();
  if (text == last_refused_ && now - refused_at_ < std::chrono::minutes(1)) return;
  last_refused_ = text;
  refused_at_ = now;
  log_warning("{}", text);
}

void Network::has_failed(const net::TaskId& to, const Error& why, bool again) {
  const std::lock_guard guard(mutex_);
  why_not_[to] = why.message;
  if (!again) dialling_.erase(to);
  if (why.code == Code::kFailedPrecondition) refuse_.insert(to);
  else refuse_.erase(to);
  if (dialling_.contains(to) || !again) is_busy(to, why.code == Code::kAlreadyExists);
  changed_.notify_all();
  // Its process has ended: nothing would go on by waiting.
  if (const auto peer = peers_.find(to); peer != peers_.end() && why.code == Code::kNotFound)
    caf::anon_send(peer->second.actor, PeerGone{});
  if (there_.contains(to)) cannot_be_ready(why);
}

void Network::has_connected(net::Accepted accepted, Connection connection) {
  std::optional<Peer> old;
  caf::actor actor;
  Error why = make_error(Code::kUnavailable, "it has started again");
  {
    const std::lock_guard guard(mutex_);
    if (stopped_ || accepted.lane >= kPeerLanes) return;
    const bool dials = this->dials(accepted.peer, accepted.role);
    if (dials && accepted.epoch != dialled_[accepted.peer]) return;  // it has been dialled once more since
    dialling_.erase(accepted.peer);
    auto at = peers_.find(accepted.peer);
    const auto has_gone = [&](const Gone& gone) {
      return gone.task == accepted.peer && gone.life == accepted.incarnation && gone.epoch >= accepted.epoch;
    };
    if (at == peers_.end() && std::ranges::any_of(gone_, has_gone)) return;  // it was under way when that was given up
    if (at != peers_.end()) {
      const Peer& peer = at->second;
      const bool same_life = peer.life == accepted.incarnation;
      const bool same = same_life && peer.epoch == accepted.epoch;
      // What was kept for the lane is not there any more.
      const bool given_up = same && peer.lanes[accepted.lane] && !accepted.resumed;
      if (same_life && peer.epoch > accepted.epoch) return;
      if (given_up && !dials) return;  // it dials anew
      if (!same || given_up) {
        if (same_life) why = make_error(peer.up ? Code::kUnavailable : Code::kCancelled, "its connections are new");
        old = std::move(at->second);
        if (old->role == net::PeerRole::kClient) ++clients_leaving_;
        peers_.erase(at);
        at = peers_.end();
      }
    }
    if (old && dials && old->epoch == accepted.epoch) {
      dial(accepted.peer);  // its other lanes may be those of before
    } else if (at != peers_.end()) {
      actor = at->second.actor;
      at->second.lanes[accepted.lane] = true;
    } else {
      PeerContext context;
      context.task = accepted.peer;
      context.role = accepted.role;
      context.incarnation = accepted.incarnation;
      context.epoch = accepted.epoch;
      context.dials = dials;
      context.heartbeat = options_.heartbeat;
      context.network = shared_from_this();
      context.load = std::make_shared<PeerLoad>();
      for (auto& stream : context.streams) stream = std::make_shared<PeerStream>(context.load);
      Peer peer;
      peer.life = accepted.incarnation;
      peer.epoch = accepted.epoch;
      peer.role = accepted.role;
      peer.streams = context.streams;
      peer.lanes[accepted.lane] = true;
      actor = peer.actor = engine_.adopt([&] { return engine_.system().spawn<PeerActor>(std::move(context)); });
      connector_->remember(accepted.peer, accepted.incarnation);
      peers_.emplace(accepted.peer, std::move(peer));
    }
  }
  if (old) {
    if (old->role == net::PeerRole::kTask) tell_worker(accepted.peer, old->role, old->life, why);
    caf::anon_send(old->actor, LeavePeer{why.message, why.code});
  }
  if (!actor) return;
  const std::lock_guard guard(mutex_);
  give(accepted.role, actor,
       LaneUp{accepted.lane, std::make_shared<Connection>(std::move(connection)), accepted.resumed, accepted.received});
}

void Network::give(net::PeerRole role, const caf::actor& actor, LaneUp lane) {
  if (role == net::PeerRole::kClient && clients_leaving_ > 0) held_.emplace_back(actor, std::move(lane));
  else caf::anon_send(actor, std::move(lane));
}

std::map<net::TaskId, Network::Peer>::iterator Network::current(const PeerContext& context) {
  const auto at = peers_.find(context.task);
  const bool is = at != peers_.end() && at->second.life == context.incarnation && at->second.epoch == context.epoch;
  return is ? at : peers_.end();
}

void Network::is_up(const PeerContext& context) {
  const net::TaskId& task = context.task;
  std::vector<caf::actor> told;
  net::Peers peers;
  {
    const std::lock_guard guard(mutex_);
    const auto at = current(context);
    if (at == peers_.end()) return;
    if (!at->second.up && options_.task && at->second.role == net::PeerRole::kClient)
      log_info("{} has come", task.str());
    at->second.up = true;
    // Clients come under ever new names, of which nothing is kept.
    if (at->second.role == net::PeerRole::kTask) ++lives_[task];  // before anything can be asked of it
    why_not_.erase(task);
    is_busy(task, false);
    begin_round(peers, told);
    if (at->second.role == net::PeerRole::kTask) born_[task] = round_;
    if (const auto link = links_.find(task); link != links_.end()) link->second->up(at->second.actor);
    answer_ready();
  }
  for (const caf::actor& actor : told) tell(actor, net::make_frame(peers));
  changed_.notify_all();
  tell_watchers();
}

void Network::begin_round(net::Peers& peers, std::vector<caf::actor>& told) {
  if (identity_.role != net::PeerRole::kClient) return;
  ++round_;
  peers = all_peers();
  for (const auto& [id, peer] : peers_)
    if (peer.up) told.push_back(peer.actor);
}

std::optional<net::TaskId> Network::apart_from(const net::TaskId& task, const std::vector<net::TaskId>& others) const {
  const auto round = [](const auto& rounds, const net::TaskId& of) {
    const auto at = rounds.find(of);
    return at == rounds.end() ? 0 : at->second;
  };
  for (const net::TaskId& other : others) {
    const uint64_t both = std::max(round(born_, task), round(born_, other));
    if (round(joined_, task) < both || round(joined_, other) < both) return other;
  }
  return {};
}

std::shared_ptr<void> Network::watch(std::function<void()> changed) {
  const std::lock_guard guard(watch_mutex_);
  const uint64_t number = next_watcher_++;
  watchers_.emplace(number, std::make_shared<const std::function<void()>>(std::move(changed)));
  return {static_cast<void*>(this), [weak = weak_from_this(), number](void*) {
            const auto network = weak.lock();
            if (!network) return;
            const std::lock_guard dropping(network->watch_mutex_);
            network->watchers_.erase(number);
          }};
}

void Network::tell_watchers() {
  const std::lock_guard guard(watch_mutex_);
  for (auto at = watchers_.begin(); at != watchers_.end();) {
    const auto [number, changed] = *at;  // it may end its own watch
    if (const Status called = guarded_call(*changed); !called.ok())
      log_error("what watches the cluster failed: {}", called.error().message);
    at = watchers_.upper_bound(number);
  }
}

bool Network::is_ready(const net::TaskId& task) const {
  const auto peer = peers_.find(task);
  const auto said = devices_.find(task);
  return peer != peers_.end() && peer->second.up && said != devices_.end() && said->second.round == round_ &&
         !said->second.error;
}

bool Network::cannot_change(const net::TaskId& task) const {
  const auto said = devices_.find(task);
  if (said == devices_.end() || said->second.round != round_ || !said->second.error) return false;
  const Code code = said->second.error->code;
  return code == Code::kFailedPrecondition || code == Code::kInvalidArgument;
}

std::string Network::why_not_ready(const net::TaskId& task) const {
  if (const auto peer = peers_.find(task); peer != peers_.end() && peer->second.up) {
    const auto said = devices_.find(task);
    const bool told = said != devices_.end() && said->second.round == round_ && said->second.error;
    return told ? said->second.error->message : "it waits for others";
  }
  const auto why = why_not_.find(task);
  return why == why_not_.end() ? "no answer" : why->second;
}

net::Peers Network::all_peers() const {
  net::Peers out{round_};
  for (const net::TaskId& task : options_.cluster.tasks()) {
    const auto peer = peers_.find(task);
    out.peers.push_back(
        {task, options_.cluster.find(task)->str(), peer == peers_.end() ? net::Incarnation() : peer->second.life});
  }
  return out;
}

void Network::dial_again(const PeerContext& context, uint32_t lane, uint64_t received) {
  const std::lock_guard guard(mutex_);
  const net::Address* address = options_.cluster.find(context.task);
  // Of one that another has followed nothing is dialled: it would end what is connected to that.
  if (stopped_ || !address || current(context) == peers_.end()) return;
  connector_->dial(context.task, *address, lane, context.incarnation, received, context.epoch);
}

void Network::lost(const PeerContext& context, const Error& why, bool left) {
  const net::TaskId& task = context.task;
  const bool client = context.role == net::PeerRole::kClient;
  std::optional<Peer> peer;
  std::vector<caf::actor> told;
  net::Peers peers;
  {
    const std::lock_guard guard(mutex_);
    if (const auto at = current(context); at != peers_.end()) {
      peer = std::move(at->second);
      peers_.erase(at);
      if (!client) why_not_[task] = why.message;
      if (const auto link = links_.find(task); link != links_.end()) link->second->down(why);
      if (client && connector_) connector_->forget(task);
      if (client) ++clients_leaving_, asked_by_.reset(), asked_for_.clear(), there_.clear(), told_why_.clear();
      gone_.push_back({task, context.incarnation, context.epoch});
      if (gone_.size() > kMostGone) gone_.pop_front();
      if (context.dials) stop_dialling(task);
      // The others need not be connected to it to be ready.
      if (peer->up && !stopped_) begin_round(peers, told);
      // The client is to know, and may be connected to it all the same.
      if (peer->up && !stopped_ && there_.contains(task)) is_apart(why);
    }
  }
  for (const caf::actor& actor : told) tell(actor, net::make_frame(peers));
  if (why.code != Code::kCancelled && client) log_info("{} has gone: {}", task.str(), why.message);
  else if (why.code != Code::kCancelled && !left) log_warning("{}", why.message);
  if (peer || client) tell_worker(task, context.role, context.incarnation, why);
  if (client) {
    const std::lock_guard guard(mutex_);
    if (--clients_leaving_ == 0)
      for (auto& [actor, lane] : std::exchange(held_, {})) caf::anon_send(actor, std::move(lane));
  }
  if (peer) {
    const std::lock_guard guard(mutex_);
    if (!stopped_ && context.dials && wants(task) && !peers_.contains(task) && !dialling_.contains(task)) dial(task);
  }
  changed_.notify_all();
  tell_watchers();
}

void Network::tell_worker(const net::TaskId& task, net::PeerRole role, const net::Incarnation& life, const Error& why) {
  if (identity_.role == net::PeerRole::kClient) end_steps_of(task_name(task), why);
  if (!engine_.worker) return;
  if (role == net::PeerRole::kClient) engine_.worker->drop_client(life.low, why);
  engine_.worker->lost_task(task_name(task), why);
}

void Network::end_steps_of(const std::string& task, const Error& why) {
  const Directory& directory = *engine_.directory;
  directory.from_outside([&] {
    for (const StepRef& step : directory.steps.running())
      if (step->parts && step->parts->has(task)) abort_step(step, why, directory);
  });
}

void Network::cut_off(const std::set<StepOfClient>& steps, const Error& why) {
  if (identity_.role == net::PeerRole::kClient) return;  // it knows which steps have parts there
  const std::lock_guard guard(mutex_);
  for (const StepOfClient& step : steps)
    for (const auto& [task, peer] : peers_)
      if (peer.role == net::PeerRole::kClient && peer.life.low == step.client)
        tell(peer.actor, net::make_frame(net::AbortRun{step.step, why}));
}

// -- messages ---------------------------------------------------------------------------------------------------------

void Network::told_peers(const net::TaskId& from, const net::Peers& peers) {
  const std::lock_guard guard(mutex_);
  if (asked_by_ == from && peers.round < round_) return;  // overtaken
  asked_by_ = from;
  round_ = peers.round;
  waits_ = true;
  told_why_round_ = false;
  there_.clear();
  for (const net::Peers::Peer& peer : peers.peers) {
    if (peer.task == identity_.task) continue;
    if (peer.incarnation != net::Incarnation()) there_[peer.task] = peer.incarnation;
    if (!options_.cluster.find(peer.task)) continue;
    asked_for_.insert(peer.task);
    if (stopped_ || !(identity_.task < peer.task) || peers_.contains(peer.task)) continue;
    if (dialling_.contains(peer.task)) connector_->hurry(peer.task);
    else dial(peer.task);
  }
  answer_ready();
  for (const auto& [task, life] : there_)
    if (!options_.cluster.find(task))
      cannot_be_ready(invalid_argument("the list of tasks of {} has no {}", identity_.task.str(), task.str()));
}

void Network::answer_ready() {
  if (!asked_by_) return;
  const auto client = peers_.find(*asked_by_);
  const bool all = std::ranges::all_of(there_, [&](const auto& there) {
    const auto peer = peers_.find(there.first);
    return peer != peers_.end() && peer->second.up && peer->second.life == there.second;
  });
  if (client == peers_.end() || !all) return;
  waits_ = false;
  net::Ready ready{round_};
  for (const DeviceInfo& device : engine_.devices) ready.devices.push_back(record_of(device));
  tell(client->second.actor, net::make_frame(ready));
}

void Network::cannot_be_ready(const Error& why) {
  const bool known = why.message == told_why_;
  if (!waits_ || !asked_by_ || (known && told_why_round_)) return;
  const auto client = peers_.find(*asked_by_);
  if (client == peers_.end()) return;
  if (!known) log_warning("{}", why.message);
  told_why_ = why.message;
  told_why_round_ = true;
  net::Ready ready{round_};
  ready.error = why;
  tell(client->second.actor, net::make_frame(ready));
}

void Network::is_apart(const Error& why) {
  waits_ = true;
  told_why_ = why.message;  // logged by who calls
  told_why_round_ = false;
  cannot_be_ready(why);
}

void Network::told_ready(const net::TaskId& from, const net::Ready& ready) {
  {
    const std::lock_guard guard(mutex_);
    net::Ready& kept = devices_[from];
    if (ready.error) kept.round = ready.round, kept.error = ready.error;
    else kept = ready, joined_[from] = std::max(joined_[from], ready.round);
  }
  changed_.notify_all();
  tell_watchers();
}

Status Network::told_abort(const net::TaskId& from, const net::AbortRun& message) {
  if (identity_.role != net::PeerRole::kClient) return invalid_argument("ABORT from a task");
  const Directory& directory = *engine_.directory;
  directory.from_outside([&] {
    const StepRef step = directory.steps.find(static_cast<int64_t>(message.step));
    if (step && step->parts && step->parts->has(task_name(from))) abort_step(step, message.error, directory);
  });
  return {};
}

void Network::tell(const caf::actor& peer, Result<net::FrameRef> frame, PeerLane lane) {
  if (!frame.ok()) return log_error("a message to a peer: {}", frame.error().message);
  caf::anon_send(peer, SendFrame{static_cast<uint32_t>(lane), std::move(*frame)});
}

bool Network::send(const std::string& to, EdgeValue value) {
  net::EdgeTensor message;
  message.client = value.client;
  message.step = static_cast<uint64_t>(value.step);
  message.edge = value.edge;
  message.dead = value.dead;
  message.iterations = std::move(value.iterations);
  auto packed = net::pack(std::move(value.value));
  if (packed.ok()) message.form = std::move(packed->form);
  auto frame = packed.ok() ? net::make_frame(message, std::move(packed->tensors)) : packed.error();
  if (!frame.ok()) {
    Error why = frame.error();
    why.message = fmt::format("its value cannot be sent to {}: {}", to, why.message);
    engine_.worker->cannot_send(value.client, value.step, value.edge, std::move(why));
    return false;
  }
  const auto lane = (*frame)->bytes() > kMostUrgentBytes ? PeerLane::kBulk : PeerLane::kControl;
  std::shared_ptr<PeerStream> stream;
  caf::actor actor;
  if (const auto id = task_id(to); id.ok()) {
    const std::lock_guard guard(mutex_);
    if (const auto at = peers_.find(*id); at != peers_.end())
      stream = at->second.streams[static_cast<size_t>(lane)], actor = at->second.actor;
  }
  const auto not_connected = [&] {
    engine_.worker->abort(value.client, value.step,
                          make_error(Code::kUnavailable, "{}: it is not connected to {}", engine_.task, to));
    return false;
  };
  if (!stream) return not_connected();
  // A device goes on with its step while another thread writes what is large; one that is lent has nothing to go on
  // with.
  const bool writes = lane == PeerLane::kControl || (EngineThread::is_lent() && (*frame)->bytes() <= kMostLentBytes);
  const auto sent = writes ? stream->send(std::move(*frame)) : stream->queue(std::move(*frame));
  if (sent == PeerStream::Sent::kClosed) return not_connected();
  if (!writes) caf::anon_send(actor, FlushLane{static_cast<uint32_t>(lane)});
  return sent == PeerStream::Sent::kFull;
}

Result<net::TaskId> Network::task_id(const std::string& name) const {
  if (name == engine_.task) return identity_.task;
  const size_t replica = name.find("/replica:0");
  return net::TaskId::parse(replica == std::string::npos ? name : name.substr(0, replica) + name.substr(replica + 10));
}

std::vector<TaskStatus> Network::status() const {
  const std::lock_guard guard(mutex_);
  std::vector<TaskStatus> out;
  for (const net::TaskId& task : options_.cluster.tasks()) {
    if (task == identity_.task) continue;
    TaskStatus& status = out.emplace_back();
    status.task = task.str();
    status.address = options_.cluster.find(task)->str();
    const auto peer = peers_.find(task);
    status.up = peer != peers_.end() && peer->second.up;
    status.ready = status.up && is_ready(task);
    if (const auto lives = lives_.find(task); lives != lives_.end()) status.lives = lives->second;
    status.busy = !status.up && busy_.contains(task);
    if (!status.ready) status.reason = why_not_ready(task);
    if (const auto devices = devices_.find(task); devices != devices_.end())
      for (const net::DeviceRecord& device : devices->second.devices) status.devices.push_back(device.name);
  }
  return out;
}

std::vector<std::string> Network::connected() const {
  const std::lock_guard guard(mutex_);
  std::vector<std::string> out;
  for (const auto& [task, peer] : peers_)
    if (peer.up) out.push_back(task.str());
  return out;
}

}  // namespace troupe
