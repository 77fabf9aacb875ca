// SPDX-License-Identifier: Apache-2.0
// Packed: a tensor that may hold lists of tensors as plain tensors, which frames carry, and a form that says how it is
// made of them. Implemented in net/packed.cpp.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/error.h"
#include "troupe/tensor.h"

namespace troupe::net {

/// Lists within lists at most.
inline constexpr int kMostNestedLists = 16;

struct Packed {
  std::string form;             // empty: the tensor is the only one of `tensors`
  std::vector<Tensor> tensors;  // none of them a kVariant; shared, not copied
};

/// Errors: kInvalidArgument for lists within too many lists.
Result<Packed> pack(Tensor tensor);
/// The other way round; what was packed comes out. Errors: kDataLoss for a form that does not make a tensor of them.
Result<Tensor> unpack(std::string_view form, std::vector<Tensor> tensors);

}  // namespace troupe::net
