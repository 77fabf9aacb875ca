// SPDX-License-Identifier: Apache-2.0
// Partial runs: checking what a call gives and asks for, and answering calls as fetches come.
#include "actors/partial_run.h"

#include <algorithm>
#include <semaphore>

#include "base/join.h"
#include "base/log.h"
#include "graph/feed_check.h"
#include "troupe/guarded.h"
#include "troupe/partial_run.h"

namespace troupe {

void PartialStep::begin(const StepRef& step) {
  step_ = step;
  plan_ = step->plan;
  if (plan_->cut) own_ = &*std::ranges::find(plan_->cut->parts, true, &StepPart::partial);
  else receiver_ = step, begun_ = true;
  given_.resize(plan_->feeds.size());
  asked_.resize(plan_->fetches.size());
  arrived_.resize(asked_.size());
  left_ = given_.size() + asked_.size();
  for (uint32_t i = 0; i < plan_->feeds.size(); ++i) feeds_[{plan_->feeds[i].node, plan_->feeds[i].port}] = i;
  for (uint32_t i = 0; i < plan_->fetches.size(); ++i) fetches_[{plan_->fetches[i].node, plan_->fetches[i].port}] = i;
}

Status PartialStep::check(const FeedList& feeds, const OutputList& fetches, std::vector<uint32_t>& given,
                          std::vector<uint32_t>& asked) const {
  for (size_t i = 0; i < feeds.outputs.size(); ++i) {
    const Output& o = feeds.outputs[i];
    if (!o) return invalid_argument("an empty output cannot be fed");
    const auto at = feeds_.find({o.node, o.port});
    if (at == feeds_.end()) return invalid_argument("'{}' is not a feed of this partial run", o.name());
    if (given_[at->second]) return invalid_argument("'{}' was fed before", o.name());
    if (std::ranges::find(given, at->second) != given.end()) return invalid_argument("'{}' is fed twice", o.name());
    TROUPE_RETURN_IF_ERROR(check_feed(o, feeds.values[i]));
    given.push_back(at->second);
  }
  for (const Output& o : fetches.outputs) {
    if (!o) return invalid_argument("an empty output cannot be fetched");
    const auto at = fetches_.find({o.node, o.port});
    if (at == fetches_.end()) return invalid_argument("'{}' is not a fetch of this partial run", o.name());
    if (asked_[at->second]) return invalid_argument("'{}' was fetched before", o.name());
    if (std::ranges::find(asked, at->second) != asked.end()) return invalid_argument("'{}' is fetched twice", o.name());
    std::vector<std::string> missing;
    for (const uint32_t feed : plan_->partial->needs[at->second])
      if (!given_[feed] && std::ranges::find(given, feed) == given.end())
        missing.push_back(fmt::format("'{}'", plan_->feeds[feed].name()));
    if (!missing.empty())
      return invalid_argument("'{}' needs feeds that were not given yet: {}", o.name(), join(missing, ", "));
    asked.push_back(at->second);
  }
  return {};
}

void PartialStep::call(const FeedList& feeds, const OutputList& fetches, Callback done, bool at_once) {
  Call call{{}, std::move(done), at_once, false};
  Answers answers;
  {
    std::lock_guard guard(mutex_);
    std::vector<uint32_t> given;
    Status status = end_ && !end_->ok() ? *end_ : check(feeds, fetches, given, call.fetches);
    if (status.ok()) {
      for (size_t i = 0; i < given.size(); ++i) {
        const Tensor& value = feeds.values[i];
        value.freeze();
        given_[given[i]] = true;
        for (auto [feed, fetch] : plan_->partial->fed_fetches)
          if (feed == given[i]) arrived_[fetch] = value;
        give(given[i], value);
      }
      for (const uint32_t fetch : call.fetches) asked_[fetch] = true;
      left_ -= given.size() + call.fetches.size();
      call.last = left_ == 0;
      waiting_.push_back(std::move(call));
      answers = take_answers();
    } else {
      answers.emplace_back(std::move(call), std::move(status.error()));
    }
  }
  answer(std::move(answers), false);
}

void PartialStep::give(uint32_t feed, const Tensor& value) {
  if (end_) return;
  if (!begun_) return early_.emplace_back(feed, value), void();
  const StepRef to = receiver_.lock();
  if (!to) return;
  if (own_) {
    const auto at = std::ranges::lower_bound(own_->feeds, feed, {}, &std::pair<uint32_t, Output>::first);
    if (at == own_->feeds.end() || at->first != feed) return;  // nobody reads it
    feed = static_cast<uint32_t>(at - own_->feeds.begin());
  }
  for (const PartialPlan::Receiver& receiver : to->plan->partial->receivers[feed]) host_->send(to, receiver, value);
}

void PartialStep::begun(const StepRef& part) {
  std::lock_guard guard(mutex_);
  receiver_ = part;
  begun_ = true;
  for (const auto& [feed, value] : std::exchange(early_, {})) give(feed, value);
}

PartialStep::Answers PartialStep::take_answers() {
  Answers answers;
  std::erase_if(waiting_, [&](Call& call) {
    const auto there = [this](uint32_t fetch) { return arrived_[fetch].defined(); };
    if (end_ && !end_->ok()) {
      answers.emplace_back(std::move(call), end_->error());
    } else if (std::ranges::all_of(call.fetches, there) && (end_ || !call.last)) {
      std::vector<Tensor> values;
      for (const uint32_t fetch : call.fetches) values.push_back(std::move(arrived_[fetch]));
      answers.emplace_back(std::move(call), std::move(values));
    } else {
      return false;
    }
    return true;
  });
  return answers;
}

void PartialStep::answer(Answers answers, bool of_step) {
  for (auto& [call, result] : answers) {
    if (call.at_once) call.done(std::move(result));
    else host_->answer(std::move(call.done), std::move(result), of_step);
  }
}

void PartialStep::fetched(uint32_t fetch, Tensor value) {
  Answers answers;
  {
    std::lock_guard guard(mutex_);
    arrived_[number(fetch)] = std::move(value);
    answers = take_answers();
  }
  answer(std::move(answers), true);
}

Error PartialStep::dead(uint32_t fetch) {
  Error error = dead_fetch(plan_->fetches[number(fetch)], 0);
  if (own_)
    for (const StepPart& part : plan_->cut->parts)
      if (const Node* const node = part.graph->find(error.node)) error.device = node->device();
  return error;
}

void PartialStep::ended(Result<std::vector<Tensor>> result) {
  Answers answers;
  decltype(early_) early;  // goes when the mutex is free again
  {
    std::lock_guard guard(mutex_);
    end_ = result.status();
    early.swap(early_);
    answers = take_answers();
  }
  answer(std::move(answers), true);
}

void PartialStep::drop() {
  if (const StepRef step = step_.lock())
    host_->abort(step, make_error(Code::kCancelled, "the partial run was dropped before its end"));
}

// -- the handle -------------------------------------------------------------------------------------------------------

namespace {

Error empty() { return make_error(Code::kFailedPrecondition, "this partial run is empty"); }

}  // namespace

PartialRun& PartialRun::operator=(PartialRun&& other) noexcept {
  if (this != &other) {
    PartialRun dropped(std::move(*this));
    step_ = std::move(other.step_);
  }
  return *this;
}

PartialRun::~PartialRun() {
  if (step_) step_->drop();
}

Result<std::vector<Tensor>> PartialRun::run(const FeedList& feeds, const OutputList& fetches) {
  if (!step_) return empty();
  TROUPE_RETURN_IF_ERROR(step_->host().in_child());
  TROUPE_RETURN_IF_ERROR(step_->host().may_wait());
  std::optional<Result<std::vector<Tensor>>> result;
  std::binary_semaphore done(0);
  step_->call(
      feeds, fetches,
      [&](Result<std::vector<Tensor>> r) {
        result = std::move(r);
        done.release();
      },
      true);
  done.acquire();
  return std::move(*result);
}

void PartialRun::run_async(const FeedList& feeds, const OutputList& fetches,
                           std::function<void(Result<std::vector<Tensor>>)> done) {
  Status begun = step_ ? step_->host().in_child() : Status(empty());
  if (begun.ok()) return step_->call(feeds, fetches, std::move(done), false);
  if (const Status called = guarded_call([&] { done(std::move(begun.error())); }); !called.ok())
    log_error("a callback failed: {}", called.error().message);
}

}  // namespace troupe
