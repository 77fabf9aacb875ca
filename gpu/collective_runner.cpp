// SPDX-License-Identifier: Apache-2.0
// A thread that polls: a communicator tells its errors to nobody who waits, and an event that a hanging collective
// stands before is never done.
#include "gpu/collective_runner.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"
#include "gpu/event_pool.h"
#include "gpu/failed_communicator.h"

namespace troupe::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using Members = std::vector<size_t>;

/// Between two looks: a sixteenth of what has passed, so that looking is cheap and a late look adds little.
constexpr std::chrono::microseconds kShortestPause{20}, kLongestPause{500};

}  // namespace

class CollectiveRunner::Loop {
 public:
  Loop(std::shared_ptr<Runtime> runtime, std::shared_ptr<Collectives> library, const std::vector<Member>& members,
       CollectiveRunnerOptions options)
      : runtime_(std::move(runtime)), library_(std::move(library)), members_(members), options_(options),
        streams_(members.size()), blocked_(members.size()) {
    for (const Member& member : members_)
      events_.push_back(std::make_unique<EventPool>(*runtime_, member.device->card()));
    thread_ = std::thread([this] { run(); });
  }

  void add(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (!stopping_) {
        added_.push_back(std::move(task));
        changed_.notify_all();
        return;
      }
    }
    task.done(stopped());
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  /// A collective that was launched.
  struct Active {
    Task task;
    std::vector<std::unique_ptr<Event>> begun = {}, ended = {};  // by rank; null: seen to be done
    Clock::time_point launched = {};
    std::optional<Clock::time_point> since = {};  // that the time counts from
    bool in_streams = false;
  };
  /// The communicator of some members, in the order of its ranks.
  struct Group {
    std::unique_ptr<Communicator> communicator;
    bool made = false;  // else it is being made
    Clock::time_point since;
    std::list<Active> active;  // in the order of their launches
  };
  /// One that failed, and the members that it holds; none: it had nothing to do.
  struct Failed {
    Members members;
    std::unique_ptr<FailedCommunicator> communicator;
  };

  static Error stopped() { return make_error(Code::kCancelled, "the engine is being destroyed"); }

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (added_.empty() && pending_.empty() && groups_under_way() == 0 && failed_.empty()) changed_.wait(lock);
      else if (added_.empty()) changed_.wait_for(lock, pause());
      std::move(added_.begin(), added_.end(), std::back_inserter(pending_));
      added_.clear();
      lock.unlock();
      look();
      lock.lock();
    }
    std::move(added_.begin(), added_.end(), std::back_inserter(pending_));
    lock.unlock();
    end();
  }

  size_t groups_under_way() const {
    return static_cast<size_t>(std::ranges::count_if(
        groups_, [](const auto& g) { return !g.second.active.empty() || (g.second.communicator && !g.second.made); }));
  }
  std::chrono::nanoseconds pause() const {
    std::chrono::nanoseconds out = kLongestPause;
    for (const auto& [members, group] : groups_)
      if (!group.active.empty())
        out = std::min<std::chrono::nanoseconds>(out, (Clock::now() - group.active.back().launched) / 16);
    return std::max<std::chrono::nanoseconds>(out, kShortestPause);
  }

  /// One look at everything.
  void look() {
    for (auto& [members, group] : groups_) look_at(members, group);
    for (auto at = failed_.begin(); at != failed_.end();) {
      const bool ended =
          at->communicator->go_on([&](size_t rank) { return rank < at->members.size() && is_lost(at->members[rank]); });
      if (auto rest = at->communicator->take_rest()) keep(std::move(rest));
      if (ended) unblock(*at);
      at = ended ? failed_.erase(at) : std::next(at);
    }
    bool more = true;
    while (more && !launching()) more = launch_next();
  }

  /// Whether a collective is not in all streams yet: then no other may be put in.
  bool launching() const {
    return std::ranges::any_of(
        groups_, [](const auto& g) { return !g.second.active.empty() && !g.second.active.back().in_streams; });
  }

  // -- collectives under way ------------------------------------------------------------------------------------------

  void look_at(const Members& members, Group& group) {
    if (!group.communicator || (group.made && group.active.empty())) return;
    const Result<bool> ready = group.communicator->ready();
    if (!ready.ok()) return fail(members, group, ready.error());
    if (!group.made) {
      if (*ready) group.made = true;
      else if (Clock::now() - group.since > options_.timeout)
        fail(members, group,
             make_error(Code::kDeadlineExceeded, "a communicator of {} was not made in {}", names(members), limit()));
      return;
    }
    if (Active& last = group.active.back(); *ready && !last.in_streams) {
      last.in_streams = true;
      if (const Status marked = mark(last.task.members, last.ended); !marked.ok())
        return fail(members, group, marked.error());
    }
    while (!group.active.empty() && group.active.front().in_streams) {
      Active& first = group.active.front();
      const Result<bool> ended = all_done(members, first.ended);
      if (!ended.ok()) return fail(members, group, ended.error());
      if (!*ended) break;
      const auto done = std::move(first.task.done);
      group.active.pop_front();  // before somebody takes the answer for the end
      done({});
    }
    for (Active& active : group.active) {
      if (const auto begun = all_done(members, active.begun); !begun.ok()) return fail(members, group, begun.error());
      const bool any_begun = std::ranges::any_of(active.begun, [](const auto& mark) { return !mark; });
      if (!active.since && (any_begun || !active.in_streams || is_blocked(members))) active.since = Clock::now();
      if (active.since && Clock::now() - *active.since > options_.timeout)
        return fail(members, group, too_late(active));
    }
  }

  /// Marks in the stream of each rank.
  Status mark(const Members& members, std::vector<std::unique_ptr<Event>>& marks) {
    marks.resize(members.size());
    for (size_t rank = 0; rank < members.size(); ++rank) {
      TROUPE_ASSIGN(marks[rank], events_[members[rank]]->take());
      TROUPE_RETURN_IF_ERROR(streams_[members[rank]]->record(*marks[rank]));
    }
    return {};
  }
  /// Whether the marks of all ranks are passed; those that are go.
  Result<bool> all_done(const Members& members, std::vector<std::unique_ptr<Event>>& marks) {
    bool all = true;
    for (size_t rank = 0; rank < marks.size(); ++rank) {
      if (!marks[rank]) continue;
      TROUPE_ASSIGN(const bool done, marks[rank]->done());
      if (done) events_[members[rank]]->give_back(std::move(marks[rank]));
      else all = false;
    }
    return all;
  }

  Error too_late(const Active& active) const {
    Members absent, hanging;
    for (size_t rank = 0; rank < active.begun.size(); ++rank) {
      if (active.begun[rank]) absent.push_back(active.task.members[rank]);
      else if (active.ended.empty() || active.ended[rank]) hanging.push_back(active.task.members[rank]);
    }
    std::string who;
    if (!absent.empty())
      who += fmt::format(": {} {} not come to it", names(absent), absent.size() > 1 ? "have" : "has");
    if (!hanging.empty())
      who +=
          fmt::format("{} {} {} in it", who.empty() ? ":" : ",", names(hanging), hanging.size() > 1 ? "hang" : "hangs");
    return make_error(Code::kDeadlineExceeded, "{} of {} devices was not done in {}{}",
                      to_string(active.task.collective.kind), active.task.members.size(), limit(), who);
  }
  std::string names(const Members& members) const {
    std::string out;
    for (const size_t member : members) out += (out.empty() ? "" : ", ") + members_[member].name;
    return out;
  }
  std::string limit() const { return fmt::format("{} s", std::chrono::duration<double>(options_.timeout).count()); }

  // -- launches -------------------------------------------------------------------------------------------------------

  bool is_blocked(const Members& members) const {
    return std::ranges::any_of(members, [&](size_t member) { return blocked_[member].has_value(); });
  }

  /// Launches the first collective that can be, makes a communicator for one, or answers one that cannot be. False:
  /// there was none of these.
  bool launch_next() {
    for (auto at = pending_.begin(); at != pending_.end(); ++at) {
      if (is_blocked(at->members)) {
        const auto waits_too_long = [&](size_t member) {
          return blocked_[member] && Clock::now() - *blocked_[member] > options_.patience;
        };
        const auto member = std::ranges::find_if(at->members, waits_too_long);
        if (member == at->members.end()) continue;
        answer(at, make_error(Code::kUnavailable, "a communicator of {} could not be ended", members_[*member].name));
        return true;
      }
      Group& group = groups_[at->members];
      if (!group.communicator) {
        if (Status made = make(at->members, group); !made.ok()) answer(at, std::move(made));
        return true;
      }
      if (!group.made) continue;
      if (const auto ready = group.communicator->ready(); !ready.ok()) {  // it broke while it had nothing to do
        fail(at->members, group, ready.error());
        return true;
      }
      Task task = std::move(*at);
      pending_.erase(at);
      launch(std::move(task), group);
      return true;
    }
    return false;
  }
  void answer(std::deque<Task>::iterator at, Status status) {
    const auto done = std::move(at->done);
    pending_.erase(at);
    done(std::move(status));
  }

  Status make(const Members& members, Group& group) {
    std::vector<int> cards;
    for (const size_t member : members) {
      cards.push_back(members_[member].device->card());
      if (!streams_[member]) {
        TROUPE_ASSIGN(std::unique_ptr<Stream> stream, runtime_->make_stream(cards.back(), true));
        streams_[member] = std::move(stream);
      }
    }
    if (const auto rest = rests_.find(cards); rest != rests_.end()) {
      group.communicator = std::move(rest->second);
      rests_.erase(rest);
    } else {
      TROUPE_ASSIGN(group.communicator, library_->make(cards));
    }
    group.made = false;
    group.since = Clock::now();
    return {};
  }

  void launch(Task task, Group& group) {
    const Members members = task.members;
    Active active{std::move(task)};
    Status begun = begin(active);
    if (!begun.ok()) return active.task.done(std::move(begun));  // nothing was launched
    std::vector<Stream*> streams;
    for (const size_t member : members) streams.push_back(streams_[member].get());
    active.launched = Clock::now();
    const Status launched = group.communicator->launch(active.task.collective, streams);
    group.active.push_back(std::move(active));
    if (!launched.ok()) fail(members, group, launched.error());
  }
  /// Has the streams wait for the inputs, and fills in the addresses.
  Status begin(Active& active) {
    Task& task = active.task;
    for (size_t rank = 0; rank < task.members.size(); ++rank) {
      const size_t member = task.members[rank];
      TROUPE_ASSIGN(std::unique_ptr<Event> made, events_[member]->take());
      TROUPE_RETURN_IF_ERROR(members_[member].device->compute().stream.record(*made));
      TROUPE_RETURN_IF_ERROR(streams_[member]->wait(*made));
      events_[member]->give_back(std::move(made));
      const bool gives =
          task.collective.kind == Collective::Kind::kBroadcast && static_cast<size_t>(task.collective.root) == rank;
      task.collective.ranks.push_back(
          {task.inputs[rank].address(), gives ? nullptr : task.outputs[rank].mutable_address()});
    }
    return mark(task.members, active.begun);
  }

  // -- what failed ----------------------------------------------------------------------------------------------------

  /// The error, or that cards are lost, which is then why.
  Error reason(const Members& members, const Error& error) {
    if (error.code == Code::kUnavailable || error.code == Code::kCancelled) return error;
    Members lost;
    for (const size_t member : members)
      if (is_lost(member)) lost.push_back(member);
    return lost.empty() ? error : make_error(Code::kUnavailable, "{}: lost is {}", error.message, names(lost));
  }

  /// Tells those who wait, and sees the communicator to its end. What the group has yet to launch gets another one.
  void fail(const Members& of, Group& group, const Error& told) {
    const Members members = of;
    const Error error = reason(members, told);
    FailedCommunicator::Kept kept;
    for (const size_t member : members) {
      kept.streams.push_back(streams_[member]);
      if (!blocked_[member]) blocked_[member] = Clock::now();
    }
    const auto keep_all = [&](std::vector<Tensor>& tensors) {
      std::ranges::move(tensors, std::back_inserter(kept.tensors));
      tensors.clear();
    };
    std::vector<std::function<void(Status)>> waiting;
    for (Active& active : group.active) {
      keep_all(active.task.inputs);
      keep_all(active.task.outputs);
      waiting.push_back(std::move(active.task.done));
    }
    group.active.clear();
    if (!group.made)  // nor would another be
      for (auto at = pending_.begin(); at != pending_.end();) {
        if (at->members == members) {
          waiting.push_back(std::move(at->done));
          at = pending_.erase(at);
        } else {
          ++at;
        }
      }
    failed_.push_back({members, end_of(std::move(group.communicator), std::move(kept))});
    for (const auto& done : waiting) done(error);
  }

  std::unique_ptr<FailedCommunicator> end_of(std::unique_ptr<Communicator> communicator,
                                             FailedCommunicator::Kept kept) const {
    return std::make_unique<FailedCommunicator>(runtime_, std::move(communicator), std::move(kept), options_.patience);
  }
  /// For the next who wants these cards.
  void keep(std::unique_ptr<Communicator> rest) {
    std::unique_ptr<Communicator>& known = rests_[{rest->cards().begin(), rest->cards().end()}];
    std::swap(known, rest);
    if (rest) failed_.push_back({{}, end_of(std::move(rest), {})});
  }
  bool is_lost(size_t member) {
    const auto event = events_[member]->take();
    if (!event.ok()) return event.error().code == Code::kUnavailable;
    const Status alive = members_[member].device->compute().stream.record(**event);
    return !alive.ok() && alive.error().code == Code::kUnavailable;
  }

  /// Devices are free again that no other failed communicator holds.
  void unblock(const Failed& ended) {
    for (const size_t member : ended.members) {
      blocked_[member].reset();
      for (const Failed& failed : failed_)
        if (&failed != &ended && std::ranges::count(failed.members, member) > 0)
          blocked_[member] =
              std::max(blocked_[member].value_or(failed.communicator->since()), failed.communicator->since());
    }
  }

  /// Everything ends: of stop().
  void end() {
    for (Task& task : pending_) task.done(stopped());
    pending_.clear();
    for (auto& [members, group] : groups_)
      if (group.communicator) {
        group.made = true;
        fail(members, group, stopped());
      }
    for (auto& [cards, rest] : rests_) failed_.push_back({{}, end_of(std::move(rest), {})});
    streams_.clear();  // those that failed ones do not hold
    for (const Failed& failed : failed_) failed.communicator->hurry();
    const auto until = Clock::now() + options_.patience;
    for (const Failed& failed : failed_)
      if (!failed.communicator->await_end(until))
        log_error("a communicator of {} could not be ended; its memory is lost", names(failed.members));
  }

  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Collectives> library_;
  const std::vector<Member>& members_;
  const CollectiveRunnerOptions options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> added_;  // with the mutex
  bool stopping_ = false;    // with the mutex

  // Of the thread alone:
  std::vector<std::unique_ptr<EventPool>> events_;                   // by member
  std::vector<std::shared_ptr<Stream>> streams_;                     // by member; made when they are first needed
  std::vector<std::optional<Clock::time_point>> blocked_;            // by member: since a failed communicator holds it
  std::deque<Task> pending_;                                         // not launched
  std::map<Members, Group> groups_;                                  // by members, in the order of ranks
  std::map<std::vector<int>, std::unique_ptr<Communicator>> rests_;  // made by shrinking, by cards; nobody has them yet
  std::list<Failed> failed_;
  std::thread thread_;
};

CollectiveRunner::CollectiveRunner(std::shared_ptr<Runtime> runtime, std::shared_ptr<Collectives> library,
                                   std::vector<Member> members, CollectiveRunnerOptions options)
    : members_(std::move(members)),
      loop_(std::make_unique<Loop>(std::move(runtime), std::move(library), members_, options)) {
  for (const Member& member : members_) computes_.push_back(&member.device->compute());
}

CollectiveRunner::~CollectiveRunner() { stop(); }

std::optional<size_t> CollectiveRunner::member_of(const Compute* compute) const {
  const auto at = std::ranges::find(computes_, compute);
  if (at == computes_.end()) return {};
  return static_cast<size_t>(at - computes_.begin());
}

bool CollectiveRunner::can_join(std::span<const Compute* const> computes) const {
  std::set<int> cards;
  for (const Compute* compute : computes) {
    const auto member = member_of(compute);
    if (!compute || !member || !cards.insert(members_[*member].device->card()).second) return false;
  }
  return cards.size() > 1;
}

void CollectiveRunner::run(Task task) { loop_->add(std::move(task)); }
void CollectiveRunner::stop() { loop_->stop(); }

}  // namespace troupe::gpu
