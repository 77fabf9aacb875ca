// SPDX-License-Identifier: Apache-2.0
#include "actors/directory.h"

#include "base/making.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

Error ending() { return make_error(Code::kCancelled, "the engine is being destroyed"); }

}  // namespace

Result<caf::actor> Directory::look_up(const std::string& key, const ResourceHandle& handle) const {
  const auto at = hosts_.find(key);
  if (at == hosts_.end()) return caf::actor();
  // Hosts the engine made itself, and containers, serve handles of any signature.
  if (handle.type != "container" && !at->second.signature.empty() && at->second.signature != handle.signature)
    return invalid_argument("{} '{}' is already there as {}, not {}", handle.type, handle.name, at->second.signature,
                            handle.signature);
  return at->second.actor;
}

Result<caf::actor> Directory::take_in(const std::string& key, std::unique_ptr<Resource> core, Entry entry) {
  if (shut_) return ending();
  TROUPE_ASSIGN(entry.actor, guarded([&]() -> Result<caf::actor> { return spawn_(std::move(core)); }));
  return hosts_.emplace(key, std::move(entry)).first->second.actor;
}

Result<caf::actor> Directory::host(const ResourceHandle& handle) {
  const std::string key = handle.host_key();
  {
    std::lock_guard guard(mutex_);
    TROUPE_ASSIGN(caf::actor known, look_up(key, handle));
    if (known) return known;
    if (handle.factory && shut_) return ending();
  }
  if (!handle.factory)
    return make_error(Code::kNotFound, "there is no {} named '{}' in container '{}'", handle.type, handle.name,
                      handle.container);
  if (Making::has(this, key))
    return make_error(Code::kFailedPrecondition, "the factory of {} '{}' must not ask for what it is to make",
                      handle.type, handle.name);
  auto core = [&] {
    const Making making(this, key);
    return guarded([&] { return handle.factory(); });
  }();
  caf::actor actor;
  {
    std::lock_guard guard(mutex_);
    TROUPE_ASSIGN(caf::actor known, look_up(key, handle));
    if (known) return known;  // another thread was faster
    if (!core.ok()) return std::move(core.error());
    if (!*core) return make_error(Code::kInternal, "the factory of {} '{}' made none", handle.type, handle.name);
    TROUPE_ASSIGN(actor, take_in(key, std::move(*core), {{}, handle.signature, handle.container}));
  }
  if (watch_) watch_(actor);
  return actor;
}

caf::actor Directory::find(const std::string& key) const {
  std::lock_guard guard(mutex_);
  auto at = hosts_.find(key);
  return at == hosts_.end() ? caf::actor() : at->second.actor;
}

Status Directory::add(const std::string& key, std::unique_ptr<Resource> resource,
                      std::optional<std::string> container) {
  caf::actor actor;
  {
    std::lock_guard guard(mutex_);
    if (shut_) return ending();
    if (hosts_.contains(key)) return make_error(Code::kAlreadyExists, "there is a resource '{}' already", key);
    TROUPE_ASSIGN(actor, take_in(key, std::move(resource), {{}, "", std::move(container)}));
  }
  if (watch_) watch_(actor);
  return {};
}

caf::actor Directory::remove(const std::string& key) {
  std::lock_guard guard(mutex_);
  auto host = hosts_.extract(key);
  generation_.fetch_add(1, std::memory_order_release);
  return host ? host.mapped().actor : caf::actor();
}

void Directory::remove(caf::actor_id id) {
  std::lock_guard guard(mutex_);
  std::erase_if(hosts_, [id](const auto& host) { return host.second.actor.id() == id; });
  generation_.fetch_add(1, std::memory_order_release);
}

std::vector<caf::actor> Directory::remove_container(const std::string& container) {
  std::lock_guard guard(mutex_);
  std::vector<caf::actor> out;
  std::erase_if(hosts_, [&](auto& host) {
    const bool ours = host.second.container == container;
    if (ours) out.push_back(host.second.actor);
    return ours;
  });
  generation_.fetch_add(1, std::memory_order_release);
  return out;
}

std::string why_reset(const std::string& container, const std::string& by) {
  return container.empty() ? fmt::format("the default container was reset{}", by)
                           : fmt::format("container '{}' was reset{}", container, by);
}

uint64_t Directory::add_asking(caf::actor host) {
  std::lock_guard guard(mutex_);
  asking_.emplace(++last_asking_, std::move(host));
  return last_asking_;
}

void Directory::remove_asking(uint64_t number) {
  std::lock_guard guard(mutex_);
  asking_.erase(number);
}

caf::actor Directory::asking(uint64_t number) const {
  std::lock_guard guard(mutex_);
  const auto at = asking_.find(number);
  return at == asking_.end() ? caf::actor() : at->second;
}

void Directory::shut() {
  const std::unique_lock door(door_);
  std::lock_guard guard(mutex_);
  shut_ = true;
}

std::vector<caf::actor> Directory::all() const {
  std::lock_guard guard(mutex_);
  std::vector<caf::actor> out = devices;
  for (auto& [key, host] : hosts_) out.push_back(host.actor);
  return out;
}

const Directory*& Directory::inside_from() {
  static thread_local const Directory* inside = nullptr;
  return inside;
}

void Directory::clear() {
  decltype(hosts_) hosts;
  decltype(asking_) asking;
  std::lock_guard guard(mutex_);
  hosts.swap(hosts_);
  asking.swap(asking_);
  devices.clear();
  blocking = nullptr;
  functions = nullptr;
  spawn_ = nullptr;
}

}  // namespace troupe
