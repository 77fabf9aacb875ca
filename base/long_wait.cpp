// SPDX-License-Identifier: Apache-2.0
#include "base/long_wait.h"

#include <utility>

namespace troupe {
namespace {

WaitObserver*& observer_of_thread() {
  static thread_local WaitObserver* observer = nullptr;
  return observer;
}

}  // namespace

LongWait::LongWait() : observer_(std::exchange(observer_of_thread(), nullptr)) {
  if (observer_) observer_->wait_begins();
}

LongWait::~LongWait() {
  if (!observer_) return;
  observer_->wait_ended();
  observer_of_thread() = observer_;
}

void LongWait::observe_thread(WaitObserver* observer) { observer_of_thread() = observer; }

}  // namespace troupe
