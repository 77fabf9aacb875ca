// SPDX-License-Identifier: Apache-2.0
// Layers that compute in 16 bits while their variables stay float32 (Micikevicius et al., Mixed Precision Training,
// 2018). Implemented in nn/layers.cpp.
#pragma once
#include "troupe/scope.h"

namespace troupe::nn {

/// float16 or bfloat16.
inline bool is_16_bit_float(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

/// A float32 variable's value for a layer whose input is x: cast to x's type where that is a 16-bit float, else as it
/// is. Empty stays empty.
Output for_input(const Scope& scope, Output value, Output x);

/// float32 of a 16-bit float, any other x itself: what sums over many elements are made from.
Output widened(const Scope& scope, Output x);

}  // namespace troupe::nn
