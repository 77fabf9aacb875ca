// SPDX-License-Identifier: Apache-2.0
// The simulated execution of a step (white paper, 3.2.1): tasks on devices, values over links, memory by device.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/link_ports.h"

namespace troupe {

/// What a step does, without names. Tasks are in topological order. Each output of a task is a value, and so is the
/// mere fact that it has ended. Built with add_task, add_value, add_input, keep, and close at the end.
class TaskGraph {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Task {
    std::vector<double> ns;  // by class of devices (see Cluster), of all its firings
    double resident = 0;     // bytes that are on its device before, during and after the step
    uint32_t group = 0;      // tasks of one group are on one device
    bool light = false;      // it hands on what it gets: where it is matters only for what it reads and who reads it
    double firings = 1;      // in each it sends what it has made
  };
  struct Value {
    uint32_t producer = 0;
    double bytes = 0;      // that a transfer moves
    uint32_t storage = 0;  // the value whose memory this one is, as an Identity's is its input's; kNone: none of the
                           // step's, as of a variable's value
    bool kept = false;     // until the end of the step: it is fetched
    uint32_t first_reader = 0;  // into readers(); they end where the next value's begin
  };

  uint32_t add_task(Task task);
  /// A value of the last task added; its memory is its own but where `storage` is given.
  uint32_t add_value(double bytes);
  uint32_t add_value(double bytes, uint32_t storage);
  /// The last task added reads `value`, once however often this is said.
  void add_input(uint32_t value);
  void keep(uint32_t value) { values_[value].kept = true; }
  void close();

  uint32_t size() const { return static_cast<uint32_t>(tasks_.size()); }
  uint32_t num_values() const { return static_cast<uint32_t>(values_.size()) - (closed_ ? 1 : 0); }
  const Task& task(uint32_t t) const { return tasks_[t]; }
  const Value& value(uint32_t v) const { return values_[v]; }
  std::span<const uint32_t> inputs(uint32_t t) const { return row(inputs_, first_input_, t); }
  uint32_t first_value(uint32_t t) const { return first_value_[t]; }
  uint32_t end_value(uint32_t t) const { return first_value_[t + 1]; }
  std::span<const uint32_t> readers(uint32_t v) const {
    return {readers_.data() + values_[v].first_reader, readers_.data() + values_[v + 1].first_reader};
  }
  uint32_t groups() const { return groups_; }

 private:
  static std::span<const uint32_t> row(const std::vector<uint32_t>& all, const std::vector<uint32_t>& first,
                                       uint32_t i) {
    return {all.data() + first[i], all.data() + first[i + 1]};
  }

  std::vector<Task> tasks_;
  std::vector<Value> values_;  // when closed with one more at the end
  std::vector<uint32_t> first_input_, inputs_, first_value_, readers_;
  std::vector<uint32_t> last_reader_;  // by value: the last task that was said to read it
  uint32_t groups_ = 0;
  bool closed_ = false;
};

/// A link as one transfer sees it that stands for all that a task sends in its firings, one after the other. A task
/// that does not run tells so, once.
inline LinkRates of_firings(const LinkRates& link, const TaskGraph::Task& task) {
  const double n = std::max(1.0, task.firings);
  return {link.bandwidth / n, link.latency_ns * n};
}

/// Devices and the links between them.
struct Cluster {
  std::vector<uint32_t> class_of;  // by device: devices of one class take the same time for every task
  std::vector<double> memory;      // by device, bytes; 0: no limit
  Links links;
  LinkRates mean = links.mean();  // of them

  void take(const Links& from) { links = from, mean = from.mean(); }
  uint32_t size() const { return static_cast<uint32_t>(class_of.size()); }
  bool limited() const;
  /// What brings the values of a task from one device to another.
  LinkRates link_from(const TaskGraph::Task& task, uint32_t from, uint32_t to) const {
    return of_firings(links.between(from, to), task);
  }
  /// The same of a mean link, where devices are not chosen yet.
  LinkRates link_from(const TaskGraph::Task& task) const { return of_firings(mean, task); }
};

/// One tensor, or fact, on its way.
struct Transfer {
  uint32_t value = 0, from = 0, to = 0;
  double asked_ns = 0, there_ns = 0;
};

/// How a step runs.
struct Schedule {
  double step_ns = 0;
  std::vector<double> start_ns, finish_ns;  // by task
  std::vector<uint32_t> cause;              // by task: the one whose end let it begin; kNone: nothing held it up
  std::vector<double> busy_ns, peak_bytes;  // by device
  double excess_bytes = 0;                  // over the memory there is, the sum over devices
  std::vector<Transfer> transfers;

  /// Less of what does not fit the memory; if both fit, the shorter.
  bool better_than(const Schedule& other) const {
    return excess_bytes != other.excess_bytes ? excess_bytes < other.excess_bytes : step_ns < other.step_ns;
  }
  /// From the first task to the one that ends last, each the cause of the next.
  std::vector<uint32_t> critical_path() const;
};

/// Plays a step through. Each device carries out one task at a time: of those that are ready the one with the longest
/// way to the end of the step before it. A value goes to each other device that reads it once, as soon as it is there,
/// as LinkPorts says. A task's outputs take memory from its start on; they and what came from elsewhere are held until
/// the last reader on that device has ended. Keeps its memory for the next run. One thread at a time.
class Simulator {
 public:
  /// Both must outlive it.
  Simulator(const TaskGraph& tasks, const Cluster& cluster);

  enum class Detail {
    kTimes,      // no transfers, no memory
    kMemory,     // if any device has a limit, memory too
    kEverything  // all fields
  };
  /// `device_of` by task. Time: n log n in tasks and their edges.
  const Schedule& run(std::span<const uint32_t> device_of, Detail detail = Detail::kMemory);
  /// By task, with the devices of the last run: nanoseconds from its start to the end of the step on the longest way.
  const std::vector<double>& ranks() const { return ranks_; }

 private:
  struct Event {
    double ns;
    uint32_t serial;  // of those at one time the smallest first
    uint32_t what;    // a task, or kArrival + a value
    uint32_t device;
  };
  /// Memory of a value on a device.
  struct Holding {
    uint32_t device, uses, next;
  };
  static constexpr uint32_t kArrival = 1u << 31;
  static constexpr uint32_t kNone = TaskGraph::kNone;

  void rank(std::span<const uint32_t> device_of);
  void push(double ns, uint32_t what, uint32_t device);
  void ready(uint32_t task, uint32_t device, uint32_t cause);
  void dispatch(double now);
  void end(uint32_t task, double now, std::span<const uint32_t> device_of);
  void arrive(uint32_t value, uint32_t device, std::span<const uint32_t> device_of);
  /// Tells the readers on `device` that the value is there.
  void tell(uint32_t value, uint32_t device, std::span<const uint32_t> device_of);
  void count_holdings(std::span<const uint32_t> device_of);
  Holding* holding(uint32_t value, uint32_t device);
  void add_use(uint32_t value, uint32_t device);
  void hold(uint32_t value, uint32_t device);
  void release(uint32_t value, uint32_t device);

  const TaskGraph& tasks_;
  const Cluster& cluster_;
  Schedule schedule_;
  Detail detail_ = Detail::kTimes;
  bool memory_ = false;
  std::vector<double> ranks_;
  std::vector<uint32_t> order_, position_;  // tasks by rank; where each is
  std::vector<uint32_t> pending_;           // by task: inputs not there yet
  std::vector<Event> events_;               // a heap
  uint32_t serial_ = 0;
  std::vector<std::vector<uint32_t>> ready_;  // by device, positions, a heap
  std::vector<uint32_t> running_, ended_;     // by device: at work; the last that was
  std::vector<uint32_t> touched_;             // devices that may begin something
  std::vector<bool> is_touched_;
  std::vector<LinkPorts> ports_;
  std::vector<uint32_t> told_;           // by device: serial of the value last sent there
  std::vector<double> held_;             // by device, bytes
  std::vector<uint32_t> first_holding_;  // by value
  std::vector<Holding> holdings_;
};

}  // namespace troupe
