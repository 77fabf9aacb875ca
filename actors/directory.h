// SPDX-License-Identifier: Apache-2.0
// Directory: which actor plays which part: devices by index, resources by name. Thread-safe.
#pragma once
#include <caf/all.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/homes.h"
#include "actors/lender.h"
#include "actors/step_table.h"
#include "troupe/resource.h"

namespace troupe {

class BlockingJobs;
class FunctionCaller;

class Directory {
 public:
  using Spawn = std::function<caf::actor(std::unique_ptr<Resource>)>;
  using Watch = std::function<void(const caf::actor&)>;

  /// Before the first step; then constant.
  std::vector<caf::actor> devices;
  std::shared_ptr<BlockingJobs> blocking;
  std::shared_ptr<FunctionCaller> functions;
  Homes homes;
  StepTable steps;
  /// Where devices have memory of their own: calls back, perhaps later and on another thread, with all values in the
  /// host's. Empty: all are there.
  using Variables = std::map<std::string, Tensor>;
  std::function<void(Variables, std::function<void(Result<Variables>)>)> bring_to_host;

  /// `spawn` makes the actor of a host, under the directory's mutex. `watch`, if there is one, is called with it when
  /// the directory has it, without the mutex: the actor may be dead by then, and is removed from within.
  explicit Directory(Spawn spawn, Watch watch = {}) : spawn_(std::move(spawn)), watch_(std::move(watch)) {}

  /// Sends to the actor of a device, which wakes at home. `from`: the context of the actor that sends.
  template <class Message>
  void tell_device(uint32_t device, Message message, caf::execution_unit* from = nullptr) const {
    devices[device]->enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, std::move(message)),
                             homes.of(device, from));
  }
  /// The same, where the thread of `lender`, if there is one, may run the device when that runs what it was told.
  template <class Message> void tell_device_by(Lender* lender, uint32_t device, Message message) const {
    // Simulated devices, which have no home, run by a clock of their own.
    caf::execution_unit* const home = lender ? homes.of(device, nullptr) : nullptr;
    if (home) lender->tell(devices[device], std::move(message), home);
    else tell_device(device, std::move(message));
  }
  /// The host of what `handle` names, made by its factory where there is none. The factory is called without a lock,
  /// so that it may ask for other hosts; of what two threads make at once the first stays, and the other is dropped.
  /// Errors: kNotFound without a factory, kInvalidArgument when the host was made for another signature,
  /// kFailedPrecondition when the factory asks for the host that it is to make, the factory's own, kCancelled when the
  /// engine ends.
  Result<caf::actor> host(const ResourceHandle& handle);
  /// The host of that key, if there is one; see ResourceHandle::host_key.
  caf::actor find(const std::string& key) const;
  /// Makes a host, in `container` or in none. kAlreadyExists when there is one.
  Status add(const std::string& key, std::unique_ptr<Resource> resource, std::optional<std::string> container = {});
  /// Takes the host of that key out and returns it, if there is one.
  caf::actor remove(const std::string& key);
  /// Takes a host out that has died.
  void remove(caf::actor_id id);
  /// Takes the hosts whose container is `container` out and returns them.
  std::vector<caf::actor> remove_container(const std::string& container);
  /// A number by which a host that asks other hosts gets their answers.
  uint64_t add_asking(caf::actor host);
  void remove_asking(uint64_t number);
  /// The host of that number; invalid once it is removed.
  caf::actor asking(uint64_t number) const;
  /// No host is made any more, and nothing comes in from outside.
  void shut();
  /// All devices and resources, to end them.
  std::vector<caf::actor> all() const;
  /// Lets go of them all: what still has the directory then sends nothing.
  void clear();
  /// Calls `send`, unless the engine has begun to end; it does not go on until this returns. For threads that are not
  /// the engine's own, and may come late.
  template <class F> bool from_outside(F&& send) const {
    const Directory*& inside = inside_from();
    if (inside == this) return send(), true;  // what it sends has made this thread come again
    const std::shared_lock guard(door_);
    if (shut_) return false;
    const Inside mark(inside, this);
    return send(), true;
  }
  /// Changes whenever hosts go; who keeps the answers of host() asks again then.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  struct Entry {
    caf::actor actor;
    std::string signature;
    std::optional<std::string> container;
  };
  static constexpr uint64_t kFirstAsking = uint64_t{1} << 32;  // above the devices' indices
  /// Where a thread keeps which directory's door it has open.
  static const Directory*& inside_from();
  struct Inside {
    Inside(const Directory*& at, const Directory* now) : at(at), before(std::exchange(at, now)) {}
    ~Inside() { at = before; }
    const Directory*& at;
    const Directory* const before;
  };
  /// Under mutex_: the host of that key, which must agree with `handle`; an empty actor where there is none.
  Result<caf::actor> look_up(const std::string& key, const ResourceHandle& handle) const;
  /// Under mutex_: spawns a host and takes it in.
  Result<caf::actor> take_in(const std::string& key, std::unique_ptr<Resource> core, Entry entry);

  Spawn spawn_;
  const Watch watch_;
  mutable std::shared_mutex door_;
  bool shut_ = false;  // under both
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> hosts_;
  std::unordered_map<uint64_t, caf::actor> asking_;
  uint64_t last_asking_ = kFirstAsking - 1;
  std::atomic<uint64_t> generation_{0};
};

/// What steps are told that wait for something of a container which is reset; `by`: whom, if it is known.
std::string why_reset(const std::string& container, const std::string& by = "");

}  // namespace troupe
