// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification of one sequence. Source: Graves, Fernandez, Gomez, Schmidhuber, "Connectionist
// temporal classification", ICML 2006; equation numbers are theirs.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace troupe {

/// Log-probabilities of classes at each time step: [time, classes], row-major.
struct CtcInputs {
  std::vector<double> log_y;
  int64_t time = 0, classes = 0;
  int64_t blank = 0;
  bool merge_repeated = true;  // else a class at two steps in a row is two labels

  double at(int64_t t, int64_t k) const { return log_y[t * classes + k]; }
};

/// The logarithm of 0.
constexpr double kLogZero = -std::numeric_limits<double>::infinity();

/// log(exp(a) + exp(b)).
double log_add(double a, double b);

/// -log P(labels | inputs) over all alignments, infinite where there is none. Adds to `gradient` [time, classes] the
/// derivative by the logits, which is softmax - (expected share of each class at each step).
double ctc_loss(const CtcInputs& inputs, std::span<const int64_t> labels, std::span<double> gradient);

}  // namespace troupe
