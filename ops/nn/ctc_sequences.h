// SPDX-License-Identifier: Apache-2.0
// What the losses and decoders of label sequences take: logits of a batch of sequences, each with its length.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// The sizes of inputs [time, batch, classes] with a length for each sequence. Errors: shapes that do not fit, lengths
/// beyond the time there is.
struct Sequences {
  int64_t time, batch, classes;
  std::span<const int32_t> lengths;

  static Result<Sequences> read(const Tensor& inputs, const Tensor& lengths) {
    if (inputs.rank() != 3 || inputs.shape()[1] == 0 || inputs.shape()[2] == 0)
      return invalid_argument("inputs must be [time, batch, classes], not {}", inputs.shape().str());
    Sequences s{inputs.shape()[0], inputs.shape()[1], inputs.shape()[2], lengths.values<int32_t>()};
    if (lengths.rank() != 1 || lengths.elements() != s.batch)
      return invalid_argument("sequence_length of shape {} for a batch of {}", lengths.shape().str(), s.batch);
    for (int64_t b = 0; b < s.batch; ++b)
      if (s.lengths[b] < 0 || s.lengths[b] > s.time)
        return invalid_argument("sequence_length {} of sequence {} is not in [0, {}]", s.lengths[b], b, s.time);
    return s;
  }

  /// The logits of sequence b at step t.
  template <class T> const T* row(const T* logits, int64_t b, int64_t t) const {
    return logits + (t * batch + b) * classes;
  }
  /// The log-probabilities of the classes at each step of sequence b: [length, classes].
  template <class T> std::vector<double> log_softmax(const T* logits, int64_t b) const {
    std::vector<double> out;
    for (int64_t t = 0; t < lengths[b]; ++t) {
      const T* x = row(logits, b, t);
      const double high = *std::max_element(x, x + classes);
      double sum = 0;
      for (int64_t k = 0; k < classes; ++k) sum += std::exp(x[k] - high);
      for (int64_t k = 0; k < classes; ++k) out.push_back(x[k] - high - std::log(sum));
    }
    return out;
  }
};

}  // namespace troupe
