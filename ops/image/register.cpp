// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/image/register.h"

namespace troupe {

void register_image_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_boxes_ops(ops, kernels);
  register_color_ops(ops, kernels);
  register_crop_ops(ops, kernels);
  register_draw_boxes_ops(ops, kernels);
  register_image_file_ops(ops, kernels);
  register_glimpse_ops(ops, kernels);
  register_projective_ops(ops, kernels);
  register_random_crop_ops(ops, kernels);
  register_resize_ops(ops, kernels);
  register_scale_translate_ops(ops, kernels);
  register_soft_boxes_ops(ops, kernels);
}

}  // namespace troupe
