// SPDX-License-Identifier: Apache-2.0
// Values from files as feeds take them: numbers of another type converted where none changes its meaning, rows
// regrouped to the shape of the feed. Implemented in cli/feed_values.cpp.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "troupe/tensor.h"

namespace troupe {

/// What is fed in each step from data.
struct FeedSlot {
  std::string name;  // as the user has it
  DType dtype = DType::kInvalid;
  PartialShape shape = {};
  std::optional<double> scale = {};  // numbers are multiplied by it; of floating dtypes alone
  bool batched = false;              // the first axis of a step's value is that of rows
};

/// The numbers as `slot.dtype`, times its scale. Errors name the element: kInvalidArgument for a fraction or a number
/// out of range for integers, one that is beyond a smaller floating type, other numbers than 0 and 1 for bool, and for
/// numbers where texts are wanted, or the other way.
Result<Tensor> converted(const FeedSlot& slot, const Tensor& value);

/// A step's value as the slot takes it: converted, and each row in the slot's shape where that joins or splits the
/// row's axes ([28,28] for [784], never [2,3] for [3,2]). Errors: as converted(); kInvalidArgument with both shapes.
Result<Tensor> fitted(const FeedSlot& slot, const Tensor& value);

/// The shape of one row of `count` values; of a slot of unknown shape a scalar for one value, else a vector.
Result<Shape> shape_of_row(const FeedSlot& slot, int64_t count);

/// How many elements each row has; nothing where the slot's shape does not say it.
std::optional<int64_t> elements_of_row(const FeedSlot& slot);

/// Reads one element of `out`, which is of slot.dtype, from text. Errors: kInvalidArgument for text that is not such a
/// number, or not one that this type has.
Status read_element(const FeedSlot& slot, std::string_view text, Tensor& out, int64_t at);
/// Whether the text is a number, or for a slot of bool also a word for one.
bool is_number(const FeedSlot& slot, std::string_view text);

}  // namespace troupe
