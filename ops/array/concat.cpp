// SPDX-License-Identifier: Apache-2.0
// Joining and parting tensors along a dimension: ConcatV2, Concat, ParallelConcat, Split, SplitV, Pack, Unpack,
// ConcatOffset.
#include "base/join.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/moves.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// Sizes of the dimensions before `axis`, multiplied: rows of the matrix that is joined or parted by columns.
int64_t rows_before(const Shape& shape, int axis) { return sizes_product(shape, 0, axis); }

/// The parts of these sizes along dimension `axis` of x; views where that is the first.
Result<std::vector<Tensor>> parts_of(KernelContext& c, const Moves& moves, const Tensor& x, int axis,
                                     std::span<const int64_t> sizes) {
  std::vector<Tensor> parts;
  parts.reserve(sizes.size());
  Shape shape = x.shape();
  int64_t at = 0;
  for (const int64_t size : sizes) {
    shape.set(axis, size);
    TROUPE_ASSIGN(Tensor part, axis == 0 ? x.slice(at, at + size) : c.allocate(x.dtype(), shape));
    parts.push_back(std::move(part));
    at += size;
  }
  if (axis > 0) TROUPE_RETURN_IF_ERROR(moves.split(c, parts, x, rows_before(x.shape(), axis)));
  return parts;
}

/// Inputs [first, first + count) side by side.
Result<Tensor> joined(KernelContext& c, const Moves& moves, int first, int count, const Shape& shape, int axis) {
  TROUPE_ASSIGN(Tensor y, c.allocate(c.input(first).dtype(), shape));
  std::vector<const Tensor*> parts;
  for (int i = 0; i < count; ++i) parts.push_back(&c.input(first + i));
  TROUPE_RETURN_IF_ERROR(moves.join(c, y, rows_before(shape, axis), parts));
  return y;
}

/// Which inputs of Concat (axis first) and ConcatV2 (axis last) are what.
struct ConcatInputs {
  int first = 0, axis = 0, count = 0;
  ConcatInputs(std::string_view op, int inputs)
      : first(op == "Concat"), axis(op == "Concat" ? 0 : inputs - 1), count(inputs - 1) {}
};

class Concat final : public ComputeKernel {
 public:
  Concat(const KernelInit& init, const Moves& moves)
      : moves_(moves), at_(init.op, static_cast<int>(init.input_dtypes.size())) {}
  Status compute(KernelContext& c) override {
    const auto value = [&](int i) -> const Tensor& { return c.input(at_.first + i); };
    const int n = at_.count;
    Shape shape = value(0).shape();
    TROUPE_ASSIGN(const int axis, axis_from(c.input(at_.axis), shape.rank()));
    int64_t total = 0;
    for (int i = 0; i < n; ++i) {
      Shape s = value(i).shape();
      if (s.rank() == shape.rank()) {
        total += s[axis];
        s.set(axis, shape[axis]);
      }
      if (s != shape)
        return invalid_argument("input {} of shape {} does not join {} along dimension {}", i, value(i).shape().str(),
                                shape.str(), axis);
    }
    shape.set(axis, total);
    TROUPE_ASSIGN(Tensor y, joined(c, moves_, at_.first, n, shape, axis));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
  const ConcatInputs at_;
};

Status concat_shape(ShapeContext& c, std::string_view op) {
  const ConcatInputs in(op, c.num_inputs());
  const int n = in.count;
  PartialShape out;
  const auto at = c.constant_input(in.axis);
  for (int i = 0; i < n; ++i) {
    const PartialShape& s = c.input(in.first + i);
    if (!s.has_rank()) continue;
    if (s.rank() == 0) return invalid_argument("input {} is a scalar and has no dimension to join along", i);
    if (!out.has_rank()) out = PartialShape::of_rank(s.rank());
    if (s.rank() != out.rank()) return invalid_argument("input {} of shape {} has not rank {}", i, s.str(), out.rank());
  }
  if (out.has_rank() && at) {
    TROUPE_ASSIGN(const int axis, axis_from(*at, out.rank()));
    int64_t total = 0;
    for (int i = 0; i < n; ++i) {
      PartialShape s = c.input(in.first + i);
      if (!s.has_rank()) s = PartialShape::of_rank(out.rank());
      total = total < 0 || s[axis] < 0 ? -1 : total + s[axis];
      s.set(axis, -1);
      TROUPE_ASSIGN(out, PartialShape::merge(out, s));
    }
    out.set(axis, total);
  }
  c.set_output(0, out);
  return {};
}

/// Tensors of one row each, as TensorFlow wants them.
class ParallelConcat final : public ComputeKernel {
 public:
  ParallelConcat(const KernelInit& init, const Moves& moves)
      : moves_(moves), shape_(init.attr<PartialShape>("shape")) {}
  Status compute(KernelContext& c) override {
    Shape shape = c.input(0).shape();
    for (int i = 0; i < c.num_inputs(); ++i)
      if (const Shape& s = c.input(i).shape(); s != shape || s.rank() == 0 || s[0] != 1)
        return invalid_argument("input {} of shape {} is not one row of shape {}", i, s.str(), shape.str());
    shape.set(0, c.num_inputs());
    if (!shape_.compatible(shape))
      return invalid_argument("inputs make {} and not shape {}", shape.str(), shape_.str());
    TROUPE_ASSIGN(Tensor y, joined(c, moves_, 0, c.num_inputs(), shape, 0));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
  const PartialShape shape_;
};

Status parallel_concat_shape(ShapeContext& c) {
  PartialShape rows = c.attr<PartialShape>("shape");
  if (rows.has_rank() && (rows.rank() == 0 || (rows[0] >= 0 && rows[0] != c.num_inputs())))
    return invalid_argument("shape {} for {} rows", rows.str(), c.num_inputs());
  for (int i = 0; i < c.num_inputs(); ++i) {
    const PartialShape& s = c.input(i);
    if (s.has_rank() && (s.rank() == 0 || (s[0] >= 0 && s[0] != 1)))
      return invalid_argument("input {} of shape {} is not one row", i, s.str());
    if (!s.has_rank()) continue;
    PartialShape row = s;
    row.set(0, c.num_inputs());
    TROUPE_ASSIGN(rows, PartialShape::merge(rows, row));
  }
  c.set_output(0, rows);
  return {};
}

Status concat_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  const ConcatInputs in(c.node().op().name(), c.num_inputs());
  const int n = in.count;
  if (!dy) return {};
  if (n == 1) {
    c.set_dx(in.first, dy);
    return {};
  }
  const Node& axis_node = *c.input(in.axis).node;
  const Tensor* constant = axis_node.op().name() == "Const" ? axis_node.attrs().get<Tensor>("value") : nullptr;
  std::vector<int64_t> parts;
  for (int i = 0; i < n && constant; ++i) {
    const PartialShape& s = c.input(in.first + i).shape();
    const auto axis = s.has_rank() ? axis_from(*constant, s.rank()) : Result<int>(0);
    if (s.has_rank() && axis.ok() && s[*axis] >= 0) parts.push_back(s[*axis]);
  }
  if (static_cast<int>(parts.size()) == n) {
    TROUPE_ASSIGN(const int axis, axis_from(*constant, c.input(in.first).shape().rank()));
    const Output at = c.constant(Tensor::scalar<int32_t>(axis));
    const auto dxs = c.ops("SplitV", {dy, int_vector(c, parts), at}, {{"num_split", int64_t{n}}});
    for (size_t i = 0; i < dxs.size(); ++i) c.set_dx(in.first + static_cast<int>(i), dxs[i]);
    return {};
  }
  std::vector<Output> inputs;
  for (int i = 0; i < n; ++i) inputs.push_back(c.input(in.first + i));
  const auto sizes = c.ops("ShapeN", inputs);
  inputs = sizes;
  const Output axis32 = c.input(in.axis).dtype() == DType::kInt32
                            ? c.input(in.axis)
                            : c.op("Cast", {c.input(in.axis)}, {{"DstT", DType::kInt32}});
  const Output flat = c.op("Reshape", {axis32, c.constant(Tensor::of<int32_t>(std::span<const int32_t>()))});
  inputs.insert(inputs.begin(), flat);
  const auto offsets = c.ops("ConcatOffset", inputs);
  for (size_t i = 0; i < offsets.size(); ++i)
    c.set_dx(in.first + static_cast<int>(i), c.op("Slice", {dy, offsets[i], sizes[i]}));
  return {};
}

class ConcatOffset final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const int n = c.num_inputs() - 1;
    int64_t at = 0;
    TROUPE_ASSIGN(const auto first, int_values(c.input(1), "a shape"));
    TROUPE_ASSIGN(const int axis, axis_from(c.input(0), static_cast<int>(first.size())));
    for (int i = 0; i < n; ++i) {
      TROUPE_ASSIGN(const auto sizes, int_values(c.input(i + 1), "a shape"));
      if (sizes.size() != first.size())
        return invalid_argument("shapes of {} and {} numbers do not join", first.size(), sizes.size());
      std::vector<int64_t> offset(sizes.size(), 0);
      offset[axis] = at;
      at += sizes[axis];
      TROUPE_ASSIGN(Tensor t, int_tensor(c.input(i + 1).dtype(), offset, c.input(i + 1).shape()));
      c.set_output(i, std::move(t));
    }
    return {};
  }
};

class Split final : public ComputeKernel {
 public:
  Split(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(1);
    const int n = c.num_outputs();
    TROUPE_ASSIGN(const int axis, axis_from(c.input(0), x.rank()));
    if (x.shape()[axis] % n != 0)
      return invalid_argument("dimension {} of {} does not part into {}", axis, x.shape().str(), n);
    IntList sizes;
    for (int i = 0; i < n; ++i) sizes.push_back(x.shape()[axis] / n);
    TROUPE_ASSIGN(auto parts, parts_of(c, moves_, x, axis, sizes));
    for (int i = 0; i < n; ++i) c.set_output(i, std::move(parts[i]));
    return {};
  }

 private:
  const Moves& moves_;
};

Status split_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape x, c.with_rank_at_least(1, 1));
  const auto at = c.constant_input(0);
  if (!x.has_rank()) return {};
  if (!at) {
    x = PartialShape::of_rank(x.rank());
  } else {
    TROUPE_ASSIGN(const int axis, axis_from(*at, x.rank()));
    if (x[axis] >= 0 && x[axis] % c.num_outputs() != 0)
      return invalid_argument("dimension {} of {} does not part into {}", axis, x.str(), c.num_outputs());
    if (x[axis] >= 0) x.set(axis, x[axis] / c.num_outputs());
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, x);
  return {};
}

/// The gradients of all outputs, zeros for those without; empty when none has one.
std::vector<Output> all_dys(GradientContext& c) {
  const int n = c.node().num_outputs();
  std::vector<Output> out;
  bool any = false;
  for (int i = 0; i < n; ++i) any |= static_cast<bool>(c.dy(i));
  for (int i = 0; i < n && any; ++i) out.push_back(c.dy(i) ? c.dy(i) : c.op("ZerosLike", {c.output(i)}));
  return out;
}

/// The sizes of SplitV with its -1 filled in; `total` is -1 where it is not known.
Result<std::vector<int64_t>> split_sizes(const Tensor& sizes, int64_t total, int n) {
  TROUPE_ASSIGN(std::vector<int64_t> parts, int_values(sizes, "size_splits"));
  if (static_cast<int>(parts.size()) != n) return invalid_argument("{} sizes for {} parts", parts.size(), n);
  int open = -1;
  int64_t sum = 0;
  for (int i = 0; i < n; ++i) {
    if (parts[i] == -1 && open < 0) open = i;
    else if (parts[i] < 0) return invalid_argument("size {} in size_splits [{}]", parts[i], join(parts));
    else sum += parts[i];
  }
  if (total < 0) return parts;
  if (open >= 0 && sum <= total) parts[open] = total - sum;
  else if (sum != total) return invalid_argument("size_splits [{}] do not add up to {}", join(parts), total);
  return parts;
}

class SplitV final : public ComputeKernel {
 public:
  SplitV(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const int axis, axis_from(c.input(2), x.rank()));
    TROUPE_ASSIGN(const auto sizes, split_sizes(c.input(1), x.shape()[axis], c.num_outputs()));
    TROUPE_ASSIGN(auto parts, parts_of(c, moves_, x, axis, sizes));
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, std::move(parts[i]));
    return {};
  }

 private:
  const Moves& moves_;
};

Status split_v_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  if (!x.has_rank()) return {};
  const auto at = c.constant_input(2), sizes = c.constant_input(1);
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::of_rank(x.rank()));
  if (!at) return {};
  TROUPE_ASSIGN(const int axis, axis_from(*at, x.rank()));
  std::vector<int64_t> parts(static_cast<size_t>(c.num_outputs()), -1);
  if (sizes) {
    TROUPE_ASSIGN(parts, split_sizes(*sizes, x[axis], c.num_outputs()));
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    PartialShape out = x;
    out.set(axis, parts[i]);
    c.set_output(i, out);
  }
  return {};
}

class Pack final : public ComputeKernel {
 public:
  Pack(const KernelInit& init, const Moves& moves) : moves_(moves), axis_(init.attr<int64_t>("axis")) {}
  Status compute(KernelContext& c) override {
    Shape shape = c.input(0).shape();
    if (shape.rank() == kMaxRank) return invalid_argument("{} has the highest rank already", shape.str());
    TROUPE_ASSIGN(const int axis, axis_from(axis_, shape.rank() + 1));
    shape.insert(axis, c.num_inputs());
    for (int i = 0; i < c.num_inputs(); ++i)
      if (c.input(i).shape() != c.input(0).shape())
        return invalid_argument("shapes {} and {} of inputs 0 and {} differ", c.input(0).shape().str(),
                                c.input(i).shape().str(), i);
    TROUPE_ASSIGN(Tensor y, joined(c, moves_, 0, c.num_inputs(), shape, axis));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
  const int64_t axis_;
};

Status pack_shape(ShapeContext& c) {
  PartialShape x;
  for (int i = 0; i < c.num_inputs(); ++i) {
    TROUPE_ASSIGN(x, PartialShape::merge(x, c.input(i)));
  }
  if (!x.has_rank()) return {};
  if (x.rank() == kMaxRank) return invalid_argument("{} has the highest rank already", x.str());
  TROUPE_ASSIGN(const int axis, axis_from(c.attr<int64_t>("axis"), x.rank() + 1));
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i <= x.rank(); ++i) out.push_back(i == axis ? c.num_inputs() : x[i < axis ? i : i - 1]);
  c.set_output(0, out);
  return {};
}

class Unpack final : public ComputeKernel {
 public:
  Unpack(const KernelInit& init, const Moves& moves) : moves_(moves), axis_(init.attr<int64_t>("axis")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const int axis, axis_from(axis_, x.rank()));
    if (x.shape()[axis] != c.num_outputs())
      return invalid_argument("dimension {} of {} does not part into {}", axis, x.shape().str(), c.num_outputs());
    Shape shape = x.shape();
    shape.erase(axis);
    const std::vector<int64_t> ones(static_cast<size_t>(c.num_outputs()), 1);
    TROUPE_ASSIGN(const auto parts, parts_of(c, moves_, x, axis, ones));
    for (int i = 0; i < c.num_outputs(); ++i) {
      TROUPE_ASSIGN(Tensor y, parts[i].reshape(shape));
      c.set_output(i, std::move(y));
    }
    return {};
  }

 private:
  const Moves& moves_;
  const int64_t axis_;
};

Status unpack_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  if (!x.has_rank()) return {};
  TROUPE_ASSIGN(const int axis, axis_from(c.attr<int64_t>("axis"), x.rank()));
  if (x[axis] >= 0 && x[axis] != c.num_outputs())
    return invalid_argument("dimension {} of {} does not part into {}", axis, x.str(), c.num_outputs());
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) out.push_back(x[i]);
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, out);
  return {};
}

}  // namespace

void register_concat_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("ConcatV2")
              .input("values: N * T")
              .input("axis: Tidx")
              .output("output: T")
              .attr("N: int >= 1")
              .attr("T: type")
              .attr(type_attr("Tidx", IndexTypes{}, "int32"))
              .shape([](ShapeContext& c) { return concat_shape(c, "ConcatV2"); })
              .cost(move_cost)
              .doc("Tensors joined along a dimension; their other sizes agree."),
          gradient(concat_gradient));
  ops.add(OpDef("Concat")
              .input("concat_dim: int32")
              .input("values: N * T")
              .output("output: T")
              .attr("N: int >= 2")
              .attr("T: type")
              .shape([](ShapeContext& c) { return concat_shape(c, "Concat"); })
              .cost(move_cost)
              .doc("ConcatV2 with the dimension first."),
          gradient(concat_gradient));
  ops.add(OpDef("ParallelConcat")
              .input("values: N * T")
              .output("output: T")
              .attr("N: int >= 1")
              .attr("T: type")
              .attr("shape: shape")
              .shape(parallel_concat_shape)
              .doc("Tensors whose first dimension is 1, joined along it to one of `shape`."),
          undefined_gradient());
  ops.add(OpDef("ConcatOffset")
              .input("concat_dim: int32")
              .input("shape: N * shape_type")
              .output("offset: N * shape_type")
              .attr("N: int >= 1")
              .attr(type_attr("shape_type", IndexTypes{}, "int32"))
              .shape([](ShapeContext& c) -> Status {
                for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(i + 1));
                return {};
              })
              .doc("Where each of the tensors with these sizes begins in their concatenation."),
          not_differentiable("it gives integers"));
  ops.add(OpDef("Split")
              .input("split_dim: int32")
              .input("value: T")
              .output("output: num_split * T")
              .attr("num_split: int >= 1")
              .attr("T: type")
              .shape(split_shape)
              .cost(move_cost)
              .doc("The parts of equal size along a dimension. Views where it is the first."),
          gradient([](GradientContext& c) -> Status {
            std::vector<Output> dys = all_dys(c);
            if (dys.empty()) return {};
            dys.push_back(c.input(0));
            c.set_dx(1, c.op("ConcatV2", dys));
            return {};
          }));
  ops.add(OpDef("SplitV")
              .input("value: T")
              .input("size_splits: Tlen")
              .input("split_dim: int32")
              .output("output: num_split * T")
              .attr("num_split: int >= 1")
              .attr("T: type")
              .attr(type_attr("Tlen", TypeList<int8_t, int32_t, int64_t>{}, "int64"))
              .shape(split_v_shape)
              .cost(move_cost)
              .doc("The parts of the given sizes along a dimension; one size may be -1. Views where it is the first."),
          gradient([](GradientContext& c) -> Status {
            std::vector<Output> dys = all_dys(c);
            if (dys.empty()) return {};
            dys.push_back(c.input(2));
            c.set_dx(0, c.op("ConcatV2", dys));
            return {};
          }));
  ops.add(OpDef("Pack")
              .input("values: N * T")
              .output("output: T")
              .attr("N: int >= 1")
              .attr("T: type")
              .attr("axis: int = 0")
              .shape(pack_shape)
              .cost(move_cost)
              .doc("Tensors of one shape as the rows of a new dimension."),
          gradient([](GradientContext& c) -> Status {
            if (!c.dy(0)) return {};
            const auto dxs =
                c.ops("Unpack", {c.dy(0)},
                      {{"num", int64_t{c.num_inputs()}}, {"axis", c.node().attrs().get_or<int64_t>("axis", 0)}});
            for (size_t i = 0; i < dxs.size(); ++i) c.set_dx(static_cast<int>(i), dxs[i]);
            return {};
          }));
  ops.add(OpDef("Unpack")
              .input("value: T")
              .output("output: num * T")
              .attr("num: int >= 0")
              .attr("T: type")
              .attr("axis: int = 0")
              .shape(unpack_shape)
              .cost(move_cost)
              .doc("The rows of a dimension, which is dropped. Views where it is the first."),
          gradient([](GradientContext& c) -> Status {
            const std::vector<Output> dys = all_dys(c);
            if (!dys.empty()) c.set_dx(0, c.op("Pack", dys, {{"axis", c.node().attrs().get_or<int64_t>("axis", 0)}}));
            return {};
          }));
  kernels.add<ConcatOffset>("ConcatOffset", DeviceKind::kCpu, {});
  register_concat_moves(kernels, host_moves());
}

void register_concat_moves(KernelRegistry& kernels, const Moves& moves) {
  moves.add<Concat>(kernels, "ConcatV2", {-1});
  moves.add<Concat>(kernels, "Concat", {0});
  moves.add<ParallelConcat>(kernels, "ParallelConcat");
  moves.add<Split>(kernels, "Split", {0});
  moves.add<SplitV>(kernels, "SplitV", {1, 2});
  moves.add<Pack>(kernels, "Pack");
  moves.add<Unpack>(kernels, "Unpack");
}

}  // namespace troupe
