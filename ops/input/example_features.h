// SPDX-License-Identifier: Apache-2.0
// The values of features of tf.Example and tf.SequenceExample records.
#pragma once
#include <algorithm>

#include "io/example.pb.h"
#include "troupe/tensor.h"

namespace troupe {

/// kInvalid where it has no values of any type.
inline DType dtype_of_feature(const proto::Feature& f) {
  switch (f.kind_case()) {
    case proto::Feature::kBytesList: return DType::kString;
    case proto::Feature::kFloatList: return DType::kFloat32;
    case proto::Feature::kInt64List: return DType::kInt64;
    default: return DType::kInvalid;
  }
}

inline int64_t count_of(const proto::Feature& f) {
  switch (f.kind_case()) {
    case proto::Feature::kBytesList: return f.bytes_list().value_size();
    case proto::Feature::kFloatList: return f.float_list().value_size();
    case proto::Feature::kInt64List: return f.int64_list().value_size();
    default: return 0;
  }
}

/// Writes all values of a feature to `out` from element `at` on.
inline void copy_values(const proto::Feature& f, Tensor& out, int64_t at) {
  switch (out.dtype()) {
    case DType::kString: std::ranges::copy(f.bytes_list().value(), out.mutable_data<std::string>() + at); break;
    case DType::kFloat32: std::ranges::copy(f.float_list().value(), out.mutable_data<float>() + at); break;
    default: std::ranges::copy(f.int64_list().value(), out.mutable_data<int64_t>() + at);
  }
}

}  // namespace troupe
