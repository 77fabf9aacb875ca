// SPDX-License-Identifier: Apache-2.0
// Cuts a model into stages, by scopes or by cost.
#include "train/pipeline_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "train/evaluation.h"
#include "troupe/cost_model.h"
#include "troupe/gradients.h"

namespace troupe::nn {
namespace {

/// Calls f(node) for whatever `node` reads or waits for.
template <class F> void for_each_input(const Node& node, F&& f) {
  for (const Output& in : node.inputs())
    if (in) f(*in.node);
  for (const Node* before : node.control_inputs()) f(*before);
}

void mark_needed(Draft& draft, std::vector<const Node*> wanted) {
  while (!wanted.empty()) {
    const Node& node = *wanted.back();
    wanted.pop_back();
    if (draft.needed[size_t(node.id())]) continue;
    draft.needed[size_t(node.id())] = true;
    for_each_input(node, [&](const Node& in) { wanted.push_back(&in); });
  }
}

/// Of each node of the backward pass the id of the node it is the gradient of: its name begins with that node's.
std::vector<int> differentiated(const Draft& draft) {
  constexpr std::string_view kPrefix = "backward/gradients/", kSuffix = "_grad";
  std::vector<int> of(size_t(draft.graph.size()), -1);
  for (int id = 0; id < draft.graph.size(); ++id) {
    const Node& node = draft.graph.node(id);
    if (!draft.backward[size_t(id)]) continue;
    const Node* owner = nullptr;
    if (const auto* original = node.attrs().get<std::string>("_recomputes")) owner = draft.graph.find(*original);
    std::string_view name = node.name();
    if (!owner && name.starts_with(kPrefix)) {
      name.remove_prefix(kPrefix.size());
      // The longest name that fits; a scope's name may have got a number.
      for (size_t at = name.find(kSuffix); at != name.npos; at = name.find(kSuffix, at + 1))
        if (const Node* found = draft.graph.find(name.substr(0, at))) owner = found;
    }
    if (owner) of[size_t(id)] = owner->id();
  }
  return of;
}

struct Cutter {
  Cutter(Draft& draft, int stages, const DeviceRates& rates) : draft(draft), stages(stages), rates(rates) {}

  Draft& draft;
  const int stages;
  const DeviceRates& rates;
  std::vector<bool> free = free_nodes(draft);
  std::vector<int> of = differentiated(draft);
  std::vector<double> costs = std::vector<double>(size_t(draft.graph.size()));  // of forward nodes, with gradients

  const Node& node(int id) const { return draft.graph.node(id); }
  int& stage(const Node& n) { return draft.stage[size_t(n.id())]; }
  bool forward(int id) const { return draft.is_forward(node(id)); }
  bool is_free(const Node& n) const { return free[size_t(n.id())]; }

  void add_costs() {
    const CostModel estimates;
    for (int id = 0; id < draft.graph.size(); ++id) {
      if (!draft.needed[size_t(id)]) continue;
      const int to = draft.backward[size_t(id)] ? of[size_t(id)] : id;
      const double ns = estimates.time_ns(node(id), "", rates);
      if (to >= 0 && ns > rates.launch_ns) costs[size_t(to)] += ns;  // the others are handed on
    }
  }

  Status by_scopes(const std::vector<std::string>& scopes) {
    for (int k = 0; k < stages; ++k) {
      const std::string prefix = scopes[size_t(k)] + "/";
      bool any = false;
      for (int id = 0; id < draft.graph.size(); ++id) {
        if (!forward(id) || stage(node(id)) >= 0 || !node(id).name().starts_with(prefix)) continue;
        stage(node(id)) = k;
        any |= !is_free(node(id)) && node(id).op().name() != "Identity";
      }
      if (!any && draft.training)
        return invalid_argument("stage {} is empty: the model computes nothing in scope '{}'", k, scopes[size_t(k)]);
    }
    return {};
  }

  /// By node id: whether it is a trainable variable, and no part of what is computed from it: a handle, or its whole
  /// value; and whether that is a matrix.
  std::pair<std::vector<bool>, std::vector<bool>> variables() const {
    std::vector<bool> variable(size_t(draft.graph.size())), matrix(variable);
    for (const auto& handles : draft.handles)
      for (const Output& handle : handles) {
        variable[size_t(handle.node->id())] = true;
        matrix[size_t(handle.node->id())] = handle.node->attrs().get<PartialShape>("shape")->rank() >= 2;
      }
    for (int id = 0; id < draft.graph.size(); ++id) {
      if (node(id).op().name() != "ReadVariableOp") continue;
      const auto handle = size_t(node(id).inputs()[0].node->id());
      variable[size_t(id)] = variable[handle];
      matrix[size_t(id)] = matrix[handle];
    }
    return {std::move(variable), std::move(matrix)};
  }

  /// A variable belongs to the first of the stages that use it: its gradient comes together there.
  void place_variables() {
    for (const auto& handles : draft.handles) {
      int first = stages;
      for (int id = 0; id < draft.graph.size(); ++id)
        for (const Output& in : node(id).inputs())
          if (forward(id) && std::ranges::find(handles, in) != handles.end()) first = std::min(first, stage(node(id)));
      if (first < stages)
        for (const Output& handle : handles) stage(*handle.node) = first;
    }
  }

  /// Cuts where one tensor alone that depends on variables crosses: between layers.
  Status by_cost() {
    // The nodes of the chain: those that depend on a variable and that the loss depends on, in order.
    const auto [variable, matrix] = variables();
    std::vector<bool> depends = variable, wanted(size_t(draft.graph.size()));
    wanted[size_t(draft.loss.node->id())] = true;
    for (int id = draft.graph.size() - 1; id >= 0; --id)
      if (wanted[size_t(id)]) for_each_input(node(id), [&](const Node& in) { wanted[size_t(in.id())] = true; });
    std::vector<int> chain;
    for (int id = 0; id < draft.graph.size(); ++id) {
      if (!forward(id) || variable[size_t(id)]) continue;
      for_each_input(node(id), [&](const Node& in) {
        if (depends[size_t(in.id())]) depends[size_t(id)] = true;
      });
      if (depends[size_t(id)] && wanted[size_t(id)]) chain.push_back(id);
    }
    // Where each value of the chain is read last, as a place in the chain.
    std::vector<int> place(size_t(draft.graph.size()), -1);
    for (size_t i = 0; i < chain.size(); ++i) place[size_t(chain[i])] = static_cast<int>(i);
    std::vector<int> last(chain.size(), -1);
    for (size_t i = 0; i < chain.size(); ++i)
      for_each_input(node(chain[i]), [&](const Node& in) {
        if (const int at = place[size_t(in.id())]; at >= 0) last[size_t(at)] = static_cast<int>(i);
      });
    // A layer has a matrix of its own; it begins where last one tensor alone crosses before it.
    std::vector<size_t> begins = {0};
    size_t next_begin = 0;
    bool complete = false;
    for (size_t i = 0; i < chain.size(); ++i) {
      int crossing = 0;
      for (size_t j = 0; j < i; ++j) crossing += last[j] >= static_cast<int>(i);
      if (crossing == 1) next_begin = i;
      bool has_matrix = false;
      for_each_input(node(chain[i]), [&, &matrix = matrix](const Node& in) { has_matrix |= matrix[size_t(in.id())]; });
      if (!has_matrix) continue;
      if (complete && next_begin > begins.back()) begins.push_back(next_begin);
      next_begin = begins.back();
      complete = true;
    }
    std::vector<double> layers(begins.size());
    for (size_t i = 0, layer = 0; i < chain.size(); ++i) {
      if (layer + 1 < begins.size() && begins[layer + 1] == i) ++layer;
      layers[layer] += costs[size_t(chain[i])];
    }
    if (std::ssize(layers) < stages)
      return invalid_argument("{} stages are more than the model has layers: it can be cut into at most {}", stages,
                              layers.size());
    TROUPE_ASSIGN(const std::vector<size_t> cuts, balance(layers, stages));
    for (int k = 0; k < stages; ++k) {
      const size_t end = k + 1 < stages ? begins[cuts[size_t(k) + 1]] : chain.size();
      for (size_t i = begins[cuts[size_t(k)]]; i < end; ++i) stage(node(chain[i])) = k;
    }
    return {};
  }

  /// The other forward nodes: with what they read, else with what reads them.
  Status fill() {
    for (int id = 0; id < draft.graph.size(); ++id) {
      if (!forward(id) || stage(node(id)) >= 0 || is_free(node(id)) || node(id).op().name() == "Placeholder") continue;
      for_each_input(node(id), [&](const Node& in) { stage(node(id)) = std::max(stage(node(id)), stage(in)); });
    }
    for (int id = draft.graph.size() - 1; id >= 0; --id) {
      if (!forward(id) || stage(node(id)) < 0) continue;
      for_each_input(node(id), [&](const Node& in) {
        if (!unplaced_[size_t(in.id())]) return;
        int& of_input = stage(in);
        of_input = of_input < 0 ? stage(node(id)) : std::min(of_input, stage(node(id)));
      });
    }
    for (int id = 0; id < draft.graph.size(); ++id)
      if (forward(id)) stage(node(id)) = std::max(stage(node(id)), 0);
    for (int id = 0; id < draft.graph.size(); ++id) {
      if (!forward(id)) continue;
      Status status;
      for_each_input(node(id), [&](const Node& in) {
        if (in.id() < id && !is_free(in) && stage(in) > stage(node(id)))
          status = invalid_argument(
              "the stages are not in order: '{}' of stage {} reads '{}' of stage {} (an operator, as in x + y, adds "
              "its "
              "node to the name scope of the operand that is further along)",
              node(id).name(), stage(node(id)), in.name(), stage(in));
      });
      TROUPE_RETURN_IF_ERROR(status);
    }
    return {};
  }

  Status run(const std::vector<std::string>& scopes) {
    add_costs();
    if (scopes.empty()) TROUPE_RETURN_IF_ERROR(by_cost());
    else TROUPE_RETURN_IF_ERROR(by_scopes(scopes));
    unplaced_.resize(size_t(draft.graph.size()));
    for (int id = 0; id < draft.graph.size(); ++id) unplaced_[size_t(id)] = forward(id) && stage(node(id)) < 0;
    TROUPE_RETURN_IF_ERROR(fill());
    place_variables();
    for (int id = 0; id < draft.graph.size(); ++id) {
      if (!draft.needed[size_t(id)] || forward(id)) continue;
      int& own = stage(node(id));
      if (of[size_t(id)] >= 0) own = draft.stage[size_t(of[size_t(id)])];
      else for_each_input(node(id), [&](const Node& in) { own = std::max(own, stage(in)); });
      own = std::max(own, 0);
    }
    return {};
  }

 private:
  std::vector<bool> unplaced_;  // by neither scope nor cost
};

}  // namespace

std::vector<bool> free_nodes(const Draft& draft) {
  std::vector<bool> free(size_t(draft.graph.size()));
  for (int id = 0; id < draft.graph.size(); ++id) {
    const Node& node = draft.graph.node(id);
    if (node.op().name() == "Placeholder" || node.op().control_flow() != ControlFlow::kNone) continue;
    const bool handle = node.inputs().empty() && node.num_outputs() == 1 && node.dtype(0) == DType::kResource;
    bool all = handle || !node.op().is_stateful();
    for_each_input(node, [&](const Node& in) { all &= static_cast<bool>(free[size_t(in.id())]); });
    free[size_t(id)] = all;
  }
  return free;
}

LoopNodes find_loop_nodes(const Draft& draft) {
  const auto size = size_t(draft.graph.size());
  LoopNodes out{std::vector<bool>(size), std::vector<bool>(size)};
  std::vector<int> depth(size);  // of a node's outputs
  std::set<std::string> forward_loops;
  for (int id = 0; id < draft.graph.size(); ++id) {
    const Node& node = draft.graph.node(id);
    int own = 0;
    for_each_input(node, [&](const Node& in) {
      if (in.id() < id) own = std::max(own, depth[size_t(in.id())]);
    });
    const ControlFlow flow = node.op().control_flow();
    depth[size_t(id)] = own + (flow == ControlFlow::kEnter) - (flow == ControlFlow::kExit);
    out.runs[size_t(id)] = own > 0;
    out.gives[size_t(id)] = depth[size_t(id)] > 0;
    if (flow != ControlFlow::kEnter) continue;
    const auto frame = node.attrs().get_or<std::string>("frame_name", {});
    if (!draft.backward[size_t(id)]) forward_loops.insert(frame);
    else if (forward_loops.contains(frame)) out.runs[size_t(id)] = true;
  }
  return out;
}

Status write_draft(Draft& draft, const ModelFn& model, const std::vector<DType>& dtypes,
                   const std::vector<PartialShape>& shapes, const PipelineOptions& options, bool training,
                   float loss_scale, std::source_location where) {
  const ScopeAt scope(Scope(draft.graph), where);
  for (size_t i = 0; i < dtypes.size(); ++i)
    draft.batch.push_back(
        scope.named(fmt::format("batch_{}", i)).op("Placeholder", {}, {{"dtype", dtypes[i]}, {"shape", shapes[i]}}));
  draft.variables.reuse();
  const ModelOutputs outputs =
      checked_outputs(scope, model(scope.told_at_each_line(), draft.variables, draft.batch, training));
  TROUPE_RETURN_IF_ERROR(scope.status());
  draft.loss = outputs.loss;
  draft.accuracy = outputs.accuracy;
  draft.updates = draft.variables.take_updates();
  const std::vector<Variable> trainable = draft.variables.trainable();
  std::vector<Output> all;  // handles: whatever reads a variable, whole or by rows, counts
  for (const Variable& v : trainable) {
    draft.handles.push_back(draft.variables.handles(v));
    all.insert(all.end(), draft.handles.back().begin(), draft.handles.back().end());
  }
  const int forward = draft.graph.size();
  draft.training = training;
  if (training) {
    const Scope backward = scope.scope("backward");
    TROUPE_ASSIGN(const std::vector<Output> found,
                  gradients(backward, {draft.loss}, all, {backward.constant(loss_scale)}, {}, options.gradients));
    auto next = found.begin();
    for (const auto& handles : draft.handles) {
      std::vector<Output> parts;
      for (size_t i = 0; i < handles.size(); ++i, ++next)
        if (*next) parts.push_back(*next);
      // Named as a gradient of the variable, and so with it.
      const auto sum = [&] {
        return backward.scope(fmt::format("gradients/{}_grad", handles[0].node->name()))
            .device(parts[0].node->device())
            .op("AddN", parts);
      };
      draft.gradients.push_back(parts.empty() ? Output{} : parts.size() == 1 ? parts[0] : sum());
    }
  }
  TROUPE_RETURN_IF_ERROR(scope.status());
  draft.needed.resize(size_t(draft.graph.size()));
  draft.backward.resize(size_t(draft.graph.size()));
  for (int id = forward; id < draft.graph.size(); ++id) draft.backward[size_t(id)] = true;
  draft.stage.assign(size_t(draft.graph.size()), -1);
  std::vector<const Node*> wanted = {draft.loss.node, draft.accuracy.node};
  for (const Node* update : draft.updates) wanted.push_back(update);
  for (const Output& gradient : draft.gradients)
    if (gradient) wanted.push_back(gradient.node);
  mark_needed(draft, std::move(wanted));
  return {};
}

Result<std::vector<double>> cut(Draft& draft, int stages, const std::vector<std::string>& scopes,
                                const DeviceRates& rates) {
  Cutter cutter(draft, stages, rates);
  TROUPE_RETURN_IF_ERROR(cutter.run(scopes));
  std::vector<double> costs(static_cast<size_t>(stages));
  for (int id = 0; id < draft.graph.size(); ++id)
    if (cutter.forward(id)) costs[size_t(draft.stage[size_t(id)])] += cutter.costs[size_t(id)];
  return costs;
}

Result<std::vector<size_t>> balance(const std::vector<double>& costs, int stages) {
  const size_t n = costs.size();
  if (stages < 1 || n < static_cast<size_t>(stages))
    return invalid_argument("balance: {} costs for {} stages", n, stages);
  std::vector<double> before(n + 1);  // sums of the first costs
  for (size_t i = 0; i < n; ++i) {
    if (!(costs[i] >= 0) || !std::isfinite(costs[i])) return invalid_argument("balance: cost {} is {}", i, costs[i]);
    before[i + 1] = before[i] + costs[i];
  }
  if (!std::isfinite(before[n])) return invalid_argument("balance: the costs are {} together", before[n]);
  // best[i]: the dearest of `k` stages over the first i costs; from[k][i]: where the last of them begins.
  std::vector<double> best(before);
  std::vector<std::vector<size_t>> from(static_cast<size_t>(stages), std::vector<size_t>(n + 1));
  for (size_t k = 1; k < static_cast<size_t>(stages); ++k) {
    std::vector<double> next(n + 1, std::numeric_limits<double>::infinity());
    for (size_t i = k + 1; i <= n; ++i)
      for (size_t j = k; j < i; ++j)
        if (const double dearest = std::max(best[j], before[i] - before[j]); dearest < next[i]) {
          next[i] = dearest;
          from[k][i] = j;
        }
    best = std::move(next);
  }
  std::vector<size_t> begins(static_cast<size_t>(stages));
  size_t end = n;
  for (size_t k = static_cast<size_t>(stages); k-- > 0;) end = begins[k] = from[k][end];
  return begins;
}

ModelFn chain(std::vector<StageFn> stages) {
  return [stages = std::move(stages)](const Scope& scope, Variables& variables, const std::vector<Output>& batch,
                                      bool training) -> ModelOutputs {
    std::vector<Output> values = batch;
    for (size_t i = 0; i < stages.size(); ++i) {
      const Scope own = scope.scope(fmt::format("stage_{}", i));
      // In the stage's scope, so that operators on them add their nodes there.
      for (Output& value : values)
        if (i > 0 && value) value = own.named("input").op("Identity", {value});
      values = stages[i](own, variables, values, batch, training);
    }
    return {values.empty() ? Output{} : values[0], values.size() > 1 ? values[1] : Output{}};
  };
}

}  // namespace troupe::nn
