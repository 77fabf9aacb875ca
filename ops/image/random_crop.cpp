// SPDX-License-Identifier: Apache-2.0
// Random parts of images that hold enough of an object: SampleDistortedBoundingBox in its versions. Source: Szegedy et
// al., "Going deeper with convolutions", 2014.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/join.h"
#include "ops/image/boxes.h"
#include "ops/image/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/draws.h"
#include "ops/random/source.h"

namespace troupe {
namespace {

using SizeTypes = TypeList<uint8_t, int8_t, int16_t, int32_t, int64_t>;

/// A part of an image, in pixels.
struct ImagePart {
  int64_t top = 0, left = 0, height = 0, width = 0;
  Box box() const {
    const float corners[] = {static_cast<float>(top), static_cast<float>(left), static_cast<float>(top + height),
                             static_cast<float>(left + width)};
    return Box(corners);
  }
};

struct Wishes {
  std::vector<float> ratios, areas;  // the least and the largest
  int64_t attempts = 0;
  bool may_be_image = false;

  explicit Wishes(const Attrs& a)
      : ratios(*a.get<std::vector<float>>("aspect_ratio_range")), areas(*a.get<std::vector<float>>("area_range")),
        attempts(a.get_or<int64_t>("max_attempts", 100)),
        may_be_image(a.get_or("use_image_if_no_bounding_boxes", false)) {}
  Status check() const {
    const auto range = [](const std::vector<float>& r) { return r.size() == 2 && r[0] > 0 && r[0] <= r[1]; };
    if (!range(ratios) || !std::isfinite(ratios[1]))
      return invalid_argument("aspect_ratio_range [{}] must be a range above 0", join(ratios));
    if (!range(areas) || areas[1] > 1)
      return invalid_argument("area_range [{}] must be a range in (0, 1]", join(areas));
    if (attempts <= 0) return invalid_argument("max_attempts must be above 0, not {}", attempts);
    return {};
  }
};

int64_t rounded(double x) { return std::llrint(x); }

/// A part of this ratio of width to height, of a random area that is wished for; none where there is none.
std::optional<ImagePart> random_part(Words& words, const Wishes& wishes, int64_t height, int64_t width, double ratio) {
  const double all = static_cast<double>(height) * static_cast<double>(width);
  const double least = wishes.areas[0] * all, most = wishes.areas[1] * all;
  ImagePart part;
  int64_t highest = std::min(rounded(std::sqrt(most / ratio)), height);
  if (rounded(static_cast<double>(highest) * ratio) > width)
    highest = static_cast<int64_t>((static_cast<double>(width) + 0.4999999) / ratio);
  part.height = std::min(rounded(std::sqrt(least / ratio)), highest);
  if (part.height < highest) part.height += words.below(static_cast<uint32_t>(highest - part.height + 1));
  const auto set_width = [&] { part.width = rounded(static_cast<double>(part.height) * ratio); };
  const auto area = [&] { return static_cast<double>(part.height) * static_cast<double>(part.width); };
  set_width();
  // What rounding made too small or too large is made larger or smaller by a pixel.
  if (area() < least) ++part.height, set_width();
  if (area() > most) --part.height, set_width();
  if (area() < least || area() > most || part.width > width || part.height > height || part.width <= 0 ||
      part.height <= 0)
    return {};
  part.top = part.height < height ? words.below(static_cast<uint32_t>(height - part.height)) : 0;
  part.left = part.width < width ? words.below(static_cast<uint32_t>(width - part.width)) : 0;
  return part;
}

/// Whether the part holds that share of an object.
bool covers(const ImagePart& part, const std::vector<Box>& objects, float share) {
  return std::ranges::any_of(objects, [&](const Box& object) {
    return object.area() >= 1 && part.box().common(object) / object.area() >= share;
  });
}

template <class T> class SamplePart final : public ComputeKernel {
 public:
  explicit SamplePart(const KernelInit& init)
      : source_(init, 3), wishes_(*init.attrs), share_(init.attrs->get_or<float>("min_object_covered", 0.1f)),
        share_is_input_(init.op != "SampleDistortedBoundingBox") {}
  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(wishes_.check());
    const Tensor& sizes = c.input(0);
    if (sizes.rank() != 1 || sizes.dim(0) != 3)
      return invalid_argument("image_size must be height, width and channels, not {}", sizes.str());
    const auto height = static_cast<int64_t>(sizes.data<T>()[0]), width = static_cast<int64_t>(sizes.data<T>()[1]);
    if (height <= 0 || width <= 0 || height > kMostSide || width > kMostSide)
      return invalid_argument("image_size {} is not of 1 to {} by as many pixels", sizes.str(), kMostSide);
    float share = share_;
    if (share_is_input_) {
      if (c.input(2).rank() != 0)
        return invalid_argument("min_object_covered must be a scalar, not {}", c.input(2).shape().str());
      share = *c.input(2).data<float>();
    }
    if (!(share >= 0)) return invalid_argument("min_object_covered {} is negative", share);
    TROUPE_ASSIGN(const auto objects, objects_of(c.input(1), height, width));
    TROUPE_ASSIGN(const Philox random, source_.next(c, wishes_.attempts));
    Words words(random);
    ImagePart chosen{0, 0, height, width};
    for (int64_t i = 0; i < wishes_.attempts; ++i) {
      const float ratio = words.uniform_float() * (wishes_.ratios[1] - wishes_.ratios[0]) + wishes_.ratios[0];
      const auto part = random_part(words, wishes_, height, width, ratio);
      if (!part || !covers(*part, objects, share)) continue;
      chosen = *part;
      break;
    }
    const auto t = [](int64_t v) { return static_cast<T>(v); };
    c.set_output(0, Tensor::of<T>({t(chosen.top), t(chosen.left), T(0)}));
    c.set_output(1, Tensor::of<T>({t(chosen.height), t(chosen.width), t(-1)}));
    const Box box = chosen.box();
    const auto tall = static_cast<float>(height), wide = static_cast<float>(width);
    c.set_output(
        2, Tensor::of<float>({box.top / tall, box.left / wide, box.bottom / tall, box.right / wide}, Shape{1, 1, 4}));
    return {};
  }

 private:
  static constexpr int64_t kMostSide = 1 << 24;  // float32 tells pixels apart

  /// Boxes in pixels. Errors: none where there must be some, corners outside. Boxes without area, which datasets pad
  /// with, cannot be held by a part.
  Result<std::vector<Box>> objects_of(const Tensor& boxes, int64_t height, int64_t width) const {
    if (boxes.rank() != 3 || boxes.dim(2) != 4)
      return invalid_argument("bounding_boxes {} must be [batch,n,4]", boxes.shape().str());
    const auto tall = static_cast<float>(height), wide = static_cast<float>(width);
    std::vector<Box> out;
    for (int64_t i = 0; i < boxes.elements(); i += 4) {
      const float* b = boxes.data<float>() + i;
      if (!std::all_of(b, b + 4, [](float x) { return x >= 0 && x <= 1; }))
        return invalid_argument("bounding box {} [{},{},{},{}] is not inside [0,0,1,1]", i / 4, b[0], b[1], b[2], b[3]);
      const float corners[] = {b[0] * tall, b[1] * wide, std::max(b[0], b[2]) * tall, std::max(b[1], b[3]) * wide};
      out.emplace_back(corners);
    }
    if (out.empty() && !wishes_.may_be_image)
      return invalid_argument("there are no bounding_boxes, and use_image_if_no_bounding_boxes is false");
    if (out.empty()) out.push_back(ImagePart{0, 0, height, width}.box());
    return out;
  }

  RandomSource source_;
  const Wishes wishes_;
  const float share_;
  const bool share_is_input_;
};

Status sample_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(Wishes(c.attrs()).check());
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 3).status());
  if (c.num_inputs() > 2) TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0).status());
  for (int i : {0, 1}) c.set_output(i, PartialShape{3});
  c.set_output(2, PartialShape{1, 1, 4});
  return {};
}

}  // namespace

void register_random_crop_ops(OpRegistry& ops, KernelRegistry& kernels) {
  for (const char* name :
       {"SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "StatelessSampleDistortedBoundingBox"}) {
    OpDef op(name);
    const bool first = op.name() == "SampleDistortedBoundingBox";
    const RandomForm form = op.name()[1] == 't' ? RandomForm::kSeed : RandomForm::kStateful;
    op.input("image_size: T").input("bounding_boxes: float32");
    if (first) op.attr("min_object_covered: float = 0.1");
    else op.input("min_object_covered: float32");
    if (form == RandomForm::kSeed) op.input("seed: Tseed").attr(type_attr("Tseed", IndexTypes{}));
    else add_random_inputs(op, form);
    ops.add(op.output("begin: T")
                .output("size: T")
                .output("bboxes: float32")
                .attr(type_attr("T", SizeTypes{}))
                .attr("aspect_ratio_range: list(float) = [0.75, 1.33]")
                .attr("area_range: list(float) = [0.05, 1]")
                .attr("max_attempts: int = 100")
                .attr("use_image_if_no_bounding_boxes: bool = false")
                .shape(sample_shape)
                .doc(std::string("A random part of an image [height,width,channels]: where it begins and its size, as "
                                 "Slice takes them, and its box. The ratio of its sides and its share of the image are "
                                 "in the ranges given, and it holds at least min_object_covered of a box; the whole "
                                 "image where none is found in max_attempts.") +
                     random_doc(form)),
            not_differentiable(kRandom));
    add_cpu_kernels<SamplePart>(kernels, name, SizeTypes{});
  }
}

}  // namespace troupe
