// SPDX-License-Identifier: Apache-2.0
// What TensorFlow's SavedModel and .meta files hold beside their graphs: signatures, the ops that restore and
// initialise them, assets.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/graph.h"

namespace troupe {

/// One graph of a file, by names. Nothing has been looked up in the graph.
struct MetaGraph {
  /// A tensor that a signature takes or gives.
  struct Named {
    std::string tensor;             // "x:0"
    DType dtype = DType::kInvalid;  // as the file says; kInvalid where it does not, or the type is not ours
    PartialShape shape = {};
    std::optional<Tensor> value = {};  // of an input that need not be given
  };
  struct Signature {
    std::map<std::string, Named> inputs, outputs;
    std::string method;
  };
  struct Asset {
    std::string tensor, file;  // the file's name in the folder of assets
  };

  /// What fills a queue while steps run; `close` and `cancel` may be empty.
  struct QueueRunner {
    std::string queue;
    std::vector<std::string> enqueue;
    std::string close, cancel;
  };

  std::vector<std::string> tags;
  std::string tensorflow_version;
  std::map<std::string, Signature> signatures;
  std::vector<Asset> assets;
  std::vector<QueueRunner> queue_runners;
  std::string filename_tensor, restore_op;  // empty: it has nothing to restore
  bool sharded_v1 = false;                  // the checkpoint is of the first format, in several files
  std::string init_op;                      // runs after the restore; empty: none
};

/// The graphs of a file. Movable; one thread at a time.
class MetaGraphs {
 public:
  /// Of a SavedModel, binary or text. Errors: kDataLoss for other bytes and for what has no graph; kInvalidArgument for
  /// values that do not fit.
  static Result<MetaGraphs> of_saved_model(std::string_view bytes);
  /// Of a .meta file: one.
  static Result<MetaGraphs> of_meta_graph(std::string_view bytes);
  MetaGraphs(MetaGraphs&& other) noexcept;
  MetaGraphs& operator=(MetaGraphs&& other) noexcept;
  ~MetaGraphs();

  const std::vector<MetaGraph>& graphs() const { return graphs_; }
  /// Which graph has just these tags, in any order; of no tags: the only one, else the one that is tagged "serve"
  /// alone. Errors: kNotFound with the tags there are.
  Result<size_t> find(const std::vector<std::string>& tags) const;
  /// Adds the nodes of a graph to `graph`, as from_graph_def() does, once for each. Resources that name no container
  /// are of `container`.
  Status add_to(size_t index, Graph& graph, std::string_view container);

 private:
  struct File;
  explicit MetaGraphs(std::unique_ptr<File> file);
  Status read();
  std::unique_ptr<File> file_;
  std::vector<MetaGraph> graphs_;
};

}  // namespace troupe
