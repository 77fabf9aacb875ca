// SPDX-License-Identifier: Apache-2.0
#include "actors/device_actor.h"

#include <chrono>

#include "actors/blocking_jobs.h"
#include "actors/lender.h"
#include "base/engine_thread.h"

namespace troupe {
namespace {
/// How long a device keeps its thread before other actors get a turn, and one that is lent.
constexpr int64_t kQuantumNs = 2'000'000, kLentQuantumNs = 50'000;
}  // namespace

DeviceActor::DeviceActor(caf::actor_config& config, uint32_t index, Device& device, Executor::Counters& counters,
                         std::shared_ptr<Directory> directory)
    : caf::event_based_actor(config), index_(index), clock_(home_system().clock()), directory_(std::move(directory)),
      executor_(index, device, *this, counters), requests_(*this, index, directory_) {}

caf::behavior DeviceActor::make_behavior() {
  return {
      [this](RunStep& m) {
        executor_.start(std::move(m.call));
        run();
      },
      [this](TensorsReady& m) {
        executor_.tensors_ready(std::move(*m.tensors));
        run();
      },
      [this](ResourceAnswers& m) {
        executor_.answered(std::move(*m.answers));
        run();
      },
      [this](const AbortStep& m) {
        executor_.abort(m.call);
        run();
      },
      [this](GoOn) {
        will_go_on_ = false;
        run();
      },
      [this](MaySend) {
        executor_.may_send();
        run();
      },
  };
}

void DeviceActor::on_exit() {
  requests_.clear();
  directory_.reset();
}

void DeviceActor::run() {
  if (!mailbox().empty() && executor_.may_wait(++passed_)) {  // a message behind this one runs it
    if (!std::exchange(will_go_on_, true)) send(this, GoOn{});
    return;
  }
  passed_ = 0;
  const Lender* const lender = Lender::of(context());
  const EngineThread mark(directory_.get(), lender != nullptr);
  const bool hurries = lender && lender->time() == Lender::Time::kBrief;
  const bool more = hurries ? executor_.run(kLentQuantumNs, Executor::Turn::kLent) : executor_.run(kQuantumNs);
  if (more && !std::exchange(will_go_on_, true)) send(this, GoOn{});
}

void DeviceActor::send_tensors(uint32_t device, std::vector<ReadyTensor> tensors) {
  directory_->tell_device(device, TensorsReady{device, std::make_shared<std::vector<ReadyTensor>>(std::move(tensors))},
                          context());
}

Status DeviceActor::use_resource(const StepCall& of, const ResourceRef& handle, ResourceUse&& use) {
  return requests_.add(of, handle, std::move(use));
}

void DeviceActor::run_blocking(BlockingUse use) { directory_->blocking->run_kernel(std::move(use)); }

void DeviceActor::flush_uses() { requests_.flush(); }

void DeviceActor::cancel_uses(int64_t step) { requests_.cancel(step); }

void DeviceActor::abort_elsewhere(const StepRef& call) {
  for (const PartitionPlan& partition : call->plan->partitions)
    if (partition.device != index_)
      directory_->tell_device(partition.device, AbortStep{partition.device, call}, context());
}

int64_t DeviceActor::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock_.now().time_since_epoch()).count();
}

}  // namespace troupe
