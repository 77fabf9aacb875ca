// SPDX-License-Identifier: Apache-2.0
// Generators whose state is the value of a variable (tf.random.Generator): the two halves of a counter, the lower
// first, then a key. Implemented in ops/random/generator.cpp.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "ops/parts/type_dispatch.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Draws from a generator at the host of its variable: takes what the numbers may use out of the state, then draws as
/// the op of a key and a counter does, whose kernel `draw` is.
class GeneratorKernel final : public ResourceKernel {
 public:
  /// By how many numbers the state goes on, from the op's inputs: resource, algorithm, shape and those of `draw`.
  using Uses = Result<int64_t> (*)(std::span<const Tensor> inputs);
  explicit GeneratorKernel(std::unique_ptr<ComputeKernel> draw, Uses uses) : draw_(std::move(draw)), uses_(uses) {}
  void execute(Resource& resource, ResourceRequest request) override;

 private:
  const std::unique_ptr<ComputeKernel> draw_;
  const Uses uses_;
};

/// The elements of the shape that input 2 says.
Result<int64_t> elements_drawn(std::span<const Tensor> inputs);

/// A factory of these kernels, which draw as Draw does.
template <class Draw> KernelFactory generator_kernel(GeneratorKernel::Uses uses = elements_drawn) {
  return [uses](const KernelInit& init) -> Result<std::unique_ptr<ResourceKernel>> {
    return std::unique_ptr<ResourceKernel>(std::make_unique<GeneratorKernel>(std::make_unique<Draw>(init), uses));
  };
}

/// Such an op without inputs of its own. `what` it draws is for its docs; `shape_type` names the type of its shape.
OpDef generator_op(const std::string& name, const std::string& what, const std::string& shape_type = "shape_dtype");

/// Kernels of `op` for these types of its output, each of which draws as Draw<T>.
template <template <class> class Draw, class... T>
void add_generator_kernels(KernelRegistry& kernels, const std::string& op, TypeList<T...>) {
  (kernels.add(op, DeviceKind::kCpu, "dtype", dtype_of<T>, generator_kernel<Draw<T>>()), ...);
}

}  // namespace troupe
