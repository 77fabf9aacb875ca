// SPDX-License-Identifier: Apache-2.0
// Dataset's functions.
#include "troupe/dataset.h"

#include <algorithm>

#include "io/dataset_stages.h"

namespace troupe {
namespace {

/// `input` followed by a stage, with its prefetch depth.
Dataset then(const Dataset& from, StagePtr stage) { return Dataset(std::move(stage)).prefetch(from.prefetch_depth()); }

using MakeStage = StagePtr (*)(std::vector<std::string> files);

Result<Dataset> sharded(MakeStage make, std::vector<std::string> files, Shard shard) {
  if (shard.count < 1 || shard.index < 0 || shard.index >= shard.count)
    return invalid_argument("a shard must be from 0 to below their number, got shard {} of {}", shard.index,
                            shard.count);
  std::ranges::sort(files);
  if (std::ssize(files) < shard.count) return Dataset(make(std::move(files))).shard(shard.count, shard.index);
  std::vector<std::string> own;
  for (int64_t i = shard.index; i < std::ssize(files); i += shard.count)
    own.push_back(std::move(files[static_cast<size_t>(i)]));
  return Dataset(make(std::move(own)));
}

}  // namespace

Result<Dataset> Dataset::from_tensors(Element components) {
  if (components.empty()) return invalid_argument("a dataset of no tensors");
  for (size_t i = 0; i < components.size(); ++i) {
    const Tensor& t = components[i];
    if (!t.defined() || t.rank() == 0)
      return invalid_argument("component {} of a dataset is {}, which has no rows", i,
                              t.defined() ? "a scalar" : "undefined");
    if (t.dim(0) != components[0].dim(0))
      return invalid_argument("components 0 and {} of a dataset have {} and {} rows", i, components[0].dim(0),
                              t.dim(0));
  }
  return Dataset(make_rows_stage(std::move(components)));
}

Result<Dataset> Dataset::from_text_lines(std::vector<std::string> files) {
  return Dataset(make_lines_stage(std::move(files)));
}

Result<Dataset> Dataset::from_records(std::vector<std::string> files) {
  return Dataset(make_records_stage(std::move(files)));
}

Result<Dataset> Dataset::from_text_lines(std::vector<std::string> files, Shard shard) {
  return sharded(make_lines_stage, std::move(files), shard);
}

Result<Dataset> Dataset::from_records(std::vector<std::string> files, Shard shard) {
  return sharded(make_records_stage, std::move(files), shard);
}

Result<Dataset> Dataset::from_function(StoppableSourceFn fn, std::vector<DType> dtypes,
                                       std::vector<PartialShape> shapes) {
  if (!fn) return invalid_argument("from_function without a function");
  if (dtypes.empty()) return invalid_argument("from_function needs the dtypes of its components");
  if (shapes.empty()) shapes.resize(dtypes.size());
  if (shapes.size() != dtypes.size())
    return invalid_argument("from_function declares {} dtypes, but {} shapes", dtypes.size(), shapes.size());
  return Dataset(make_function_stage(std::move(fn), std::move(dtypes), std::move(shapes)));
}

Result<Dataset> Dataset::from_function(SourceFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes) {
  StoppableSourceFn unstoppable;
  if (fn) unstoppable = [fn = std::move(fn)](const std::stop_token&) { return fn(); };
  return from_function(std::move(unstoppable), std::move(dtypes), std::move(shapes));
}

Dataset Dataset::map(MapFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes) const {
  return then(*this, make_map_stage(stage_, std::move(fn), std::move(dtypes), std::move(shapes)));
}

Dataset Dataset::batch(int64_t size, bool drop_remainder) const {
  return then(*this, make_batch_stage(stage_, size, drop_remainder));
}

Dataset Dataset::shuffle(int64_t buffer, uint64_t seed) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kShuffle, buffer, -1, 1, seed}));
}

Dataset Dataset::repeat(int64_t count) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kRepeat, count}));
}

Dataset Dataset::take(int64_t count) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kRange, 0, count}));
}

Dataset Dataset::skip(int64_t count) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kRange, count}));
}

Dataset Dataset::shard(int64_t count, int64_t index) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kShard, index, -1, count}));
}

Dataset Dataset::prefetch(int64_t elements) const {
  Dataset out = *this;
  out.prefetch_ = std::max<int64_t>(elements, 0);
  return out;
}

}  // namespace troupe
