// SPDX-License-Identifier: Apache-2.0
// Firing nodes: the hot path of the engine. Invariants in executor.h; how steps begin and end: executor_steps.cpp; what
// devices that run on need: executor_runs_on.cpp.
#include "devices/executor.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "devices/measurements.h"
#include "devices/parallel.h"
#include "devices/run_kernel.h"

namespace troupe {
namespace {

bool waits_for_input(const StepState& s) { return s.input_unanswered > 0; }
bool waits_for_other(const StepState& s) { return !s.blocking.empty() || s.unanswered > s.input_unanswered; }

/// Lists of tensors kept for requests at most, and the longest that is kept.
constexpr size_t kSpareLists = 256, kLongestSpare = 16;

template <class T> bool all_finite(const Tensor& t) {
  const T* v = t.data<T>();
  return std::all_of(v, v + t.elements(), [](T x) { return std::isfinite(static_cast<float>(x)); });
}

Status check_finite(const Tensor& t, uint32_t output) {
  const bool finite = t.dtype() == DType::kFloat32    ? all_finite<float>(t)
                      : t.dtype() == DType::kFloat64  ? all_finite<double>(t)
                      : t.dtype() == DType::kBFloat16 ? all_finite<bfloat16>(t)
                      : t.dtype() == DType::kFloat16  ? all_finite<float16>(t)
                                                      : true;
  if (!finite) return invalid_argument("output {} is the first with a NaN or infinity: {}", output, t.str());
  return {};
}

/// Large graphs do not fit the cache. A plan is laid out in the order of firing, so only what nodes read lies anywhere:
/// it is asked for in time, first the slots, then the values they hold.
void fetch_ahead(const StepState& s) {
  const PartitionPlan& plan = *s.plan;
  const auto& values = s.iterations[0]->values;
  const size_t waiting = plan.control_flow ? 0 : s.ready.size();
  if (waiting > 8) {
    const PlanNode& node = plan.nodes[s.ready.ahead(8).node];
    for (uint32_t i = 0; i < std::min<uint32_t>(node.num_inputs, 2); ++i)
      __builtin_prefetch(&values[plan.input_slots[node.first_input + i]], 1);
  }
  if (waiting > 4) {
    const PlanNode& node = plan.nodes[s.ready.ahead(4).node];
    for (uint32_t i = 0; i < std::min<uint32_t>(node.num_inputs, 2); ++i)
      values[plan.input_slots[node.first_input + i]].prefetch();
  }
}

/// Whether a node of a device that runs on has all outputs in the host's memory, and so is done.
bool is_at_host(const StepState& s, Ready at) {
  const PlanNode& node = s.plan->nodes[at.node];
  const auto& values = s.iterations[at.iteration]->values;
  for (uint32_t i = 0; i < node.num_outputs; ++i)
    if (const Tensor& t = values[node.first_output + i]; !t.defined() || t.space() != Space::kHost) return false;
  return node.kind == NodeKind::kCompute && node.num_outputs > 0;
}

bool asks(NodeKind kind) { return kind == NodeKind::kResource || kind == NodeKind::kBlocking; }

/// What a firing shows as in traces; `at_host`: all of it was done then.
TraceEvent::Kind kind_of_firing(NodeKind node, bool at_host) {
  using Kind = TraceEvent::Kind;
  if (asks(node)) return Kind::kAsk;
  if (node == NodeKind::kSend) return Kind::kSend;
  if (node == NodeKind::kRecv) return Kind::kReceive;
  return !at_host && (node == NodeKind::kCompute || node == NodeKind::kCopy) ? Kind::kLaunch : Kind::kRun;
}

/// Of a node that asks.
const Kernel& kernel_of(const StepPlan& plan, const PlanNode& node) {
  if (node.kind == NodeKind::kResource) return *node.resource;
  return *plan.blocking[node.blocking];
}

}  // namespace

Executor::Executor(uint32_t index, Device& device, Outbox& outbox, Counters& counters)
    : index_(index), device_(device), info_(device.info), outbox_(outbox), counters_(counters) {}

Executor::~Executor() = default;

// -- messages ---------------------------------------------------------------------------------------------------------

void Executor::tensors_ready(std::vector<ReadyTensor> tensors) {
  for (ReadyTensor& t : tensors) {
    if (StepState* s = find(t.call->id)) receive(*s, std::move(t));
    else if (!t.call->failed()) early_[t.call->id].push_back(std::move(t));
  }
}

void Executor::answered(std::vector<ResourceAnswer> answers) {
  StepState* s = nullptr;
  for (ResourceAnswer& answer : answers) {
    if (!s || s->call->id != answer.tag.step) s = find(answer.tag.step);
    if (!s) continue;  // it failed, and did not wait for this
    if (answer.tag.node == kMark) {
      --s->unanswered;
      s->mark = Mark::kPassed;
      if (!answer.outputs.ok()) fail(*s, nullptr, std::move(answer.outputs.error()));
      continue;
    }
    const PlanNode& node = s->plan->nodes[answer.tag.node];
    const Ready at{answer.tag.node, answer.tag.iteration};
    const bool looked_at = !s->checked.empty() && s->checked.contains({at.node, at.iteration});  // else it asked
    if (node.kind == NodeKind::kBlocking && !looked_at) {
      const auto waiting = std::ranges::find(s->blocking, answer.tag.node);
      TROUPE_CHECK(waiting != s->blocking.end());
      s->blocking.erase(waiting);
    } else {
      TROUPE_CHECK(s->unanswered > 0);
      --s->unanswered;
    }
    Iteration& in = *s->iterations[answer.tag.iteration];
    const bool asked = asks(node.kind) && !looked_at;
    if (s->call->trace && asked) trace(*s, answer.tag.node, TraceEvent::Kind::kAnswer, outbox_.now_ns(), 0);
    if (asked && s->input_unanswered > 0 && node.kind == NodeKind::kResource &&
        in.values[s->plan->input_slots[node.first_input]].data<ResourceRef>()[0]->input)
      --s->input_unanswered;
    const Node* graph_node = s->plan->graph_nodes[answer.tag.node];
    if (s->stopped) {
      // What was asked may have been answered before; what a card had yet to do was not done.
      if (!answer.outputs.ok() || !asked) waited_for(*s, answer.tag.node);
      continue;
    }
    if (!answer.outputs.ok()) {
      fail(*s, graph_node, std::move(answer.outputs.error()));
    } else if (looked_at) {
      output_is_here(*s, at, (*answer.outputs)[0]);
    } else if (node.kind == NodeKind::kWait) {
      complete(*s, at);
    } else if (node.kind == NodeKind::kCopy) {
      in.values[node.first_output] = std::move((*answer.outputs)[0]);
      if (answer.timer) keep_timer(*s, answer.tag.node, std::move(answer.timer), 0);
      complete(*s, at);
    } else if (Status right = check_outputs(*graph_node, kernel_of(*s->call->plan, node), *answer.outputs);
               !right.ok()) {
      fail(*s, graph_node, std::move(right.error()));
    } else {
      for (uint32_t i = 0; i < node.num_outputs; ++i)
        in.values[node.first_output + i] = std::move((*answer.outputs)[i]);
      const size_t room = answer.outputs->capacity();
      if (spare_lists_.size() < kSpareLists && room > 0 && room <= kLongestSpare) {
        answer.outputs->clear();
        spare_lists_.push_back(std::move(*answer.outputs));
      }
      if (s->call->check_numerics) [[unlikely]] {
        if (Status finite = check_numerics(in, node); !finite.ok()) {
          fail(*s, graph_node, std::move(finite.error()));
          continue;
        }
      }
      if (answer.ns > 0) measure(*s->plan, answer.tag.node, answer.ns, output_bytes(node, in));
      if (answer.timer) keep_timer(*s, answer.tag.node, std::move(answer.timer), output_bytes(node, in));
      if (s->call->check_numerics && device_.traits.runs_on && look_at_outputs(*s, at, 0)) continue;
      complete(*s, at);
    }
  }
}

void Executor::may_send() {
  for (const auto& s : active_) s->held = false;
  for (const auto& [id, s] : parked_) s->held = false;
}

// -- running ----------------------------------------------------------------------------------------------------------

bool Executor::run(int64_t quantum_ns, Turn turn) {
  if (active_.empty()) return false;
  if (turn == Turn::kLent && !device_.traits.direct) return true;
  const int64_t begin = outbox_.now_ns();
  if (waiting_since_ > 0) {
    counters_.input_wait_ns.fetch_add(begin - waiting_since_, std::memory_order_relaxed);
    waiting_since_ = 0;
  }
  const Team::Turn helped(team_);

  int64_t fired = 0, counted = 0;
  int64_t now = begin, counted_until = begin;
  const auto count = [&] {
    counters_.busy_ns.fetch_add(now - std::exchange(counted_until, now), std::memory_order_relaxed);
    counters_.nodes.fetch_add(fired - std::exchange(counted, fired) + std::exchange(fired_at_once_, 0),
                              std::memory_order_relaxed);
  };
  for (size_t i = 0; i < active_.size();)
    if (!finish_if_done(*active_[i])) ++i;
  const bool many = active_.size() > kMostActive;
  // A turn fires nodes for as long as it takes to begin and end it, or each node would cost a look at all steps.
  const int64_t least = many && turn == Turn::kOwn ? kLookNs * static_cast<int64_t>(active_.size()) : 0;
  quantum_ns = std::max(quantum_ns, least);
  StepState* favourite = turn == Turn::kOwn ? favoured(begin) : nullptr;
  if (many) gather(turn, favourite);
  const auto next = [&](StepState* last) {
    if (favourite && can_fire(*favourite)) return favourite;
    return many ? next_choice(last, turn) : next_step(turn);
  };
  StepState* s = nullptr;
  while (!work_ && now - begin <= quantum_ns && fired < kMostFired && (s = next(s))) {
    const bool heavy = s->ready.empty();
    now = run_step(*s, now, begin + quantum_ns, fired, turn);
    if (s->stopped || s->left == 0) count();  // it may end here, and its caller may ask
    if (finish_if_done(*s)) {
      if (s == favourite) favourite = nullptr;
      s = nullptr;
    }
    if (heavy && now - begin >= least && outbox_.messages_wait()) break;
  }
  flush();
  const bool more = !work_ && std::ranges::any_of(active_, [](const auto& a) { return can_fire(*a); });
  if (more) ++turn_;

  now = outbox_.now_ns();
  count();
  if (active_.size() > kMostActive) park();
  if (!more && !idle()) {
    // Only input is missing when some step waits for a queue or iterator and none for anything else.
    const bool input =
        parked_for_input_ > 0 || std::ranges::any_of(active_, [](auto& s) { return waits_for_input(*s); });
    const bool other =
        parked_for_other_ > 0 || std::ranges::any_of(active_, [](auto& s) { return waits_for_other(*s); });
    if (input && !other) waiting_since_ = now;
  }
  return more;
}

bool Executor::may_fire(const StepState& s, Turn turn) const {
  if (turn == Turn::kOwn) return true;
  const uint32_t node = (s.ready.empty() ? first_heavy(s) : s.ready.ahead(0)).node;
  return s.plan->nodes[node].kind != NodeKind::kCompute || is_for_lent_thread(s, node);
}

bool Executor::is_for_lent_thread(const StepState& s, uint32_t node) const {
  // Other threads would help it, and have to be woken: no saving.
  const uint32_t cost = s.plan->cost_ns[node].load(std::memory_order_relaxed);
  return info_.threads == 1 && cost > 0 && cost <= PartitionPlan::kHeavyNs;
}

bool Executor::is_timed(const StepState& s, Ready at) {
  if (s.call->trace || !s.plan->control_flow) return true;
  const Iteration& in = *s.iterations[at.iteration];
  if (in.dead[at.node - in.first_node]) return false;  // it does not run
  if (at.iteration == 0) return true;
  return s.plan->nodes[at.node].kind < NodeKind::kSwitch && s.firings[at.node] < kTimedFirings;
}

int Executor::next_priority(const StepState& s) {
  return s.plan->priorities.empty() ? 0 : s.plan->priorities[s.heavy.front().node];
}

int Executor::urgency(const StepState& s) {
  if (s.plan->priorities.empty() || s.plan->by_cost) return 0;
  if (!s.heavy.empty()) return next_priority(s);
  return s.has_run_by ? *s.has_run_by : *std::ranges::max_element(s.plan->priorities);
}

StepState* Executor::favoured(int64_t now) {
  // A simulated device does as the simulation says.
  if (active_.size() < 2 || device_.traits.ordered) return nullptr;
  if (now >= look_again_ns_) {
    StepState* first = nullptr;
    int most = std::numeric_limits<int>::min();
    for (const auto& s : active_) {
      if (!can_fire(*s)) {
        s->passed_over = 0;
        continue;
      }
      const int priority = urgency(*s);
      s->has_run_by.reset();
      ++s->passed_over;
      if (priority > most) first = nullptr;
      most = std::max(most, priority);
      if (priority == most && s->passed_over > 1 && (!first || s->passed_over > first->passed_over)) first = s.get();
    }
    favoured_ = first ? first->call->id : -1;
    favoured_until_ns_ = now + kFavourNs;
    look_again_ns_ = now + kPatienceNs;
  }
  return favoured_ >= 0 && now < favoured_until_ns_ ? find_active(favoured_) : nullptr;
}

StepState* Executor::next_step(Turn turn) {
  StepState* first = nullptr;
  int priority = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    StepState& s = *active_[(turn_ + i) % active_.size()];
    if (!s.stopped && !s.held && !s.ready.empty() && may_fire(s, turn)) return &s;
  }
  for (const auto& s : active_) {
    // One that has cheap nodes is here where these are not for a lent thread.
    if (s->stopped || s->held || s->heavy.empty() || !s->ready.empty() || !may_fire(*s, turn)) continue;
    const int own = next_priority(*s);
    if (!first || own > priority) {
      first = s.get();
      priority = own;
    }
  }
  return first;
}

void Executor::gather(Turn turn, const StepState* but) {
  choices_.cheap.clear();
  choices_.next = 0;
  choices_.heavy.clear();
  for (size_t i = 0; i < active_.size(); ++i) {
    StepState& s = *active_[(turn_ + i) % active_.size()];
    if (&s == but) continue;
    if (!s.stopped && !s.held && !s.ready.empty()) choices_.cheap.push_back(&s);
    else (void)gather_heavy(s, turn);
  }
  std::make_heap(choices_.heavy.begin(), choices_.heavy.end());
}

bool Executor::gather_heavy(StepState& s, Turn turn) {
  if (s.stopped || s.held || s.heavy.empty() || !s.ready.empty() || !may_fire(s, turn)) return false;
  choices_.heavy.push_back({next_priority(s), s.call->id, &s});
  return true;
}

StepState* Executor::next_choice(StepState* last, Turn turn) {
  const auto goes_on = [&](const StepState& s) {
    return !s.stopped && !s.held && !s.ready.empty() && may_fire(s, turn);
  };
  if (last && goes_on(*last)) return last;
  if (last && gather_heavy(*last, turn)) std::push_heap(choices_.heavy.begin(), choices_.heavy.end());
  while (choices_.next < choices_.cheap.size())
    if (StepState* const s = choices_.cheap[choices_.next++]; goes_on(*s)) return s;
  if (choices_.heavy.empty()) return nullptr;
  std::pop_heap(choices_.heavy.begin(), choices_.heavy.end());
  StepState* const first = choices_.heavy.back().state;
  choices_.heavy.pop_back();
  return first;
}

int64_t Executor::run_step(StepState& s, int64_t now, int64_t until, int64_t& fired, Turn turn) {
  const bool heavy = s.ready.empty();
  s.passed_over = 0;
  int until_clock = kClockEvery;
  do {
    Ready at;
    if (heavy) {
      at = pop_heavy(s);
      if (const auto& priorities = s.plan->priorities; !priorities.empty())
        s.has_run_by = std::max(s.has_run_by.value_or(priorities[at.node]), static_cast<int>(priorities[at.node]));
      flush();
    } else {
      fetch_ahead(s);
      at = s.ready.pop();
    }
    if (s.plan->control_flow && s.iterations[at.iteration]->in_order) {
      now = run_in_order(s, at, now, until, fired, turn);
      continue;
    }
    ++fired;
    s.timing = s.timed && is_timed(s, at);
    if (s.timing) {
      const int64_t before = outbox_.now_ns();
      double bytes = 0;
      const bool done = fire(s, at);
      const bool at_host = !device_.traits.runs_on || (done && is_at_host(s, at));
      if (done) {
        bytes = output_bytes(s.plan->nodes[at.node], *s.iterations[at.iteration]);
        complete(s, at);
      }
      now = outbox_.now_ns();
      if (done && at_host) measure(*s.plan, at.node, now - before, bytes);
      if (!work_) {  // else it ends later
        if (!device_.traits.runs_on) learn_cost(s.plan->cost_ns[at.node], now - before);
        if (s.call->trace && s.plan->nodes[at.node].kind != NodeKind::kWait)
          trace(s, at.node, kind_of_firing(s.plan->nodes[at.node].kind, at_host), before, now);
      }
    } else {
      if (fire(s, at)) complete(s, at);
      if (heavy || --until_clock <= 0) {
        now = outbox_.now_ns();
        until_clock = kClockEvery;
      }
    }
  } while (!heavy && !work_ && !s.stopped && !s.held && !s.ready.empty() && may_fire(s, turn) && now <= until &&
           fired < kMostFired);
  return now;
}

namespace {

/// Whether b comes before a: by priority, then by the order of the plan.
auto later_than(const StepState& s) {
  return [&priorities = s.plan->priorities](Ready a, Ready b) {
    if (!priorities.empty() && priorities[a.node] != priorities[b.node]) return priorities[a.node] < priorities[b.node];
    return a.node != b.node ? a.node > b.node : a.iteration > b.iteration;
  };
}

}  // namespace

void Executor::push_apart(StepState& s, Ready at) {
  if (s.ordered && s.plan->nodes[at.node].kind != NodeKind::kCompute) return s.ready.push(at);
  s.heavy.push_back(at);
  if (s.ordered) std::ranges::push_heap(s.heavy, later_than(s));
}

Ready Executor::pop_heavy(StepState& s) {
  if (s.ordered) std::ranges::pop_heap(s.heavy, later_than(s));
  const Ready at = s.heavy.back();
  s.heavy.pop_back();
  return at;
}

bool Executor::fire(StepState& s, Ready at) {
  const PlanNode& node = s.plan->nodes[at.node];
  Iteration& in = *s.iterations[at.iteration];
  if (s.plan->control_flow) {
    if (node.kind >= NodeKind::kSwitch || in.dead[at.node - in.first_node]) {
      fire_control(s, at);
      return false;
    }
    if (!s.firings.empty()) ++s.firings[at.node];
  }
  if (!device_.traits.direct && (node.kind == NodeKind::kCompute || node.kind == NodeKind::kResource))
    return fire_apart(s, at, node);
  switch (node.kind) {
    case NodeKind::kCompute: return compute(s, in, node, at.node, s.plan->input_slots.data() + node.first_input);
    case NodeKind::kConst: in.values[node.first_output] = *node.constant; return true;
    case NodeKind::kSend:
      send(s, at, node, node.num_inputs ? in.values[s.plan->input_slots[node.first_input]] : Tensor(), false);
      return true;
    case NodeKind::kResource: return fire_resource(s, at, node);
    case NodeKind::kCopy: return fire_copy(s, at, node);
    case NodeKind::kWait: return fire_wait(s, at);
    case NodeKind::kBlocking: fire_blocking(s, at, node); return false;
    default: return true;  // kNoOp; kRecv, whose value is there
  }
}

bool Executor::compute(StepState& s, Iteration& in, const PlanNode& node, uint32_t index, const uint32_t* inputs) {
  KernelContext context(in.values.data(), in.uses, inputs, node.num_inputs, node.first_output, node.num_outputs, info_,
                        s.call->id, s.call->random_step);
  Status status = run_kernel(*node.compute, context);
  if (node.compute->checked && status.ok()) [[unlikely]]
    status = check_outputs(*s.plan->graph_nodes[index], *node.compute,
                           std::span(in.values).subspan(node.first_output, node.num_outputs));
  if (status.ok() && s.call->check_numerics) status = check_numerics(in, node);
  if (status.ok()) [[likely]]
    return true;
  fail(s, s.plan->graph_nodes[index], std::move(status.error()));
  return false;
}

bool Executor::fire_apart(StepState& s, Ready at, const PlanNode& node) {
  Iteration& in = *s.iterations[at.iteration];
  KernelContext context(in.values.data(), in.uses, s.plan->input_slots.data() + node.first_input, node.num_inputs,
                        node.first_output, node.num_outputs, info_, s.call->id, s.call->random_step);
  const bool computes = node.kind == NodeKind::kCompute;
  std::shared_ptr<WorkTimer> timer = computes ? timer_for(s) : nullptr;
  if (timer) timer->begin();
  auto ran = device_.run(*s.plan->graph_nodes[at.node], computes ? node.compute : nullptr, context,
                         std::span(in.values).subspan(node.first_output, node.num_outputs));
  if (timer) timer->end();
  Status status;
  if (!ran.ok()) status = std::move(ran.error());
  else if (computes && node.compute->checked)
    status = check_outputs(*s.plan->graph_nodes[at.node], *node.compute,
                           std::span(in.values).subspan(node.first_output, node.num_outputs));
  const bool look = status.ok() && computes && s.call->check_numerics;
  if (look) status = check_numerics(in, node);
  if (!status.ok()) {
    fail(s, s.plan->graph_nodes[at.node], std::move(status.error()));
    return false;
  }
  if (timer && !is_at_host(s, at)) keep_timer(s, at.node, std::move(timer), output_bytes(node, in));
  if (look && device_.traits.runs_on) return !look_at_outputs(s, at, 0);
  if (ran->ns > 0) {
    work_ = Work{s.call->id, at, *ran, outbox_.now_ns()};
    ++s.unanswered;
    return false;
  }
  return !ran->asks || fire_resource(s, at, node);
}

bool Executor::look_at_outputs(StepState& s, Ready at, uint32_t first) {
  const PlanNode& node = s.plan->nodes[at.node];
  const Iteration& in = *s.iterations[at.iteration];
  for (uint32_t i = first; i < node.num_outputs; ++i) {
    const Tensor& value = in.values[node.first_output + i];
    if (value.space() == Space::kHost || !is_floating(value.dtype())) continue;
    if (Status status = device_.copy_out(value, {index_, s.call->id, at.node, at.iteration}, nullptr); !status.ok()) {
      fail(s, s.plan->graph_nodes[at.node], std::move(status.error()));
      return true;
    }
    s.checked[{at.node, at.iteration}] = i;
    ++s.unanswered;
    return true;
  }
  return false;
}

void Executor::output_is_here(StepState& s, Ready at, const Tensor& value) {
  const auto waiting = s.checked.extract({at.node, at.iteration});
  TROUPE_CHECK(!waiting.empty());
  const uint32_t output = waiting.mapped();
  if (Status finite = check_finite(value, output); !finite.ok())
    return fail(s, s.plan->graph_nodes[at.node], std::move(finite.error()));
  if (!look_at_outputs(s, at, output + 1)) complete(s, at);
}

void Executor::work_ended() {
  const Work work = *std::exchange(work_, {});
  counters_.busy_ns.fetch_add(work.ran.ns, std::memory_order_relaxed);
  StepState* s = find(work.step);
  TROUPE_CHECK(s && !s->stopped && s->unanswered > 0);
  --s->unanswered;
  const PlanNode& node = s->plan->nodes[work.at.node];
  learn_cost(s->plan->cost_ns[work.at.node], work.ran.ns);
  measure(*s->plan, work.at.node, work.ran.ns, output_bytes(node, *s->iterations[work.at.iteration]));
  if (s->call->trace) {
    const int64_t ended = work.begin_ns + work.ran.ns;
    trace(*s, work.at.node, TraceEvent::Kind::kRun, work.begin_ns, ended);
    if (work.ran.asks) trace(*s, work.at.node, TraceEvent::Kind::kAsk, ended, ended);
  }
  if (!work.ran.asks || fire_resource(*s, work.at, node)) complete(*s, work.at);
}

void Executor::send(StepState& s, Ready at, const PlanNode& node, Tensor value, bool dead) {
  if (node.to.partition >= kPeer) [[unlikely]] {
    if (node.to.partition == kCaller) return hand_out(s, node.to.node, std::move(value), dead);
    if (value.defined()) value.freeze();
    s.held |= s.call->sink->sent(node.to.node, std::move(value), dead, path_of(s, at.iteration));
    return;
  }
  const uint32_t device = s.call->plan->partitions[node.to.partition].device;
  sends_[device].push_back({s.call, node.to.node, std::move(value), dead});
  if (at.iteration > 0) sends_[device].back().iterations = path_of(s, at.iteration);
}

bool Executor::fire_resource(StepState& s, Ready at, const PlanNode& node) {
  // To stop the step is on its way: what it took of a resource now would be lost.
  if (s.call->failed()) return stop(s), false;
  if (node.num_inputs == 0) {
    fail(s, s.plan->graph_nodes[at.node],
         invalid_argument("its kernel uses a resource, but the node has no input 0 to be the handle of one"));
    return false;
  }
  Iteration& in = *s.iterations[at.iteration];
  ResourceUse use{node.resource, {}, &info_, {index_, s.call->id, at.node, at.iteration}};
  use.timed = s.timing && device_.traits.direct;
  use.timer = timer_for(s);
  if (!spare_lists_.empty()) {
    use.inputs = std::move(spare_lists_.back());
    spare_lists_.pop_back();
  }
  use.inputs.reserve(node.num_inputs);
  for (uint32_t i = 0; i < node.num_inputs; ++i) {
    const uint32_t slot = s.plan->input_slots[node.first_input + i];
    // The last reader hands the tensor over, so that the host may keep it or write in place; the handle stays, the
    // answer is matched by it.
    if (i > 0 && in.uses[slot] == 1) use.inputs.push_back(std::move(in.values[slot]));
    else use.inputs.push_back(in.values[slot]);
  }
  const Tensor& handle = use.inputs[0];
  if (handle.dtype() != DType::kResource || handle.elements() != 1 || !handle.data<ResourceRef>()[0]) {
    fail(s, s.plan->graph_nodes[at.node],
         invalid_argument("input 0 must be a handle of a resource, not {}", handle.str()));
    return false;
  }
  const ResourceRef& ref = handle.data<ResourceRef>()[0];  // goes with the request
  const bool input = ref->input;
  Status status = outbox_.use_resource(*s.call, ref, std::move(use));
  if (!status.ok()) {
    fail(s, s.plan->graph_nodes[at.node], std::move(status.error()));
    return false;
  }
  uses_gathered_ = true;
  ++s.unanswered;
  if (input) ++s.input_unanswered;
  return false;
}

void Executor::fire_blocking(StepState& s, Ready at, const PlanNode& node) {
  const Iteration& in = *s.iterations[at.iteration];
  BlockingRequest request{{}, info_.allocator, s.call->id, s.call->random_step};
  for (uint32_t i = 0; i < node.num_inputs; ++i)
    request.inputs.push_back(in.values[s.plan->input_slots[node.first_input + i]]);
  outbox_.run_blocking(
      {s.call, s.call->plan->blocking[node.blocking], std::move(request), {index_, s.call->id, at.node, at.iteration}});
  s.blocking.push_back(at.node);
}

void Executor::complete(StepState& s, Ready at) {
  const PartitionPlan& plan = *s.plan;
  if (plan.control_flow) return complete_control(s, at, false, -1, s.timing ? AtOnce::kNone : AtOnce::kControl);
  Iteration& in = *s.iterations[0];
  const PlanNode& node = plan.nodes[at.node];
  in.let_go(node, plan.input_slots.data() + node.first_input);
  const uint32_t* end = plan.successors.data() + plan.nodes[at.node + 1].first_successor;
  for (const uint32_t* next = plan.successors.data() + node.first_successor; next != end; ++next)
    if (--in.pending[*next] == 0) push(s, {*next, 0});
  --s.left;
}

void Executor::trace(const StepState& s, uint32_t node, TraceEvent::Kind kind, int64_t begin_ns, int64_t end_ns) const {
  s.call->trace->add({kind, s.plan->graph_nodes[node], index_, s.call->id, begin_ns, end_ns});
}

void Executor::receive(StepState& s, ReadyTensor tensor) {
  if (s.stopped) return;
  if (tensor.iterations.empty()) put(s, 0, std::move(tensor));
  else receive_in_loop(s, std::move(tensor));
}

bool Executor::put(StepState& s, uint32_t iteration, ReadyTensor tensor) {
  Iteration& in = *s.iterations[iteration];
  const uint32_t local = tensor.node - in.first_node;
  if (in.pending[local] != 1) return false;
  in.values[s.plan->nodes[tensor.node].first_output] = std::move(tensor.value);
  if (tensor.dead) in.dead[local] = true;
  in.pending[local] = 0;
  push(s, {tensor.node, iteration});
  return true;
}

Status Executor::check_numerics(const Iteration& in, const PlanNode& node) const {
  for (uint32_t i = 0; i < node.num_outputs; ++i)
    if (const Tensor& t = in.values[node.first_output + i]; t.space() == Space::kHost)
      TROUPE_RETURN_IF_ERROR(check_finite(t, i));
  return {};
}

void Executor::flush() {
  for (auto& [device, tensors] : sends_)
    if (!tensors.empty()) outbox_.send_tensors(device, std::exchange(tensors, {}));
  if (std::exchange(uses_gathered_, false)) outbox_.flush_uses();
}

StepState* Executor::find_active(int64_t step) {
  const auto id = [](const std::unique_ptr<StepState>& s) { return s->call->id; };
  const auto at = std::ranges::lower_bound(active_, step, {}, id);
  return at != active_.end() && id(*at) == step ? at->get() : nullptr;
}

StepState* Executor::find(int64_t step) {
  if (StepState* const active = find_active(step)) return active;
  const auto at = parked_.find(step);
  if (at == parked_.end()) return nullptr;
  std::unique_ptr<StepState> state = std::move(at->second);
  parked_.erase(at);
  parked_for_input_ -= waits_for_input(*state);
  parked_for_other_ -= waits_for_other(*state);
  return &activate(std::move(state));
}

StepState& Executor::activate(std::unique_ptr<StepState> state) {
  const auto later = std::ranges::upper_bound(active_, state->call->id, {}, [](const auto& s) { return s->call->id; });
  return **active_.insert(later, std::move(state));
}

void Executor::park() {
  size_t kept = 0;
  for (std::unique_ptr<StepState>& s : active_) {
    const bool under_way = s->stopped ? s->unanswered > 0 : s->left > 0 || s->mark == Mark::kAsked;
    if (!under_way || !s->ready.empty() || !s->heavy.empty()) {
      if (&active_[kept] != &s) active_[kept] = std::move(s);
      ++kept;
      continue;
    }
    parked_for_input_ += waits_for_input(*s);
    parked_for_other_ += waits_for_other(*s);
    const int64_t id = s->call->id;
    parked_.emplace(id, std::move(s));
  }
  active_.erase(active_.begin() + static_cast<ptrdiff_t>(kept), active_.end());
}

void Executor::unpark() {
  for (auto& [id, s] : parked_) active_.push_back(std::move(s));
  parked_.clear();
  parked_for_input_ = parked_for_other_ = 0;
  std::ranges::sort(active_, {}, [](const auto& s) { return s->call->id; });
}

}  // namespace troupe
