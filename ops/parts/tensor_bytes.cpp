// SPDX-License-Identifier: Apache-2.0
#include "ops/parts/tensor_bytes.h"

#include "graph/graph_def/attr_proto.h"

namespace troupe {

Result<std::string> tensor_bytes(const Tensor& x) {
  if (x.dtype() == DType::kResource || x.dtype() == DType::kVariant)
    return invalid_argument("{} cannot be written as bytes", to_string(x.dtype()));
  proto::AttrValue value;
  to_proto(AttrValue(x), value);
  if (value.tensor().ByteSizeLong() > INT32_MAX)
    return make_error(Code::kResourceExhausted, "{} takes {} bytes, a message may have 2^31 - 1", x.shape().str(),
                      value.tensor().ByteSizeLong());
  return value.tensor().SerializeAsString();
}

Result<Tensor> tensor_of_bytes(const std::string& bytes) {
  proto::TensorProto message;
  if (!message.ParseFromString(bytes)) return invalid_argument("{} bytes are not a TensorProto", bytes.size());
  return ProtoReader().tensor(message);
}

}  // namespace troupe
