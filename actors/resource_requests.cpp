// SPDX-License-Identifier: Apache-2.0
#include "actors/resource_requests.h"

namespace troupe {
namespace {
/// Handles remembered at most; then they are looked up anew.
constexpr size_t kMaxKnown = 65'536;
}  // namespace

Status ResourceRequests::add(const ResourceRef& handle, ResourceUse use) {
  if (generation_ != directory_->generation() || known_.size() > kMaxKnown) {
    flush();
    known_.clear();  // not hosts_: steps may wait there and have to be cancelled
    generation_ = directory_->generation();
  }
  auto [at, fresh] = known_.try_emplace(handle.get(), Known{handle, nullptr});
  if (fresh) {
    auto actor = directory_->host(*handle);
    if (!actor.ok()) {
      known_.erase(at);
      return std::move(actor.error());
    }
    Host& host = hosts_[handle->host_key()];
    host.actor = std::move(*actor);
    at->second.host = &host;
  }
  at->second.host->gathered.push_back(std::move(use));
  return {};
}

void ResourceRequests::flush() {
  for (auto& [key, host] : hosts_) {
    if (host.gathered.empty()) continue;
    self_.send(host.actor, UseResource{std::make_shared<std::vector<ResourceUse>>(std::exchange(host.gathered, {}))});
    settle(host);
  }
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

void ResourceRequests::clear() {
  known_.clear();
  hosts_.clear();
  directory_.reset();
}

}  // namespace troupe
