// SPDX-License-Identifier: Apache-2.0
// Tensors for tests of checkpoints, and bytes from hexadecimal digits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/saved_parts.h"
#include "troupe/checkpoint.h"

/// The bytes of "00ff..".
inline std::string from_hex(std::string_view digits) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    out += static_cast<char>(digit(digits[i]) * 16 + digit(digits[i + 1]));
  return out;
}

/// A tensor of each dtype that files can hold, texts too, a scalar and empty ones.
inline troupe::TensorMap saved_samples() {
  using namespace troupe;
  TensorMap out;
  for (int d = 0; d < 64; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (!is_known(dtype) || is_object(dtype)) continue;
    Tensor t = *Tensor::zeros(dtype, {2, 3});
    auto* bytes = static_cast<uint8_t*>(t.mutable_raw());
    for (size_t i = 0; i < t.bytes(); ++i) bytes[i] = static_cast<uint8_t>(dtype == DType::kBool ? i % 2 : i * 37 + 1);
    out[to_string(dtype)] = t;
  }
  out["string"] = Tensor::of<std::string>({"a", "", std::string("\0\xff", 2), std::string(300, 'x')}, {2, 2});
  out["scalar"] = Tensor::scalar(3.5f);
  out["text"] = Tensor::scalar<std::string>("one");
  out["empty"] = *Tensor::zeros(DType::kFloat64, {0, 4});
  out["no texts"] = *Tensor::zeros(DType::kString, {0});
  out["layer/\xc3\xa4\xff/kernel"] = Tensor::of<float>({1, 2});
  return out;
}

/// What the writers of checkpoints take.
inline std::vector<troupe::TensorToSave> to_save(const troupe::TensorMap& tensors) {
  std::vector<troupe::TensorToSave> out;
  for (const auto& [name, tensor] : tensors)
    out.push_back({name, tensor.dtype(), tensor.shape(), {}, [tensor = tensor]() -> troupe::Result<troupe::Tensor> {
                     return tensor;
                   }});
  return out;
}

/// Part of a tensor; `slice` as in "4 6 0,2:-".
inline troupe::TensorToSave part_to_save(const std::string& name, const std::string& slice,
                                         const troupe::Tensor& value) {
  const troupe::TensorSlice box = *troupe::TensorSlice::parse(slice);
  return {name, value.dtype(), box.whole, box, [value]() -> troupe::Result<troupe::Tensor> { return value; }};
}
