// SPDX-License-Identifier: Apache-2.0
#include "cli/read_graph.h"

#include "cli/model_file.h"
#include "io/model_files.h"
#include "io/whole_file.h"
#include "troupe/graph_def.h"
#include "troupe/graph_file.h"

namespace troupe {

namespace {

/// Says what the file `path` is where it is not a graph.
Status explained(Status status, const std::string& path) {
  if (!status.ok() && status.error().code == Code::kDataLoss && !path.empty())
    return with_kind_of_file(path, "a graph", std::move(status.error()));
  return status;
}

}  // namespace

Status add_graph(const std::string& bytes, const std::string& path, Graph& graph) {
  return explained(from_graph_def(bytes, graph), path);
}

Result<ModelFile> ModelFile::open(const std::string& path) {
  TROUPE_ASSIGN(ModelFiles files, find_model(path));
  TROUPE_ASSIGN(const std::string bytes, read_file(files.graph));
  auto graphs = files.saved_model ? MetaGraphs::of_saved_model(bytes) : MetaGraphs::of_meta_graph(bytes);
  if (!graphs.ok())
    return with_kind_of_file(files.graph, files.saved_model ? "a SavedModel" : "a .meta file",
                             std::move(graphs.error()));
  return ModelFile{std::move(files), bytes.size(), std::move(*graphs)};
}

Status read_graph(const std::string& path, const std::vector<std::string>& tags, Graph& graph) {
  if (!names_model(path)) return explained(read_graph_def(path, graph), path);
  TROUPE_ASSIGN(ModelFile model, ModelFile::open(path));
  TROUPE_ASSIGN(const size_t index, model.graphs.find(tags));
  return model.graphs.add_to(index, graph, {});
}

}  // namespace troupe
