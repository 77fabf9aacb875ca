// SPDX-License-Identifier: Apache-2.0
// The messages that cross between processes: one struct for each type of frame, named by what it asks or reports, with
// encode() and decode() of its body. docs/wire_protocol.md says who sends which to whom. Implemented in
// net/messages.cpp.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/cluster_spec.h"
#include "net/frame.h"
#include "troupe/dtype.h"
#include "troupe/error.h"
#include "troupe/shape.h"

namespace troupe::net {

/// The versions of the protocol that this code speaks.
inline constexpr uint32_t kLowestVersion = 1, kHighestVersion = 1;

/// Tells one life of a process from all others: 128 random bits, drawn by whoever starts it. All 0: none.
struct Incarnation {
  uint64_t high = 0, low = 0;
  auto operator<=>(const Incarnation&) const = default;
  explicit operator bool() const { return high || low; }
  std::string str() const;  // 32 hexadecimal digits
};

/// What the sender of a HELLO is to the cluster.
enum class PeerRole : uint8_t {
  kTask,    // one of its tasks, a worker
  kClient,  // has no address, dials everybody, asks for steps
};

// --- connections ---

/// Dialer -> acceptor: the first frame of each connection. Later versions may add fields behind these, which others
/// pass over.
struct Hello {
  static constexpr FrameType kType = FrameType::kHello;
  uint32_t lowest = kLowestVersion, highest = kHighestVersion;
  std::string cluster = {};
  TaskId from = {}, to = {};
  PeerRole role = PeerRole::kTask;
  Incarnation incarnation = {};  // of the dialer
  Incarnation known = {};        // of the acceptor, as an earlier connection told it; none: there was none
  uint32_t lane = 0;
  uint64_t received = 0;  // on this lane, in earlier connections of the same two incarnations and epoch
  /// The dialer's number of what the two have with one another: the lanes of one epoch belong together, and a greater
  /// one takes the place of those before.
  uint64_t epoch = 0;
};
/// Acceptor -> dialer: the connection stands.
struct Welcome {
  static constexpr FrameType kType = FrameType::kWelcome;
  uint32_t version = kHighestVersion;
  TaskId from = {};
  Incarnation incarnation = {};  // of the acceptor
  bool resumed = false;          // else the dialer begins at sequence 1, and forgets what it has of an earlier life
  uint64_t received = 0;         // on this lane, as in Hello
};
/// Why a connection was refused.
enum class Refusal : uint8_t {
  kNotTroupe,       // the first bytes are those of something else
  kBadHello,        // a HELLO or WELCOME that cannot be read, or another frame in its place
  kVersion,         // no version that both speak
  kCluster,         // another cluster's name
  kUnknownTask,     // a task that the cluster does not have
  kNotMe,           // meant for another task
  kSelf,            // its own
  kWrongWay,        // the lower task dials
  kOldIncarnation,  // of a process that another has followed
  kLate,            // took longer than the handshake's deadline
  kClosing,         // the acceptor is about to end, or refuses for a reason of its own
  kTls,             // one speaks TLS and the other does not, or a certificate is not the one that is due
  kBusy,            // the acceptor serves another client
};
const char* to_string(Refusal refusal);
/// Acceptor -> dialer: the last frame before it closes. Later versions may add fields and codes; an unknown code is
/// read as kClosing.
struct Refused {
  static constexpr FrameType kType = FrameType::kRefused;
  Refusal code = Refusal::kBadHello;
  std::string reason = {};
};
/// Both ways, on an idle or busy lane alike: answer with Pong.
struct Ping {
  static constexpr FrameType kType = FrameType::kPing;
  int64_t time = 0;  // nanoseconds of the sender's clock
};
struct Pong {
  static constexpr FrameType kType = FrameType::kPong;
  int64_t time = 0;  // the Ping's
  int64_t now = 0;   // of the clock of who answers
};
/// Both ways: its header's acknowledged number is all that it says.
struct Ack {
  static constexpr FrameType kType = FrameType::kAck;
};
/// Both ways: the last frame of a connection that is not to be resumed.
struct Bye {
  static constexpr FrameType kType = FrameType::kBye;
  std::string reason = {};
};

// --- the cluster ---

/// Master -> worker: who is there. Answered by Ready, when the worker is connected to all of them.
struct Peers {
  static constexpr FrameType kType = FrameType::kPeers;
  struct Peer {
    TaskId task = {};
    std::string address = {};
    Incarnation incarnation = {};  // none: not known
    bool operator==(const Peer&) const = default;
  };
  uint64_t round = 0;  // of these messages; READY names the latest
  std::vector<Peer> peers = {};
};
/// A device of a worker: troupe/device_rates.h, kernel.h.
struct DeviceRecord {
  std::string name = {};  // full
  uint8_t kind = 0;       // DeviceKind
  uint32_t threads = 1;
  double flops = 0, memory_bandwidth = 0, launch_ns = 0;
  int64_t memory = 0;
  bool operator==(const DeviceRecord&) const = default;
};
struct Ready {
  static constexpr FrameType kType = FrameType::kReady;
  uint64_t round = 0;
  std::optional<Error> error = {};
  std::vector<DeviceRecord> devices = {};
};

// --- programs and steps ---

/// What crosses in a program between two tasks, as one of them sees it: its _Send or _Recv of that number.
struct ProgramEdge {
  uint32_t edge = 0;
  TaskId peer = {};
  bool outgoing = false;  // sent to the peer; else received from it
  bool operator==(const ProgramEdge&) const = default;
};
/// Master -> worker: the worker's part of a program. The frame's tensor is the GraphDef, a vector of kUInt8. Its runs
/// may come before it, and are told what is wrong with it.
struct RegisterProgram {
  static constexpr FrameType kType = FrameType::kRegister;
  uint64_t program = 0;  // above those before
  uint64_t session = 0;  // whose kernels it shares
  int64_t timed_steps = 3;
  std::vector<std::string> feeds = {}, fetches = {};  // outputs of the graph, "x:0"
  std::vector<ProgramEdge> edges = {};
};
/// Master -> worker: forget the program, all of whose steps have ended, or what kernels of a session have kept.
struct ReleaseProgram {
  static constexpr FrameType kType = FrameType::kRelease;
  uint64_t program = 0;  // 0: none
  uint64_t session = 0;  // likewise
};
/// Master -> worker: run a step of a program. The frame's tensors are the feeds, in the order of RegisterProgram.
/// Answered by StepDone.
struct RunProgram {
  static constexpr FrameType kType = FrameType::kRun;
  enum Flags : uint32_t { kCheckNumerics = 1, kTrace = 2, kTime = 4 };
  uint64_t program = 0;
  uint64_t step = 0;         // above those before
  uint64_t oldest = 0;       // of the master's steps that have not ended
  int64_t random_step = -1;  // as RunOptions
  uint32_t flags = 0;
};
/// What a node of a part took until now, when kTime asked for it.
struct CostRecord {
  std::string node = {}, kind = {};  // kind of device
  double ns = 0, bytes = 0;          // of one firing, bytes of its outputs: means
  uint32_t firings = 1;              // that were measured
  double in_step = 1;                // firings in a step, a mean
  bool operator==(const CostRecord&) const = default;
};
/// What a device did, when kTrace asked for it; times of the worker's clock.
struct TraceRecord {
  uint8_t kind = 0;  // TraceEvent::Kind; not checked here
  std::string node = {}, device = {};
  int64_t begin_ns = 0, end_ns = 0;
  bool operator==(const TraceRecord&) const = default;
};
/// Worker -> master: its part of the step has ended. The frame's tensors are the fetches; none with an error.
struct StepDone {
  static constexpr FrameType kType = FrameType::kDone;
  uint64_t step = 0;
  std::optional<Error> error = {};
  std::vector<CostRecord> costs = {};
  std::vector<TraceRecord> trace = {};
  int64_t began_ns = 0, now_ns = 0;  // the worker's clock, which the trace's times are of, when the RUN came and now
};
/// Worker -> worker: what an edge carries in a step: the frame's only tensor, undefined when dead or without a value,
/// or of the form the frame's tensors (net/packed.h).
struct EdgeTensor {
  static constexpr FrameType kType = FrameType::kTensor;
  uint64_t client = 0;  // whose step it is: Incarnation::low
  uint64_t step = 0;
  uint32_t edge = 0;
  bool dead = false;
  std::vector<uint32_t> iterations = {};  // of the loops around the edge, outermost first
  std::string form = {};
};
/// Master -> worker: end the step, for this reason. Answered by its StepDone, unless that is under way. It may come
/// before its RUN. Worker -> master: the step cannot end well, though the worker's own part may have: what that sent to
/// another task is lost.
struct AbortRun {
  static constexpr FrameType kType = FrameType::kAbort;
  uint64_t step = 0;
  Error error = {};
};

// --- containers ---

/// Master -> worker: drop what a container holds. Answered, as the next two, by RequestDone.
struct ResetContainer {
  static constexpr FrameType kType = FrameType::kReset;
  uint64_t request = 0;
  std::string container = {};
};
/// Master -> worker: the variables of a container, between whole steps.
/// It comes on every lane, and is carried out when the last has come, so behind all runs sent before it. First answered
/// with `made`.
struct SnapshotContainer {
  static constexpr FrameType kType = FrameType::kSnapshot;
  uint64_t request = 0;
  std::string container = {};
  std::vector<uint64_t> steps = {};  // that run and are in it wholly
};
/// Master -> worker: put the frame's tensors into a container, under these names.
struct RestoreContainer {
  static constexpr FrameType kType = FrameType::kRestore;
  uint64_t request = 0;
  std::string container = {};
  std::vector<std::string> names = {};
};
/// Master -> worker: have the iterator over the dataset of that name begin again. Answered by RequestDone, kNotFound
/// where there is none.
struct RestartDataset {
  static constexpr FrameType kType = FrameType::kRestart;
  uint64_t request = 0;
  std::string dataset = {};
};
/// Worker -> master. Of a snapshot: the names of the frame's tensors.
struct RequestDone {
  static constexpr FrameType kType = FrameType::kResult;
  uint64_t request = 0;
  bool made = false;  // the cut of a snapshot is made; the rest comes later
  std::optional<Error> error = {};
  std::vector<std::string> names = {};
};

/// The body of a frame that carries `message`; one of the structs above.
template <class Message> std::string encode(const Message& message);
/// Reads a body. Errors: kDataLoss that names the type of frame, for bytes that are missing or left, a count beyond
/// what is there, a value that means nothing.
template <class Message> Result<Message> decode(std::string_view body);

/// The frame of a message: `message` and its tensors, ready for the wire. Errors: EncodedFrame::make's.
template <class Message> Result<FrameRef> make_frame(const Message& message, std::vector<Tensor> tensors = {}) {
  return EncodedFrame::make({Message::kType, encode(message), std::move(tensors)});
}

}  // namespace troupe::net
