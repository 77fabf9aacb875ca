// SPDX-License-Identifier: Apache-2.0
// ResourceRequests: what one device asks of the hosts of resources, gathered until it is sent together.
#pragma once
#include "actors/directory.h"
#include "actors/messages.h"
#include "base/by_address.h"

namespace troupe {

/// Part of the actor that it sends for.
class ResourceRequests {
 public:
  /// Where `unsettled` is given, each host is asked to Settle after what is sent to it, and counted there.
  ResourceRequests(caf::event_based_actor& self, uint32_t device, std::shared_ptr<Directory> directory,
                   int64_t* unsettled = nullptr)
      : self_(self), device_(device), directory_(std::move(directory)), unsettled_(unsettled) {}

  /// Keeps a request of step `of` for the host of `handle`. Errors: those of Directory::host; kCancelled when the step
  /// has failed. That is looked at once the host is found: what fails a step may reset the container after it, and what
  /// is then made there must not be asked for it.
  Status add(const StepCall& of, const ResourceRef& handle, ResourceUse&& use);
  /// Sends what was gathered.
  void flush();
  /// Has every host that may have requests of the step drop them.
  void cancel(int64_t step);
  /// Lets go of all actors.
  void clear();

 private:
  /// A host this device has used, and what waits to be sent to it.
  struct Host {
    caf::actor actor;
    std::vector<ResourceUse> gathered;
    size_t last_gathered = 0;  // as many as were sent together
  };
  /// A handle seen before, and its host. Not kept: some things live as long as their handles.
  struct Known {
    std::weak_ptr<const ResourceHandle> handle;
    Host* host;
    /// Whether it is this one, and not another that was at its address before.
    bool is(const ResourceRef& other) const { return !handle.owner_before(other) && !other.owner_before(handle); }
  };

  Result<const Known*> find(const ResourceRef& handle);
  void settle(const Host& host);
  void forget_gone();

  caf::event_based_actor& self_;
  const uint32_t device_;
  std::shared_ptr<Directory> directory_;
  int64_t* const unsettled_;
  std::unordered_map<const ResourceHandle*, Known> known_;
  ByAddress<ResourceHandle, Known> recent_;      // of known_
  size_t forget_at_ = 1024;                      // handles that have gone are swept out when there are so many
  std::unordered_map<std::string, Host> hosts_;  // by host_key; until they are gone, since steps may wait there
  std::vector<Host*> asked_;                     // those that something is gathered for
  uint64_t generation_ = 0;
};

}  // namespace troupe
