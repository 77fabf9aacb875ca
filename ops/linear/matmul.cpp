// SPDX-License-Identifier: Apache-2.0
// Matrix products: MatMul and BatchMatMul in its three versions, with their gradients.
#include <algorithm>

#include "devices/parallel.h"
#include "ops/linear/matrix_batch.h"
#include "ops/linear/product_plan.h"
#include "ops/linear/register.h"
#include "ops/parts/gemm.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

using MatMulTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, complex64, complex128>;
using BatchTypes = TypeList<float, double, float16, bfloat16, int16_t, int32_t, int64_t, complex64, complex128>;
Status product_shape(ShapeContext& c, bool ta, bool tb, bool batches) {
  const PartialShape &a = c.input(0), &b = c.input(1);
  for (int i = 0; i < 2; ++i) TROUPE_RETURN_IF_ERROR(batches ? c.with_rank_at_least(i, 2) : c.with_rank(i, 2));
  if (!a.has_rank() || !b.has_rank()) {
    c.set_output(0, batches
                        ? PartialShape::unknown()
                        : PartialShape{a.has_rank() ? a.dim(ta ? 1 : 0) : -1, b.has_rank() ? b.dim(tb ? 0 : 1) : -1});
    return {};
  }
  const int64_t ka = a.dim(ta ? -2 : -1), kb = b.dim(tb ? -1 : -2);
  if (ka >= 0 && kb >= 0 && ka != kb)
    return invalid_argument("inner sizes differ: {}{} x {}{}", a.str(), ta ? " transposed" : "", b.str(),
                            tb ? " transposed" : "");
  TROUPE_ASSIGN(PartialShape xs, PartialShape::make(a.dims().first(a.rank() - 2)));
  TROUPE_ASSIGN(PartialShape ys, PartialShape::make(b.dims().first(b.rank() - 2)));
  TROUPE_ASSIGN(PartialShape out, broadcast(xs, ys));
  out.push_back(a.dim(ta ? -1 : -2));
  out.push_back(b.dim(tb ? -2 : -1));
  c.set_output(0, std::move(out));
  return {};
}

Status matmul_shape(ShapeContext& c) {
  return product_shape(c, c.attr<bool>("transpose_a"), c.attr<bool>("transpose_b"), false);
}
Status batch_matmul_shape(ShapeContext& c) {
  return product_shape(c, c.attr<bool>("adj_x"), c.attr<bool>("adj_y"), true);
}

/// A tensor of complex numbers conjugated: half of an adjoint.
Result<Tensor> conjugated(const KernelContext& c, const Tensor& x) {
  TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
  with_type(x.dtype(), ComplexTypes{}, [&]<class T>() {
    std::ranges::transform(x.values<T>(), y.mutable_data<T>(), [](T v) { return std::conj(v); });
  });
  return y;
}

template <class T> class MatMul final : public ComputeKernel {
 public:
  explicit MatMul(const KernelInit& init) : form_(product_form(init)) {}

  Status compute(KernelContext& c) override {
    const Tensor &a = c.input(0), &b = c.input(1);
    TROUPE_ASSIGN(const ProductPlan plan, plan_product(a.shape(), b.shape(), form_));
    using A = Computed<T>;
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<A>, plan.out));
    TROUPE_ASSIGN(Tensor left, converted(c, a, dtype_of<A>));
    TROUPE_ASSIGN(Tensor right, converted(c, b, dtype_of<A>));
    if constexpr (is_complex_type<T>) {
      if (form_.batches && form_.ta) {
        TROUPE_ASSIGN(left, conjugated(c, left));
      }
      if (form_.batches && form_.tb) {
        TROUPE_ASSIGN(right, conjugated(c, right));
      }
    }
    TROUPE_RETURN_IF_ERROR(multiply(c, left, right, y, plan));
    TROUPE_ASSIGN(y, converted(c, y, dtype_of<T>));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  Status multiply(KernelContext& c, const Tensor& a, const Tensor& b, Tensor& y, const ProductPlan& p) const {
    using A = Computed<T>;
    if (y.elements() == 0) return {};  // for however many matrices
    const A *pa = a.data<A>(), *pb = b.data<A>();
    A* py = y.mutable_data<A>();
    // Matrices by one and the same: one product of all their rows.
    const bool one = p.batch.elements() == 1 || (!form_.ta && p.b_batch.elements() == 1);
    const bool ok = one ? gemm(pa, form_.ta, pb, form_.tb, py, p.batch.elements() * p.m, p.n, p.k)
                        : gemm_batch(c.threads(), pa, form_.ta, matrix_indices(p.batch, p.a_batch.dims()), pb, form_.tb,
                                     matrix_indices(p.batch, p.b_batch.dims()), py, p.m, p.n, p.k);
    return ok ? Status()
              : Status(make_error(Code::kInternal, "the matrix library failed for {} x {}", a.shape().str(),
                                  b.shape().str()));
  }

  const ProductForm form_;
};

Status product_gradient(GradientContext& c, std::string_view op, std::string_view name_a, std::string_view name_b,
                        Output& da, Output& db) {
  const bool ta = c.node().attrs().get_or(name_a, false), tb = c.node().attrs().get_or(name_b, false);
  // Adjoints conjugate; where the op transposes, that is done before.
  const bool adjoint = op != "MatMul";
  const Output a = adjoint ? c.input(0) : conj(c, c.input(0)), b = adjoint ? c.input(1) : conj(c, c.input(1));
  const Output g = c.dy(0);
  const auto product = [&](Output x, Output y, bool tx, bool ty) {
    Attrs attrs{{std::string(name_a), tx}, {std::string(name_b), ty}};
    if (op == "BatchMatMulV3") attrs.set("Tout", g.dtype());
    return c.op(op, {x, y}, std::move(attrs));
  };
  da = ta ? product(b, g, tb, true) : product(g, b, false, !tb);
  db = tb ? product(g, a, true, ta) : product(a, g, !ta, false);
  return {};
}

Status matmul_gradient(GradientContext& c) {
  Output da, db;
  TROUPE_RETURN_IF_ERROR(product_gradient(c, "MatMul", "transpose_a", "transpose_b", da, db));
  c.set_dx(0, da);
  c.set_dx(1, db);
  return {};
}

/// The gradient by one matrix that many are multiplied by: one product of all their rows, which saves a matrix for each
/// of them and the sum over these. Nothing where the shapes do not say that it is so.
Output shared_matrix_gradient(GradientContext& c) {
  const PartialShape &a = c.input(0).shape(), &b = c.input(1).shape();
  const DType dtype = c.dy(0).dtype();
  if (!a.has_rank() || !b.has_rank() || a.rank() < 3 || b.rank() != 2 || !b.fully_known()) return {};
  if (b[0] <= 0 || b[1] <= 0 || c.node().attrs().get_or("adj_x", false)) return {};
  if (is_complex(dtype)) return {};  // whose adjoints are conjugated too
  const bool tb = c.node().attrs().get_or("adj_y", false);
  const auto rows = [&](Output x, int64_t size) {
    const int64_t sizes[] = {-1, size};
    return c.op("Reshape", {x, int_vector(c, sizes)});
  };
  const Output x = rows(c.input(0), b[tb ? 1 : 0]), g = rows(c.dy(0), b[tb ? 0 : 1]);
  return tb ? c.op("MatMul", {g, x}, {{"transpose_a", true}}) : c.op("MatMul", {x, g}, {{"transpose_a", true}});
}

Status batch_matmul_gradient(GradientContext& c) {
  Output da, db;
  const bool typed = c.node().op().name() == "BatchMatMulV3";
  if (typed && (c.input(0).dtype() != c.dy(0).dtype() || c.input(1).dtype() != c.dy(0).dtype()))
    return make_error(Code::kUnimplemented, "gradient of a product of {} and {} that gives {}",
                      to_string(c.input(0).dtype()), to_string(c.input(1).dtype()), to_string(c.dy(0).dtype()));
  TROUPE_RETURN_IF_ERROR(product_gradient(c, typed ? "BatchMatMulV3" : "BatchMatMulV2", "adj_x", "adj_y", da, db));
  if (da) c.set_dx(0, sum_batches(c, da, c.input(0), c.input(1)));
  if (const Output shared = db ? shared_matrix_gradient(c) : Output()) c.set_dx(1, shared);
  else if (db) c.set_dx(1, sum_batches(c, db, c.input(1), c.input(0)));
  return {};
}

/// A multiplication and an addition for each element of the product and each inner index.
CostFn product_cost(const char* transposed) {
  return [transposed](const CostContext& c) -> NodeCost {
    const double inner = c.input_size(0, c.attrs().get_or<bool>(transposed, false) ? -2 : -1);
    return {2 * c.output_elements(0) * inner, c.all_bytes()};
  };
}

OpDef with_adjoints(OpDef op) {
  op.attr("adj_x: bool = false").attr("adj_y: bool = false").attr("grad_x: bool = false").attr("grad_y: bool = false");
  return op.shape(batch_matmul_shape).cost(product_cost("adj_x"));
}

/// The combinations of types TensorFlow has: one for all, or bytes that give int32 or join bfloat16.
template <class... T> void add_typed_kernels(KernelRegistry& kernels, TypeList<T...>) {
  const auto add = [&]<class Out>(DType a, DType b) {
    kernels.add<MatMul<Out>>("BatchMatMulV3", DeviceKind::kCpu, {{"Ta", {a}}, {"Tb", {b}}, {"Tout", {dtype_of<Out>}}});
  };
  (add.template operator()<T>(dtype_of<T>, dtype_of<T>), ...);
  for (DType a : {DType::kInt8, DType::kUInt8}) {
    for (DType b : {DType::kInt8, DType::kUInt8}) add.template operator()<int32_t>(a, b);
    add.template operator()<bfloat16>(a, DType::kBFloat16);
    add.template operator()<bfloat16>(DType::kBFloat16, a);
  }
}

}  // namespace

void register_matmul_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("MatMul")
              .input("a: T")
              .input("b: T")
              .output("product: T")
              .attr("transpose_a: bool = false")
              .attr("transpose_b: bool = false")
              .attr(type_attr("T", MatMulTypes{}))
              .attr("grad_a: bool = false")
              .attr("grad_b: bool = false")
              .shape(matmul_shape)
              .cost(product_cost("transpose_a"))
              .doc("The product [m,n] of matrix a [m,k] (or [k,m] with transpose_a) and matrix b [k,n] (or [n,k] with "
                   "transpose_b). 16-bit floats are multiplied and added up as float32; grad_a and grad_b have no "
                   "effect. Inner sizes that differ are an error."),
          gradient(matmul_gradient));
  const std::string what =
      "Products [...,m,n] of the matrices in the last two dimensions of x and y, transposed (and complex ones "
      "conjugated) first with adj_x and adj_y. ";
  ops.add(with_adjoints(
              OpDef("BatchMatMul").input("x: T").input("y: T").output("output: T").attr(type_attr("T", BatchTypes{})))
              .doc(what + "The dimensions before and the inner sizes must agree."),
          gradient(batch_matmul_gradient));
  ops.add(with_adjoints(
              OpDef("BatchMatMulV2").input("x: T").input("y: T").output("output: T").attr(type_attr("T", BatchTypes{})))
              .doc(what + "The dimensions before broadcast. Inner sizes that differ are an error."),
          gradient(batch_matmul_gradient));
  ops.add(with_adjoints(OpDef("BatchMatMulV3")
                            .input("x: Ta")
                            .input("y: Tb")
                            .output("output: Tout")
                            .attr(type_attr("Ta", OperandTypes{}))
                            .attr(type_attr("Tb", OperandTypes{}))
                            .attr(type_attr("Tout", BatchTypes{})))
              .doc(what + "The dimensions before broadcast. The types are one, or bytes that give int32, or bytes and "
                          "bfloat16. Inner sizes that differ are an error."),
          gradient(batch_matmul_gradient));
  add_cpu_kernels<MatMul>(kernels, "MatMul", MatMulTypes{});
  for (const char* op : {"BatchMatMul", "BatchMatMulV2"}) add_cpu_kernels<MatMul>(kernels, op, BatchTypes{});
  add_typed_kernels(kernels, BatchTypes{});
}

}  // namespace troupe
