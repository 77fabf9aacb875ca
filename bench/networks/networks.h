// SPDX-License-Identifier: Apache-2.0
// The networks measured, the same ones as in the peers' scripts: "lenet" LeNet-5 on [N,28,28,1]; "mobilenet"
// MobileNetV2, "resnet" ResNet-50 (v1.5) and "efficientnet" EfficientNet-B0 on [N,224,224,3]; "lstm" two layers as wide
// as their input, [N,32,512]; "bert" BERT-base with a pooler and 10 classes and "gpt2" GPT-2 small with logits of every
// position, on [N,128] words; "gpt2_next" the same for one word after 127 whose keys and values are inputs. There are
// 1,024 words, so that the layers count and not their table; BERT has no segments, GPT-2's last product a matrix of its
// own.
#pragma once
#include "troupe/nn.h"

namespace troupe::bench {

constexpr int64_t kWords = 1024, kPast = 127;

/// The shape of `batch` examples for a network, and their type: float32, of words int32.
Shape input_shape(const std::string& net, int64_t batch);
DType input_dtype(const std::string& net);
/// A network and what it reads: x, of "gpt2_next" keys and values of each layer [N,12,127,64] too.
struct Network {
  std::vector<Output> inputs;
  Output logits;
};
Network make_network(const std::string& net, const Scope& scope, nn::Variables& variables, int64_t batch,
                     bool training);
/// Logits [N,10] or [N,1000] of x, of GPT-2 [N * time,1024]. Tells the scopes of the blocks of those for images. Not of
/// "gpt2_next".
Output network(const std::string& net, const Scope& scope, nn::Variables& variables, Output x, bool training,
               std::vector<std::string>* blocks = nullptr);

}  // namespace troupe::bench
