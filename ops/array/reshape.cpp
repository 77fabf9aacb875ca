// SPDX-License-Identifier: Apache-2.0
// Shape and order of tensors: Reshape, ExpandDims, Squeeze, Transpose, Tile, Where, InvertPermutation.
#include "ops/array/reshape.h"

#include <algorithm>
#include <numeric>

#include "base/join.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/moves.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {

Result<PartialShape> reshaped(const Tensor& sizes, const PartialShape& from) {
  TROUPE_ASSIGN(std::vector<int64_t> dims, int_values(sizes, "shape"));
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(dims));
  int open = -1;
  bool has_zero = false;
  int64_t product = 1;  // of the others
  for (int i = 0; i < out.rank(); ++i) {
    if (out[i] > 0) {
      product *= out[i];
    } else if (out[i] == 0) {
      has_zero = true;
    } else {
      if (open >= 0) return invalid_argument("shape {} leaves two sizes open", out.str());
      open = i;
    }
  }
  if (!from.fully_known()) return out;
  const int64_t elements = from.shape().elements();
  if (open >= 0 && has_zero && elements == 0) {
    // As in TensorFlow, a size left open beside one of 0 is what the sizes other than 0 give.
    int64_t rest = 1;
    for (const int64_t size : from.dims()) rest *= std::max<int64_t>(size, 1);
    out.set(open, rest / product);
    return out;
  }
  if (has_zero) product = 0;
  if (open >= 0 && product > 0 && elements % product == 0) out.set(open, elements / product);
  else if (open >= 0 || product != elements)
    return invalid_argument("{} elements do not fit shape {}", elements, out.str());
  return out;
}

Status reshape_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  if (const auto sizes = c.constant_input(1)) {
    TROUPE_ASSIGN(const PartialShape shape, reshaped(*sizes, x));
    c.set_output(0, shape);
    return {};
  }
  PartialShape shape = c.sizes_input(1);
  int open = -1;  // the only size that is not known
  int64_t product = 1;
  for (int i = 0; shape.has_rank() && i < shape.rank(); ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(product, shape[i], &product)) open = open == -1 ? i : -2;
  }
  if (open >= 0 && product > 0 && x.fully_known() && x.shape().elements() % product == 0)
    shape.set(open, x.shape().elements() / product);
  c.set_output(0, std::move(shape));
  return {};
}

namespace {

// --- views ---

class Reshape final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const PartialShape shape, reshaped(c.input(1), c.input(0).shape()));
    TROUPE_ASSIGN(Tensor y, c.input(0).reshape(shape.shape()));
    c.set_output(0, std::move(y));
    return {};
  }
};

/// The gradient of an op that only changes the shape.
Status reshape_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op("Reshape", {c.dy(0), sizes_of(c, c.input(0))}));
  return {};
}

class ExpandDims final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    Shape shape = c.input(0).shape();
    if (shape.rank() == kMaxRank) return invalid_argument("{} has the highest rank already", shape.str());
    TROUPE_ASSIGN(const int axis, axis_from(c.input(1), shape.rank() + 1));
    shape.insert(axis, 1);
    TROUPE_ASSIGN(Tensor y, c.input(0).reshape(shape));
    c.set_output(0, std::move(y));
    return {};
  }
};

Status expand_dims_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  if (!x.has_rank()) return {};
  if (x.rank() == kMaxRank) return invalid_argument("{} has the highest rank already", x.str());
  const auto at = c.constant_input(1);
  if (!at) {
    c.set_output(0, PartialShape::of_rank(x.rank() + 1));
    return {};
  }
  TROUPE_ASSIGN(const int axis, axis_from(*at, x.rank() + 1));
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i <= x.rank(); ++i) out.push_back(i == axis ? 1 : x[i < axis ? i : i - 1]);
  c.set_output(0, out);
  return {};
}

/// Which dimensions Squeeze drops; sizes of -1 may be 1.
Result<PartialShape> squeezed(const PartialShape& x, const std::vector<int64_t>& axes) {
  std::array<bool, kMaxRank> drop{};
  for (int64_t a : axes) {
    TROUPE_ASSIGN(const int axis, axis_from(a, x.rank()));
    if (x[axis] > 1 || x[axis] == 0) return invalid_argument("dimension {} of {} is not 1", axis, x.str());
    drop[axis] = true;
  }
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i < x.rank(); ++i) {
    if (axes.empty() && x[i] < 0) return PartialShape();
    if (!drop[i] && !(axes.empty() && x[i] == 1)) out.push_back(x[i]);
  }
  return out;
}

class Squeeze final : public ComputeKernel {
 public:
  explicit Squeeze(const KernelInit& init) : axes_(init.attr<std::vector<int64_t>>("squeeze_dims")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const PartialShape shape, squeezed(c.input(0).shape(), axes_));
    TROUPE_ASSIGN(Tensor y, c.input(0).reshape(shape.shape()));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const std::vector<int64_t> axes_;
};

// --- transpose ---

Result<std::vector<int64_t>> permutation(const Tensor& t, int rank) {
  TROUPE_ASSIGN(std::vector<int64_t> perm, int_values(t, "the permutation"));
  std::vector<bool> seen(perm.size(), false);
  if (rank >= 0 && static_cast<int>(perm.size()) != rank)
    return invalid_argument("{} numbers permute a tensor of rank {}", perm.size(), rank);
  for (int64_t p : perm) {
    if (p < 0 || p >= static_cast<int64_t>(perm.size()) || seen[p])
      return invalid_argument("[{}] is not a permutation of {} numbers", join(perm), perm.size());
    seen[p] = true;
  }
  return perm;
}

class Transpose final : public ComputeKernel {
 public:
  Transpose(const KernelInit& init, const Moves& moves)
      : moves_(moves), conjugate_(init.op == "ConjugateTranspose" && is_complex(init.input_dtypes[0])) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto perm, permutation(c.input(1), x.rank()));
    Shape shape;
    for (int64_t p : perm) shape.push_back(x.shape()[static_cast<int>(p)]);
    if (std::ranges::is_sorted(perm) && !conjugate_) {
      c.set_output(0, x);
      return {};
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    const auto from = strides_of(x.shape()), to = strides_of(shape);
    StridedCopy box;
    for (int i = 0; i < shape.rank(); ++i) box.push(shape[i], from[perm[i]], to[i]);
    TROUPE_RETURN_IF_ERROR(moves_.copy(c, y, 0, x, 0, box));
    if (conjugate_) TROUPE_RETURN_IF_ERROR(moves_.conjugate(c, y));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
  const bool conjugate_;
};

Status transpose_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  const auto constant = c.constant_input(1);
  if (!constant) {
    if (x.has_rank()) c.set_output(0, PartialShape::of_rank(x.rank()));
    else if (c.input(1).has_rank() && c.input(1).rank() == 1 && c.input(1)[0] >= 0 && c.input(1)[0] <= kMaxRank)
      c.set_output(0, PartialShape::of_rank(static_cast<int>(c.input(1)[0])));
    return {};
  }
  TROUPE_ASSIGN(const auto perm, permutation(*constant, x.rank()));
  if (perm.size() > kMaxRank) return invalid_argument("rank {} is more than {}", perm.size(), kMaxRank);
  PartialShape out = PartialShape::scalar();
  for (int64_t p : perm) out.push_back(x.has_rank() ? x[static_cast<int>(p)] : -1);
  c.set_output(0, out);
  return {};
}

std::vector<int64_t> inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> out(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) out[perm[i]] = static_cast<int64_t>(i);
  return out;
}

Status transpose_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Node& node = *c.input(1).node;
  const Tensor* constant = node.op().name() == "Const" ? node.attrs().get<Tensor>("value") : nullptr;
  if (constant) {
    TROUPE_ASSIGN(const auto perm, permutation(*constant, -1));
    c.set_dx(0, c.op(c.node().op().name(), {c.dy(0), int_vector(c, inverse(perm))}));
  } else {
    c.set_dx(0, c.op(c.node().op().name(), {c.dy(0), c.op("InvertPermutation", {c.input(1)})}));
  }
  return {};
}

class InvertPermutation final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const auto perm, permutation(c.input(0), -1));
    TROUPE_ASSIGN(Tensor y, int_tensor(c.input(0).dtype(), inverse(perm), c.input(0).shape()));
    c.set_output(0, std::move(y));
    return {};
  }
};

// --- tile, where ---

Result<PartialShape> tiled(const PartialShape& x, const std::vector<int64_t>& multiples) {
  if (static_cast<int>(multiples.size()) != x.rank())
    return invalid_argument("{} multiples for a tensor of rank {}", multiples.size(), x.rank());
  std::vector<int64_t> sizes;
  for (int i = 0; i < x.rank(); ++i) {
    int64_t n = -1;
    if (multiples[i] < 0 || (x[i] >= 0 && __builtin_mul_overflow(x[i], multiples[i], &n)))
      return invalid_argument("multiple {} of dimension {} of {}", multiples[i], i, x.str());
    sizes.push_back(n);
  }
  return PartialShape::make(sizes);
}

class Tile final : public ComputeKernel {
 public:
  Tile(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto multiples, int_values(c.input(1), "multiples"));
    TROUPE_ASSIGN(const PartialShape sizes, tiled(x.shape(), multiples));
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes.dims()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    const auto from = strides_of(x.shape()), to = strides_of(shape);
    StridedCopy box;
    for (int i = 0; i < shape.rank(); ++i) {
      box.push(multiples[i], 0, x.shape()[i] * to[i]);
      box.push(x.shape()[i], from[i], to[i]);
    }
    TROUPE_RETURN_IF_ERROR(moves_.copy(c, y, 0, x, 0, box));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
};

Status tile_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  const auto constant = c.constant_input(1);
  if (!constant || !x.has_rank()) {
    if (x.has_rank()) c.set_output(0, PartialShape::of_rank(x.rank()));
    return {};
  }
  TROUPE_ASSIGN(const auto multiples, int_values(*constant, "multiples"));
  TROUPE_ASSIGN(PartialShape out, tiled(x, multiples));
  c.set_output(0, std::move(out));
  return {};
}

/// dy seen as [.., multiple, size, multiple, size, ..] and summed over the multiples: up to three dimensions at a time,
/// between what comes before, done already, and after, not yet.
Status tile_gradient(GradientContext& c) {
  const Output dy = c.dy(0), multiples = c.input(1);
  if (!dy) return {};
  const int rank = c.input(0).shape().rank();
  if (rank < 0) return invalid_argument("the rank of the input of a Tile must be known for its gradient");
  const Output sizes = c.op("Shape", {c.input(0)}, {{"out_type", multiples.dtype()}});
  const Output pairs = c.op("Pack", {multiples, sizes}, {{"axis", int64_t{1}}});
  const auto product = [&](Output of, int64_t begin, int64_t end) {  // of elements [begin, end)
    const int64_t from[] = {begin}, n[] = {end - begin}, all[] = {0};
    return c.op("Prod", {c.op("Slice", {of, int_vector(c, from), int_vector(c, n)}), int_vector(c, all)},
                {{"keep_dims", true}});
  };
  Output sum = dy;
  constexpr int kAtOnce = 3;
  for (int begin = 0; begin < rank; begin += kAtOnce) {
    const int end = std::min(rank, begin + kAtOnce);
    const int64_t from[] = {begin, 0}, n[] = {end - begin, 2}, flat[] = {-1};
    std::vector<Output> seen;
    if (begin > 0) seen.push_back(product(sizes, 0, begin));
    seen.push_back(
        c.op("Reshape", {c.op("Slice", {pairs, int_vector(c, from), int_vector(c, n)}), int_vector(c, flat)}));
    if (end < rank) seen.push_back(product(c.op("Mul", {multiples, sizes}), end, rank));
    std::vector<int64_t> axes;
    for (int i = begin; i < end; ++i) axes.push_back((begin > 0) + 2 * (i - begin));
    if (seen.size() > 1) {
      seen.push_back(c.constant(Tensor::scalar<int32_t>(0)));
      seen = {c.op("ConcatV2", seen)};
    }
    sum = c.op("Sum", {c.op("Reshape", {sum, seen[0]}), int_vector(c, axes)});
  }
  c.set_dx(0, c.op("Reshape", {sum, sizes_of(c, c.input(0))}));
  return {};
}

template <class T> class Where final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const auto values = x.values<T>();
    const auto truth = [](T v) { return widen(v) != Arithmetic<T>(0); };
    const int64_t found = std::ranges::count_if(values, truth);
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kInt64, Shape{found, x.rank()}));
    int64_t* out = y.mutable_data<int64_t>();
    for (int64_t i = 0; i < x.elements(); ++i) {
      if (!truth(values[i])) continue;
      int64_t rest = i;
      for (int d = x.rank() - 1; d >= 0; --d) {
        out[d] = rest % x.shape()[d];
        rest /= x.shape()[d];
      }
      out += x.rank();
    }
    c.set_output(0, std::move(y));
    return {};
  }
};

void add_views(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Reshape")
              .input("tensor: T")
              .input("shape: Tshape")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Tshape", IndexTypes{}, "int32"))
              .shape(reshape_shape)
              .cost(no_cost)
              .doc("The same elements in another shape; one size may be -1 and follows from the others. A view."),
          gradient(reshape_gradient));
  ops.add(OpDef("ExpandDims")
              .input("input: T")
              .input("dim: Tdim")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Tdim", IndexTypes{}, "int32"))
              .shape(expand_dims_shape)
              .cost(no_cost)
              .doc("Inserts a dimension of size 1 before dimension `dim` (-1: after the last). A view."),
          gradient(reshape_gradient));
  ops.add(OpDef("Squeeze")
              .input("input: T")
              .output("output: T")
              .attr("T: type")
              .attr("squeeze_dims: list(int) = []")
              .shape([](ShapeContext& c) -> Status {
                if (!c.input(0).has_rank()) return {};
                TROUPE_ASSIGN(PartialShape out, squeezed(c.input(0), c.attr<std::vector<int64_t>>("squeeze_dims")));
                c.set_output(0, out);
                return {};
              })
              .cost(no_cost)
              .doc("Drops the dimensions in squeeze_dims, which must be 1; all that are 1 if there are none. A view."),
          gradient(reshape_gradient));
  kernels.add<Reshape>("Reshape", DeviceKind::kCpu, {});
  kernels.add<ExpandDims>("ExpandDims", DeviceKind::kCpu, {});
  kernels.add<Squeeze>("Squeeze", DeviceKind::kCpu, {});
}

void add_orders(OpRegistry& ops, KernelRegistry& kernels) {
  const auto transpose = [&](const char* name, const char* doc) {
    ops.add(OpDef(name)
                .input("x: T")
                .input("perm: Tperm")
                .output("y: T")
                .attr("T: type")
                .attr(type_attr("Tperm", IndexTypes{}, "int32"))
                .shape(transpose_shape)
                .cost(move_cost)
                .doc(doc),
            gradient(transpose_gradient));
  };
  transpose("Transpose", "Dimension i of y is dimension perm[i] of x.");
  transpose("ConjugateTranspose", "Dimension i of y is dimension perm[i] of x; complex numbers are conjugated.");
  ops.add(OpDef("InvertPermutation")
              .input("x: T")
              .output("y: T")
              .attr(type_attr("T", IndexTypes{}, "int32"))
              .shape(unchanged_shape)
              .doc("y[x[i]] = i. Error where x is not a permutation."),
          not_differentiable("it gives integers"));
  ops.add(OpDef("Tile")
              .input("input: T")
              .input("multiples: Tmultiples")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Tmultiples", IndexTypes{}, "int32"))
              .shape(tile_shape)
              .cost(move_cost)
              .doc("The input repeated multiples[i] times along dimension i."),
          gradient(tile_gradient));
  kernels.add<InvertPermutation>("InvertPermutation", DeviceKind::kCpu, {});
  using WhereTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                              uint32_t, uint64_t, bool, complex64, complex128>;
  ops.add(OpDef("Where")
              .input("input: T")
              .output("index: int64")
              .attr(type_attr("T", WhereTypes{}, "bool"))
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, PartialShape{-1, c.input(0).rank()});
                return {};
              })
              .cost(move_cost)
              .doc("The indices of elements that are true or not zero, one row each, in row-major order."),
          not_differentiable("it gives indices"));
  add_cpu_kernels<Where>(kernels, "Where", WhereTypes{});
}

}  // namespace

void register_views_gpu(KernelRegistry& kernels) {
  kernels.add<Reshape>("Reshape", DeviceKind::kCuda, {}, {{1}, {}});
  kernels.add<ExpandDims>("ExpandDims", DeviceKind::kCuda, {}, {{1}, {}});
  kernels.add<Squeeze>("Squeeze", DeviceKind::kCuda, {});
  kernels.add<InvertPermutation>("InvertPermutation", DeviceKind::kCuda, {}, {{0}, {0}});
}

void register_reshape_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_views(ops, kernels);
  add_orders(ops, kernels);
  register_reshape_moves(kernels, host_moves());
}

void register_reshape_moves(KernelRegistry& kernels, const Moves& moves) {
  for (const char* op : {"Transpose", "ConjugateTranspose"}) moves.add<Transpose>(kernels, op, {1});
  moves.add<Tile>(kernels, "Tile", {1});
}

}  // namespace troupe
