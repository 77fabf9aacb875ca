// SPDX-License-Identifier: Apache-2.0
#include "actors/network_link.h"

#include <cstring>
#include <set>

#include "actors/lender.h"
#include "troupe/graph_def.h"

namespace troupe {
namespace {

/// The bytes of a string as a tensor.
Result<Tensor> as_tensor(const std::string& bytes) {
  TROUPE_ASSIGN(Tensor out, Tensor::make(DType::kUInt8, Shape{static_cast<int64_t>(bytes.size())}));
  std::memcpy(out.mutable_raw(), bytes.data(), bytes.size());
  return out;
}

/// What asks a task that, a frame for each lane that it takes.
Status make_frames(uint64_t request, const ContainerAsk& ask, std::vector<std::pair<uint32_t, net::FrameRef>>& out) {
  if (ask.kind == ContainerAsk::Kind::kSnapshot) {
    net::SnapshotContainer message{request, ask.container};
    message.steps.assign(ask.steps.begin(), ask.steps.end());
    for (uint32_t lane = 0; lane < kPeerLanes; ++lane) {
      TROUPE_ASSIGN(auto frame, net::make_frame(message));
      out.emplace_back(lane, std::move(frame));
    }
    return {};
  }
  if (ask.kind == ContainerAsk::Kind::kReset) {
    TROUPE_ASSIGN(auto frame, net::make_frame(net::ResetContainer{request, ask.container}));
    out.emplace_back(0, std::move(frame));
    return {};
  }
  if (ask.kind == ContainerAsk::Kind::kRestart) {
    TROUPE_ASSIGN(auto frame, net::make_frame(net::RestartDataset{request, ask.dataset}));
    out.emplace_back(0, std::move(frame));
    return {};
  }
  net::RestoreContainer message{request, ask.container};
  std::vector<Tensor> tensors;
  for (const auto& [name, value] : ask.variables) {
    message.names.push_back(name);
    tensors.push_back(value);
  }
  TROUPE_ASSIGN(auto frame, net::make_frame(message, std::move(tensors)));
  out.emplace_back(frame->bytes() > kMostUrgentBytes ? 1 : 0, std::move(frame));
  return {};
}

}  // namespace

void Network::Link::add_program(PartProgram program) {
  auto frame = register_frame(program);
  auto partners = partners_of(program);
  const std::lock_guard guard(mutex_);
  partners_[program.program] = std::move(partners);
  if (frame.ok()) {
    programs_[program.program] = *frame;
    if (actor_) caf::anon_send(actor_, SendFrame{0, *frame});
  } else {
    faults_[program.program] = frame.error();
  }
}

void Network::Link::drop_program(uint64_t program) {
  net::FrameRef gone;
  const std::lock_guard guard(mutex_);
  faults_.erase(program);
  partners_.erase(program);
  if (auto kept = programs_.extract(program)) gone = std::move(kept.mapped());
  if (actor_ && gone) network_.tell(actor_, net::make_frame(net::ReleaseProgram{program, 0}));
}

void Network::Link::drop_session(uint64_t session) {
  const std::lock_guard guard(mutex_);
  if (actor_) network_.tell(actor_, net::make_frame(net::ReleaseProgram{0, session}));
}

void Network::Link::run(PartRun run) {
  net::RunProgram message;
  message.program = run.program;
  message.step = static_cast<uint64_t>(run.step);
  message.oldest = static_cast<uint64_t>(run.oldest);
  message.random_step = run.random_step;
  if (run.check_numerics) message.flags |= net::RunProgram::kCheckNumerics;
  if (run.trace) message.flags |= net::RunProgram::kTrace;
  if (run.costs) message.flags |= net::RunProgram::kTime;
  auto frame = net::make_frame(message, std::move(run.feeds));
  Error refused;
  if (!frame.ok()) {
    refused = frame.error();
    refused.message = fmt::format("its feeds cannot be sent to {}: {}", task_name(task_), refused.message);
  }
  Lender lender(network_.engine().system());
  bool asked = false;
  {
    // No task that is asked becomes another life while it is seen to be connected.
    const std::scoped_lock guard(network_.mutex_, mutex_);
    const auto partners = partners_.find(run.program);
    const auto apart =
        actor_ && partners != partners_.end() ? network_.apart_from(task_, partners->second) : std::nullopt;
    if (const auto fault = faults_.find(run.program); fault != faults_.end()) {
      refused = fault->second;
    } else if (apart) {
      refused =
          make_error(Code::kUnavailable, "{}: it is not connected to {} yet", task_name(task_), task_name(*apart));
    } else if (frame.ok() && actor_) {
      auto done = answered_once(std::move(run.done), was_lost());
      AskStep ask{*frame, run.step, std::make_shared<PartRun::Done>(std::move(done))};
      if ((*frame)->bytes() > kMostUrgentBytes) caf::anon_send(actor_, std::move(ask));
      else lender.tell(actor_, std::move(ask));
      asked = true;
    } else if (frame.ok()) {
      refused = why_not_;
    }
  }
  if (asked) lender.run();
  else run.done(std::move(refused));
}

void Network::Link::abort(int64_t step, const Error& error) {
  const std::lock_guard guard(mutex_);
  if (actor_) network_.tell(actor_, net::make_frame(net::AbortRun{static_cast<uint64_t>(step), error}));
}

void Network::Link::ask(ContainerAsk ask) {
  const uint64_t request = ++requests_;
  ask.done = answered_once(std::move(ask.done), was_lost());
  AskContainer message{{}, request, std::make_shared<ContainerAsk>(std::move(ask))};
  const Status made = make_frames(request, *message.ask, message.frames);
  Error refused;
  if (!made.ok()) {
    refused = made.error();
    refused.message = fmt::format("this cannot be asked of {}: {}", task_name(task_), refused.message);
  } else {
    const std::lock_guard guard(mutex_);
    if (actor_) {
      caf::anon_send(actor_, std::move(message));
      return;
    }
    refused = why_not_;
  }
  message.ask->done(std::move(refused));
}

void Network::Link::up(const caf::actor& actor) {
  const std::lock_guard guard(mutex_);
  actor_ = actor;
  for (const auto& [program, frame] : programs_) caf::anon_send(actor_, SendFrame{0, frame});
}

void Network::Link::down(const Error& why) {
  const std::lock_guard guard(mutex_);
  actor_ = nullptr;
  why_not_ = why;
}

std::vector<net::TaskId> Network::Link::partners_of(const PartProgram& program) const {
  std::set<net::TaskId> out;
  for (const CutEdge& edge : program.cut->edges) {
    if (edge.from != program.part && edge.to != program.part) continue;
    const auto& other = program.cut->parts[edge.from == program.part ? edge.to : edge.from];
    if (const auto id = network_.task_id(other.task); id.ok() && *id != network_.self()) out.insert(*id);
  }
  return {out.begin(), out.end()};
}

Result<net::FrameRef> Network::Link::register_frame(const PartProgram& program) const {
  const StepPart& part = program.cut->parts[program.part];
  net::RegisterProgram message;
  message.program = program.program;
  message.session = program.session;
  message.timed_steps = program.timed_steps;
  for (const auto& [index, output] : part.feeds) message.feeds.push_back(output.name());
  for (const auto& [index, output] : part.fetches) message.fetches.push_back(output.name());
  for (const CutEdge& edge : program.cut->edges) {
    if (edge.from != program.part && edge.to != program.part) continue;
    const bool outgoing = edge.from == program.part;
    TROUPE_ASSIGN(const net::TaskId peer, network_.task_id(program.cut->parts[outgoing ? edge.to : edge.from].task));
    message.edges.push_back({edge.edge, peer, outgoing});
  }
  const std::string graph = to_graph_def(*part.graph);
  if (graph.empty()) return make_error(Code::kResourceExhausted, "the part of {} is over 2 GiB", part.task);
  TROUPE_ASSIGN(Tensor bytes, as_tensor(graph));
  return net::make_frame(message, {std::move(bytes)});
}

}  // namespace troupe
