// SPDX-License-Identifier: Apache-2.0
// The networks train_images knows.
#include "models.h"

using namespace troupe;

namespace {

constexpr int kClasses = 10;

Output convnet(const Scope& s, nn::Variables& v, Output x, bool training) {
  x = nn::max_pool(s, nn::relu(s, nn::conv2d(s, v, x, 32, 3, "conv1")), 2);
  x = nn::max_pool(s, nn::relu(s, nn::conv2d(s, v, x, 64, 3, "conv2")), 2);
  x = nn::dropout(s, v, nn::flatten(s, x), 0.25f, training);
  x = nn::relu(s, nn::dense(s, v, x, 128, "hidden", {.kernel = nn::he_normal()}));
  x = nn::dropout(s, v, x, 0.4f, training);
  return nn::dense(s, v, x, kClasses, "logits");
}

Output lenet(const Scope& s, nn::Variables& v, Output x, bool) {
  x = nn::max_pool(s, nn::relu(s, nn::conv2d(s, v, x, 6, 5, "conv1")), 2);
  x = nn::max_pool(s, nn::relu(s, nn::conv2d(s, v, x, 16, 5, "conv2", {.padding = "VALID"})), 2);
  x = nn::relu(s, nn::dense(s, v, nn::flatten(s, x), 120, "hidden1"));
  x = nn::relu(s, nn::dense(s, v, x, 84, "hidden2"));
  return nn::dense(s, v, x, kClasses, "logits");
}

Output mlp(const Scope& s, nn::Variables& v, Output x, bool training) {
  x = nn::relu(s, nn::dense(s, v, nn::flatten(s, x), 512, "hidden"));
  return nn::dense(s, v, nn::dropout(s, v, x, 0.2f, training), kClasses, "logits");
}

}  // namespace

nn::ModelFn make_model(const std::string& name, DType dtype) {
  const auto network = name == "lenet" ? lenet : name == "mlp" ? mlp : convnet;
  return [network, dtype](const Scope& s, nn::Variables& v, const std::vector<Output>& batch, bool training) {
    const Output logits = network(s, v, nn::cast(s, nn::pixels_to_float(s, batch[0]), dtype), training);
    return nn::ModelOutputs{nn::sparse_softmax_cross_entropy(s, logits, batch[1]), nn::accuracy(s, logits, batch[1])};
  };
}
