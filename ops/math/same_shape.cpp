// SPDX-License-Identifier: Apache-2.0
// Functions of two tensors of one shape: Cross, ApproximateEqual.
#include "devices/parallel.h"
#include "ops/math/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {
namespace {

Status tensors_fit(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return invalid_argument("shapes {} and {} differ", a.shape().str(), b.shape().str());
  return {};
}

template <class T> class Cross final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &a = c.input(0), &b = c.input(1);
    TROUPE_RETURN_IF_ERROR(tensors_fit(a, b));
    if (a.rank() == 0 || a.dim(-1) != 3)
      return invalid_argument("the last dimension of shape {} is not 3", a.shape().str());
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, a.shape()));
    const T *u = a.data<T>(), *v = b.data<T>();
    T* out = y.mutable_data<T>();
    const auto minor = [&](int64_t at, int i, int j) {
      using A = Arithmetic<T>;
      const A first = wrapping_multiply(A(widen(u[at + i])), A(widen(v[at + j])));
      const A second = wrapping_multiply(A(widen(u[at + j])), A(widen(v[at + i])));
      return narrow<T>(wrapping_subtract(first, second));
    };
    for (int64_t at = 0; at < a.elements(); at += 3) {
      out[at] = minor(at, 1, 2);
      out[at + 1] = minor(at, 2, 0);
      out[at + 2] = minor(at, 0, 1);
    }
    c.set_output(0, std::move(y));
    return {};
  }
};

class ApproximateEqual final : public ComputeKernel {
 public:
  explicit ApproximateEqual(const KernelInit& init) : tolerance_(init.attr<float>("tolerance")) {}
  Status compute(KernelContext& c) override {
    const Tensor &a = c.input(0), &b = c.input(1);
    TROUPE_RETURN_IF_ERROR(tensors_fit(a, b));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kBool, a.shape()));
    bool* out = y.mutable_data<bool>();
    with_type(a.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
      for (int64_t i = 0; i < a.elements(); ++i) {
        const auto p = widen(a.data<T>()[i]), q = widen(b.data<T>()[i]);
        if constexpr (std::is_integral_v<T>) {
          const auto apart = p > q ? wrapping_subtract(p, q) : wrapping_subtract(q, p);
          out[i] = static_cast<double>(static_cast<std::make_unsigned_t<T>>(apart)) < tolerance_;
        } else {
          out[i] = std::abs(p - q) < tolerance_;
        }
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const float tolerance_;
};

Status merged_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape shape, PartialShape::merge(c.input(0), c.input(1)));
  c.set_output(0, shape);
  return {};
}

Status cross_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(0, 1).status());
  TROUPE_ASSIGN(PartialShape shape, PartialShape::merge(c.input(0), c.input(1)));
  if (shape.has_rank()) {
    if (shape.dim(-1) >= 0 && shape.dim(-1) != 3)
      return invalid_argument("the last dimension of shape {} is not 3", shape.str());
    shape.set(shape.rank() - 1, 3);
  }
  c.set_output(0, shape);
  return {};
}

Status cross_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  c.set_dx(0, c.op("Cross", {c.input(1), c.dy(0)}));
  c.set_dx(1, c.op("Cross", {c.dy(0), c.input(0)}));
  return {};
}

}  // namespace

void register_same_shape_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Cross")
              .input("a: T")
              .input("b: T")
              .output("product: T")
              .attr(type_attr("T", NumberTypes{}))
              .shape(cross_shape)
              .doc("The vector product of 3-vectors along the last dimension of two tensors of one shape."),
          gradient(cross_gradient));
  add_cpu_kernels<Cross>(kernels, "Cross", NumberTypes{});
  ops.add(OpDef("ApproximateEqual")
              .input("x: T")
              .input("y: T")
              .output("z: bool")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .attr("tolerance: float = 1e-5")
              .shape(merged_shape)
              .doc("Whether |x - y| is below tolerance, element by element of two tensors of one shape."),
          not_differentiable("its result is boolean"));
  kernels.add<ApproximateEqual>("ApproximateEqual", DeviceKind::kCpu, {});
}

}  // namespace troupe
