// SPDX-License-Identifier: Apache-2.0
// NthElement: the element at a place of each sorted row.
#include <algorithm>

#include "devices/parallel.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

class NthElement final : public ComputeKernel {
 public:
  explicit NthElement(const KernelInit& init) : reverse_(init.attr<bool>("reverse")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() == 0) return invalid_argument("the input must have a last dimension");
    if (c.input(1).rank() != 0) return invalid_argument("n must be a scalar, not {}", c.input(1).shape().str());
    TROUPE_ASSIGN(int64_t place, int_scalar(c.input(1), "n"));
    const int64_t n = x.dim(-1);
    if (place < 0 || place >= n) return invalid_argument("element {} of rows of {}", place, n);
    if (reverse_) place = n - 1 - place;
    Shape shape = x.shape();
    shape.erase(x.rank() - 1);
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    with_type(x.dtype(), NumberTypes{}, [&]<class T>() {
      T* out = y.mutable_data<T>();
      parallel_for(c.threads(), shape.elements(), std::max<int64_t>(kDearGrain / n, 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r) {
                       std::vector<T> row(x.data<T>() + r * n, x.data<T>() + (r + 1) * n);
                       std::nth_element(row.begin(), row.begin() + place, row.end(), [](T a, T b) {
                         const auto p = widen(a), q = widen(b);
                         return p < q || (p == p && q != q);  // NaN comes last, so that there is an order
                       });
                       out[r] = row[place];
                     }
                   });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool reverse_;
};

Status nth_element_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  if (!x.has_rank()) return {};
  if (const auto constant = c.constant_input(1)) {
    TROUPE_ASSIGN(const int64_t n, int_scalar(*constant, "n"));
    if (n < 0 || (x.dim(-1) >= 0 && n >= x.dim(-1)))
      return invalid_argument("element {} of rows of shape {}", n, x.str());
  }
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i + 1 < x.rank(); ++i) out.push_back(x[i]);
  c.set_output(0, out);
  return {};
}

/// Shared among the elements that equal the result.
Status nth_element_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output x = c.input(0), last = c.constant(Tensor::of<int32_t>({-1}));
  const Output hit = c.op("Equal", {x, c.op("ExpandDims", {c.output(0), last})});
  const Output hits = c.op("Cast", {hit}, {{"DstT", x.dtype()}});
  const Output count = c.op("Sum", {hits, last}, {{"keep_dims", true}});
  c.set_dx(0, c.op("Mul", {c.op("RealDiv", {hits, count}), c.op("ExpandDims", {c.dy(0), last})}));
  return {};
}

}  // namespace

void register_order_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("NthElement")
              .input("input: T")
              .input("n: int32")
              .output("values: T")
              .attr("reverse: bool = false")
              .attr(type_attr("T", NumberTypes{}))
              .shape(nth_element_shape)
              .doc("Of each row along the last dimension the element with n smaller ones, or larger ones with reverse. "
                   "Error for an n that no row has."),
          gradient(nth_element_gradient));
  kernels.add<NthElement>("NthElement", DeviceKind::kCpu, {});
}

}  // namespace troupe
