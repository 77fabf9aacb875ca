// SPDX-License-Identifier: Apache-2.0
// Blocks of places moved into the batch or the channels, and back: SpaceToBatchND, BatchToSpaceND, SpaceToBatch,
// BatchToSpace, SpaceToDepth, DepthToSpace.
#include <algorithm>

#include "base/join.h"
#include "ops/array/register.h"
#include "ops/parts/channel_layout.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// Block sizes and the paddings (or crops) before and after each blocked dimension, which follow the batch.
struct Blocks {
  std::vector<int64_t> sizes, pads;

  static Result<Blocks> make(std::vector<int64_t> sizes, const Tensor& pads, const char* what) {
    Blocks b{std::move(sizes), {}};
    if (static_cast<int>(b.sizes.size()) >= kMaxRank)
      return invalid_argument("{} block sizes; at most {}", b.sizes.size(), kMaxRank - 1);
    for (int64_t n : b.sizes)
      if (n < 1) return invalid_argument("block size {} is below 1", n);
    TROUPE_ASSIGN(b.pads, paddings_from(pads, static_cast<int>(b.sizes.size()), what));
    return b;
  }
  Result<int64_t> product() const {
    int64_t n = 1;
    for (int64_t s : sizes)
      if (__builtin_mul_overflow(n, s, &n)) return invalid_argument("block sizes [{}] overflow", join(sizes));
    return n;
  }
  int count() const { return static_cast<int>(sizes.size()); }
};

/// Input 1 of an ND op, or attribute block_size of one for images.
Result<Blocks> blocks_of(const Attrs& attrs, const Tensor* sizes, const Tensor& pads, const char* what) {
  if (sizes) {
    TROUPE_ASSIGN(auto values, int_values(*sizes, "block_shape"));
    return Blocks::make(std::move(values), pads, what);
  }
  return Blocks::make(std::vector<int64_t>(2, *attrs.get<int64_t>("block_size")), pads, what);
}

Result<PartialShape> to_batch(const PartialShape& x, const Blocks& b) {
  if (!x.has_rank()) return PartialShape();
  if (x.rank() < 1 + b.count()) return invalid_argument("{} block sizes for input {}", b.count(), x.str());
  PartialShape out = x;
  TROUPE_ASSIGN(const int64_t blocks, b.product());
  if (int64_t n = 0; x[0] >= 0) {
    if (__builtin_mul_overflow(x[0], blocks, &n)) return invalid_argument("{} blocks of {} overflow", blocks, x.str());
    out.set(0, n);
  }
  for (int i = 0; i < b.count(); ++i) {
    if (x[i + 1] < 0) continue;
    const int64_t padded = x[i + 1] + b.pads[2 * i] + b.pads[2 * i + 1];
    if (padded % b.sizes[i] != 0)
      return invalid_argument("dimension {} of {}, {} with its padding, does not divide into blocks of {}", i + 1,
                              x.str(), padded, b.sizes[i]);
    out.set(i + 1, padded / b.sizes[i]);
  }
  return out;
}

Result<PartialShape> to_space(const PartialShape& x, const Blocks& b) {
  if (!x.has_rank()) return PartialShape();
  if (x.rank() < 1 + b.count()) return invalid_argument("{} block sizes for input {}", b.count(), x.str());
  PartialShape out = x;
  TROUPE_ASSIGN(const int64_t blocks, b.product());
  if (x[0] >= 0) {
    if (x[0] % blocks != 0) return invalid_argument("a batch of {} does not divide into blocks of {}", x[0], blocks);
    out.set(0, x[0] / blocks);
  }
  for (int i = 0; i < b.count(); ++i) {
    int64_t n = 0;
    if (x[i + 1] < 0) continue;
    if (__builtin_mul_overflow(x[i + 1], b.sizes[i], &n) || (n -= b.pads[2 * i] + b.pads[2 * i + 1]) < 0)
      return invalid_argument("crops {} and {} of dimension {} are more than its {} blocks of {} in {}", b.pads[2 * i],
                              b.pads[2 * i + 1], i + 1, x[i + 1], b.sizes[i], x.str());
    out.set(i + 1, n);
  }
  return out;
}

/// Copies between [batch, padded..., rest] and [blocks * batch, padded / sizes..., rest].
void move_blocks(const Tensor& from, Tensor& to, const Blocks& b, bool into_batch, int threads) {
  const Shape& space = into_batch ? from.shape() : to.shape();
  const Shape& batches = into_batch ? to.shape() : from.shape();
  const auto wide = strides_of(space), narrow = strides_of(batches);
  // Dimensions: block offsets, batch, blocks, the rest; by stride in the one and in the other.
  StridedCopy box;
  const auto push = [&](int64_t n, int64_t in_space, int64_t in_batch) {
    box.push(n, into_batch ? in_space : in_batch, into_batch ? in_batch : in_space);
  };
  const int64_t images = space[0];
  int64_t stride = narrow[0] * images;
  std::vector<int64_t> offset_strides(b.sizes.size());
  for (int i = b.count() - 1; i >= 0; --i) {
    offset_strides[i] = stride;
    stride *= b.sizes[i];
  }
  if (into_batch) {
    for (int i = 0; i < b.count(); ++i) push(b.sizes[i], wide[i + 1], offset_strides[i]);
    push(images, wide[0], narrow[0]);
    for (int i = 0; i < b.count(); ++i) push(batches[i + 1], wide[i + 1] * b.sizes[i], narrow[i + 1]);
  } else {
    push(images, wide[0], narrow[0]);
    for (int i = 0; i < b.count(); ++i) {
      push(batches[i + 1], wide[i + 1] * b.sizes[i], narrow[i + 1]);
      push(b.sizes[i], wide[i + 1], offset_strides[i]);
    }
  }
  for (int d = 1 + b.count(); d < space.rank(); ++d) push(space[d], wide[d], narrow[d]);
  strided_copy(from.dtype(), to.mutable_raw(), from.raw(), box, threads);
}

/// Copies the part of `large` that lies `before` its beginning to or from `small`.
void copy_inside(const Tensor& from, Tensor& to, const Blocks& b, bool grows, int threads) {
  const Shape& small = grows ? from.shape() : to.shape();
  const auto inner = strides_of(small), outer = strides_of(grows ? to.shape() : from.shape());
  StridedCopy box;
  int64_t start = 0;
  for (int d = 0; d < small.rank(); ++d) {
    if (d > 0 && d <= b.count()) start += b.pads[2 * (d - 1)] * outer[d];
    box.push(small[d], grows ? inner[d] : outer[d], grows ? outer[d] : inner[d]);
  }
  void* target = to.mutable_raw();
  const void* source = from.raw();
  if (small.elements() > 0)
    strided_copy(from.dtype(), grows ? advance(target, start, from.dtype()) : target,
                 grows ? source : advance(source, start, from.dtype()), box, threads);
}

/// SpaceToBatch and BatchToSpace, with block sizes from an input or an attribute.
class BatchBlocks final : public ComputeKernel {
 public:
  explicit BatchBlocks(const KernelInit& init)
      : attrs_(*init.attrs), into_batch_(init.op.starts_with("SpaceToBatch")) {}
  Status compute(KernelContext& c) override {
    const bool nd = c.num_inputs() == 3;
    const Tensor& x = c.input(0);
    if (!nd && x.rank() != 4) return invalid_argument("input must have rank 4, but its shape is {}", x.shape().str());
    TROUPE_ASSIGN(const Blocks b, blocks_of(attrs_, nd ? &c.input(1) : nullptr, c.input(nd ? 2 : 1),
                                            into_batch_ ? "paddings" : "crops"));
    TROUPE_ASSIGN(const PartialShape result, into_batch_ ? to_batch(x.shape(), b) : to_space(x.shape(), b));
    TROUPE_ASSIGN(const Shape shape, Shape::make(result.dims()));
    Shape padded = into_batch_ ? x.shape() : shape;
    for (int i = 0; i < b.count(); ++i) padded.set(i + 1, padded[i + 1] + b.pads[2 * i] + b.pads[2 * i + 1]);
    TROUPE_RETURN_IF_ERROR(Shape::make(padded.dims()).status());
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    if (padded == (into_batch_ ? x.shape() : shape)) {
      move_blocks(x, y, b, into_batch_, c.threads());
    } else if (into_batch_) {
      TROUPE_ASSIGN(Tensor wide, Tensor::zeros(x.dtype(), padded, c.device().allocator));
      copy_inside(x, wide, b, true, c.threads());
      move_blocks(wide, y, b, true, c.threads());
    } else {
      TROUPE_ASSIGN(Tensor wide, c.allocate(x.dtype(), padded));
      move_blocks(x, wide, b, false, c.threads());
      copy_inside(wide, y, b, false, c.threads());
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Attrs attrs_;
  const bool into_batch_;
};

Status batch_blocks_shape(ShapeContext& c, bool into_batch) {
  const bool nd = c.num_inputs() == 3;
  if (!nd) TROUPE_RETURN_IF_ERROR(c.with_rank(0, 4).status());
  if (nd) TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  const PartialShape& x = c.input(0);
  if (x.has_rank()) c.set_output(0, PartialShape::of_rank(x.rank()));
  const std::optional<Tensor> sizes = nd ? c.constant_input(1) : std::nullopt, pads = c.constant_input(nd ? 2 : 1);
  if ((nd && !sizes) || !pads) return {};
  TROUPE_ASSIGN(const Blocks b, blocks_of(c.attrs(), nd ? &*sizes : nullptr, *pads, into_batch ? "paddings" : "crops"));
  TROUPE_ASSIGN(PartialShape out, into_batch ? to_batch(x, b) : to_space(x, b));
  c.set_output(0, std::move(out));
  return {};
}
Status to_batch_shape(ShapeContext& c) { return batch_blocks_shape(c, true); }
Status to_space_shape(ShapeContext& c) { return batch_blocks_shape(c, false); }

/// The gradient is the op that goes back.
Status batch_blocks_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const std::string& name = c.node().op().name();
  const std::string back =
      (name[0] == 'S' ? "BatchToSpace" : "SpaceToBatch") + std::string(c.num_inputs() == 3 ? "ND" : "");
  std::vector<Output> in = {c.dy(0)};
  for (int i = 1; i < c.num_inputs(); ++i) in.push_back(c.input(i));
  Attrs attrs;
  if (c.num_inputs() == 2) attrs.set("block_size", c.node().attrs().get_or<int64_t>("block_size", 2));
  c.set_dx(0, c.op(back, in, std::move(attrs)));
  return {};
}

// --- depth ---

Result<PartialShape> depth_moved(const Attrs& attrs, const PartialShape& x, bool to_depth) {
  const int64_t block = *attrs.get<int64_t>("block_size");
  if (x.has_rank() && x.rank() != 4) return invalid_argument("input must have rank 4, but its shape is {}", x.str());
  const PartialShape in = x.has_rank() ? x : PartialShape::of_rank(4);
  const ChannelLayout l(attrs);
  if (block > INT32_MAX) return invalid_argument("block_size {} is too large", block);
  for (int d : {l.height(), l.width()})
    if (to_depth && in[d] >= 0 && in[d] % block != 0)
      return invalid_argument("dimension {} of {} does not divide into blocks of {}", d, in.str(), block);
  const int64_t depth = in[l.channel()];
  if (!to_depth && depth >= 0 && depth % (block * block) != 0)
    return invalid_argument("{} channels of {} do not divide into blocks of {} by {}", depth, in.str(), block, block);
  std::vector<int64_t> dims(in.dims().begin(), in.dims().end());
  for (int d : {l.height(), l.width()})
    if (dims[d] >= 0 && (to_depth ? (dims[d] /= block, false) : __builtin_mul_overflow(dims[d], block, &dims[d])))
      return invalid_argument("blocks of {} of {} overflow", block, in.str());
  int64_t& channels = dims[l.channel()];
  if (depth >= 0 && (to_depth ? __builtin_mul_overflow(depth, block * block, &channels)
                              : (channels = depth / (block * block), false)))
    return invalid_argument("blocks of {} of {} overflow", block, in.str());
  return PartialShape::make(dims);
}

class DepthBlocks final : public ComputeKernel {
 public:
  explicit DepthBlocks(const KernelInit& init) : attrs_(*init.attrs), to_depth_(init.op == "SpaceToDepth") {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const PartialShape result, depth_moved(attrs_, x.shape(), to_depth_));
    TROUPE_ASSIGN(const Shape shape, Shape::make(result.dims()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    const ChannelLayout l(attrs_);
    const int64_t block = *attrs_.get<int64_t>("block_size");
    const Shape &wide = to_depth_ ? x.shape() : shape, &deep = to_depth_ ? shape : x.shape();
    const auto ws = strides_of(wide), ds = strides_of(deep);
    const int64_t h = deep[l.height()], w = deep[l.width()], n = wide[l.channel()], channel = ds[l.channel()];
    // Channel (by * block + bx) * n + k of place (y, x) is channel k of place (y * block + by, x * block + bx).
    struct Dimension {
      int64_t size, wide, deep;
    };
    const Dimension image{wide[0], ws[0], ds[0]}, rows{h, ws[l.height()] * block, ds[l.height()]};
    const Dimension columns{w, ws[l.width()] * block, ds[l.width()]}, by{block, ws[l.height()], channel * n * block};
    const Dimension bx{block, ws[l.width()], channel * n}, k{n, ws[l.channel()], channel};
    std::vector<Dimension> order = {image, rows, columns, by, bx, k};
    std::ranges::stable_sort(order, [this](const Dimension& a, const Dimension& b) {
      return to_depth_ ? a.deep > b.deep : a.wide > b.wide;
    });
    StridedCopy box;
    for (const Dimension& d : order) box.push(d.size, to_depth_ ? d.wide : d.deep, to_depth_ ? d.deep : d.wide);
    strided_copy(x.dtype(), y.mutable_raw(), x.raw(), box, c.threads());
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Attrs attrs_;
  const bool to_depth_;
};

Status depth_shape(ShapeContext& c, bool to_depth) {
  TROUPE_ASSIGN(PartialShape out, depth_moved(c.attrs(), c.input(0), to_depth));
  c.set_output(0, std::move(out));
  return {};
}
Status to_depth_shape(ShapeContext& c) { return depth_shape(c, true); }
Status from_depth_shape(ShapeContext& c) { return depth_shape(c, false); }

Status depth_gradient(GradientContext& c) {
  Attrs attrs;
  for (const char* name : {"block_size", "data_format"})
    if (const AttrValue* v = c.node().attrs().find(name)) attrs.set(name, *v);
  const bool to_depth = c.node().op().name() == "SpaceToDepth";
  if (c.dy(0)) c.set_dx(0, c.op(to_depth ? "DepthToSpace" : "SpaceToDepth", {c.dy(0)}, std::move(attrs)));
  return {};
}

OpDef nd_op(const char* name, const std::string& pads) {
  return OpDef(name)
      .input("input: T")
      .input("block_shape: Tblock_shape")
      .input(pads + ": T" + pads)
      .output("output: T")
      .attr("T: type")
      .attr(type_attr("Tblock_shape", IndexTypes{}, "int32"))
      .attr(type_attr("T" + pads, IndexTypes{}, "int32"))
      .cost(move_cost);
}

}  // namespace

void register_block_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string to_batch_doc =
      "Blocks of places along the dimensions after the batch become batches of their own, "
      "after paddings of zeros; sizes that do not divide are errors.";
  const std::string to_space_doc =
      "Batches become blocks of places along the dimensions after the batch, of which crops "
      "are cut off; sizes that do not divide are errors.";
  ops.add(nd_op("SpaceToBatchND", "paddings").shape(to_batch_shape).doc(to_batch_doc), gradient(batch_blocks_gradient));
  ops.add(nd_op("BatchToSpaceND", "crops").shape(to_space_shape).doc(to_space_doc), gradient(batch_blocks_gradient));
  ops.add(OpDef("SpaceToBatch")
              .input("input: T")
              .input("paddings: Tpaddings")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Tpaddings", IndexTypes{}, "int32"))
              .attr("block_size: int >= 2")
              .shape(to_batch_shape)
              .doc("SpaceToBatchND of images with square blocks. " + to_batch_doc),
          gradient(batch_blocks_gradient));
  ops.add(OpDef("BatchToSpace")
              .input("input: T")
              .input("crops: Tidx")
              .output("output: T")
              .attr("T: type")
              .attr("block_size: int >= 2")
              .attr(type_attr("Tidx", IndexTypes{}, "int32"))
              .shape(to_space_shape)
              .doc("BatchToSpaceND of images with square blocks. " + to_space_doc),
          gradient(batch_blocks_gradient));
  for (const char* op : {"SpaceToBatchND", "SpaceToBatch", "BatchToSpaceND", "BatchToSpace"})
    kernels.add<BatchBlocks>(op, DeviceKind::kCpu, {});
  const auto depth_op = [](const char* name) {
    return OpDef(name)
        .input("input: T")
        .output("output: T")
        .attr("T: type")
        .attr("block_size: int >= 2")
        .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
        .cost(move_cost);
  };
  ops.add(depth_op("SpaceToDepth")
              .shape(to_depth_shape)
              .doc("The channels of each block of places of images side by side. Sizes that do not divide are errors."),
          gradient(depth_gradient));
  ops.add(depth_op("DepthToSpace")
              .shape(from_depth_shape)
              .doc("Channels spread over blocks of places. Sizes that do not divide are errors."),
          gradient(depth_gradient));
  for (const char* op : {"SpaceToDepth", "DepthToSpace"}) kernels.add<DepthBlocks>(op, DeviceKind::kCpu, {});
}

}  // namespace troupe
