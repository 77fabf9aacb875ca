// SPDX-License-Identifier: Apache-2.0
// The bodies of messages. Each is described once, by fields(), which both the writer and the reader go through.
#include "net/messages.h"

#include <algorithm>

#include "net/wire.h"

namespace troupe::net {
namespace {

/// Writes each field it is called with.
class Writing {
 public:
  static constexpr bool kReading = false;
  void operator()(const uint8_t& x) { to.u8(x); }
  void operator()(const uint32_t& x) { to.u32(x); }
  void operator()(const uint64_t& x) { to.u64(x); }
  void operator()(const int64_t& x) { to.i64(x); }
  void operator()(const double& x) { to.f64(x); }
  void operator()(const bool& x) { to.boolean(x); }
  void operator()(const std::string& x) { to.text(x); }
  void operator()(const DType& x) { to.dtype(x); }
  void operator()(const PartialShape& x) { to.shape(x); }
  void operator()(const TaskId& x) { to.task(x); }
  void operator()(const std::optional<Error>& x) { to.error(x); }
  void operator()(const Error& x) { to.error(x); }
  template <class E> void one_of(const E& x, E) { to.u8(static_cast<uint8_t>(x)); }
  template <class T, class F> void list(const std::vector<T>& x, size_t, F&& fields) {
    to.list(x, [&](const T& element) { fields(element); });
  }

  WireWriter to;
};

/// Reads them.
class Reading {
 public:
  static constexpr bool kReading = true;
  explicit Reading(std::string_view bytes) : from(bytes) {}
  void operator()(uint8_t& x) { x = from.u8(); }
  void operator()(uint32_t& x) { x = from.u32(); }
  void operator()(uint64_t& x) { x = from.u64(); }
  void operator()(int64_t& x) { x = from.i64(); }
  void operator()(double& x) { x = from.f64(); }
  void operator()(bool& x) { x = from.boolean(); }
  void operator()(std::string& x) { x = from.text(); }
  void operator()(DType& x) { x = from.dtype(); }
  void operator()(PartialShape& x) { x = from.shape(); }
  void operator()(TaskId& x) { x = from.task(); }
  void operator()(std::optional<Error>& x) { x = from.error(); }
  void operator()(Error& x) {
    if (auto error = from.error()) x = std::move(*error);
    else from.fail(Error(Code::kDataLoss, "an error is due and there is none"));
  }
  template <class E> void one_of(E& x, E last) { x = from.enumerator(last); }
  template <class T, class F> void list(std::vector<T>& x, size_t least_bytes, F&& fields) {
    x = from.list(least_bytes, [&] {
      T element = {};
      fields(element);
      return element;
    });
  }

  WireReader from;
};

// The least bytes of the elements of lists.
constexpr size_t kText = 4, kTask = 8, kIncarnation = 16;
constexpr size_t kEdge = 4 + kTask + 1, kDevice = kText + 1 + 4 + 4 * 8, kPeer = kTask + kText + kIncarnation;
constexpr size_t kCost = 2 * kText + 3 * 8 + 4, kTrace = 1 + 2 * kText + 2 * 8;

template <class A, class T> void names(A& a, T& list) {
  a.list(list, kText, [&](auto& name) { a(name); });
}
template <class A, class T> void incarnation(A& a, T& x) { a(x.high), a(x.low); }

template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const Hello> {
  a(m.lowest), a(m.highest), a(m.cluster), a(m.from), a(m.to);
  a.one_of(m.role, PeerRole::kClient);
  incarnation(a, m.incarnation), incarnation(a, m.known);
  a(m.lane), a(m.received), a(m.epoch);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const Welcome> {
  a(m.version), a(m.from);
  incarnation(a, m.incarnation);
  a(m.resumed), a(m.received);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const Refused> {
  auto code = static_cast<uint8_t>(m.code);
  a(code), a(m.reason);
  if constexpr (A::kReading)
    m.code = code <= static_cast<uint8_t>(Refusal::kBusy) ? static_cast<Refusal>(code) : Refusal::kClosing;
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const Ping> { a(m.time); }
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const Pong> {
  a(m.time), a(m.now);
}
template <class A, class M> void fields(A&, M&) requires std::is_same_v<const M, const Ack> {}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const Bye> { a(m.reason); }
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const Peers> {
  a(m.round);
  a.list(m.peers, kPeer, [&](auto& peer) {
    a(peer.task), a(peer.address);
    incarnation(a, peer.incarnation);
  });
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const Ready> {
  a(m.round), a(m.error);
  a.list(m.devices, kDevice, [&](auto& device) {
    a(device.name), a(device.kind), a(device.threads), a(device.flops), a(device.memory_bandwidth);
    a(device.launch_ns), a(device.memory);
  });
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const RegisterProgram> {
  a(m.program), a(m.session), a(m.timed_steps);
  names(a, m.feeds), names(a, m.fetches);
  a.list(m.edges, kEdge, [&](auto& edge) { a(edge.edge), a(edge.peer), a(edge.outgoing); });
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const ReleaseProgram> {
  a(m.program), a(m.session);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const RunProgram> {
  a(m.program), a(m.step), a(m.oldest), a(m.random_step), a(m.flags);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const StepDone> {
  a(m.step), a(m.error), a(m.began_ns), a(m.now_ns);
  a.list(m.costs, kCost,
         [&](auto& cost) { a(cost.node), a(cost.kind), a(cost.ns), a(cost.bytes), a(cost.firings), a(cost.in_step); });
  a.list(m.trace, kTrace,
         [&](auto& event) { a(event.kind), a(event.node), a(event.device), a(event.begin_ns), a(event.end_ns); });
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const EdgeTensor> {
  a(m.client), a(m.step), a(m.edge), a(m.dead);
  a.list(m.iterations, 4, [&](auto& iteration) { a(iteration); });
  a(m.form);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const AbortRun> {
  a(m.step), a(m.error);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const ResetContainer> {
  a(m.request), a(m.container);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const SnapshotContainer> {
  a(m.request), a(m.container);
  a.list(m.steps, 8, [&](auto& step) { a(step); });
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const RestoreContainer> {
  a(m.request), a(m.container), names(a, m.names);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const RestartDataset> {
  a(m.request), a(m.dataset);
}
template <class A, class M> void fields(A& a, M& m) requires std::is_same_v<const M, const RequestDone> {
  a(m.request), a(m.made), a(m.error), names(a, m.names);
}

}  // namespace

std::string Incarnation::str() const { return fmt::format("{:016x}{:016x}", high, low); }

const char* to_string(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNotTroupe: return "not Troupe";
    case Refusal::kBadHello: return "bad hello";
    case Refusal::kVersion: return "version";
    case Refusal::kCluster: return "cluster";
    case Refusal::kUnknownTask: return "unknown task";
    case Refusal::kNotMe: return "not me";
    case Refusal::kSelf: return "self";
    case Refusal::kWrongWay: return "wrong way";
    case Refusal::kOldIncarnation: return "old incarnation";
    case Refusal::kLate: return "late";
    case Refusal::kClosing: return "closing";
    case Refusal::kTls: return "TLS";
    case Refusal::kBusy: return "busy";
  }
  return "unknown";
}

template <class Message> std::string encode(const Message& message) {
  Writing a;
  fields(a, message);
  return a.to.take();
}

template <class Message> Result<Message> decode(std::string_view body) {
  Reading a(body);
  Message out;
  fields(a, out);
  constexpr bool kMayGrow = std::is_same_v<Message, Hello> || std::is_same_v<Message, Refused>;
  const Status status = kMayGrow ? a.from.status() : a.from.finish();
  if (status.ok()) return out;
  return make_error(Code::kDataLoss, "{} of {} bytes: {}", to_string(Message::kType), body.size(),
                    status.error().message);
}

#define TROUPE_NET_MESSAGE(Message)                     \
  template std::string encode<Message>(const Message&); \
  template Result<Message> decode<Message>(std::string_view);
TROUPE_NET_MESSAGE(Hello)
TROUPE_NET_MESSAGE(Welcome)
TROUPE_NET_MESSAGE(Refused)
TROUPE_NET_MESSAGE(Ping)
TROUPE_NET_MESSAGE(Pong)
TROUPE_NET_MESSAGE(Ack)
TROUPE_NET_MESSAGE(Bye)
TROUPE_NET_MESSAGE(Peers)
TROUPE_NET_MESSAGE(Ready)
TROUPE_NET_MESSAGE(RegisterProgram)
TROUPE_NET_MESSAGE(ReleaseProgram)
TROUPE_NET_MESSAGE(RunProgram)
TROUPE_NET_MESSAGE(StepDone)
TROUPE_NET_MESSAGE(EdgeTensor)
TROUPE_NET_MESSAGE(AbortRun)
TROUPE_NET_MESSAGE(ResetContainer)
TROUPE_NET_MESSAGE(SnapshotContainer)
TROUPE_NET_MESSAGE(RestoreContainer)
TROUPE_NET_MESSAGE(RestartDataset)
TROUPE_NET_MESSAGE(RequestDone)
#undef TROUPE_NET_MESSAGE

}  // namespace troupe::net
