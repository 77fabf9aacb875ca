// SPDX-License-Identifier: Apache-2.0
// Boxes drawn into images: DrawBoundingBoxes in its two versions.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "ops/image/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

using Paint = std::array<float, 4>;

/// What the boxes of an image take in turn where no colours are given.
constexpr Paint kPaints[] = {{1, 1, 0, 1},       {0, 0, 1, 1},    {1, 0, 0, 1},    {0, 1, 0, 1}, {0.5f, 0, 0.5f, 1},
                             {0.5f, 0.5f, 0, 1}, {0.5f, 0, 0, 1}, {0, 0, 0.5f, 1}, {0, 1, 1, 1}, {1, 0, 1, 1}};

/// The first and the last pixel of a box along one axis of `size` pixels, either of which may be outside.
struct Side {
  int64_t first, last, size;
  bool begins() const { return first >= 0; }
  bool ends() const { return last < size; }
  int64_t from() const { return std::max<int64_t>(first, 0); }
  int64_t to() const { return std::min(last, size - 1); }

  /// None where nothing of it is inside, or it ends before it begins.
  static std::optional<Side> of(float begin, float end, int64_t size) {
    const auto pixel = [size](float x) {
      // As far outside as counts; NaN is before all.
      const float at = x * static_cast<float>(size - 1), most = static_cast<float>(size);
      return static_cast<int64_t>(at > -2 ? std::min(at, most) : -2.f);
    };
    const Side side{pixel(begin), pixel(end), size};
    if (side.first > side.last || side.first >= size || side.last < 0) return {};
    return side;
  }
};

class DrawBoxes final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &boxes = c.input(1);
    const int64_t depth = x.rank() == 4 ? x.dim(3) : 0;
    if (depth != 1 && depth != 3 && depth != 4)
      return invalid_argument("images must be [batch,height,width,1|3|4], not {}", x.shape().str());
    if (boxes.rank() != 3 || boxes.dim(2) != 4 || boxes.dim(0) != x.dim(0))
      return invalid_argument("boxes {} for images {} must be [batch,n,4]", boxes.shape().str(), x.shape().str());
    std::vector<Paint> paints(std::begin(kPaints), std::end(kPaints));
    if (depth == 1)
      for (Paint& p : paints) p[0] = 1;
    if (c.num_inputs() > 2 && c.input(2).elements() > 0) {
      const Tensor& colors = c.input(2);
      if (colors.rank() != 2 || colors.dim(1) < depth)
        return invalid_argument("colors {} must have {} channels each", colors.shape().str(), depth);
      paints.assign(static_cast<size_t>(colors.dim(0)), Paint{});
      for (size_t i = 0; i < paints.size(); ++i)
        std::copy_n(colors.data<float>() + static_cast<int64_t>(i) * colors.dim(1), depth, paints[i].begin());
    }
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    if (y.raw() != x.raw()) std::ranges::copy(x.values<float>(), y.mutable_data<float>());
    const int64_t n = boxes.dim(1);
    for (int64_t b = 0; b < x.dim(0); ++b)
      for (int64_t i = 0; i < n; ++i)
        draw(y, b, boxes.data<float>() + (b * n + i) * 4, paints[static_cast<size_t>(i) % paints.size()]);
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  static void draw(Tensor& y, int64_t image, const float* box, const Paint& paint) {
    const int64_t height = y.dim(1), width = y.dim(2), depth = y.dim(3);
    if (height == 0 || width == 0) return;
    const auto rows = Side::of(box[0], box[2], height), columns = Side::of(box[1], box[3], width);
    if (!rows || !columns) return;
    const auto set = [&](int64_t row, int64_t column) {
      std::copy_n(paint.begin(), depth, y.mutable_data<float>() + ((image * height + row) * width + column) * depth);
    };
    for (int64_t j = columns->from(); j <= columns->to(); ++j) {
      if (rows->begins()) set(rows->first, j);
      if (rows->ends()) set(rows->last, j);
    }
    for (int64_t i = rows->from(); i <= rows->to(); ++i) {
      if (columns->begins()) set(i, columns->first);
      if (columns->ends()) set(i, columns->last);
    }
  }
};

Status draw_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 4).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 3).status());
  return unchanged_shape(c);
}

}  // namespace

void register_draw_boxes_ops(OpRegistry& ops, KernelRegistry& kernels) {
  for (const bool second : {false, true}) {
    OpDef op(second ? "DrawBoundingBoxesV2" : "DrawBoundingBoxes");
    op.input("images: T").input("boxes: float32");
    if (second) op.input("colors: float32");
    const std::string name = op.name();
    ops.add(op.output("output: T")
                .attr("T: {float32, float16} = float32")
                .shape(draw_shape)
                .doc(std::string("Images [batch,height,width,channels] with the outlines of boxes [y1,x1,y2,x2] (0 is "
                                 "the first and 1 the last pixel), ") +
                     (second ? "in `colors` or, where these are empty, in ten of its own, in turn."
                             : "in ten colours in turn.")),
            second ? undefined_gradient() : not_differentiable("TensorFlow gives it none"));
    kernels.add<DrawBoxes>(name, DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
    add_half_kernels<DrawBoxes>(kernels, name);
  }
}

}  // namespace troupe
