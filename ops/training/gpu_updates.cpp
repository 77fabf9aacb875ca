// SPDX-License-Identifier: Apache-2.0
// Updates of variables in a GPU's memory, at the variables' host.
#include "ops/training/gpu_updates.h"

#include "containers/container.h"
#include "ops/parts/resource_kernel.h"
#include "ops/parts/variable_memory.h"

namespace troupe {
namespace {

/// An update that a GPU does in the order of its stream.
class GpuApplyKernel final : public AnsweringKernel {
 public:
  GpuApplyKernel(const GpuRule& rule, const KernelInit& init)
      : rule_(rule), flag_(!rule.flag.empty() && init.attr<bool>(rule.flag)) {}

  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    TROUPE_ASSIGN(Container* const container, core_of<Container>(resource, request, "variable"));
    return no_output(apply(*container, request));
  }

 private:
  Status apply(Container& container, const ResourceRequest& request) const {
    if (!request.gpu) return make_error(Code::kInternal, "no GPU asks for what a GPU does");
    const ResourceHandle* handles[kMostVariables];
    GpuUpdate update{};
    for (int i = 0; i < rule_.variables; ++i) {
      handles[i] = handle_at(request, i);
      if (!handles[i] || handles[i]->type != handles[0]->type || handles[i]->container != handles[0]->container)
        return invalid_argument("input {} must be a variable of container '{}'", i, container.name());
      TROUPE_RETURN_IF_ERROR(bring_to_gpu(container, *handles[i], request.gpu));
    }
    const bool sparse = rule_.launch_rows;
    for (int i = 0; i < rule_.scalars; ++i) {
      const int input = rule_.variables + i + (i >= rule_.gradient ? 1 + int{sparse} : 0);
      const Tensor& t = request.inputs[static_cast<size_t>(input)];
      const DType wanted = i == rule_.step ? DType::kInt64 : rule_.dtype;
      if (t.dtype() != wanted || t.rank() != 0)
        return invalid_argument("input {} must be a {} scalar, got {}", input, to_string(wanted), dtype_and_shape(t));
      update.scalars[i] = t.address();
    }
    update.flag = flag_;
    const std::span<const ResourceHandle* const> used(handles, static_cast<size_t>(rule_.variables));
    const auto change = [&](std::span<const Container::Rewritten> variables) -> Status {
      return sparse ? change_rows(request, used, variables, update) : change_all(request, used, variables, update);
    };
    return container.rewrite(used, request.allocator, change);
  }

  Status change_all(const ResourceRequest& request, std::span<const ResourceHandle* const> handles,
                    std::span<const Container::Rewritten> variables, GpuUpdate& update) const {
    const Tensor& g = gradient(request, 0);
    for (size_t i = 0; i < variables.size(); ++i) {
      const Tensor& t = *variables[i].from;
      if (t.dtype() != g.dtype() || t.dtype() != rule_.dtype || !(t.shape() == g.shape()))
        return invalid_argument("variable '{}' is {}, what changes it {}", handles[i]->name, dtype_and_shape(t),
                                dtype_and_shape(g));
    }
    for (size_t i = 0; i < variables.size(); ++i) {
      update.from[i] = variables[i].from->address();
      update.to[i] = variables[i].to->mutable_address();
    }
    update.gradient = g.address();
    update.n = g.elements();
    if (update.n == 0) return {};
    tell_uses(request, variables, update);
    Status launched = rule_.launch(*request.gpu, update);
    request.gpu->stream.uses({});
    return launched;
  }

  Status change_rows(const ResourceRequest& request, std::span<const ResourceHandle* const> handles,
                     std::span<const Container::Rewritten> variables, GpuUpdate& update) const {
    const Tensor &g = gradient(request, 0), &indices = gradient(request, 1);
    TROUPE_RETURN_IF_ERROR(check_row_indices(indices));
    const Shape& shape = variables[0].from->shape();
    for (size_t i = 0; i < variables.size(); ++i)
      TROUPE_RETURN_IF_ERROR(check_rows(handles[i]->name, *variables[i].from, shape, g, indices, rule_.dtype));
    if (shape.elements() == 0) return {};
    for (size_t i = 0; i < variables.size(); ++i) {
      update.to[i] = variables[i].to->mutable_address();
      update.from[i] = update.to[i];
      if (!variables[i].in_place())
        TROUPE_RETURN_IF_ERROR(
            request.gpu->stream.copy(update.to[i], variables[i].from->address(), variables[i].from->bytes()));
    }
    update.gradient = g.address();
    update.n = shape.elements() / shape[0];
    if (indices.elements() == 0) return {};
    tell_uses(request, variables, update);
    Status launched = rule_.launch_rows(*request.gpu, update, {&indices, shape[0]});
    request.gpu->stream.uses({});
    return launched;
  }

  /// The gradient, or an input behind it.
  const Tensor& gradient(const ResourceRequest& request, int behind) const {
    return request.inputs[static_cast<size_t>(rule_.variables + rule_.gradient + behind)];
  }

  void tell_uses(const ResourceRequest& request, std::span<const Container::Rewritten> variables,
                 const GpuUpdate& update) const {
    std::vector<gpu::Access> accesses;
    for (int behind = 0; behind <= int{rule_.launch_rows != nullptr}; ++behind)
      accesses.push_back({gradient(request, behind).address(), gradient(request, behind).bytes(), false});
    for (size_t i = 0; i < variables.size(); ++i) {
      accesses.push_back({update.to[i], variables[i].to->bytes(), true});
      if (update.from[i] != update.to[i]) accesses.push_back({update.from[i], variables[i].to->bytes(), false});
    }
    for (int i = 0; i < rule_.scalars; ++i)
      accesses.push_back({update.scalars[i], size_of(i == rule_.step ? DType::kInt64 : rule_.dtype), false});
    request.gpu->stream.uses(accesses);
  }

  const GpuRule rule_;
  const bool flag_;
};

}  // namespace

void add_gpu_update(KernelRegistry& kernels, const std::string& op, const std::string& attr, const GpuRule& rule) {
  kernels.add(op, DeviceKind::kCuda, {{attr, {rule.dtype}}},
              [rule](const KernelInit& init) -> Result<std::unique_ptr<ResourceKernel>> {
                return std::unique_ptr<ResourceKernel>(new GpuApplyKernel(rule, init));
              });
}

}  // namespace troupe
