// SPDX-License-Identifier: Apache-2.0
// Sequence losses without alignment: CTCLoss, CTCLossV2. The decoders are in ctc_decode.cpp.
#include <algorithm>

#include "devices/parallel.h"
#include "ops/nn/ctc_alignment.h"
#include "ops/nn/ctc_sequences.h"
#include "ops/nn/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

struct LossAttrs {
  bool collapse, merge, ignore_longer, blank_first;
  explicit LossAttrs(const KernelInit& init)
      : collapse(init.attr<bool>("preprocess_collapse_repeated")), merge(init.attr<bool>("ctc_merge_repeated")),
        ignore_longer(init.attr<bool>("ignore_longer_outputs_than_inputs")), blank_first(init.op == "CTCLossV2") {}
};

using CtcLabels = std::vector<std::vector<int64_t>>;

/// The labels of each sequence from a sparse matrix.
Result<CtcLabels> read_labels(const Tensor& indices, const Tensor& values, const Sequences& s) {
  if (indices.rank() != 2 || indices.shape()[1] != 2 || values.rank() != 1 || values.elements() != indices.shape()[0])
    return invalid_argument("labels_indices of shape {} and labels_values of shape {}", indices.shape().str(),
                            values.shape().str());
  CtcLabels out(static_cast<size_t>(s.batch));
  for (int64_t i = 0; i < values.elements(); ++i) {
    const int64_t b = indices.data<int64_t>()[2 * i];
    if (b < 0 || b >= s.batch) return invalid_argument("a label of sequence {} in a batch of {}", b, s.batch);
    out[b].push_back(values.data<int32_t>()[i]);
  }
  return out;
}

/// Labels as the loss takes them: repeated ones collapsed if asked; the class after the last, and what follows it, is
/// no label where the blank is last.
Status prepare(std::vector<int64_t>& labels, int64_t b, const Sequences& s, const LossAttrs& attrs) {
  const int64_t end = attrs.blank_first ? s.classes : s.classes - 1;
  std::vector<int64_t> kept;
  bool ended = false;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (attrs.collapse && i > 0 && labels[i] == labels[i - 1]) continue;
    if (labels[i] < 0) return invalid_argument("label {} of sequence {} is negative", labels[i], b);
    if (labels[i] >= end) {
      ended = true;
      continue;
    }
    if (ended) return invalid_argument("sequence {} has label {} after one that is not a class", b, labels[i]);
    kept.push_back(labels[i]);
  }
  if (static_cast<int64_t>(kept.size()) > s.lengths[b] && !attrs.ignore_longer)
    return invalid_argument("sequence {} has {} labels, its length is {}", b, kept.size(), s.lengths[b]);
  labels = std::move(kept);
  return {};
}

template <class T> class CtcLoss final : public ComputeKernel {
 public:
  explicit CtcLoss(const KernelInit& init) : attrs_(init) {}
  Status compute(KernelContext& c) override {
    const Tensor& inputs = c.input(0);
    TROUPE_ASSIGN(const Sequences s, Sequences::read(inputs, c.input(3)));
    TROUPE_ASSIGN(CtcLabels labels, read_labels(c.input(1), c.input(2), s));
    for (int64_t b = 0; b < s.batch; ++b) TROUPE_RETURN_IF_ERROR(prepare(labels[b], b, s, attrs_));
    TROUPE_ASSIGN(Tensor loss, Tensor::zeros(dtype_of<T>, Shape{s.batch}, c.device().allocator));
    TROUPE_ASSIGN(Tensor gradient, Tensor::zeros(dtype_of<T>, inputs.shape(), c.device().allocator));
    parallel_for(c.threads(), s.batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        if (s.lengths[b] > 0 && static_cast<int64_t>(labels[b].size()) <= s.lengths[b])
          loss.mutable_data<T>()[b] = one(s, b, labels[b], inputs.data<T>(), gradient.mutable_data<T>());
    });
    c.set_output(0, std::move(loss));
    c.set_output(1, std::move(gradient));
    return {};
  }

 private:
  T one(const Sequences& s, int64_t b, const std::vector<int64_t>& labels, const T* logits, T* gradient) const {
    CtcInputs in{{}, s.lengths[b], s.classes, attrs_.blank_first ? 0 : s.classes - 1, attrs_.merge};
    in.log_y = s.log_softmax(logits, b);
    std::vector<double> dy(in.log_y.size(), 0.0);
    const double loss = ctc_loss(in, labels, dy);
    for (int64_t t = 0; t < in.time; ++t)
      for (int64_t k = 0; k < s.classes; ++k)
        gradient[(t * s.batch + b) * s.classes + k] = static_cast<T>(dy[t * s.classes + k]);
    return static_cast<T>(loss);
  }

  const LossAttrs attrs_;
};

Status loss_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape inputs, c.with_rank(0, 3));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 2).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1).status());
  TROUPE_ASSIGN(const PartialShape lengths, c.with_rank(3, 1));
  if (!inputs.has_rank()) inputs = PartialShape::of_rank(3);
  TROUPE_RETURN_IF_ERROR(PartialShape::merge(PartialShape{inputs[1]}, lengths).status());
  if (inputs[1] < 0 && lengths.has_rank()) inputs.set(1, lengths[0]);
  c.set_output(0, PartialShape{inputs[1]});
  c.set_output(1, inputs);
  return {};
}

/// The second output is the gradient of the first; TensorFlow takes it for constant as well.
Status loss_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output row = c.op("ExpandDims", {c.dy(0), c.constant(Tensor::scalar<int32_t>(-1))});
  c.set_dx(0, c.op("Mul", {row, c.op("PreventGradient", {c.output(1)})}));
  return {};
}

}  // namespace

void register_ctc_ops(OpRegistry& ops, KernelRegistry& kernels) {
  for (const bool v2 : {false, true}) {
    OpDef op(v2 ? "CTCLossV2" : "CTCLoss");
    const char* type = v2 ? "float32" : "T";
    op.input(fmt::format("inputs: {}", type))
        .input("labels_indices: int64")
        .input("labels_values: int32")
        .input("sequence_length: int32")
        .output(fmt::format("loss: {}", type))
        .output(fmt::format("gradient: {}", type))
        .attr("preprocess_collapse_repeated: bool = false")
        .attr("ctc_merge_repeated: bool = true")
        .attr("ignore_longer_outputs_than_inputs: bool = false");
    if (!v2) op.attr(type_attr("T", FullFloatTypes{}, "float32"));
    op.shape(loss_shape)
        .doc(std::string("The negative log-probability of each sequence of labels under logits [time, batch, classes], "
                         "summed over all alignments; the blank is the ") +
             (v2 ? "first" : "last") +
             " class. Infinite where there is none. Error for more labels than steps, unless these are ignored, which "
             "makes the loss 0.");
    const std::string name = op.name();
    ops.add(std::move(op), gradient(loss_gradient));
    if (v2) kernels.add<CtcLoss<float>>(name, DeviceKind::kCpu, {});
    else add_cpu_kernels<CtcLoss>(kernels, name, FullFloatTypes{});
  }
}

}  // namespace troupe
