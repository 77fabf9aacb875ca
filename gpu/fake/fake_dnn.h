// SPDX-License-Identifier: Apache-2.0
// Convolutions of the fake: loops on the host, put into the stream. Implemented in gpu/fake/fake_dnn.cpp.
#pragma once
#include <memory>

#include "gpu/dnn.h"

namespace troupe::gpu {

std::shared_ptr<Dnn> make_fake_dnn();

}  // namespace troupe::gpu
