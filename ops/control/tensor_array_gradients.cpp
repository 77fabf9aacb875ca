// SPDX-License-Identifier: Apache-2.0
#include "ops/control/tensor_array_gradients.h"

#include "troupe/graph.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

/// Names the call of gradients() that a node belongs to: the scope up to "gradients", "gradients_1", ...
std::string source_of(GradientContext& c) {
  const std::string& prefix = c.scope().prefix();
  for (size_t at = 0; at < prefix.size(); at = prefix.find('/', at) + 1)
    if (prefix.compare(at, 9, "gradients") == 0) return prefix.substr(0, prefix.find('/', at));
  return prefix;
}

struct GradientArray {
  Output handle, flow;
};

/// The array of gradients, after `flow`.
GradientArray gradient_array(GradientContext& c, Output flow) {
  const std::vector<Output> out = c.ops("TensorArrayGradV3", {c.input(0), flow}, {{"source", source_of(c)}});
  if (out.empty()) return {};
  return {out[0], out[1]};
}

/// Of an op that writes: input `value` gets what reading gives, the flow (the last input) passes through.
void set_written(GradientContext& c, int value, Output gradient) {
  c.set_dx(value, gradient);
  c.set_dx(c.num_inputs() - 1, c.dy(0));
}

DType dtype_of_value(const GradientContext& c, int i) { return c.input(i).dtype(); }

}  // namespace

Status array_write_gradient(GradientContext& c) {
  const GradientArray array = gradient_array(c, c.dy(0));
  set_written(c, 2,
              c.op("TensorArrayReadV3", {array.handle, c.input(1), array.flow}, {{"dtype", dtype_of_value(c, 2)}}));
  return {};
}

Status array_read_gradient(GradientContext& c) {
  const GradientArray array = gradient_array(c, c.input(2));
  c.set_dx(2, c.op("TensorArrayWriteV3", {array.handle, c.input(1), c.dy(0), array.flow}));
  return {};
}

Status array_gather_gradient(GradientContext& c) {
  const GradientArray array = gradient_array(c, c.input(2));
  c.set_dx(2, c.op("TensorArrayScatterV3", {array.handle, c.input(1), c.dy(0), array.flow}));
  return {};
}

Status array_scatter_gradient(GradientContext& c) {
  const GradientArray array = gradient_array(c, c.dy(0));
  set_written(c, 2,
              c.op("TensorArrayGatherV3", {array.handle, c.input(1), array.flow}, {{"dtype", dtype_of_value(c, 2)}}));
  return {};
}

Status array_concat_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const GradientArray array = gradient_array(c, c.input(1));
  c.set_dx(1, c.op("TensorArraySplitV3", {array.handle, c.dy(0), c.output(1), array.flow}));
  return {};
}

Status array_split_gradient(GradientContext& c) {
  const GradientArray array = gradient_array(c, c.dy(0));
  set_written(c, 1, c.op("TensorArrayConcatV3", {array.handle, array.flow}, {{"dtype", dtype_of_value(c, 1)}}));
  return {};
}

}  // namespace troupe
