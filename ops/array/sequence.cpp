// SPDX-License-Identifier: Apache-2.0
// Numbers from sizes and positions: LinSpace, UnravelIndex, BroadcastArgs.
#include "base/join.h"
#include "ops/array/register.h"
#include "ops/parts/host_memory.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

template <class T> class LinSpace final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    for (int i : {0, 1})
      if (c.input(i).rank() != 0)
        return invalid_argument("{} must be a scalar, not {}", i ? "stop" : "start", c.input(i).shape().str());
    TROUPE_ASSIGN(const int64_t n, int_scalar(c.input(2), "num"));
    if (n < 1) return invalid_argument("num is {}, not 1 or more", n);
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::array{n}));
    TROUPE_ASSIGN(Tensor y, Tensor::make(dtype_of<T>, shape, host_allocator(c)));
    using A = Arithmetic<T>;
    const A start = widen(*c.input(0).data<T>()), stop = widen(*c.input(1).data<T>());
    const A step = n > 1 ? (stop - start) / static_cast<A>(n - 1) : A(0);
    T* out = y.mutable_data<T>();
    for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(start + step * static_cast<A>(i));
    out[0] = *c.input(0).data<T>();  // whatever the step, infinity too
    if (n > 1) out[n - 1] = *c.input(1).data<T>();
    c.set_output(0, std::move(y));
    return {};
  }
};

Status lin_space_shape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  PartialShape out{-1};
  if (const auto n = c.constant_input(2)) {
    TROUPE_ASSIGN(const int64_t num, int_scalar(*n, "num"));
    if (num < 1) return invalid_argument("num is {}, not 1 or more", num);
    out.set(0, num);
  }
  c.set_output(0, out);
  return {};
}

class UnravelIndex final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& indices = c.input(0);
    if (c.input(1).rank() != 1) return invalid_argument("dims must be a vector, not {}", c.input(1).shape().str());
    TROUPE_ASSIGN(const auto dims, int_values(c.input(1), "dims"));
    TROUPE_ASSIGN(const auto flat, int_values(indices, "indices"));
    int64_t elements = 1;
    for (int64_t n : dims)
      if (n < 0 || __builtin_mul_overflow(elements, n, &elements))
        return invalid_argument("dims [{}] are not the sizes of a tensor", join(dims));
    const auto n = static_cast<int64_t>(flat.size()), rank = static_cast<int64_t>(dims.size());
    std::vector<int64_t> places(static_cast<size_t>(rank * n));
    for (int64_t i = 0; i < n; ++i) {
      if (flat[i] < 0 || flat[i] >= elements)
        return invalid_argument("index {} at position {} is not in [0, {}), the elements of [{}]", flat[i], i, elements,
                                join(dims));
      int64_t rest = flat[i];
      for (int64_t d = rank - 1; d >= 0; --d) {
        places[d * n + i] = rest % dims[d];
        rest /= dims[d];
      }
    }
    TROUPE_ASSIGN(Tensor y, int_tensor(indices.dtype(), places, indices.rank() == 0 ? Shape{rank} : Shape{rank, n}));
    c.set_output(0, std::move(y));
    return {};
  }
};

Status unravel_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape dims, c.with_rank(1, 1));
  const PartialShape& indices = c.input(0);
  if (!indices.has_rank()) return {};
  if (indices.rank() > 1) return invalid_argument("indices must be a vector or scalar, not {}", indices.str());
  c.set_output(0, indices.rank() == 0 ? PartialShape{dims[0]} : PartialShape{dims[0], indices[0]});
  return {};
}

class BroadcastArgs final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    Shape shapes[2];
    for (int i : {0, 1}) {
      TROUPE_ASSIGN(shapes[i], shape_from(c.input(i), "a shape"));
    }
    TROUPE_ASSIGN(const Shape both, broadcast(shapes[0], shapes[1]));
    TROUPE_ASSIGN(Tensor y, int_tensor(c.input(0).dtype(), both.dims(), Shape{both.rank()}));
    c.set_output(0, std::move(y));
    return {};
  }
};

Status broadcast_args_shape(ShapeContext& c) {
  for (int i : {0, 1}) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 1).status());
  const bool known = c.input(0).fully_known() && c.input(1).fully_known();
  c.set_output(0, {known ? std::max(c.input(0)[0], c.input(1)[0]) : -1});
  return {};
}

}  // namespace

void register_sequence_gpu(KernelRegistry& kernels) {
  const auto add = [&]<class... T>(TypeList<T...>) {
    (kernels.add<LinSpace<T>>("LinSpace", DeviceKind::kCuda, {{"T", {dtype_of<T>}}}, {{0, 1, 2}, {0}}), ...);
  };
  add(FloatTypes{});
  kernels.add<UnravelIndex>("UnravelIndex", DeviceKind::kCuda, {}, {{0, 1}, {0}});
  kernels.add<BroadcastArgs>("BroadcastArgs", DeviceKind::kCuda, {}, {{0, 1}, {0}});
}

void register_sequence_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("LinSpace")
              .input("start: T")
              .input("stop: T")
              .input("num: Tidx")
              .output("output: T")
              .attr(type_attr("T", FloatTypes{}))
              .attr(type_attr("Tidx", IndexTypes{}, "int32"))
              .shape(lin_space_shape)
              .doc("`num` numbers in equal steps from start to stop, both among them. Error where num is below 1."),
          not_differentiable("TensorFlow gives it none"));
  add_cpu_kernels<LinSpace>(kernels, "LinSpace", FloatTypes{});
  ops.add(OpDef("UnravelIndex")
              .input("indices: Tidx")
              .input("dims: Tidx")
              .output("output: Tidx")
              .attr(type_attr("Tidx", IndexTypes{}, "int32"))
              .shape(unravel_shape)
              .doc("The places in a tensor of sizes `dims` of elements counted in row-major order: column i is that of "
                   "indices[i]. Error for an index beyond the elements."),
          not_differentiable("it gives indices"));
  kernels.add<UnravelIndex>("UnravelIndex", DeviceKind::kCpu, {});
  ops.add(OpDef("BroadcastArgs")
              .input("s0: T")
              .input("s1: T")
              .output("r0: T")
              .attr(type_attr("T", IndexTypes{}, "int32"))
              .shape(broadcast_args_shape)
              .doc("The shape that two shapes broadcast to. Error where they do not fit."),
          not_differentiable("it gives integers"));
  kernels.add<BroadcastArgs>("BroadcastArgs", DeviceKind::kCpu, {});
}

}  // namespace troupe
