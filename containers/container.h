// SPDX-License-Identifier: Apache-2.0
// Container: named variables behind one host: reads share buffers, updates go in place or to a copy, snapshots are
// consistent cuts. Implemented in containers/container.cpp.
//
// Invariants:
//  1. A buffer that anyone outside the container may hold is never written: an update clones a shared one first.
//  2. A call either does all it says or returns an error and changes nothing.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/by_address.h"
#include "troupe/resource.h"

namespace troupe {

/// The name of a temporary variable: `name` in run `run` of its node in step `step`. No snapshot has it, and it is
/// dropped when the step ends, if it is still there then.
std::string temporary_name(std::string_view name, int64_t step, int64_t run);

/// Names an update that a worker may send more than once: the worker, and its own count of updates, from 1 on.
struct UpdateId {
  uint64_t worker = 0;
  uint64_t sequence = 0;
};

/// A passive core (see Resource): its host calls it, one call at a time.
class Container final : public Resource {
 public:
  /// `name` is for messages only; "" is the default container.
  explicit Container(std::string name = {}) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  // -- requests by handle ---------------------------------------------------------------------------------------------
  // Each declares the variable where the container does not know it yet, and fails with kInvalidArgument when it does
  // with another dtype or a shape that does not agree.

  /// Makes the name known, without a value.
  Status declare(const ResourceHandle& handle);
  // So do those that read or change a value which is in another memory than `space`, or that of `allocator`.

  /// The value; it shares the variable's buffer and never changes. Error: kFailedPrecondition without one.
  Result<Tensor> read(const ResourceHandle& handle, Space space = Space::kHost);
  /// Has the value be elsewhere: fn(const Tensor&) -> Result<Tensor> gives the same value in another memory. That is no
  /// change. Nothing is done without a value. Errors: fn's.
  template <class F> Status move(const ResourceHandle& handle, F&& fn) {
    TROUPE_ASSIGN(Variable * v, find(handle));
    if (!v->value.defined()) return {};
    TROUPE_ASSIGN(v->value, fn(std::as_const(v->value)));
    return {};
  }
  /// The value in whatever memory it is; undefined without one.
  Tensor held(const ResourceHandle& handle) const;
  /// Has all variables whose value is `from` have `to`, the same value in another memory. That is no change.
  void replace(const Tensor& from, const Tensor& to);
  Result<bool> initialized(const ResourceHandle& handle);
  /// Sets the value; the container shares its buffer from now on. Errors: kInvalidArgument for a dtype or shape that
  /// the handle does not allow, or, when `same_shape`, a shape other than the present value's.
  Status assign(const ResourceHandle& handle, Tensor value, bool same_shape = false, std::optional<UpdateId> id = {});
  /// Calls fn(std::span<Tensor* const>) -> Status with the variables' tensors, in the order of the handles, all
  /// unshared and writable; clones of shared ones, which only the host makes, come from `allocator`. fn checks before
  /// it writes: on its error nothing may have changed. A repeated `id` succeeds without calling fn. Errors: fn's;
  /// kFailedPrecondition without a value; kInvalidArgument for one variable given twice; kResourceExhausted when a
  /// clone finds no memory.
  template <class F>
  Status update(std::span<const ResourceHandle* const> handles, const std::shared_ptr<Allocator>& allocator, F&& fn,
                std::optional<UpdateId> id = {}) {
    if (id && applied(*id)) return {};
    TROUPE_RETURN_IF_ERROR(begin_update(handles, allocator));
    TROUPE_RETURN_IF_ERROR(fn(std::span<Tensor* const>(tensors_)));
    finish_update(id);
    return {};
  }
  /// One variable of a rewrite(): `to` is the new value, uninitialised, or the old one itself when nobody shares it.
  struct Rewritten {
    const Tensor* from;
    Tensor* to;
    bool in_place() const { return from == to; }
  };
  /// update() for an fn(std::span<const Rewritten>) that writes every element of every `to`: a shared variable is then
  /// read once on the way, instead of cloned before.
  template <class F>
  Status rewrite(std::span<const ResourceHandle* const> handles, const std::shared_ptr<Allocator>& allocator, F&& fn,
                 std::optional<UpdateId> id = {}) {
    if (id && applied(*id)) return {};
    TROUPE_RETURN_IF_ERROR(begin_rewrite(handles, allocator));
    Status status = fn(std::span<const Rewritten>(rewritten_));
    finish_rewrite(status.ok(), id);
    return status;
  }
  /// Forgets the variable. Error: kNotFound naming it.
  Status erase(const ResourceHandle& handle);

  // -- the container as a whole ---------------------------------------------------------------------------------------

  /// All variables that have a value, without temporary ones. The tensors are shared, not copied; later updates do not
  /// show in them.
  std::map<std::string, Tensor> snapshot() const;
  /// Sets variables, making those there are not. All or nothing. Error: kInvalidArgument naming the variable that
  /// exists with another dtype or shape.
  Status restore(const std::map<std::string, Tensor>& variables);
  /// How often the variable was assigned or updated; 0 when unknown or without a value.
  uint64_t version(std::string_view name) const;
  /// Variables known, with a value or without.
  size_t size() const { return variables_.size(); }
  /// How often anything in it has changed.
  uint64_t changes() const { return changes_; }
  /// How many temporary variables it has.
  size_t temporaries() const { return temporaries_; }
  /// Drops those of a step.
  void drop_temporaries(int64_t step);

  // -- the update log -------------------------------------------------------------------------------------------------

  /// Whether the update was applied already. Sequences of a worker may arrive in any order as long as those still
  /// missing are at most kLogWindow behind the newest; older ones count as applied.
  bool applied(UpdateId id) const;
  /// Drops what is kept about a worker that is gone.
  void forget_worker(uint64_t worker) { log_.erase(worker); }
  static constexpr size_t kLogWindow = 1024;

 private:
  struct Variable {
    DType dtype = DType::kInvalid;
    PartialShape shape;     // what the handles allow
    bool declared = false;  // by a handle; else made by restore()
    uint64_t version = 0;
    uint64_t last_update = 0;  // number of the last update that named it
    Tensor value = {};
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  struct Log {
    uint64_t through = 0;       // all up to here are applied
    std::set<uint64_t> beyond;  // and these
  };

  using Variables = std::unordered_map<std::string, Variable, Hash, std::equal_to<>>;
  /// The variables that were found last: to hash a name takes longer than to compare it. A copy of a container has its
  /// own.
  struct Recent : ByAddress<ResourceHandle, Variables::value_type> {
    Recent() = default;
    Recent(const Recent&) {}
    Recent& operator=(const Recent&) = delete;
  };

  Result<Variable*> find(const ResourceHandle& handle);
  Error disagreement(const ResourceHandle& handle, const Variable& variable) const;
  Error uninitialized(const ResourceHandle& handle) const;
  Error elsewhere(const ResourceHandle& handle, const Tensor& value, Space space) const;
  Status find_for_update(std::span<const ResourceHandle* const> handles, Space space);
  Status begin_update(std::span<const ResourceHandle* const> handles, const std::shared_ptr<Allocator>& allocator);
  Status begin_rewrite(std::span<const ResourceHandle* const> handles, const std::shared_ptr<Allocator>& allocator);
  void finish_rewrite(bool done, const std::optional<UpdateId>& id);
  void finish_update(const std::optional<UpdateId>& id);
  void record(UpdateId id);

  std::string name_;
  Variables variables_;
  Recent recent_;
  std::unordered_map<uint64_t, Log> log_;
  uint64_t update_ = 0;  // updates begun
  uint64_t changes_ = 0;
  size_t temporaries_ = 0;
  std::vector<Variable*> updating_;  // by the update under way
  std::vector<Tensor*> tensors_;
  std::vector<Tensor> fresh_;  // of a rewrite: what will replace shared values, by variable
  std::vector<Rewritten> rewritten_;
};

}  // namespace troupe
