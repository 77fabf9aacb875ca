// SPDX-License-Identifier: Apache-2.0
// Earliest finish times, device by device.
#include "plan/list_placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe {

// -- timelines --------------------------------------------------------------------------------------------------------

double ListPlacement::Timeline::begin(double ready, double ns) const {
  if (ready >= until) return ready;
  for (uint32_t i = 0; i < count; ++i)
    if (const double from = std::max(ready, gaps[i].from); from + ns <= gaps[i].to) return from;
  return until;
}

void ListPlacement::Timeline::take(double begin, double ns) {
  const double end = begin + ns;
  const auto drop = [this](uint32_t i) {
    std::copy(gaps + i + 1, gaps + count, gaps + i);
    --count;
  };
  const auto add = [&](uint32_t i, Gap gap) {
    if (!(gap.from < gap.to)) return;
    if (count == kGaps) {
      drop(0);  // the oldest
      if (i > 0) --i;
    }
    std::copy_backward(gaps + i, gaps + count, gaps + count + 1);
    gaps[i] = gap;
    ++count;
  };
  if (begin >= until) {
    add(count, {until, begin});
    until = end;
    return;
  }
  for (uint32_t i = 0; i < count; ++i)
    if (gaps[i].from <= begin && end <= gaps[i].to) {
      const Gap gap = gaps[i];
      drop(i);
      add(i, {end, gap.to});
      add(i, {gap.from, begin});
      return;
    }
}

// -- the pass ---------------------------------------------------------------------------------------------------------

ListPlacement::ListPlacement(const TaskGraph& tasks, const Cluster& cluster, AllowedDevices allowed)
    : tasks_(tasks), cluster_(cluster), allowed_(allowed) {
  resident_.resize(tasks.groups(), 0);
  source_.resize(tasks.size());
  for (uint32_t t = 0; t < tasks.size(); ++t) {
    resident_[tasks.task(t).group] += tasks.task(t).resident;
    source_[t] = tasks.task(t).light &&
                 std::ranges::all_of(tasks.inputs(t), [&](uint32_t v) { return source_[tasks.value(v).producer]; });
  }
  sort_by_rank();
}

void ListPlacement::sort_by_rank() {
  const uint32_t devices = cluster_.size();
  std::vector<double> share(1 + *std::ranges::max_element(cluster_.class_of), 0);  // of devices, by class
  for (const uint32_t c : cluster_.class_of) share[c] += 1.0 / devices;
  const double away = static_cast<double>(devices - 1) / devices;
  std::vector<double> ranks(tasks_.size());
  for (uint32_t t = tasks_.size(); t-- > 0;) {
    double after = 0;
    const LinkRates link = cluster_.link_from(tasks_.task(t));
    for (uint32_t v = tasks_.first_value(t); v < tasks_.end_value(t); ++v) {
      const double transfer = away * link.time_ns(tasks_.value(v).bytes);
      for (const uint32_t reader : tasks_.readers(v))
        after = std::max(after, ranks[reader] + (tasks_.task(reader).group == tasks_.task(t).group ? 0 : transfer));
    }
    ranks[t] = after;
    for (size_t c = 0; c < share.size(); ++c) ranks[t] += share[c] * tasks_.task(t).ns[c];
  }
  order_.resize(tasks_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  std::ranges::sort(order_, [&](uint32_t a, uint32_t b) { return ranks[a] != ranks[b] ? ranks[a] > ranks[b] : a < b; });
}

void ListPlacement::run(const Settings& settings, Assignment& out) {
  settings_ = settings;
  const uint32_t devices = cluster_.size();
  out.device_of.assign(tasks_.size(), kNone);
  out.chosen.assign(tasks_.groups(), Chosen::kSoonest);
  out.decided_by.assign(tasks_.groups(), kNone);
  group_device_.assign(tasks_.groups(), kNone);
  finish_.assign(tasks_.size(), 0);
  placed_.assign(tasks_.size(), false);
  marked_.assign(tasks_.size(), false);
  timelines_.assign(devices, {});
  ports_.assign(devices, {});
  first_copy_.assign(tasks_.num_values(), kNone);
  copies_.clear();
  live_.assign(devices, 0);
  unread_.resize(tasks_.num_values());
  for (uint32_t v = 0; v < tasks_.num_values(); ++v)
    unread_[v] = static_cast<uint32_t>(tasks_.readers(v).size()) + (tasks_.value(v).kept ? 1 : 0);
  ready_.resize(devices);
  receives_.resize(devices);
  moved_.resize(devices);
  for (uint32_t t = 0; t < tasks_.size(); ++t)
    if (const uint32_t g = tasks_.task(t).group; group_device_[g] == kNone && allowed_[g].size() == 1)
      give(g, allowed_[g][0], Chosen::kOnly, out);
  for (const uint32_t t : order_)
    if (!placed_[t] && !(source_[t] && group_device_[tasks_.task(t).group] == kNone)) place(t, out);
  // Sources that nobody reads.
  for (const uint32_t t : order_)
    if (!placed_[t]) place(t, out);
}

const ListPlacement::Copy* ListPlacement::copy(uint32_t value, uint32_t device) const {
  for (uint32_t at = first_copy_[value]; at != kNone; at = copies_[at].next)
    if (copies_[at].device == device) return &copies_[at];
  return nullptr;
}

void ListPlacement::find_ready(uint32_t task) {
  inputs_.clear();
  for (const uint32_t v : tasks_.inputs(task))
    if (placed_[tasks_.value(v).producer]) inputs_.push_back(v);
  const auto there = [&](uint32_t v) { return finish_[tasks_.value(v).producer]; };
  if (inputs_.size() > 1)
    std::ranges::sort(inputs_,
                      [&](uint32_t a, uint32_t b) { return there(a) != there(b) ? there(a) < there(b) : a < b; });
  const uint32_t devices = cluster_.size();
  for (uint32_t d = 0; d < devices; ++d) {
    ready_[d] = moved_[d] = 0;
    receives_[d] = ports_[d].receives_until;
  }
  for (const uint32_t v : inputs_) {
    const TaskGraph::Task& producer = tasks_.task(tasks_.value(v).producer);
    const uint32_t from = group_device_[producer.group];
    const double bytes = tasks_.value(v).bytes, leaves = std::max(there(v), ports_[from].sends_until);
    const double own_ready = ready_[from], own_receives = receives_[from], own_moved = moved_[from];
    const auto keep = [&](uint32_t d, double ready, double receives, double moved, double at) {
      ready_[d] = std::max(ready, at);
      receives_[d] = receives;
      moved_[d] = moved;
    };
    struct Kept {
      uint32_t device;
      double ready, receives, moved, at;
    };
    std::vector<Kept> kept;
    for (uint32_t at = first_copy_[v]; at != kNone; at = copies_[at].next) {
      const uint32_t d = copies_[at].device;
      kept.push_back({d, ready_[d], receives_[d], moved_[d], copies_[at].there});
    }
    for (uint32_t d = 0; d < devices; ++d) {
      const LinkRates link = cluster_.link_from(producer, from, d);
      const double comes = leaves + settings_.caution * link.latency_ns;
      receives_[d] = std::max(comes, receives_[d]) + settings_.caution * bytes / link.bandwidth * 1e9;
      ready_[d] = std::max(ready_[d], receives_[d]);
      moved_[d] += bytes;
    }
    keep(from, own_ready, own_receives, own_moved, there(v));
    for (const Kept& k : kept) keep(k.device, k.ready, k.receives, k.moved, k.at);
  }
}

double ListPlacement::brings(uint32_t task) const {
  if (settings_.memory.empty()) return 0;
  double bytes = 0;
  for (uint32_t v = tasks_.first_value(task); v < tasks_.end_value(task); ++v)
    if (tasks_.value(v).storage == v) bytes += tasks_.value(v).bytes;
  if (group_device_[tasks_.task(task).group] == kNone) bytes += resident_[tasks_.task(task).group];
  for (const uint32_t v : tasks_.inputs(task)) {
    const uint32_t producer = tasks_.value(v).producer;
    if (!placed_[producer] && group_device_[tasks_.task(producer).group] == kNone)
      bytes += resident_[tasks_.task(producer).group];
  }
  return bytes;
}

uint32_t ListPlacement::choose(uint32_t task, const std::vector<uint32_t>& devices) {
  const double more = brings(task);
  uint32_t best = kNone;
  bool best_fits = false;
  double best_finish = 0;
  for (const uint32_t d : devices) {
    const bool fits_here = fits(d, more + (settings_.memory.empty() ? 0 : moved_[d]));
    const double ns = tasks_.task(task).ns[cluster_.class_of[d]];
    const double finish = timelines_[d].begin(ready_[d], ns) + ns;
    const auto better = [&] {
      if (best == kNone || fits_here != best_fits) return best == kNone || fits_here;
      if (!fits_here) return limit(d) - live_[d] > limit(best) - live_[best];
      if (finish != best_finish) return finish < best_finish;
      return moved_[d] < moved_[best];
    };
    if (!better()) continue;
    best = d;
    best_fits = fits_here;
    best_finish = finish;
  }
  return best;
}

void ListPlacement::give(uint32_t group, uint32_t device, Chosen why, Assignment& out) {
  group_device_[group] = device;
  out.chosen[group] = why;
  live_[device] += resident_[group];
}

void ListPlacement::pull(uint32_t reader, uint32_t device, Assignment& out) {
  pulled_.clear();
  const auto add = [&](uint32_t task) {
    for (const uint32_t v : tasks_.inputs(task)) {
      const uint32_t producer = tasks_.value(v).producer;
      if (placed_[producer] || marked_[producer]) continue;
      marked_[producer] = true;
      pulled_.push_back(producer);
    }
  };
  add(reader);
  for (size_t i = 0; i < pulled_.size(); ++i) {
    const uint32_t task = pulled_[i];
    if (const uint32_t group = tasks_.task(task).group; group_device_[group] == kNone) {
      const auto& allowed = allowed_[group];
      const bool may = std::ranges::find(allowed, device) != allowed.end();
      out.decided_by[group] = reader;
      give(group, may ? device : allowed[0], Chosen::kWithReader, out);
    }
    add(task);
  }
  std::ranges::sort(pulled_);  // what they read first
  for (const uint32_t task : pulled_) settle(task, group_device_[tasks_.task(task).group], out);
}

void ListPlacement::settle(uint32_t task, uint32_t device, Assignment& out) {
  double ready = 0;
  inputs_.assign(tasks_.inputs(task).begin(), tasks_.inputs(task).end());
  std::ranges::sort(inputs_, {}, [&](uint32_t v) { return std::pair(finish_[tasks_.value(v).producer], v); });
  for (const uint32_t v : inputs_) {
    const uint32_t producer = tasks_.value(v).producer, from = out.device_of[producer];
    double there = finish_[producer];
    if (from != device) {
      if (const Copy* known = copy(v, device)) {
        there = known->there;
      } else {
        const LinkRates link = cluster_.link_from(tasks_.task(producer), from, device);
        there = LinkPorts::transfer(ports_[from], ports_[device], link, tasks_.value(v).bytes, there);
        copies_.push_back({device, there, first_copy_[v]});
        first_copy_[v] = static_cast<uint32_t>(copies_.size()) - 1;
        live_[device] += tasks_.value(v).bytes;
      }
    }
    ready = std::max(ready, there);
    if (--unread_[v] == 0) {
      if (tasks_.value(v).storage == v) live_[from] -= tasks_.value(v).bytes;
      for (uint32_t at = first_copy_[v]; at != kNone; at = copies_[at].next)
        live_[copies_[at].device] -= tasks_.value(v).bytes;
    }
  }
  // Sources begin long before they are needed; here they are seen when they are.
  const double ns = source_[task] ? 0 : tasks_.task(task).ns[cluster_.class_of[device]];
  const double begin = source_[task] ? ready : timelines_[device].begin(ready, ns);
  if (ns > 0) timelines_[device].take(begin, ns);
  finish_[task] = begin + ns;
  placed_[task] = true;
  out.device_of[task] = device;
  for (uint32_t v = tasks_.first_value(task); v < tasks_.end_value(task); ++v)
    if (tasks_.value(v).storage == v && unread_[v] > 0) live_[device] += tasks_.value(v).bytes;
}

void ListPlacement::place(uint32_t task, Assignment& out) {
  const uint32_t group = tasks_.task(task).group;
  if (group_device_[group] == kNone) {
    find_ready(task);
    out.decided_by[group] = task;
    give(group, choose(task, allowed_[group]), Chosen::kSoonest, out);
  }
  const uint32_t device = group_device_[group];
  pull(task, device, out);
  settle(task, device, out);
}

}  // namespace troupe
