// SPDX-License-Identifier: Apache-2.0
// Traces: when each node of a step ran on which device. Implemented in devices/: executors write them; files of them
// are in trace_file.h.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "troupe/export.h"
#include "troupe/graph.h"

namespace TROUPE_API troupe {

/// One thing that a device did.
struct TraceEvent {
  enum class Kind {
    kRun,      // a node ran, from begin to end
    kSend,     // a tensor of the node was handed over to another device
    kReceive,  // and taken there
    kAsk,      // the node's request to a resource was made
    kAnswer,   // and answered, at begin
    // Of a GPU, whose nodes run on when the host is done with them; kRun is then what the card did:
    kLaunch,   // the host put a node, or the copy of its output, into a stream
    kCopyIn,   // an output of the node was copied into the card's memory
    kCopyOut,  // and out of it
  };
  Kind kind = Kind::kRun;
  const Node* node = nullptr;  // of the graph; or one that a pass made, which the Trace keeps
  uint32_t device = 0;         // index into Engine::devices()
  int64_t step = 0;
  int64_t begin_ns = 0, end_ns = 0;  // of the steady clock; on a simulated device of the virtual one; what a card did
                                     // is put there as early as can be, which is right but for cards that lag behind
};

/// Gathers the events of the runs it is given to (RunOptions::trace), each of which then times every node. Thread-safe.
class Trace {
 public:
  void add(const TraceEvent& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  /// The events since the last call. Those of one device are in order; but what a card did in a step comes at the
  /// end of the step.
  std::vector<TraceEvent> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  /// Keeps what owns nodes of events alive as long as this lives.
  void keep(std::shared_ptr<const void> nodes) {
    const std::lock_guard lock(mutex_);
    kept_.insert(std::move(nodes));
  }

 private:
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
  std::set<std::shared_ptr<const void>> kept_;
};

}  // namespace troupe
