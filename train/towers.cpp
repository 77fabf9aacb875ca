// SPDX-License-Identifier: Apache-2.0
// Builds the graph of a Trainer.
//
//   iterator -> queue(s) -> replica 0 .. N-1 -> gradients --(sync: AddN, scale)----------> update -> container
//                                                          --(async: each its own)------->
//                                                          --(hybrid: accumulators, N-k)->  -> tokens -> replicas
// By a ring, with parted state, local: train/copies.cpp.
#include "train/tower_builder.h"

#include <algorithm>

#include "train/evaluation.h"
#include "train/gpus.h"
#include "train/tasks.h"

namespace troupe::nn {
namespace {

// Dequeued tensors of unknown shape get the dataset's, as far as one unknown size allows.
Output with_shape(const Scope& s, Output x, const PartialShape& shape) {
  if (!x || x.shape().has_rank() || !shape.has_rank()) return x;
  std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  if (std::ranges::count(dims, -1) > 1) return x;
  return s.op("Reshape", {x, s.constant(Tensor::of<int32_t>(dims))});
}

}  // namespace

std::string trainer_container(const std::string& name) { return fmt::format("trainer/{}", name); }

// A queue of `name`, as seen from the device of `scope`.
Output TowerBuilder::queue(const Scope& scope, const std::string& name, std::vector<DType> types,
                           std::vector<PartialShape> parts, int64_t capacity, const char* op) const {
  return scope.named(name).op(op, {},
                              {{"component_types", std::move(types)},
                               {"shapes", std::move(parts)},
                               {"capacity", capacity},
                               {"container", trainer_container(options_.name)},
                               {"shared_name", name}});
}

// Whether the batches of a replica are on its GPU before they are needed.
bool TowerBuilder::batches_on_gpu(int replica) const {
  return (own_queues(options_.mode) || replicas() == 1) && any_gpu({&devices_[static_cast<size_t>(replica)], 1});
}

// A queue of batches is on the GPU of the replica it is for. Otherwise, of several tasks one has it: that of the
// replica, so that batches are there before they are needed, or that of the input, from where each batch goes to the
// replica that takes it.
Scope TowerBuilder::at_queue(const Scope& scope, int replica) const {
  if (batches_on_gpu(replica)) return scope.device(devices_[static_cast<size_t>(replica)]);
  if (own_task_.empty()) return scope;
  return scope.in_task_of(own_queues(options_.mode) ? devices_[static_cast<size_t>(replica)] : input_device_);
}

Output TowerBuilder::batch_queue(const Scope& scope, int replica) const {
  const bool own = own_queues(options_.mode);
  return queue(scope, own ? fmt::format("batches_{}", replica) : "batches", dtypes_, shapes_,
               int64_t{options_.queue_capacity} * (own ? 1 : replicas()),
               batches_on_gpu(replica) ? "_DeviceQueue" : "FIFOQueueV2");
}

void TowerBuilder::input() {
  const Scope s = root_.scope("input").device(input_device_), at_dataset = s.in_task_of(own_task_);
  const Output iterator =
      at_dataset.op("IteratorV2", {},
                    {{"shared_name", options_.name},  // the engine's datasets are in the default container
                     {"output_types", dtypes_},
                     {"output_shapes", shapes_}});
  const Node* next =
      at_dataset.node("IteratorGetNext", {iterator}, {{"output_types", dtypes_}, {"output_shapes", shapes_}});
  if (!next) return;
  const int queues = own_queues(options_.mode) ? replicas() : 1;
  for (int i = 0; i < queues; ++i) {
    const Scope there = at_queue(s, i);
    std::vector<Output> inputs = {batch_queue(there, i)};
    for (int port = 0; port < next->num_outputs(); ++port) inputs.push_back(next->out(port));
    towers_.close.targets.push_back(there.node("QueueCloseV2", {inputs[0]}));
    if (queues == 1 && !own_task_.empty()) towers_.count.fetches = {there.op("QueueSizeV2", {inputs[0]})};
    towers_.enqueue.push_back({{}, {}, {there.node("QueueEnqueueV2", std::move(inputs))}});
  }
}

Tower TowerBuilder::tower(int replica) {
  Tower t;
  const Scope s = at(replica).scope(fmt::format("replica_{}", replica));
  Variables& variables = variables_of(replica);
  const Scope queued = at_queue(s, replica);
  const Node* taken =
      queued.named("batch").node("QueueDequeueV2", {batch_queue(queued, replica)}, {{"component_types", dtypes_}});
  if (!taken) return t;
  std::vector<Output> batch;
  for (int port = 0; port < taken->num_outputs(); ++port)
    batch.push_back(with_shape(s, taken->out(port), shapes_[port]));
  variables.reuse();
  const ModelOutputs outputs = checked_outputs(s, model_(s.told_at_each_line(), variables, batch, true));
  if (!s.ok()) return t;
  t.loss = outputs.loss;
  t.accuracy = outputs.accuracy;
  t.updates = variables.take_updates();
  // Rows of the first component.
  const Output sizes = s.op("Shape", {batch[0]});
  const auto ints = [&](int32_t x) { return s.constant(Tensor::of<int32_t>({x})); };
  t.examples = s.named("examples").op("Slice", {sizes, ints(0), ints(1)});
  auto found = variable_gradients(s, variables, t.loss, options_.gradients);
  if (!found.ok()) s.fail(found.error());
  else t.gradients = std::move(*found);
  return t;
}

std::vector<Tower> TowerBuilder::all_towers() {
  std::vector<Tower> all;
  for (int i = 0; i < replicas() && root_.ok(); ++i) all.push_back(tower(i));
  return all;
}

namespace {

Output mean(const Scope& s, const std::vector<Output>& xs) {
  if (xs.size() == 1) return xs[0];
  return s.op("Mul", {s.op("AddN", xs), s.constant(1.f / static_cast<float>(xs.size()))});
}

// Rows stay rows: no replica sends a table.
Gradient mean_gradient(const Scope& s, const std::vector<std::vector<Gradient>>& gradients, size_t v) {
  std::vector<Output> values, indices;
  for (const auto& own : gradients) values.push_back(own[v].value), indices.push_back(own[v].indices);
  if (values.size() == 1) return {values[0], indices[0]};
  const Output share =
      s.op("Cast", {s.constant(1.0 / static_cast<double>(values.size()))}, {{"DstT", values[0].dtype()}});
  if (!indices[0]) return {s.op("Mul", {s.op("AddN", values), share}), {}};
  return {s.op("Mul", {joined(s, values), share}), joined(s, indices)};
}

}  // namespace

StepSpec TowerBuilder::step_of(const std::vector<Tower>& towers) {
  const Scope s = chief().scope("average");
  const auto each = [&](auto member) {
    std::vector<Output> xs;
    for (const Tower& t : towers) xs.push_back(t.*member);
    return xs;
  };
  const auto counts = each(&Tower::examples);
  return {{},
          {mean(s, each(&Tower::loss)), mean(s, each(&Tower::accuracy)),
           counts.size() == 1 ? counts[0] : s.op("AddN", counts)},
          towers[0].updates};
}

void TowerBuilder::sync() {
  const std::vector<Tower> all = all_towers();
  if (!root_.ok()) return;
  const std::vector<size_t> members = trained(all);
  if (!root_.ok()) return;
  StepSpec step = step_of(all);
  const Scope s = chief().scope("average");
  const auto gradients = gradients_of(s, all);
  std::vector<Gradient> averages(gradients[0].size());
  const std::vector<Variable> variables = variables_.trainable();
  for (const size_t v : members) averages[v] = mean_gradient(variables_.home(s, variables[v].name), gradients, v);
  step.targets.push_back(apply_updates(chief(), variables_, options_.optimizer, std::move(averages)));
  towers_.replicas.push_back(std::move(step));
}

void TowerBuilder::async() {
  for (int i = 0; i < replicas() && root_.ok(); ++i) {
    Tower t = tower(i);
    if (!root_.ok()) return;
    const Scope s = at(i).scope(fmt::format("replica_{}/apply", i));
    StepSpec step{{}, {t.loss, t.accuracy, t.examples}, t.updates};
    step.targets.push_back(apply_updates(s, variables_, options_.optimizer, gradients_of(s, t)));
    towers_.replicas.push_back(std::move(step));
  }
}

// As TensorFlow's SyncReplicasOptimizer: an accumulator for each variable, in its task, drops gradients whose local
// step is behind, and a queue of tokens tells replicas the step to go on with.
void TowerBuilder::hybrid() {
  const std::vector<Tower> towers = all_towers();
  if (!root_.ok()) return;
  const std::vector<Variable> all = variables_.trainable();
  const std::vector<size_t> members = trained(towers);
  if (!root_.ok()) return;
  const auto gradients = gradients_of(root_.scope("push"), towers);
  const auto of_rows = [&](size_t v) { return static_cast<bool>(gradients[0][v].indices); };
  const auto accumulator = [&](const Scope& s, size_t v) {
    return s.named(all[v].name + "/accumulator")
        .op(of_rows(v) ? "SparseConditionalAccumulator" : "ResourceConditionalAccumulator", {},
            {{"dtype", all[v].dtype},
             {"shape", PartialShape(all[v].shape)},
             {"reduction_type", of_rows(v) ? "MEAN_OF_ALL" : "MEAN"},
             {"container", trainer_container(options_.name)},
             {"shared_name", all[v].name}});
  };
  for (int i = 0; i < replicas(); ++i) {
    const Tower& t = towers[static_cast<size_t>(i)];
    const Scope s = at(i).scope(fmt::format("replica_{}/push", i));
    const Output local_step =
        s.named("local_step").op("Placeholder", {}, {{"dtype", DType::kInt64}, {"shape", PartialShape::scalar()}});
    StepSpec step{{local_step}, {t.loss, t.accuracy, t.examples}, t.updates};
    for (const size_t v : members) {
      const Gradient& g = gradients[static_cast<size_t>(i)][v];
      const Scope home = variables_.home(s, all[v].name);
      Attrs attrs{{"replica", int64_t{i}}};
      if (!of_rows(v)) {
        step.targets.push_back(
            home.node("ResourceAccumulatorApplyGradient", {accumulator(home, v), local_step, g.value}, attrs));
        continue;
      }
      attrs.set("has_known_shape", false);
      const Output rows = s.op("Cast", {g.indices}, {{"DstT", DType::kInt64}});
      const Output any_shape = home.constant(Tensor::of<int64_t>({}));
      step.targets.push_back(home.node("SparseAccumulatorApplyGradient",
                                       {accumulator(home, v), local_step, rows, g.value, any_shape}, attrs));
    }
    towers_.replicas.push_back(std::move(step));
  }
  // With the variables, so that no replica's task has what the others need.
  const Scope s =
      (options_.variable_devices.empty() ? chief() : root_.device(options_.variable_devices[0])).scope("aggregate");
  const Output needed = s.constant(static_cast<int32_t>(replicas() - options_.backups));
  const Output new_step =
      s.named("new_step").op("Placeholder", {}, {{"dtype", DType::kInt64}, {"shape", PartialShape::scalar()}});
  towers_.set_step.feeds = {new_step};
  std::vector<Gradient> averages(all.size());
  for (const size_t v : members) {
    const Scope home = variables_.home(s, all[v].name);
    const Output handle = accumulator(home, v);
    const Node* take = home.node(of_rows(v) ? "SparseAccumulatorTakeGradient" : "ResourceAccumulatorTakeGradient",
                                 {handle, needed}, {{"dtype", all[v].dtype}});
    if (!take) return;
    averages[v] = of_rows(v) ? Gradient{take->out(1), take->out(0)} : Gradient{take->out(0), {}};
    towers_.set_step.targets.push_back(home.node("ResourceAccumulatorSetGlobalStep", {handle, new_step}));
  }
  const Node* update = apply_updates(s, variables_, options_.optimizer, std::move(averages));
  if (!update) return;
  const Output tokens = queue(s, "tokens", {DType::kInt64}, {PartialShape::scalar()}, -1);
  // Read again: the value before the update is known under another name.
  const Output step = variables_.home(s.after(std::vector<const Node*>{update}), "global_step")
                          .op("ReadVariableOp", {variables_.global_step_handle(s)}, {{"dtype", DType::kInt64}});
  const Output many = s.op("Fill", {s.constant(Tensor::of<int32_t>({replicas()})), step});
  towers_.update.targets = {s.node("QueueEnqueueManyV2", {tokens, many})};
  towers_.token.fetches = {s.op("QueueDequeueV2", {tokens}, {{"component_types", std::vector{DType::kInt64}}})};
}

std::vector<Output> TowerBuilder::fed_batch(const Scope& scope) const {
  std::vector<Output> batch;
  for (size_t c = 0; c < dtypes_.size(); ++c) {
    PartialShape shape = shapes_[c];
    if (shape.has_rank() && shape.rank() > 0) shape.set(0, -1);  // the last batch may be smaller
    batch.push_back(scope.op("Placeholder", {}, {{"dtype", dtypes_[c]}, {"shape", shape}}));
  }
  return batch;
}

// The sizes of all are known once the model was written: in a graph that never runs.
void TowerBuilder::spread_variables() {
  const std::vector<std::string>& on = options_.variable_devices;
  if (on.empty()) return;
  Graph draft(root_.graph().ops());
  const Scope s = Scope(draft).device(devices_[0]).scope("replica_0");
  Variables found(options_.container, options_.seed);
  checked_outputs(s, model_(s, found, fed_batch(s), true));
  found.global_step(s);
  if (!s.ok()) return root_.fail(s.status().error());
  std::vector<Variable> all = found.all();
  const auto bytes = [](const Variable& v) { return v.shape.elements() * static_cast<int64_t>(size_of(v.dtype)); };
  std::ranges::stable_sort(all, std::greater(), bytes);
  std::vector<int64_t> loads(on.size());
  for (const Variable& v : all) {
    const auto least = std::ranges::min_element(loads);
    *least += bytes(v);
    variables_.set_home(v.name, on[static_cast<size_t>(least - loads.begin())]);
  }
}

void TowerBuilder::tests() {
  std::vector<std::string> distinct;
  for (const std::string& d : devices_)
    if (std::ranges::find(distinct, d) == distinct.end()) distinct.push_back(d);
  for (size_t i = 0; i < distinct.size() && root_.ok(); ++i) {
    const Scope s = root_.device(distinct[i]).scope(fmt::format("test_{}", i));
    StepSpec step{fed_batch(s), {}, {}};
    variables_.reuse();
    const ModelOutputs outputs = checked_outputs(s, model_(s.told_at_each_line(), variables_, step.feeds, false));
    if (!root_.ok()) return;
    step.fetches = {outputs.loss, outputs.accuracy};
    towers_.tests.push_back(std::move(step));
    towers_.tested.push_back(distinct[i]);
  }
}

TowerBuilder::TowerBuilder(const Scope& scope, Variables& variables, const ModelFn& model, const Dataset& batches,
                           const TrainerOptions& options, const std::string& own_task)
    : root_(scope), variables_(variables), model_(model), options_(options), own_task_(own_task),
      dtypes_(batches.dtypes()), shapes_(batches.shapes()), devices_(options.devices),
      input_device_(options.input_device), reduce_(scope.scope("reduce")) {
  shapes_.resize(dtypes_.size());
  if (devices_.empty()) devices_ = {own_task_};
  if (input_device_.empty())
    input_device_ = in_other_task(scope.graph().ops(), devices_[0], own_task_) ? own_task_ : devices_[0];
}

Status TowerBuilder::check() const {
  const TrainerOptions& o = options_;
  const auto refuse = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    return invalid_argument("trainer '{}': {}", o.name, fmt::format(text, std::forward<Args>(args)...));
  };
  if (o.name.empty()) return invalid_argument("a trainer needs a name: TrainerOptions::name is empty");
  if (dtypes_.empty()) return refuse("the dataset has no components");
  if (!o.optimizer.update || !o.optimizer.rate) return refuse("no optimizer");
  if (o.queue_capacity < 1) return refuse("queue_capacity is {}, at least 1 is needed", o.queue_capacity);
  const bool hybrid = o.mode == ReplicaMode::kHybrid;
  if (o.backups < 0 || o.backups >= replicas() || (o.backups > 0 && !hybrid))
    return refuse("{} backups of {} replicas{}", o.backups, replicas(),
                  hybrid ? "" : "; only the hybrid mode has backups");
  const bool ring = o.mode == ReplicaMode::kSync && o.reduce == ReduceBy::kRing;
  if (o.reduce == ReduceBy::kRing && !ring) return refuse("only the synchronous mode reduces gradients by a ring");
  if (o.shard_optimizer_state && !ring)
    return refuse("shard_optimizer_state needs the synchronous mode, with gradients reduced by a ring");
  if (!o.variable_devices.empty() && (ring || o.mode == ReplicaMode::kLocal))
    return refuse("{} variable_devices; replicas by a ring and local ones keep variables of their own",
                  o.variable_devices.size());
  if (o.bucket_bytes < 1) return refuse("bucket_bytes is {}, at least 1 is needed", o.bucket_bytes);
  if (o.max_staleness < -1) return refuse("max_staleness is {}; -1 is without bound", o.max_staleness);
  if (o.max_staleness >= 0 && o.mode != ReplicaMode::kAsync)
    return refuse("max_staleness is {}; only the asynchronous mode has a bound", o.max_staleness);
  if (o.local_steps < 1) return refuse("local_steps is {}, at least 1 is needed", o.local_steps);
  if (o.local_steps > 1 && o.mode != ReplicaMode::kLocal)
    return refuse("local_steps is {}; only the local mode has them", o.local_steps);
  return {};
}

Result<Towers> TowerBuilder::build() {
  TROUPE_RETURN_IF_ERROR(check());
  spread_variables();
  input();
  const bool ring_mode = options_.reduce == ReduceBy::kRing;
  switch (options_.mode) {
    case ReplicaMode::kSync: ring_mode ? options_.shard_optimizer_state ? sharded() : ring() : sync(); break;
    case ReplicaMode::kAsync: async(); break;
    case ReplicaMode::kHybrid: hybrid(); break;
    case ReplicaMode::kLocal: local(); break;
  }
  if (root_.ok()) tests();
  variables_.take_updates();
  towers_.global_step = variables_.global_step(chief());
  if (root_.ok()) publish();
  TROUPE_RETURN_IF_ERROR(root_.status());
  for (int i = 0; i <= static_cast<int>(towers_.copies.size()); ++i)
    for (const Node* node : variables_of(i).initializers()) towers_.initialise.push_back(node);
  return std::move(towers_);
}

Result<Towers> build_towers(const Scope& scope, Variables& variables, const ModelFn& model, const Dataset& batches,
                            const TrainerOptions& options, const std::string& own_task) {
  return TowerBuilder(scope, variables, model, batches, options, own_task).build();
}

}  // namespace troupe::nn
