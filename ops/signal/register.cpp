// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/signal/register.h"

namespace troupe {

void register_signal_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_audio_ops(ops, kernels);
  register_fft_ops(ops, kernels);
}

}  // namespace troupe
