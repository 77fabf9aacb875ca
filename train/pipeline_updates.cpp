// SPDX-License-Identifier: Apache-2.0
// Sums of gradients and updates of a Pipeline.
#include "nn/updates.h"
#include "train/pipeline_builder.h"

namespace troupe::nn {

Status PipelineBuilder::finish(Replica& r, Place place) {
  const std::vector<Variable> trainable = draft_.variables.trainable();
  const bool updates = place == Place::kLast || place == Place::kOnly;
  std::vector<std::vector<const Node*>> summed(static_cast<size_t>(stages_));
  std::vector<std::vector<const Node*>> passed = r.sinks;
  std::vector<const Node*> turns;
  std::vector<Output> sums(trainable.size());
  for (int k = 0; k < stages_; ++k) {
    turns.push_back(await(at(r, k), of_stage("summed", k), out_.micro_batch));
    summed[size_t(k)].push_back(turns.back());
  }
  for (size_t i = 0; i < trainable.size(); ++i) {
    if (!draft_.gradients[i]) continue;
    const int k = stage(*draft_.gradients[i].node);
    const Output gradient = r.copier.now(draft_.gradients[i]);
    const Scope s = troupe::nn::at(at(r, k), gradient);
    if (place == Place::kOnly) {
      sums[i] = s.after(std::vector<const Node*>{turns[size_t(k)]}).named("gradient").op("Identity", {gradient});
      continue;
    }
    const Variable& v = trainable[i];
    const Output sum = sums_[size_t(k)].handle(s, v.name, v.shape, zeros(), false, v.dtype);
    const Scope home = sums_[size_t(k)].home(s, v.name);
    const Node* add = home.after(std::vector<const Node*>{turns[size_t(k)]})
                          .named("sum")
                          .node(place == Place::kFirst ? "AssignVariableOp" : "AssignAddVariableOp", {sum, gradient});
    summed[size_t(k)].push_back(add);
    passed[size_t(k)].push_back(add);
    if (updates)
      sums[i] =
          home.after(std::vector<const Node*>{add}).named("gradient").op("ReadVariableOp", {sum}, {{"dtype", v.dtype}});
  }
  TROUPE_RETURN_IF_ERROR(root_.status());
  std::vector<const Node*>& targets = r.targets[place] = r.signals;
  if (updates) TROUPE_RETURN_IF_ERROR(update(r, trainable, std::move(sums), turns, summed, targets));
  for (int k = 0; k < stages_; ++k) {
    const Scope s = at(r, k);
    targets.push_back(advance(s, of_stage("summed", k), summed[size_t(k)]));
    // A pass is over when its gradients are summed up. It never waits for an update: that may wait for other passes.
    targets.push_back(advance(s, of_device("done", r, k), passed[size_t(k)]));
  }
  if (r.number == 0)
    for (const Node* moving : draft_.updates) targets.push_back(r.copier.find(*moving));
  return root_.status();
}

Status PipelineBuilder::update(Replica& r, const std::vector<Variable>& trainable, std::vector<Output> gradients,
                               const std::vector<const Node*>& turns, std::vector<std::vector<const Node*>>& done,
                               std::vector<const Node*>& targets) {
  TROUPE_ASSIGN(gradients, clip(r, std::move(gradients)));
  std::vector<const Node*> all;
  for (int k = 0; k < stages_; ++k) {
    const Scope s = at(r, k).scope("update");
    Output step, rate;
    for (size_t i = 0; i < trainable.size(); ++i) {
      if (!gradients[i] || stage(*draft_.gradients[i].node) != k) continue;
      if (!rate) {
        step = s.op("Cast", {out_.step}, {{"DstT", DType::kFloat32}});
        rate = options_.optimizer.rate(s.scope("rate"), step);
      }
      // What decays is read when the update before is made.
      const Scope own = troupe::nn::at(s, gradients[i]);
      if (options_.optimizer.l2 != 0 || options_.optimizer.weight_decay != 0)
        variables_.read(variables_.home(own.after(std::vector<const Node*>{turns[size_t(k)]}), trainable[i].name),
                        trainable[i]);
      const Variable& v = trainable[i];
      const Node* node = update_variable({own.scope(v.name), variables_, v, {}, rate, step}, options_.optimizer,
                                         {gradients[i], {}}, decays(v.shape));
      TROUPE_RETURN_IF_ERROR(root_.status());
      done[size_t(k)].push_back(node);
      all.push_back(node);
    }
    if (!options_.asynchronous) targets.push_back(advance(at(r, k), of_stage("updates", k), done[size_t(k)]));
  }
  targets.push_back(finish_update(at(r, 0), variables_, all));
  return root_.status();
}

Result<std::vector<Output>> PipelineBuilder::clip(Replica& r, std::vector<Output> gradients) {
  if (!options_.optimizer.clip) return gradients;
  Graph draft(graph_.ops());
  const ScopeAt scope(Scope(draft), where_);
  Copier copier(graph_, fmt::format("pipeline/clip_{}/", r.number));
  std::vector<Output> stand_ins;
  std::unordered_map<const Node*, std::string> devices;
  for (const Output& gradient : gradients) {
    stand_ins.push_back({});
    if (!gradient) continue;
    stand_ins.back() = scope.op("Placeholder", {}, {{"dtype", gradient.dtype()}, {"shape", gradient.shape()}});
    devices[stand_ins.back().node] = gradient.node->device();
    copier.replace(stand_ins.back(), gradient);
  }
  const std::vector<Output> clipped = options_.optimizer.clip(scope, stand_ins);
  TROUPE_RETURN_IF_ERROR(scope.status());
  if (Status status = check_clipped(stand_ins, clipped); !status.ok())
    return invalid_argument("pipeline '{}': {}", options_.name, status.error().message);
  for (int id = 0; id < draft.size(); ++id) {
    const Node& node = draft.node(id);
    if (node.op().name() == "Placeholder") continue;
    std::string& where = devices[&node];
    for (const Output& in : node.inputs())
      if (where.empty() && in.node->op().name() != "Const") where = devices[in.node];
    if (where.empty()) where = device(r.number, 0);
    TROUPE_RETURN_IF_ERROR(copier.copy(node, where));
  }
  TROUPE_RETURN_IF_ERROR(copier.close_loops());
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i]) gradients[i] = copier.now(clipped[i]);
  return gradients;
}

}  // namespace troupe::nn
