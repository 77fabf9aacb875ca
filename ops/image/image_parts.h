// SPDX-License-Identifier: Apache-2.0
// The parts of the image family, each a file of its own; called by register_array_ops.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_resize_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_scale_translate_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_crop_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_color_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_random_crop_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_boxes_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_soft_boxes_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_draw_boxes_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_glimpse_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_image_file_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
