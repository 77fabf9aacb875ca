// SPDX-License-Identifier: Apache-2.0
#include "io/model_files.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/join.h"
#include "base/printable.h"
#include "io/data_folders.h"
#include "io/file_kind.h"
#include "io/file_system.h"
#include "io/tensor_bundle.h"

namespace troupe {
namespace {

constexpr const char* kGraphNames[] = {"saved_model.pb", "saved_model.pbtxt"};
/// How many files of a folder an error names.
constexpr size_t kMostFilesNamed = 5;

bool is_graph_name(const std::filesystem::path& path) {
  return std::ranges::any_of(kGraphNames, [&](const char* name) { return path.filename() == name; });
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

ModelFiles files_of(const std::filesystem::path& graph) {
  const std::filesystem::path folder = graph.parent_path();
  return {graph.string(), true, (folder / "variables" / "variables").string(), (folder / "assets").string()};
}

/// Why a folder is not a SavedModel.
Error not_a_model(const std::string& folder) {
  auto names = make_posix_file_system()->list(folder);
  if (!names.ok()) return std::move(names.error());
  for (const std::string& name : *names)
    if (name.ends_with(".index") && is_there(folder + "/" + name))
      return invalid_argument("{} is not a SavedModel: it has no saved_model.pb, but a checkpoint, {}",
                              in_quotes(folder), in_quotes(name));
  std::vector<std::string> quoted;
  for (const std::string& name : *names)
    if (quoted.size() < kMostFilesNamed) quoted.push_back(in_quotes(name));
  if (quoted.empty()) return invalid_argument("{} is not a SavedModel: it is empty", in_quotes(folder));
  return invalid_argument("{} is not a SavedModel: it has no saved_model.pb, but {}{}", in_quotes(folder),
                          join(quoted, ", "), names->size() > kMostFilesNamed ? ", ..." : "");
}

}  // namespace

bool names_model(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) || path.ends_with(".meta") || is_graph_name(path);
}

Result<ModelFiles> find_model(const std::string& path) {
  // The system ends a path at its first 0.
  if (path.empty() || path.find('\0') != std::string::npos)
    return invalid_argument("{} is not the path of a model", in_quotes(path));
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return system_error("cannot open", path, error ? error.value() : ENOENT);
  if (!std::filesystem::is_directory(status)) {
    if (is_graph_name(path)) return files_of(path);
    if (path.ends_with(".meta")) return ModelFiles{path, false, path.substr(0, path.size() - 5), ""};
    return with_kind_of_file(path, "a SavedModel's folder or a .meta file",
                             invalid_argument("it must be a SavedModel's folder or end in .meta"));
  }
  for (const char* name : kGraphNames)
    if (const auto graph = std::filesystem::path(path) / name; is_there(graph.string())) return files_of(graph);
  return not_a_model(path);
}

std::string checkpoint_to_restore(const ModelFiles& files, bool sharded_v1) {
  if (is_there(bundle_index(files.checkpoint)) || is_there(files.checkpoint)) return files.checkpoint;
  if (!sharded_v1) return "";
  const std::filesystem::path prefix = files.checkpoint;
  const auto names = make_posix_file_system()->list(prefix.has_parent_path() ? prefix.parent_path().string() : ".");
  if (!names.ok()) return "";
  const std::string begin = prefix.filename().string() + "-00000-of-";
  const bool any = std::ranges::any_of(*names, [&](const std::string& name) { return name.starts_with(begin); });
  return any ? files.checkpoint +
                   "-?????"
                   "-of-?????"
             : "";  // in two, for ??- is a trigraph
}

Result<std::string> find_asset(const ModelFiles& files, const std::string& name) {
  const std::filesystem::path inside = name;
  const bool leads_out = name.empty() || name.find('\0') != std::string::npos || inside.is_absolute() ||
                         std::ranges::find(inside, "..") != inside.end();
  if (leads_out || files.assets.empty())
    return invalid_argument("asset {} does not lie in the model's folder of assets", in_quotes(name));
  const std::string path = (std::filesystem::path(files.assets) / inside).string();
  if (!is_there(path))
    return make_error(Code::kNotFound, "asset {} is not there: {}", in_quotes(name), in_quotes(path));
  TROUPE_ASSIGN(const auto folder, DataFolders::make({files.assets}));
  if (!folder->check(path).ok())
    return invalid_argument("asset {} is a link that leads out of {}", in_quotes(name), in_quotes(files.assets));
  return path;
}

Error with_kind_of_file(const std::string& path, std::string_view wanted, Error error) {
  std::string kind;
  if (const auto file = make_posix_file_system()->open(path); file.ok()) kind = kind_of_file(**file);
  // What says nothing, and what was to be read anyway.
  const bool says_nothing = kind.empty() || kind == "something unknown" || kind == "unreadable" || kind == "empty" ||
                            kind == "text" || kind.starts_with("a graph") || kind.starts_with("a SavedModel");
  if (says_nothing) error.message = fmt::format("{}: {}", in_quotes(path), error.message);
  else error.message = fmt::format("{} is {}, not {}: {}", in_quotes(path), kind, wanted, error.message);
  return error;
}

}  // namespace troupe
