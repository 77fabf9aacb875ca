// SPDX-License-Identifier: Apache-2.0
// The part of the special family that is Bessel functions and integrals; called by register_special_ops.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// BesselI0, I0e, I1, I1e, K0, K0e, K1, K1e, J0, J1, Y0, Y1, Dawsn, Expint, FresnelCos, FresnelSin, Spence.
void register_bessel_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
