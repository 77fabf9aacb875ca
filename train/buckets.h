// SPDX-License-Identifier: Apache-2.0
// Buckets: tensors of a model packed into a few vectors, so that a ring carries few large messages rather than many
// small ones. Implemented in train/buckets.cpp.
#pragma once
#include <string>
#include <vector>

#include "troupe/nn.h"

namespace troupe::nn {

struct Bucket {
  std::vector<Variable> variables;
  std::vector<size_t> members;  // which ones of the model these are
  DType dtype = DType::kFloat32;
  bool decays = false;

  int64_t elements() const;
};

/// Parts the variables `members`, in this order, into buckets: each of one dtype and, with `by_decay`, of those that
/// decay or of those that do not; full when one more would make it larger than `bytes`. Variables without elements are
/// in none.
std::vector<Bucket> make_buckets(const std::vector<Variable>& all, const std::vector<size_t>& members, int64_t bytes,
                                 bool by_decay);

/// The tensors of a bucket as one vector.
Output pack(const Scope& scope, const std::vector<Output>& tensors);
/// The vector as tensors of the variables' shapes.
std::vector<Output> unpack(const Scope& scope, const Bucket& bucket, Output vector);

}  // namespace troupe::nn
