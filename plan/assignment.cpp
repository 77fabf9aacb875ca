// SPDX-License-Identifier: Apache-2.0
// Candidates, the best of them, and moves that make it better.
#include "plan/assignment.h"

#include <algorithm>
#include <set>
#include <utility>

#include "plan/list_placement.h"

namespace troupe {
namespace {

/// Searches for the assignment whose simulated step is shortest.
class Search {
 public:
  Search(const TaskGraph& tasks, const Cluster& cluster, AllowedDevices allowed, int64_t effort)
      : tasks_(tasks), cluster_(cluster), allowed_(allowed), simulator_(tasks, cluster),
        left_(effort / std::max<int64_t>(tasks.size(), 1)), members_(tasks.groups()) {
    for (uint32_t t = 0; t < tasks.size(); ++t) members_[tasks.task(t).group].push_back(t);
  }

  Assignment run() {
    if (cluster_.size() > 1) {
      ListPlacement list(tasks_, cluster_, allowed_);
      for (const double caution : {1.0, 2.0, 4.0}) try_list(list, caution);
    }
    for (const uint32_t device : single_devices()) try_together(device);
    if (cluster_.size() > 1) improve();
    best_.schedule = simulator_.run(best_.device_of, Simulator::Detail::kEverything);
    best_.ranks = simulator_.ranks();
    return std::move(best_);
  }

 private:
  struct Move {
    std::vector<uint32_t> groups;
    uint32_t device;
  };

  /// Takes `candidate` if it is the better one.
  bool offer(Assignment& candidate) {
    const Schedule& schedule = *(last_ = &simulator_.run(candidate.device_of));
    --left_;
    if (!best_.device_of.empty() && !schedule.better_than(best_.schedule)) return false;
    candidate.schedule = schedule;
    std::swap(best_, candidate);
    return true;
  }

  /// Where memory is short, what the list believes there is shrinks by what the simulation finds missing.
  void try_list(ListPlacement& list, double caution) {
    constexpr int kTries = 6;
    std::vector<double> memory;
    if (cluster_.limited()) memory = cluster_.memory;
    for (int i = 0; i < kTries; ++i) {
      Assignment candidate;
      list.run({caution, memory}, candidate);
      offer(candidate);
      if (memory.empty() || best_.schedule.excess_bytes == 0) return;
      for (uint32_t d = 0; d < cluster_.size(); ++d)
        if (cluster_.memory[d] > 0 && last_->peak_bytes[d] > cluster_.memory[d])
          memory[d] *= 0.95 * cluster_.memory[d] / last_->peak_bytes[d];
    }
  }

  /// Of each class of devices the one that most groups are bound to.
  std::vector<uint32_t> single_devices() const {
    std::vector<size_t> bound(cluster_.size(), 0);
    for (uint32_t g = 0; g < tasks_.groups(); ++g)
      if (allowed_[g].size() == 1) bound[allowed_[g][0]] += members_[g].size();
    std::vector<uint32_t> out;
    for (uint32_t d = 0; d < cluster_.size(); ++d) {
      const auto same = [&](uint32_t other) {
        return cluster_.class_of[other] == cluster_.class_of[d] && cluster_.memory[other] == cluster_.memory[d];
      };
      const auto at = std::ranges::find_if(out, same);
      if (at == out.end()) out.push_back(d);
      else if (bound[d] > bound[*at]) *at = d;
    }
    return out;
  }

  void try_together(uint32_t device) {
    Assignment candidate;
    candidate.device_of.resize(tasks_.size());
    candidate.chosen.assign(tasks_.groups(), Chosen::kTogether);
    candidate.decided_by.assign(tasks_.groups(), TaskGraph::kNone);
    for (uint32_t g = 0; g < tasks_.groups(); ++g) {
      const bool may = std::ranges::find(allowed_[g], device) != allowed_[g].end();
      if (allowed_[g].size() == 1) candidate.chosen[g] = Chosen::kOnly;
      for (const uint32_t t : members_[g]) candidate.device_of[t] = may ? device : allowed_[g][0];
    }
    offer(candidate);
  }

  uint32_t group_of(uint32_t task) const { return tasks_.task(task).group; }

  void improve() {
    std::set<std::pair<uint32_t, uint32_t>> tried;  // (first group of a move, device), since the last that helped
    while (left_ > 0) {
      bool helped = false;
      for (const Move& move : moves()) {
        if (left_ <= 0) return;
        if (!tried.emplace(move.groups.front() * 2 + (move.groups.size() > 1), move.device).second) continue;
        if ((helped = try_move(move))) break;
      }
      if (!helped) return;
      tried.clear();
    }
  }

  /// Moves of groups on the critical path, in an order that does not begin with the same part of it each time.
  std::vector<Move> moves() {
    const std::vector<uint32_t> path = best_.schedule.critical_path();
    std::vector<Move> out;
    const auto device = [&](size_t i) { return best_.device_of[path[i]]; };
    const auto least_busy =
        static_cast<uint32_t>(std::ranges::min_element(best_.schedule.busy_ns) - best_.schedule.busy_ns.begin());
    std::vector<size_t> seen(tasks_.groups(), SIZE_MAX);  // by group: in which part
    for (size_t begin = 0, end; begin < path.size(); begin = end) {
      for (end = begin + 1; end < path.size() && device(end) == device(begin);) ++end;
      // A part of the path on one device goes where the path comes from or goes to, whole or its end.
      std::vector<uint32_t> groups;
      for (size_t i = begin; i < end; ++i)
        if (std::exchange(seen[group_of(path[i])], begin) != begin) groups.push_back(group_of(path[i]));
      const auto add = [&](std::vector<uint32_t> what, uint32_t to) {
        if (to != device(begin)) out.push_back({std::move(what), to});
      };
      if (begin > 0) {
        add(groups, device(begin - 1));
        add({groups.front()}, device(begin - 1));
      }
      if (end < path.size()) {
        add(groups, device(end));
        add({groups.back()}, device(end));
      }
      for (const uint32_t group : groups) add({group}, least_busy);
    }
    for (size_t i = out.size(); i > 1; --i) {
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      std::swap(out[i - 1], out[(random_ >> 33) % i]);
    }
    return out;
  }

  bool try_move(const Move& move) {
    Assignment candidate;
    candidate.device_of = best_.device_of;
    std::vector<uint32_t> moved;
    const auto take = [&](uint32_t group) {
      if (std::ranges::find(allowed_[group], move.device) == allowed_[group].end()) return false;
      for (const uint32_t t : members_[group]) candidate.device_of[t] = move.device;
      moved.push_back(group);
      return true;
    };
    for (const uint32_t group : move.groups)
      if (!take(group)) return false;
    // What went along with a reader does so again.
    for (const uint32_t group : move.groups)
      for (const uint32_t task : members_[group])
        for (const uint32_t v : tasks_.inputs(task))
          if (const uint32_t source = group_of(tasks_.value(v).producer);
              best_.chosen[source] == Chosen::kWithReader && best_.decided_by[source] == task)
            take(source);
    candidate.chosen = best_.chosen;
    candidate.decided_by = best_.decided_by;
    for (const uint32_t group : move.groups)
      if (candidate.chosen[group] != Chosen::kWithReader) candidate.chosen[group] = Chosen::kMoved;
    return offer(candidate);
  }

  const TaskGraph& tasks_;
  const Cluster& cluster_;
  const AllowedDevices allowed_;
  Simulator simulator_;
  const Schedule* last_ = nullptr;  // that it has run
  Assignment best_;
  int64_t left_;  // runs of the simulator
  std::vector<std::vector<uint32_t>> members_;
  uint64_t random_ = 1;
};

}  // namespace

Assignment assign(const TaskGraph& tasks, const Cluster& cluster, AllowedDevices allowed, int64_t effort) {
  if (tasks.size() == 0) {
    Assignment none;
    none.schedule.busy_ns.resize(cluster.size());
    none.schedule.peak_bytes.resize(cluster.size());
    return none;
  }
  return Search(tasks, cluster, allowed, effort).run();
}

// -- alternatives -----------------------------------------------------------------------------------------------------

Alternatives::Alternatives(const TaskGraph& tasks, const Cluster& cluster, const Assignment& assignment)
    : tasks_(tasks), cluster_(cluster), assignment_(assignment), busy_(cluster.size()) {
  const Schedule& s = assignment.schedule;
  for (uint32_t t = 0; t < tasks.size(); ++t)
    if (s.finish_ns[t] > s.start_ns[t]) busy_[assignment.device_of[t]].emplace_back(s.start_ns[t], s.finish_ns[t]);
  for (auto& intervals : busy_) std::ranges::sort(intervals);
}

/// Intervals between which a gap is looked for; else the end of the device's work counts.
constexpr int kLooked = 256;

std::vector<double> Alternatives::finish_ns(uint32_t task) const {
  const Schedule& s = assignment_.schedule;
  std::vector<double> out(cluster_.size());
  for (uint32_t d = 0; d < cluster_.size(); ++d) {
    if (d == assignment_.device_of[task]) {
      out[d] = s.finish_ns[task];
      continue;
    }
    double begin = 0;
    for (const uint32_t v : tasks_.inputs(task)) {
      const uint32_t producer = tasks_.value(v).producer;
      const bool here = assignment_.device_of[producer] == d;
      const LinkRates link = cluster_.link_from(tasks_.task(producer), assignment_.device_of[producer], d);
      begin = std::max(begin, s.finish_ns[producer] + (here ? 0 : link.time_ns(tasks_.value(v).bytes)));
    }
    const double ns = tasks_.task(task).ns[cluster_.class_of[d]];
    const auto& busy = busy_[d];
    auto at = std::ranges::upper_bound(busy, std::pair(begin, 0.0));
    if (at != busy.begin()) begin = std::max(begin, std::prev(at)->second);
    for (int looked = 0; at != busy.end() && at->first < begin + ns; ++at) {
      begin = std::max(begin, at->second);
      if (++looked == kLooked) {
        begin = busy.back().second;
        break;
      }
    }
    out[d] = begin + ns;
  }
  return out;
}

}  // namespace troupe
