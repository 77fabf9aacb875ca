// SPDX-License-Identifier: Apache-2.0
#include "actors/blocking_jobs.h"

#include "actors/directory.h"
#include "actors/messages.h"
#include "troupe/guarded.h"

namespace troupe {

/// A call that is answered once: with what it returns, or, if it is never made, when the last copy of the job goes.
class BlockingJobs::Asked {
 public:
  Asked(std::shared_ptr<BlockingJobs> jobs, Call call, RequestTag tag)
      : jobs_(std::move(jobs)), call_(std::move(call)), tag_(tag) {}
  ~Asked() {
    if (jobs_) jobs_->answer(tag_, std::move(unmade_));
  }
  /// Says why the call is not made.
  void refuse(Error why) { unmade_ = std::move(why); }
  void make() {
    const auto jobs = std::move(jobs_);
    auto outputs = guarded(call_);
    call_ = {};  // before the answer: when the step ends, nothing of it is held here
    jobs->answer(tag_, std::move(outputs));
  }

 private:
  std::shared_ptr<BlockingJobs> jobs_;
  Call call_;
  const RequestTag tag_;
  Error unmade_ = make_error(Code::kCancelled, "the engine ended before it was begun");
};

void BlockingJobs::run_kernel(BlockingUse use) {
  const RequestTag tag = use.tag;
  if (const StepRef call = use.call.lock()) use.request.stop = call->stop_token();
  use.request.functions = functions_;
  run(
      [use = std::make_shared<const BlockingUse>(std::move(use))]() -> Result<std::vector<Tensor>> {
        if (const StepRef call = use->call.lock(); !call || call->failed())
          return make_error(Code::kCancelled, "the step failed before the node ran");
        return use->kernel->run(use->request);
      },
      tag);
}

void BlockingJobs::run_job(Job job, const RequestTag& tag) {
  run(
      [job = std::move(job)]() -> Result<std::vector<Tensor>> {
        job();
        return std::vector<Tensor>();
      },
      tag);
}

void BlockingJobs::run(Call call, const RequestTag& tag) {
  const auto asked = std::make_shared<Asked>(shared_from_this(), std::move(call), tag);
  if (Status status = run_([asked] { asked->make(); }); !status.ok()) asked->refuse(std::move(status.error()));
}

void BlockingJobs::wake(const caf::actor_addr& host) {
  const std::lock_guard lock(mutex_);
  if (!directory_) return;
  if (const auto actor = caf::actor_cast<caf::actor>(host)) caf::anon_send(actor, WakeResource{});
}

void BlockingJobs::close() {
  const std::lock_guard lock(mutex_);
  directory_ = nullptr;
}

void BlockingJobs::answer(const RequestTag& tag, Result<std::vector<Tensor>> outputs) {
  auto answers = std::make_shared<std::vector<ResourceAnswer>>();
  answers->push_back({tag, std::move(outputs)});
  const std::lock_guard lock(mutex_);
  if (!directory_) return;
  if (tag.requester < directory_->devices.size())
    directory_->tell_device(static_cast<uint32_t>(tag.requester), ResourceAnswers{std::move(answers)});
  else if (const caf::actor host = directory_->asking(tag.requester))
    caf::anon_send(host, ResourceAnswers{std::move(answers)});
}

}  // namespace troupe
