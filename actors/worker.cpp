// SPDX-License-Identifier: Apache-2.0
#include "actors/worker.h"

#include <algorithm>
#include <unordered_set>

#include "actors/messages.h"
#include "actors/step_timer.h"
#include "base/steady_clock.h"
#include "containers/container.h"
#include "graph/feed_check.h"
#include "ops/input/iterator_resource.h"
#include "troupe/guarded.h"

namespace troupe {

/// Where a part's step sends what goes to other tasks or, of a partial part, to its caller.
class Worker::Sink final : public StepSink {
 public:
  Sink(Worker& worker, uint64_t client, int64_t step, std::shared_ptr<const Planned> program,
       std::shared_ptr<PartCaller> caller)
      : worker_(worker), client_(client), step_(step), program_(std::move(program)), caller_(std::move(caller)) {}
  void fetched(uint32_t fetch, Tensor value) override { caller_->fetched(fetch, std::move(value)); }
  Error dead(uint32_t fetch) override { return caller_->dead(fetch); }
  bool sent(uint32_t edge, Tensor value, bool dead, std::vector<uint32_t> iterations) override {
    return worker_.host_.send(program_->program.sends.at(edge),
                              {client_, step_, edge, std::move(value), dead, std::move(iterations)});
  }

 private:
  Worker& worker_;
  const uint64_t client_;
  const int64_t step_;
  const std::shared_ptr<const Planned> program_;
  const std::shared_ptr<PartCaller> caller_;  // of a partial part
};

Worker::Program local_program(const PartProgram& part) {
  const StepPart& own = part.cut->parts[part.part];
  Worker::Program out;
  out.timed_steps = part.timed_steps;
  out.partial = own.partial;
  out.graph = std::shared_ptr<const Graph>(part.cut, own.graph.get());
  for (const auto& [index, output] : own.feeds) out.feeds.push_back(output);
  for (const auto& [index, output] : own.fetches) out.fetches.push_back(output);
  for (const CutEdge& e : part.cut->edges) {
    if (e.from == part.part) out.sends[e.edge] = part.cut->parts[e.to].task;
    if (e.to == part.part) out.receives[e.edge] = part.cut->parts[e.from].task;
  }
  return out;
}

void Worker::add_program(uint64_t client, uint64_t number, uint64_t session, Read read) {
  auto planned = std::make_shared<Planned>();
  std::shared_ptr<KernelCache> kernels;
  std::vector<PartRun> waiting;
  uint64_t visit = 0;
  std::vector<Client> forgotten;  // when the mutex is free again
  {
    std::lock_guard guard(mutex_);
    if (closed_) return;
    Client& c = clients_[client];
    if (c.visit == 0 || std::exchange(c.gone, false)) {
      c.visit = ++last_visit_;
      forget_strays(forgotten);
    }
    visit = c.visit;
    auto& kept = c.kernels[session];
    if (!kept) kept = std::make_shared<KernelCache>();
    kernels = kept;
    c.programs[number] = planned;
    c.newest_program = std::max(c.newest_program, number);
    std::erase_if(c.waiting, [&](PartRun& run) {
      const bool its = run.program == number;
      if (its) waiting.push_back(std::move(run));
      return its;
    });
  }
  if (host_.datasets) host_.datasets->came(visit);
  for (PartRun& r : waiting) run(client, std::move(r));
  const Status begun = host_.run_job([self = shared_from_this(), client, planned, read, kernels] {
    const std::shared_ptr<void> engine = self->host_.engine.lock();
    self->plan(client, planned, read, *kernels);
  });
  if (!begun.ok())
    plan(
        client, planned, [&]() -> Result<Program> { return begun.error(); }, *kernels);
}

void Worker::forget_strays(std::vector<Client>& out) {
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto c = at++;
    if (c->second.visit == 0 && c->second.waiting.empty()) out.push_back(std::move(clients_.extract(c).mapped()));
  }
}

void Worker::plan(uint64_t client, const std::shared_ptr<Planned>& planned, const Read& read, KernelCache& kernels) {
  Program program;
  const auto made = guarded([&]() -> Result<std::shared_ptr<const StepPlan>> {
    TROUPE_ASSIGN(program, read());
    return make(program, kernels);
  });
  std::vector<PartRun> waiting;
  {
    std::lock_guard guard(mutex_);
    planned->program = std::move(program);
    if (made.ok()) planned->plan = *made;
    else planned->error = made.error();
    planned->ready = true;
    waiting.swap(planned->waiting);
  }
  for (PartRun& run : waiting) begin(client, planned, std::move(run));
}

Result<std::shared_ptr<const StepPlan>> Worker::make(const Program& program, KernelCache& kernels) const {
  std::unordered_set<const Node*> fed;
  for (const Output& feed : program.feeds) fed.insert(feed.node);
  std::vector<const Node*> all;
  for (int id = 0; id < program.graph->size(); ++id)
    if (const Node& node = program.graph->node(id); !fed.contains(&node)) all.push_back(&node);
  PlanContext context{.kernels = host_.kernels, .devices = host_.devices, .passes = GraphPasses::none()};
  context.timed_steps = program.timed_steps;
  context.part = true;
  context.partial = program.partial;
  TROUPE_ASSIGN(auto plan, make_plan(*program.graph, program.feeds, program.fetches, all, context, kernels));
  for (const PartitionPlan& partition : plan->partitions)
    for (uint32_t i = 0; i < partition.size(); ++i)
      if (const PlanNode& node = partition.nodes[i];
          node.kind == NodeKind::kSend && node.to.partition == kPeer && !program.sends.contains(node.to.node))
        return invalid_argument("edge {} is sent to no task", node.to.node);
  for (const EdgeReceiver& edge : plan->edges)
    if (!program.receives.contains(edge.edge)) return invalid_argument("edge {} comes from no task", edge.edge);
  return plan;
}

void Worker::drop_program(uint64_t client, uint64_t number) {
  std::shared_ptr<Planned> gone;  // when the mutex is free again
  std::lock_guard guard(mutex_);
  const auto c = clients_.find(client);
  if (c == clients_.end()) return;
  const auto at = c->second.programs.find(number);
  if (at == c->second.programs.end()) return;
  gone = std::move(at->second);
  c->second.programs.erase(at);
}

void Worker::run(uint64_t client, PartRun run, Lender* lender) {
  std::shared_ptr<Planned> planned;
  std::vector<EdgeValue> old;  // go when the mutex is free again
  Error refused;
  {
    std::lock_guard guard(mutex_);
    if (!closed_) {
      Client& c = clients_[client];
      forget_before(c, run.oldest, old);
      const auto at = c.programs.find(run.program);
      if (const auto aborted = c.aborted.find(run.step); aborted != c.aborted.end()) {
        refused = aborted->second;
        c.ended.insert(run.step);
        c.aborted.erase(aborted);
      } else if (at == c.programs.end() && run.program > c.newest_program) {
        c.waiting.push_back(std::move(run));
        return;
      } else if (at == c.programs.end()) {
        refused = make_error(Code::kNotFound, "the task has no program {} of this client", run.program);
      } else if (c.steps.contains(run.step)) {
        refused = make_error(Code::kAlreadyExists, "step {} is under way already", run.step);
      } else {
        planned = at->second;
        Step& step = c.steps[run.step];
        step.id = host_.next_step.fetch_add(1, std::memory_order_relaxed);
        // Before its first use of a resource, or a snapshot would be torn.
        host_.directory->steps.reserve(step.id, this);
        step.program = planned;
        step.done = std::move(run.done);
        step.costs = run.costs;
        step.came_ns = steady_ns();
        if (auto early = c.early.extract(run.step)) step.early = std::move(early.mapped());
        if (!planned->ready) {
          planned->waiting.push_back(std::move(run));
          return;
        }
      }
    } else {
      refused = why_closed_;
    }
  }
  if (!planned) return run.done(std::move(refused));
  begin(client, planned, std::move(run), lender);
}

void Worker::forget_before(Client& c, int64_t oldest, std::vector<EdgeValue>& out) {
  if (oldest <= c.oldest) return;
  c.oldest = oldest;
  c.ended.erase(c.ended.begin(), c.ended.lower_bound(oldest));
  c.aborted.erase(c.aborted.begin(), c.aborted.lower_bound(oldest));
  for (auto at = c.early.begin(); at != c.early.end() && at->first < oldest; at = c.early.erase(at))
    std::ranges::move(at->second, std::back_inserter(out));
}

void Worker::begin(uint64_t client, const std::shared_ptr<Planned>& planned, PartRun run, Lender* lender) {
  const int64_t number = run.step;
  const auto refuse = [&](Error error) { ended(client, number, std::move(error)); };
  if (!planned->plan) return refuse(planned->error);
  const StepPlan& plan = *planned->plan;
  if (!plan.partial && run.feeds.size() != plan.feeds.size())
    return refuse(invalid_argument("{} values for {} feeds of the part", run.feeds.size(), plan.feeds.size()));
  for (size_t i = 0; i < run.feeds.size(); ++i) {
    if (Status fits = check_feed(plan.feeds[i], run.feeds[i]); !fits.ok()) return refuse(std::move(fits.error()));
    run.feeds[i].freeze();
  }
  int64_t id = -1;
  {
    std::lock_guard guard(mutex_);
    if (const Step* step = find(client, number)) id = step->id;
  }
  if (id < 0) return;  // it was aborted, and has been answered
  const std::shared_ptr<Directory> directory = host_.directory;
  StepRef call(new StepCall(
      id, planned->plan, std::move(run.feeds), run.check_numerics,
      [self = shared_from_this(), client, number](Result<std::vector<Tensor>> result) {
        self->ended(client, number, std::move(result));
      },
      run.trace ? std::make_shared<Trace>() : nullptr, run.random_step));
  call->sink = std::make_shared<Sink>(*this, client, number, planned, run.caller);
  std::vector<EdgeValue> early;
  {
    std::lock_guard guard(mutex_);
    Step* const step = find(client, number);
    if (!step) return;  // it was aborted, and has been answered
    step->call = call;
    early.swap(step->early);
    directory->steps.set(call);
  }
  const bool begun = directory->from_outside([&] {
    for (const PartitionPlan& partition : plan.partitions)
      directory->tell_device_by(lender, partition.device, RunStep{partition.device, call});
  });
  if (!begun) call->fail(make_error(Code::kCancelled, "the engine is being destroyed"));
  if (!begun || plan.partitions.empty()) return call->finish();
  if (run.caller) run.caller->begun(call);
  for (EdgeValue& value : early) deliver(call, std::move(value), lender);
}

Worker::Step* Worker::find(uint64_t client, int64_t number) {
  const auto c = clients_.find(client);
  if (c == clients_.end()) return nullptr;
  const auto step = c->second.steps.find(number);
  return step == c->second.steps.end() ? nullptr : &step->second;
}

void Worker::ended(uint64_t client, int64_t number, Result<std::vector<Tensor>> result) {
  Step step;
  uint64_t visit = 0;
  Client gone;  // when the mutex is free again
  {
    std::lock_guard guard(mutex_);
    const auto c = clients_.find(client);
    if (c == clients_.end()) return;
    const auto at = c->second.steps.find(number);
    if (at == c->second.steps.end()) return;  // it was aborted before it began
    step = std::move(at->second);
    c->second.steps.erase(at);
    if (number >= c->second.oldest) c->second.ended.insert(number);
    if (c->second.gone && c->second.steps.empty()) visit = let_go(c, gone);
  }
  answer(step, std::move(result));
  step = {};
  gone = {};
  if (visit != 0) went(visit);
}

uint64_t Worker::let_go(std::map<uint64_t, Client>::iterator at, Client& out) {
  Client& c = at->second;
  c.gone = false;
  const uint64_t visit = std::exchange(c.visit, 0);
  // Else its next life has begun, though its first program has not come.
  if (c.waiting.empty() && c.early.empty() && c.aborted.empty()) out = std::move(clients_.extract(at).mapped());
  return visit;
}

void Worker::answer(Step& step, Result<std::vector<Tensor>> result) {
  const std::shared_ptr<Directory> directory = host_.directory;
  if (step.id >= 0) directory->steps.ended(step.id);
  PartEnd end(std::move(result));
  end.began_ns = step.came_ns;
  end.ended_ns = steady_ns();
  if (step.call && step.call->trace)
    for (const TraceEvent& e : step.call->trace->take())
      end.trace.push_back(
          {static_cast<uint8_t>(e.kind), e.node->name(), host_.devices[e.device].name, e.begin_ns, e.end_ns});
  if (step.costs && step.call) end.costs = costs_of(*step.call->plan);
  if (step.done) step.done(std::move(end));
  if (step.id >= 0) directory->steps.answered();
}

std::vector<net::CostRecord> Worker::costs_of(const StepPlan& plan) const {
  std::vector<net::CostRecord> out;
  for (const PartitionPlan& partition : plan.partitions) {
    const std::string kind = kind_of(host_.devices[partition.device]);
    for (uint32_t i = 0; i < partition.size(); ++i) {
      const PartitionPlan::Measured& m = partition.measured[i];
      if (const uint32_t firings = m.firings.load(std::memory_order_acquire))
        out.push_back({partition.graph_nodes[i]->name(), kind, m.ns.load(std::memory_order_relaxed),
                       m.bytes.load(std::memory_order_relaxed), firings, m.in_step.load(std::memory_order_relaxed)});
    }
  }
  return out;
}

void Worker::received(EdgeValue value, Lender* lender) {
  StepRef call;
  {
    std::lock_guard guard(mutex_);
    const auto c = clients_.find(value.client);
    if (closed_ || (c != clients_.end() && value.step < c->second.oldest)) return;
    // It may be the first that is heard of a client: a value takes another way than what its client says.
    Client& client = c == clients_.end() ? clients_[value.client] : c->second;
    const auto step = client.steps.find(value.step);
    if (step == client.steps.end()) {
      if (client.ended.contains(value.step)) return;
      client.early[value.step].push_back(std::move(value));
      return;
    }
    if (!step->second.call) {
      step->second.early.push_back(std::move(value));
      return;
    }
    call = step->second.call;
  }
  deliver(call, std::move(value), lender);
}

Status Worker::check(const EdgeReceiver* receiver, const EdgeValue& value) {
  if (!receiver) return invalid_argument("nothing here receives edge {}", value.edge);
  if (value.iterations.size() != receiver->depth)
    return invalid_argument("edge {} is in {} loops, but what came for it is in {}", value.edge, receiver->depth,
                            value.iterations.size());
  if (value.dead) {
    if (receiver->conditional) return {};
    return invalid_argument("edge {} is in no branch, but what came for it is dead", value.edge);
  }
  if (value.value.defined() != receiver->has_value)
    return invalid_argument("edge {} brings {}, but {} came", value.edge,
                            receiver->has_value ? "a tensor" : "no tensor", value.value.defined() ? "one" : "none");
  if (receiver->has_value &&
      (value.value.dtype() != receiver->dtype || !receiver->shape.compatible(value.value.shape())))
    return invalid_argument("edge {} brings {}{}, but {}{} came", value.edge, to_string(receiver->dtype),
                            receiver->shape.str(), to_string(value.value.dtype()), value.value.shape().str());
  return {};
}

void Worker::deliver(const StepRef& call, EdgeValue value, Lender* lender) {
  const auto& edges = call->plan->edges;
  const auto at = std::ranges::lower_bound(edges, value.edge, {}, &EdgeReceiver::edge);
  const EdgeReceiver* receiver = at != edges.end() && at->edge == value.edge ? &*at : nullptr;
  Status right = check(receiver, value);
  host_.directory->from_outside([&] {
    if (!right.ok()) return abort_step(call, std::move(right.error()), *host_.directory);
    const uint32_t device = call->plan->partitions[receiver->partition].device;
    auto tensors = std::make_shared<std::vector<ReadyTensor>>();
    tensors->push_back({call, receiver->node, std::move(value.value), value.dead, std::move(value.iterations)});
    host_.directory->tell_device_by(lender, device, TensorsReady{device, std::move(tensors)});
  });
}

void Worker::abort(uint64_t client, int64_t number, const Error& error) {
  PartRun unheard;
  {
    std::lock_guard guard(mutex_);
    const auto c = clients_.find(client);
    if (closed_ || c == clients_.end() || number < c->second.oldest) return;
    if (!c->second.steps.contains(number)) {
      if (c->second.ended.contains(number)) return;
      auto& waiting = c->second.waiting;
      const auto at = std::ranges::find(waiting, number, &PartRun::step);
      if (at == waiting.end()) {
        c->second.aborted.emplace(number, error);
        return;
      }
      unheard = std::move(*at);
      waiting.erase(at);
      c->second.ended.insert(number);
    }
  }
  if (unheard.done) return unheard.done(error);
  end_steps([&](uint64_t c, int64_t n, const Step&) { return c == client && n == number; }, error);
}

void Worker::cannot_send(uint64_t client, int64_t number, uint32_t edge, Error error) {
  std::shared_ptr<const Graph> graph;
  {
    std::lock_guard guard(mutex_);
    if (const Step* step = find(client, number); step && step->program) graph = step->program->program.graph;
  }
  for (int id = 0; graph && id < graph->size(); ++id) {
    const Node& node = graph->node(id);
    if (node.op().control_flow() != ControlFlow::kSend || node.inputs().empty()) continue;
    if (node.attrs().at<int64_t>("edge") != edge) continue;
    const Node& sender = *node.inputs()[0].node;
    error.node = sender.name();
    error.op = sender.op().name();
    error.device = sender.device();
    break;
  }
  abort(client, number, error);
}

void Worker::end_steps(const Which& which, const Error& why) {
  std::vector<StepRef> calls;
  std::vector<Step> waiting;  // for their plans
  {
    std::lock_guard guard(mutex_);
    for (auto& [id, client] : clients_) {
      std::erase_if(client.waiting, [&, id = id](PartRun& run) {
        Step step;
        const bool its = which(id, run.step, step);
        if (its) waiting.emplace_back().done = std::move(run.done);
        return its;
      });
      for (auto at = client.steps.begin(); at != client.steps.end();) {
        const auto step = at++;
        if (!which(id, step->first, step->second)) continue;
        if (step->second.call) {
          calls.push_back(step->second.call);
          continue;
        }
        waiting.push_back(std::move(step->second));
        client.ended.insert(step->first);
        client.steps.erase(step);
      }
    }
  }
  host_.directory->from_outside([&] {
    for (const StepRef& call : calls) abort_step(call, why, *host_.directory);
  });
  for (Step& step : waiting) answer(step, why);
}

void Worker::ask(uint64_t client, ContainerAsk ask) {
  // What fails while the task ends fails for that: who asks is to see a task that left.
  auto told = [self = shared_from_this(), done = std::move(ask.done)](Result<ContainerAsk::Variables> result) {
    std::optional<Error> why;
    if (!result.ok()) {
      std::lock_guard guard(self->mutex_);
      if (self->closed_) why = self->why_closed_;
    }
    if (why) done(*std::move(why));
    else done(std::move(result));
  };
  ask.done = answered_once<Result<ContainerAsk::Variables>>(
      std::move(told), make_error(Code::kCancelled, "the container's actor has gone"));
  if (ask.kind == ContainerAsk::Kind::kReset) {
    const std::string why = why_reset(ask.container, " by the client");
    for (const caf::actor& host : host_.directory->remove_container(ask.container))
      caf::anon_send(host, CloseResource{why});
    if (ask.container.empty() && host_.datasets) host_.datasets->reset();
    return ask.done(ContainerAsk::Variables());
  }
  if (ask.kind == ContainerAsk::Kind::kRestart) return restart_dataset(ask.dataset, std::move(ask.done));
  const auto host = host_.container(ask.container);
  if (!host.ok()) return ask.done(host.error());
  if (ask.kind == ContainerAsk::Kind::kSnapshot) {
    TakeSnapshot take{std::move(ask.done), {}, std::move(ask.made)};
    {
      std::lock_guard guard(mutex_);
      for (const int64_t number : ask.steps)
        if (const Step* step = find(client, number)) take.also.push_back(step->id);
    }
    caf::anon_send(*host, std::move(take));
    return;
  }
  for (const auto& [name, tensor] : ask.variables) tensor.freeze();
  const auto done = std::make_shared<ContainerAsk>(std::move(ask));
  caf::anon_send(*host, WithResource{[done](Resource* resource) {
    Status restored = make_error(Code::kFailedPrecondition, "the container was reset");
    if (resource) restored = guarded([&] { return static_cast<Container&>(*resource).restore(done->variables); });
    if (restored.ok()) done->done(ContainerAsk::Variables());
    else done->done(std::move(restored.error()));
  }});
}

void Worker::restart_dataset(const std::string& name, std::function<void(Result<ContainerAsk::Variables>)> done) const {
  const caf::actor host = host_.directory->find(iterator_key(name));
  if (!host) return done(make_error(Code::kNotFound, "there is no dataset '{}'", name));
  caf::anon_send(host, WithResource{[done = std::move(done)](Resource* resource) {
                   Status restarted = make_error(Code::kFailedPrecondition, "the dataset was dropped");
                   if (resource)
                     restarted = guarded(
                         [&]() -> Status { return static_cast<IteratorResource&>(*resource).restart(), Status(); });
                   if (restarted.ok()) done(ContainerAsk::Variables());
                   else done(std::move(restarted.error()));
                 }});
}

void Worker::drop_session(uint64_t client, uint64_t session) {
  std::shared_ptr<KernelCache> gone;  // when the mutex is free again
  std::lock_guard guard(mutex_);
  if (const auto c = clients_.find(client); c != clients_.end())
    if (auto kernels = c->second.kernels.extract(session)) gone = std::move(kernels.mapped());
}

void Worker::drop_client(uint64_t client, const Error& why) {
  std::unordered_map<uint64_t, std::shared_ptr<Planned>> programs;
  std::map<int64_t, std::vector<EdgeValue>> early;
  uint64_t visit = 0;
  Client gone;
  end_steps([&](uint64_t c, int64_t, const Step&) { return c == client; }, why);
  {
    std::lock_guard guard(mutex_);
    const auto c = clients_.find(client);
    if (c == clients_.end()) return;
    programs.swap(c->second.programs);
    early.swap(c->second.early);
    c->second.newest_program = 0;  // if it comes back, it tells of each again
    c->second.aborted.clear();
    c->second.gone = true;
    if (c->second.steps.empty()) visit = let_go(c, gone);
    if (closed_) return;
  }
  programs.clear();
  early.clear();
  gone = {};
  if (visit != 0) went(visit);
}

void Worker::went(uint64_t visit) const {
  if (host_.datasets) host_.datasets->went(visit);
  // The next one may be long in coming, and others may want the memory.
  for (const DeviceInfo& d : host_.devices) d.allocator->trim();
}

void Worker::lost_task(const std::string& task, const Error& why) {
  end_steps(
      [&](uint64_t, int64_t, const Step& step) {
        const auto is_it = [&](const auto& edge) { return edge.second == task; };
        if (!step.program) return false;
        const Program& p = step.program->program;
        return std::ranges::any_of(p.sends, is_it) || std::ranges::any_of(p.receives, is_it);
      },
      why);
}

void Worker::close(const Error& why) {
  {
    std::lock_guard guard(mutex_);
    if (std::exchange(closed_, true)) return;
    why_closed_ = why;
  }
  end_steps([](uint64_t, int64_t, const Step&) { return true; }, why);
}

size_t Worker::running() const {
  std::lock_guard guard(mutex_);
  size_t out = 0;
  for (const auto& [id, client] : clients_) out += client.steps.size();
  return out;
}

}  // namespace troupe
