// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_files.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "base/join.h"
#include "base/printable.h"
#include "cli/feed_values.h"
#include "io/replacing_file.h"
#include "io/saved_tensors.pb.h"
#include "io/tensor_bundle.h"

namespace troupe {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(in_quotes(name));
  return join(quoted, ", ");
}

std::string counted(size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

/// What a checkpoint notes of Python's objects; nothing where it does not or is damaged there.
proto::SavedObjects objects_of(const CheckpointReader& checkpoint) {
  const auto objects = checkpoint.read(std::string(kSavedObjects), {});
  proto::SavedObjects saved;
  if (!objects.ok() || objects->dtype() != DType::kString || objects->elements() != 1 ||
      !saved.ParseFromString(objects->data<std::string>()[0]))
    saved.Clear();
  return saved;
}

/// The keys of tensors by the names that variables had in Python; of a name that several had, none.
std::map<std::string, std::string> keys_of_objects(const CheckpointReader& checkpoint) {
  std::map<std::string, std::string> out;
  const proto::SavedObjects saved = objects_of(checkpoint);
  std::set<std::string> several;
  for (const auto& object : saved.object())
    for (const auto& attribute : object.attribute())
      if (!attribute.full_name().empty() && !out.emplace(attribute.full_name(), attribute.checkpoint_key()).second)
        several.insert(attribute.full_name());
  for (const std::string& name : several) out.erase(name);
  return out;
}

/// The name of a partitioned variable and the number of its part: of "x/part_2/Adam" "x/Adam" and 2.
std::optional<std::pair<std::string, int64_t>> partitioned_name(const std::string& name) {
  static constexpr std::string_view kPart = "/part_";
  const size_t at = name.find(kPart);
  if (at == std::string::npos) return {};
  const char *begin = name.data() + at + kPart.size(), *end = name.data() + name.size();
  int64_t number = 0;
  const auto [rest, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || number < 0 || (rest != end && *rest != '/')) return {};
  return std::pair{name.substr(0, at) + std::string(rest, end), number};
}

/// Part `number` of a tensor of shape `whole`, of which the parts have these shapes, by number; nothing where they are
/// not all of it, one after the other along one axis.
std::optional<TensorSlice> part_of(const Shape& whole, const std::map<int64_t, PartialShape>& parts, int64_t number) {
  for (int axis = 0; axis < whole.rank(); ++axis) {
    TensorSlice slice = TensorSlice::all(whole);
    int64_t next = 0, size = 0;
    bool fits = true;
    for (const auto& [n, part] : parts) {
      fits = fits && n == next++ && part.fully_known() && part.rank() == whole.rank();
      for (int d = 0; fits && d < whole.rank(); ++d) fits = d == axis || part[d] == whole[d];
      if (!fits) break;
      if (n == number) {
        slice.begin[static_cast<size_t>(axis)] = size;
        slice.part = part.shape();
      }
      if (__builtin_add_overflow(size, part[axis], &size)) return {};
    }
    if (fits && size == whole[axis]) return slice;
  }
  return {};
}

/// What a restore finds, variable by variable.
class Restore {
 public:
  Restore(const CheckpointReader& checkpoint, const GraphVariables& variables)
      : checkpoint_(checkpoint), keys_(keys_of_objects(checkpoint)) {
    for (const auto& e : checkpoint.entries())
      if (e.name != kSavedObjects) left_.insert(std::string(e.name));
    for (const auto& [container, named] : variables.containers)
      for (const auto& [name, variable] : named)
        if (const auto partitioned = partitioned_name(name))
          parts_[{container, partitioned->first}].emplace(partitioned->second, variable.shape);
    for (const auto& [container, named] : variables.containers)
      for (const auto& [name, variable] : named)
        if (!variable.asset) find(container, name, variable);
  }

  const std::vector<std::string>& misfits() const { return misfits_; }
  std::vector<std::string> left() const { return {left_.begin(), left_.end()}; }

  struct Found {
    std::string container, name, key;
    std::optional<TensorSlice> slice;
    DType dtype;
  };
  const std::vector<Found>& found() const { return found_; }
  struct Missing {
    std::string container, name;
    bool needed;
  };
  const std::vector<Missing>& missing() const { return missing_; }

 private:
  void find(const std::string& container, const std::string& name, const GraphVariables::Variable& variable) {
    std::string key = name;
    std::optional<TensorSlice> slice;
    auto described = checkpoint_.find(key);
    if (!described.ok() && !variable.key.empty() && checkpoint_.find(variable.key).ok()) {
      key = variable.key;
      slice = variable.slice;
      described = checkpoint_.find(key);
    }
    const auto by_object = keys_.find(variable.object.empty() ? name : variable.object);
    if (!described.ok() && by_object != keys_.end()) {
      key = by_object->second;
      described = checkpoint_.find(key);
    }
    if (const auto partitioned = partitioned_name(name); !described.ok() && partitioned) {
      const auto whole = checkpoint_.find(partitioned->first);
      if (whole.ok()) slice = part_of(whole->second, parts_.at({container, partitioned->first}), partitioned->second);
      if (slice) {
        key = partitioned->first;
        described = whole;
      }
    }
    if (!described.ok() && described.error().code == Code::kNotFound)
      return missing_.push_back({container, name, variable.needed});
    left_.erase(key);
    if (!described.ok()) return misfits_.push_back(described.error().message);
    const auto& [dtype, shape] = *described;
    const bool same = dtype == variable.dtype || (is_floating(dtype) && is_floating(variable.dtype));
    if (slice && slice->whole != shape)
      return misfits_.push_back(fmt::format("{} is {}{}, and variable {} a part of {}", in_quotes(key),
                                            to_string(dtype), shape.str(), in_quotes(name), slice->whole.str()));
    if (!same || !variable.shape.compatible(slice ? slice->part : shape))
      return misfits_.push_back(fmt::format("{} is {}{}, and the variable {}{}", in_quotes(key), to_string(dtype),
                                            (slice ? slice->part : shape).str(), to_string(variable.dtype),
                                            variable.shape.str()));
    found_.push_back({container, name, key, std::move(slice), variable.dtype});
  }

  const CheckpointReader& checkpoint_;
  const std::map<std::string, std::string> keys_;
  std::set<std::string> left_;
  std::vector<std::string> misfits_;
  std::map<std::pair<std::string, std::string>, std::map<int64_t, PartialShape>> parts_;  // by container and whole
  std::vector<Found> found_;
  std::vector<Missing> missing_;
};

/// What an output is, without the identities on its way.
Output without_identities(Output o) {
  while (o.node->op().name() == "Identity") o = o.node->inputs()[0];
  return o;
}

/// The tensor of a checkpoint, and what of it, that `assign` sets its variable to; empty where it sets it to another
/// value.
std::pair<std::string, std::optional<TensorSlice>> restored(const Node& assign) {
  const Output value = without_identities(assign.inputs()[1]);
  if (value.node->op().name() != "RestoreV2") return {};
  const auto text = [&](int input) -> std::string {
    const auto* texts = without_identities(value.node->inputs()[input]).node->attrs().get<Tensor>("value");
    const bool there = texts && texts->dtype() == DType::kString && value.port < texts->elements();
    return there ? texts->data<std::string>()[value.port] : "";
  };
  const std::string part = text(2);
  if (part.empty()) return {text(1), {}};
  auto slice = TensorSlice::parse(part);
  return slice.ok() ? std::pair{text(1), std::optional(std::move(*slice))} : std::pair{std::string(), std::nullopt};
}

const std::string& variable_of(const Node& handle) {
  const auto* shared = handle.attrs().get<std::string>("shared_name");
  return shared && !shared->empty() ? *shared : handle.name();
}

const std::string& container_of_handle(const Node& handle) {
  static const std::string kNone;
  const auto* container = handle.attrs().get<std::string>("container");
  return container ? *container : kNone;
}

}  // namespace

Result<CheckpointReader> open_checkpoint(const std::string& path) {
  if (std::error_code error; std::filesystem::is_directory(path, error)) {
    TROUPE_ASSIGN(const std::string latest, checkpoint_of_folder(path));
    return CheckpointReader::open({}, latest, true);
  }
  const std::string prefix = bundle_prefix(path);
  const bool of_data = !prefix.empty() && bundle_index(prefix) != path;
  return CheckpointReader::open({}, of_data ? prefix : path, true);
}

CheckpointTarget checkpoint_target(const std::string& path) {
  if (path.ends_with(".safetensors")) return {CheckpointKind::kSafetensors, path};
  // The prefix, whichever of a bundle's files is named.
  const std::string prefix = bundle_prefix(path);
  return {CheckpointKind::kBundle, prefix.empty() ? path : prefix};
}

GraphVariables GraphVariables::of(const Graph& graph, std::span<const Node* const> nodes, bool saved_model) {
  GraphVariables out;
  const std::set<const Node*> needed(nodes.begin(), nodes.end());
  const std::lock_guard lock(graph.mutex());
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op().name() != "VarHandleOp") continue;
    if (const auto* temporary = n.attrs().get<bool>("_temporary"); temporary && *temporary) continue;
    const auto* shape = n.attrs().get<PartialShape>("shape");
    Variable& variable = out.containers[container_of_handle(n)][variable_of(n)];
    variable.dtype = *n.attrs().get<DType>("dtype");
    if (shape) variable.shape = *shape;
    variable.needed |= needed.contains(&n);
  }
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op().name() != "AssignVariableOp") continue;
    const Node& handle = *without_identities(n.inputs()[0]).node;
    if (handle.op().name() != "VarHandleOp") continue;
    auto& named = out.containers[container_of_handle(handle)];
    const auto found = named.find(variable_of(handle));
    if (found == named.end()) continue;
    Variable& variable = found->second;
    auto [key, slice] = restored(n);
    if (key.empty()) {
      variable.asset |= saved_model && variable.dtype == DType::kString &&
                        without_identities(n.inputs()[1]).node->op().name() == "Placeholder";
    } else if (variable.key.empty()) {
      variable.key = std::move(key);
      variable.slice = std::move(slice);
    }
  }
  for (auto& [container, named] : out.containers)
    for (auto& [name, variable] : named) variable.asset &= variable.key.empty();
  return out;
}

void GraphVariables::name_objects(const std::string& model) {
  const auto own = CheckpointReader::open({}, model + "/variables/variables");
  if (!own.ok()) return;  // a graph by itself, or of a .meta file
  const proto::SavedObjects saved = objects_of(*own);
  std::map<std::string, std::string> names;  // by key
  for (const auto& object : saved.object())
    for (const auto& attribute : object.attribute()) names.emplace(attribute.checkpoint_key(), attribute.full_name());
  for (auto& [container, named] : containers)
    for (auto& [name, variable] : named)
      if (const auto found = names.find(variable.key); found != names.end()) variable.object = found->second;
}

Status restore_variables(Engine& engine, const GraphVariables& variables, const std::string& path,
                         std::vector<std::string>& notes) {
  TROUPE_ASSIGN(const CheckpointReader checkpoint, open_checkpoint(path));
  const Restore restore(checkpoint, variables);
  if (!restore.misfits().empty())
    return invalid_argument("checkpoint {}: {}", in_quotes(path), join(restore.misfits(), "; "));
  std::vector<std::string> missing, kept;
  std::map<std::string, Snapshot> there;
  for (const auto& [container, named] : variables.containers) {
    TROUPE_ASSIGN(there[container], engine.snapshot(container).get());
  }
  for (const auto& m : restore.missing()) {
    const bool has_value = there[m.container].variables.contains(m.name);
    if (has_value) kept.push_back(m.name);
    else if (m.needed) missing.push_back(m.name);
  }
  const std::vector<std::string> left = restore.left();
  const std::string others = left.empty() ? ""
                                          : fmt::format("; it has {} that no variable takes: {}",
                                                        counted(left.size(), "tensor"), listed(left));
  if (restore.found().empty()) {
    std::vector<std::string> all;
    for (const auto& m : restore.missing()) all.push_back(m.name);
    return make_error(Code::kNotFound, "checkpoint {} has no tensor of the graph's {}{}{}{}", in_quotes(path),
                      counted(all.size(), "variable"), all.empty() ? "" : ": ", listed(all), others);
  }
  if (!missing.empty())
    return make_error(Code::kNotFound, "checkpoint {} lacks {}: {}{}", in_quotes(path),
                      counted(missing.size(), "variable"), listed(missing), others);
  std::map<std::string, Snapshot> values;
  for (const auto& f : restore.found()) {
    TROUPE_ASSIGN(const Tensor saved, checkpoint.read(f.key, f.slice));
    auto value = converted({f.name, f.dtype}, saved);
    if (!value.ok()) {
      value.error().message =
          fmt::format("checkpoint {}, tensor {}: {}", in_quotes(path), in_quotes(f.key), value.error().message);
      return std::move(value).failure();
    }
    values[f.container].variables[f.name] = std::move(*value);
  }
  for (const auto& [container, snapshot] : values) TROUPE_RETURN_IF_ERROR(engine.restore(snapshot, container));
  if (!kept.empty())
    notes.push_back(fmt::format("checkpoint {} lacks {}, which stay as they were: {}", in_quotes(path),
                                counted(kept.size(), "variable"), listed(kept)));
  if (!left.empty())
    notes.push_back(fmt::format("checkpoint {} has {} that no variable takes: {}", in_quotes(path),
                                counted(left.size(), "tensor"), listed(left)));
  return {};
}

Status check_target(const CheckpointTarget& target, const std::string& path) {
  const std::string last = std::filesystem::path(target.path).filename();
  if (last.empty() || last == "." || last == "..")
    return invalid_argument("checkpoint {} cannot be written: it must end in the name of a file", in_quotes(path));
  std::filesystem::path folder = folder_of(target.path);
  std::error_code ignored;
  while (!std::filesystem::exists(folder, ignored) && folder.has_relative_path())
    folder = folder.has_parent_path() ? folder.parent_path() : ".";
  if (!std::filesystem::is_directory(folder, ignored) || ::access(folder.c_str(), W_OK) != 0)
    return invalid_argument("checkpoint {} cannot be written: {} is not a folder that may be written", in_quotes(path),
                            in_quotes(folder.string()));
  if (target.kind == CheckpointKind::kBundle) return {};
  if (std::filesystem::is_directory(target.path, ignored))
    return invalid_argument("checkpoint {} cannot be written: it is a folder", in_quotes(path));
  // What reads a checkpoint takes the one of several files where there is one, and files of such names for a part of
  // it.
  if (!bundle_prefix(target.path).empty())
    return invalid_argument("checkpoint {} cannot be written as {}: its name is that of a file of {}", in_quotes(path),
                            to_string(target.kind), to_string(CheckpointKind::kBundle));
  if (std::filesystem::exists(bundle_index(target.path), ignored))
    return invalid_argument("checkpoint {} cannot be written as {}: {} is there, which would be read in its stead",
                            in_quotes(path), to_string(target.kind), in_quotes(bundle_index(target.path)));
  return {};
}

Status check_target(const GraphVariables& variables, const std::string& path) {
  const CheckpointTarget target = checkpoint_target(path);
  std::vector<std::string> others;
  for (const auto& [container, named] : variables.containers)
    for (const auto& [name, variable] : named)
      if (!variable.asset && !can_hold(target.kind, variable.dtype))
        others.push_back(fmt::format("{} {}", in_quotes(name), to_string(variable.dtype)));
  if (!others.empty()) return invalid_argument("{} cannot hold {}", to_string(target.kind), join(others, ", "));
  // Those that are needed have values at the end.
  std::map<std::string, std::string> needed;  // containers by names
  for (const auto& [container, named] : variables.containers)
    for (const auto& [name, variable] : named) {
      if (!variable.needed || variable.asset) continue;
      const auto [at, fresh] = needed.emplace(name, container);
      if (!fresh)
        return invalid_argument("checkpoint {} cannot be written: variable {} is in container {} and in {}",
                                in_quotes(path), in_quotes(name), in_quotes(at->second), in_quotes(container));
    }
  return check_target(target, path);
}

Status save_variables(Engine& engine, const GraphVariables& variables, const std::string& path) {
  const CheckpointTarget target = checkpoint_target(path);
  std::vector<TensorToSave> tensors;
  for (const auto& [container, named] : variables.containers) {
    TROUPE_ASSIGN(const Snapshot snapshot, engine.snapshot(container).get());
    for (const auto& [name, value] : snapshot.variables) {
      const auto variable = named.find(name);
      if (variable != named.end() && variable->second.asset) continue;
      const bool part = target.kind == CheckpointKind::kBundle && variable != named.end() && variable->second.slice &&
                        variable->second.slice->part == value.shape();
      TensorToSave tensor{name, value.dtype(), value.shape(), {}, [value]() -> Result<Tensor> { return value; }};
      if (part) {
        tensor.name = variable->second.key;
        tensor.slice = variable->second.slice;
        tensor.whole = tensor.slice->whole;
      }
      tensors.push_back(std::move(tensor));
    }
  }
  if (tensors.empty())
    return make_error(Code::kFailedPrecondition, "checkpoint {}: no variable of the graph has a value",
                      in_quotes(path));
  return write_checkpoint({}, target.kind, target.path, tensors);
}

}  // namespace troupe
