// SPDX-License-Identifier: Apache-2.0
#include "gpu/failed_communicator.h"

#include <atomic>
#include <system_error>

namespace troupe::gpu {

struct FailedCommunicator::Ending {
  void run() {
    if (rest) rest->abort();
    communicator->abort();
    rest.reset();
    communicator.reset();
    for (const auto& stream : kept.streams) {  // what was cut short is done only now; a card that is lost does nothing
      const auto event = runtime->make_event(stream->card());
      if (event.ok() && stream->record(**event).ok()) (void)(*event)->wait();
    }
    kept = {};
    ended = true;
  }
  std::shared_ptr<Runtime> runtime;
  std::unique_ptr<Communicator> communicator, rest;
  Kept kept;
  std::atomic<bool> ended{false};
};

FailedCommunicator::FailedCommunicator(std::shared_ptr<Runtime> runtime, std::unique_ptr<Communicator> communicator,
                                       Kept kept, std::chrono::nanoseconds patience)
    : runtime_(std::move(runtime)), patience_(patience), communicator_(std::move(communicator)),
      kept_(std::move(kept)) {
  if (!communicator_->revoke().ok()) abort();
}

FailedCommunicator::~FailedCommunicator() {
  hurry();
  if (!thread_.joinable()) return;
  if (ending_->ended) thread_.join();
  else thread_.detach();
}

bool FailedCommunicator::go_on(const std::function<bool(size_t rank)>& is_lost) {
  const bool late = Clock::now() - stage_since_ > patience_;
  switch (stage_) {
    case Stage::kRevoking:
      if (const auto revoked = communicator_->ready(); !revoked.ok() || late || (*revoked && !shrink(is_lost))) abort();
      return false;
    case Stage::kShrinking:
      if (const auto ready = rest_->ready(); !ready.ok() || *ready || late) {
        if (ready.ok() && *ready) shrunk_ = std::move(rest_);
        abort();
      }
      return false;
    case Stage::kAborting: break;
  }
  if (!ending_->ended && !thread_.joinable()) start();
  return ending_->ended;
}

bool FailedCommunicator::shrink(const std::function<bool(size_t rank)>& is_lost) {
  const size_t ranks = communicator_->cards().size();
  std::vector<int> without;
  for (size_t rank = 0; rank < ranks; ++rank)
    if (is_lost(rank)) without.push_back(static_cast<int>(rank));
  if (without.empty() || ranks < without.size() + 2) return false;
  auto rest = communicator_->shrink(without);
  if (!rest.ok()) return false;
  rest_ = std::move(*rest);
  stage_ = Stage::kShrinking;
  stage_since_ = Clock::now();
  return true;
}

void FailedCommunicator::abort() {
  stage_ = Stage::kAborting;
  ending_ = std::make_shared<Ending>();
  ending_->runtime = runtime_;
  ending_->communicator = std::move(communicator_);
  ending_->rest = std::move(rest_);
  ending_->kept = std::move(kept_);
  start();
}

/// Where no thread can be had it does nothing.
void FailedCommunicator::start() {
  try {
    thread_ = std::thread([ending = ending_] { ending->run(); });
  } catch (const std::system_error&) {
  }
}

void FailedCommunicator::hurry() {
  if (stage_ != Stage::kAborting) abort();
}

bool FailedCommunicator::await_end(Clock::time_point until) {
  hurry();
  if (!thread_.joinable()) ending_->run();
  while (!ending_->ended && Clock::now() < until) std::this_thread::sleep_for(std::chrono::microseconds(20));
  return ending_->ended;
}

}  // namespace troupe::gpu
