// SPDX-License-Identifier: Apache-2.0
// Joining and parting tensors along a dimension: ConcatV2, Concat, ParallelConcat, Split, SplitV, Pack, Unpack,
// ConcatOffset.
#include "base/join.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// Rows [begin, begin + part) of dimension `axis` of x, as a view where axis is the first.
Result<Tensor> part_of(KernelContext& c, const Tensor& x, int axis, int64_t begin, int64_t part) {
  if (axis == 0) return x.slice(begin, begin + part);
  Shape shape = x.shape();
  shape.set(axis, part);
  TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
  const auto from = strides_of(x.shape()), to = strides_of(shape);
  StridedCopy box;
  for (int i = 0; i < shape.rank(); ++i) box.push(shape[i], from[i], to[i]);
  strided_copy(x.dtype(), y.mutable_raw(), advance(x.raw(), begin * from[axis], x.dtype()), box, c.threads());
  return y;
}

/// Copies x into y from row `begin` of dimension `axis` on.
void put_part(KernelContext& c, Tensor& y, int axis, int64_t begin, const Tensor& x) {
  const auto from = strides_of(x.shape()), to = strides_of(y.shape());
  StridedCopy box;
  for (int i = 0; i < x.rank(); ++i) box.push(x.shape()[i], from[i], to[i]);
  strided_copy(x.dtype(), advance(y.mutable_raw(), begin * to[axis], y.dtype()), x.raw(), box, c.threads());
}

/// Which inputs of Concat (axis first) and ConcatV2 (axis last) are what.
struct ConcatInputs {
  int first = 0, axis = 0, count = 0;
  ConcatInputs(std::string_view op, int inputs)
      : first(op == "Concat"), axis(op == "Concat" ? 0 : inputs - 1), count(inputs - 1) {}
};

class Concat final : public ComputeKernel {
 public:
  explicit Concat(const KernelInit& init) : at_(init.op, static_cast<int>(init.input_dtypes.size())) {}
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
    TROUPE_ASSIGN(Tensor y, c.allocate(value(0).dtype(), shape));
    int64_t at = 0;
    for (int i = 0; i < n; ++i) {
      put_part(c, y, axis, at, value(i));
      at += value(i).shape()[axis];
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
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
  explicit ParallelConcat(const KernelInit& init) : shape_(init.attr<PartialShape>("shape")) {}
  Status compute(KernelContext& c) override {
    Shape shape = c.input(0).shape();
    for (int i = 0; i < c.num_inputs(); ++i)
      if (const Shape& s = c.input(i).shape(); s != shape || s.rank() == 0 || s[0] != 1)
        return invalid_argument("input {} of shape {} is not one row of shape {}", i, s.str(), shape.str());
    shape.set(0, c.num_inputs());
    if (!shape_.compatible(shape))
      return invalid_argument("inputs make {} and not shape {}", shape.str(), shape_.str());
    TROUPE_ASSIGN(Tensor y, c.allocate(c.input(0).dtype(), shape));
    for (int i = 0; i < c.num_inputs(); ++i) put_part(c, y, 0, i, c.input(i));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
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
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(1);
    const int n = c.num_outputs();
    TROUPE_ASSIGN(const int axis, axis_from(c.input(0), x.rank()));
    if (x.shape()[axis] % n != 0)
      return invalid_argument("dimension {} of {} does not part into {}", axis, x.shape().str(), n);
    const int64_t part = x.shape()[axis] / n;
    for (int i = 0; i < n; ++i) {
      TROUPE_ASSIGN(Tensor y, part_of(c, x, axis, i * part, part));
      c.set_output(i, std::move(y));
    }
    return {};
  }
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
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const int axis, axis_from(c.input(2), x.rank()));
    TROUPE_ASSIGN(const auto parts, split_sizes(c.input(1), x.shape()[axis], c.num_outputs()));
    int64_t at = 0;
    for (int i = 0; i < c.num_outputs(); ++i) {
      TROUPE_ASSIGN(Tensor y, part_of(c, x, axis, at, parts[i]));
      c.set_output(i, std::move(y));
      at += parts[i];
    }
    return {};
  }
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
  explicit Pack(const KernelInit& init) : axis_(init.attr<int64_t>("axis")) {}
  Status compute(KernelContext& c) override {
    Shape shape = c.input(0).shape();
    if (shape.rank() == kMaxRank) return invalid_argument("{} has the highest rank already", shape.str());
    TROUPE_ASSIGN(const int axis, axis_from(axis_, shape.rank() + 1));
    shape.insert(axis, 1);
    Shape whole = shape;
    whole.set(axis, c.num_inputs());
    TROUPE_ASSIGN(Tensor y, c.allocate(c.input(0).dtype(), whole));
    for (int i = 0; i < c.num_inputs(); ++i) {
      if (c.input(i).shape() != c.input(0).shape())
        return invalid_argument("shapes {} and {} of inputs 0 and {} differ", c.input(0).shape().str(),
                                c.input(i).shape().str(), i);
      TROUPE_ASSIGN(const Tensor x, c.input(i).reshape(shape));
      put_part(c, y, axis, i, x);
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
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
  explicit Unpack(const KernelInit& init) : axis_(init.attr<int64_t>("axis")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const int axis, axis_from(axis_, x.rank()));
    if (x.shape()[axis] != c.num_outputs())
      return invalid_argument("dimension {} of {} does not part into {}", axis, x.shape().str(), c.num_outputs());
    Shape shape = x.shape();
    shape.erase(axis);
    for (int i = 0; i < c.num_outputs(); ++i) {
      TROUPE_ASSIGN(const Tensor part, part_of(c, x, axis, i, 1));
      TROUPE_ASSIGN(Tensor y, part.reshape(shape));
      c.set_output(i, std::move(y));
    }
    return {};
  }

 private:
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
              .doc("Tensors joined along a dimension; their other sizes agree."),
          gradient(concat_gradient));
  ops.add(OpDef("Concat")
              .input("concat_dim: int32")
              .input("values: N * T")
              .output("output: T")
              .attr("N: int >= 2")
              .attr("T: type")
              .shape([](ShapeContext& c) { return concat_shape(c, "Concat"); })
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
          not_differentiable("TensorFlow gives it none"));
  kernels.add<ParallelConcat>("ParallelConcat", DeviceKind::kCpu, {});
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
              .doc("The rows of a dimension, which is dropped. Views where it is the first."),
          gradient([](GradientContext& c) -> Status {
            const std::vector<Output> dys = all_dys(c);
            if (!dys.empty()) c.set_dx(0, c.op("Pack", dys, {{"axis", c.node().attrs().get_or<int64_t>("axis", 0)}}));
            return {};
          }));
  for (const char* op : {"ConcatV2", "Concat"}) kernels.add<Concat>(op, DeviceKind::kCpu, {});
  kernels.add<ConcatOffset>("ConcatOffset", DeviceKind::kCpu, {});
  kernels.add<Split>("Split", DeviceKind::kCpu, {});
  kernels.add<SplitV>("SplitV", DeviceKind::kCpu, {});
  kernels.add<Pack>("Pack", DeviceKind::kCpu, {});
  kernels.add<Unpack>("Unpack", DeviceKind::kCpu, {});
}

}  // namespace troupe
