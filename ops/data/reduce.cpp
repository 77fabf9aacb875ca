// SPDX-License-Identifier: Apache-2.0
// What a step takes of a whole dataset: ReduceDataset, DatasetToSingleElement, DatasetCardinality.
#include "ops/data/dataset_op.h"
#include "ops/data/each_element.h"
#include "ops/data/register.h"

namespace troupe {

Status for_each_element(const BlockingRequest& request, const GraphDataset& dataset,
                        const std::function<Result<bool>(Element)>& take) {
  Pass pass;
  pass.functions = request.functions;
  pass.stop = request.stop;
  TROUPE_ASSIGN(const FlowPtr<Element> flow, elements_of(stage_within(dataset))(pass));
  for (;;) {
    if (request.stop.stop_requested()) return make_error(Code::kCancelled, "the step has failed");
    TROUPE_ASSIGN(std::optional<Element> element, flow->next());
    if (!element) return {};
    TROUPE_ASSIGN(const bool more, take(std::move(*element)));
    if (!more) return {};
  }
}

namespace {

class ReduceDatasetKernel final : public BlockingKernel {
 public:
  explicit ReduceDatasetKernel(const KernelInit& init)
      : f_(init, "f"), states_(init.attr<ComponentTypes>("Tstate")), dtypes_(init.output_dtypes),
        shapes_(init.attr<ComponentShapes>("output_shapes")) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    TROUPE_ASSIGN(const GraphDataset dataset, dataset_of(request.inputs[0]));
    const auto states = request.inputs.begin() + 1, captured = states + std::ssize(states_);
    Element state(states, captured);
    TROUPE_RETURN_IF_ERROR(for_each_element(request, dataset, [&](Element element) -> Result<bool> {
      Element arguments = state;
      arguments.insert(arguments.end(), element.begin(), element.end());
      arguments.insert(arguments.end(), captured, request.inputs.end());
      TROUPE_ASSIGN(Element next, f_.call(request.functions, std::move(arguments), request.stop));
      TROUPE_RETURN_IF_ERROR(check_components(next, states_, ComponentShapes(states_.size()), "the function"));
      state = std::move(next);
      return true;
    }));
    if (shapes_.size() != dtypes_.size())
      return invalid_argument("output_shapes are {}, of {} outputs", shapes_.size(), dtypes_.size());
    TROUPE_RETURN_IF_ERROR(check_components(state, dtypes_, shapes_, "the reduction"));
    return state;
  }

 private:
  CarriedFunction f_;
  const ComponentTypes states_, dtypes_;
  const ComponentShapes shapes_;
};

class SingleElementKernel final : public BlockingKernel {
 public:
  explicit SingleElementKernel(const KernelInit& init)
      : dtypes_(init.output_dtypes), shapes_(init.attr<ComponentShapes>("output_shapes")) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    TROUPE_ASSIGN(const GraphDataset dataset, dataset_of(request.inputs[0], "dataset"));
    std::optional<Element> only;
    TROUPE_RETURN_IF_ERROR(for_each_element(request, dataset, [&](Element element) -> Result<bool> {
      if (only) return invalid_argument("the dataset has more than one element");
      only = std::move(element);
      return true;
    }));
    if (!only) return invalid_argument("the dataset has no element");
    if (shapes_.size() != dtypes_.size())
      return invalid_argument("output_shapes are {}, of {} outputs", shapes_.size(), dtypes_.size());
    TROUPE_RETURN_IF_ERROR(check_components(*only, dtypes_, shapes_, "the dataset"));
    return std::move(*only);
  }

 private:
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
};

class CardinalityKernel final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const GraphDataset dataset, dataset_of(c.input(0)));
    const int64_t size = dataset.stage->size();
    // Endless is -1 there, and not known -2.
    c.set_output(0, Tensor::scalar<int64_t>(size == -1 ? -2 : size == -2 ? -1 : size));
    return {};
  }
};

Status given_shapes(ShapeContext& c) {
  const auto& shapes = c.attr<ComponentShapes>("output_shapes");
  if (std::ssize(shapes) != c.num_outputs())
    return invalid_argument("{} output_types but {} output_shapes", c.num_outputs(), shapes.size());
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[static_cast<size_t>(i)]);
  return {};
}

}  // namespace

void register_data_reduce_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const Gradient none = not_differentiable("elements come from a dataset");
  ops.add(OpDef("ReduceDataset")
              .input("input_dataset: variant")
              .input("initial_state: Tstate")
              .input("other_arguments: Targuments")
              .output("components: output_types")
              .attr("f: string")
              .attr("Tstate: list(type) >= 1")
              .attr("Targuments: list(type) >= 0")
              .attr("output_types: list(type) >= 1")
              .attr("output_shapes: list(shape) >= 1")
              .attr("use_inter_op_parallelism: bool = true")
              .attr("metadata: string = ''")
              .doc("The state after all elements: what the function f gives of the state, an element and "
                   "other_arguments is the state for the next one.")
              .shape(given_shapes)
              .cost(move_cost)
              .stateful(),
          none);
  kernels.add<ReduceDatasetKernel>("ReduceDataset", cpu, {});
  ops.add(OpDef("DatasetToSingleElement")
              .input("dataset: variant")
              .output("components: output_types")
              .attr("output_types: list(type) >= 1")
              .attr("output_shapes: list(shape) >= 1")
              .attr("metadata: string = ''")
              .doc("The only element of the dataset. Errors: it has none, or more than one.")
              .shape(given_shapes)
              .cost(move_cost)
              .stateful(),
          none);
  kernels.add<SingleElementKernel>("DatasetToSingleElement", cpu, {});
  ops.add(OpDef("DatasetCardinality")
              .input("input_dataset: variant")
              .output("cardinality: int64")
              .attr("cardinality_options: string = ''")
              .doc("How many elements there are: -1 without end, -2 where that is not known without going over them. "
                   "cardinality_options makes no difference.")
              .shape(scalar_shape)
              .cost(no_cost),
          none);
  kernels.add<CardinalityKernel>("DatasetCardinality", cpu, {});
}

}  // namespace troupe
