// SPDX-License-Identifier: Apache-2.0
// Iterators over datasets: IteratorV2 makes the handle, IteratorGetNext runs at the iterator's host, which the engine
// makes (Engine::add_dataset).
#include "ops/input/iterator_resource.h"
#include "ops/input/register.h"
#include "ops/parts/resource_kernel.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

Result<std::unique_ptr<ComputeKernel>> make_iterator_handle(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "iterator");
  handle.input = true;
  const auto* later = init.attrs->get<bool>("_dataset_comes_later");
  handle.factory = [name = handle.name, later = later && *later]() -> Result<std::unique_ptr<Resource>> {
    if (later) return std::unique_ptr<Resource>(std::make_unique<IteratorResource>(name));
    return make_error(Code::kNotFound, "there is no dataset '{}'", name);
  };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

using Components = std::pair<std::vector<DType>, std::vector<PartialShape>>;

/// Checks an element against what the node was planned for, on its way. Lives until it has delivered, which a Reply
/// does exactly once.
class CheckedReply final : public ReplySink {
 public:
  static Reply wrap(Reply reply, std::shared_ptr<const Components> expected) {
    const RequestTag tag = reply.tag();
    return Reply(*new CheckedReply(std::move(reply), std::move(expected)), tag);
  }
  void deliver(const RequestTag&, Result<std::vector<Tensor>> outputs) override {
    const std::unique_ptr<CheckedReply> self(this);
    if (outputs.ok()) {
      if (Status status = check(*outputs); !status.ok()) outputs = std::move(status.error());
    }
    reply_(std::move(outputs));
  }

 private:
  CheckedReply(Reply reply, std::shared_ptr<const Components> expected)
      : reply_(std::move(reply)), expected_(std::move(expected)) {}
  Status check(const std::vector<Tensor>& element) const {
    const auto& [dtypes, shapes] = *expected_;
    if (element.size() != dtypes.size())
      return invalid_argument("an element has {} components, the node expects {}", element.size(), dtypes.size());
    for (size_t i = 0; i < element.size(); ++i)
      if (element[i].dtype() != dtypes[i] || !shapes[i].compatible(element[i].shape()))
        return invalid_argument("component {} is {}{}, the node expects {}{}", i, to_string(element[i].dtype()),
                                element[i].shape().str(), to_string(dtypes[i]), shapes[i].str());
    return {};
  }
  Reply reply_;
  const std::shared_ptr<const Components> expected_;
};

class GetNextKernel final : public ResourceKernel {
 public:
  explicit GetNextKernel(const KernelInit& init)
      : expected_(std::make_shared<const Components>(init.output_dtypes,
                                                     init.attr<std::vector<PartialShape>>("output_shapes"))) {}

  void execute(Resource& resource, ResourceRequest request) override {
    if (auto* iterator = iterator_of(resource, request))
      iterator->get_next(CheckedReply::wrap(std::move(request.reply), expected_));
  }

 private:
  const std::shared_ptr<const Components> expected_;
};

Status get_next_shape(ShapeContext& c) {
  const auto& shapes = c.attr<std::vector<PartialShape>>("output_shapes");
  if (static_cast<int>(shapes.size()) != c.num_outputs())
    return invalid_argument("{} output_types but {} output_shapes", c.num_outputs(), shapes.size());
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[i]);
  return {};
}

}  // namespace

void register_iterator_ops(OpRegistry& ops, KernelRegistry& kernels) {
  for (const char* name : {"Iterator", "IteratorV2"}) {
    ops.add(OpDef(name)
                .output("handle: resource")
                .attr("shared_name: string = ''")
                .attr("container: string = ''")
                .attr("output_types: list(type) >= 1")
                .attr("output_shapes: list(shape) >= 1")
                .doc("A handle to the iterator over the dataset that the engine knows as `shared_name` (the node's "
                     "name when empty), or that a MakeIterator of the graph gives it.")
                .shape(scalar_shape)
                .stateful(),
            not_differentiable("a handle is not a number"));
    kernels.add(name, DeviceKind::kCpu, {}, make_iterator_handle);
  }
  for (const char* name : {"IteratorGetNext", "IteratorGetNextSync"}) {
    ops.add(OpDef(name)
                .input("iterator: resource")
                .output("components: output_types")
                .attr("output_types: list(type) >= 1")
                .attr("output_shapes: list(shape) >= 1")
                .cost(move_cost)
                .doc("The next element of the dataset; waits for it. Fails with out-of-range at the end, and where an "
                     "element does not have the types and shapes promised.")
                .shape(get_next_shape)
                .stateful(),
            not_differentiable("elements come from a dataset"));
    kernels.add<GetNextKernel>(name, DeviceKind::kCpu, {});
  }
}

}  // namespace troupe
