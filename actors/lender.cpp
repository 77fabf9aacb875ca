// SPDX-License-Identifier: Apache-2.0
#include "actors/lender.h"

#include <typeinfo>
#include <utility>

namespace troupe {

Lender::~Lender() {
  if (next_) hand_over(*next_);
}

void Lender::exec_later(caf::resumable* actor) {
  const Job job{actor, lends_ ? home_ : nullptr};
  if (lends_ && !next_) next_ = job;
  else hand_over(job);
}

void Lender::run(const std::function<bool()>& done) {
  while (const auto job = std::exchange(next_, {})) {
    caf::resumable::resume_result result;
    do result = job->actor->resume(this, 1);
    while (result == caf::resumable::resume_later && !done());
    switch (result) {
      case caf::resumable::resume_later: hand_over(*job); break;
      case caf::resumable::awaiting_message:
      case caf::resumable::done: intrusive_ptr_release(job->actor); break;
      case caf::resumable::shutdown_execution_unit: break;  // told only to workers of the scheduler
    }
  }
}

Lender* Lender::of(caf::execution_unit* context) {
  return context && typeid(*context) == typeid(Lender) ? static_cast<Lender*>(context) : nullptr;
}

void Lender::hand_over(const Job& job) {
  if (job.home) job.home->exec_later(job.actor);
  else system().scheduler().enqueue(job.actor);
}

}  // namespace troupe
