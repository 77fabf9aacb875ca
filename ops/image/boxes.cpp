// SPDX-License-Identifier: Apache-2.0
// Boxes around things in images: NonMaxSuppression in four versions.
#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/image/boxes.h"
#include "ops/image/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// The best box, then the best of those that overlap no chosen one by more than the threshold, and so on.
class NonMaxSuppression final : public ComputeKernel {
 public:
  explicit NonMaxSuppression(const KernelInit& init)
      : threshold_(init.attrs->get_or<float>("iou_threshold", 0)),
        pads_(init.attrs->get_or("pad_to_max_output_size", false)) {}
  Status compute(KernelContext& c) override {
    const Tensor &boxes = c.input(0), &scores = c.input(1);
    if (boxes.rank() != 2 || boxes.dim(1) != 4 || scores.rank() != 1 || scores.dim(0) != boxes.dim(0))
      return invalid_argument("boxes {} and scores {} must be [n,4] and [n]", boxes.shape().str(),
                              scores.shape().str());
    TROUPE_ASSIGN(const int64_t most, int_scalar(c.input(2), "max_output_size"));
    if (most < 0) return invalid_argument("max_output_size is {}", most);
    float overlap = threshold_, least = std::numeric_limits<float>::lowest();
    for (int i = 3; i < c.num_inputs(); ++i) {
      if (c.input(i).rank() != 0)
        return invalid_argument("thresholds must be scalars, not {}", c.input(i).shape().str());
      with_type(c.input(i).dtype(), TypeList<float, float16>{},
                [&]<class T>() { (i == 3 ? overlap : least) = widen(*c.input(i).data<T>()); });
    }
    if (!(overlap >= 0 && overlap <= 1)) return invalid_argument("iou_threshold {} is not in [0, 1]", overlap);
    std::vector<int32_t> chosen = choose(boxes.data<float>(), scores.values<float>(), most, overlap, least);
    if (c.num_outputs() == 2) c.set_output(1, Tensor::scalar<int32_t>(static_cast<int32_t>(chosen.size())));
    const int64_t size = pads_ ? most : static_cast<int64_t>(chosen.size());
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(DType::kInt32, Shape{size}, c.device().allocator));
    std::ranges::copy(chosen, y.mutable_data<int32_t>());
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  static std::vector<int32_t> choose(const float* boxes, std::span<const float> scores, int64_t most, float overlap,
                                     float least) {
    std::vector<int32_t> order;
    for (size_t i = 0; i < scores.size(); ++i)
      if (scores[i] > least) order.push_back(static_cast<int32_t>(i));
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    std::vector<int32_t> chosen;
    for (int32_t i : order) {
      if (static_cast<int64_t>(chosen.size()) >= most) break;
      const Box box(boxes + int64_t{4} * i);
      const bool hidden = std::ranges::any_of(
          chosen, [&](int32_t other) { return box.overlap(Box(boxes + int64_t{4} * other)) > overlap; });
      if (!hidden) chosen.push_back(i);
    }
    return chosen;
  }

  const float threshold_;
  const bool pads_;
};

Status suppression_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape boxes, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape scores, c.with_rank(1, 1));
  if ((boxes[1] >= 0 && boxes[1] != 4) || (boxes[0] >= 0 && scores[0] >= 0 && boxes[0] != scores[0]))
    return invalid_argument("boxes {} and scores {} must be [n,4] and [n]", boxes.str(), scores.str());
  for (int i = 2; i < c.num_inputs(); ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  PartialShape out{-1};
  if (const auto most = c.constant_input(2); most && c.attrs().get_or("pad_to_max_output_size", false)) {
    TROUPE_ASSIGN(const int64_t size, int_scalar(*most, "max_output_size"));
    if (size < 0) return invalid_argument("max_output_size is {}", size);
    out.set(0, size);
  }
  c.set_output(0, std::move(out));
  if (c.num_outputs() == 2) c.set_output(1, PartialShape::scalar());
  return {};
}

}  // namespace

void register_boxes_ops(OpRegistry& ops, KernelRegistry& kernels) {
  for (int version = 1; version <= 4; ++version) {
    const std::string name = version == 1 ? "NonMaxSuppression" : fmt::format("NonMaxSuppressionV{}", version);
    OpDef op(name);
    const char* type = version == 1 ? "float32" : "T";
    op.input(std::string("boxes: ") + type).input(std::string("scores: ") + type).input("max_output_size: int32");
    if (version == 1) op.attr("iou_threshold: float = 0.5");
    else op.input("iou_threshold: T_threshold");
    if (version >= 3) op.input("score_threshold: T_threshold");
    op.output("selected_indices: int32");
    if (version == 4) op.output("valid_outputs: int32").attr("pad_to_max_output_size: bool = false");
    if (version > 1) op.attr("T: {float16, float32} = float32").attr("T_threshold: {float16, float32} = float32");
    ops.add(op.shape(suppression_shape)
                .doc("The boxes [y1,x1,y2,x2] of the highest scores, at most max_output_size, without those that "
                     "overlap a better one by more than iou_threshold of what both cover" +
                     std::string(version >= 3 ? " or score no more than score_threshold." : ".") +
                     (version == 4 ? " valid_outputs says how many there are, where zeros fill up the rest." : "")),
            not_differentiable("it gives indices"));
    if (version == 1) {
      kernels.add<NonMaxSuppression>(name, DeviceKind::kCpu, {});
    } else {
      kernels.add<NonMaxSuppression>(name, DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
      add_half_kernels<NonMaxSuppression>(kernels, name);
    }
  }
}

}  // namespace troupe
