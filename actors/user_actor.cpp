// SPDX-License-Identifier: Apache-2.0
// Actors of the embedder's as ops, queues and sources: the resource that stands for one, and the ops that ask it.
#include <caf/all.hpp>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "actors/engine_impl.h"
#include "actors/messages.h"
#include "devices/hosted_resource.h"
#include "ops/parts/resource_kernel.h"
#include "troupe/embed.h"

namespace troupe {

using UserOutputs = Result<std::vector<Tensor>>;

/// What comes to an actor's resource from other threads: answers, and the actor's end. Thread-safe.
class ActorInbox {
 public:
  struct Contents {
    /// By request, in the order in which they came; nothing: it was dropped.
    std::vector<std::pair<uint64_t, std::optional<UserOutputs>>> answers;
    Status end;  // of the actor
  };
  explicit ActorInbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void answer(uint64_t request, std::optional<UserOutputs> outputs) {
    {
      std::lock_guard guard(mutex_);
      contents_.answers.emplace_back(request, std::move(outputs));
    }
    wake_();
  }
  void end(Error error) {
    {
      std::lock_guard guard(mutex_);
      contents_.end = std::move(error);
    }
    wake_();
  }
  Contents take() {
    std::lock_guard guard(mutex_);
    return {std::exchange(contents_.answers, {}), contents_.end};
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  Contents contents_;
};

/// What the copies of an ActorReply share.
class ActorReply::State {
 public:
  State(std::shared_ptr<ActorInbox> inbox, std::shared_ptr<std::atomic<bool>> wanted, uint64_t request)
      : inbox_(std::move(inbox)), wanted_(std::move(wanted)), request_(request) {}
  ~State() {
    if (wanted_->exchange(false)) inbox_->answer(request_, std::nullopt);
  }
  bool wanted() const { return wanted_->load(); }
  void answer(UserOutputs outputs) {
    if (!wanted_->exchange(false)) return;
    if (outputs.ok())
      for (const Tensor& t : *outputs) t.freeze();  // now: the caller may write to its own as soon as this returns
    inbox_->answer(request_, std::move(outputs));
  }

 private:
  const std::shared_ptr<ActorInbox> inbox_;
  const std::shared_ptr<std::atomic<bool>> wanted_;
  const uint64_t request_;
};

void ActorReply::operator()(Result<std::vector<Tensor>> outputs) const {
  if (state_) state_->answer(std::move(outputs));
}

bool ActorReply::wanted() const { return state_ && state_->wanted(); }

namespace {

/// What a node expects of its actor.
struct Expected {
  std::vector<DType> dtypes;
  std::vector<PartialShape> shapes;  // empty: any
};

/// Tells an inbox of the end of an actor that it is attached to.
class ActorEnd final : public caf::attachable {
 public:
  ActorEnd(const std::shared_ptr<ActorInbox>& inbox, std::string name)
      : inbox_(inbox), address_(inbox.get()), name_(std::move(name)) {}
  /// By which it can be detached, as long as the inbox is there.
  static token token_of(const ActorInbox& inbox) { return {kSubtype, &inbox}; }

  void actor_exited(const caf::error& reason, caf::execution_unit*) override {
    if (const auto inbox = inbox_.lock())
      inbox->end(make_error(Code::kFailedPrecondition, "the actor '{}' has ended: {}", name_,
                            reason ? caf::to_string(reason) : "it was done"));
  }
  bool matches(const token& what) override { return what.subtype == kSubtype && what.ptr == address_; }

 private:
  static constexpr size_t kSubtype = 0x74726f;  // CAF's own are the first few

  const std::weak_ptr<ActorInbox> inbox_;
  const void* const address_;
  const std::string name_;
};

/// Stands for an actor among the engine's resources: keeps the duty to reply until the actor has answered.
class ActorResource final : public HostedResource {
 public:
  ActorResource(std::string name, caf::actor actor) : name_(std::move(name)), actor_(std::move(actor)) {}
  ~ActorResource() override {
    if (inbox_) actor_->detach(ActorEnd::token_of(*inbox_));
    for (auto& [request, open] : open_)
      finish(open, make_error(Code::kCancelled, "the actor '{}' was taken from the engine", name_));
  }

  void attach(ResourceHost& host) override {
    HostedResource::attach(host);
    inbox_ = std::make_shared<ActorInbox>(host.waker());
    actor_->attach(std::make_unique<ActorEnd>(inbox_, name_));
  }

  void ask(const std::string& call, std::vector<Tensor> inputs, std::shared_ptr<const Expected> expected, Reply reply) {
    if (!end_.ok()) return reply(end_.error());
    for (const Tensor& t : inputs) t.freeze();
    const uint64_t request = ++requests_;
    const int64_t step = reply.tag().step;
    auto wanted = std::make_shared<std::atomic<bool>>(true);
    open_.emplace(request, Open{std::move(reply), wanted, std::move(expected)});
    const auto state = std::make_shared<ActorReply::State>(inbox_, std::move(wanted), request);
    caf::anon_send(actor_, ActorRequest{call, step, std::move(inputs), ActorReply(state)});
  }

  void woken() override {
    ActorInbox::Contents contents = inbox_->take();
    for (auto& [request, answer] : contents.answers) {
      const auto at = open_.find(request);
      if (at == open_.end()) continue;              // its step has ended meanwhile
      if (!answer && !contents.end.ok()) continue;  // dropped as the actor ended, of which all hear below
      UserOutputs outputs = answer ? std::move(*answer) : dropped();
      if (outputs.ok()) {
        if (Status right = check(*outputs, *at->second.expected); !right.ok()) outputs = std::move(right.error());
      }
      finish(at->second, std::move(outputs));
      open_.erase(at);
    }
    end_ = contents.end;
    if (end_.ok()) return;
    for (auto& [request, open] : open_) finish(open, end_.error());
    open_.clear();
  }

  void cancel(uint64_t requester, int64_t step) override {
    for (auto at = open_.begin(); at != open_.end();) {
      const RequestTag& tag = at->second.reply.tag();
      if (tag.requester == requester && tag.step == step) {
        finish(at->second, make_error(Code::kCancelled, "step {} was cancelled", step));
        at = open_.erase(at);
      } else {
        ++at;
      }
    }
  }

 private:
  struct Open {
    Reply reply;
    std::shared_ptr<std::atomic<bool>> wanted;
    std::shared_ptr<const Expected> expected;
  };

  Error dropped() const {
    return make_error(Code::kCancelled, "the actor '{}' dropped the request without an answer, or has ended", name_);
  }
  static void finish(Open& open, UserOutputs outputs) {
    *open.wanted = false;
    open.reply(std::move(outputs));
  }

  Status check(const std::vector<Tensor>& outputs, const Expected& expected) const {
    const auto& [dtypes, shapes] = expected;
    if (outputs.size() != dtypes.size())
      return invalid_argument("the actor '{}' answered with {} tensors, the node has {} outputs", name_, outputs.size(),
                              dtypes.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined()) return invalid_argument("the actor '{}' left output {} empty", name_, i);
      if (outputs[i].dtype() != dtypes[i])
        return invalid_argument("output {} of the actor '{}' is {}, the node expects {}", i, name_,
                                to_string(outputs[i].dtype()), to_string(dtypes[i]));
      if (!shapes.empty() && !shapes[i].compatible(outputs[i].shape()))
        return invalid_argument("output {} of the actor '{}' has shape {}, the node expects {}", i, name_,
                                outputs[i].shape().str(), shapes[i].str());
    }
    return {};
  }

  const std::string name_;
  const caf::actor actor_;
  std::shared_ptr<ActorInbox> inbox_;
  std::map<uint64_t, Open> open_;
  uint64_t requests_ = 0;
  Status end_;
};

class ActorCallKernel final : public ResourceKernel {
 public:
  explicit ActorCallKernel(const KernelInit& init)
      : call_(init.attr<std::string>("call")),
        expected_(std::make_shared<const Expected>(init.attr<std::vector<DType>>("Tout"),
                                                   init.attr<std::vector<PartialShape>>("shapes"))) {}
  void execute(Resource& resource, ResourceRequest request) override {
    auto* actor = core_as<ActorResource>(resource, request, "actor");
    if (!actor) return;
    request.inputs.erase(request.inputs.begin());
    actor->ask(call_, std::move(request.inputs), expected_, std::move(request.reply));
  }

 private:
  const std::string call_;
  const std::shared_ptr<const Expected> expected_;
};

Result<std::unique_ptr<ComputeKernel>> make_actor_handle(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "actor");
  handle.input = init.attr<bool>("input");
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

Status call_shape(ShapeContext& c) {
  const auto& shapes = c.attr<std::vector<PartialShape>>("shapes");
  if (!shapes.empty() && static_cast<int>(shapes.size()) != c.num_outputs())
    return invalid_argument("{} shapes for {} outputs", shapes.size(), c.num_outputs());
  for (int i = 0; i < c.num_outputs(); ++i)
    c.set_output(i, shapes.empty() ? PartialShape::unknown() : shapes[static_cast<size_t>(i)]);
  return {};
}

std::string key_of(const std::string& name) { return "actor//" + name; }

/// The name of the node that stands for an actor: nodes' names lack most characters.
std::string node_name(std::string name) {
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (!plain && (i == 0 || (c != '-' && c != '/'))) name[i] = '_';
  }
  return name;
}

}  // namespace

void register_actor_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(
      OpDef("ActorHandle")
          .output("handle: resource")
          .attr("shared_name: string = ''")
          .attr("container: string = ''")
          .attr("input: bool = false")
          .doc("A handle to the actor that the engine knows as `shared_name` (the node's name when empty). `input`: "
               "time that steps wait for it counts as waiting for input.")
          .shape(scalar_shape)
          .stateful(),
      not_differentiable("a handle is not a number"));
  ops.add(OpDef("ActorCall")
              .input("actor: resource")
              .input("inputs: Tin")
              .output("outputs: Tout")
              .attr("call: string = ''")
              .attr("Tin: list(type) >= 0")
              .attr("Tout: list(type) >= 0")
              .attr("shapes: list(shape) >= 0 = []")
              .doc("Sends its inputs to an actor as an ActorRequest and gives what that answers. `shapes` are those of "
                   "the outputs, unknown where there are none. Fails with what the actor answers, and when it ends.")
              .shape(call_shape)
              .stateful(),
          not_differentiable("what an actor computes is not known"));
  kernels.add("ActorHandle", DeviceKind::kCpu, {}, make_actor_handle);
  kernels.add<ActorCallKernel>("ActorCall", DeviceKind::kCpu, {});
}

Status add_actor(Engine& engine, const std::string& name, const caf::actor& actor) {
  TROUPE_RETURN_IF_ERROR(engine.status());
  if (!actor) return invalid_argument("an empty actor cannot be '{}'", name);
  if (name.empty()) return invalid_argument("the name of an actor is empty");
  if (actor->node() != actor->home_system().node())
    return invalid_argument(
        "the actor for '{}' is of another process, to which no request goes: add one of this "
        "process that asks it, or serve() a session there",
        name);
  return engine.impl().directory->add(key_of(name), std::make_unique<ActorResource>(name, actor));
}

Status remove_actor(Engine& engine, const std::string& name) {
  TROUPE_RETURN_IF_ERROR(engine.status());
  const caf::actor host = engine.impl().directory->remove(key_of(name));
  if (!host) return make_error(Code::kNotFound, "the engine has no actor '{}'", name);
  caf::anon_send(host, CloseResource{fmt::format("actor '{}' was removed", name)});
  return {};
}

const Node* actor_call(const Scope& scope, const std::string& actor, const std::string& call,
                       std::vector<Output> inputs, const std::vector<ActorOutput>& outputs,
                       std::source_location where) {
  if (!scope.graph().ops().find("ActorCall")) {
    scope.fail(make_error(Code::kFailedPrecondition,
                          "actor_call '{}': the graph's engine has no op ActorCall; make it with "
                          "EngineOptions::register_ops = register_actor_ops",
                          actor),
               where);
    return nullptr;
  }
  std::vector<DType> in, out;
  std::vector<PartialShape> shapes;
  for (const Output& o : inputs) in.push_back(o ? o.dtype() : DType::kInvalid);
  for (const ActorOutput& o : outputs) out.push_back(o.dtype), shapes.push_back(o.shape);
  inputs.insert(inputs.begin(), scope.named(node_name(actor)).op("ActorHandle", {}, {{"shared_name", actor}}, where));
  return scope.node("ActorCall", std::move(inputs), {{"call", call}, {"Tin", in}, {"Tout", out}, {"shapes", shapes}},
                    where);
}

}  // namespace troupe
