// SPDX-License-Identifier: Apache-2.0
// Homes: on which worker of CAF's scheduler the actor of a device wakes.
//
// An actor that another wakes waits in the queue of the other's worker until that one has its turn behind it or an idle
// worker looks for work to steal. A device's turn is long and an idle worker looks seldom, so devices that tell one
// another something would take turns on one worker. So each device has a worker of its own, as far as there are enough,
// which is woken at once.
#pragma once
#include <caf/all.hpp>

#include <memory>
#include <thread>
#include <vector>

namespace troupe {

class Homes {
 public:
  /// No device has one.
  Homes() = default;
  /// Of `devices` devices; none under a scheduler without workers, as tests have it.
  Homes(caf::actor_system& system, uint32_t devices);

  /// Where device `device` is to wake, as abstract_actor::enqueue takes it, when an actor on `from` (nullptr: a thread
  /// that is no worker) tells it something. Any thread, while the system runs.
  caf::execution_unit* of(uint32_t device, caf::execution_unit* from) const;
  /// Whether the calling thread is that of a worker, which runs actors of anybody's in the system. Any thread.
  bool on_worker() const;

 private:
  struct Home {
    const caf::execution_unit* worker;
    std::unique_ptr<caf::execution_unit> door;  // for all but the worker itself
    std::thread::id thread;
  };
  std::vector<Home> homes_;  // by worker
  uint32_t devices_ = 0;
};

}  // namespace troupe
