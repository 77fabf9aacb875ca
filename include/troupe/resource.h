// SPDX-License-Identifier: Apache-2.0
// Resources: state that outlives a step (variables, queues, iterators, accumulators). Implemented in
// devices/resource.cpp; the actors that host them are in actors/.
//
// A Resource is a passive core, without threads or locks: the one actor that hosts it calls it, one call at a time.
// A node that uses a resource sends it a request and goes on; the request is answered through its Reply exactly once,
// at once or later (a dequeue from an empty queue), and nobody waits in between. An exception from a resource, or from
// a kernel that uses it, is the error of that request; the resource is called again by the next.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "troupe/export.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// Who asked: enough to find the waiting node again.
struct RequestTag {
  uint64_t requester = 0;  // an actor known to the host
  int64_t step = 0;
  uint32_t node = 0;
  uint32_t iteration = 0;  // of a loop, as its executor numbers them
};

/// Where replies go; the hosting actor is one, tests have theirs.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) = 0;
};

/// The right, and the duty, to answer one request. Move-only. Dropped unanswered, it answers kCancelled; kept for ever,
/// it is answered for when the step ends otherwise. The first answer counts: a second one, or one that comes after the
/// step has ended or the engine is gone, is dropped. Replies from an engine may be answered by any thread.
class Reply {
 public:
  Reply() = default;
  /// `sink` outlives the reply, which is answered by the thread of the sink.
  Reply(ReplySink& sink, RequestTag tag) : sink_(std::shared_ptr<ReplySink>(), &sink), tag_(tag) {}
  Reply(std::shared_ptr<ReplySink> sink, RequestTag tag) : sink_(std::move(sink)), tag_(tag) {}
  Reply(Reply&& other) noexcept : sink_(std::move(other.sink_)), tag_(other.tag_) {}
  Reply& operator=(Reply&& other) noexcept;
  ~Reply();
  /// Answers; the outputs are those of the requesting node.
  void operator()(Result<std::vector<Tensor>> outputs);
  const RequestTag& tag() const { return tag_; }

 private:
  std::shared_ptr<ReplySink> sink_;
  RequestTag tag_;
};

/// What an actor hosts.
class Resource {
 public:
  virtual ~Resource() = default;
  /// Answers every waiting request of this step of this requester with kCancelled, without any other effect.
  virtual void cancel(uint64_t requester, int64_t step) { (void)requester, (void)step; }
  /// Whether work() has something to do beside requests: a prefetching iterator has until its buffer is full. One that
  /// throws counts as one that has nothing to do.
  virtual bool wants_work() const { return false; }
  /// One bounded piece of that work; the host calls it between requests.
  virtual void work() {}
};

/// Names a resource; an element of a kResource tensor. Immutable.
class ResourceHandle {
 public:
  using Factory = std::function<Result<std::unique_ptr<Resource>>()>;
  /// `type` is the kind of host: "container" for variables, "queue", "iterator", "accumulator", ...
  std::string type;
  std::string container;  // "" is the default container
  std::string name;       // of the variable or queue
  /// Whether who waits for an answer waits for input: queues, iterators, readers.
  bool input = false;
  /// For variables: what they hold.
  DType dtype = DType::kInvalid;
  PartialShape shape;
  /// Makes the host's core where there is none yet. Empty: it must exist. Called by any thread, by several at once,
  /// without a lock: it may ask the engine for what does not wait, but not for this resource. Of what threads make at
  /// once the first stays, and the others are dropped.
  Factory factory;
  /// Two handles to one resource must agree on this ("FIFOQueue float32,int32 capacity 32"), else kInvalidArgument.
  std::string signature;

  /// The host: variables of a container share one, everything else has its own. "queue/<container>/<name>", where a
  /// slash or backslash of the container follows a backslash: no two hosts have one key.
  std::string host_key() const;
};

}  // namespace troupe
