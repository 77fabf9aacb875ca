// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN. Implemented in gpu/cuda/cudnn_dnn.cpp.
#pragma once
#include <memory>

#include "gpu/dnn.h"

namespace troupe::gpu {

struct CudnnOptions {
  int card = 0;
  /// So many of the plans that cuDNN's heuristics advise for a problem are timed, each in two of the calls that come
  /// first, and nobody waits for that; the quickest is taken from then on. Plans round differently, so that the first
  /// calls of a problem may, and processes. 1: what the heuristics like best.
  int timed = 3;
  std::shared_ptr<Runtime> runtime = {};  // makes the events; none: as with `timed` of 1
};

/// The library, for one device on a card. It is opened when the first convolution comes, so that devices and graphs
/// without one need none; where it is not there each convolution is an error, kUnavailable, that names it. Plans are
/// chosen for each problem and alignment, and give the same bits each time where cuDNN has such; what they need to
/// work in comes from the device's allocator.
std::shared_ptr<Dnn> make_cudnn(const CudnnOptions& options);

}  // namespace troupe::gpu
