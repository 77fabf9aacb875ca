// SPDX-License-Identifier: Apache-2.0
// Staging areas: _StagingArea makes the handle; _StagingAreaPut, _StagingAreaGet, _StagingAreaPeek, _StagingAreaSize
// and _StagingAreaClear run at its host. What Stage, Unstage, StagePeek, StageSize and StageClear become
// (graph/graph_def/named_resources.h).
#include "ops/parts/resource_kernel.h"
#include "ops/state/register.h"
#include "queues/staging_area.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

Result<std::unique_ptr<ComputeKernel>> make_staging_area(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "staging_area");
  const StagingOptions options{handle.name, init.attr<std::vector<DType>>("dtypes"), init.attr<int64_t>("capacity"),
                               init.attr<int64_t>("memory_limit")};
  TROUPE_RETURN_IF_ERROR(StagingArea::make(options));  // wrong options show at the node
  handle.signature = signature_of(init);
  handle.input = true;
  handle.factory = [options] { return StagingArea::make(options); };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

class StagingKernel : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) final {
    if (auto* area = core_as<StagingArea>(resource, request, "staging area")) run(*area, request);
  }

 private:
  virtual void run(StagingArea& area, ResourceRequest& request) = 0;
};

class AreaPutKernel final : public StagingKernel {
  void run(StagingArea& area, ResourceRequest& request) override {
    request.inputs.erase(request.inputs.begin());
    area.put(std::move(request.inputs), std::move(request.reply));
  }
};

/// Gets, or peeks at the element that input 1 names.
class AreaGetKernel final : public StagingKernel {
 public:
  explicit AreaGetKernel(const KernelInit& init) : dtypes_(init.output_dtypes) {}

 private:
  void run(StagingArea& area, ResourceRequest& request) override {
    if (area.options().dtypes != dtypes_)
      return request.reply(invalid_argument("staging area '{}' holds {}, the node takes {}", area.options().name,
                                            to_string(AttrValue(area.options().dtypes)),
                                            to_string(AttrValue(dtypes_))));
    if (request.inputs.size() == 1) return area.get(std::move(request.reply));
    const Tensor& index = request.inputs[1];
    if (index.dtype() != DType::kInt32 || index.elements() != 1)
      return request.reply(invalid_argument("index must be an int32 scalar, got {}", index.str()));
    area.peek(index.data<int32_t>()[0], std::move(request.reply));
  }
  const std::vector<DType> dtypes_;
};

class AreaSizeKernel final : public StagingKernel {
  void run(StagingArea& area, ResourceRequest& request) override {
    request.reply(one_output(Tensor::scalar(static_cast<int32_t>(area.size()))));
  }
};

class AreaClearKernel final : public StagingKernel {
  void run(StagingArea& area, ResourceRequest& request) override {
    area.clear();
    request.reply(std::vector<Tensor>());
  }
};

}  // namespace

void register_staging_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const char *no_value = "it has no output", *taken = "elements come from the area; what was put in is not traced";
  ops.add(OpDef("_StagingArea")
              .output("handle: resource")
              .attr("dtypes: list(type) >= 0 = []")
              .attr("capacity: int = 0")
              .attr("memory_limit: int = 0")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .doc("A handle to a staging area, which holds elements with components of these `dtypes`, `capacity` of "
                   "them and `memory_limit` bytes at most (0: no bound). Nodes of the same `shared_name` (the node's "
                   "name when empty) and `container` share one.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number"));
  kernels.add("_StagingArea", cpu, {}, make_staging_area);
  const auto on_area = [](const char* name) {
    OpDef op(name);
    return op.input("handle: resource").stateful();
  };
  ops.add(on_area("_StagingAreaPut")
              .input("values: dtypes")
              .attr("dtypes: list(type) >= 1")
              .doc("Adds an element; waits for room. Fails for one that alone is more than the area may hold. Stage of "
                   "TensorFlow becomes it.")
              .shape(no_outputs),
          not_differentiable(no_value));
  kernels.add<AreaPutKernel>("_StagingAreaPut", cpu, {});
  ops.add(on_area("_StagingAreaGet")
              .output("values: dtypes")
              .attr("dtypes: list(type) >= 1")
              .doc("Takes the element that came first; waits for one. Unstage of TensorFlow becomes it.")
              .shape(unknown_shape),
          not_differentiable(taken));
  kernels.add<AreaGetKernel>("_StagingAreaGet", cpu, {});
  ops.add(on_area("_StagingAreaPeek")
              .input("index: int32")
              .output("values: dtypes")
              .attr("dtypes: list(type) >= 1")
              .doc("The element at `index`, from the one that came first on, which stays; waits for it. StagePeek of "
                   "TensorFlow becomes it.")
              .shape([](ShapeContext& c) -> Status { return c.with_rank(1, 0).status(); }),
          not_differentiable(taken));
  kernels.add<AreaGetKernel>("_StagingAreaPeek", cpu, {});
  ops.add(on_area("_StagingAreaSize")
              .output("size: int32")
              .doc("How many elements the area holds. StageSize of TensorFlow becomes it.")
              .shape(scalar_shape),
          not_differentiable("a count does not depend on values"));
  kernels.add<AreaSizeKernel>("_StagingAreaSize", cpu, {});
  ops.add(
      on_area("_StagingAreaClear").doc("Drops all elements. StageClear of TensorFlow becomes it.").shape(no_outputs),
      not_differentiable(no_value));
  kernels.add<AreaClearKernel>("_StagingAreaClear", cpu, {});
}

}  // namespace troupe
