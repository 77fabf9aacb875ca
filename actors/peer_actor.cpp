// SPDX-License-Identifier: Apache-2.0
#include "actors/peer_actor.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "actors/lender.h"
#include "actors/network.h"
#include "base/engine_thread.h"
#include "base/log.h"
#include "base/steady_clock.h"
#include "net/packed.h"
#include "troupe/graph_def.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

/// What a client is called in its own steps' values.
uint64_t client_of(const net::Incarnation& life) { return life.low; }

/// Whether to act on a frame takes moments, so that the thread that has read it may.
bool is_brief(net::FrameType type) {
  return type == net::FrameType::kRun || type == net::FrameType::kDone || type == net::FrameType::kAbort;
}

/// The step of a frame that brings a value.
std::optional<StepOfClient> step_of_value(const net::EncodedFrame& frame) {
  if (frame.type() != net::FrameType::kTensor) return {};
  const auto value = net::decode<net::EdgeTensor>(frame.body());
  if (!value.ok()) return {};
  return StepOfClient{value->client, value->step};
}

/// The program that a REGISTER brings.
Result<Worker::Program> read_program(const net::RegisterProgram& message, const Tensor& bytes, const OpRegistry& ops) {
  Worker::Program out;
  out.timed_steps = message.timed_steps;
  auto graph = std::make_shared<Graph>(ops);
  if (bytes.dtype() != DType::kUInt8)
    return invalid_argument("a REGISTER brings a graph as bytes, not {}", bytes.str());
  TROUPE_RETURN_IF_ERROR(
      from_graph_def(std::string_view(static_cast<const char*>(bytes.raw()), bytes.bytes()), *graph));
  for (const auto& [names, outputs] :
       {std::pair(&message.feeds, &out.feeds), std::pair(&message.fetches, &out.fetches)})
    for (const std::string& name : *names) {
      TROUPE_ASSIGN(const Output output, graph->output(name));
      outputs->push_back(output);
    }
  for (const net::ProgramEdge& edge : message.edges)
    (edge.outgoing ? out.sends : out.receives)[edge.edge] = task_name(edge.peer);
  out.graph = std::move(graph);
  return out;
}

}  // namespace

PeerActor::PeerActor(caf::actor_config& config, PeerContext context)
    : caf::event_based_actor(config), c_(std::move(context)), heartbeat_(steady_ns(), c_.heartbeat),
      ticked_ns_(steady_ns()) {}

caf::behavior PeerActor::make_behavior() {
  wake();
  return {
      [this](const LaneUp& m) { up(m); },
      [this](const LaneFrames& m) { came(m); },
      [this](const LaneFault& m) { fault(m.why); },
      [this](LaneBroken& m) { broke(m); },
      [this](SendFrame& m) { c_.streams[m.lane]->send(std::move(m.frame)); },
      [this](const FlushLane& m) { c_.streams[m.lane]->flush(); },
      [this](AskStep& m) {
        const uint32_t lane = m.frame->bytes() > kMostUrgentBytes ? 1 : 0;
        asked_.emplace(m.step, Asked{std::move(m.done), steady_ns()});
        c_.streams[lane]->send(std::move(m.frame));
      },
      [this](AskContainer& m) {
        container_asks_.emplace(m.request, std::move(m.ask));
        for (auto& [lane, frame] : m.frames) c_.streams[lane]->send(std::move(frame));
      },
      [this](const PeerTick& m) {
        if (m.at_ns == wakes_at_) tick();  // else an earlier one has come, and has asked for others
      },
      [this](const WakePeer& m) { wake_at(m.at_ns); },
      [this](PeerGone) {
        if (!connected())
          lost(make_error(Code::kUnavailable, "its connection broke, and nobody listens there any more"));
      },
      [this](const LeavePeer& m) { lost(make_error(m.code, "{}", m.reason)); },
  };
}

void PeerActor::on_exit() {
  if (!gone_) lost(make_error(Code::kCancelled, "the engine is being destroyed"));
}

bool PeerActor::connected() const {
  return std::ranges::all_of(c_.streams, [](const auto& stream) { return stream->connected(); });
}

void PeerActor::up(const LaneUp& m) {
  if (gone_) return;
  const std::shared_ptr<PeerStream> stream = c_.streams[m.lane];
  const uint64_t connection = ++connections_;
  const caf::actor self(this);
  LaneHandler::Callbacks callbacks;
  const auto lender = std::make_shared<Lender>(home_system());
  callbacks.frames = [stream, connection, lender, take = taker(m.lane, lender)](auto frames) {
    stream->receive(connection, std::move(frames), steady_ns(), take);
    lender->run();
  };
  callbacks.broken = [weak = self->address(), n = m.lane, connection](Error why) {
    if (const auto peer = caf::actor_cast<caf::actor>(weak))
      caf::anon_send(peer, LaneBroken{n, connection, std::move(why)});
  };
  auto handler = LaneHandler::make(c_.network->multiplexer(), std::move(*m.connection), {{}, c_.network->allocator()},
                                   std::move(callbacks));
  if (const Status fits = stream->connect(connection, std::move(handler), m.resumed, m.received); !fits.ok())
    return lost(fits.error());
  heartbeat_.heard(steady_ns());
  if (connected() && !std::exchange(was_up_, true)) c_.network->is_up(c_);
}

PeerStream::Take PeerActor::taker(uint32_t lane, std::shared_ptr<Lender> lender) {
  // The network and its engine are there for as long as the stream is not closed, which this actor does before it ends.
  return [weak = caf::actor(this)->address(), lane, lender = std::move(lender), &stream = *c_.streams[lane],
          load = c_.load, &network = *c_.network](Result<std::vector<net::ReceivedFrame>> fresh) {
    const EngineThread mark(network.engine().directory.get(), true);
    Status status = fresh.ok() ? Status() : Status(fresh.error());
    auto rest = std::make_shared<std::vector<net::ReceivedFrame>>();
    for (size_t i = 0; status.ok() && i < fresh->size(); ++i) {
      net::ReceivedFrame& received = (*fresh)[i];
      const net::FrameType type = received.frame.type;
      if (type == net::FrameType::kTensor)
        status = guarded([&] { return deliver(network.worker(), received.frame, *lender); });
      else if (type != net::FrameType::kAck) rest->push_back(std::move(received));
    }
    if (load->let_go()) network.engine().may_send();
    const auto wake = stream.wants_tick();
    const bool brief = std::ranges::all_of(*rest, [](const auto& r) { return is_brief(r.frame.type); });
    if (rest->empty() && status.ok() && !wake) return;
    const auto peer = caf::actor_cast<caf::actor>(weak);
    if (!peer) return;
    if (!rest->empty() && brief) lender->tell(peer, LaneFrames{lane, std::move(rest)});
    else if (!rest->empty()) caf::anon_send(peer, LaneFrames{lane, std::move(rest)});
    if (!status.ok()) caf::anon_send(peer, LaneFault{status.error()});
    if (wake) caf::anon_send(peer, WakePeer{*wake});
  };
}

Status PeerActor::deliver(Worker& worker, net::Frame& frame, Lender& lender) {
  TROUPE_ASSIGN(net::EdgeTensor edge, net::decode<net::EdgeTensor>(frame.body));
  TROUPE_ASSIGN(Tensor value, net::unpack(edge.form, std::move(frame.tensors)));
  worker.received({edge.client, static_cast<int64_t>(edge.step), edge.edge, std::move(value), edge.dead,
                   std::move(edge.iterations)},
                  &lender);
  return {};
}

void PeerActor::came(const LaneFrames& m) {
  const EngineThread mark(c_.network->engine().directory.get(), Lender::of(context()) != nullptr);
  heartbeat_.heard(steady_ns());
  for (net::ReceivedFrame& frame : *m.frames) {
    if (gone_) return;
    if (const Status status = handle(m.lane, std::move(frame)); !status.ok()) return fault(status.error());
  }
}

void PeerActor::fault(Error why) {
  // Many may have to be told of the loss.
  if (Lender::of(context())) send(this, LaneFault{std::move(why)});
  else lost(make_error(Code::kUnavailable, "it sent what it should not: {}", why.message));
}

Status PeerActor::handle(uint32_t lane, net::ReceivedFrame received) {
  net::Frame& frame = received.frame;
  switch (frame.type) {
    case net::FrameType::kPing: {
      TROUPE_ASSIGN(const net::Ping ping, net::decode<net::Ping>(frame.body));
      TROUPE_ASSIGN(auto pong, net::make_frame(net::Pong{ping.time, steady_ns()}));
      c_.streams[lane]->send_now(std::move(pong));
      return {};
    }
    case net::FrameType::kPong: {
      TROUPE_ASSIGN(const net::Pong pong, net::decode<net::Pong>(frame.body));
      heartbeat_.pong(pong.time, steady_ns());
      clock_.add(pong.time, pong.now, pong.now, steady_ns());
      return {};
    }
    case net::FrameType::kBye: {
      TROUPE_ASSIGN(const net::Bye bye, net::decode<net::Bye>(frame.body));
      left_ = true;
      lost(make_error(Code::kUnavailable, "it has left: {}", bye.reason));
      return {};
    }
    case net::FrameType::kDone: return done(frame);
    case net::FrameType::kResult: return result(frame);
    case net::FrameType::kPeers: {
      TROUPE_ASSIGN(const net::Peers peers, net::decode<net::Peers>(frame.body));
      c_.network->told_peers(c_.task, peers);
      return {};
    }
    case net::FrameType::kAbort: {
      if (c_.role == net::PeerRole::kClient) break;
      TROUPE_ASSIGN(const net::AbortRun message, net::decode<net::AbortRun>(frame.body));
      return c_.network->told_abort(c_.task, message);
    }
    case net::FrameType::kReady: {
      TROUPE_ASSIGN(const net::Ready ready, net::decode<net::Ready>(frame.body));
      c_.network->told_ready(c_.task, ready);
      return {};
    }
    default: break;
  }
  if (c_.role != net::PeerRole::kClient) return invalid_argument("{} from a task", net::to_string(frame.type));
  return handle_step(received);
}

Status PeerActor::handle_step(net::ReceivedFrame& received) {
  net::Frame& frame = received.frame;
  Worker& worker = c_.network->worker();
  const uint64_t client = client_of(c_.incarnation);
  switch (frame.type) {
    case net::FrameType::kRegister: {
      TROUPE_ASSIGN(auto message, net::decode<net::RegisterProgram>(frame.body));
      if (frame.tensors.size() != 1) return invalid_argument("a REGISTER with {} tensors", frame.tensors.size());
      // Reading a graph takes as long as it takes: where planning is done, and in order before its runs all the same.
      worker.add_program(client, message.program, message.session,
                         [message, bytes = std::move(frame.tensors[0]), network = c_.network]() {
                           return read_program(message, bytes, network->ops());
                         });
      return {};
    }
    case net::FrameType::kRelease: {
      TROUPE_ASSIGN(const auto message, net::decode<net::ReleaseProgram>(frame.body));
      if (message.session) worker.drop_session(client, message.session);
      else worker.drop_program(client, message.program);
      return {};
    }
    case net::FrameType::kRun: {
      TROUPE_ASSIGN(const auto message, net::decode<net::RunProgram>(frame.body));
      PartRun run;
      run.program = message.program;
      run.step = static_cast<int64_t>(message.step);
      run.oldest = static_cast<int64_t>(message.oldest);
      run.feeds = std::move(frame.tensors);
      run.check_numerics = message.flags & net::RunProgram::kCheckNumerics;
      run.random_step = message.random_step;
      run.trace = message.flags & net::RunProgram::kTrace;
      run.costs = message.flags & net::RunProgram::kTime;
      run.done = [peer = caf::actor(this), urgent = c_.streams[0], step = message.step,
                  network = c_.network](PartEnd end) {
        net::StepDone done;
        done.step = step;
        done.costs = std::move(end.costs);
        done.trace = std::move(end.trace);
        done.began_ns = end.began_ns;
        done.now_ns = end.ended_ns;
        std::vector<Tensor> fetches;
        if (end.result.ok()) fetches = std::move(*end.result);
        else done.error = std::move(end.result.error());
        auto frame = net::make_frame(done, std::move(fetches));
        if (!frame.ok()) {
          done = {};
          done.step = step;
          done.error = frame.error();
          done.error->message =
              fmt::format("its fetches cannot be sent from {}: {}", network->engine().task, done.error->message);
          frame = net::make_frame(done);
        }
        if (!frame.ok()) return;
        if ((*frame)->bytes() > kMostUrgentBytes) caf::anon_send(peer, SendFrame{1, std::move(*frame)});
        else urgent->send(std::move(*frame));
      };
      worker.run(client, std::move(run), Lender::of(context()));
      return {};
    }
    case net::FrameType::kAbort: {
      TROUPE_ASSIGN(const auto message, net::decode<net::AbortRun>(frame.body));
      worker.abort(client, static_cast<int64_t>(message.step), message.error);
      return {};
    }
    case net::FrameType::kSnapshot:
    case net::FrameType::kRestore:
    case net::FrameType::kReset:
    case net::FrameType::kRestart: return handle_container(frame);
    default: return invalid_argument("{} is not for a task", net::to_string(frame.type));
  }
}

Status PeerActor::handle_container(net::Frame& frame) {
  ContainerAsk ask;
  uint64_t request = 0;
  if (frame.type == net::FrameType::kSnapshot) {
    TROUPE_ASSIGN(const auto message, net::decode<net::SnapshotContainer>(frame.body));
    request = message.request;
    if (++snapshots_[request] < kPeerLanes) return {};
    snapshots_.erase(request);
    ask.container = message.container;
    ask.steps.assign(message.steps.begin(), message.steps.end());
    ask.made = [peer = caf::actor(this), request] {
      if (auto frame = net::make_frame(net::RequestDone{request, true}); frame.ok())
        caf::anon_send(peer, SendFrame{0, std::move(*frame)});
    };
  } else if (frame.type == net::FrameType::kRestore) {
    TROUPE_ASSIGN(const auto message, net::decode<net::RestoreContainer>(frame.body));
    if (message.names.size() != frame.tensors.size())
      return invalid_argument("a RESTORE of {} names and {} tensors", message.names.size(), frame.tensors.size());
    request = message.request;
    ask.kind = ContainerAsk::Kind::kRestore;
    ask.container = message.container;
    for (size_t i = 0; i < message.names.size(); ++i) ask.variables[message.names[i]] = std::move(frame.tensors[i]);
  } else if (frame.type == net::FrameType::kRestart) {
    TROUPE_ASSIGN(const auto message, net::decode<net::RestartDataset>(frame.body));
    request = message.request;
    ask.kind = ContainerAsk::Kind::kRestart;
    ask.dataset = message.dataset;
  } else {
    TROUPE_ASSIGN(const auto message, net::decode<net::ResetContainer>(frame.body));
    request = message.request;
    ask.kind = ContainerAsk::Kind::kReset;
    ask.container = message.container;
  }
  ask.done = [peer = caf::actor(this), request, network = c_.network](Result<ContainerAsk::Variables> result) {
    net::RequestDone done{request};
    std::vector<Tensor> tensors;
    if (!result.ok()) {
      done.error = std::move(result.error());
    } else {
      for (auto& [name, value] : *result) {
        done.names.push_back(name);
        tensors.push_back(std::move(value));
      }
    }
    auto frame = net::make_frame(done, std::move(tensors));
    if (!frame.ok()) {
      Error why = frame.error();
      why.message = fmt::format("the variables cannot be sent from {}: {}", network->engine().task, why.message);
      frame = net::make_frame(net::RequestDone{request, false, std::move(why)});
    }
    if (!frame.ok()) return;
    const uint32_t lane = (*frame)->bytes() > kMostUrgentBytes ? 1 : 0;
    caf::anon_send(peer, SendFrame{lane, std::move(*frame)});
  };
  c_.network->worker().ask(client_of(c_.incarnation), std::move(ask));
  return {};
}

Status PeerActor::result(net::Frame& frame) {
  TROUPE_ASSIGN(auto message, net::decode<net::RequestDone>(frame.body));
  const auto at = container_asks_.find(message.request);
  if (at == container_asks_.end() && message.made) return {};  // its end has overtaken it
  if (at == container_asks_.end())
    return invalid_argument("request {} was not made, or has been answered", message.request);
  if (message.made) {
    if (at->second->made) at->second->made();
    return {};
  }
  const auto ask = std::move(at->second);
  container_asks_.erase(at);
  if (message.error) {
    ask->done(std::move(*message.error));
    return {};
  }
  if (message.names.size() != frame.tensors.size())
    return invalid_argument("a RESULT of {} names and {} tensors", message.names.size(), frame.tensors.size());
  ContainerAsk::Variables variables;
  for (size_t i = 0; i < message.names.size(); ++i) variables[message.names[i]] = std::move(frame.tensors[i]);
  ask->done(std::move(variables));
  return {};
}

Status PeerActor::done(net::Frame& frame) {
  TROUPE_ASSIGN(auto message, net::decode<net::StepDone>(frame.body));
  const auto at = asked_.find(static_cast<int64_t>(message.step));
  if (at == asked_.end()) return invalid_argument("step {} was not asked for, or has been answered", message.step);
  const Asked asked = std::move(at->second);
  asked_.erase(at);
  PartEnd end(std::move(frame.tensors));
  if (message.error) end.result = std::move(*message.error);
  const int64_t now = steady_ns();
  if (message.began_ns != 0) clock_.add(asked.sent_ns, message.began_ns, message.now_ns, now);
  end.costs = std::move(message.costs);
  end.trace = std::move(message.trace);
  for (net::TraceRecord& record : end.trace) {
    if (record.device.find("/device:sim:") != std::string::npos) continue;  // a clock of its own
    // What a step did lies between its RUN and its DONE, whatever the clocks are thought to show.
    for (int64_t* const time : {&record.begin_ns, &record.end_ns})
      *time = std::clamp(
          static_cast<int64_t>(static_cast<uint64_t>(*time) - static_cast<uint64_t>(clock_.offset_ns().value_or(0))),
          asked.sent_ns, now);
  }
  (*asked.done)(std::move(end));
  return {};
}

void PeerActor::check_speed(int64_t now) {
  // Time in which this process itself stood still is not the peer's.
  const int64_t passed = std::min(now - std::exchange(ticked_ns_, now), 2 * c_.heartbeat.interval_ns);
  for (uint32_t lane = 0; lane < kPeerLanes; ++lane) {
    int64_t& stands_ns = stands_ns_[lane];
    const bool stands = c_.streams[lane]->stands_ns(now) >= std::max<int64_t>(passed, 1);
    const int64_t before = std::exchange(stands_ns, stands ? stands_ns + passed : 0);
    const auto text = [&] {
      return fmt::format("it has taken nothing for {} ms of {} MiB that are on their way to it", stands_ns / 1'000'000,
                         c_.load->bytes() >> 20);
    };
    if (stands_ns >= c_.heartbeat.limit_ns) return lost(make_error(Code::kUnavailable, "{}", text()));
    const int64_t half = c_.heartbeat.limit_ns / 2;
    if (before < half && stands_ns >= half) log_warning("{}: {}", task_name(c_.task), text());
  }
}

void PeerActor::broke(LaneBroken& m) {
  PeerStream& stream = *c_.streams[m.lane];
  if (gone_ || !stream.disconnect(m.connection)) return;
  if (m.why.code == Code::kDataLoss || m.why.code == Code::kResourceExhausted)
    return lost(make_error(Code::kUnavailable, "it sent what cannot be read: {}", m.why.message));
  if (c_.dials) return c_.network->dial_again(c_, m.lane, stream.received());
  // Nothing is lost that would be worth a wait, and a client keeps others from this task.
  const auto any = [&](bool (PeerStream::*is)() const) {
    return std::ranges::any_of(c_.streams, [&](const auto& one) { return ((*one).*is)(); });
  };
  const bool began = c_.role == net::PeerRole::kClient ? any(&PeerStream::heard) : was_up_;
  if (!began && !any(&PeerStream::connected)) lost(make_error(Code::kCancelled, "it has gone before it was connected"));
}

void PeerActor::tick() {
  if (gone_) return;
  wakes_at_ = INT64_MAX;
  const int64_t now = steady_ns();
  // What is under way in a long frame counts.
  for (const auto& stream : c_.streams)
    if (const auto heard = stream->heard_ns()) heartbeat_.heard(std::max(*heard, now - heartbeat_.silence(now)));
  check_speed(now);
  if (gone_) return;
  switch (heartbeat_.tick(now)) {
    case net::Heartbeat::Verdict::kLost: return lost_by_silence(heartbeat_.silence(now) / 1'000'000);
    case net::Heartbeat::Verdict::kPing:
      if (auto ping = net::make_frame(net::Ping{now}); ping.ok()) c_.streams[0]->send_now(std::move(*ping));
      break;
    case net::Heartbeat::Verdict::kQuiet: break;
  }
  redial(now);
  for (const auto& stream : c_.streams)
    if (const auto at = stream->tick(now)) wake_at(*at);
  wake();
}

/// After a cut of which nobody tells, TCP tries an old connection at intervals that double; a new one is there at once.
void PeerActor::redial(int64_t now) {
  const bool silent = heartbeat_.silence(now) >= c_.heartbeat.limit_ns / 2;
  if (std::exchange(redialled_, silent) || !silent || !c_.dials) return;
  for (uint32_t lane = 0; lane < kPeerLanes; ++lane)
    if (c_.streams[lane]->connected()) c_.network->dial_again(c_, lane, c_.streams[lane]->received());
}

void PeerActor::wake() { wake_at(heartbeat_.next()); }

void PeerActor::wake_at(int64_t at) {
  if (at >= wakes_at_ || gone_) return;
  wakes_at_ = at;
  delayed_send(this, std::chrono::nanoseconds(std::max<int64_t>(at - steady_ns(), 0)), PeerTick{at});
}

void PeerActor::lost_by_silence(int64_t ms) {
  lost(make_error(Code::kUnavailable, "nothing came from it for {} ms", ms),
       fmt::format("nothing came from {} for {} ms", task_name(c_.task), ms));
}

void PeerActor::lost(Error why, std::string told) {
  if (std::exchange(gone_, true)) return;
  if (told.empty()) told = why.message;
  // What was under way is given up here, so the peer must not go on from there if it is alive.
  const auto lane =
      std::ranges::find_if(c_.streams, &PeerStream::connected, [](const auto& s) -> PeerStream& { return *s; });
  if (auto bye = net::make_frame(net::Bye{std::move(told)}); bye.ok() && !left_ && lane != c_.streams.end())
    (*lane)->send_now(std::move(*bye));
  std::set<StepOfClient> cut_off;
  for (const auto& stream : c_.streams)
    for (const net::FrameRef& frame : stream->close())
      if (const auto step = step_of_value(*frame)) cut_off.insert(*step);
  why.message = fmt::format("{}: {}", task_name(c_.task), why.message);
  const auto asked = std::exchange(asked_, {});
  for (const auto& [step, question] : asked) (*question.done)(why);
  const auto asks = std::exchange(container_asks_, {});
  for (const auto& [request, ask] : asks) ask->done(why);
  c_.network->lost(c_, why, left_);
  c_.network->cut_off(cut_off, why);
  c_.network->engine().may_send();
  quit();
}

}  // namespace troupe
