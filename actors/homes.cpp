// SPDX-License-Identifier: Apache-2.0
#include "actors/homes.h"

#include <algorithm>
#include <type_traits>

#include "actors/scheduler.h"

namespace troupe {
namespace {

template <class Worker> class Door final : public caf::execution_unit {
 public:
  Door(caf::actor_system& system, Worker& worker) : execution_unit(&system), worker_(worker) {}
  void exec_later(caf::resumable* actor) override { worker_.external_enqueue(actor); }

 private:
  Worker& worker_;
};

}  // namespace

Homes::Homes(caf::actor_system& system, uint32_t devices) : devices_(devices) {
  const auto add_workers = [&](auto* scheduler) {
    for (size_t i = 0; scheduler && i < scheduler->num_workers(); ++i) {
      auto& worker = *scheduler->worker_by_id(i);
      homes_.push_back({&worker, std::make_unique<Door<std::remove_reference_t<decltype(worker)>>>(system, worker),
                        worker.get_thread().get_id()});
    }
  };
  add_workers(dynamic_cast<Scheduler*>(&system.scheduler()));
  // An actor system of the program around the engine.
  add_workers(dynamic_cast<caf::scheduler::coordinator<caf::policy::work_stealing>*>(&system.scheduler()));
}

caf::execution_unit* Homes::of(uint32_t device, caf::execution_unit* from) const {
  if (homes_.empty() || device >= devices_) return from;
  const Home& home = homes_[device % homes_.size()];
  return home.worker == from ? from : home.door.get();
}

bool Homes::on_worker() const {
  const auto here = std::this_thread::get_id();
  return std::ranges::any_of(homes_, [here](const Home& home) { return home.thread == here; });
}

}  // namespace troupe
