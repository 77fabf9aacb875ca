// SPDX-License-Identifier: Apache-2.0
// Products of matrices that have many zeros: SparseTensorDenseMatMul, of which one is given by places and values, and
// SparseMatMul of dense ones.
#include "ops/parts/gemm.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/wrapping.h"
#include "ops/sparse/add_rows.h"
#include "ops/sparse/register.h"

namespace troupe {
namespace {

using ProductTypes = TypeList<float, double, float16, bfloat16, int32_t, complex64, complex128>;

/// The conjugate transpose of a matrix.
template <class T> Result<Tensor> conjugate_transpose(const KernelContext& c, const Tensor& x) {
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), Shape{columns, rows}));
  const T* in = x.data<T>();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) y.mutable_data<T>()[j * rows + i] = conjugate(in[i * columns + j]);
  return y;
}

template <class T> class SparseProduct final : public ComputeKernel {
 public:
  explicit SparseProduct(const KernelInit& init)
      : adjoint_a_(init.attr<bool>("adjoint_a")), adjoint_b_(init.attr<bool>("adjoint_b")) {}

  Status compute(KernelContext& c) override {
    const Tensor &places = c.input(0), &values = c.input(1);
    TROUPE_ASSIGN(const Shape a, shape_from(c.input(2), "a_shape"));
    Tensor b = c.input(3);
    if (a.rank() != 2 || b.rank() != 2 || places.rank() != 2 || places.shape()[1] != 2 || values.rank() != 1 ||
        values.elements() != places.shape()[0])
      return invalid_argument(
          "a_indices {}, a_values {}, a_shape {} and b {} must be [n,2], [n], two sizes and a matrix",
          places.shape().str(), values.shape().str(), a.str(), b.shape().str());
    const int64_t rows = a[adjoint_a_ ? 1 : 0], inner = a[adjoint_a_ ? 0 : 1];
    if (adjoint_b_) {
      TROUPE_ASSIGN(b, conjugate_transpose<T>(c, b));
    }
    if (b.shape()[0] != inner)
      return invalid_argument("inner sizes differ: {}{} x {}{}", a.str(), adjoint_a_ ? " transposed" : "",
                              c.input(3).shape().str(), adjoint_b_ ? " transposed" : "");
    TROUPE_ASSIGN(const Tensor flat, places.reshape(Shape{places.elements()}));
    TROUPE_ASSIGN(const auto at, int_values(flat, "a_indices"));
    std::vector<int64_t> from, to;
    for (int64_t i = 0; i < values.elements(); ++i)
      for (int d = 0; d < 2; ++d) {
        const int64_t index = at[2 * i + d];
        if (index < 0 || index >= a[d])
          return invalid_argument("index {} at [{},{}] of a_indices is not in [0, {})", index, i, d, a[d]);
        ((d == 0) == adjoint_a_ ? from : to).push_back(index);
      }
    const int64_t sizes[] = {rows, b.shape()[1]};
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(dtype_of<T>, shape, c.device().allocator));
    if (y.elements() > 0)
      add_rows<T>(b.data<T>(), from, y.mutable_data<T>(), to, rows, shape[1], c.threads(), [&](int64_t i) {
        const Arithmetic<T> v = widen(values.data<T>()[i]);
        return adjoint_a_ ? conjugate(v) : v;
      });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool adjoint_a_, adjoint_b_;
};

Status sparse_product_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape places, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape values, c.with_rank(1, 1));
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1).status());
  TROUPE_ASSIGN(PartialShape b, c.with_rank(3, 2));
  if (places.has_rank() && values.has_rank())
    TROUPE_RETURN_IF_ERROR(PartialShape::merge(places, PartialShape{values[0], 2}).status());
  if (!b.has_rank()) b = PartialShape::of_rank(2);
  const bool adjoint_a = c.attr<bool>("adjoint_a"), adjoint_b = c.attr<bool>("adjoint_b");
  int64_t rows = -1;
  if (const auto sizes = c.constant_input(2)) {
    TROUPE_ASSIGN(const Shape a, shape_from(*sizes, "a_shape"));
    if (a.rank() != 2) return invalid_argument("a_shape {} is that of no matrix", a.str());
    rows = a[adjoint_a ? 1 : 0];
    const int64_t inner = b[adjoint_b ? 1 : 0];
    if (inner >= 0 && inner != a[adjoint_a ? 0 : 1])
      return invalid_argument("inner sizes differ: {}{} x {}{}", a.str(), adjoint_a ? " transposed" : "", b.str(),
                              adjoint_b ? " transposed" : "");
  }
  const int64_t sizes[] = {rows, b[adjoint_b ? 0 : 1]};
  TROUPE_ASSIGN(const PartialShape out, PartialShape::make(sizes));
  c.set_output(0, out);
  return {};
}

/// By b: the adjoint of a times dy. By a value of a at (i, j): row i of dy times the conjugate of row j of b, or, of a
/// transposed, the conjugate of row j of dy times row i of b.
Status sparse_product_gradient(GradientContext& c) {
  const Output dy = c.dy(0), places = c.input(0), values = c.input(1), b = c.input(3);
  if (!dy) return {};
  const bool adjoint_a = c.node().attrs().get_or("adjoint_a", false),
             adjoint_b = c.node().attrs().get_or("adjoint_b", false);
  const auto turned = [&](Output x) {
    const int64_t swap[] = {1, 0};
    return c.op("ConjugateTranspose", {x, int_vector(c, swap)});
  };
  const Output db = c.op("SparseTensorDenseMatMul", {places, values, c.input(2), dy}, {{"adjoint_a", !adjoint_a}});
  c.set_dx(3, adjoint_b ? turned(db) : db);
  const auto rows_at = [&](Output x, int column) {
    const Output at = c.constant(Tensor::scalar<int32_t>(column)), one = c.constant(Tensor::scalar<int32_t>(1));
    return c.op("GatherV2", {x, c.op("GatherV2", {places, at, one}), c.constant(Tensor::scalar<int32_t>(0))});
  };
  Output left = rows_at(dy, adjoint_a ? 1 : 0), right = rows_at(adjoint_b ? turned(b) : b, adjoint_a ? 0 : 1);
  if (adjoint_a) left = conj(c, left);
  else right = conj(c, right);
  c.set_dx(1, c.op("Sum", {c.op("Mul", {left, right}), c.constant(Tensor::of<int32_t>({1}))}));
  return {};
}

// --- dense matrices with zeros ---

/// What rows and columns a matrix has once it is turned.
Status mixed_product_shape(ShapeContext& c) {
  const bool ta = c.attr<bool>("transpose_a"), tb = c.attr<bool>("transpose_b");
  TROUPE_ASSIGN(PartialShape a, c.with_rank(0, 2));
  TROUPE_ASSIGN(PartialShape b, c.with_rank(1, 2));
  if (!a.has_rank()) a = PartialShape::of_rank(2);
  if (!b.has_rank()) b = PartialShape::of_rank(2);
  const int64_t inner_a = a[ta ? 0 : 1], inner_b = b[tb ? 1 : 0];
  if (inner_a >= 0 && inner_b >= 0 && inner_a != inner_b)
    return invalid_argument("inner sizes differ: {}{} x {}{}", a.str(), ta ? " transposed" : "", b.str(),
                            tb ? " transposed" : "");
  const int64_t sizes[] = {a[ta ? 1 : 0], b[tb ? 0 : 1]};
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(sizes));
  c.set_output(0, std::move(out));
  return {};
}

/// Zeros are multiplied like all numbers: the machine is faster than looking for them.
class MixedProduct final : public ComputeKernel {
 public:
  explicit MixedProduct(const KernelInit& init)
      : ta_(init.attr<bool>("transpose_a")), tb_(init.attr<bool>("transpose_b")) {}
  Status compute(KernelContext& c) override {
    const Tensor &a = c.input(0), &b = c.input(1);
    if (a.rank() != 2 || b.rank() != 2)
      return invalid_argument("operands must be matrices: {} x {}", a.shape().str(), b.shape().str());
    const int64_t m = a.dim(ta_ ? 1 : 0), k = a.dim(ta_ ? 0 : 1), n = b.dim(tb_ ? 0 : 1);
    if (k != b.dim(tb_ ? 1 : 0))
      return invalid_argument("inner sizes differ: {}{} x {}{}", a.shape().str(), ta_ ? " transposed" : "",
                              b.shape().str(), tb_ ? " transposed" : "");
    const int64_t sizes[] = {m, n};
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, shape));
    TROUPE_ASSIGN(const Tensor left, converted(c, a, DType::kFloat32));
    TROUPE_ASSIGN(const Tensor right, converted(c, b, DType::kFloat32));
    if (!gemm(left.data<float>(), ta_, right.data<float>(), tb_, y.mutable_data<float>(), m, n, k))
      return make_error(Code::kInternal, "the matrix library failed for {} x {}", a.shape().str(), b.shape().str());
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool ta_, tb_;
};

Status mixed_product_gradient(GradientContext& c) {
  const Output g = c.dy(0), a = c.input(0), b = c.input(1);
  if (!g) return {};
  const bool ta = c.node().attrs().get_or("transpose_a", false), tb = c.node().attrs().get_or("transpose_b", false);
  const auto product = [&](Output x, Output y, bool tx, bool ty, Output like) {
    const Output p = c.op("SparseMatMul", {x, y}, {{"transpose_a", tx}, {"transpose_b", ty}});
    return like.dtype() == DType::kFloat32 ? p : c.op("Cast", {p}, {{"DstT", like.dtype()}});
  };
  c.set_dx(0, ta ? product(b, g, tb, true, a) : product(g, b, false, !tb, a));
  c.set_dx(1, tb ? product(g, a, true, ta, b) : product(a, g, !ta, false, b));
  return {};
}

}  // namespace

void register_sparse_matmul_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string mixed = "{float32, bfloat16} = float32";
  ops.add(OpDef("SparseMatMul")
              .input("a: Ta")
              .input("b: Tb")
              .output("product: float32")
              .attr("transpose_a: bool = false")
              .attr("transpose_b: bool = false")
              .attr("a_is_sparse: bool = false")
              .attr("b_is_sparse: bool = false")
              .attr("Ta: " + mixed)
              .attr("Tb: " + mixed)
              .shape(mixed_product_shape)
              .doc("The product of two matrices, each transposed first with transpose_a and transpose_b. That they are "
                   "said to have many zeros has no effect. Inner sizes that differ are an error."),
          gradient(mixed_product_gradient));
  kernels.add<MixedProduct>("SparseMatMul", DeviceKind::kCpu, {});
  ops.add(
      OpDef("SparseTensorDenseMatMul")
          .input("a_indices: Tindices")
          .input("a_values: T")
          .input("a_shape: int64")
          .input("b: T")
          .output("product: T")
          .attr("T: type")
          .attr(type_attr("Tindices", IndexTypes{}, "int64"))
          .attr("adjoint_a: bool = false")
          .attr("adjoint_b: bool = false")
          .shape(sparse_product_shape)
          .doc("The product of a sparse matrix a, given by places, values and sizes, and a matrix b, each transposed "
               "and conjugated first with adjoint_a and adjoint_b. Values at one place add up. Error for a place "
               "outside and inner sizes that differ."),
      gradient(sparse_product_gradient));
  add_cpu_kernels<SparseProduct>(kernels, "SparseTensorDenseMatMul", ProductTypes{});
}

}  // namespace troupe
