// SPDX-License-Identifier: Apache-2.0
#include "actors/sim_actor.h"

#include <algorithm>
#include <cmath>

#include "actors/blocking_jobs.h"
#include "base/engine_thread.h"
#include "devices/sim_device.h"
#include "plan/op_costs.h"

namespace troupe {
namespace {

/// Real time that the devices keep their thread for before other actors get a turn is bounded by nodes; see
/// Executor::run. Virtual time does not pass while a device fires nodes that take none.
constexpr int64_t kNoTimePasses = 0;
}  // namespace

/// One simulated device.
class SimActor::Simulated final : public Outbox {
 public:
  Simulated(SimActor& sim, uint32_t index, const DeviceInfo& info, Executor::Counters& counters)
      : sim_(sim), index_(index), ports_(), device_(info, model()), executor(index, device_, *this, counters),
        requests(sim, index, sim.directory_, &sim.unsettled_) {}

  void send_tensors(uint32_t to, std::vector<ReadyTensor> tensors) override {
    if (!sim_.simulates(to)) {
      sim_.directory_->tell_device(to, TensorsReady{to, std::make_shared<std::vector<ReadyTensor>>(std::move(tensors))},
                                   sim_.context());
      return;
    }
    Simulated& other = sim_.device(to);
    for (ReadyTensor& t : tensors) {
      const double bytes = t.value.defined() ? static_cast<double>(t.value.bytes()) : 0;
      const auto now = static_cast<double>(now_ns());
      const double there = LinkPorts::transfer(ports_, other.ports_, sim_.link_, bytes, now);
      std::vector<ReadyTensor> one;
      one.push_back(std::move(t));
      sim_.at(std::llround(std::min(there, SimDevice::kEndOfTime)), other, std::move(one));
    }
  }
  Status use_resource(const StepCall& of, const ResourceRef& handle, ResourceUse&& use) override {
    return requests.add(of, handle, std::move(use));
  }
  void run_blocking(BlockingUse use) override { sim_.directory_->blocking->run_kernel(std::move(use)); }
  void flush_uses() override { requests.flush(); }
  void cancel_uses(int64_t step) override { requests.cancel(step); }
  void abort_elsewhere(const StepRef& call) override {
    for (const PartitionPlan& partition : call->plan->partitions)
      if (partition.device != index_)
        sim_.directory_->tell_device(partition.device, AbortStep{partition.device, call}, sim_.context());
  }
  int64_t now_ns() override { return sim_.clock_ns_.load(std::memory_order_relaxed); }

 private:
  SimDevice::Model model() {
    return {.compute = sim_.compute_,
            .cost_ns = [this](const Node& node, const KernelContext& context,
                              std::span<const Tensor> outputs) { return time_ns(node, context, outputs); },
            .takes_part = [](const Node& node) { return node.op().does_update_variable(); },
            .now_ns = [this] { return now_ns(); },
            .drop_work = [this] { drop_work(); }};
  }
  void drop_work() {
    std::erase_if(sim_.events_, [&](const Event& e) { return e.device == this && e.tensors.empty(); });
    std::make_heap(sim_.events_.begin(), sim_.events_.end());
  }

  double time_ns(const Node& node, const KernelContext& context, std::span<const Tensor> outputs) {
    if (sim_.costs_)
      if (const MeasuredCost* measured = sim_.costs_->find(node.name(), "sim")) return measured->ns;
    in_.clear();
    out_.clear();
    for (int i = 0; i < context.num_inputs(); ++i) in_.emplace_back(context.input(i).shape());
    for (const Tensor& t : outputs) out_.emplace_back(t.shape());
    return cost_of(node, {in_, out_}).time_ns(device_.info.rates);
  }

  SimActor& sim_;
  const uint32_t index_;
  LinkPorts ports_;
  std::vector<PartialShape> in_, out_;  // of the node that is looked at
  SimDevice device_;

 public:
  Executor executor;
  ResourceRequests requests;
  bool touched = false;
};

SimActor::SimActor(caf::actor_config& config, uint32_t first, const std::vector<DeviceInfo>& devices,
                   std::deque<Executor::Counters>& counters, const SimOptions& options, std::atomic<int64_t>& clock_ns,
                   std::shared_ptr<Directory> directory)
    : caf::event_based_actor(config), first_(first), link_(options.link), compute_(options.compute),
      costs_(options.costs), clock_ns_(clock_ns), directory_(std::move(directory)) {
  for (uint32_t i = first; i < devices.size(); ++i)
    devices_.push_back(std::make_unique<Simulated>(*this, i, devices[i], counters[i]));
}

SimActor::~SimActor() = default;

caf::behavior SimActor::make_behavior() {
  return {
      [this](RunStep& m) {
        for (const PartitionPlan& partition : m.call->plan->partitions) {
          if (!simulates(partition.device)) continue;
          device(partition.device).executor.start(m.call);
          touch(device(partition.device));
        }
        settle();
      },
      [this](TensorsReady& m) {
        device(m.device).executor.tensors_ready(std::move(*m.tensors));
        touch(device(m.device));
        settle();
      },
      [this](ResourceAnswers& m) {
        Simulated& asker = device(static_cast<uint32_t>(m.answers->front().tag.requester));
        asker.executor.answered(std::move(*m.answers));
        touch(asker);
        settle();
      },
      [this](const AbortStep& m) {
        device(m.device).executor.abort(m.call);
        touch(device(m.device));
        settle();
      },
      [this](Settled) {
        --unsettled_;
        settle();
      },
      [this](HoldClock m) {
        holds_ += m.change;
        settle();
      },
      [this](const MaySend& m) {
        device(m.device).executor.may_send();
        touch(device(m.device));
        settle();
      },
      [this](GoOn) {
        will_go_on_ = false;
        if (holds_ == 0 && unsettled_ == 0 && touched_.empty() && !events_.empty()) advance();
        settle();
      },
  };
}

void SimActor::on_exit() {
  for (auto& device : devices_) device->requests.clear();
  directory_.reset();
}

SimActor::Simulated& SimActor::device(uint32_t index) { return *devices_[index - first_]; }

void SimActor::touch(Simulated& device) {
  if (!std::exchange(device.touched, true)) touched_.push_back(&device);
}

void SimActor::at(int64_t ns, Simulated& device, std::vector<ReadyTensor> tensors) {
  events_.push_back({ns, serial_++, &device, std::move(tensors)});
  std::push_heap(events_.begin(), events_.end());
}

void SimActor::settle() {
  const EngineThread mark(directory_.get());
  const size_t waiting = touched_.size();
  for (size_t i = 0; i < waiting; ++i) {
    Simulated& device = *touched_[i];
    device.touched = false;
    const bool was_at_work = device.executor.at_work();
    if (device.executor.run(kNoTimePasses)) touch(device);  // it has fired much; others get a turn first
    else if (device.executor.at_work() && !was_at_work) at(device.executor.work_until_ns(), device);
  }
  touched_.erase(touched_.begin(), touched_.begin() + static_cast<ptrdiff_t>(waiting));
  const bool may_advance = holds_ == 0 && unsettled_ == 0 && !events_.empty();
  if ((!touched_.empty() || may_advance) && !std::exchange(will_go_on_, true)) send(this, GoOn{});
}

void SimActor::advance() {
  const int64_t now = events_.front().at_ns;
  clock_ns_.store(now, std::memory_order_relaxed);
  while (!events_.empty() && events_.front().at_ns == now) {
    std::pop_heap(events_.begin(), events_.end());
    Event event = std::move(events_.back());
    events_.pop_back();
    if (event.tensors.empty()) event.device->executor.work_ended();
    else event.device->executor.tensors_ready(std::move(event.tensors));
    touch(*event.device);
  }
}

}  // namespace troupe
