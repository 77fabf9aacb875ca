// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor that others take the place of, or are added to: InplaceUpdate, InplaceAdd, InplaceSub.
#include "ops/array/register.h"
#include "ops/parts/arithmetic.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"
#include "troupe/op_cost.h"

namespace troupe {
namespace {

enum class Change { kUpdate, kAdd, kSub };

class Inplace final : public ComputeKernel {
 public:
  explicit Inplace(const KernelInit& init)
      : change_(init.op == "InplaceUpdate" ? Change::kUpdate
                : init.op == "InplaceAdd"  ? Change::kAdd
                                           : Change::kSub) {}
  Status compute(KernelContext& c) override {
    const Tensor &i = c.input(1), &v = c.input(2);
    const Shape& shape = c.input(0).shape();
    bool fits = shape.rank() > 0 && v.rank() == shape.rank() && i.rank() == 1 && i.dim(0) == v.dim(0);
    for (int d = 1; fits && d < shape.rank(); ++d) fits = v.dim(d) == shape[d];
    if (!fits)
      return invalid_argument("v of shape {} and i of shape {} are no rows of x of shape {}", v.shape().str(),
                              i.shape().str(), shape.str());
    TROUPE_ASSIGN(const std::vector<int64_t> rows, int_values(i, "i"));
    const int64_t n = shape[0], row = n > 0 ? shape.elements() / n : 0;
    if (n == 0 && !rows.empty()) return invalid_argument("x of shape {} has no rows", shape.str());
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, v.dtype(), shape));
    if (y.raw() != c.input(0).raw()) copy_elements(v.dtype(), c.input(0).raw(), y.mutable_raw(), shape.elements());
    int64_t from = 0;
    for (const int64_t index : rows) {
      change(v, from, y, (index % n + n) % n * row, row);
      from += row;
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  void change(const Tensor& v, int64_t from, Tensor& y, int64_t to, int64_t count) const {
    if (change_ == Change::kUpdate)
      return with_storage(v.dtype(), [&]<class S>() {
        std::copy_n(static_cast<const S*>(v.raw()) + from, count, static_cast<S*>(y.mutable_raw()) + to);
      });
    with_type(v.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
      const T* in = v.data<T>() + from;
      T* out = y.mutable_data<T>() + to;
      for (int64_t k = 0; k < count; ++k)
        out[k] = narrow<T>(change_ == Change::kAdd ? wrapping_add(widen(out[k]), widen(in[k]))
                                                   : wrapping_subtract(widen(out[k]), widen(in[k])));
    });
  }
  const Change change_;
};

}  // namespace

void register_inplace_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::pair<const char*, const char*> all[] = {
      {"InplaceUpdate", "x with row i[k] replaced by v[k], for each k in order."},
      {"InplaceAdd", "x with v[k] added to row i[k], for each k in order."},
      {"InplaceSub", "x with v[k] subtracted from row i[k], for each k in order."}};
  for (const auto& [name, doc] : all) {
    const bool update = name == std::string_view("InplaceUpdate");
    ops.add(OpDef(name)
                .input("x: T")
                .input("i: int32")
                .input("v: T")
                .output("y: T")
                .attr(update ? "T: type" : type_attr("T", NumberOrComplexTypes{}))
                .doc(std::string(doc) + " An index counts modulo the number of rows. Error: v is not rows of x.")
                .shape([](ShapeContext& c) -> Status {
                  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
                  c.set_output(0, c.input(0));
                  return {};
                })
                .cost(move_cost),
            undefined_gradient());
    if (update) kernels.add<Inplace>(name, DeviceKind::kCpu, {});
    else kernels.add<Inplace>(name, DeviceKind::kCpu, {{"T", NumberOrComplexTypes::dtypes()}});
  }
}

}  // namespace troupe
