// SPDX-License-Identifier: Apache-2.0
#include "troupe/op_cost.h"

#include <algorithm>

#include "troupe/graph.h"

namespace troupe {
namespace {

double elements(std::span<const PartialShape> shapes, int i) {
  return i >= 0 && static_cast<size_t>(i) < shapes.size() ? elements_of(shapes[static_cast<size_t>(i)]) : 0;
}

double size(std::span<const PartialShape> shapes, int i, int dimension) {
  if (i < 0 || static_cast<size_t>(i) >= shapes.size()) return 1;
  const PartialShape& shape = shapes[static_cast<size_t>(i)];
  if (!shape.has_rank() || dimension >= shape.rank() || dimension < -shape.rank()) return 1;
  return static_cast<double>(std::max<int64_t>(shape.dim(dimension), 1));
}

bool has_arithmetic(DType dtype) { return is_floating(dtype) || is_complex(dtype); }

}  // namespace

double NodeCost::time_ns(const DeviceRates& rates) const {
  if (flops <= 0 && bytes <= 0) return 0;
  return rates.launch_ns + std::max(flops / rates.flops, bytes / rates.memory_bandwidth) * 1e9;
}

double elements_of(const PartialShape& shape) {
  double n = 1;
  if (shape.has_rank())
    for (const int64_t d : shape.dims()) n *= d < 0 ? 1 : static_cast<double>(d);
  return n;
}

double bytes_of(DType dtype, const PartialShape& shape) {
  return elements_of(shape) * static_cast<double>(size_of(dtype));
}

DType CostContext::input_dtype(int i) const {
  const auto& inputs = node_.inputs();
  return i >= 0 && static_cast<size_t>(i) < inputs.size() ? inputs[static_cast<size_t>(i)].dtype() : DType::kInvalid;
}
DType CostContext::output_dtype(int i) const { return node_.dtype(i); }
double CostContext::input_elements(int i) const { return elements(inputs_, i); }
double CostContext::output_elements(int i) const { return elements(outputs_, i); }
double CostContext::input_size(int i, int dimension) const { return size(inputs_, i, dimension); }
double CostContext::output_size(int i, int dimension) const { return size(outputs_, i, dimension); }
const Attrs& CostContext::attrs() const { return node_.attrs(); }

double CostContext::input_bytes(int i) const {
  return i < num_inputs() ? input_elements(i) * static_cast<double>(size_of(input_dtype(i))) : 0;
}

double CostContext::output_bytes(int i) const {
  return i < num_outputs() ? output_elements(i) * static_cast<double>(size_of(output_dtype(i))) : 0;
}

double CostContext::all_bytes() const {
  double bytes = 0;
  for (int i = 0; i < num_inputs(); ++i) bytes += input_bytes(i);
  for (int i = 0; i < num_outputs(); ++i) bytes += output_bytes(i);
  return bytes;
}

NodeCost arithmetic_cost(const CostContext& c) {
  double flops = 0;
  for (int i = 0; i < c.num_outputs(); ++i)
    if (has_arithmetic(c.output_dtype(i))) flops = std::max(flops, c.output_elements(i));
  return {flops, c.all_bytes()};
}

NodeCost reduction_cost(const CostContext& c) { return {c.input_elements(0), c.all_bytes()}; }

NodeCost update_cost(const CostContext& c) {
  double flops = 0;
  for (int i = 0; i < c.num_inputs(); ++i)
    if (has_arithmetic(c.input_dtype(i))) flops = std::max(flops, c.input_elements(i));
  return {flops, c.all_bytes()};
}

NodeCost move_cost(const CostContext& c) { return {0, c.all_bytes()}; }

NodeCost pick_cost(const CostContext& c) { return {0, c.all_bytes() - c.input_bytes(0) + c.output_bytes(0)}; }

NodeCost no_cost(const CostContext&) { return {}; }

}  // namespace troupe
