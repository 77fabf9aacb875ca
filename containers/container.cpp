// SPDX-License-Identifier: Apache-2.0
// Look-up, copy on write, snapshots and the update log of a container.
#include "containers/container.h"

#include <algorithm>

namespace troupe {
namespace {

/// Begins the part of a temporary variable's name that tells its step; no name of a user's has it.
constexpr char kStepMark = '\x1f';

bool is_temporary_name(std::string_view name) { return name.find(kStepMark) != std::string_view::npos; }

std::string suffix_of_step(int64_t step) { return fmt::format("{}step {}/", kStepMark, step); }

}  // namespace

std::string temporary_name(std::string_view name, int64_t step, int64_t run) {
  return fmt::format("{}{}{}", name, suffix_of_step(step), run);
}

Error Container::disagreement(const ResourceHandle& handle, const Variable& variable) const {
  return invalid_argument(
      "variable '{}' is {}{} in container '{}', the handle says {}{}; Engine::reset_container drops what another model "
      "has left",
      handle.name, to_string(variable.dtype), variable.shape.str(), name_, to_string(handle.dtype), handle.shape.str());
}

Error Container::uninitialized(const ResourceHandle& handle) const {
  return make_error(
      Code::kFailedPrecondition,
      "variable '{}' of container '{}' has no value yet: run its initialiser or restore a checkpoint first",
      handle.name, name_);
}

Result<Container::Variable*> Container::find(const ResourceHandle& handle) {
  Variables::value_type* known = recent_.find(handle);
  if (!known || known->first != handle.name) [[unlikely]] {
    auto at = variables_.find(std::string_view(handle.name));
    if (at == variables_.end()) {
      if (!is_known(handle.dtype)) return invalid_argument("the handle of variable '{}' names no dtype", handle.name);
      at = variables_.try_emplace(handle.name, Variable{handle.dtype, handle.shape, true}).first;
      if (is_temporary_name(handle.name)) ++temporaries_;
      return &at->second;
    }
    known = &*at;
    recent_.keep(handle, *known);
  }
  Variable& v = known->second;
  if (v.dtype != handle.dtype || !v.shape.compatible(handle.shape)) [[unlikely]]
    return disagreement(handle, v);
  if (!v.declared) [[unlikely]] {
    v.shape = handle.shape;
    v.declared = true;
  }
  return &v;
}

Status Container::declare(const ResourceHandle& handle) { return find(handle).status(); }

Error Container::elsewhere(const ResourceHandle& handle, const Tensor& value, Space space) const {
  return make_error(Code::kFailedPrecondition, "variable '{}' is in {}, and is used from {}: use it on its own device",
                    handle.name, to_string(value.space()), to_string(space));
}

Result<Tensor> Container::read(const ResourceHandle& handle, Space space) {
  TROUPE_ASSIGN(Variable * v, find(handle));
  if (!v->value.defined()) [[unlikely]]
    return uninitialized(handle);
  if (v->value.space() != space) [[unlikely]]
    return elsewhere(handle, v->value, space);
  return v->value;
}

Tensor Container::held(const ResourceHandle& handle) const {
  const auto at = variables_.find(std::string_view(handle.name));
  return at == variables_.end() ? Tensor() : at->second.value;
}

void Container::replace(const Tensor& from, const Tensor& to) {
  for (auto& [name, v] : variables_)
    if (v.value.defined() && v.value.space() == from.space() && v.value.address() == from.address() &&
        v.value.dtype() == from.dtype() && v.value.shape() == from.shape())
      v.value = to;
}

Result<bool> Container::initialized(const ResourceHandle& handle) {
  TROUPE_ASSIGN(Variable * v, find(handle));
  return v->value.defined();
}

Status Container::assign(const ResourceHandle& handle, Tensor value, bool same_shape, std::optional<UpdateId> id) {
  if (id && applied(*id)) return {};
  TROUPE_ASSIGN(Variable * v, find(handle));
  if (value.dtype() != v->dtype || !v->shape.compatible(value.shape()))
    return invalid_argument("variable '{}' is {}{}, the value {}{}", handle.name, to_string(v->dtype), v->shape.str(),
                            to_string(value.dtype()), value.shape().str());
  if (same_shape && v->value.defined() && !(v->value.shape() == value.shape()))
    return invalid_argument("variable '{}' has shape {}, the value {}", handle.name, v->value.shape().str(),
                            value.shape().str());
  v->value = std::move(value);
  ++v->version;
  ++changes_;
  if (id) record(*id);
  return {};
}

Status Container::find_for_update(std::span<const ResourceHandle* const> handles, Space space) {
  ++update_;
  updating_.clear();
  tensors_.clear();
  for (const ResourceHandle* handle : handles) {
    TROUPE_ASSIGN(Variable * v, find(*handle));
    if (!v->value.defined()) [[unlikely]]
      return uninitialized(*handle);
    if (v->value.space() != space) [[unlikely]]
      return elsewhere(*handle, v->value, space);
    if (std::exchange(v->last_update, update_) == update_)
      return invalid_argument("variable '{}' is given twice to one update", handle->name);
    updating_.push_back(v);
    tensors_.push_back(&v->value);
  }
  return {};
}

Status Container::begin_update(std::span<const ResourceHandle* const> handles,
                               const std::shared_ptr<Allocator>& allocator) {
  TROUPE_RETURN_IF_ERROR(find_for_update(handles, allocator->space()));
  for (Tensor* t : tensors_) {
    if (t->unique()) continue;
    TROUPE_ASSIGN(*t, t->clone(allocator));
  }
  return {};
}

Status Container::begin_rewrite(std::span<const ResourceHandle* const> handles,
                                const std::shared_ptr<Allocator>& allocator) {
  TROUPE_RETURN_IF_ERROR(find_for_update(handles, allocator->space()));
  fresh_.assign(tensors_.size(), Tensor());
  rewritten_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Tensor* value = tensors_[i];
    if (!value->unique()) {
      TROUPE_ASSIGN(fresh_[i], Tensor::make(value->dtype(), value->shape(), allocator));
    }
    rewritten_.push_back({value, fresh_[i].defined() ? &fresh_[i] : value});
  }
  return {};
}

void Container::finish_rewrite(bool done, const std::optional<UpdateId>& id) {
  if (done) {
    for (size_t i = 0; i < fresh_.size(); ++i)
      if (fresh_[i].defined()) *tensors_[i] = std::move(fresh_[i]);
    finish_update(id);
  }
  fresh_.clear();
}

void Container::finish_update(const std::optional<UpdateId>& id) {
  for (Variable* v : updating_) ++v->version;
  ++changes_;
  if (id) record(*id);
}

Status Container::erase(const ResourceHandle& handle) {
  auto at = variables_.find(std::string_view(handle.name));
  if (at == variables_.end())
    return make_error(Code::kNotFound, "container '{}' has no variable '{}'", name_, handle.name);
  if (is_temporary_name(at->first)) --temporaries_;
  recent_.clear();
  variables_.erase(at);
  ++changes_;
  return {};
}

std::map<std::string, Tensor> Container::snapshot() const {
  std::map<std::string, Tensor> out;
  for (const auto& [name, v] : variables_)
    if (v.value.defined() && !is_temporary_name(name)) out.emplace(name, v.value);
  return out;
}

void Container::drop_temporaries(int64_t step) {
  const std::string suffix = suffix_of_step(step);
  recent_.clear();
  temporaries_ -= std::erase_if(variables_, [&](const auto& v) { return v.first.find(suffix) != std::string::npos; });
}

Status Container::restore(const std::map<std::string, Tensor>& variables) {
  for (const auto& [name, value] : variables) {
    if (!value.defined()) return invalid_argument("variable '{}' is to be restored from no value", name);
    auto at = variables_.find(std::string_view(name));
    if (at == variables_.end()) continue;
    const Variable& v = at->second;
    if (v.dtype != value.dtype() || !v.shape.compatible(value.shape()))
      return invalid_argument("variable '{}' of container '{}' is {}{}, the value to restore {}{}", name, name_,
                              to_string(v.dtype), v.shape.str(), to_string(value.dtype()), value.shape().str());
  }
  for (const auto& [name, value] : variables) {
    Variable& v = variables_.try_emplace(name, Variable{value.dtype(), value.shape()}).first->second;
    v.value = value;
    ++v.version;
  }
  ++changes_;
  return {};
}

uint64_t Container::version(std::string_view name) const {
  auto at = variables_.find(name);
  return at == variables_.end() ? 0 : at->second.version;
}

bool Container::applied(UpdateId id) const {
  auto at = log_.find(id.worker);
  return at != log_.end() && (id.sequence <= at->second.through || at->second.beyond.contains(id.sequence));
}

void Container::record(UpdateId id) {
  Log& log = log_[id.worker];
  log.beyond.insert(id.sequence);
  if (log.beyond.size() > kLogWindow) log.through = *log.beyond.begin();
  for (auto first = log.beyond.begin(); first != log.beyond.end() && *first <= log.through + 1;) {
    log.through = std::max(log.through, *first);
    first = log.beyond.erase(first);
  }
}

}  // namespace troupe
