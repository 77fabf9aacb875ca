// SPDX-License-Identifier: Apache-2.0
// Builds the graph of a Trainer.
//
//   iterator -> queue(s) -> replica 0 .. N-1 -> gradients --(sync: AddN, scale)----------> update -> container
//                                                          --(async: each its own)------->
//                                                          --(hybrid: accumulators, N-k)->  -> tokens -> replicas
#include "nn/towers.h"

#include <algorithm>

namespace troupe::nn {
namespace {

struct Builder {
  const Scope& root;
  Variables& variables;
  const ModelFn& model;
  const TrainerOptions& options;
  std::vector<DType> dtypes;
  std::vector<PartialShape> shapes;
  std::vector<std::string> devices;
  Towers towers = {};

  int replicas() const { return static_cast<int>(devices.size()); }
  Scope chief() const { return root.device(devices[0]); }

  // A queue of `name`, as seen from the device of `scope`.
  Output queue(const Scope& scope, const std::string& name, std::vector<DType> types, std::vector<PartialShape> parts,
               int64_t capacity) const {
    return scope.named(name).op("FIFOQueueV2", {},
                                {{"component_types", std::move(types)},
                                 {"shapes", std::move(parts)},
                                 {"capacity", capacity},
                                 {"container", options.container},
                                 {"shared_name", options.name + "/" + name}});
  }
  // The queue that feeds a replica: its own in kSync, so that batch i always goes to replica i modulo N.
  Output batch_queue(const Scope& scope, int replica) const {
    const bool own = options.mode == ReplicaMode::kSync;
    return queue(scope, own ? fmt::format("batches_{}", replica) : "batches", dtypes, shapes,
                 options.queue_capacity * (own ? 1 : replicas()));
  }

  void input() {
    const Scope s = root.scope("input").device(options.input_device.empty() ? devices[0] : options.input_device);
    const Output iterator = s.op("IteratorV2", {},
                                 {{"shared_name", options.name},  // the engine's datasets are in the default container
                                  {"output_types", dtypes},
                                  {"output_shapes", shapes}});
    const Node* next = s.node("IteratorGetNext", {iterator}, {{"output_types", dtypes}, {"output_shapes", shapes}});
    if (!next) return;
    const int queues = options.mode == ReplicaMode::kSync ? replicas() : 1;
    for (int i = 0; i < queues; ++i) {
      std::vector<Output> inputs = {batch_queue(s, i)};
      for (int port = 0; port < next->num_outputs(); ++port) inputs.push_back(next->out(port));
      towers.close.targets.push_back(s.node("QueueCloseV2", {inputs[0]}));
      towers.enqueue.push_back({{}, {}, {s.node("QueueEnqueueV2", std::move(inputs))}});
    }
  }

  struct Tower {
    Output loss, accuracy, examples;
    std::vector<Output> gradients;
    std::vector<const Node*> updates;
  };

  Tower tower(int replica) {
    Tower t;
    const Scope s = root.scope(fmt::format("replica_{}", replica)).device(devices[replica]);
    const Node* taken =
        s.named("batch").node("QueueDequeueV2", {batch_queue(s, replica)}, {{"component_types", dtypes}});
    if (!taken) return t;
    std::vector<Output> batch;
    for (int port = 0; port < taken->num_outputs(); ++port)
      batch.push_back(with_shape(s, taken->out(port), shapes[port]));
    const ModelOutputs outputs = model(s, variables, batch, true);
    if (!s.ok()) return t;
    if (!outputs.loss) {
      s.fail(invalid_argument("the model gives no loss"));
      return t;
    }
    t.loss = outputs.loss;
    t.accuracy = outputs.accuracy ? outputs.accuracy : s.constant(0.f);
    t.updates = variables.take_updates();
    // Rows of the first component.
    const Output sizes = s.op("Shape", {batch[0]});
    const auto ints = [&](int32_t x) { return s.constant(Tensor::of<int32_t>({x})); };
    t.examples = s.named("examples").op("Slice", {sizes, ints(0), ints(1)});
    const std::vector<Output> xs = variables.trainable_reads(s);
    auto found = gradients(s, {t.loss}, xs, {}, {}, options.gradients);
    if (!found.ok()) s.fail(found.error());
    else t.gradients = std::move(*found);
    return t;
  }

  // Dequeued tensors of unknown shape get the dataset's, as far as one unknown size allows.
  static Output with_shape(const Scope& s, Output x, const PartialShape& shape) {
    if (!x || x.shape().has_rank() || !shape.has_rank()) return x;
    std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
    if (std::ranges::count(dims, -1) > 1) return x;
    return s.op("Reshape", {x, s.constant(Tensor::of<int32_t>(dims))});
  }

  void sync() {
    std::vector<Tower> all;
    for (int i = 0; i < replicas() && root.ok(); ++i) all.push_back(tower(i));
    if (!root.ok()) return;
    const Scope s = chief().scope("average");
    const auto mean = [&](const std::vector<Output>& xs) {
      if (xs.size() == 1) return xs[0];
      return s.op("Mul", {s.op("AddN", xs), s.constant(1.f / static_cast<float>(xs.size()))});
    };
    const auto each = [&](auto member) {
      std::vector<Output> xs;
      for (const Tower& t : all) xs.push_back(t.*member);
      return xs;
    };
    std::vector<Output> averages;
    for (size_t v = 0; v < all[0].gradients.size(); ++v) {
      std::vector<Output> parts;
      for (const Tower& t : all)
        if (t.gradients[v]) parts.push_back(t.gradients[v]);
      averages.push_back(parts.empty() ? Output{} : mean(parts));
    }
    const auto counts = each(&Tower::examples);
    StepSpec step{
        {},
        {mean(each(&Tower::loss)), mean(each(&Tower::accuracy)), counts.size() == 1 ? counts[0] : s.op("AddN", counts)},
        all[0].updates};
    step.targets.push_back(apply_gradients(chief(), variables, options.optimizer, std::move(averages)));
    towers.replicas.push_back(std::move(step));
  }

  void async() {
    for (int i = 0; i < replicas() && root.ok(); ++i) {
      Tower t = tower(i);
      if (!root.ok()) return;
      const Scope s = root.device(devices[i]).scope(fmt::format("replica_{}/apply", i));
      StepSpec step{{}, {t.loss, t.accuracy, t.examples}, std::move(t.updates)};
      step.targets.push_back(apply_gradients(s, variables, options.optimizer, std::move(t.gradients)));
      towers.replicas.push_back(std::move(step));
    }
  }

  // As TensorFlow's SyncReplicasOptimizer: an accumulator for each variable drops gradients whose local step is
  // behind, and a queue of tokens tells replicas the step to go on with.
  void hybrid() {
    const auto accumulator = [&](const Scope& s, const Variable& v) {
      return s.named(v.name + "/accumulator")
          .op("ResourceConditionalAccumulator", {},
              {{"dtype", v.dtype},
               {"shape", PartialShape(v.shape)},
               {"reduction_type", "MEAN"},
               {"container", options.container},
               {"shared_name", options.name + "/" + v.name}});
    };
    std::vector<bool> trained;
    for (int i = 0; i < replicas() && root.ok(); ++i) {
      Tower t = tower(i);
      if (!root.ok()) return;
      const Scope s = root.device(devices[i]).scope(fmt::format("replica_{}/push", i));
      const Output local_step =
          s.named("local_step").op("Placeholder", {}, {{"dtype", DType::kInt64}, {"shape", PartialShape::scalar()}});
      StepSpec step{{local_step}, {t.loss, t.accuracy, t.examples}, std::move(t.updates)};
      const std::vector<Variable> all = variables.trainable();
      trained.resize(all.size());
      for (size_t v = 0; v < all.size(); ++v) {
        if (!t.gradients[v]) continue;
        trained[v] = true;
        step.targets.push_back(s.node("ResourceAccumulatorApplyGradient",
                                      {accumulator(s, all[v]), local_step, t.gradients[v]}, {{"replica", int64_t{i}}}));
      }
      towers.replicas.push_back(std::move(step));
    }
    if (!root.ok()) return;
    const Scope s = chief().scope("aggregate");
    const Output needed = s.constant(static_cast<int32_t>(replicas() - options.backups));
    const Output new_step =
        s.named("new_step").op("Placeholder", {}, {{"dtype", DType::kInt64}, {"shape", PartialShape::scalar()}});
    towers.set_step.feeds = {new_step};
    std::vector<Output> averages;
    const std::vector<Variable> all = variables.trainable();
    for (size_t v = 0; v < all.size(); ++v) {
      averages.push_back({});
      if (!trained[v]) continue;
      const Output handle = accumulator(s, all[v]);
      averages.back() = s.op("ResourceAccumulatorTakeGradient", {handle, needed}, {{"dtype", all[v].dtype}});
      towers.set_step.targets.push_back(s.node("ResourceAccumulatorSetGlobalStep", {handle, new_step}));
    }
    const Node* update = apply_gradients(chief(), variables, options.optimizer, std::move(averages));
    if (!update) return;
    const Output tokens = queue(s, "tokens", {DType::kInt64}, {PartialShape::scalar()}, -1);
    // Read again: the value before the update is known under another name.
    const Output step = s.after(std::vector<const Node*>{update})
                            .op("ReadVariableOp", {variables.global_step_handle(chief())}, {{"dtype", DType::kInt64}});
    const Output many = s.op("Fill", {s.constant(Tensor::of<int32_t>({replicas()})), step});
    towers.update.targets = {s.node("QueueEnqueueManyV2", {tokens, many})};
    towers.token.fetches = {s.op("QueueDequeueV2", {tokens}, {{"component_types", std::vector{DType::kInt64}}})};
  }

  void tests() {
    std::vector<std::string> distinct;
    for (const std::string& d : devices)
      if (std::ranges::find(distinct, d) == distinct.end()) distinct.push_back(d);
    for (size_t i = 0; i < distinct.size() && root.ok(); ++i) {
      const Scope s = root.device(distinct[i]).scope(fmt::format("test_{}", i));
      StepSpec step;
      for (size_t c = 0; c < dtypes.size(); ++c) {
        PartialShape shape = shapes[c];
        if (shape.has_rank() && shape.rank() > 0) shape.set(0, -1);  // the last batch may be smaller
        step.feeds.push_back(s.op("Placeholder", {}, {{"dtype", dtypes[c]}, {"shape", shape}}));
      }
      const ModelOutputs outputs = model(s, variables, step.feeds, false);
      if (!root.ok()) return;
      step.fetches = {outputs.loss, outputs.accuracy ? outputs.accuracy : s.constant(0.f)};
      towers.tests.push_back(std::move(step));
    }
  }
};

}  // namespace

Result<Towers> build_towers(const Scope& scope, Variables& variables, const ModelFn& model, const Dataset& batches,
                            const TrainerOptions& options) {
  Builder b{scope, variables, model, options, batches.dtypes(), batches.shapes(), options.devices};
  if (b.dtypes.empty()) return invalid_argument("trainer '{}': the dataset has no components", options.name);
  b.shapes.resize(b.dtypes.size());
  if (b.devices.empty()) b.devices = {""};
  if (!options.optimizer.update || !options.optimizer.rate)
    return invalid_argument("trainer '{}': no optimizer", options.name);
  if (options.queue_capacity < 1)
    return invalid_argument("trainer '{}': queue_capacity is {}, at least 1 is needed", options.name,
                            options.queue_capacity);
  if (options.backups < 0 || options.backups >= b.replicas() ||
      (options.backups > 0 && options.mode != ReplicaMode::kHybrid))
    return invalid_argument("trainer '{}': {} backups of {} replicas{}", options.name, options.backups, b.replicas(),
                            options.mode == ReplicaMode::kHybrid ? "" : "; only the hybrid mode has backups");
  b.input();
  switch (options.mode) {
    case ReplicaMode::kSync: b.sync(); break;
    case ReplicaMode::kAsync: b.async(); break;
    case ReplicaMode::kHybrid: b.hybrid(); break;
  }
  if (scope.ok()) b.tests();
  variables.take_updates();
  b.towers.global_step = variables.global_step(b.chief());
  TROUPE_RETURN_IF_ERROR(scope.status());
  b.towers.initialise = variables.initializers();
  return std::move(b.towers);
}

}  // namespace troupe::nn
