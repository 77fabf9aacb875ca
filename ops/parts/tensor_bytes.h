// SPDX-License-Identifier: Apache-2.0
// Tensors as the bytes of a TensorProto. Implemented in ops/parts/tensor_bytes.cpp.
#pragma once
#include <string>

#include "troupe/tensor.h"

namespace troupe {

/// Errors: handles and lists; more bytes than a message may have.
Result<std::string> tensor_bytes(const Tensor& x);
/// Errors: bytes that are none.
Result<Tensor> tensor_of_bytes(const std::string& bytes);

}  // namespace troupe
