// SPDX-License-Identifier: Apache-2.0
// Sizes of inputs, as far as they are known while a graph is built.
#include "nn/shapes.h"

#include <algorithm>

namespace troupe::nn {

int64_t last_size_of(const Scope& scope, Output x, int min_rank, const char* layer, const std::string& name) {
  if (!scope.ok()) return 0;
  if (!x) return scope.fail(invalid_argument("{} '{}': the input is empty", layer, name)), 0;
  const PartialShape& shape = x.shape();
  if (shape.has_rank() && shape.rank() >= min_rank && shape.dim(-1) > 0) return shape.dim(-1);
  if (shape.has_rank() && shape.rank() >= min_rank && shape.dim(-1) == 0)
    scope.fail(invalid_argument("{} '{}': input {} has shape {}; its last size must be at least 1", layer, name,
                                x.name(), shape.str()));
  else
    scope.fail(invalid_argument("{} '{}': input {} has shape {}; rank {} or more and a known last size are needed",
                                layer, name, x.name(), shape.str(), min_rank));
  return 0;
}

Output with_last_sizes(const Scope& scope, Output y, Output like, const std::vector<int64_t>& sizes) {
  if (!scope.ok() || !y || !like) return {};
  const PartialShape& of = like.shape();
  std::vector<int64_t> dims(of.dims().begin(), of.dims().end() - 1);
  // One -1 stands for an unknown size, unless others of 0 leave it open.
  const auto unknown = std::ranges::count(dims, -1);
  const bool in_steps = unknown > 1 || (unknown == 1 && std::ranges::count(dims, 0) > 0);
  const auto vector = [&](const std::vector<int64_t>& v) { return scope.constant(Tensor::of<int64_t>(v)); };
  const auto before = static_cast<int64_t>(dims.size());
  dims.insert(dims.end(), sizes.begin(), sizes.end());
  if (!in_steps) return scope.op("Reshape", {y, vector(dims)});
  auto known = PartialShape::make(dims);
  if (!known.ok()) return scope.fail(known.error()), Output{};
  const Output shape = scope.op("Shape", {like}, {{"out_type", DType::kInt64}});
  const Output first = scope.op("Slice", {shape, vector({0}), vector({before})});
  const Output all = scope.op("ConcatV2", {first, vector(sizes), scope.constant(0)});
  return scope.op("EnsureShape", {scope.op("Reshape", {y, all})}, {{"shape", std::move(*known)}});
}

}  // namespace troupe::nn
