// SPDX-License-Identifier: Apache-2.0
#include "actors/resource_requests.h"

#include <algorithm>

namespace troupe {
namespace {
/// Handles remembered at most; then they are looked up anew.
constexpr size_t kMaxKnown = 65'536;
}  // namespace

Status ResourceRequests::add(const StepCall& of, const ResourceRef& handle, ResourceUse&& use) {
  if (generation_ != directory_->generation() || known_.size() > kMaxKnown) {
    flush();
    recent_.clear();
    known_.clear();
    generation_ = directory_->generation();
    // Hosts that are there may have steps that wait, to be cancelled. Those that are gone answer all that they were
    // asked.
    std::erase_if(hosts_, [&](const auto& host) { return directory_->find(host.first) != host.second.actor; });
  }
  const Known* known = recent_.find(*handle);
  if (!known || !known->is(handle)) {
    TROUPE_ASSIGN(known, find(handle));
  }
  if (of.failed()) return make_error(Code::kCancelled, "the step has failed");
  Host& host = *known->host;
  if (host.gathered.empty()) {
    asked_.push_back(&host);
    host.gathered.reserve(host.last_gathered);
  }
  host.gathered.push_back(std::move(use));
  return {};
}

Result<const ResourceRequests::Known*> ResourceRequests::find(const ResourceRef& handle) {
  auto at = known_.find(handle.get());
  if (at == known_.end() || !at->second.is(handle)) {
    TROUPE_ASSIGN(auto actor, directory_->host(*handle));
    Host& host = hosts_[handle->host_key()];
    host.actor = std::move(actor);
    if (known_.size() >= forget_at_) forget_gone();
    at = known_.insert_or_assign(handle.get(), Known{handle, &host}).first;
  }
  recent_.keep(*handle, at->second);
  return &at->second;
}

void ResourceRequests::flush() {
  for (Host* host : asked_) {
    host->last_gathered = host->gathered.size();
    self_.send(host->actor, UseResource{std::make_shared<std::vector<ResourceUse>>(std::exchange(host->gathered, {}))});
    settle(*host);
  }
  asked_.clear();
}

void ResourceRequests::cancel(int64_t step) {
  for (auto& [key, host] : hosts_) {
    self_.send(host.actor, CancelUses{device_, step});
    settle(host);
  }
}

void ResourceRequests::settle(const Host& host) {
  if (!unsettled_) return;
  self_.send(host.actor, Settle{});
  ++*unsettled_;
}

void ResourceRequests::forget_gone() {
  recent_.clear();
  std::erase_if(known_, [](const auto& known) { return known.second.handle.expired(); });
  forget_at_ = std::max<size_t>(1024, 2 * known_.size());
}

void ResourceRequests::clear() {
  recent_.clear();
  known_.clear();
  asked_.clear();
  hosts_.clear();
  directory_.reset();
}

}  // namespace troupe
