// SPDX-License-Identifier: Apache-2.0
// MatrixBandPart, which keeps a band of matrices (triangles among them), and Diag and DiagPart of whole tensors.
#include <algorithm>

#include "devices/parallel.h"
#include "ops/array/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

class MatrixBandPart final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() < 2) return invalid_argument("matrices must have rank 2 or more: {}", x.shape().str());
    const int64_t rows = x.dim(-2), columns = x.dim(-1);
    TROUPE_ASSIGN(int64_t below, int_scalar(c.input(1), "num_lower"));
    TROUPE_ASSIGN(int64_t above, int_scalar(c.input(2), "num_upper"));
    if (below > rows || above > columns)
      return invalid_argument("num_lower {} and num_upper {} are more than matrices {} have", below, above,
                              x.shape().str());
    if (below < 0) below = rows;
    if (above < 0) above = columns;
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    const bool copies = !y.shares_buffer(x);
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      parallel_for(c.threads(), columns == 0 ? 0 : x.elements() / columns,
                   1 + kCheapGrain / std::max<int64_t>(columns, 1), [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r) {
                       const int64_t i = r % rows, first = std::clamp<int64_t>(i - below, 0, columns);
                       const int64_t last = std::clamp<int64_t>(i + above + 1, first, columns), at = r * columns;
                       std::fill_n(out + at, first, S());
                       if (copies) std::copy(in + at + first, in + at + last, out + at + first);
                       std::fill(out + at + last, out + at + columns, S());
                     }
                   });
    });
    c.set_output(0, std::move(y));
    return {};
  }
};

Status band_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(0, 2).status());
  for (int i : {1, 2}) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  return unchanged_shape(c);
}

constexpr int kMostDiag = kMaxRank / 2;

class Diag final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() < 1 || x.rank() > kMostDiag)
      return invalid_argument("the diagonal must have rank 1 to {}: {}", kMostDiag, x.shape().str());
    std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
    sizes.insert(sizes.end(), x.shape().begin(), x.shape().end());
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(x.dtype(), shape, c.device().allocator));
    const int64_t n = x.elements();
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      for (int64_t i = 0; i < n; ++i) out[i * (n + 1)] = in[i];
    });
    c.set_output(0, std::move(y));
    return {};
  }
};

Status tensor_diag_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  if (!x.has_rank()) return {};
  if (x.rank() < 1 || x.rank() > kMostDiag)
    return invalid_argument("the diagonal must have rank 1 to {}: {}", kMostDiag, x.str());
  std::vector<int64_t> sizes(x.dims().begin(), x.dims().end());
  sizes.insert(sizes.end(), x.dims().begin(), x.dims().end());
  TROUPE_ASSIGN(const PartialShape out, PartialShape::make(sizes));
  c.set_output(0, out);
  return {};
}

/// The first half of the dimensions, which the second half must repeat.
Result<PartialShape> half(const PartialShape& x) {
  if (!x.has_rank()) return PartialShape();
  const int n = x.rank() / 2;
  if (x.rank() == 0 || x.rank() % 2 != 0) return invalid_argument("input {} has not an even rank above 0", x.str());
  TROUPE_ASSIGN(const PartialShape first, PartialShape::make(x.dims().first(n)));
  TROUPE_ASSIGN(const PartialShape second, PartialShape::make(x.dims().last(n)));
  if (!first.compatible(second)) return invalid_argument("the halves {} and {} differ", first.str(), second.str());
  return PartialShape::merge(first, second);
}

class DiagPart final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const PartialShape shape, half(x.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape.shape()));
    const int64_t n = y.elements();
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      for (int64_t i = 0; i < n; ++i) out[i] = in[i * (n + 1)];
    });
    c.set_output(0, std::move(y));
    return {};
  }
};

/// The gradient is another op of dy.
GradientFn by(const char* op) {
  return [op](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, c.op(op, {c.dy(0)}));
    return {};
  };
}

}  // namespace

void register_band_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string type = type_attr("T", FloatOrComplexTypes{}),
                    types = type.substr(0, type.size() - 1) + ", int32, int64}";
  ops.add(OpDef("MatrixBandPart")
              .input("input: T")
              .input("num_lower: Tindex")
              .input("num_upper: Tindex")
              .output("band: T")
              .attr("T: type")
              .attr(type_attr("Tindex", IndexTypes{}, "int64"))
              .shape(band_shape)
              .doc("Matrices with zeros outside num_lower diagonals below and num_upper above the main one; a negative "
                   "number keeps all. More than there are is an error."),
          gradient([](GradientContext& c) -> Status {
            if (c.dy(0)) c.set_dx(0, c.op("MatrixBandPart", {c.dy(0), c.input(1), c.input(2)}));
            return {};
          }));
  ops.add(OpDef("Diag")
              .input("diagonal: T")
              .output("output: T")
              .attr(types)
              .shape(tensor_diag_shape)
              .doc("A tensor of twice the rank that has the input on its diagonal and zeros elsewhere."),
          gradient(by("DiagPart")));
  ops.add(OpDef("DiagPart")
              .input("input: T")
              .output("diagonal: T")
              .attr(types)
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(PartialShape out, half(c.input(0)));
                c.set_output(0, std::move(out));
                return {};
              })
              .doc("The diagonal of a tensor whose second half of dimensions repeats the first."),
          gradient(by("Diag")));
  kernels.add<MatrixBandPart>("MatrixBandPart", DeviceKind::kCpu, {});
  kernels.add<Diag>("Diag", DeviceKind::kCpu, {});
  kernels.add<DiagPart>("DiagPart", DeviceKind::kCpu, {});
}

}  // namespace troupe
