// SPDX-License-Identifier: Apache-2.0
// Resources that want more of their host than requests: to ask another resource, to have files read, to be woken from
// outside. Each is a message, so nothing waits: the resource goes on when the answer comes.
#pragma once
#include "tensor/function_caller.h"
#include "troupe/resource.h"

namespace troupe {

/// What a host does for its resource, which calls it from within its own calls.
class ResourceHost {
 public:
  using Use = std::function<void(Resource&, Reply)>;
  using Job = std::function<void()>;

  virtual ~ResourceHost() = default;
  /// Calls `use` on the resource that `other` names, at its host; it must reply or hand the reply on. What it replies
  /// comes to answered() with the number that is returned here: later, and exactly once.
  virtual uint64_t ask(const ResourceRef& other, Use use) = 0;
  /// A question that still waits is answered with kCancelled.
  virtual void withdraw(uint64_t question) = 0;
  /// Has `job` run by a thread on which it may wait as long as it likes; then answered() is called, without outputs, or
  /// with the error that kept the job from running or that it threw. The job owns what it touches: it may go on when
  /// resource and host are gone.
  virtual uint64_t run_blocking(Job job) = 0;
  /// The same for a job that tells by itself what it has to tell, by waker(). Errors: no thread can be had.
  virtual Status start_blocking(Job job) = 0;
  /// A function that any thread may call at any time; then woken() is called, if the host is still there. Not to be
  /// called under a lock that the resource takes.
  virtual std::function<void()> waker() = 0;
  /// Calls the functions that nodes carry; on threads where one may wait alone. None: there is nobody to call them.
  virtual std::shared_ptr<FunctionCaller> functions() { return {}; }
};

class HostedResource : public Resource {
 public:
  /// Before all other calls. The host outlives its resource.
  virtual void attach(ResourceHost& host) { host_ = &host; }
  virtual void answered(uint64_t question, Result<std::vector<Tensor>> outputs) { (void)question, (void)outputs; }
  virtual void woken() {}

 protected:
  ResourceHost& host() const { return *host_; }

 private:
  ResourceHost* host_ = nullptr;
};

}  // namespace troupe
