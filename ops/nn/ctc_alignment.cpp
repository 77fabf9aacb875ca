// SPDX-License-Identifier: Apache-2.0
// The forward-backward algorithm over all alignments of a label sequence.
#include "ops/nn/ctc_alignment.h"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

/// The labels with a blank before, between and after, and which moves among them are allowed.
struct States {
  const CtcInputs& in;
  std::vector<int64_t> classes;

  States(const CtcInputs& inputs, std::span<const int64_t> labels) : in(inputs) {
    for (int64_t label : labels) {
      classes.push_back(inputs.blank);
      classes.push_back(label);
    }
    classes.push_back(inputs.blank);
  }
  int64_t count() const { return static_cast<int64_t>(classes.size()); }
  bool may_stay(int64_t u) const { return in.merge_repeated || classes[u] == in.blank; }
  /// From state u - 2, over a blank.
  bool may_skip(int64_t u) const {
    return u >= 2 && classes[u] != in.blank && !(in.merge_repeated && classes[u] == classes[u - 2]);
  }
};

/// log alpha of each step and state: of all ways to be there (6, 7).
std::vector<double> forward(const States& s) {
  const int64_t n = s.count();
  std::vector<double> alpha(static_cast<size_t>(s.in.time * n), kLogZero);
  for (int64_t u = 0; u < std::min<int64_t>(n, 2); ++u) alpha[u] = s.in.at(0, s.classes[u]);
  for (int64_t t = 1; t < s.in.time; ++t) {
    const double* before = alpha.data() + (t - 1) * n;
    for (int64_t u = 0; u < n; ++u) {
      double sum = s.may_stay(u) ? before[u] : kLogZero;
      if (u >= 1) sum = log_add(sum, before[u - 1]);
      if (s.may_skip(u)) sum = log_add(sum, before[u - 2]);
      alpha[t * n + u] = sum + s.in.at(t, s.classes[u]);
    }
  }
  return alpha;
}

/// log beta of each step and state: of all ways from there to the end, the step itself left out (10, 11).
std::vector<double> backward(const States& s) {
  const int64_t n = s.count();
  std::vector<double> beta(static_cast<size_t>(s.in.time * n), kLogZero);
  for (int64_t u = std::max<int64_t>(n - 2, 0); u < n; ++u) beta[(s.in.time - 1) * n + u] = 0;
  for (int64_t t = s.in.time - 2; t >= 0; --t) {
    const auto after = [&](int64_t u) { return beta[(t + 1) * n + u] + s.in.at(t + 1, s.classes[u]); };
    for (int64_t u = 0; u < n; ++u) {
      double sum = s.may_stay(u) ? after(u) : kLogZero;
      if (u + 1 < n) sum = log_add(sum, after(u + 1));
      if (u + 2 < n && s.may_skip(u + 2)) sum = log_add(sum, after(u + 2));
      beta[t * n + u] = sum;
    }
  }
  return beta;
}

}  // namespace

double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kLogZero ? a : a + std::log1p(std::exp(b - a));
}

double ctc_loss(const CtcInputs& inputs, std::span<const int64_t> labels, std::span<double> gradient) {
  const States states(inputs, labels);
  const int64_t n = states.count(), classes = inputs.classes;
  const std::vector<double> alpha = forward(states), beta = backward(states);
  double log_p = kLogZero;
  for (int64_t u = 0; u < n; ++u) log_p = log_add(log_p, alpha[u] + beta[u]);
  std::vector<double> share(static_cast<size_t>(classes));
  for (int64_t t = 0; t < inputs.time; ++t) {
    std::fill(share.begin(), share.end(), kLogZero);
    for (int64_t u = 0; u < n; ++u) {
      double& sum = share[states.classes[u]];
      sum = log_add(sum, alpha[t * n + u] + beta[t * n + u]);
    }
    for (int64_t k = 0; k < classes; ++k)
      gradient[t * classes + k] += std::exp(inputs.at(t, k)) - (log_p == kLogZero ? 0 : std::exp(share[k] - log_p));
  }
  return -log_p;
}

}  // namespace troupe
