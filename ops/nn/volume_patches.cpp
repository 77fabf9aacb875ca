// SPDX-License-Identifier: Apache-2.0
// What lies under windows over volumes: ExtractVolumePatches.
#include "devices/parallel.h"
#include "ops/nn/register.h"
#include "ops/nn/volume.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/type_dispatch.h"
#include "troupe/kernel.h"

namespace troupe {
namespace {

/// The op's attributes by the names that VolumeAttrs knows.
Result<VolumeAttrs> volume_attrs(const Attrs& attrs) {
  Attrs renamed = attrs;
  if (const AttrValue* sizes = attrs.find("ksizes")) renamed.set("ksize", *sizes);
  return VolumeAttrs::parse(renamed);
}

/// The result's shape, with what is not known. Error: patches of more numbers than an int64 counts.
Result<PartialShape> patches_of(const VolumeAttrs& attrs, const PartialShape& in,
                                const std::array<WindowAxis, 3>& axes) {
  int64_t depth = in[4];
  for (const int64_t size : attrs.sizes)
    if (depth >= 0 && __builtin_mul_overflow(depth, size, &depth))
      return invalid_argument("patches of {} by {} by {} places and {} channels", attrs.sizes[0], attrs.sizes[1],
                              attrs.sizes[2], in[4]);
  return PartialShape::make(std::array{in[0], axes[0].out, axes[1].out, axes[2].out, depth});
}

class VolumePatches final : public ComputeKernel {
 public:
  explicit VolumePatches(VolumeAttrs attrs) : attrs_(attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor& in = c.input(0);
    if (in.rank() != 5) return invalid_argument("volumes must have rank 5, but their shape is {}", in.shape().str());
    TROUPE_ASSIGN(const auto axes, attrs_.axes(in.shape(), attrs_.sizes));
    TROUPE_ASSIGN(const PartialShape patches, patches_of(attrs_, in.shape(), axes));
    TROUPE_ASSIGN(const Shape shape, Shape::make(patches.dims()));
    TROUPE_ASSIGN(Tensor out, c.allocate(in.dtype(), shape));
    if (out.elements() > 0) {
      const int64_t places = axes[0].out * axes[1].out * axes[2].out;
      // Zeros of all types are zero bytes, and a place's channels are moved together.
      const auto size = static_cast<int64_t>(size_of(in.dtype()));
      const int64_t volume = in.elements() / in.dim(0) * size, patch = shape[4] * size;
      const auto* from = static_cast<const uint8_t*>(in.raw());
      auto* to = static_cast<uint8_t*>(out.mutable_raw());
      for (int64_t b = 0; b < in.dim(0); ++b, from += volume, to += places * patch)
        parallel_for(c.threads(), places, 1 + kCheapGrain / patch, [&](int64_t begin, int64_t end) {
          gather_columns<uint8_t>(axes, in.dim(4) * size, from, begin, end - begin, to + begin * patch);
        });
    }
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  const VolumeAttrs attrs_;
};

Status volume_patches_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape in, volume_of(c.input(0), "input"));
  TROUPE_ASSIGN(const VolumeAttrs attrs, volume_attrs(c.attrs()));
  TROUPE_ASSIGN(const auto axes, attrs.axes(in, attrs.sizes));
  TROUPE_ASSIGN(PartialShape out, patches_of(attrs, in, axes));
  c.set_output(0, std::move(out));
  return {};
}

/// Patches of a volume of the numbers 1, 2, ... say where each number of a patch came from; 0: from beyond the edges.
Status volume_patches_gradient(GradientContext& c) {
  const Output x = c.input(0), g = c.dy(0);
  if (!g) return {};
  const auto ints = [&](std::initializer_list<int64_t> v) { return int_vector(c, std::span(v.begin(), v.size())); };
  const auto number = [&](int64_t v) { return c.constant(Tensor::scalar(v)); };
  const Output axis = c.constant(Tensor::scalar<int32_t>(0));
  const Output sizes = c.op("Shape", {x}, {{"out_type", DType::kInt64}});
  const Output batch = c.op("StridedSlice", {sizes, ints({0}), ints({1}), ints({1})});
  const Output volume = c.op("StridedSlice", {sizes, ints({1}), ints({5}), ints({1})});
  const Output end = c.op("AddV2", {c.op("Prod", {volume, axis}), number(1)});
  const Output numbers = c.op("Reshape", {c.op("Range", {number(1), end, number(1)}),
                                          c.op("ConcatV2", {c.constant(Tensor::of<int64_t>({1})), volume, axis})});
  Attrs window;
  for (const char* name : {"ksizes", "strides", "padding"}) window.set(name, *c.node().attrs().find(name));
  const Output origins = c.op("Reshape", {c.op("ExtractVolumePatches", {numbers}, std::move(window)), ints({-1})});
  const Output count = c.op("Shape", {origins}, {{"out_type", DType::kInt64}});
  const Output rows = c.op("Reshape", {g, c.op("ConcatV2", {batch, count, axis})});
  const Output swap = ints({1, 0});
  const Output sums = c.op("UnsortedSegmentSum", {c.op("Transpose", {rows, swap}), origins, end});
  const Output inside = c.op("Slice", {sums, ints({1, 0}), ints({-1, -1})});
  c.set_dx(0, c.op("Reshape", {c.op("Transpose", {inside, swap}), sizes}));
  return {};
}

using VolumePatchTypes = TypeList<float, double, int32_t, uint8_t, int16_t, int8_t, int64_t, bfloat16, uint16_t,
                                  float16, uint32_t, uint64_t>;

}  // namespace

void register_volume_patches_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(
      OpDef("ExtractVolumePatches")
          .input("input: T")
          .output("patches: T")
          .attr("ksizes: list(int) >= 5")
          .attr("strides: list(int) >= 5")
          .attr(type_attr("T", VolumePatchTypes{}))
          .attr("padding: {'SAME', 'VALID'}")
          .shape(volume_patches_shape)
          .doc("What lies under each window of ksizes places over volumes [batch,depth,height,width,channels], with "
               "zeros beyond the edges: [batch,planes,rows,columns,ksizes*channels]."),
      gradient(volume_patches_gradient));
  kernels.add("ExtractVolumePatches", DeviceKind::kCpu, {},
              [](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(const VolumeAttrs attrs, volume_attrs(*init.attrs));
                return std::unique_ptr<ComputeKernel>(std::make_unique<VolumePatches>(attrs));
              });
}

}  // namespace troupe
