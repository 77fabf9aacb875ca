// SPDX-License-Identifier: Apache-2.0
// Pieces of gradient functions.
#include "ops/parts/gradient_math.h"

#include <algorithm>

#include "ops/parts/type_dispatch.h"

namespace troupe {

Gradient undefined_gradient(std::string_view reason) {
  const auto refuse = [](GradientContext&) -> Status {
    return make_error(Code::kUnimplemented, "the op has no gradient");
  };
  return {refuse, reason};
}

Output scalar_like(GradientContext& c, DType dtype, double value) {
  Tensor t;
  with_type(dtype, NumberOrComplexTypes{}, [&]<class T>() {
    if constexpr (is_half<T>) t = Tensor::scalar<T>(T(static_cast<float>(value)));
    else if constexpr (is_complex_type<T>) t = Tensor::scalar<T>(T(static_cast<Real<T>>(value), 0));
    else t = Tensor::scalar<T>(static_cast<T>(value));
  });
  return c.constant(std::move(t));
}

Output conj(GradientContext& c, Output x) { return x && is_complex(x.dtype()) ? c.op("Conj", {x}) : x; }

Output real_part(GradientContext& c, Output x) { return c.op("Real", {x}, {{"Tout", real_of(x.dtype())}}); }
Output imaginary_part(GradientContext& c, Output x) { return c.op("Imag", {x}, {{"Tout", real_of(x.dtype())}}); }
Output complex_number(GradientContext& c, Output real, Output imaginary) {
  return c.op("Complex", {real, imaginary}, {{"Tout", complex_of(real.dtype())}});
}

Attrs window_attrs(GradientContext& c) {
  Attrs out;
  for (const char* name : {"strides", "padding", "explicit_paddings", "data_format", "dilations"})
    if (const AttrValue* v = c.node().attrs().find(name)) out.set(name, *v);
  return out;
}

Output int_vector(GradientContext& c, std::span<const int64_t> values) {
  const auto fits = [](int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; };
  if (!std::ranges::all_of(values, fits)) return c.constant(Tensor::of<int64_t>(values));
  std::vector<int32_t> narrow(values.begin(), values.end());
  return c.constant(Tensor::of<int32_t>(std::span<const int32_t>(narrow)));
}

Output sizes_of(GradientContext& c, Output x) {
  if (!x) return {};
  if (!x.shape().fully_known()) return c.op("Shape", {x});
  return int_vector(c, x.shape().dims());
}

Output int32_or_int64(GradientContext& c, Output indices) {
  return indices.dtype() == DType::kInt16 ? c.op("Cast", {indices}, {{"DstT", DType::kInt32}}) : indices;
}

Output sum_all(GradientContext& c, Output x) {
  if (!x) return {};
  std::vector<int64_t> axes;
  for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  if (x.shape().has_rank()) return c.op("Sum", {x, int_vector(c, axes)});
  const Output zero = c.constant(Tensor::scalar<int32_t>(0)), one = c.constant(Tensor::scalar<int32_t>(1));
  return c.op("Sum", {x, c.op("Range", {zero, c.op("Rank", {x}), one})});
}

Output sum_to(GradientContext& c, Output g, Output x, Output y) {
  if (!g) return {};
  const PartialShape &xs = x.shape(), &ys = y.shape();
  if (xs.fully_known() && ys.fully_known()) {
    if (xs == ys) return g;
    const auto whole = broadcast(xs.shape(), ys.shape());
    if (!whole.ok() || *whole == xs.shape()) return g;
    std::vector<int64_t> axes;
    for (int i = 0; i < whole->rank(); ++i) {
      const int at = i - (whole->rank() - xs.rank());
      if (at < 0 || (xs[at] == 1 && (*whole)[i] != 1)) axes.push_back(i);
    }
    const bool keeps = xs.rank() == whole->rank();
    const Output sum = c.op("Sum", {g, int_vector(c, axes)}, {{"keep_dims", keeps}});
    return keeps || sum.shape() == xs ? sum : c.op("Reshape", {sum, sizes_of(c, x)});
  }
  const Output sx = c.op("Shape", {x}), sy = c.op("Shape", {y});
  const std::vector<Output> axes = c.ops("BroadcastGradientArgs", {sx, sy});
  if (axes.size() < 2) return {};
  return c.op("Reshape", {c.op("Sum", {g, axes[0]}), sx});
}

void set_broadcast_gradients(GradientContext& c, Output da, Output db) {
  const Output a = c.input(0), b = c.input(1);
  if (da) c.set_dx(0, sum_to(c, da, a, b));
  if (db) c.set_dx(1, sum_to(c, db, b, a));
}

}  // namespace troupe
