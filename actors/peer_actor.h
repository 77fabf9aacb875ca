// SPDX-License-Identifier: Apache-2.0
// The actor of one other task of the cluster, as long as that task lives: its connections, what is sent and not yet
// acknowledged, whether it is still there, and the steps that were asked of it.
//
// | message      | from            | effect, reply                                                                  |
// |--------------|-----------------|--------------------------------------------------------------------------------|
// | LaneUp       | network         | a connection stands: goes on where the last one of its lane ended              |
// | LaneFrames   | multiplexer     | frames came: answers, hands values and steps to the worker, ends of steps to   |
// |              |                 | who asked for them                                                             |
// | LaneBroken   | multiplexer     | the connection is dialled anew, or waited for, until the peer counts as lost   |
// | SendFrame    | worker, network | the frame goes out, behind those before it on its lane, when there is credit   |
// | AskStep      | a session       | sends a RUN; its DONE, or the loss of the peer, is told to who asked           |
// | AskContainer | a session       | sends a SNAPSHOT, RESTORE or RESET; its RESULTs are told to who asked          |
// | PeerTick     | itself          | acknowledges, pings, or gives the peer up                                      |
// | PeerGone     | network         | where a connection broke: the peer is lost                                     |
// | LeavePeer    | network         | says BYE, and ends                                                             |
//
// A peer that is lost is told of to the network once (Network::lost), and the actor ends.
#pragma once
#include <caf/all.hpp>

#include <array>
#include <functional>
#include <memory>
#include <unordered_map>

#include "actors/lane_handler.h"
#include "actors/task_link.h"
#include "net/clock_offset.h"
#include "net/messages.h"

namespace troupe {

class Network;

/// The lanes of a peer: what is small and urgent, and what is large.
enum class PeerLane : uint32_t { kControl, kBulk };
constexpr size_t kPeerLanes = 2;
/// Frames of more payload are bulk.
constexpr uint64_t kMostUrgentBytes = 64 << 10;

/// What is on its way to a peer: from Network::send() until it is acknowledged. Thread-safe.
class PeerLoad {
 public:
  /// More than that, in more than one frame, and devices wait before they send more.
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20, kMostFrames = 4096;
  /// Whether who sends is to wait, until let_go() was true once.
  bool add(uint64_t bytes) {
    frames_ += 1, bytes_ += bytes;
    if (!full()) return false;
    holds_ = true;
    return full();  // it may have been emptied in between, and then nobody lets go
  }
  void remove(uint64_t frames, uint64_t bytes) { frames_ -= frames, bytes_ -= bytes; }
  /// Whether somebody waits who need not any longer.
  bool let_go() { return !full() && holds_.exchange(false); }
  uint64_t bytes() const { return bytes_; }

 private:
  bool full() const { return frames_ > kMostFrames || (bytes_ > kMostBytes && frames_ > 1); }
  std::atomic<uint64_t> frames_{0}, bytes_{0};
  std::atomic<bool> holds_{false};
};

/// A connection of a lane stands. Who gets the message first takes it.
struct LaneUp {
  uint32_t lane = 0;
  std::shared_ptr<Connection> connection;
  bool resumed = false;
  uint64_t received = 0;  // by the peer
};
/// Frames came over a lane.
struct LaneFrames {
  uint32_t lane = 0;
  uint64_t connection = 0;
  std::shared_ptr<std::vector<net::ReceivedFrame>> frames;
};
/// A connection broke.
struct LaneBroken {
  uint32_t lane = 0;
  uint64_t connection = 0;
  Error why;
};
/// Send this.
struct SendFrame {
  uint32_t lane = 0;
  net::FrameRef frame;
  bool loaded = false;  // it is in the PeerLoad
};
/// Run a step there.
struct AskStep {
  net::FrameRef frame;
  int64_t step = 0;
  std::shared_ptr<PartRun::Done> done;
};
/// Ask it something about a container: by these frames, all of one request.
struct AskContainer {
  std::vector<std::pair<uint32_t, net::FrameRef>> frames;  // with lanes
  uint64_t request = 0;
  std::shared_ptr<ContainerAsk> ask;
};
/// The actor to itself.
struct PeerTick {};
/// Nobody listens at its address.
struct PeerGone {};
/// Say goodbye, and end.
struct LeavePeer {
  std::string reason;
  Code code = Code::kCancelled;
};

/// What a peer's actor needs to know.
struct PeerContext {
  net::TaskId task;
  net::PeerRole role = net::PeerRole::kTask;
  net::Incarnation incarnation;
  uint64_t epoch = 0;  // net::Hello's
  bool dials = false;  // this side
  net::HeartbeatOptions heartbeat = {};
  std::shared_ptr<Network> network;
  /// Of each lane what its stream has received; read by handshakes.
  std::array<std::shared_ptr<std::atomic<uint64_t>>, kPeerLanes> received;
  std::shared_ptr<PeerLoad> load = std::make_shared<PeerLoad>();
};

class PeerActor : public caf::event_based_actor {
 public:
  PeerActor(caf::actor_config& config, PeerContext context);
  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  struct LaneState {
    net::Stream stream;
    std::shared_ptr<LaneHandler> handler;  // none: there is no connection
    uint64_t connection = 0;
    uint64_t pushed_frames = 0, pushed_bytes = 0;  // less those that are acknowledged
    int64_t stands_ns = 0;                         // for so long it has taken nothing of what there is for it
  };

  void up(const LaneUp& m);
  void came(const LaneFrames& m);
  Status handle(uint32_t lane, net::ReceivedFrame frame);
  Status handle_step(net::ReceivedFrame& frame);
  Status done(net::Frame& frame);
  Status handle_container(net::Frame& frame);
  Status result(net::Frame& frame);
  /// The frame goes out, in its turn.
  void push(uint32_t lane, net::FrameRef frame, bool loaded = false);
  /// Takes what was acknowledged out of the load.
  void unload(uint32_t lane);
  /// Tells of a peer that takes nothing, and gives it up.
  void check_speed(int64_t now);
  /// Writes what there is credit for, with an acknowledgement where one is due.
  void flush(uint32_t lane);
  void reply(uint32_t lane, Result<net::FrameRef> frame);
  void broke(LaneBroken& m);
  void tick();
  void lost(Error why);
  /// Has tick() called at that time at the latest.
  void wake_at(int64_t at_ns);
  void wake();
  int64_t now_ns() const;
  bool connected() const;

  const PeerContext c_;
  std::array<LaneState, kPeerLanes> lanes_;
  uint64_t connections_ = 0;
  net::Heartbeat heartbeat_;
  net::ClockOffset clock_;
  struct Asked {
    std::shared_ptr<PartRun::Done> done;
    int64_t sent_ns = 0;
  };
  std::unordered_map<int64_t, Asked> asked_;                                    // by step
  std::unordered_map<uint64_t, std::shared_ptr<ContainerAsk>> container_asks_;  // by request
  std::unordered_map<uint64_t, uint32_t> snapshots_;  // asked for by the peer, and on how many lanes
  int64_t wakes_at_ = INT64_MAX, ticked_ns_ = 0;
  bool was_up_ = false;
  bool heard_ = false;  // frames came
  bool left_ = false;   // it has said BYE
  bool gone_ = false;
};

}  // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LaneUp)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LaneFrames)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LaneBroken)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::SendFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::AskStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::AskContainer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::PeerTick)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::PeerGone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LeavePeer)
