// SPDX-License-Identifier: Apache-2.0
// Shapes and slices as TensorFlow's checkpoints say them: messages, and the keys of parts of tensors.
#pragma once
#include "io/saved_tensors.pb.h"
#include "io/tensor_slice.h"

namespace troupe {

/// Errors (kDataLoss, without the file): unknown or impossible sizes.
Result<Shape> read_shape(const proto::SavedShape& shape);
/// Errors (kDataLoss, without the file): a box that is not within the shape.
Result<TensorSlice> read_box(const proto::SavedBox& box, const Shape& whole);
void write_shape(const Shape& shape, proto::SavedShape& out);
/// Dimensions that the slice has all of are said so.
void write_box(const TensorSlice& slice, proto::SavedBox& out);

/// The key of a part of a tensor, such that keys are in the order of names and places (TensorFlow's ordered code).
std::string key_of_part(std::string_view name, const proto::SavedBox& box);
/// For messages: "a part of tensor 'w'" for such a key, "tensor 'w'" for a name.
std::string described_key(std::string_view key);

}  // namespace troupe
