// SPDX-License-Identifier: Apache-2.0
#include "actors/resource_actor.h"

#include "devices/run_kernel.h"

namespace troupe {
namespace {

Error closed() { return make_error(Code::kFailedPrecondition, "the resource was closed"); }

bool same_request(const RequestTag& a, const RequestTag& b) {
  return a.step == b.step && a.node == b.node && a.iteration == b.iteration && a.requester == b.requester;
}

}  // namespace

ResourceActor::ResourceActor(caf::actor_config& config, std::unique_ptr<Resource> resource,
                             std::shared_ptr<Directory> directory)
    : caf::event_based_actor(config), directory_(std::move(directory)), resource_(std::move(resource)),
      hosted_(dynamic_cast<HostedResource*>(resource_.get())), answers_(directory_->devices.size()) {}

caf::behavior ResourceActor::make_behavior() {
  if (hosted_) hosted_->attach(*this);
  settle();
  return {
      [this](UseResource& m) {
        answers_[m.uses->front().tag.requester].reserve(m.uses->size());  // most are answered at once
        for (ResourceUse& request : *m.uses) use(std::move(request));
        settle();
      },
      [this](AskResource& m) {
        Reply reply(*this, m.question->tag);
        if (resource_) m.question->use(*resource_, std::move(reply));
        else reply(closed());
        settle();
      },
      [this](ResourceAnswers& m) {
        for (ResourceAnswer& answer : *m.answers) {
          const auto question = static_cast<uint64_t>(answer.tag.step);
          asked_.erase(question);
          if (hosted_) hosted_->answered(question, std::move(answer.outputs));
        }
        settle();
      },
      [this](WakeResource) {
        if (hosted_) hosted_->woken();
        settle();
      },
      [this](const CancelUses& m) {
        if (resource_) resource_->cancel(m.requester, m.step);
        settle();
      },
      [](Settle) { return Settled{}; },
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
    reply(closed());
    return;
  }
  const RequestTag tag = request.tag;
  const auto now = [this] { return home_system().clock().now(); };
  const auto begin = request.timed ? now() : caf::actor_clock::time_point();
  ResourceRequest asked{std::move(request.inputs), std::move(request.allocator), std::move(reply)};
  const Status status = guarded([&] {  // a reply that is dropped on the way answers
    request.kernel->execute(*resource_, std::move(asked));
    return Status();
  });
  auto& answers = answers_[tag.requester];
  if (answers.empty() || !same_request(answers.back().tag, tag)) return;  // it waits in the resource
  if (!status.ok() && !answers.back().outputs.ok()) answers.back().outputs = status.error();
  if (request.timed) answers.back().ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now() - begin).count();
}

void ResourceActor::close() {
  resource_.reset();  // what waited in it is answered on the way
  hosted_ = nullptr;
  for (const auto& [question, actor] : asked_) send(actor, CancelUses{number_, static_cast<int64_t>(question)});
  asked_.clear();
  settle();
  if (number_) directory_->remove_asking(std::exchange(number_, 0));
}

void ResourceActor::deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) {
  auto& answers = tag.requester < answers_.size() ? answers_[tag.requester] : answers_to_hosts_;
  answers.push_back({tag, std::move(outputs)});
}

// -- questions of our own ---------------------------------------------------------------------------------------------

RequestTag ResourceActor::question(caf::actor to) {
  if (!number_) number_ = directory_->add_asking(caf::actor_cast<caf::actor>(this));
  asked_[++questions_] = std::move(to);
  return {number_, static_cast<int64_t>(questions_)};
}

uint64_t ResourceActor::ask(const ResourceRef& other, Use use) {
  auto host = directory_->host(*other);
  if (!host.ok()) {
    const RequestTag tag = question(caf::actor_cast<caf::actor>(this));
    deliver(tag, std::move(host.error()));
    return questions_;
  }
  const RequestTag tag = question(*host);
  send(*host, AskResource{std::make_shared<ResourceQuestion>(ResourceQuestion{std::move(use), tag})});
  return questions_;
}

void ResourceActor::withdraw(uint64_t question) {
  if (const auto at = asked_.find(question); at != asked_.end())
    send(at->second, CancelUses{number_, static_cast<int64_t>(question)});
}

uint64_t ResourceActor::run_blocking(Job job) {
  const RequestTag tag = question(directory_->blocking);
  send(directory_->blocking, DoBlocking{std::make_shared<BlockingJob>(BlockingJob{std::move(job), tag})});
  return questions_;
}

std::function<void()> ResourceActor::waker() {
  return [weak = address()] {
    if (const auto self = caf::actor_cast<caf::actor>(weak)) caf::anon_send(self, WakeResource{});
  };
}

void ResourceActor::settle() {
  for (size_t requester = 0; requester < answers_.size(); ++requester)
    if (!answers_[requester].empty())
      directory_->tell_device(
          static_cast<uint32_t>(requester),
          ResourceAnswers{std::make_shared<std::vector<ResourceAnswer>>(std::exchange(answers_[requester], {}))},
          context());
  for (ResourceAnswer& answer : std::exchange(answers_to_hosts_, {}))
    if (const caf::actor host = directory_->asking(answer.tag.requester)) {
      auto answers = std::make_shared<std::vector<ResourceAnswer>>();
      answers->push_back(std::move(answer));
      send(host, ResourceAnswers{std::move(answers)});
    }
  if (resource_ && resource_->wants_work() && !std::exchange(will_work_, true)) send(this, Work{});
}

}  // namespace troupe
