// SPDX-License-Identifier: Apache-2.0
// Label sequences from the logits of their steps: CTCGreedyDecoder, CTCBeamSearchDecoder.
#include <limits>

#include "devices/parallel.h"
#include "ops/nn/ctc_beam.h"
#include "ops/nn/ctc_sequences.h"
#include "ops/nn/register.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// The label sequences of a batch as a sparse matrix, a row each.
class SparseLabels {
 public:
  /// The sequences are added in their order.
  void add(int64_t sequence, std::span<const int64_t> labels) {
    const auto n = static_cast<int64_t>(labels.size());
    for (int64_t i = 0; i < n; ++i) indices_.insert(indices_.end(), {sequence, i});
    values_.insert(values_.end(), labels.begin(), labels.end());
    longest_ = std::max(longest_, n);
  }
  /// Sets outputs `first`, `first` + `step` and `first` + 2 `step`: indices, values and sizes.
  void set(KernelContext& c, int first, int step, int64_t batch) const {
    const auto n = static_cast<int64_t>(values_.size());
    c.set_output(first, Tensor::of<int64_t>(std::span<const int64_t>(indices_), Shape{n, 2}));
    c.set_output(first + step, Tensor::of<int64_t>(std::span<const int64_t>(values_)));
    c.set_output(first + 2 * step, Tensor::of<int64_t>({batch, longest_}));
  }

 private:
  std::vector<int64_t> indices_, values_;
  int64_t longest_ = 0;
};

template <class T> class GreedyDecoder final : public ComputeKernel {
 public:
  explicit GreedyDecoder(const KernelInit& init)
      : merge_(init.attr<bool>("merge_repeated")), blank_(init.attr<int64_t>("blank_index")) {}
  Status compute(KernelContext& c) override {
    const Tensor& inputs = c.input(0);
    TROUPE_ASSIGN(const Sequences s, Sequences::read(inputs, c.input(1)));
    const int64_t blank = blank_ < 0 ? blank_ + s.classes : blank_;
    if (blank < 0 || blank >= s.classes) return invalid_argument("blank_index {} of {} classes", blank_, s.classes);
    TROUPE_ASSIGN(Tensor score, c.allocate(dtype_of<T>, Shape{s.batch, 1}));
    SparseLabels decoded;
    for (int64_t b = 0; b < s.batch; ++b) {
      T sum(0);
      std::vector<int64_t> labels;
      for (int64_t t = 0, before = -1; t < s.lengths[b]; ++t) {
        const T* row = s.row(inputs.data<T>(), b, t);
        const int64_t best = std::max_element(row, row + s.classes) - row;
        sum -= row[best];
        if (best != blank && !(merge_ && best == before)) labels.push_back(best);
        before = best;
      }
      decoded.add(b, labels);
      score.mutable_data<T>()[b] = sum;
    }
    decoded.set(c, 0, 1, s.batch);
    c.set_output(3, std::move(score));
    return {};
  }

 private:
  const bool merge_;
  const int64_t blank_;
};

template <class T> class BeamSearchDecoder final : public ComputeKernel {
 public:
  explicit BeamSearchDecoder(const KernelInit& init)
      : width_(init.attr<int64_t>("beam_width")), paths_(init.attr<int64_t>("top_paths")),
        merge_(init.attr<bool>("merge_repeated")) {}
  Status compute(KernelContext& c) override {
    const Tensor& inputs = c.input(0);
    TROUPE_ASSIGN(const Sequences s, Sequences::read(inputs, c.input(1)));
    TROUPE_ASSIGN(Tensor scores, c.allocate(dtype_of<T>, Shape{s.batch, paths_}));
    std::vector<std::vector<CtcBeamSearch::Path>> found(static_cast<size_t>(s.batch));
    parallel_for(c.threads(), s.batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        CtcBeamSearch search(width_, s.classes);
        std::vector<double> log_y = s.log_softmax(inputs.data<T>(), b);
        for (double& v : log_y)
          if (v != v) v = -std::numeric_limits<double>::infinity();
        for (int64_t t = 0; t < s.lengths[b]; ++t) search.step(log_y.data() + t * s.classes);
        found[b] = search.best(paths_, merge_);
      }
    });
    for (int64_t b = 0; b < s.batch; ++b)
      if (static_cast<int64_t>(found[b].size()) < paths_)
        return invalid_argument("top_paths {}, but sequence {} has only {} paths", paths_, b, found[b].size());
    for (int64_t p = 0; p < paths_; ++p) {
      SparseLabels decoded;
      for (int64_t b = 0; b < s.batch; ++b) {
        decoded.add(b, found[b][p].labels);
        scores.mutable_data<T>()[b * paths_ + p] = static_cast<T>(found[b][p].log_p);
      }
      decoded.set(c, static_cast<int>(p), static_cast<int>(paths_), s.batch);
    }
    c.set_output(static_cast<int>(3 * paths_), std::move(scores));
    return {};
  }

 private:
  const int64_t width_, paths_;
  const bool merge_;
};

/// Indices, values and sizes of `paths` sparse matrices, then a score for each sequence and path.
Status decoder_shape(ShapeContext& c, int paths) {
  TROUPE_ASSIGN(const PartialShape inputs, c.with_rank(0, 3));
  TROUPE_ASSIGN(PartialShape batch, c.with_rank(1, 1));
  if (inputs.has_rank()) {
    TROUPE_ASSIGN(batch, PartialShape::merge(PartialShape{inputs[1]}, batch));
  }
  for (int p = 0; p < paths; ++p) {
    c.set_output(p, PartialShape{-1, 2});
    c.set_output(paths + p, PartialShape{-1});
    c.set_output(2 * paths + p, PartialShape{2});
  }
  c.set_output(3 * paths, PartialShape{batch.has_rank() ? batch[0] : -1, paths});
  return {};
}

}  // namespace

void register_ctc_decode_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* none = "it chooses classes";
  ops.add(OpDef("CTCGreedyDecoder")
              .input("inputs: T")
              .input("sequence_length: int32")
              .output("decoded_indices: int64")
              .output("decoded_values: int64")
              .output("decoded_shape: int64")
              .output("log_probability: T")
              .attr("merge_repeated: bool = false")
              .attr("blank_index: int = -1")
              .attr(type_attr("T", FullFloatTypes{}, "float32"))
              .shape([](ShapeContext& c) -> Status { return decoder_shape(c, 1); })
              .doc("The likeliest class of each step of logits [time, batch, classes] without blanks, and with "
                   "merge_repeated without repetitions, as a sparse matrix; and minus the sum of their logits."),
          not_differentiable(none));
  add_cpu_kernels<GreedyDecoder>(kernels, "CTCGreedyDecoder", FullFloatTypes{});
  ops.add(
      OpDef("CTCBeamSearchDecoder")
          .input("inputs: T")
          .input("sequence_length: int32")
          .output("decoded_indices: top_paths * int64")
          .output("decoded_values: top_paths * int64")
          .output("decoded_shape: top_paths * int64")
          .output("log_probability: T")
          .attr("beam_width: int >= 1")
          .attr("top_paths: int >= 1")
          .attr("merge_repeated: bool = true")
          .attr(type_attr("T", FullFloatTypes{}, "float32"))
          .shape([](ShapeContext& c) -> Status {
            const auto paths = c.attr<int64_t>("top_paths"), width = c.attr<int64_t>("beam_width");
            if (paths > width) return invalid_argument("top_paths {} of beam_width {}", paths, width);
            return decoder_shape(c, static_cast<int>(paths));
          })
          .doc("The top_paths likeliest label sequences of logits [time, batch, classes], the blank the last class, "
               "found by a search that keeps beam_width prefixes at each step; each as a sparse matrix, and their "
               "log-probabilities [batch, top_paths]. With merge_repeated labels that follow one another are one. "
               "Error where a sequence has fewer paths."),
      not_differentiable(none));
  add_cpu_kernels<BeamSearchDecoder>(kernels, "CTCBeamSearchDecoder", FullFloatTypes{});
}

}  // namespace troupe
