// SPDX-License-Identifier: Apache-2.0
// What is asked of the outputs of kernels.
#include "devices/run_kernel.h"

#include "devices/host_arguments.h"
#include "troupe/graph.h"

namespace troupe {

Status check_outputs(const Node& node, const Kernel& kernel, std::span<const Tensor> outputs, bool constant) {
  if (std::ssize(outputs) != node.num_outputs())
    return make_error(Code::kInternal, "it gave {} outputs, its op has {}", outputs.size(), node.num_outputs());
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Tensor& t = outputs[static_cast<size_t>(i)];
    if (!t.defined()) return make_error(Code::kInternal, "its kernel did not set output {}", i);
    if (t.dtype() != node.dtype(i) || (kernel.checked && !node.shape(i).compatible(t.shape())))
      return make_error(Code::kInternal, "output {} is {}{}, declared as {}{}", i, to_string(t.dtype()),
                        t.shape().str(), to_string(node.dtype(i)), node.shape(i).str());
    if (constant && t.space() != Space::kHost)
      return make_error(Code::kInternal, "output {} is in {}; as a constant it is to be in {}", i, to_string(t.space()),
                        to_string(Space::kHost));
    if (constant || !kernel.host_outputs || is_object(t.dtype())) continue;
    const Space space = names_argument(*kernel.host_outputs, i, node.num_outputs()) ? Space::kHost : Space::kGpu;
    if (t.space() != space)
      return make_error(Code::kInternal, "output {} is in {}, its kernel is registered to set it in {}", i,
                        to_string(t.space()), to_string(space));
  }
  return {};
}

}  // namespace troupe
