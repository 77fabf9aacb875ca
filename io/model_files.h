// SPDX-License-Identifier: Apache-2.0
// Where the parts of a saved model are: a SavedModel's folder, or a .meta file and the checkpoint beside it.
#pragma once
#include <string>
#include <string_view>

#include "troupe/error.h"

namespace troupe {

struct ModelFiles {
  std::string graph;         // the file of the graph
  bool saved_model = false;  // else a .meta file
  std::string checkpoint;    // the prefix of the checkpoint, which need not be there
  std::string assets;        // the folder of assets; empty: it can have none
};

/// Whether `path` says that it is a model, not a graph alone: a folder, a file that ends in .meta, or one that is
/// called saved_model.pb or saved_model.pbtxt.
bool names_model(const std::string& path);

/// The parts of what names_model() is true of. Errors: kNotFound where nothing is there; kInvalidArgument for a folder
/// that is not a SavedModel, with what it has instead.
Result<ModelFiles> find_model(const std::string& path);

/// The name to restore the checkpoint by: its prefix, or with `sharded_v1` the pattern of its files where it is not of
/// the second format. Empty where it is not there.
std::string checkpoint_to_restore(const ModelFiles& files, bool sharded_v1);

/// The path of an asset by its name. Errors: kInvalidArgument for a name that leads out of the folder, by "..", as an
/// absolute path or through a link; kNotFound for one that is not there.
Result<std::string> find_asset(const ModelFiles& files, const std::string& name);

/// What `path` is, where it is not `wanted`: "'x' is a PNG picture, not a graph: <message>"; else the error with the
/// path.
Error with_kind_of_file(const std::string& path, std::string_view wanted, Error error);

}  // namespace troupe
