// SPDX-License-Identifier: Apache-2.0
// TensorList: what the elements of a kVariant tensor are. Loops gather their results and what their gradients need in
// lists. Implemented in tensor/tensor_list.cpp.
#pragma once
#include <vector>

#include "troupe/export.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// Tensors of one dtype. Immutable while more than one TensorListRef refers to it.
/// Source: TensorFlow's TensorList.
struct TensorList {
  DType dtype = DType::kInvalid;
  PartialShape shape;            // of every element
  int64_t most = -1;             // elements; -1: any number
  std::vector<Tensor> elements;  // undefined where none was set yet
};

/// A scalar kVariant.
Tensor list_tensor(TensorList list);

}  // namespace troupe
