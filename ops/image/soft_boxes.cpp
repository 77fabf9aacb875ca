// SPDX-License-Identifier: Apache-2.0
// Boxes chosen by more than one threshold: NonMaxSuppressionV5, which lowers scores, NonMaxSuppressionWithOverlaps and
// CombinedNonMaxSuppression of several classes. Source: Bodla et al., "Soft-NMS", 2017.
#include <array>
#include <cmath>
#include <functional>
#include <queue>

#include "ops/image/boxes.h"
#include "ops/image/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

struct Choice {
  int32_t box;
  float score;
};

/// What is not chosen: boxes that overlap a better one by more than `overlap`, or whose score is not above `least`.
/// With a sigma no overlap is too large, but each lowers the score.
struct Limits {
  int64_t most = 0;
  float overlap = 0, least = 0, sigma = 0;
};

/// The best boxes, the best first; of equal ones the first.
std::vector<Choice> choose(std::span<const float> scores, const Limits& limits,
                           const std::function<float(int32_t, int32_t)>& overlap) {
  struct Candidate {
    Choice choice;
    size_t compared;  // how many of the chosen have lowered its score
    bool operator<(const Candidate& other) const {
      return choice.score != other.choice.score ? choice.score < other.choice.score : choice.box > other.choice.box;
    }
  };
  std::priority_queue<Candidate> candidates;
  for (size_t i = 0; i < scores.size(); ++i)
    if (scores[i] > limits.least) candidates.push({{static_cast<int32_t>(i), scores[i]}, 0});
  const bool soft = limits.sigma > 0;
  std::vector<Choice> chosen;
  while (static_cast<int64_t>(chosen.size()) < limits.most && !candidates.empty()) {
    Candidate next = candidates.top();
    candidates.pop();
    const float before = next.choice.score;
    bool hidden = false;
    for (size_t j = chosen.size(); j > next.compared && !hidden; --j) {
      const float common = overlap(next.choice.box, chosen[j - 1].box);
      if (soft) next.choice.score *= std::exp(-0.5f / limits.sigma * common * common);
      hidden = soft ? !(next.choice.score > limits.least) : common > limits.overlap;
    }
    next.compared = chosen.size();
    if (hidden) continue;
    if (next.choice.score == before) chosen.push_back(next.choice);
    else candidates.push(next);
  }
  return chosen;
}

/// Scalar input i. Errors name it.
Result<float> threshold_from(const KernelContext& c, int i, const char* name) {
  if (c.input(i).rank() != 0) return invalid_argument("{} must be a scalar, not {}", name, c.input(i).shape().str());
  return *c.input(i).data<float>();
}

class SoftSuppression final : public ComputeKernel {
 public:
  explicit SoftSuppression(const KernelInit& init) : pads_(init.attr<bool>("pad_to_max_output_size")) {}
  Status compute(KernelContext& c) override {
    const Tensor &boxes = c.input(0), &scores = c.input(1);
    if (boxes.rank() != 2 || boxes.dim(1) != 4 || scores.rank() != 1 || scores.dim(0) != boxes.dim(0))
      return invalid_argument("boxes {} and scores {} must be [n,4] and [n]", boxes.shape().str(),
                              scores.shape().str());
    Limits limits;
    TROUPE_ASSIGN(limits.most, count_from(c.input(2), "max_output_size"));
    TROUPE_ASSIGN(limits.overlap, threshold_from(c, 3, "iou_threshold"));
    TROUPE_ASSIGN(limits.least, threshold_from(c, 4, "score_threshold"));
    TROUPE_ASSIGN(limits.sigma, threshold_from(c, 5, "soft_nms_sigma"));
    if (!(limits.overlap >= 0 && limits.overlap <= 1))
      return invalid_argument("iou_threshold {} is not in [0, 1]", limits.overlap);
    if (!(limits.sigma >= 0)) return invalid_argument("soft_nms_sigma {} is negative", limits.sigma);
    const float* corners = boxes.data<float>();
    const auto chosen = choose(scores.values<float>(), limits, [corners](int32_t a, int32_t b) {
      return Box(corners + int64_t{4} * a).overlap(Box(corners + int64_t{4} * b));
    });
    const Shape shape{pads_ ? limits.most : static_cast<int64_t>(chosen.size())};
    TROUPE_ASSIGN(Tensor indices, Tensor::zeros(DType::kInt32, shape, c.device().allocator));
    TROUPE_ASSIGN(Tensor kept, Tensor::zeros(DType::kFloat32, shape, c.device().allocator));
    for (size_t i = 0; i < chosen.size(); ++i) {
      indices.mutable_data<int32_t>()[i] = chosen[i].box;
      kept.mutable_data<float>()[i] = chosen[i].score;
    }
    c.set_output(0, std::move(indices));
    c.set_output(1, std::move(kept));
    c.set_output(2, Tensor::scalar<int32_t>(static_cast<int32_t>(chosen.size())));
    return {};
  }

 private:
  const bool pads_;
};

class SuppressionWithOverlaps final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &overlaps = c.input(0), &scores = c.input(1);
    if (overlaps.rank() != 2 || overlaps.dim(0) != overlaps.dim(1) || scores.rank() != 1 ||
        scores.dim(0) != overlaps.dim(0))
      return invalid_argument("overlaps {} and scores {} must be [n,n] and [n]", overlaps.shape().str(),
                              scores.shape().str());
    Limits limits;
    TROUPE_ASSIGN(limits.most, count_from(c.input(2), "max_output_size"));
    TROUPE_ASSIGN(limits.overlap, threshold_from(c, 3, "overlap_threshold"));
    TROUPE_ASSIGN(limits.least, threshold_from(c, 4, "score_threshold"));
    const float* common = overlaps.data<float>();
    const int64_t n = scores.dim(0);
    const auto chosen = choose(scores.values<float>(), limits, [&](int32_t a, int32_t b) { return common[a * n + b]; });
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kInt32, Shape{static_cast<int64_t>(chosen.size())}));
    std::ranges::transform(chosen, y.mutable_data<int32_t>(), &Choice::box);
    c.set_output(0, std::move(y));
    return {};
  }
};

/// The sizes of CombinedNonMaxSuppression; -1: not known.
struct CombinedSizes {
  int64_t batch = -1, boxes = -1, kinds = -1, classes = -1;  // kinds of boxes: one for all classes, or one for each

  static Result<CombinedSizes> of(const PartialShape& boxes, const PartialShape& scores) {
    const PartialShape four = boxes.has_rank() ? boxes : PartialShape::of_rank(4);
    const PartialShape three = scores.has_rank() ? scores : PartialShape::of_rank(3);
    const auto differ = [](int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; };
    if (four.rank() != 4 || three.rank() != 3 || differ(four[3], 4) || differ(four[0], three[0]) ||
        differ(four[1], three[1]) || (differ(four[2], 1) && differ(four[2], three[2])))
      return invalid_argument("boxes {} and scores {} must be [batch,n,1 or classes,4] and [batch,n,classes]",
                              boxes.str(), scores.str());
    return CombinedSizes{std::max(four[0], three[0]), std::max(four[1], three[1]), four[2], three[2]};
  }
};

/// How many detections of a batch there is place for.
int64_t places(int64_t each, int64_t total, int64_t classes, bool per_class) {
  return per_class && each <= total / std::max<int64_t>(classes, 1) ? each * classes : total;
}

class CombinedSuppression final : public ComputeKernel {
 public:
  explicit CombinedSuppression(const KernelInit& init)
      : per_class_(init.attr<bool>("pad_per_class")), clip_(init.attr<bool>("clip_boxes")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const CombinedSizes n, CombinedSizes::of(c.input(0).shape(), c.input(1).shape()));
    Limits limits;
    TROUPE_ASSIGN(limits.most, count_from(c.input(2), "max_output_size_per_class"));
    TROUPE_ASSIGN(const int64_t total, count_from(c.input(3), "max_total_size"));
    TROUPE_ASSIGN(limits.overlap, threshold_from(c, 4, "iou_threshold"));
    TROUPE_ASSIGN(limits.least, threshold_from(c, 5, "score_threshold"));
    if (limits.most == 0 || total == 0)
      return invalid_argument("max_output_size_per_class {} and max_total_size {} must be above 0", limits.most, total);
    if (!(limits.overlap >= 0 && limits.overlap <= 1))
      return invalid_argument("iou_threshold {} is not in [0, 1]", limits.overlap);
    const int64_t size = places(limits.most, total, n.classes, per_class_);
    const auto& allocator = c.device().allocator;
    TROUPE_ASSIGN(const Shape rows, Shape::make(std::array{n.batch, size}));
    TROUPE_ASSIGN(const Shape corners, Shape::make(std::array{n.batch, size, int64_t{4}}));
    TROUPE_ASSIGN(Tensor boxes, Tensor::zeros(DType::kFloat32, corners, allocator));
    TROUPE_ASSIGN(Tensor scores, Tensor::zeros(DType::kFloat32, rows, allocator));
    TROUPE_ASSIGN(Tensor classes, Tensor::zeros(DType::kFloat32, rows, allocator));
    TROUPE_ASSIGN(Tensor counts, Tensor::zeros(DType::kInt32, Shape{n.batch}, allocator));
    for (int64_t b = 0; b < n.batch; ++b) {
      const auto found = detect(n, c.input(0).data<float>() + b * n.boxes * n.kinds * 4,
                                c.input(1).data<float>() + b * n.boxes * n.classes, limits);
      const int64_t count = std::min<int64_t>(static_cast<int64_t>(found.size()), size);
      counts.mutable_data<int32_t>()[b] = static_cast<int32_t>(count);
      for (int64_t i = 0; i < count; ++i) {
        const Detection& d = found[static_cast<size_t>(i)];
        const int64_t at = b * size + i;
        scores.mutable_data<float>()[at] = d.score;
        classes.mutable_data<float>()[at] = static_cast<float>(d.kind);
        for (int k = 0; k < 4; ++k)
          boxes.mutable_data<float>()[4 * at + k] = clip_ ? std::clamp(d.corners[k], 0.f, 1.f) : d.corners[k];
      }
    }
    c.set_output(0, std::move(boxes));
    c.set_output(1, std::move(scores));
    c.set_output(2, std::move(classes));
    c.set_output(3, std::move(counts));
    return {};
  }

 private:
  struct Detection {
    const float* corners;
    float score;
    int64_t kind;
  };
  /// The detections of all classes in one image, the best first.
  static std::vector<Detection> detect(const CombinedSizes& n, const float* boxes, const float* scores,
                                       const Limits& limits) {
    std::vector<Detection> out;
    std::vector<float> own(static_cast<size_t>(n.boxes));
    for (int64_t kind = 0; kind < n.classes; ++kind) {
      const auto corners = [&](int64_t box) { return boxes + (box * n.kinds + (n.kinds > 1 ? kind : 0)) * 4; };
      for (int64_t i = 0; i < n.boxes; ++i) own[static_cast<size_t>(i)] = scores[i * n.classes + kind];
      for (const Choice& choice :
           choose(own, limits, [&](int32_t a, int32_t b) { return Box(corners(a)).overlap(Box(corners(b))); }))
        out.push_back({corners(choice.box), choice.score, kind});
    }
    std::ranges::stable_sort(out, [](const Detection& a, const Detection& b) { return a.score > b.score; });
    return out;
  }

  const bool per_class_, clip_;
};

Status thresholds_are_scalars(ShapeContext& c) {
  for (int i = 2; i < c.num_inputs(); ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  return {};
}

Status soft_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 2).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  TROUPE_RETURN_IF_ERROR(thresholds_are_scalars(c));
  PartialShape out{-1};
  if (const auto most = c.constant_input(2); most && c.attrs().get_or("pad_to_max_output_size", false)) {
    TROUPE_ASSIGN(const int64_t size, count_from(*most, "max_output_size"));
    out.set(0, size);
  }
  for (int i = 0; i < std::min(c.num_outputs(), 2); ++i) c.set_output(i, out);
  if (c.num_outputs() == 3) c.set_output(2, PartialShape::scalar());
  return {};
}

Status combined_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const CombinedSizes n, CombinedSizes::of(c.input(0), c.input(1)));
  TROUPE_RETURN_IF_ERROR(thresholds_are_scalars(c));
  const auto each = c.constant_input(2), total = c.constant_input(3);
  int64_t size = -1;
  const bool per_class = c.attr<bool>("pad_per_class");
  if (total && (!per_class || (each && n.classes >= 0))) {
    TROUPE_ASSIGN(const int64_t all, count_from(*total, "max_total_size"));
    int64_t most = 0;
    if (each) {
      TROUPE_ASSIGN(most, count_from(*each, "max_output_size_per_class"));
    }
    size = places(most, all, n.classes, per_class);
  }
  TROUPE_ASSIGN(PartialShape boxes, PartialShape::make(std::array{n.batch, size, int64_t{4}}));
  c.set_output(0, std::move(boxes));
  for (int i : {1, 2}) c.set_output(i, PartialShape{n.batch, size});
  c.set_output(3, PartialShape{n.batch});
  return {};
}

}  // namespace

void register_soft_boxes_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* none = "it chooses";
  ops.add(
      OpDef("NonMaxSuppressionV5")
          .input("boxes: T")
          .input("scores: T")
          .input("max_output_size: int32")
          .input("iou_threshold: T")
          .input("score_threshold: T")
          .input("soft_nms_sigma: T")
          .output("selected_indices: int32")
          .output("selected_scores: T")
          .output("valid_outputs: int32")
          .attr("T: {float16, float32} = float32")
          .attr("pad_to_max_output_size: bool = false")
          .shape(soft_shape)
          .doc("As NonMaxSuppressionV4, and the scores too. With a soft_nms_sigma above 0 a box that overlaps better "
               "ones is not left out: its score is multiplied by exp(-overlap^2 / (2 sigma)) for each."),
      not_differentiable(none));
  kernels.add<SoftSuppression>("NonMaxSuppressionV5", DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
  add_half_kernels<SoftSuppression>(kernels, "NonMaxSuppressionV5");
  ops.add(OpDef("NonMaxSuppressionWithOverlaps")
              .input("overlaps: float32")
              .input("scores: float32")
              .input("max_output_size: int32")
              .input("overlap_threshold: float32")
              .input("score_threshold: float32")
              .output("selected_indices: int32")
              .shape(soft_shape)
              .doc("As NonMaxSuppressionV3, with a matrix that tells how much each two boxes overlap."),
          not_differentiable(none));
  kernels.add<SuppressionWithOverlaps>("NonMaxSuppressionWithOverlaps", DeviceKind::kCpu, {});
  ops.add(OpDef("CombinedNonMaxSuppression")
              .input("boxes: float32")
              .input("scores: float32")
              .input("max_output_size_per_class: int32")
              .input("max_total_size: int32")
              .input("iou_threshold: float32")
              .input("score_threshold: float32")
              .output("nmsed_boxes: float32")
              .output("nmsed_scores: float32")
              .output("nmsed_classes: float32")
              .output("valid_detections: int32")
              .attr("pad_per_class: bool = false")
              .attr("clip_boxes: bool = true")
              .shape(combined_shape)
              .doc("The best boxes of a batch of images, with their scores and classes: NonMaxSuppressionV3 for each "
                   "class, then the best max_total_size of all. Zeros fill up the rest; with clip_boxes corners are "
                   "brought into [0, 1]."),
          not_differentiable(none));
  kernels.add<CombinedSuppression>("CombinedNonMaxSuppression", DeviceKind::kCpu, {});
}

}  // namespace troupe
