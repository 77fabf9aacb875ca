// SPDX-License-Identifier: Apache-2.0
// Matrix products by a constant, which is laid out once. Implemented in ops/fused/kept_product.cpp.
#pragma once
#include <memory>

#include "ops/nn/epilogue.h"

namespace troupe {

/// The product of _FusedMatMul whose second factor is a Const of float32, with bias, added matrix and activation on the
/// way, part by part; of one row by a loop. The layout takes as much memory as the constant; without AVX-512 (by
/// oneDNN) twice that where the first two numbers of rows that come want different ones. Any number of threads.
class KeptProduct {
 public:
  /// nullptr where the factor is not such, or oneDNN is not there.
  static std::unique_ptr<KeptProduct> make(const KernelInit& init, const Epilogue& epilogue);
  ~KeptProduct();
  /// The result. Undefined where the plain way must do: another factor was fed, few elements, shapes that do not fit,
  /// without AVX-512 a third number of rows, or a processor that oneDNN has no such code for.
  Result<Tensor> compute(KernelContext& c);

 private:
  struct State;
  explicit KeptProduct(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace troupe
