// SPDX-License-Identifier: Apache-2.0
#include "train/buckets.h"

#include <map>

#include "nn/updates.h"

namespace troupe::nn {
namespace {

Output shape_int64(const Scope& scope, const Shape& shape) { return scope.constant(Tensor::of<int64_t>(shape.dims())); }

}  // namespace

int64_t Bucket::elements() const {
  int64_t n = 0;
  for (const Variable& v : variables) n += v.shape.elements();
  return n;
}

std::vector<Bucket> make_buckets(const std::vector<Variable>& all, const std::vector<size_t>& members, int64_t bytes,
                                 bool by_decay) {
  std::vector<Bucket> out;
  std::map<std::pair<DType, bool>, size_t> open;  // which bucket of each kind is not full yet
  for (const size_t member : members) {
    const Variable& v = all[member];
    if (v.shape.elements() == 0) continue;
    const bool own = by_decay && decays(v.shape);
    const auto size = [&](int64_t elements) { return elements * static_cast<int64_t>(size_of(v.dtype)); };
    auto at = open.find({v.dtype, own});
    if (at == open.end() || size(out[at->second].elements() + v.shape.elements()) > bytes) {
      open[{v.dtype, own}] = out.size();
      out.push_back({{}, {}, v.dtype, own});
      at = open.find({v.dtype, own});
    }
    out[at->second].variables.push_back(v);
    out[at->second].members.push_back(member);
  }
  return out;
}

Output pack(const Scope& scope, const std::vector<Output>& tensors) {
  std::vector<Output> vectors;
  for (const Output& x : tensors)
    vectors.push_back(scope.op("Reshape", {x, scope.constant(Tensor::of<int32_t>({-1}))}));
  if (vectors.size() == 1) return vectors[0];
  vectors.push_back(scope.constant(int32_t{0}));
  return scope.op("ConcatV2", vectors);
}

std::vector<Output> unpack(const Scope& scope, const Bucket& bucket, Output vector) {
  std::vector<Output> parts = {vector};
  if (bucket.variables.size() > 1) {
    std::vector<int64_t> sizes;
    for (const Variable& v : bucket.variables) sizes.push_back(v.shape.elements());
    const Node* split = scope.node(
        "SplitV",
        {vector, scope.constant(Tensor::of<int64_t>(std::span<const int64_t>(sizes))), scope.constant(int32_t{0})},
        {{"num_split", static_cast<int64_t>(sizes.size())}});
    if (!split) return {};
    parts.clear();
    for (int i = 0; i < split->num_outputs(); ++i) parts.push_back(split->out(i));
  }
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] = scope.op("Reshape", {parts[i], shape_int64(scope, bucket.variables[i].shape)});
  return parts;
}

}  // namespace troupe::nn
