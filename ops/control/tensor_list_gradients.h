// SPDX-License-Identifier: Apache-2.0
// Gradients of the ops on lists of tensors: the gradient by a list is a list of the gradients by its elements.
#pragma once
#include "troupe/op.h"

namespace troupe {

Status list_push_back_gradient(GradientContext& c);
Status list_pop_back_gradient(GradientContext& c);
Status list_get_item_gradient(GradientContext& c);
Status list_set_item_gradient(GradientContext& c);
Status list_stack_gradient(GradientContext& c);
Status list_from_tensor_gradient(GradientContext& c);
Status list_concat_gradient(GradientContext& c);
Status list_split_gradient(GradientContext& c);
Status list_gather_gradient(GradientContext& c);
Status list_scatter_gradient(GradientContext& c);
Status list_scatter_into_gradient(GradientContext& c);
Status list_resize_gradient(GradientContext& c);

}  // namespace troupe
