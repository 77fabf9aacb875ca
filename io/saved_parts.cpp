// SPDX-License-Identifier: Apache-2.0
#include "io/saved_parts.h"

namespace troupe {

const char* to_string(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kSafetensors: return "a safetensors file";
    case CheckpointKind::kBundle: return "a TensorFlow checkpoint (V2)";
    case CheckpointKind::kSlices: return "a TensorFlow checkpoint (V1)";
  }
  return "";
}

std::string name_of_type(int number) {
  switch (number) {
    case 11: return "qint8";
    case 12: return "quint8";
    case 13: return "qint32";
    case 15: return "qint16";
    case 16: return "quint16";
    case 24: return "float8_e5m2";
    case 25: return "float8_e4m3fn";
    case 29: return "int4";
    case 30: return "uint4";
    default: break;
  }
  const auto type = static_cast<DType>(number);
  return number > 0 && number < 128 && is_known(type) ? to_string(type) : "type " + std::to_string(number);
}

Result<DType> dtype_of_number(int number) {
  switch (number) {
    case 11: return DType::kInt8;
    case 12: return DType::kUInt8;
    case 13: return DType::kInt32;
    case 15: return DType::kInt16;
    case 16: return DType::kUInt16;
    default: break;
  }
  const auto type = static_cast<DType>(number);
  if (number > 0 && number < 128 && is_known(type) && type != DType::kResource && type != DType::kVariant) return type;
  return make_error(Code::kUnimplemented, "{} is not supported in checkpoints", name_of_type(number));
}

Result<Tensor> value_of(const TensorToSave& tensor) {
  TROUPE_ASSIGN(Tensor value, tensor.value());
  if (value.dtype() != tensor.dtype || value.shape() != tensor.shape())
    return make_error(Code::kInternal, "tensor '{}' is {}{}, not the {}{} that was to be saved", tensor.name,
                      to_string(value.dtype()), value.shape().str(), to_string(tensor.dtype), tensor.shape().str());
  return value;
}

}  // namespace troupe
