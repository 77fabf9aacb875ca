// SPDX-License-Identifier: Apache-2.0
// The actor of one other task of the cluster, as long as that task lives: its connections, what is sent and not yet
// acknowledged, whether it is still there, and the steps that were asked of it.
//
// | message      | from            | effect, reply                                                                  |
// |--------------|-----------------|--------------------------------------------------------------------------------|
// | LaneUp       | network         | a connection stands: goes on where the last one of its lane ended              |
// | LaneFrames   | multiplexer     | frames came: answers, hands steps to the worker, ends of steps to who asked    |
// |              |                 | for them                                                                       |
// | LaneFault    | multiplexer     | what came is not as it should be: the peer is lost                             |
// | LaneBroken   | multiplexer     | the connection is dialled anew, or waited for, until the peer counts as lost   |
// | SendFrame    | worker, network | the frame goes out, behind those before it on its lane, when there is credit   |
// | FlushLane    | network         | what a device has queued goes out, likewise                                    |
// | AskStep      | a session       | sends a RUN; its DONE, or the loss of the peer, is told to who asked           |
// | AskContainer | a session       | sends a SNAPSHOT, RESTORE, RESET or RESTART; its RESULTs are told to who asked |
// | PeerTick     | itself          | acknowledges, pings, or gives the peer up                                      |
// | WakePeer     | multiplexer     | has a PeerTick come in time to acknowledge                                     |
// | PeerGone     | network         | where a connection broke: the peer is lost                                     |
// | LeavePeer    | network         | says BYE, and ends                                                             |
//
// Values mostly go past it: the device's thread writes those that are small (peer_stream.h), so that it need not wake
// another one, and the multiplexer's thread hands what it has read to the worker. Large ones are written here, while
// the device goes on. The multiplexer's thread runs this actor itself for what begins and ends steps, and then devices,
// where that takes moments (lender.h). A peer that is lost is told of to the network once (Network::lost), and the
// actor ends.
#pragma once
#include <caf/all.hpp>

#include <array>
#include <functional>
#include <memory>
#include <unordered_map>

#include "actors/peer_stream.h"
#include "actors/task_link.h"
#include "net/clock_offset.h"
#include "net/messages.h"

namespace troupe {

class Lender;
class Network;
class Worker;

/// The lanes of a peer: what is small and urgent, and what is large.
enum class PeerLane : uint32_t { kControl, kBulk };
constexpr size_t kPeerLanes = 2;
/// Larger frames are bulk: those of a tensor of more than 64 KiB.
constexpr uint64_t kMostUrgentBytes = (64 << 10) + 512;
/// Values up to this a lent thread writes itself: the multiplexer reads as much in one turn.
constexpr uint64_t kMostLentBytes = (1 << 20) + 512;

/// A connection of a lane stands. Who gets the message first takes it.
struct LaneUp {
  uint32_t lane = 0;
  std::shared_ptr<Connection> connection;
  bool resumed = false;
  uint64_t received = 0;  // by the peer
};
/// Frames came over a lane, others than values, which go to the worker at once.
struct LaneFrames {
  uint32_t lane = 0;
  std::shared_ptr<std::vector<net::ReceivedFrame>> frames;
};
/// What came over a lane should not have.
struct LaneFault {
  Error why;
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
};
/// Send what was queued.
struct FlushLane {
  uint32_t lane = 0;
};
/// Run a step there.
struct AskStep {
  net::FrameRef frame;
  int64_t step = 0;
  std::shared_ptr<PartRun::Done> done;
};
/// Ask it something about a container or a dataset: by these frames, all of one request.
struct AskContainer {
  std::vector<std::pair<uint32_t, net::FrameRef>> frames;  // with lanes
  uint64_t request = 0;
  std::shared_ptr<ContainerAsk> ask;
};
/// The actor to itself.
struct PeerTick {
  int64_t at_ns = 0;
};
/// An acknowledgement is due then.
struct WakePeer {
  int64_t at_ns = 0;
};
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
  std::shared_ptr<PeerLoad> load = {};
  std::array<std::shared_ptr<PeerStream>, kPeerLanes> streams = {};
};

class PeerActor : public caf::event_based_actor {
 public:
  PeerActor(caf::actor_config& config, PeerContext context);
  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  void up(const LaneUp& m);
  void came(const LaneFrames& m);
  /// What becomes of what comes over a lane. The multiplexer's thread, which is lent by `lender`, calls it: values go
  /// to the worker at once, all else to this actor.
  PeerStream::Take taker(uint32_t lane, std::shared_ptr<Lender> lender);
  static Status deliver(Worker& worker, net::Frame& frame, Lender& lender);
  Status handle(uint32_t lane, net::ReceivedFrame frame);
  Status handle_step(net::ReceivedFrame& frame);
  Status done(net::Frame& frame);
  Status handle_container(net::Frame& frame);
  Status result(net::Frame& frame);
  /// Tells of a peer that takes nothing, and gives it up.
  void check_speed(int64_t now);
  void broke(LaneBroken& m);
  void tick();
  void redial(int64_t now);
  /// Takes an end of this peer's: at once, or when the thread need not be given back soon.
  void fault(Error why);
  /// `told`: the reason as the peer is told it, where it is another's words.
  void lost(Error why, std::string told = {});
  void lost_by_silence(int64_t ms);
  /// Has tick() called at that time at the latest.
  void wake_at(int64_t at_ns);
  void wake();
  bool connected() const;

  const PeerContext c_;
  std::array<int64_t, kPeerLanes> stands_ns_ = {};  // for so long lanes have taken nothing of what there is for them
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
  bool left_ = false;       // it has said BYE
  bool redialled_ = false;  // in the present silence
  bool gone_ = false;
};

}  // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LaneUp)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LaneFrames)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LaneFault)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LaneBroken)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::SendFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::FlushLane)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::AskStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::AskContainer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::PeerTick)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::WakePeer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::PeerGone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LeavePeer)
