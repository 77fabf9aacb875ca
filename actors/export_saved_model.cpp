// SPDX-License-Identifier: Apache-2.0
// export_saved_model(): the folder of a SavedModel, made beside its place and moved there.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

#include "base/join.h"
#include "base/printable.h"
#include "graph/graph_def/exported_model.h"
#include "io/replacing_file.h"
#include "io/tensor_bundle.h"
#include "io/whole_file.h"
#include "troupe/saved_model.h"

namespace troupe {
namespace {

namespace fs = std::filesystem;

Result<MetaGraph::Named> named_tensor(const Graph& graph, const SignatureTensor& tensor) {
  const Output& o = tensor.output;
  if (!o || !graph.owns(o.node)) return invalid_argument("it is empty, or of another graph");
  if (o.port < 0 || o.port >= o.node->num_outputs())
    return invalid_argument("{} has {} outputs", in_quotes(o.node->name()), o.node->num_outputs());
  if (tensor.dtype != DType::kInvalid && tensor.dtype != o.dtype())
    return invalid_argument("the signature says {}, and {} is {}", to_string(tensor.dtype), in_quotes(o.name()),
                            to_string(o.dtype()));
  TROUPE_ASSIGN(const PartialShape shape, PartialShape::merge(tensor.shape, o.shape()));
  return MetaGraph::Named{o.name(), o.dtype(), shape, tensor.value};
}

Status name_tensors(const Graph& graph, const std::string& signature, const char* what,
                    const std::map<std::string, SignatureTensor>& tensors,
                    std::map<std::string, MetaGraph::Named>& out) {
  for (const auto& [key, tensor] : tensors) {
    auto named = named_tensor(graph, tensor);
    if (!named.ok()) {
      named.error().message =
          fmt::format("signature {}, {} {}: {}", in_quotes(signature), what, in_quotes(key), named.error().message);
      return std::move(named).failure();
    }
    out.emplace(key, std::move(*named));
  }
  return {};
}

Result<MetaGraph> describe(const Graph& graph, const std::map<std::string, ModelSignature>& signatures,
                           const ExportOptions& options) {
  MetaGraph out;
  out.tags = options.tags;
  for (const auto& [name, signature] : signatures) {
    MetaGraph::Signature& s = out.signatures[name];
    s.method = signature.method;
    TROUPE_RETURN_IF_ERROR(name_tensors(graph, name, "input", signature.inputs, s.inputs));
    TROUPE_RETURN_IF_ERROR(name_tensors(graph, name, "output", signature.outputs, s.outputs));
  }
  if (options.initializer) {
    if (!graph.owns(options.initializer)) return invalid_argument("the initialiser is of another graph");
    out.init_op = options.initializer->name();
  }
  std::map<std::string, std::string> paths;
  for (const auto& [output, path] : options.assets) {
    const std::string name = fs::path(path).filename().string();
    auto named = named_tensor(graph, {output, DType::kString});
    if (!named.ok()) {
      named.error().message = fmt::format("asset {}: {}", in_quotes(path), named.error().message);
      return std::move(named).failure();
    }
    const auto [at, fresh] = paths.emplace(name, path);
    if (name.empty() || (!fresh && at->second != path))
      return invalid_argument("assets {} and {} would have one name", in_quotes(at->second), in_quotes(path));
    out.assets.push_back({named->tensor, name});
  }
  return out;
}

/// The values of the variables, each checked.
Result<std::vector<TensorToSave>> values_of(const std::vector<ExportedVariable>& variables, const Snapshot& snapshot) {
  std::vector<TensorToSave> out;
  std::vector<std::string> missing;
  for (const ExportedVariable& v : variables) {
    const auto at = snapshot.variables.find(v.name);
    if (at == snapshot.variables.end()) {
      missing.push_back(in_quotes(v.name));
      continue;
    }
    const Tensor& value = at->second;
    if (value.dtype() != v.dtype || !v.shape.compatible(value.shape()))
      return invalid_argument("the value of variable {} is {}{}, and it must be {}{}", in_quotes(v.name),
                              to_string(value.dtype()), value.shape().str(), to_string(v.dtype), v.shape.str());
    out.push_back({v.name, v.dtype, value.shape(), {}, [&value]() -> Result<Tensor> { return value; }});
  }
  if (!missing.empty())
    return make_error(Code::kNotFound, "{} variable{} without a value: {}", missing.size(),
                      missing.size() == 1 ? " is" : "s are", join(missing, ", "));
  return out;
}

Error there_already(const std::string& folder) {
  return make_error(Code::kAlreadyExists, "{} is there already", in_quotes(folder));
}

/// A folder beside the place of `folder` that goes unless it is moved there.
class NewFolder {
 public:
  static Result<NewFolder> make(const std::string& folder) {
    fs::path place = folder;
    if (!place.has_filename()) place = place.parent_path();  // "out/"
    std::error_code error;
    if (fs::exists(fs::symlink_status(place, error)) && !(fs::is_directory(place, error) && fs::is_empty(place, error)))
      return there_already(folder);
    const std::string parent = place.has_parent_path() ? place.parent_path().string() : ".";
    TROUPE_RETURN_IF_ERROR(make_posix_file_system()->make_directories(parent));
    for (int i = 0;; ++i) {
      const std::string name = fmt::format("{}.{}.{}.temporary", place.string(), ::getpid(), i);
      if (::mkdir(name.c_str(), 0777) == 0) return NewFolder(name, place.string());
      if (errno != EEXIST) return system_error("cannot make", folder, errno);
    }
  }
  NewFolder(NewFolder&& other) noexcept : name_(std::exchange(other.name_, "")), place_(std::move(other.place_)) {}
  ~NewFolder() {
    std::error_code ignored;
    if (!name_.empty()) fs::remove_all(name_, ignored);
  }
  const std::string& name() const { return name_; }
  Status move() {
    const auto files = make_posix_file_system();
    TROUPE_RETURN_IF_ERROR(files->sync_directory(name_));
    if (std::rename(name_.c_str(), place_.c_str()) != 0)
      return errno == ENOTEMPTY || errno == EEXIST ? there_already(place_) : system_error("cannot make", place_, errno);
    name_.clear();
    return files->sync_directory(folder_of(place_));
  }

 private:
  NewFolder(std::string name, std::string place) : name_(std::move(name)), place_(std::move(place)) {}
  std::string name_, place_;
};

Status write_new(const std::string& path, std::string_view bytes) {
  return replace_file(*make_posix_file_system(), path,
                      [&](WritableFile& file) { return file.append(bytes.data(), bytes.size()); });
}

}  // namespace

Status export_saved_model(const std::string& folder, const Graph& graph,
                          const std::map<std::string, ModelSignature>& signatures, const Snapshot& variables,
                          const ExportOptions& options) {
  if (folder.empty() || folder.find('\0') != std::string::npos)
    return invalid_argument("{} is not the path of a folder", in_quotes(folder));
  TROUPE_ASSIGN(const MetaGraph meta, describe(graph, signatures, options));
  std::vector<ExportedVariable> exported;
  TROUPE_ASSIGN(const std::string bytes, to_saved_model(graph, meta, exported));
  TROUPE_ASSIGN(const std::vector<TensorToSave> values, values_of(exported, variables));
  TROUPE_ASSIGN(NewFolder made, NewFolder::make(folder));
  if (!values.empty()) TROUPE_RETURN_IF_ERROR(write_bundle({}, made.name() + "/variables/variables", values));
  for (const auto& [output, path] : options.assets) {
    TROUPE_ASSIGN(const std::string asset, read_file(path));
    TROUPE_RETURN_IF_ERROR(write_new(made.name() + "/assets/" + fs::path(path).filename().string(), asset));
  }
  TROUPE_RETURN_IF_ERROR(write_new(made.name() + "/saved_model.pb", bytes));
  return made.move();
}

}  // namespace troupe
