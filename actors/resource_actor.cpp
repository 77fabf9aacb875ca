// SPDX-License-Identifier: Apache-2.0
#include "actors/resource_actor.h"

#include <algorithm>

#include "actors/blocking_jobs.h"
#include "base/engine_thread.h"
#include "base/log.h"
#include "gpu/compute.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

Error closed(const std::string& why) { return make_error(Code::kFailedPrecondition, "{}", why); }

}  // namespace

/// Replies hold it: as long as they may be given, not as long as the actor.
class ResourceActor::Port final : public ReplySink {
 public:
  Port(ResourceActor& actor, std::shared_ptr<Directory> directory)
      : actor_(&actor), address_(actor.address()), directory_(std::move(directory)) {}

  void deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) override {
    if (at_work() == actor_) return actor_->answer(tag, std::move(outputs));
    const auto directory = directory_.lock();
    if (!directory) return;
    directory->from_outside([&] {
      if (const auto actor = caf::actor_cast<caf::actor>(address_))
        caf::anon_send(actor, LateReply{std::make_shared<ResourceAnswer>(ResourceAnswer{tag, std::move(outputs)})});
    });
  }

  /// The resource actor whose handler the thread is in.
  static ResourceActor*& at_work() {
    static thread_local ResourceActor* actor = nullptr;
    return actor;
  }

 private:
  ResourceActor* const actor_;  // only for its own thread
  const caf::actor_addr address_;
  const std::weak_ptr<Directory> directory_;
};

ResourceActor::ResourceActor(caf::actor_config& config, std::unique_ptr<Resource> resource,
                             std::shared_ptr<Directory> directory)
    : caf::event_based_actor(config), directory_(std::move(directory)), resource_(std::move(resource)),
      hosted_(dynamic_cast<HostedResource*>(resource_.get())), answers_(directory_->devices.size()) {
  if (auto* container = dynamic_cast<Container*>(resource_.get()))
    cuts_ = std::make_unique<Cuts>(*container, static_cast<StepWatch&>(*this));
}

ResourceActor::~ResourceActor() = default;

template <class F> void ResourceActor::handle(F&& f) {
  const EngineThread mark(directory_.get());
  ResourceActor* const before = std::exchange(Port::at_work(), this);
  f();
  settle();
  Port::at_work() = before;
}

caf::behavior ResourceActor::make_behavior() {
  port_ = std::make_shared<Port>(*this, directory_);
  handle([&] {
    if (hosted_) attempt([&] { hosted_->attach(*this); });
  });
  return {
      [this](UseResource& m) {
        handle([&] {
          if (const uint64_t of = m.uses->front().tag.requester; of < answers_.size())
            answers_[of].reserve(m.uses->size());  // most are answered at once
          for (ResourceUse& request : *m.uses) use(std::move(request));
        });
      },
      [this](AskResource& m) {
        handle([&] {
          const RequestTag tag = m.question->tag;
          current_ = key(tag);
          Reply reply(port_, tag);
          Status status;
          if (resource_) status = guarded_call([&] { m.question->use(*resource_, std::move(reply)); });
          else reply(closed(why_closed_));
          if (!status.ok()) {
            if (current_) answer(tag, std::move(status.error()));
            else if (ResourceAnswer* given = answer_given(tag); given && !given->outputs.ok())
              given->outputs = std::move(status.error());
          }
          keep_waiting();
        });
      },
      [this](ResourceAnswers& m) {
        handle([&] {
          for (ResourceAnswer& answer : *m.answers) {
            const auto question = static_cast<uint64_t>(answer.tag.step);
            asked_.erase(question);
            if (hosted_) attempt([&] { hosted_->answered(question, std::move(answer.outputs)); });
          }
        });
      },
      [this](const ValuesCame& m) { handle([&] { came(m); }); },
      [this](LateReply& m) { handle([&] { answer(m.answer->tag, std::move(m.answer->outputs)); }); },
      [this](WakeResource) {
        handle([&] {
          if (hosted_) attempt([&] { hosted_->woken(); });
        });
      },
      [this](const CancelUses& m) { handle([&] { cancel(m.requester, m.step); }); },
      [](Settle) { return Settled{}; },
      [this](const TakeSnapshot& m) {
        handle([&] {
          if (cuts_) cuts_->snapshot(at_host(m.done), m.also);
          else m.done(closed(why_closed_));
          if (m.made) m.made();
        });
      },
      [this](const StepEnded& m) {
        handle([&] {
          if (cuts_) cuts_->step_ended(m.step);
        });
      },
      [this](const WithResource& m) { handle([&] { attempt([&] { m.call(resource_.get()); }); }); },
      [this](const CloseResource& m) { handle([&] { close(m.why); }); },
      [this](Work) {
        handle([&] {
          will_work_ = false;
          if (resource_) attempt([&] { resource_->work(); });
        });
      },
  };
}

void ResourceActor::on_exit() {
  // Where the engine goes on, this actor has died: its watcher tells the steps, which need not hear that it was closed.
  silent_ = directory_->from_outside([] {});
  handle([&] { close("the engine is being destroyed"); });
  asked_at_once_ = {};
  port_.reset();
  directory_.reset();
}

template <class F> void ResourceActor::attempt(F&& f) {
  if (const Status status = guarded_call(f); !status.ok())
    log_error("a resource failed outside of a request: {}", status.error().message);
}

bool ResourceActor::is_running(int64_t step) { return directory_->steps.is_running(step); }

bool ResourceActor::tell_when_ended(int64_t step) {
  return directory_->steps.watch(step, [step, weak = address(), engine = std::weak_ptr(directory_)] {
    const auto directory = engine.lock();
    if (directory)
      directory->from_outside([&] {
        if (const auto self = caf::actor_cast<caf::actor>(weak)) caf::anon_send(self, StepEnded{step});
      });
  });
}

void ResourceActor::use(ResourceUse&& request) {
  if (held_.empty()) {
    auto away = elsewhere(request);
    if (away.empty()) return run(std::move(request));
    bring(std::move(away));
  }
  waiting_.insert(key(request.tag));
  held_.push_back(std::move(request));
}

Directory::Variables ResourceActor::elsewhere(const ResourceUse& request) {
  Directory::Variables out;
  if (!cuts_ || !directory_->bring_to_host || !request.kernel->uses_elements()) return out;
  const DeviceInfo& asks = *request.asks;
  for (const Tensor& input : request.inputs) {
    if (input.dtype() != DType::kResource || input.elements() != 1) continue;
    const ResourceRef& handle = *input.data<ResourceRef>();
    if (!handle) continue;
    std::string name = handle->name;
    cuts_->for_each([&](const Container& container) {
      const Tensor value = container.held(*handle);
      if (value.defined() && value.space() == Space::kGpu && !(asks.gpu && asks.gpu->holds(value)))
        out.emplace(name, value);
      name += " of a snapshot";
    });
  }
  return out;
}

void ResourceActor::bring(Directory::Variables values) {
  const auto from = std::make_shared<const Directory::Variables>(values);
  directory_->bring_to_host(std::move(values), [from, weak = address(),
                                                engine = std::weak_ptr(directory_)](Result<Directory::Variables> here) {
    const auto directory = engine.lock();
    if (directory)
      directory->from_outside([&] {
        if (const auto self = caf::actor_cast<caf::actor>(weak))
          caf::anon_send(self, ValuesCame{from, std::make_shared<const Result<Directory::Variables>>(here)});
      });
  });
}

void ResourceActor::came(const ValuesCame& m) {
  if (cuts_ && m.here->ok())
    for (const auto& [name, value] : **m.here)
      cuts_->for_each(
          [&, &name = name, &value = value](Container& container) { container.replace(m.from->at(name), value); });
  auto held = std::exchange(held_, {});
  if (!m.here->ok() && !held.empty()) {
    answer(held.front().tag, m.here->error());
    held.pop_front();
  }
  for (ResourceUse& request : held)
    if (waiting_.erase(key(request.tag)) > 0) use(std::move(request));  // else it was cancelled
}

void ResourceActor::run(ResourceUse&& request) {
  const RequestTag tag = request.tag;
  if (!resource_) return gather(tag, closed(why_closed_));
  const auto now = [this] { return home_system().clock().now(); };
  const auto begin = request.timed ? now() : caf::actor_clock::time_point();
  const std::shared_ptr<WorkTimer> timer = std::move(request.timer);
  if (timer) timer->begin();
  if (cuts_) {
    cuts_->apply(tag.step, [&](Container& container, bool last) {
      return last ? execute(request, container) : execute_on_copy(request, container);
    });
  } else {
    (void)execute(request, *resource_).ok();
  }
  if (timer) timer->end();
  const bool measured = timer || request.timed;
  if (ResourceAnswer* given = measured && !current_ ? answer_given(tag) : nullptr) {
    given->timer = timer;
    if (request.timed) given->ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now() - begin).count();
  }
  keep_waiting();
}

std::function<void(Result<Directory::Variables>)> ResourceActor::at_host(
    std::function<void(Result<Directory::Variables>)> done) const {
  if (!directory_->bring_to_host) return done;
  return [bring = directory_->bring_to_host, done = std::move(done)](Result<Directory::Variables> variables) {
    if (variables.ok()) bring(std::move(*variables), done);
    else done(std::move(variables));
  };
}

Status ResourceActor::execute(ResourceUse& request, Resource& resource) {
  const RequestTag tag = request.tag;
  if (request.kernel->answers_at_once()) {
    auto& kernel = static_cast<AnsweringKernel&>(*request.kernel);
    asked_at_once_.inputs = std::move(request.inputs);
    if (asked_at_once_.allocator != request.asks->allocator) asked_at_once_.allocator = request.asks->allocator;
    asked_at_once_.gpu = request.asks->gpu;
    auto outputs = guarded([&] { return kernel.answer(resource, asked_at_once_); });
    asked_at_once_.inputs.clear();
    Status status = outputs.status();
    gather(tag, std::move(outputs));
    return status;
  }
  current_ = key(tag);
  Status thrown = guarded_call([&] {
    request.kernel->execute(resource,
                            {std::move(request.inputs), request.asks->allocator, Reply(port_, tag), request.asks->gpu});
  });
  if (!thrown.ok() && current_) answer(tag, thrown.error());  // not moved: it is looked at again
  if (current_) return {};
  ResourceAnswer* given = answer_given(tag);
  if (!given) return {};
  // A request that was dropped on the way out was answered by that.
  if (!thrown.ok() && !given->outputs.ok()) given->outputs = std::move(thrown.error());
  return given->outputs.status();
}

Status ResourceActor::execute_on_copy(const ResourceUse& request, Container& copy) {
  struct Kept final : ReplySink {
    Status status;
    void deliver(const RequestTag&, Result<std::vector<Tensor>> outputs) override { status = outputs.status(); }
  } kept;
  Status thrown = guarded_call([&] {
    request.kernel->execute(copy,
                            {request.inputs, request.asks->allocator, Reply(kept, request.tag), request.asks->gpu});
  });
  return thrown.ok() ? kept.status : thrown;
}

void ResourceActor::keep_waiting() {
  if (current_) waiting_.insert(*std::exchange(current_, {}));
}

void ResourceActor::cancel(uint64_t requester, int64_t step) {
  if (resource_) attempt([&] { resource_->cancel(requester, step); });
  for (auto at = waiting_.lower_bound({requester, step, 0, 0}); at != waiting_.end();) {
    const auto [from, of_step, node, iteration] = *at++;
    if (from != requester || of_step != step) break;
    answer({from, of_step, node, iteration}, make_error(Code::kCancelled, "step {} was cancelled", step));
  }
}

void ResourceActor::close(const std::string& why) {
  if (resource_) why_closed_ = why;
  while (!waiting_.empty()) {
    const auto [requester, step, node, iteration] = *waiting_.begin();
    answer({requester, step, node, iteration}, make_error(Code::kCancelled, "{}", why_closed_));
  }
  cuts_.reset();
  (void)guarded_call([&] { resource_.reset(); }).ok();
  hosted_ = nullptr;
  held_.clear();
  for (const auto& [question, actor] : asked_)
    if (actor) send(actor, CancelUses{number_, static_cast<int64_t>(question)});
  asked_.clear();
  settle();
  if (number_) directory_->remove_asking(std::exchange(number_, 0));
}

ResourceAnswer* ResourceActor::answer_given(const RequestTag& tag) {
  // Others may have been answered behind it: what waited for what this one did.
  auto& answers = tag.requester < answers_.size() ? answers_[tag.requester] : answers_to_hosts_;
  const auto at = std::find_if(answers.rbegin(), answers.rend(),
                               [&](const ResourceAnswer& answer) { return key(answer.tag) == key(tag); });
  return at == answers.rend() ? nullptr : &*at;
}

void ResourceActor::answer(const RequestTag& tag, Result<std::vector<Tensor>> outputs) {
  if (current_ == key(tag)) current_.reset();
  else if (waiting_.erase(key(tag)) == 0) return;  // answered before
  gather(tag, std::move(outputs));
}

void ResourceActor::gather(const RequestTag& tag, Result<std::vector<Tensor>> outputs) {
  if (tag.requester >= answers_.size()) {
    answers_to_hosts_.push_back({tag, std::move(outputs)});
    return;
  }
  auto& answers = answers_[tag.requester];
  if (answers.empty()) answered_.push_back(static_cast<uint32_t>(tag.requester));
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
    waiting_.insert(key(tag));
    answer(tag, std::move(host.error()));
    return questions_;
  }
  const RequestTag tag = question(*host);
  send(*host, AskResource{std::make_shared<ResourceQuestion>(ResourceQuestion{std::move(use), tag})});
  return questions_;
}

void ResourceActor::withdraw(uint64_t question) {
  if (const auto at = asked_.find(question); at != asked_.end() && at->second)
    send(at->second, CancelUses{number_, static_cast<int64_t>(question)});
}

uint64_t ResourceActor::run_blocking(Job job) {
  const RequestTag tag = question({});
  directory_->blocking->run_job(std::move(job), tag);
  return questions_;
}

Status ResourceActor::start_blocking(Job job) { return directory_->blocking->start(std::move(job)); }

std::function<void()> ResourceActor::waker() {
  return [jobs = directory_->blocking, weak = address()] { jobs->wake(weak); };
}

void ResourceActor::settle() {
  if (silent_) return;
  for (const uint32_t requester : std::exchange(answered_, {}))
    directory_->tell_device(
        requester,
        ResourceAnswers{std::make_shared<std::vector<ResourceAnswer>>(std::exchange(answers_[requester], {}))},
        context());
  for (ResourceAnswer& answer : std::exchange(answers_to_hosts_, {}))
    if (const caf::actor host = directory_->asking(answer.tag.requester)) {
      auto answers = std::make_shared<std::vector<ResourceAnswer>>();
      answers->push_back(std::move(answer));
      send(host, ResourceAnswers{std::move(answers)});
    }
  bool wants = false;
  if (resource_ && !will_work_) attempt([&] { wants = resource_->wants_work(); });
  if (!wants) return;
  will_work_ = true;
  send(this, Work{});
}

}  // namespace troupe
