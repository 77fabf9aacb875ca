// SPDX-License-Identifier: Apache-2.0
// The networks measured, the same ones as in the peers' scripts: "lenet" LeNet-5 on [N,28,28,1], "mobilenet"
// MobileNetV2 and "resnet" ResNet-50 (v1.5) on [N,224,224,3], "lstm" two layers as wide as their input, [N,32,512].
#pragma once
#include "troupe/nn.h"

namespace troupe::bench {

/// The shape of `batch` examples for a network.
Shape input_shape(const std::string& net, int64_t batch);
/// Logits [N,10] or [N,1000] of x. Tells the scopes of the blocks of MobileNetV2 and ResNet-50.
Output network(const std::string& net, const Scope& scope, nn::Variables& variables, Output x, bool training,
               std::vector<std::string>* blocks = nullptr);

}  // namespace troupe::bench
