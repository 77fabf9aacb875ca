// SPDX-License-Identifier: Apache-2.0
#include "troupe/tensor_list.h"

namespace troupe {

Tensor list_tensor(TensorList list) {
  return Tensor::scalar<TensorListRef>(std::make_shared<TensorList>(std::move(list)));
}

}  // namespace troupe
