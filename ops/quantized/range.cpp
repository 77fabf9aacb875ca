// SPDX-License-Identifier: Apache-2.0
// Ranges as inputs and outputs of kernels, and of products.
#include "ops/quantized/range.h"

#include "ops/parts/wrapping.h"

namespace troupe {

Result<CodeRange> range_at(const KernelContext& c, int i) {
  CodeRange out;
  for (const int at : {i, i + 1}) {
    const Tensor& t = c.input(at);
    if (t.elements() != 1) return invalid_argument("input {}, an end of a range, is not one number: {}", at, t.str());
    (at == i ? out.low : out.high) = *t.data<float>();
  }
  return out;
}

Result<CodeRange> rising_range_at(const KernelContext& c, int i) {
  TROUPE_ASSIGN(const CodeRange r, range_at(c, i));
  if (!(r.low < r.high))
    return invalid_argument("inputs {} and {} are not a range: {} is not below {}", i, i + 1, r.low, r.high);
  return r;
}

void set_range(KernelContext& c, int i, const CodeRange& range) {
  c.set_output(i, Tensor::scalar(range.low));
  c.set_output(i + 1, Tensor::scalar(range.high));
}

void set_range_shape(ShapeContext& c) {
  for (int i = 1; i < 3; ++i) c.set_output(i, PartialShape::scalar());
}

CodeRange product_range(const CodeRange& a, const CodeRange& b) {
  const float step = (a.high - a.low) / 255.f * ((b.high - b.low) / 255.f);
  return {step * static_cast<float>(kLeast<int32_t>), step * static_cast<float>(kMost<int32_t>)};
}

int32_t zero_of(const CodeRange& r) { return static_cast<int32_t>(unbounded_code<uint8_t>(0, r)); }

Result<Tensor> from_zero(const KernelContext& c, const Tensor& x, int32_t zero) {
  TROUPE_ASSIGN(Tensor y, c.allocate(DType::kInt32, x.shape()));
  std::ranges::transform(x.values<uint8_t>(), y.mutable_data<int32_t>(),
                         [zero](uint8_t v) { return wrapping_subtract<int32_t>(v, zero); });
  return y;
}

}  // namespace troupe
