// SPDX-License-Identifier: Apache-2.0
// The messages between the actors of one process, named by what they ask or report. docs/protocols.md lists who sends
// which to whom. They carry pointers, so they never leave the process.
#pragma once
#include <caf/all.hpp>

#include <map>
#include <string>

#include "devices/exchange.h"
#include "devices/hosted_resource.h"

namespace troupe {

/// To a device actor: do the part of device `device` of this step. The actor of the simulated devices does those of all
/// of them, so that they begin at one virtual time.
struct RunStep {
  uint32_t device = 0;
  StepRef call;
};
/// To a device actor: tensors for Recv nodes of its steps.
struct TensorsReady {
  uint32_t device = 0;
  std::shared_ptr<std::vector<ReadyTensor>> tensors;
};
/// To a device actor: this step has failed or was cancelled; end your part of it.
struct AbortStep {
  uint32_t device = 0;
  StepRef call;
};
/// A device actor to itself: go on firing.
struct GoOn {};
/// To a device actor: another task takes values again that had more than it could take.
struct MaySend {
  uint32_t device = 0;
};
/// To a resource actor: requests, in order. Answered one by one, at once or later, by ResourceAnswers.
struct UseResource {
  std::shared_ptr<std::vector<ResourceUse>> uses;
};
/// To a resource actor: call `use` on the resource. Answered, at once or later, by ResourceAnswers to the resource
/// actor that asked; the tag's step is the number of its question.
struct ResourceQuestion {
  ResourceHost::Use use;
  RequestTag tag;
};
struct AskResource {
  std::shared_ptr<ResourceQuestion> question;
};
/// To a device or a resource actor: answers to its requests, and from BlockingJobs what came of a kernel or a job. To a
/// device they may come when the step has ended.
struct ResourceAnswers {
  std::shared_ptr<std::vector<ResourceAnswer>> answers;
};
/// To a resource actor: answer what waits of this step, or with this number of a question, with kCancelled.
struct CancelUses {
  uint64_t requester = 0;
  int64_t step = 0;
};
/// To a resource actor: answered with Settled, after the answers to what was asked before and can be answered now.
struct Settle {};
struct Settled {};
/// To the actor of the simulated devices: one hold on the clock more (1) or less (-1).
struct HoldClock {
  int change = 0;
};
/// To the actor of a container: call `done` with its variables, between the updates of steps.
/// `also`: steps that run and are in it, whether they have changed something here or not. `made`, if there is one: the
/// cut is made, and steps that begin now are not in it.
struct TakeSnapshot {
  std::function<void(Result<std::map<std::string, Tensor>>)> done;
  std::vector<int64_t> also = {};
  std::function<void()> made = {};
};
/// To the actor of a container, from any thread: a step that it asked about has ended.
struct StepEnded {
  int64_t step = 0;
};
/// A resource actor to itself: a request was answered by another thread.
struct LateReply {
  std::shared_ptr<ResourceAnswer> answer;
};
/// To the actor of a container, from any thread: what has come of bringing values from GPUs to the host's memory.
struct ValuesCame {
  using Variables = std::map<std::string, Tensor>;
  std::shared_ptr<const Variables> from;
  std::shared_ptr<const Result<Variables>> here;
};
/// To the actor that calls callbacks: call this.
struct CallBack {
  std::function<void()> call;
};
/// To a resource actor: call this on the resource, nullptr if it is closed (restore, restart).
struct WithResource {
  std::function<void(Resource*)> call;
};
/// To a resource actor: drop the resource; answer what waits and all later requests with an error that says `why`.
struct CloseResource {
  std::string why;
};
/// A resource actor to itself: do a piece of background work.
struct Work {};
/// To a resource actor, from any thread: look whether those that wait can be answered.
struct WakeResource {};
/// To the step timer: abort this step at `deadline` (steady clock) if it still runs.
struct WatchStep {
  std::weak_ptr<StepCall> call;
  caf::actor_clock::time_point deadline;
  std::chrono::nanoseconds allowed;  // from the step's begin to then
};
/// The step timer to itself.
struct DeadlinePassed {};

}  // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::RunStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::TensorsReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::AbortStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::GoOn)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::MaySend)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::UseResource)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::AskResource)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ResourceAnswers)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::CancelUses)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::HoldClock)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Settle)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Settled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::TakeSnapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::StepEnded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LateReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ValuesCame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::CallBack)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::WithResource)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::CloseResource)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Work)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::WakeResource)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::WatchStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::DeadlinePassed)
