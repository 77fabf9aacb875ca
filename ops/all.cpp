// SPDX-License-Identifier: Apache-2.0
// The one list of lists: calls that of every family.
#include "ops/all.h"

#include "ops/array/register.h"
#include "ops/control/register.h"
#include "ops/data/register.h"
#include "ops/fused/register.h"
#include "ops/image/register.h"
#include "ops/input/register.h"
#include "ops/linear/register.h"
#include "ops/logging/register.h"
#include "ops/math/register.h"
#include "ops/nn/register.h"
#include "ops/quantized/register.h"
#include "ops/random/register.h"
#include "ops/signal/register.h"
#include "ops/sparse/register.h"
#include "ops/state/register.h"
#include "ops/text/register.h"
#include "ops/training/register.h"
#include "troupe/op_library.h"

namespace troupe {

std::shared_ptr<const OpLibrary> make_op_library() {
  auto library = std::make_shared<OpLibrary>();
  auto& [ops, kernels] = *library;
  register_array_ops(ops, kernels);
  register_control_ops(ops, kernels);
  register_data_ops(ops, kernels);
  register_image_ops(ops, kernels);
  register_input_ops(ops, kernels);
  register_linear_ops(ops, kernels);
  register_logging_ops(ops, kernels);
  register_math_ops(ops, kernels);
  register_nn_ops(ops, kernels);
  register_quantized_ops(ops, kernels);
  register_random_ops(ops, kernels);
  register_signal_ops(ops, kernels);
  register_sparse_ops(ops, kernels);
  register_state_ops(ops, kernels);
  register_text_ops(ops, kernels);
  register_training_ops(ops, kernels);
  // After those whose kernels its own are made of; the others may come in any order.
  register_fused_ops(ops, kernels);
  return library;
}

void register_card_collectives(OpRegistry& ops, KernelRegistry& kernels,
                               const std::shared_ptr<gpu::CollectiveRunner>& runner) {
  register_card_collective_ops(ops, kernels, runner);
}

}  // namespace troupe
