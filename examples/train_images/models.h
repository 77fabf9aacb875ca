// SPDX-License-Identifier: Apache-2.0
// The networks train_images knows.
#pragma once
#include <string>

#include "troupe/train.h"

/// "convnet": two convolutions 3x3 of 32 and 64 channels, each with pooling, and 128 hidden units; "lenet": LeNet-5;
/// "mlp": 784-512-10. For batches of images uint8 [batch, height, width, 1] and labels int32 [batch] below 10. `dtype`:
/// what the layers compute in.
troupe::nn::ModelFn make_model(const std::string& name, troupe::DType dtype = troupe::DType::kFloat32);
