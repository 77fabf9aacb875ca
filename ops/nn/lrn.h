// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for local response normalisation take and check. Implemented in ops/nn/lrn.cpp.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

struct LrnParameters {
  int64_t radius;  // channels to both sides
  float bias, alpha, beta;
  explicit LrnParameters(const KernelInit& init);
};

/// Errors: images of another rank than 4.
Status check_lrn(const Shape& images);
/// The same of the inputs of LRNGrad. Errors: shapes that differ.
Status check_lrn_gradient(const KernelContext& c);

}  // namespace troupe
