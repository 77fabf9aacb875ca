// SPDX-License-Identifier: Apache-2.0
// Constants, placeholders, identities, and tensors made from sizes: Const, Placeholder, NoOp, Identity,
// Shape, Fill, Range and their kin.
#include <cmath>

#include "devices/host_arguments.h"
#include "ops/array/fill.h"
#include "ops/array/register.h"
#include "ops/parts/element_list.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/host_memory.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {
namespace {

/// Sizes given as an int32 or int64 vector tensor.
Result<Shape> shape_of_dims(const Tensor& dims) {
  if (dims.rank() != 1) return invalid_argument("dims must be a vector, not {}", dims.shape().str());
  std::vector<int64_t> sizes;
  with_type(dims.dtype(), IndexTypes{},
            [&]<class T>() { sizes.assign(dims.data<T>(), dims.data<T>() + dims.elements()); });
  return Shape::make(sizes);
}

}  // namespace

Result<Shape> filled_shape(const Tensor& dims, const Shape& value) {
  TROUPE_ASSIGN(const Shape shape, shape_of_dims(dims));
  if (value.rank() != 0) return invalid_argument("value must be a scalar, not {}", value.str());
  return shape;
}

template <class T> Result<int64_t> range_length(const Tensor& start, const Tensor& limit, const Tensor& delta) {
  for (const Tensor* t : {&start, &limit, &delta})
    if (t->rank() != 0) return invalid_argument("start, limit and delta must be scalars, one is {}", t->shape().str());
  const auto a = widen(*start.data<T>()), b = widen(*limit.data<T>()), d = widen(*delta.data<T>());
  if (d == 0) return invalid_argument("delta is 0");
  if ((d > 0 && a > b) || (d < 0 && a < b))
    return invalid_argument("delta {} never leads from start {} to limit {}", d, a, b);
  double length;
  if constexpr (std::is_integral_v<T>) {
    using Wide = __int128;
    const Wide span = d > 0 ? Wide(b) - Wide(a) : Wide(a) - Wide(b), step = d > 0 ? Wide(d) : -Wide(d);
    length = static_cast<double>((span + step - 1) / step);
  } else {
    length = std::ceil(std::abs((static_cast<double>(b) - static_cast<double>(a)) / static_cast<double>(d)));
  }
  if (!(length < 1e15)) return invalid_argument("range from {} to {} by {} is too long", a, b, d);
  return static_cast<int64_t>(length);
}

using RangeTypes = TypeList<float, double, float16, bfloat16, int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t>;
template Result<int64_t> range_length<float>(const Tensor&, const Tensor&, const Tensor&);
template Result<int64_t> range_length<double>(const Tensor&, const Tensor&, const Tensor&);
template Result<int64_t> range_length<float16>(const Tensor&, const Tensor&, const Tensor&);
template Result<int64_t> range_length<bfloat16>(const Tensor&, const Tensor&, const Tensor&);
template Result<int64_t> range_length<int64_t>(const Tensor&, const Tensor&, const Tensor&);

namespace {

Status const_shape(ShapeContext& c) {
  const Tensor& value = c.attr<Tensor>("value");
  if (value.dtype() != c.attr<DType>("dtype"))
    return invalid_argument("value is {}, dtype says {}", to_string(value.dtype()), to_string(c.attr<DType>("dtype")));
  c.set_output(0, value.shape());
  return {};
}

Status shapes_of_inputs(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_output(i, c.input(i));
  return {};
}

KernelFactory builtin(KernelKind kind, Builtin builtin) {
  return {kind, [builtin](const KernelInit& init) -> Result<std::unique_ptr<Kernel>> {
            Tensor value = builtin == Builtin::kConst ? init.attr<Tensor>("value") : Tensor();
            return std::unique_ptr<Kernel>(new BuiltinKernel(builtin, std::move(value)));
          }};
}

class Forward final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    for (int i = 0; i < c.num_inputs(); ++i) c.set_output(i, c.input(i));
    return {};
  }
};

class EnsureShape final : public ComputeKernel {
 public:
  explicit EnsureShape(const KernelInit& init) : shape_(init.attr<PartialShape>("shape")) {}
  Status compute(KernelContext& c) override {
    const Shape& shape = c.input(0).shape();
    if (!shape_.compatible(shape)) return invalid_argument("shape {} is not {}", shape.str(), shape_.str());
    c.set_output(0, c.input(0));
    return {};
  }

 private:
  const PartialShape shape_;
};

template <class T> class CheckNumerics final : public ComputeKernel {
 public:
  explicit CheckNumerics(const KernelInit& init) : message_(init.attr<std::string>("message")) {}
  Status compute(KernelContext& c) override {
    int64_t at = 0;
    for (const T x : c.input(0).values<T>()) {
      if (!std::isfinite(widen(x)))
        return invalid_argument("{}: element {} of {} is {}", message_, at, c.input(0).shape().str(),
                                static_cast<double>(widen(x)));
      ++at;
    }
    c.set_output(0, c.input(0));
    return {};
  }

 private:
  std::string message_;
};

/// Every element the same: zeros and ones like the input.
template <int value> class Like final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (value == 0 && x.dtype() == DType::kVariant) {
      TROUPE_ASSIGN(Tensor zeros, zeros_like(c, x));
      c.set_output(0, std::move(zeros));
      return {};
    }
    if (x.dtype() == DType::kResource || x.dtype() == DType::kVariant)
      return make_error(Code::kUnimplemented, "a {} has no {}", to_string(x.dtype()), value == 0 ? "zero" : "one");
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    if (x.dtype() == DType::kString) {
      std::fill_n(y.mutable_data<std::string>(), y.elements(), std::string());
    } else if (value == 0) {
      std::memset(y.mutable_raw(), 0, y.bytes());
    } else if (x.dtype() == DType::kBool) {
      std::fill_n(y.mutable_data<bool>(), y.elements(), true);
    } else {
      with_type(x.dtype(), NumberOrComplexTypes{},
                [&]<class T>() { std::fill_n(y.mutable_data<T>(), y.elements(), narrow<T>(Arithmetic<T>(1))); });
    }
    c.set_output(0, std::move(y));
    return {};
  }
};

/// A tensor of int32 or int64 from int64 values, in the host's memory on GPUs too.
Result<Tensor> integers(KernelContext& c, DType dtype, std::span<const int64_t> values, const Shape& shape) {
  TROUPE_ASSIGN(Tensor t, c.device().gpu ? Tensor::make(dtype, shape) : c.allocate(dtype, shape));
  if (dtype == DType::kInt64) {
    std::copy(values.begin(), values.end(), t.mutable_data<int64_t>());
    return t;
  }
  int32_t* out = t.mutable_data<int32_t>();
  for (int64_t v : values) {
    if (v > INT32_MAX) return invalid_argument("size {} does not fit an int32: take out_type int64", v);
    *out++ = static_cast<int32_t>(v);
  }
  return t;
}

/// Shape, ShapeN, Size, Rank.
class ShapeKernel final : public ComputeKernel {
 public:
  explicit ShapeKernel(const KernelInit& init) : op_(init.op), dtype_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    for (int i = 0; i < c.num_inputs(); ++i) {
      const Shape& s = c.input(i).shape();
      const int64_t one = op_ == "Size" ? s.elements() : s.rank();
      const bool scalar = op_ == "Size" || op_ == "Rank";
      TROUPE_ASSIGN(Tensor t,
                    scalar ? integers(c, dtype_, {&one, 1}, Shape{}) : integers(c, dtype_, s.dims(), Shape{s.rank()}));
      c.set_output(i, std::move(t));
    }
    return {};
  }

 private:
  const std::string op_;
  const DType dtype_;
};

Status rank_vectors(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_output(i, PartialShape{c.input(i).rank()});
  return {};
}

class Fill final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& value = c.input(1);
    TROUPE_ASSIGN(const Shape shape, filled_shape(c.input(0), value.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(value.dtype(), shape));
    with_storage(value.dtype(), [&]<class S>() {
      std::fill_n(static_cast<S*>(y.mutable_raw()), y.elements(), *static_cast<const S*>(value.raw()));
    });
    c.set_output(0, std::move(y));
    return {};
  }
};

/// Zeros too where they were not asked for, so that results never depend on what memory held.
class Empty final : public ComputeKernel {
 public:
  explicit Empty(const KernelInit& init) : dtype_(init.attr<DType>("dtype")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, shape_of_dims(c.input(0)));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(dtype_, shape, c.device().allocator));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const DType dtype_;
};

Status shape_given(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1).status());
  if (auto dims = c.constant_input(0)) {
    TROUPE_ASSIGN(const Shape shape, shape_of_dims(*dims));
    c.set_output(0, shape);
  } else {
    c.set_output(0, c.sizes_input(0));
  }
  return {};
}

Status fill_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  return shape_given(c);
}

Status fill_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(1, sum_all(c, c.dy(0)));
  return {};
}

template <class T> class Range final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const int64_t n, range_length<T>(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(Tensor y, Tensor::make(dtype_of<T>, Shape{n}, host_allocator(c)));
    const auto start = widen(*c.input(0).data<T>()), delta = widen(*c.input(2).data<T>());
    using A = Arithmetic<T>;
    T* out = y.mutable_data<T>();
    for (int64_t i = 0; i < n; ++i)
      out[i] = narrow<T>(wrapping_add<A>(start, wrapping_multiply<A>(static_cast<A>(i), delta)));
    c.set_output(0, std::move(y));
    return {};
  }
};

Status range_shape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  PartialShape out{-1};
  const auto start = c.constant_input(0), limit = c.constant_input(1), delta = c.constant_input(2);
  Status status;
  if (start && limit && delta)
    with_type(c.input_dtype(0), RangeTypes{}, [&]<class T>() {
      const auto n = range_length<T>(*start, *limit, *delta);
      if (n.ok()) out.set(0, *n);
      else status = n.status();
    });
  c.set_output(0, out);
  return status;
}

Status pass_gradients(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.dy(i)) c.set_dx(i, c.dy(i));
  return {};
}

Status no_flow(GradientContext&) { return {}; }

void add_identities(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Identity")
              .input("input: T")
              .output("output: T")
              .attr("T: type")
              .shape(unchanged_shape)
              .cost(no_cost)
              .doc("Its input, unchanged. The buffer is shared, not copied."),
          gradient(pass_gradients));
  ops.add(OpDef("IdentityN")
              .input("input: T")
              .output("output: T")
              .attr("T: list(type) >= 1")
              .shape(shapes_of_inputs)
              .cost(no_cost)
              .doc("Its inputs, unchanged."),
          gradient(pass_gradients));
  ops.add(OpDef("StopGradient")
              .input("input: T")
              .output("output: T")
              .attr("T: type")
              .shape(unchanged_shape)
              .cost(no_cost)
              .doc("Its input, unchanged; no gradient flows back through it."),
          gradient(no_flow));
  ops.add(OpDef("PreventGradient")
              .input("input: T")
              .output("output: T")
              .attr("T: type")
              .attr("message: string = ''")
              .shape(unchanged_shape)
              .cost(no_cost)
              .doc("Its input, unchanged; asking for a gradient through it is an error with "
                   "`message`."),
          gradient([](GradientContext& c) -> Status {
            return invalid_argument("no gradient may be taken here: {}",
                                    c.node().attrs().get_or<std::string>("message", ""));
          }));
  ops.add(OpDef("PlaceholderWithDefault")
              .input("input: dtype")
              .output("output: dtype")
              .attr("dtype: type")
              .attr("shape: shape")
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(PartialShape::merge(c.input(0), c.attr<PartialShape>("shape")).status());
                c.set_output(0, c.attr<PartialShape>("shape"));
                return {};
              })
              .cost(no_cost)
              .doc("Its input, unless the output is fed. `shape` is what may be fed."),
          gradient(pass_gradients));
  ops.add(OpDef("GuaranteeConst")
              .input("input: T")
              .output("output: T")
              .attr("T: type")
              .shape(unchanged_shape)
              .doc("Its input, unchanged, of which is promised that it is the same in every run."),
          undefined_gradient());
  kernels.add<EnsureShape>("PlaceholderWithDefault", DeviceKind::kCpu, {});
  for (const char* op : {"Identity", "IdentityN", "StopGradient", "PreventGradient", "GuaranteeConst"})
    kernels.add<Forward>(op, DeviceKind::kCpu, {});
  ops.add(OpDef("EnsureShape")
              .input("input: T")
              .output("output: T")
              .attr("shape: shape")
              .attr("T: type")
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(PartialShape shape, PartialShape::merge(c.input(0), c.attr<PartialShape>("shape")));
                c.set_output(0, std::move(shape));
                return {};
              })
              .cost(no_cost)
              .doc("Its input, unchanged. Error where its shape is not `shape`, sizes left open aside."),
          gradient(pass_gradients));
  kernels.add<EnsureShape>("EnsureShape", DeviceKind::kCpu, {});
  ops.add(OpDef("CheckNumerics")
              .input("tensor: T")
              .output("output: T")
              .attr(type_attr("T", FloatTypes{}))
              .attr("message: string")
              .shape(unchanged_shape)
              .cost(move_cost)
              .doc("Its input, unchanged. Error with `message`, index and value where an element is NaN or "
                   "infinite."),
          gradient([](GradientContext& c) -> Status {
            if (!c.dy(0)) return {};
            c.set_dx(0, c.op("CheckNumerics", {c.dy(0)},
                             {{"message", std::string("gradient of a CheckNumerics has "
                                                      "inf or nan")}}));
            return {};
          }));
  add_cpu_kernels<CheckNumerics>(kernels, "CheckNumerics", FloatTypes{});
}

void add_shapes(OpRegistry& ops, KernelRegistry& kernels) {
  const char* integer = "it gives integers that depend on sizes alone";
  const std::string out_type = type_attr("out_type", IndexTypes{}, "int32");
  ops.add(OpDef("Shape")
              .input("input: T")
              .output("output: out_type")
              .attr("T: type")
              .attr(out_type)
              .shape(rank_vectors)
              .cost(no_cost)
              .doc("The sizes of a tensor, as a vector."),
          not_differentiable(integer));
  ops.add(OpDef("ShapeN")
              .input("input: N * T")
              .output("output: N * out_type")
              .attr("N: int >= 1")
              .attr("T: type")
              .attr(out_type)
              .shape(rank_vectors)
              .cost(no_cost)
              .doc("The sizes of each tensor."),
          not_differentiable(integer));
  ops.add(OpDef("Size")
              .input("input: T")
              .output("output: out_type")
              .attr("T: type")
              .attr(out_type)
              .shape(scalar_shape)
              .cost(no_cost)
              .doc("How many elements a tensor has."),
          not_differentiable(integer));
  ops.add(OpDef("Rank")
              .input("input: T")
              .output("output: int32")
              .attr("T: type")
              .shape(scalar_shape)
              .cost(no_cost)
              .doc("How many dimensions a tensor has."),
          not_differentiable(integer));
  for (const char* op : {"Shape", "ShapeN", "Size", "Rank"}) kernels.add<ShapeKernel>(op, DeviceKind::kCpu, {});
  ops.add(OpDef("ZerosLike")
              .input("x: T")
              .output("y: T")
              .attr("T: type")
              .shape(unchanged_shape)
              .cost(move_cost)
              .doc("Zeros (false, empty strings) of the shape and dtype of x."),
          not_differentiable("it is constant"));
  ops.add(OpDef("OnesLike")
              .input("x: T")
              .output("y: T")
              .attr("T: {float32, float64, float16, bfloat16, int8, uint8, int16, uint16, int32, uint32, "
                    "int64, uint64, "
                    "complex64, complex128, bool}")
              .shape(unchanged_shape)
              .cost(move_cost)
              .doc("Ones (true) of the shape and dtype of x."),
          not_differentiable("it is constant"));
  kernels.add<Like<0>>("ZerosLike", DeviceKind::kCpu, {});
  kernels.add<Like<1>>("OnesLike", DeviceKind::kCpu, {});
  ops.add(OpDef("Fill")
              .input("dims: index_type")
              .input("value: T")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("index_type", IndexTypes{}, "int32"))
              .shape(fill_shape)
              .cost(move_cost)
              .doc("A tensor of sizes `dims` whose elements are all the scalar `value`."),
          gradient(fill_gradient));
  kernels.add<Fill>("Fill", DeviceKind::kCpu, {});
  ops.add(OpDef("Empty")
              .input("shape: int32")
              .output("output: dtype")
              .attr("dtype: type")
              .attr("init: bool = false")
              .shape(shape_given)
              .doc("Zeros of sizes `shape`, whatever `init` says."),
          not_differentiable("its values do not depend on the input"));
  kernels.add<Empty>("Empty", DeviceKind::kCpu, {});
  ops.add(OpDef("Range")
              .input("start: Tidx")
              .input("limit: Tidx")
              .input("delta: Tidx")
              .output("output: Tidx")
              .attr(type_attr("Tidx", RangeTypes{}, "int32"))
              .shape(range_shape)
              .doc("start, start + delta, ... as long as it is before limit. Errors: delta 0, or of the "
                   "wrong sign."),
          not_differentiable("its length depends on its inputs in steps"));
  add_cpu_kernels<Range>(kernels, "Range", RangeTypes{}, "Tidx");
}

}  // namespace

void register_identities_gpu(KernelRegistry& kernels) {
  for (const char* op : {"PlaceholderWithDefault", "EnsureShape"}) kernels.add<EnsureShape>(op, DeviceKind::kCuda, {});
  for (const char* op : {"Identity", "IdentityN", "StopGradient", "PreventGradient", "GuaranteeConst"})
    kernels.add<Forward>(op, DeviceKind::kCuda, {});
  for (const char* op : {"Shape", "ShapeN", "Size", "Rank"})
    kernels.add<ShapeKernel>(op, DeviceKind::kCuda, {}, {{}, {kEveryArgument}});
  // Axes and sizes, as in TensorFlow.
  kernels.add<Range<int32_t>>("Range", DeviceKind::kCuda, {{"Tidx", {DType::kInt32}}}, {{0, 1, 2}, {0}});
}

void register_const_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Const")
              .output("output: dtype")
              .attr("value: tensor")
              .attr("dtype: type")
              .shape(const_shape)
              .cost(no_cost)
              .doc("A tensor fixed when the graph is built."),
          not_differentiable("it is constant"));
  kernels.add("Const", DeviceKind::kCpu, {}, builtin(KernelKind::kConst, Builtin::kConst));
  ops.add(OpDef("Placeholder")
              .output("output: dtype")
              .attr("dtype: type")
              .attr("shape: shape = <unknown>")
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, c.attr<PartialShape>("shape"));
                return {};
              })
              .cost(no_cost)
              .doc("A tensor that must be fed. Running it without a feed is an error."),
          not_differentiable("it has no inputs"));
  kernels.add("Placeholder", DeviceKind::kCpu, {}, builtin(KernelKind::kPlaceholder, Builtin::kPlaceholder));
  ops.add(OpDef("NoOp").shape(no_outputs).cost(no_cost).doc("Does nothing; carries control dependencies."),
          not_differentiable("it has no outputs"));
  kernels.add("NoOp", DeviceKind::kCpu, {}, builtin(KernelKind::kNoOp, Builtin::kNoOp));
  add_identities(ops, kernels);
  add_shapes(ops, kernels);
}

}  // namespace troupe
