// SPDX-License-Identifier: Apache-2.0
// Lender: lets a thread that has told an actor something run that actor itself, in place of waking a thread of the
// scheduler for it: a wake-up takes 10 to 40 us on a virtual machine, longer than most answers do.
//
// A thread with other duties keeps them waiting meanwhile. So an actor runs for one message, a device fires only what
// is known to be cheap (Executor::Turn::kLent), and what is left of it goes to a worker of the scheduler. A thread that
// would wait anyway has time until what it waits for is there. One actor waits for the thread at a time: what is told
// to a second one wakes it at home, so that both run at once.
#pragma once
#include <caf/all.hpp>

#include <functional>
#include <optional>

namespace troupe {

/// Of one thread, for as long as one likes.
class Lender final : public caf::execution_unit {
 public:
  enum class Time : uint8_t { kBrief, kAll };  // the thread has other duties; it would only wait

  explicit Lender(caf::actor_system& system, Time time = Time::kBrief) : execution_unit(&system), time_(time) {}
  ~Lender() override;
  Lender(const Lender&) = delete;

  /// Sends to an actor, which run() runs if it is idle. `home`: where it goes else, and with what is left of it;
  /// nullptr: to any worker.
  template <class Message> void tell(const caf::actor& actor, Message message, caf::execution_unit* home = nullptr) {
    home_ = home;
    lends_ = true;
    actor->enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, std::move(message)), this);
    lends_ = false;
  }
  /// Runs the actor that was told something, and whom that tells something by this. Not within an actor, nor with a
  /// mutex held that one may want.
  void run() {
    run([] { return true; });
  }
  /// The same, for as long as that actor has messages and `done` says false.
  void run(const std::function<bool()>& done);
  Time time() const { return time_; }
  /// By which an actor runs whose context that is; nullptr: on a thread of the scheduler.
  static Lender* of(caf::execution_unit* context);

  /// Called by CAF: an actor that was idle has a message.
  void exec_later(caf::resumable* actor) override;

 private:
  struct Job {
    caf::resumable* actor;  // with a reference
    caf::execution_unit* home;
  };
  void hand_over(const Job& job);

  const Time time_;
  std::optional<Job> next_;
  caf::execution_unit* home_ = nullptr;
  bool lends_ = false;
};

}  // namespace troupe
