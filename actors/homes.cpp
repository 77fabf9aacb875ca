// SPDX-License-Identifier: Apache-2.0
#include "actors/homes.h"

#include <caf/policy/work_stealing.hpp>
#include <caf/scheduler/coordinator.hpp>

namespace troupe {
namespace {

using Scheduler = caf::scheduler::coordinator<caf::policy::work_stealing>;

class Door final : public caf::execution_unit {
 public:
  Door(caf::actor_system& system, Scheduler::worker_type& worker) : execution_unit(&system), worker_(worker) {}
  void exec_later(caf::resumable* actor) override { worker_.external_enqueue(actor); }

 private:
  Scheduler::worker_type& worker_;
};

}  // namespace

Homes::Homes(caf::actor_system& system, uint32_t devices) : devices_(devices) {
  auto* scheduler = dynamic_cast<Scheduler*>(&system.scheduler());
  for (size_t i = 0; scheduler && i < scheduler->num_workers(); ++i) {
    Scheduler::worker_type& worker = *scheduler->worker_by_id(i);
    homes_.push_back({&worker, std::make_unique<Door>(system, worker)});
  }
}

caf::execution_unit* Homes::of(uint32_t device, caf::execution_unit* from) const {
  if (homes_.empty() || device >= devices_) return from;
  const Home& home = homes_[device % homes_.size()];
  return home.worker == from ? from : home.door.get();
}

}  // namespace troupe
