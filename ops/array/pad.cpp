// SPDX-License-Identifier: Apache-2.0
// Tensors with a border: Pad, PadV2 of one value, MirrorPad of what is inside, MirrorPadGrad.
#include <algorithm>
#include <array>

#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/moves.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {
namespace {

class Pad final : public ComputeKernel {
 public:
  Pad(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto pads, paddings_from(c.input(1), x.rank(), "paddings"));
    std::vector<int64_t> sizes, before;
    for (int i = 0; i < x.rank(); ++i) {
      sizes.push_back(x.shape()[i] + pads[2 * i] + pads[2 * i + 1]);
      before.push_back(pads[2 * i]);
    }
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    const Tensor* value = c.num_inputs() > 2 ? &c.input(2) : nullptr;
    if (value && value->rank() != 0)
      return invalid_argument("constant_values must be a scalar, not {}", value->shape().str());
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    TROUPE_RETURN_IF_ERROR(moves_.pad(c, y, x, before, value));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
};

Status pad_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 2).status());
  const auto constant = c.constant_input(1);
  if (!constant) {
    if (x.has_rank()) c.set_output(0, PartialShape::of_rank(x.rank()));
    return {};
  }
  TROUPE_ASSIGN(const auto pads, paddings_from(*constant, x.rank(), "paddings"));
  const int rank = static_cast<int>(pads.size() / 2);
  std::vector<int64_t> sizes(static_cast<size_t>(rank), -1);
  for (int i = 0; i < rank && x.has_rank(); ++i)
    if (x[i] >= 0) sizes[i] = x[i] + pads[2 * i] + pads[2 * i + 1];
  TROUPE_ASSIGN(const PartialShape out, PartialShape::make(sizes));
  c.set_output(0, out);
  return {};
}

Status pad_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0);
  if (!dy) return {};
  const Node& node = *c.input(1).node;
  const Tensor* constant = node.op().name() == "Const" ? node.attrs().get<Tensor>("value") : nullptr;
  Output begin;
  if (constant) {
    TROUPE_ASSIGN(const auto pads, paddings_from(*constant, -1, "paddings"));
    std::vector<int64_t> first;
    for (size_t i = 0; i < pads.size(); i += 2) first.push_back(pads[i]);
    begin = int_vector(c, first);
  } else {
    const Output column =
        c.op("StridedSlice",
             {c.input(1), c.constant(Tensor::of<int32_t>({0, 0})), c.constant(Tensor::of<int32_t>({0, 1})),
              c.constant(Tensor::of<int32_t>({1, 1}))},
             {{"begin_mask", int64_t{1}}, {"end_mask", int64_t{1}}, {"shrink_axis_mask", int64_t{2}}});
    begin = c.input(1).dtype() == DType::kInt32 ? column : c.op("Cast", {column}, {{"DstT", DType::kInt32}});
  }
  c.set_dx(0, c.op("Slice", {dy, begin, c.op("Shape", {x})}));
  return {};
}

// --- mirrors ---

/// A larger and a smaller tensor: by dimension, where each place of the larger one is in the smaller, in elements.
struct Mirror {
  Shape large, small;
  std::array<std::vector<int64_t>, kMaxRank> places;

  /// The shapes alone. `offset` is 1 where the border leaves the edge out (REFLECT), 0 where it repeats it. Errors: a
  /// border wider than what it mirrors, named with the shape.
  static Result<Mirror> make(const Shape& small, const std::vector<int64_t>& pads, int64_t offset) {
    Mirror m;
    m.small = small;
    std::vector<int64_t> sizes;
    for (int d = 0; d < small.rank(); ++d) {
      const int64_t n = small[d], before = pads[2 * d], after = pads[2 * d + 1],
                    most = std::max<int64_t>(n - offset, 0);
      if (before > most || after > most)
        return invalid_argument("paddings {} and {} of dimension {} mirror more than the {} places there are in {}",
                                before, after, d, most, small.str());
      sizes.push_back(n + before + after);
    }
    TROUPE_ASSIGN(m.large, Shape::make(sizes));
    return m;
  }

  /// Fills in the places of shapes that are in memory already, so that there are no more than it holds.
  void place(const std::vector<int64_t>& pads, int64_t offset) {
    const auto strides = strides_of(small);
    for (int d = 0; d < small.rank() && large.elements() > 0; ++d)
      for (int64_t i = -pads[2 * d], n = small[d]; i < n + pads[2 * d + 1]; ++i)
        places[d].push_back(strides[d] * (i < 0 ? -i - 1 + offset : i < n ? i : 2 * n - 1 - offset - i));
  }

  /// Calls f(place in large, place in small) for runs of the last dimension in rows [begin, end).
  template <class F> void rows(int64_t begin, int64_t end, F&& f) const {
    const int last = large.rank() - 1;
    for (int64_t r = begin; r < end; ++r) {
      int64_t rest = r, at = 0;
      for (int d = last - 1; d >= 0; --d) {
        at += places[d][rest % large[d]];
        rest /= large[d];
      }
      f(r * large[last], at);
    }
  }
  int64_t count() const { return large.rank() == 0 || large.elements() == 0 ? 0 : large.elements() / large.dim(-1); }
};

/// Attribute mode as Mirror's offset.
int64_t mirror_offset(const Attrs& attrs) { return *attrs.get<std::string>("mode") == "REFLECT"; }

class MirrorPad final : public ComputeKernel {
 public:
  MirrorPad(const KernelInit& init, const Moves& moves) : moves_(moves), offset_(mirror_offset(*init.attrs)) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto pads, paddings_from(c.input(1), x.rank(), "paddings"));
    TROUPE_ASSIGN(const Mirror m, Mirror::make(x.shape(), pads, offset_));
    std::vector<int64_t> before;
    for (int i = 0; i < x.rank(); ++i) before.push_back(pads[2 * i]);
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), m.large));
    TROUPE_RETURN_IF_ERROR(moves_.mirror(c, y, x, before, offset_));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
  const int64_t offset_;
};

/// The shape of which `g` is the mirror-padded one. Errors: paddings that leave less than nothing.
Result<PartialShape> without_paddings(const PartialShape& g, const Tensor& paddings) {
  TROUPE_ASSIGN(const auto pads, paddings_from(paddings, g.rank(), "paddings"));
  PartialShape out = g;
  for (int d = 0; d < g.rank(); ++d) {
    if (g[d] < 0) continue;
    out.set(d, g[d] - pads[2 * d] - pads[2 * d + 1]);
    if (out[d] < 0)
      return invalid_argument("paddings {} and {} of dimension {} of {}", pads[2 * d], pads[2 * d + 1], d, g.str());
  }
  return out;
}

class MirrorPadGrad final : public ComputeKernel {
 public:
  explicit MirrorPadGrad(const KernelInit& init) : offset_(mirror_offset(*init.attrs)) {}
  Status compute(KernelContext& c) override {
    const Tensor& g = c.input(0);
    TROUPE_ASSIGN(const auto pads, paddings_from(c.input(1), g.rank(), "paddings"));
    TROUPE_ASSIGN(const PartialShape small, without_paddings(g.shape(), c.input(1)));
    TROUPE_ASSIGN(Mirror m, Mirror::make(small.shape(), pads, offset_));
    m.place(pads, offset_);
    if (g.rank() == 0) {
      c.set_output(0, g);
      return {};
    }
    TROUPE_ASSIGN(Tensor dx, Tensor::zeros(g.dtype(), m.small, c.device().allocator));
    with_type(g.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
      const T* in = g.data<T>();
      T* out = dx.mutable_data<T>();
      const std::vector<int64_t>& last = m.places[g.rank() - 1];
      m.rows(0, m.count(), [&](int64_t from, int64_t to) {
        for (size_t i = 0; i < last.size(); ++i) {
          T& sum = out[to + last[i]];
          sum = narrow<T>(wrapping_add(widen(sum), widen(in[from + static_cast<int64_t>(i)])));
        }
      });
    });
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const int64_t offset_;
};

Status mirror_pad_shape(ShapeContext& c) {
  const auto constant = c.constant_input(1);
  if (constant && c.input(0).fully_known()) {
    const Shape& x = c.input(0).shape();
    TROUPE_ASSIGN(const auto pads, paddings_from(*constant, x.rank(), "paddings"));
    TROUPE_RETURN_IF_ERROR(Mirror::make(x, pads, mirror_offset(c.attrs())).status());
  }
  return pad_shape(c);
}

Status mirror_pad_grad_shape(ShapeContext& c) {
  const PartialShape& g = c.input(0);
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 2).status());
  if (!g.has_rank()) return {};
  const auto constant = c.constant_input(1);
  if (!constant) return c.set_output(0, PartialShape::of_rank(g.rank())), Status();
  TROUPE_ASSIGN(PartialShape out, without_paddings(g, *constant));
  c.set_output(0, std::move(out));
  return {};
}

/// The gradient of each is the other.
template <const char* other> Status mirror_gradient(GradientContext& c) {
  if (c.dy(0))
    c.set_dx(0, c.op(other, {c.dy(0), c.input(1)}, {{"mode", c.node().attrs().get_or<std::string>("mode", "")}}));
  return {};
}
constexpr char kMirrorPad[] = "MirrorPad", kMirrorPadGrad[] = "MirrorPadGrad";

OpDef mirror_op(const char* name, const std::string& type) {
  return OpDef(name)
      .input("input: T")
      .input("paddings: Tpaddings")
      .output("output: T")
      .attr(type)
      .attr(type_attr("Tpaddings", IndexTypes{}, "int32"))
      .attr("mode: {'REFLECT', 'SYMMETRIC'}")
      .cost(move_cost);
}

}  // namespace

void register_pad_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string paddings = type_attr("Tpaddings", IndexTypes{}, "int32");
  ops.add(OpDef("Pad")
              .input("input: T")
              .input("paddings: Tpaddings")
              .output("output: T")
              .attr("T: type")
              .attr(paddings)
              .shape(pad_shape)
              .cost(move_cost)
              .doc("The input with paddings[i] zeros before and after dimension i."),
          gradient(pad_gradient));
  ops.add(OpDef("PadV2")
              .input("input: T")
              .input("paddings: Tpaddings")
              .input("constant_values: T")
              .output("output: T")
              .attr("T: type")
              .attr(paddings)
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0));
                return pad_shape(c);
              })
              .cost(move_cost)
              .doc("The input with paddings[i] copies of constant_values before and after dimension i."),
          gradient(pad_gradient));
  ops.add(mirror_op(kMirrorPad, "T: type")
              .shape(mirror_pad_shape)
              .doc("The input with paddings[i] places before and after dimension i that mirror what is inside: with "
                   "REFLECT without the edge, with SYMMETRIC with it. A border wider than the input is an error."),
          gradient(mirror_gradient<kMirrorPadGrad>));
  ops.add(mirror_op(kMirrorPadGrad, type_attr("T", NumberOrComplexTypes{}))
              .shape(mirror_pad_grad_shape)
              .doc("The gradient of MirrorPad: what is in the border is added to the places it mirrors."),
          gradient(mirror_gradient<kMirrorPad>));
  kernels.add<MirrorPadGrad>(kMirrorPadGrad, DeviceKind::kCpu, {});
  register_pad_moves(kernels, host_moves());
}

void register_pad_moves(KernelRegistry& kernels, const Moves& moves) {
  moves.add<Pad>(kernels, "Pad", {1});
  moves.add<Pad>(kernels, "PadV2", {1});
  moves.add<MirrorPad>(kernels, kMirrorPad, {1});
}

}  // namespace troupe
