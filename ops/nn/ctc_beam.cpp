// SPDX-License-Identifier: Apache-2.0
// Prefix beam search. Probabilities are logarithms.
#include "ops/nn/ctc_beam.h"

#include <algorithm>

#include "ops/nn/ctc_alignment.h"

namespace troupe {

CtcBeamSearch::CtcBeamSearch(int64_t width, int64_t classes) : width_(width), classes_(classes) {
  prefixes_.push_back({-1, -1, 0, 0, kLogZero, 0, 0});
  beam_.push_back(0);
}

/// Of a prefix followed by `label`: one that ends in the same label takes a blank between.
double CtcBeamSearch::extension(const Prefix& parent, int64_t label) const {
  return label == parent.label ? parent.old_blank : parent.old_total;
}

int64_t CtcBeamSearch::child(int64_t parent, int64_t label) {
  const auto [it, added] = children_.try_emplace(parent * classes_ + label, static_cast<int64_t>(prefixes_.size()));
  if (added) prefixes_.push_back({parent, label, kLogZero, kLogZero, kLogZero, kLogZero, kLogZero});
  return it->second;
}

bool CtcBeamSearch::enters(double log_p) const {
  return log_p > kLogZero && (static_cast<int64_t>(beam_.size()) < width_ || log_p > prefixes_[beam_.front()].total);
}

/// Adds a prefix to the beam, dropping the worst where it is full.
void CtcBeamSearch::push(int64_t prefix) {
  const auto better = [&](int64_t a, int64_t b) { return prefixes_[a].total > prefixes_[b].total; };
  if (static_cast<int64_t>(beam_.size()) == width_) {
    std::ranges::pop_heap(beam_, better);
    Prefix& worst = prefixes_[beam_.back()];
    worst.total = worst.blank = worst.in_label = kLogZero;
    beam_.pop_back();
  }
  beam_.push_back(prefix);
  std::ranges::push_heap(beam_, better);
}

void CtcBeamSearch::step(const double* log_y) {
  const int64_t blank = classes_ - 1;
  std::vector<int64_t> before;
  before.swap(beam_);
  std::ranges::sort(before, [&](int64_t a, int64_t b) {
    return prefixes_[a].total != prefixes_[b].total ? prefixes_[a].total > prefixes_[b].total : a < b;
  });
  for (int64_t i : before) {
    prefixes_[i].old_total = prefixes_[i].total;
    prefixes_[i].old_blank = prefixes_[i].blank;
  }
  for (int64_t i : before) {  // prefixes that stay as they are
    Prefix& p = prefixes_[i];
    if (p.parent >= 0) {
      const Prefix& parent = prefixes_[p.parent];
      if (parent.total > kLogZero) p.in_label = log_add(p.in_label, extension(parent, p.label));
      p.in_label += log_y[p.label];
    }
    p.blank = p.old_total + log_y[blank];
    p.total = log_add(p.blank, p.in_label);
    push(i);
  }
  for (int64_t i : before) {  // and those with one more label
    if (!enters(prefixes_[i].old_total)) continue;
    for (int64_t label = 0; label < blank; ++label) {
      const double log_p = log_y[label] + extension(prefixes_[i], label);
      const auto known = children_.find(i * classes_ + label);
      if (known != children_.end() && prefixes_[known->second].total > kLogZero) continue;  // it is there
      if (!enters(log_p)) {  // one that was dropped in this step is not followed by labels either, as in TensorFlow
        if (known != children_.end())
          prefixes_[known->second].old_total = prefixes_[known->second].old_blank = kLogZero;
        continue;
      }
      const int64_t next = child(i, label);
      Prefix& p = prefixes_[next];
      p.total = p.in_label = log_p;
      p.blank = kLogZero;
      push(next);
    }
  }
}

std::vector<CtcBeamSearch::Path> CtcBeamSearch::best(int64_t n, bool merge_repeated) const {
  std::vector<int64_t> order = beam_;
  std::ranges::sort(order, [&](int64_t a, int64_t b) {
    return prefixes_[a].total != prefixes_[b].total ? prefixes_[a].total > prefixes_[b].total : a < b;
  });
  std::vector<Path> out;
  for (int64_t i : order) {
    if (static_cast<int64_t>(out.size()) == n) break;
    Path path{{}, prefixes_[i].total};
    for (int64_t at = i, before = -1; at > 0; at = prefixes_[at].parent) {
      const int64_t label = prefixes_[at].label;
      if (!merge_repeated || label != before) path.labels.push_back(label);
      before = label;
    }
    std::ranges::reverse(path.labels);
    out.push_back(std::move(path));
  }
  return out;
}

}  // namespace troupe
