// SPDX-License-Identifier: Apache-2.0
#include "actors/resource_actor.h"

namespace troupe {

ResourceActor::ResourceActor(caf::actor_config& config, std::unique_ptr<Resource> resource,
                             std::shared_ptr<Directory> directory)
    : caf::event_based_actor(config), directory_(std::move(directory)), resource_(std::move(resource)),
      answers_(directory_->devices.size()) {}

caf::behavior ResourceActor::make_behavior() {
  settle();
  return {
      [this](UseResource& m) {
        answers_[m.uses->front().tag.requester].reserve(m.uses->size());  // most are answered at once
        for (ResourceUse& request : *m.uses) use(std::move(request));
        settle();
      },
      [this](const CancelUses& m) {
        if (resource_) resource_->cancel(m.requester, m.step);
        settle();
      },
      [this](const WithResource& m) {
        m.call(resource_.get());
        settle();
      },
      [this](CloseResource) { close(); },
      [this](Work) {
        will_work_ = false;
        if (resource_) resource_->work();
        settle();
      },
  };
}

void ResourceActor::on_exit() {
  close();
  directory_.reset();
}

void ResourceActor::use(ResourceUse request) {
  Reply reply(*this, request.tag);
  if (!resource_) {
    reply(make_error(Code::kFailedPrecondition, "the resource was closed"));
    return;
  }
  request.kernel->execute(*resource_, {std::move(request.inputs), std::move(request.allocator), std::move(reply)});
}

void ResourceActor::close() {
  resource_.reset();  // what waited in it is answered on the way
  settle();
}

void ResourceActor::deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) {
  answers_[tag.requester].push_back({tag, std::move(outputs)});
}

void ResourceActor::settle() {
  for (size_t requester = 0; requester < answers_.size(); ++requester)
    if (!answers_[requester].empty())
      send(directory_->devices[requester],
           ResourceAnswers{std::make_shared<std::vector<ResourceAnswer>>(std::exchange(answers_[requester], {}))});
  if (resource_ && resource_->wants_work() && !std::exchange(will_work_, true)) send(this, Work{});
}

}  // namespace troupe
