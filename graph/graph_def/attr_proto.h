// SPDX-License-Identifier: Apache-2.0
// Attributes, shapes and tensors to and from TensorFlow's protobuf messages.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph_def/graph.pb.h"
#include "troupe/attr.h"

namespace troupe {

/// Writes an attribute. Numbers of tensors go as raw bytes, strings one by one.
void to_proto(const AttrValue& value, proto::AttrValue& out);

/// The numbers of the types in an attribute: its own, those of a list, or that of a tensor. Empty where none is
/// quantised.
std::vector<int64_t> quantized_types(const proto::AttrValue& value);

/// Gives an attribute these types again, where it has the plain integers that they are read as.
void set_types(const std::vector<int64_t>& types, proto::AttrValue& out);

/// Reads messages that may be hostile: every size is checked before memory is taken for it, and tensors that hold
/// more elements than the message has (its last value is repeated) may take `kMostRepeated` bytes in all.
class ProtoReader {
 public:
  static constexpr int64_t kMostRepeated = int64_t{1} << 30;

  /// `apart` has the raw bytes that content_apart stands for (large_constants.h).
  explicit ProtoReader(std::vector<Tensor> apart = {}) : apart_(std::move(apart)) {}

  /// `type` is the schema's word for the attribute ("list(int)"), which tells the type of an empty list; "" if unknown.
  /// Errors: kInvalidArgument for types, shapes and counts that do not fit; kUnimplemented for functions and for types
  /// Troupe has not; kResourceExhausted.
  Result<AttrValue> attr(const proto::AttrValue& value, std::string_view type);
  Result<Tensor> tensor(const proto::TensorProto& value);

 private:
  /// The tensor of raw bytes, of which `apart` is the memory where they were read apart.
  static Result<Tensor> of_content(std::string_view content, const Tensor* apart, DType dtype, const Shape& shape);

  const std::vector<Tensor> apart_;
  int64_t repeated_bytes_ = 0;
};

}  // namespace troupe
