// SPDX-License-Identifier: Apache-2.0
#include "actors/blocking_actor.h"

#include "devices/run_kernel.h"

namespace troupe {

caf::behavior BlockingActor::make_behavior() {
  return {
      [this](RunBlocking& m) {
        const std::shared_ptr<BlockingUse> use = std::move(m.use);
        auto answers = std::make_shared<std::vector<ResourceAnswer>>();
        if (use->call->failed())
          answers->push_back({use->tag, make_error(Code::kCancelled, "the step failed before the node ran")});
        else answers->push_back({use->tag, guarded([&] { return use->kernel->run(use->request); })});
        const RequestTag tag = use->tag;
        *use = {};  // before the answer: when the step ends, nothing of it is held here
        directory_->tell_device(static_cast<uint32_t>(tag.requester), ResourceAnswers{std::move(answers)}, context());
      },
      [this](DoBlocking& m) {
        m.job->run();
        auto answers = std::make_shared<std::vector<ResourceAnswer>>();
        answers->push_back({m.job->tag, std::vector<Tensor>()});
        *m.job = {};
        if (const caf::actor to = directory_->asking(answers->front().tag.requester))
          send(to, ResourceAnswers{std::move(answers)});
      },
      [](const CancelUses&) {},
  };
}

}  // namespace troupe
