// SPDX-License-Identifier: Apache-2.0
// Convolutions of the fake: loops on the host, put into the stream. Implemented in gpu/fake/fake_dnn.cpp.
#pragma once
#include <memory>

#include "gpu/dnn.h"

namespace troupe::gpu {

struct FakeDnnOptions {
  bool epilogues = true;  // else convolutions with a bias or an activation are kUnimplemented
};
std::shared_ptr<Dnn> make_fake_dnn(const FakeDnnOptions& options = {});

}  // namespace troupe::gpu
