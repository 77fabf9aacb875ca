// SPDX-License-Identifier: Apache-2.0
// Iterators over datasets of the graph: what makes them, gives them a dataset and asks them in other ways than
// IteratorGetNext does (ops/input/iterator.cpp).
#include <charconv>

#include "ops/data/dataset_op.h"
#include "ops/data/register.h"
#include "ops/input/iterator_resource.h"
#include "ops/parts/resource_kernel.h"
#include "troupe/tensor_list.h"

namespace troupe {
namespace {

constexpr std::string_view kIteratorText = "iterator ";

/// An iterator over the dataset that a function gives when its first element is asked for.
Result<std::unique_ptr<ComputeKernel>> one_shot_handle(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "iterator");
  handle.input = true;
  auto factory = std::make_shared<CarriedFunction>(init, "dataset_factory");
  const auto make = [factory](const Pass& pass) -> Result<StagePtr> {
    TROUPE_ASSIGN(const Element made, factory->call(pass.functions, {}, pass.stop));
    if (made.size() != 1) return invalid_argument("dataset_factory gave {} values, not a dataset", made.size());
    TROUPE_ASSIGN(const GraphDataset dataset, dataset_of(made[0], "what dataset_factory gives"));
    if (pass.ahead) *pass.ahead = dataset.ahead;
    return dataset.stage;
  };
  const StagePtr stage =
      make_late_stage(make, init.attr<ComponentTypes>("output_types"), init.attr<ComponentShapes>("output_shapes"));
  handle.factory = [stage]() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(std::make_unique<IteratorResource>(stage, 0));
  };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

/// Answers of IteratorGetNext as an optional: one without a value at the end.
class OptionalReply final : public ReplySink {
 public:
  static Reply wrap(Reply reply, ComponentTypes dtypes) {
    const RequestTag tag = reply.tag();
    return Reply(*new OptionalReply(std::move(reply), std::move(dtypes)), tag);
  }
  void deliver(const RequestTag&, Result<std::vector<Tensor>> outputs) override {
    const std::unique_ptr<OptionalReply> self(this);
    if (!outputs.ok() && outputs.error().code != Code::kOutOfRange) return reply_(std::move(outputs));
    TensorList list;
    if (outputs.ok()) {
      Status fits = check_components(*outputs, dtypes_, ComponentShapes(dtypes_.size()), "the iterator");
      if (!fits.ok()) return reply_(std::move(fits.error()));
      list.elements = std::move(*outputs);
    }
    reply_(std::vector<Tensor>{list_tensor(std::move(list))});
  }

 private:
  OptionalReply(Reply reply, ComponentTypes dtypes) : reply_(std::move(reply)), dtypes_(std::move(dtypes)) {}
  Reply reply_;
  const ComponentTypes dtypes_;
};

class NextAsOptionalKernel final : public ResourceKernel {
 public:
  explicit NextAsOptionalKernel(const KernelInit& init) : dtypes_(init.attr<ComponentTypes>("output_types")) {}
  void execute(Resource& resource, ResourceRequest request) override {
    if (auto* iterator = iterator_of(resource, request))
      iterator->get_next(OptionalReply::wrap(std::move(request.reply), dtypes_));
  }

 private:
  const ComponentTypes dtypes_;
};

/// The text that stands for an iterator: what its handle says of it, with the length of the container before it. Runs
/// at the iterator's host, so that there is one for whoever gets the text.
class HandleToText final : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) override {
    if (!core_as<IteratorResource>(resource, request, "dataset iterator")) return;
    const ResourceHandle& handle = request.handle();
    request.reply(std::vector<Tensor>{Tensor::scalar(
        fmt::format("{}{}:{}{}", kIteratorText, handle.container.size(), handle.container, handle.name))});
  }
};

class HandleFromText final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& t = c.input(0);
    if (t.elements() != 1) return invalid_argument("string_handle must be a scalar, not {}", t.str());
    std::string_view text = t.data<std::string>()[0];
    const auto wrong = [&] {
      return invalid_argument("'{}' does not stand for an iterator", t.data<std::string>()[0]);
    };
    if (!text.starts_with(kIteratorText)) return wrong();
    text.remove_prefix(kIteratorText.size());
    size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (error != std::errc() || !text.starts_with(':') || length > text.size() - 1) return wrong();
    ResourceHandle handle;
    handle.type = "iterator";
    handle.input = true;
    handle.container = text.substr(1, length);
    handle.name = text.substr(1 + length);
    handle.factory = [name = handle.name]() -> Result<std::unique_ptr<Resource>> {
      return make_error(Code::kNotFound, "there is no iterator '{}' any more", name);
    };
    c.set_output(0, Tensor::scalar<ResourceRef>(std::make_shared<const ResourceHandle>(std::move(handle))));
    return {};
  }
};

class SetDatasetKernel final : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) override {
    auto* iterator = iterator_of(resource, request);
    if (!iterator) return;
    auto dataset = dataset_of(request.inputs[1], "dataset");
    if (!dataset.ok()) return request.reply(std::move(dataset.error()));
    iterator->set_dataset(dataset->stage, dataset->ahead);
    request.reply(std::vector<Tensor>());
  }
};

/// A new iterator each time, and what would delete it in TensorFlow.
class NewIteratorKernel final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    c.set_output(0, Tensor::scalar<ResourceRef>(std::make_shared<const AnonymousIterator>()));
    if (c.num_outputs() > 1) c.set_output(1, list_tensor({}));
    return {};
  }
};

class DeleteIteratorKernel final : public ComputeKernel {
 public:
  Status compute(KernelContext&) override { return {}; }  // it goes with the last of its handles
};

}  // namespace

void register_data_iterator_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const Gradient none = not_differentiable("iterators are not numbers");
  ops.add(OpDef("OneShotIterator")
              .output("handle: resource")
              .attr("dataset_factory: string")
              .attr("output_types: list(type) >= 1")
              .attr("output_shapes: list(shape) >= 1")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .doc("A handle to an iterator over the dataset that the function dataset_factory, a GraphDef, gives when "
                   "the first element is asked for.")
              .shape(scalar_shape)
              .stateful(),
          none);
  kernels.add("OneShotIterator", cpu, {}, one_shot_handle);
  for (const char* name : {"AnonymousIterator", "AnonymousIteratorV2", "AnonymousIteratorV3"}) {
    OpDef def(name);
    def.output("handle: resource");
    if (name == std::string_view("AnonymousIteratorV2")) def.output("deleter: variant");
    ops.add(def.attr("output_types: list(type) >= 1")
                .attr("output_shapes: list(shape) >= 1")
                .doc("A handle to a new iterator without a name, which lives as long as its handle and gets its "
                     "dataset from a MakeIterator.")
                .shape(scalar_shape)
                .cost(no_cost)
                .stateful(),
            none);
    kernels.add<NewIteratorKernel>(name, cpu, {});
  }
  ops.add(OpDef("DeleteIterator")
              .input("handle: resource")
              .input("deleter: variant")
              .doc("Does nothing: an iterator without a name goes with the last reference to it.")
              .shape(no_outputs)
              .cost(no_cost)
              .stateful(),
          none);
  kernels.add<DeleteIteratorKernel>("DeleteIterator", cpu, {});
  ops.add(OpDef("IteratorGetNextAsOptional")
              .input("iterator: resource")
              .output("optional: variant")
              .attr("output_types: list(type) >= 1")
              .attr("output_shapes: list(shape) >= 1")
              .doc("The next element of the dataset as an optional, which has no value at the end; waits for it.")
              .shape(scalar_shape)
              .cost(no_cost)
              .stateful(),
          none);
  kernels.add<NextAsOptionalKernel>("IteratorGetNextAsOptional", cpu, {});
  ops.add(OpDef("IteratorToStringHandle")
              .input("resource_handle: resource")
              .output("string_handle: string")
              .doc("A text that stands for the iterator, as long as there is one.")
              .shape(scalar_shape)
              .cost(no_cost)
              .stateful(),
          none);
  kernels.add<HandleToText>("IteratorToStringHandle", cpu, {});
  for (const char* name : {"IteratorFromStringHandle", "IteratorFromStringHandleV2"}) {
    ops.add(OpDef(name)
                .input("string_handle: string")
                .output("resource_handle: resource")
                .attr("output_types: list(type) >= 0 = []")
                .attr("output_shapes: list(shape) >= 0 = []")
                .doc("The iterator that a text of IteratorToStringHandle stands for. Error: it stands for none.")
                .shape(scalar_shape)
                .cost(no_cost)
                .stateful(),
            none);
    kernels.add<HandleFromText>(name, cpu, {});
  }
  ops.add(OpDef("_SetIteratorDataset")
              .input("iterator: resource")
              .input("dataset: variant")
              .doc("Lets the iterator begin with the first element of the dataset. Graphs have MakeIterator, which "
                   "becomes this when they are read.")
              .shape(no_outputs)
              .cost(no_cost)
              .stateful(),
          none);
  kernels.add<SetDatasetKernel>("_SetIteratorDataset", cpu, {});
}

}  // namespace troupe
