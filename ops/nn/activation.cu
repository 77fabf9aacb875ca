// SPDX-License-Identifier: Apache-2.0
// Activation functions and the ops that compute gradients from results, on GPUs.
#include "ops/nn/activation_functors.h"
#include "ops/nn/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {

using namespace activation_functors;

void register_activation_gpu(KernelRegistry& kernels) {
  const GpuFloats floats;
  const GpuNumbers numbers;
  add_unary<Relu>(kernels, "Relu", numbers);
  add_unary<Relu6>(kernels, "Relu6", numbers);
  add_unary<Elu>(kernels, "Elu", floats);
  add_unary<Selu>(kernels, "Selu", floats);
  add_unary<Softplus>(kernels, "Softplus", floats);
  add_unary<Softsign>(kernels, "Softsign", floats);
  add_unary<LeakyRelu>(kernels, "LeakyRelu", floats, "alpha");
  add_unary<Sigmoid>(kernels, "Sigmoid", floats);
  add_unary<Tanh>(kernels, "Tanh", floats);
  add_unary<GeluApproximate>(kernels, "_GeluApproximate", floats);
  add_unary<GeluExact>(kernels, "_GeluExact", floats);
  add_binary<GeluApproximateGrad>(kernels, "_GeluApproximateGrad", floats);
  add_binary<GeluExactGrad>(kernels, "_GeluExactGrad", floats);
  add_binary<ReluGrad>(kernels, "ReluGrad", numbers);
  add_binary<Relu6Grad>(kernels, "Relu6Grad", numbers);
  add_binary<EluGrad>(kernels, "EluGrad", floats);
  add_binary<SeluGrad>(kernels, "SeluGrad", floats);
  add_binary<SoftplusGrad>(kernels, "SoftplusGrad", floats);
  add_binary<SoftsignGrad>(kernels, "SoftsignGrad", floats);
  add_binary<LeakyReluGrad>(kernels, "LeakyReluGrad", floats, "alpha");
  add_binary<SigmoidGrad>(kernels, "SigmoidGrad", floats);
  add_binary<TanhGrad>(kernels, "TanhGrad", floats);
  add_binary<SqrtGrad>(kernels, "SqrtGrad", floats);
  add_binary<RsqrtGrad>(kernels, "RsqrtGrad", floats);
  for (const char* op : {"ReciprocalGrad", "InvGrad"}) add_binary<ReciprocalGrad>(kernels, op, floats);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
