// SPDX-License-Identifier: Apache-2.0
// Choice, clipping, sums of many tensors and broadcasting as ops of their own.
#include "ops/math/select.h"

#include "ops/math/register.h"
#include "ops/parts/broadcast.h"
#include "ops/parts/element_list.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/moves.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {

Result<Broadcast> plan_select(Shape condition, const Shape& then, const Shape& other, bool legacy) {
  if (legacy) {
    if (then != other) return invalid_argument("shapes {} and {} differ", then.str(), other.str());
    if (condition.rank() == 1 && then.rank() > 1 && condition[0] == then[0]) {
      while (condition.rank() < then.rank()) condition.push_back(1);
    } else if (condition.rank() != 0 && condition != then) {
      return invalid_argument("condition {} fits neither {} nor its rows", condition.str(), then.str());
    }
  }
  return plan_broadcast(condition, then, other);
}

Result<int> check_sum(const KernelContext& c, const PartialShape& wanted) {
  const Shape& shape = c.input(0).shape();
  if (!wanted.compatible(shape)) return invalid_argument("the inputs have shape {}, not {}", shape.str(), wanted.str());
  int reuse = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input(i).shape() != shape)
      return invalid_argument("shapes {} and {} of inputs 0 and {} differ", shape.str(), c.input(i).shape().str(), i);
    if (c.input(i).unique()) reuse = i;
  }
  return reuse;
}

namespace {

/// out[i] = chosen[i] ? a[i] : b[i], where a and b are one element for all with step 0. By bits, since a branch for
/// each element is as often foretold wrongly as the choice is random. `out` may be a or b.
template <class S>
[[gnu::always_inline]] inline void choose_body(const bool* chosen, const S* a, int64_t step_a, const S* b,
                                               int64_t step_b, S* out, int64_t n) {
  const auto mix = [](bool yes, S x, S y) { return static_cast<S>(y ^ ((x ^ y) & static_cast<S>(-S(yes)))); };
  if (step_a && step_b) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = mix(chosen[i], a[i], b[i]);
  } else if (step_a) {
    const S y = *b;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = mix(chosen[i], a[i], y);
  } else {
    const S x = *a;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = mix(chosen[i], x, b[i * step_b]);
  }
}
#define TROUPE_CHOOSE(S)                                                                                             \
  TROUPE_SIMD_CLONES void choose(const bool* chosen, const S* a, int64_t step_a, const S* b, int64_t step_b, S* out, \
                                 int64_t n) {                                                                        \
    choose_body(chosen, a, step_a, b, step_b, out, n);                                                               \
  }
TROUPE_CHOOSE(uint8_t)
TROUPE_CHOOSE(uint16_t)
TROUPE_CHOOSE(uint32_t)
TROUPE_CHOOSE(uint64_t)
#undef TROUPE_CHOOSE

class SelectKernel final : public ComputeKernel {
 public:
  explicit SelectKernel(const KernelInit& init) : legacy_(init.op == "Select") {}
  Status compute(KernelContext& c) override {
    const Tensor &condition = c.input(0), &then = c.input(1), &other = c.input(2);
    TROUPE_ASSIGN(const Broadcast plan, plan_select(condition.shape(), then.shape(), other.shape(), legacy_));
    const DType dtype = then.dtype();
    TROUPE_ASSIGN(Tensor y,
                  c.forward_or_allocate(then.shape() == plan.shape && then.unique() ? 1 : 2, dtype, plan.shape));
    const bool* chosen = condition.data<bool>();
    const std::array<int64_t, 3> step = {plan.stride[0][plan.rank - 1], plan.stride[1][plan.rank - 1],
                                         plan.stride[2][plan.rank - 1]};
    with_storage(dtype, [&]<class S>() {
      S* out = static_cast<S*>(y.mutable_raw());
      const S *a = static_cast<const S*>(then.raw()), *b = static_cast<const S*>(other.raw());
      for_each_run(plan, c.threads(), kCheapGrain, [&](int64_t at, const std::array<int64_t, 3>& in, int64_t n) {
        if constexpr (std::is_integral_v<S>)
          if (step[0]) return choose(chosen + in[0], a + in[1], step[1], b + in[2], step[2], out + at, n);
        for (int64_t i = 0; i < n; ++i)
          out[at + i] = chosen[in[0] + i * step[0]] ? a[in[1] + i * step[1]] : b[in[2] + i * step[2]];
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool legacy_;
};

Status select_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape shape, PartialShape::merge(c.input(1), c.input(2)));
  const PartialShape& condition = c.input(0);
  if (condition.has_rank() && shape.has_rank()) {
    const bool rows =
        condition.rank() == 1 && shape.rank() > 1 && PartialShape{condition[0]}.compatible(PartialShape{shape[0]});
    if (condition.rank() != 0 && !rows && !condition.compatible(shape))
      return invalid_argument("condition {} fits neither {} nor its rows", condition.str(), shape.str());
  }
  c.set_output(0, shape);
  return {};
}

Status select_v2_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape values, broadcast(c.input(1), c.input(2)));
  TROUPE_ASSIGN(const PartialShape shape, broadcast(c.input(0), values));
  c.set_output(0, shape);
  return {};
}

Status select_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  if (!dy) return {};
  const Output zeros = c.op("ZerosLike", {dy});
  c.set_dx(1, c.op("Select", {c.input(0), dy, zeros}));
  c.set_dx(2, c.op("Select", {c.input(0), zeros, dy}));
  return {};
}

Status select_v2_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  if (!dy) return {};
  const Output zero = scalar_like(c, dy.dtype(), 0);
  c.set_dx(1, sum_to(c, c.op("SelectV2", {c.input(0), dy, zero}), c.input(1), c.output(0)));
  c.set_dx(2, sum_to(c, c.op("SelectV2", {c.input(0), zero, dy}), c.input(2), c.output(0)));
  return {};
}

/// What AddN adds.
using SumTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                          uint32_t, uint64_t, complex64, complex128, TensorListRef>;

/// Elements [begin, end) of the sum of all inputs, in their order, a block at a time, so that the result does not
/// depend on which buffer is reused or on threads.
template <class T>
[[gnu::always_inline]] inline void add_inputs_body(const KernelContext& c, T* out, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 256;
  Arithmetic<T> sum[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    const T* first = static_cast<const T*>(c.input(0).raw()) + at;
    for (int64_t i = 0; i < n; ++i) sum[i] = widen(first[i]);
    for (int k = 1; k < c.num_inputs(); ++k) {
      const T* x = static_cast<const T*>(c.input(k).raw()) + at;
      for (int64_t i = 0; i < n; ++i) sum[i] = wrapping_add(sum[i], widen(x[i]));
    }
    for (int64_t i = 0; i < n; ++i) out[at + i] = narrow<T>(sum[i]);
  }
}
template <class T> void add_inputs(const KernelContext& c, T* out, int64_t begin, int64_t end) {
  add_inputs_body(c, out, begin, end);
}
TROUPE_SIMD_CLONES void add_inputs(const KernelContext& c, float* out, int64_t begin, int64_t end) {
  add_inputs_body(c, out, begin, end);
}

class AddNKernel final : public ComputeKernel {
 public:
  explicit AddNKernel(const KernelInit& init) : shape_(init.attrs->get_or<PartialShape>("shape", PartialShape())) {}
  Status compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    const DType dtype = c.input(0).dtype();
    TROUPE_ASSIGN(const int reuse, check_sum(c, shape_));
    if (c.num_inputs() == 1) {
      c.set_output(0, c.input(0));
      return {};
    }
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(reuse, dtype, shape));
    parallel_for(c.threads(), shape.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
      with_wrapping(dtype, [&]<class T>() { add_inputs(c, static_cast<T*>(y.mutable_raw()), begin, end); });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const PartialShape shape_;
};

class AddLists final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    Tensor sum = c.input(0);
    for (int i = 1; i < c.num_inputs(); ++i) {
      TROUPE_ASSIGN(sum, add_elements(c, sum, c.input(i)));
    }
    c.set_output(0, std::move(sum));
    return {};
  }
};

Status add_n_shape(ShapeContext& c) {
  PartialShape shape;
  for (int i = 0; i < c.num_inputs(); ++i) {
    TROUPE_ASSIGN(shape, PartialShape::merge(shape, c.input(i)));
  }
  c.set_output(0, shape);
  return {};
}

Status add_n_gradient(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.dy(0)) c.set_dx(i, c.dy(0));
  return {};
}

/// out[k] = in[k] limited to [lo[k * i], hi[k * j]].
template <class T>
void clip(const T* in, const T* lo, int64_t i, const T* hi, int64_t j, T* out, int64_t begin, int64_t end) {
  for (int64_t k = begin; k < end; ++k) {
    const auto v = widen(in[k]), a = widen(lo[k * i]), b = widen(hi[k * j]);
    const auto below = v > b ? b : v;
    out[k] = narrow<T>(below < a ? a : below);
  }
}

/// Real and imaginary parts by themselves, as TensorFlow has it.
template <class R>
void clip(const std::complex<R>* in, const std::complex<R>* lo, int64_t i, const std::complex<R>* hi, int64_t j,
          std::complex<R>* out, int64_t begin, int64_t end) {
  const auto part = [](R v, R a, R b) {
    const R below = v > b ? b : v;
    return below < a ? a : below;
  };
  for (int64_t k = begin; k < end; ++k) {
    const std::complex<R> v = in[k], a = lo[k * i], b = hi[k * j];
    out[k] = {part(v.real(), a.real(), b.real()), part(v.imag(), a.imag(), b.imag())};
  }
}

class ClipKernel final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &low = c.input(1), &high = c.input(2);
    for (const Tensor* bound : {&low, &high})
      if (bound->rank() != 0 && bound->shape() != x.shape())
        return invalid_argument("a bound of shape {} is neither a scalar nor {}", bound->shape().str(),
                                x.shape().str());
    const DType dtype = x.dtype();
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, dtype, x.shape()));
    parallel_for(c.threads(), y.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
      with_type(dtype, NumberOrComplexTypes{}, [&]<class T>() {
        clip(x.data<T>(), low.data<T>(), low.rank() != 0, high.data<T>(), high.rank() != 0, y.mutable_data<T>(), begin,
             end);
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }
};

/// Bounds that are no scalars have t's shape.
Status clip_shape(ShapeContext& c) {
  PartialShape shape = c.input(0);
  for (int i = 1; i < 3; ++i)
    if (c.input(i).has_rank() && c.input(i).rank() != 0) {
      TROUPE_ASSIGN(shape, PartialShape::merge(shape, c.input(i)));
    }
  c.set_output(0, shape);
  return {};
}

Status clip_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0), low = c.input(1), high = c.input(2);
  if (!dy) return {};
  if (is_complex(x.dtype()))
    return invalid_argument("complex numbers have no order that says which of them were cut off");
  const Output zero = scalar_like(c, dy.dtype(), 0);
  const Output below = c.op("Less", {x, low}), above = c.op("Greater", {x, high});
  const Output outside = c.op("LogicalOr", {below, above});
  c.set_dx(0, c.op("SelectV2", {outside, zero, dy}));
  c.set_dx(1, sum_to(c, c.op("SelectV2", {below, dy, zero}), low, x));
  c.set_dx(2, sum_to(c, c.op("SelectV2", {above, dy, zero}), high, x));
  return {};
}

Result<Shape> sizes(const Tensor& t) {
  if (t.rank() > 1) return invalid_argument("sizes must be a vector, not {}", t.shape().str());
  std::vector<int64_t> out;
  with_type(t.dtype(), IndexTypes{}, [&]<class T>() { out.assign(t.data<T>(), t.data<T>() + t.elements()); });
  return Shape::make(out);
}

class BroadcastTo final : public ComputeKernel {
 public:
  BroadcastTo(const KernelInit&, const Moves& moves) : moves_(moves) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, sizes(c.input(1)));
    const Tensor& x = c.input(0);
    if (x.shape() == shape) {
      c.set_output(0, x);
      return {};
    }
    TROUPE_ASSIGN(const Broadcast plan, plan_broadcast(x.shape(), shape));
    if (plan.shape != shape) return invalid_argument("{} does not broadcast to {}", x.shape().str(), shape.str());
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    StridedCopy box;
    for (int d = 0; d < plan.rank; ++d) box.push(plan.size[d], plan.stride[0][d], plan.stride[1][d]);
    TROUPE_RETURN_IF_ERROR(moves_.copy(c, y, 0, x, 0, box));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const Moves& moves_;
};

Status broadcast_to_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  if (auto to = c.constant_input(1)) {
    TROUPE_ASSIGN(const Shape shape, sizes(*to));
    TROUPE_ASSIGN(const PartialShape both, broadcast(c.input(0), PartialShape(shape)));
    if (both.has_rank() && !both.compatible(shape))
      return invalid_argument("{} does not broadcast to {}", c.input(0).str(), shape.str());
    c.set_output(0, shape);
  } else {
    c.set_output(0, c.sizes_input(1));
  }
  return {};
}

Status broadcast_to_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, sum_to(c, c.dy(0), c.input(0), c.output(0)));
  return {};
}

/// The dimensions over which gradients of two broadcast inputs are summed: of different shapes all of size 1, too where
/// both are.
class BroadcastGradientArgs final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape a, sizes(c.input(0)));
    TROUPE_ASSIGN(const Shape b, sizes(c.input(1)));
    TROUPE_ASSIGN(const Shape whole, broadcast(a, b));
    for (int k = 0; k < 2; ++k) {
      const Shape& s = k == 0 ? a : b;
      std::vector<int64_t> axes;
      for (int i = 0; i < whole.rank(); ++i) {
        const int at = i - (whole.rank() - s.rank());
        if (at < 0 || (s[at] == 1 && a != b)) axes.push_back(i);
      }
      TROUPE_ASSIGN(Tensor y, int_tensor(c.input(0).dtype(), axes, {static_cast<int64_t>(axes.size())}));
      c.set_output(k, std::move(y));
    }
    return {};
  }
};

}  // namespace

void register_select_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Select")
              .input("condition: bool")
              .input("t: T")
              .input("e: T")
              .output("output: T")
              .attr("T: type")
              .shape(select_shape)
              .cost(move_cost)
              .doc("t where the condition holds, else e. The condition is a scalar, of the same "
                   "shape, or a vector that chooses whole rows."),
          gradient(select_gradient));
  ops.add(OpDef("SelectV2")
              .input("condition: bool")
              .input("t: T")
              .input("e: T")
              .output("output: T")
              .attr("T: type")
              .shape(select_v2_shape)
              .cost(move_cost)
              .doc("t where the condition holds, else e. All three broadcast."),
          gradient(select_v2_gradient));
  kernels.add<SelectKernel>("Select", DeviceKind::kCpu, {});
  kernels.add<SelectKernel>("SelectV2", DeviceKind::kCpu, {});
  ops.add(OpDef("AddN")
              .input("inputs: N * T")
              .output("sum: T")
              .attr("N: int >= 1")
              .attr(type_attr("T", SumTypes{}))
              .shape(add_n_shape)
              .doc("The sum of tensors of one shape, added in the order of the inputs."),
          gradient(add_n_gradient));
  ops.add(OpDef("AccumulateNV2")
              .input("inputs: N * T")
              .output("sum: T")
              .attr("N: int >= 1")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .attr("shape: shape")
              .shape([](ShapeContext& c) -> Status {
                PartialShape shape = c.attr<PartialShape>("shape");
                for (int i = 0; i < c.num_inputs(); ++i) {
                  TROUPE_ASSIGN(shape, PartialShape::merge(shape, c.input(i)));
                }
                c.set_output(0, shape);
                return {};
              })
              .doc("The sum of tensors of this shape, added in the order of the inputs."),
          gradient(add_n_gradient));
  for (const char* op : {"AddN", "AccumulateNV2"})
    kernels.add<AddNKernel>(op, DeviceKind::kCpu, {{"T", NumberOrComplexTypes::dtypes()}});
  kernels.add<AddLists>("AddN", DeviceKind::kCpu, {{"T", {DType::kVariant}}});
  ops.add(
      OpDef("ClipByValue")
          .input("t: T")
          .input("clip_value_min: T")
          .input("clip_value_max: T")
          .output("output: T")
          .attr(type_attr("T", NumberOrComplexTypes{}))
          .shape(clip_shape)
          .doc("t limited to [clip_value_min, clip_value_max], of complex numbers each part by itself; the bounds are "
               "scalars or of t's shape. Complex numbers have no gradient, as in TensorFlow."),
      gradient(clip_gradient));
  kernels.add<ClipKernel>("ClipByValue", DeviceKind::kCpu, {{"T", NumberOrComplexTypes::dtypes()}});
  ops.add(OpDef("BroadcastTo")
              .input("input: T")
              .input("shape: Tidx")
              .output("output: T")
              .attr("T: type")
              .attr(type_attr("Tidx", IndexTypes{}, "int32"))
              .shape(broadcast_to_shape)
              .cost(move_cost)
              .doc("The input repeated to `shape` by the rules of broadcasting."),
          gradient(broadcast_to_gradient));
  register_broadcast_moves(kernels, host_moves());
  ops.add(OpDef("BroadcastGradientArgs")
              .input("s0: T")
              .input("s1: T")
              .output("r0: T")
              .output("r1: T")
              .attr(type_attr("T", IndexTypes{}, "int32"))
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, PartialShape{-1});
                c.set_output(1, PartialShape{-1});
                return {};
              })
              .doc("For the sizes of two tensors that broadcast: the dimensions over which the gradient of "
                   "each is "
                   "summed."),
          not_differentiable("it gives integers that depend on sizes alone"));
  kernels.add<BroadcastGradientArgs>("BroadcastGradientArgs", DeviceKind::kCpu, {{"T", IndexTypes::dtypes()}});
}

void register_broadcast_args_gpu(KernelRegistry& kernels) {
  kernels.add<BroadcastGradientArgs>("BroadcastGradientArgs", DeviceKind::kCuda, {}, {{0, 1}, {0, 1}});
}

void register_broadcast_moves(KernelRegistry& kernels, const Moves& moves) {
  moves.add<BroadcastTo>(kernels, "BroadcastTo", {1});
}

}  // namespace troupe
