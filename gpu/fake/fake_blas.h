// SPDX-License-Identifier: Apache-2.0
// Matrix products of the fake: loops on the host, put into the stream. Implemented in gpu/fake/fake_blas.cpp.
#pragma once
#include <memory>

#include "gpu/blas.h"

namespace troupe::gpu {

struct FakeBlasOptions {
  bool epilogues = true;  // else products with a bias, an activation or sums are kUnimplemented
  bool masks = true;      // else those with a mask or the derivative of GELU
  bool sums = true;       // else those with sums
};
std::shared_ptr<Blas> make_fake_blas(const FakeBlasOptions& options = {});

}  // namespace troupe::gpu
