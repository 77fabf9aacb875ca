// SPDX-License-Identifier: Apache-2.0
// Checkpoints that command lines name: opened by any of their files, written in the format that a name asks for, and
// the variables of a graph begun with them. Implemented in cli/checkpoint_files.cpp.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint_reader.h"
#include "troupe/engine.h"

namespace troupe {

/// What tf.train.Checkpoint notes of Python's objects, as a text: not a weight, and of use to nobody else.
inline constexpr std::string_view kSavedObjects = "_CHECKPOINTABLE_OBJECT_GRAPH";

/// Opens a checkpoint by its prefix, the path of one of its files, a pattern of files, or the folder that it is in
/// (checkpoint_of_folder()). Errors: those of CheckpointReader::open().
Result<CheckpointReader> open_checkpoint(const std::string& path);

/// Where and how a checkpoint is written: a safetensors file for a name that ends so, else TensorFlow's second format.
struct CheckpointTarget {
  CheckpointKind kind = CheckpointKind::kBundle;
  std::string path;
};
CheckpointTarget checkpoint_target(const std::string& path);

/// Whether a checkpoint can be written there, as far as can be known before. `path` is what the user said. Error:
/// kInvalidArgument for what does not end in a name, a folder in the place of a file, a folder that cannot be written,
/// and a file that would not be read by that name, for there is a checkpoint of several files, or the name is that of
/// one of its files.
Status check_target(const CheckpointTarget& target, const std::string& path);

/// The variables of a graph, but for temporary ones.
struct GraphVariables {
  struct Variable {
    DType dtype = DType::kInvalid;
    PartialShape shape = {};
    bool needed = false;
    std::string key = {};                   // the tensor that the graph's own restore reads it from
    std::optional<TensorSlice> slice = {};  // what it is of that tensor, where that is a part
    std::string object = {};                // its name in Python
    bool asset = false;                     // the path of a file of the model: no checkpoint has it
  };
  /// By container and name.
  std::map<std::string, std::map<std::string, Variable>> containers;

  /// Needed are those among `nodes`. Takes the graph's mutex. Of a SavedModel the paths of assets are texts that a
  /// placeholder gives and that no restore reads.
  static GraphVariables of(const Graph& graph, std::span<const Node* const> nodes, bool saved_model);

  /// Sets `object` where the checkpoint of `model`, the folder of a SavedModel, tells it. The names of a SavedModel's
  /// variables differ from those in Python where several had one name, or one was saved several times.
  void name_objects(const std::string& model);
};

/// Sets the variables from a checkpoint: by their names, by `key`, or by the names in Python that the objects of a
/// tf.train.Checkpoint have, which are compared with `object` where it is set. The variables "x/part_0", "x/part_1",
/// ... of a partitioned variable are parts of tensor "x" along the axis on which their sizes add up to its own, unless
/// the graph's restore says which parts they are. Floating numbers become those of the variable's dtype. What is left
/// as it was is told by `notes`, a line each with all names: variables that have a value and no tensor, and tensors
/// without a variable. Errors: those of the reader; kInvalidArgument with all tensors of other types or shapes;
/// kNotFound with all needed variables that have neither tensor nor value, and where no tensor is a variable's.
Status restore_variables(Engine& engine, const GraphVariables& variables, const std::string& path,
                         std::vector<std::string>& notes);

/// Whether a checkpoint with these variables can be written there, as far as can be known before. Errors:
/// kInvalidArgument with all variables that the format cannot hold, for two of one name in different containers that
/// are needed, and for a folder that cannot be written.
Status check_target(const GraphVariables& variables, const std::string& path);

/// Writes the variables of the containers, each by its name, and in TensorFlow's second format those that the graph's
/// restore reads as parts of a tensor as these parts; what was there stays until the new one is whole. Errors: those of
/// Engine::snapshot() and write_checkpoint(); kFailedPrecondition where no variable has a value.
Status save_variables(Engine& engine, const GraphVariables& variables, const std::string& path);

}  // namespace troupe
