// SPDX-License-Identifier: Apache-2.0
// Images: sizes, parts, colours, boxes, and the files they come in.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_image_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_boxes_ops(OpRegistry&, KernelRegistry&);
void register_color_ops(OpRegistry&, KernelRegistry&);
void register_crop_ops(OpRegistry&, KernelRegistry&);
void register_draw_boxes_ops(OpRegistry&, KernelRegistry&);
void register_image_file_ops(OpRegistry&, KernelRegistry&);
void register_glimpse_ops(OpRegistry&, KernelRegistry&);
void register_projective_ops(OpRegistry&, KernelRegistry&);
void register_random_crop_ops(OpRegistry&, KernelRegistry&);
void register_resize_ops(OpRegistry&, KernelRegistry&);
void register_scale_translate_ops(OpRegistry&, KernelRegistry&);
void register_soft_boxes_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
