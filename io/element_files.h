// SPDX-License-Identifier: Apache-2.0
// A dataset in files, as TensorFlow's Dataset.save writes it: FOLDER/snapshot.metadata, which says of the run that
// wrote the elements its name, their types and their number, and FOLDER/RUN/00000000.shard/00000000.snapshot and on,
// each a file of records, a TensorProto for each component of each element.
#pragma once
#include "io/graph_stages.h"
#include "io/saved_parts.h"
#include "io/tfrecord.h"

namespace troupe {

/// Tensors as the bytes of a TensorProto.
struct TensorCoding {
  std::function<Result<std::string>(const Tensor&)> bytes;
  std::function<Result<Tensor>(const std::string&)> tensor;
};

struct ElementFiles {
  FileAccess access;
  std::string folder;
  RecordPacking packing = RecordPacking::kNone;
  TensorCoding coding;
  ComponentTypes dtypes;
  ComponentShapes shapes;
  std::string hash = "";  // of the graph of a snapshot
};

/// A stage for each shard, in order; nothing where no run has ended. Errors: kDataLoss; kInvalidArgument for elements
/// of other types; kUnimplemented for another version of the format. Those of elements come as they are read.
Result<std::optional<std::vector<StagePtr>>> saved_shards(const ElementFiles& files);

/// The number of the shard of an element.
using ShardFn = std::function<Result<int64_t>(const Pass& pass, Element element)>;

/// The elements of the input, which each pass also writes; with the end of a pass that had no errors its run takes the
/// place of the last one, whose files stay. One that ends before takes its files away.
/// Errors, of next(): those of the system, of `shard`, and of elements that have no place in a file.
StagePtr make_saving_stage(StagePtr input, ElementFiles files, ShardFn shard);

}  // namespace troupe
