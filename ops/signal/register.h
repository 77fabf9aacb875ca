// SPDX-License-Identifier: Apache-2.0
// Fourier transforms and sound.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_signal_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_audio_ops(OpRegistry&, KernelRegistry&);
void register_fft_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
