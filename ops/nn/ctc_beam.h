// SPDX-License-Identifier: Apache-2.0
// The likeliest label sequences of connectionist temporal classification by a search that keeps the best few prefixes
// at each step. Source: Graves, "Supervised sequence labelling with recurrent neural networks", 2012, algorithm 1.
#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The search through one sequence. The blank is the last class. One thread at a time.
class CtcBeamSearch {
 public:
  CtcBeamSearch(int64_t width, int64_t classes);
  /// Takes the next step's log-probabilities of the classes.
  void step(const double* log_y);

  struct Path {
    std::vector<int64_t> labels;
    double log_p;
  };
  /// The best `n` prefixes now, the best first, fewer where there are no more. With `merge_repeated` labels of a prefix
  /// that repeat are one.
  std::vector<Path> best(int64_t n, bool merge_repeated) const;

 private:
  /// A prefix: `label` behind that of `parent`. Its probability is that of ending in a blank and in its label.
  struct Prefix {
    int64_t parent, label;
    double total, blank, in_label;  // now
    double old_total, old_blank;    // a step before
  };
  double extension(const Prefix& parent, int64_t label) const;
  int64_t child(int64_t parent, int64_t label);
  bool enters(double log_p) const;
  void push(int64_t prefix);

  const int64_t width_, classes_;
  std::deque<Prefix> prefixes_;                    // all that were ever kept; the first is the empty one
  std::unordered_map<int64_t, int64_t> children_;  // by parent * classes + label
  std::vector<int64_t> beam_;                      // a heap, the worst on top
};

}  // namespace troupe
