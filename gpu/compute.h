// SPDX-License-Identifier: Apache-2.0
// Compute: what the kernels of one GPU device run by. A kernel finds it by KernelContext::device().gpu, puts its work
// into the stream and returns: it is then done as far as the device is concerned, since whatever uses its outputs comes
// later in the same stream. So it may not read what is in the card's memory, or wait.
#pragma once
#include <functional>
#include <memory>

#include "gpu/runtime.h"
#include "troupe/tensor.h"

namespace troupe::gpu {

class Blas;
class Dnn;

struct Compute {
  Stream& stream;
  const Card& card;
  Blas* blas = nullptr;  // of matrix products
  Dnn* dnn = nullptr;    // of convolutions
  /// Memory of the card that is used in the order of the stream: it may be given back while work that uses it waits.
  std::shared_ptr<Allocator> allocator;
  bool tf32 = false;  // products of float32 may be rounded so
  /// A value of the host in the card's memory, for all that is put into the stream from now on; any thread. The value
  /// is kept for as long as it is read.
  std::function<Result<Tensor>(const Tensor&)> upload = {};
  /// Whether a tensor is in this device's memory.
  std::function<bool(const Tensor&)> holds = {};
};

}  // namespace troupe::gpu
