// SPDX-License-Identifier: Apache-2.0
// A discrete-event simulation: ends of tasks and arrivals of values, in the order of their times.
#include "plan/simulated_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/link_ports.h"

namespace troupe {

// -- the graph --------------------------------------------------------------------------------------------------------

uint32_t TaskGraph::add_task(Task task) {
  groups_ = std::max(groups_, task.group + 1);
  first_input_.push_back(static_cast<uint32_t>(inputs_.size()));
  first_value_.push_back(static_cast<uint32_t>(values_.size()));
  tasks_.push_back(std::move(task));
  return size() - 1;
}

uint32_t TaskGraph::add_value(double bytes) { return add_value(bytes, static_cast<uint32_t>(values_.size())); }

uint32_t TaskGraph::add_value(double bytes, uint32_t storage) {
  if (storage != kNone && storage < values_.size()) storage = values_[storage].storage;
  values_.push_back({size() - 1, bytes, storage, false, 0});
  last_reader_.push_back(kNone);
  return static_cast<uint32_t>(values_.size()) - 1;
}

void TaskGraph::add_input(uint32_t value) {
  if (std::exchange(last_reader_[value], size() - 1) != size() - 1) inputs_.push_back(value);
}

void TaskGraph::close() {
  first_input_.push_back(static_cast<uint32_t>(inputs_.size()));
  first_value_.push_back(static_cast<uint32_t>(values_.size()));
  values_.emplace_back();
  closed_ = true;
  std::vector<uint32_t> next(values_.size(), 0);
  for (const uint32_t v : inputs_) ++next[v];
  uint32_t sum = 0;
  for (size_t v = 0; v < values_.size(); ++v) {
    values_[v].first_reader = sum;
    sum += std::exchange(next[v], sum);
  }
  readers_.resize(inputs_.size());
  for (uint32_t t = 0; t < size(); ++t)
    for (const uint32_t v : inputs(t)) readers_[next[v]++] = t;
}

bool Cluster::limited() const {
  return std::ranges::any_of(memory, [](double m) { return m > 0; });
}

std::vector<uint32_t> Schedule::critical_path() const {
  std::vector<uint32_t> out;
  if (finish_ns.empty()) return out;
  // Of those that end at the same time the last, so that what takes no time is on it.
  uint32_t at = 0;
  for (uint32_t t = 0; t < finish_ns.size(); ++t)
    if (finish_ns[t] >= finish_ns[at]) at = t;
  for (; at != TaskGraph::kNone; at = cause[at]) out.push_back(at);
  std::ranges::reverse(out);
  return out;
}

// -- the simulation ---------------------------------------------------------------------------------------------------

Simulator::Simulator(const TaskGraph& tasks, const Cluster& cluster) : tasks_(tasks), cluster_(cluster) {
  const size_t n = tasks.size(), devices = cluster.size();
  ranks_.resize(n);
  order_.resize(n);
  position_.resize(n);
  pending_.resize(n);
  schedule_.start_ns.resize(n);
  schedule_.finish_ns.resize(n);
  schedule_.cause.resize(n);
  ready_.resize(devices);
  is_touched_.resize(devices, false);
}

void Simulator::rank(std::span<const uint32_t> device_of) {
  for (uint32_t t = tasks_.size(); t-- > 0;) {
    double after = 0;
    const TaskGraph::Task& task = tasks_.task(t);
    for (uint32_t v = tasks_.first_value(t); v < tasks_.end_value(t); ++v) {
      const double bytes = tasks_.value(v).bytes;
      for (const uint32_t reader : tasks_.readers(v)) {
        const uint32_t from = device_of[t], to = device_of[reader];
        after = std::max(after, ranks_[reader] + (to == from ? 0 : cluster_.link_from(task, from, to).time_ns(bytes)));
      }
    }
    ranks_[t] = after + tasks_.task(t).ns[cluster_.class_of[device_of[t]]];
  }
  std::iota(order_.begin(), order_.end(), 0u);
  std::ranges::sort(order_,
                    [&](uint32_t a, uint32_t b) { return ranks_[a] != ranks_[b] ? ranks_[a] > ranks_[b] : a < b; });
  for (uint32_t i = 0; i < order_.size(); ++i) position_[order_[i]] = i;
}

namespace {
/// The smallest time, then serial, is on top.
constexpr auto later = [](const auto& a, const auto& b) { return a.ns != b.ns ? a.ns > b.ns : a.serial > b.serial; };
}  // namespace

void Simulator::push(double ns, uint32_t what, uint32_t device) {
  events_.push_back({ns, serial_++, what, device});
  std::push_heap(events_.begin(), events_.end(), later);
}

const Schedule& Simulator::run(std::span<const uint32_t> device_of, Detail detail) {
  TROUPE_CHECK(device_of.size() == tasks_.size());
  detail_ = detail;
  memory_ = detail == Detail::kEverything || (detail == Detail::kMemory && cluster_.limited());
  const uint32_t devices = cluster_.size();
  rank(device_of);
  schedule_.step_ns = schedule_.excess_bytes = 0;
  schedule_.busy_ns.assign(devices, 0);
  schedule_.peak_bytes.assign(devices, 0);
  schedule_.transfers.clear();
  running_.assign(devices, kNone);
  ended_.assign(devices, kNone);
  ports_.assign(devices, {});
  told_.assign(devices, kNone);
  held_.assign(devices, 0);
  serial_ = 0;
  if (memory_) count_holdings(device_of);

  for (uint32_t t = 0; t < tasks_.size(); ++t) {
    pending_[t] = static_cast<uint32_t>(tasks_.inputs(t).size());
    if (pending_[t] == 0) ready(t, device_of[t], kNone);
  }
  dispatch(0);
  while (!events_.empty()) {
    const double now = events_.front().ns;
    schedule_.step_ns = now;
    // All that happens at one time comes before what it lets begin.
    while (!events_.empty() && events_.front().ns == now) {
      std::pop_heap(events_.begin(), events_.end(), later);
      const Event event = events_.back();
      events_.pop_back();
      if (event.what >= kArrival) arrive(event.what - kArrival, event.device, device_of);
      else end(event.what, now, device_of);
    }
    dispatch(now);
  }
  for (uint32_t d = 0; d < devices; ++d)
    if (cluster_.memory[d] > 0) schedule_.excess_bytes += std::max(0.0, schedule_.peak_bytes[d] - cluster_.memory[d]);
  return schedule_;
}

void Simulator::ready(uint32_t task, uint32_t device, uint32_t cause) {
  schedule_.cause[task] = cause;
  ready_[device].push_back(position_[task]);
  std::push_heap(ready_[device].begin(), ready_[device].end(), std::greater<>());
  if (!is_touched_[device]) {
    is_touched_[device] = true;
    touched_.push_back(device);
  }
}

void Simulator::dispatch(double now) {
  for (const uint32_t device : touched_) {
    is_touched_[device] = false;
    if (running_[device] != kNone || ready_[device].empty()) continue;
    std::pop_heap(ready_[device].begin(), ready_[device].end(), std::greater<>());
    const uint32_t task = order_[ready_[device].back()];
    ready_[device].pop_back();
    running_[device] = task;
    const double ns = tasks_.task(task).ns[cluster_.class_of[device]];
    schedule_.start_ns[task] = now;
    schedule_.finish_ns[task] = now + ns;
    schedule_.busy_ns[device] += ns;
    // It was ready before if the device has just ended something that did not make it so.
    if (const uint32_t before = ended_[device]; before != kNone && schedule_.finish_ns[before] == now) {
      const uint32_t cause = schedule_.cause[task];
      if (cause == kNone || schedule_.finish_ns[cause] < now) schedule_.cause[task] = before;
    }
    if (memory_)
      for (uint32_t v = tasks_.first_value(task); v < tasks_.end_value(task); ++v) hold(v, device);
    push(now + ns, task, device);
  }
  touched_.clear();
}

void Simulator::end(uint32_t task, double now, std::span<const uint32_t> device_of) {
  const uint32_t device = device_of[task];
  running_[device] = kNone;
  ended_[device] = task;
  if (!is_touched_[device]) {
    is_touched_[device] = true;
    touched_.push_back(device);
  }
  for (uint32_t v = tasks_.first_value(task); v < tasks_.end_value(task); ++v) {
    tell(v, device, device_of);
    for (const uint32_t reader : tasks_.readers(v)) {
      const uint32_t to = device_of[reader];
      if (to == device || told_[to] == v) continue;
      told_[to] = v;
      const double there = LinkPorts::transfer(
          ports_[device], ports_[to], cluster_.link_from(tasks_.task(task), device, to), tasks_.value(v).bytes, now);
      if (detail_ == Detail::kEverything) schedule_.transfers.push_back({v, device, to, now, there});
      if (memory_) hold(v, to);
      push(there, kArrival + v, to);
    }
  }
  if (!memory_) return;
  for (const uint32_t v : tasks_.inputs(task)) release(v, device);
  for (uint32_t v = tasks_.first_value(task); v < tasks_.end_value(task); ++v) release(v, device);  // made
}

void Simulator::arrive(uint32_t value, uint32_t device, std::span<const uint32_t> device_of) {
  if (memory_) {
    release(value, device);                                   // came
    release(value, device_of[tasks_.value(value).producer]);  // was sent
  }
  tell(value, device, device_of);
}

void Simulator::tell(uint32_t value, uint32_t device, std::span<const uint32_t> device_of) {
  for (const uint32_t reader : tasks_.readers(value))
    if (device_of[reader] == device && --pending_[reader] == 0) ready(reader, device, tasks_.value(value).producer);
}

// -- memory -----------------------------------------------------------------------------------------------------------
// What a value's storage holds on a device has a use for its making or coming there, for each reader there, for each
// transfer from there, and one for ever if it is kept.

Simulator::Holding* Simulator::holding(uint32_t value, uint32_t device) {
  const uint32_t storage = tasks_.value(value).storage;
  if (storage == kNone) return nullptr;
  for (uint32_t at = first_holding_[storage]; at != kNone; at = holdings_[at].next)
    if (holdings_[at].device == device) return &holdings_[at];
  return nullptr;
}

void Simulator::add_use(uint32_t value, uint32_t device) {
  const uint32_t storage = tasks_.value(value).storage;
  if (storage == kNone) return;
  if (Holding* there = holding(value, device)) {
    ++there->uses;
    return;
  }
  holdings_.push_back({device, 1, first_holding_[storage]});
  first_holding_[storage] = static_cast<uint32_t>(holdings_.size()) - 1;
}

void Simulator::count_holdings(std::span<const uint32_t> device_of) {
  holdings_.clear();
  first_holding_.assign(tasks_.num_values(), kNone);
  for (uint32_t t = 0; t < tasks_.size(); ++t) {
    const uint32_t device = device_of[t];
    held_[device] += tasks_.task(t).resident;
    for (uint32_t v = tasks_.first_value(t); v < tasks_.end_value(t); ++v) {
      add_use(v, device);
      if (tasks_.value(v).kept) add_use(v, device);
      for (const uint32_t reader : tasks_.readers(v)) {
        const uint32_t to = device_of[reader];
        add_use(v, to);
        if (to == device || told_[to] == v) continue;
        told_[to] = v;
        add_use(v, to);
        add_use(v, device);
      }
    }
  }
  told_.assign(told_.size(), kNone);
  schedule_.peak_bytes = held_;
}

void Simulator::hold(uint32_t value, uint32_t device) {
  Holding* there = holding(value, device);
  if (!there || there->uses >= kArrival) return;  // none, or it is there already
  there->uses += kArrival;
  held_[device] += tasks_.value(tasks_.value(value).storage).bytes;
  schedule_.peak_bytes[device] = std::max(schedule_.peak_bytes[device], held_[device]);
}

void Simulator::release(uint32_t value, uint32_t device) {
  Holding* there = holding(value, device);
  if (there && --there->uses == kArrival) held_[device] -= tasks_.value(tasks_.value(value).storage).bytes;
}

}  // namespace troupe
