// SPDX-License-Identifier: Apache-2.0
// The graph of a Pipeline: the passes of each stage and what they wait for. For a drawing see
// train/pipeline_builder.h.
#include "train/pipeline_graph.h"

#include <algorithm>
#include <charconv>

#include "train/pipeline_builder.h"

namespace troupe::nn {
namespace {

constexpr std::string_view kPart = "/part:";

}  // namespace

int part_of(const std::string& device) {
  if (device.empty()) return 0;
  if (!device.starts_with(kPart)) return -1;
  int part = -1;
  const char* end = device.data() + device.size();
  const auto read = std::from_chars(device.data() + kPart.size(), end, part);
  return read.ec == std::errc() && read.ptr == end ? part : -1;
}

Result<PipelineGraph> PipelineBuilder::build(const ModelFn& model, const std::vector<DType>& dtypes,
                                             const std::vector<PartialShape>& shapes) {
  const float scale = options_.asynchronous ? 1.f : 1.f / static_cast<float>(options_.micro_batches);
  TROUPE_RETURN_IF_ERROR(write_draft(draft_, model, dtypes, shapes, options_, true, scale, where_));
  TROUPE_RETURN_IF_ERROR(check_parts());
  TROUPE_ASSIGN(const std::vector<double> costs, cut(draft_, stages_, options_.scopes, options_.rates));
  free_ = free_nodes(draft_);
  loops_ = find_loop_nodes(draft_);
  for (int id = 0; id < draft_.graph.size(); ++id)
    branches_ |= draft_.graph.node(id).op().control_flow() == ControlFlow::kSwitch;
  ordered_ = options_.chunks > 1 || !draft_.updates.empty();
  find_boundaries();
  find_owners();
  TROUPE_RETURN_IF_ERROR(add_variables(draft_, "initial/"));
  add_feeds(dtypes, shapes);
  TROUPE_RETURN_IF_ERROR(root_.status());
  for (int k = 0; k < stages_; ++k) sums_.emplace_back(sums_container(options_.name, k), options_.seed);
  std::vector<Replica> replicas;
  for (int r = 0; r < options_.replicas; ++r) {
    replicas.push_back({r, Copier(graph_, options_.replicas > 1 ? fmt::format("replica_{}/", r) : "")});
    TROUPE_RETURN_IF_ERROR(add_replica(replicas.back()));
  }
  const int count = options_.micro_batches;
  for (int i = 0; i < count; ++i) {
    Replica& r = replicas[size_t(i % options_.replicas)];
    const bool only = count == 1 || options_.asynchronous;
    const Place place = only ? Place::kOnly : i == 0 ? Place::kFirst : i + 1 < count ? Place::kMiddle : Place::kLast;
    if (!r.targets.contains(place)) TROUPE_RETURN_IF_ERROR(finish(r, place));
    PipelineStep step{feeds_, {r.copier.now(draft_.loss), r.copier.now(draft_.accuracy)}, r.targets[place]};
    out_.steps.push_back(std::move(step));
  }
  TROUPE_RETURN_IF_ERROR(add_test(model, dtypes, shapes));
  out_.global_step = variables_.global_step(root_.device(device(0, 0)));
  TROUPE_RETURN_IF_ERROR(root_.status());
  out_.initialise = variables_.initializers();
  describe_stages(costs);
  return std::move(out_);
}

Status PipelineBuilder::check_parts() const {
  for (int id = 0; id < draft_.graph.size(); ++id)
    if (const std::string& device = draft_.graph.node(id).device();
        part_of(device) < 0 || part_of(device) >= options_.parts)
      return invalid_argument("pipeline '{}': '{}' is to be on '{}'; a model may name the {} parts of its stage only",
                              options_.name, draft_.graph.node(id).name(), device, options_.parts);
  return {};
}

void PipelineBuilder::find_boundaries() {
  boundary_.resize(size_t(stages_));
  before_boundary_.assign(size_t(draft_.graph.size()), false);
  for (int id = draft_.graph.size() - 1; id >= 0; --id) {
    const Node& node = draft_.graph.node(id);
    if (!counts(node) || !is_backward(node)) continue;
    for (const Output& in : node.inputs()) {
      if (!counts(*in.node) || !is_backward(*in.node)) continue;
      const bool crosses = stage(*in.node) > stage(node);
      auto& leaving = boundary_[size_t(stage(*in.node))];
      if (crosses && std::ranges::find(leaving, in) == leaving.end()) leaving.push_back(in);
      if (crosses || before_boundary_[size_t(id)]) before_boundary_[size_t(in.node->id())] = true;
    }
  }
  // Through loops and in whatever order: until nothing changes.
  for (bool more = true; more;) {
    more = false;
    for (int id = draft_.graph.size() - 1; id >= 0; --id)
      if (before_boundary_[size_t(id)])
        for (const Output& in : draft_.graph.node(id).inputs())
          if (counts(*in.node) && is_backward(*in.node) && !before_boundary_[size_t(in.node->id())])
            before_boundary_[size_t(in.node->id())] = more = true;
  }
}

void PipelineBuilder::find_owners() {
  owners_.resize(size_t(stages_));
  for (int k = 0; k < stages_; ++k) owners_[size_t(k)].insert(k);
  std::map<const Node*, int> owner_of;
  for (size_t i = 0; i < draft_.handles.size(); ++i)
    if (draft_.gradients[i])
      for (const Output& handle : draft_.handles[i]) owner_of[handle.node] = stage(*draft_.gradients[i].node);
  for (int id = 0; id < draft_.graph.size(); ++id)
    for (const Output& in : draft_.graph.node(id).inputs())
      if (const auto at = owner_of.find(in.node); at != owner_of.end() && draft_.is_forward(draft_.graph.node(id)))
        owners_[size_t(stage(draft_.graph.node(id)))].insert(at->second);
}

Status PipelineBuilder::add_variables(const Draft& draft, const std::string& prefix) {
  Copier copier(graph_, prefix);
  for (const Variable& v : draft.variables.all()) {
    if (!v.init) continue;
    std::string where = device(0, 0);
    if (const std::vector<Output> handles = draft.variables.handles(v); !handles.empty())
      if (const int k = draft.stage[size_t(handles[0].node->id())]; k >= 0) where = device(0, k, *handles[0].node);
    const Output value = v.init->inputs()[1];
    std::vector<const Node*> wanted = {value.node};
    std::vector<bool> seen(size_t(draft.graph.size()));
    for (size_t i = 0; i < wanted.size(); ++i)
      for (const Output& in : wanted[i]->inputs())
        if (!seen[size_t(in.node->id())]) {
          seen[size_t(in.node->id())] = true;
          wanted.push_back(in.node);
        }
    std::ranges::sort(wanted, {}, &Node::id);
    for (const Node* node : wanted)
      if (!copier.find(*node)) TROUPE_RETURN_IF_ERROR(copier.copy(*node, where));
    variables_.handle(
        root_.device(where), v.name, v.shape, [&](const Scope&, const Shape&, int64_t) { return copier.now(value); },
        v.trainable, v.dtype);
  }
  variables_.global_step_handle(root_.device(device(0, 0)));
  return root_.status();
}

void PipelineBuilder::add_feeds(const std::vector<DType>& dtypes, const std::vector<PartialShape>& shapes) {
  const Scope s = root_.scope("pipeline").device(device(0, 0));
  const auto number = [&](const std::string& name) {
    feeds_.push_back(
        s.named(name).op("Placeholder", {}, {{"dtype", DType::kInt64}, {"shape", PartialShape::scalar()}}));
    return feeds_.back();
  };
  out_.micro_batch = number("micro_batch");
  out_.batch = number("batch");
  out_.step = number("step");
  for (int c = 0; c < options_.chunks; ++c) {
    out_.forward_passes.push_back(number(fmt::format("forward_pass_{}", c)));
    out_.backward_passes.push_back(number(fmt::format("backward_pass_{}", c)));
  }
  for (size_t i = 0; i < dtypes.size(); ++i)
    feeds_.push_back(
        s.named(fmt::format("component_{}", i)).op("Placeholder", {}, {{"dtype", dtypes[i]}, {"shape", shapes[i]}}));
}

Status PipelineBuilder::add_replica(Replica& r) {
  for (size_t i = 0; i < draft_.batch.size(); ++i) r.copier.replace(draft_.batch[i], component(i));
  const std::string name = options_.replicas > 1 ? fmt::format("replica_{}/", r.number) : "";
  for (int k = 0; k < stages_; ++k)
    r.scopes.push_back(root_.scope(fmt::format("pipeline/{}stage_{}", name, k)).device(device(r.number, k)));
  std::vector<const Node*> begins;
  for (int k = 0; k < stages_; ++k) begins.push_back(begin(r, k));
  TROUPE_RETURN_IF_ERROR(root_.status());
  const auto needed = [&](const Node& n) { return draft_.needed[size_t(n.id())] && n.op().name() != "Placeholder"; };
  for (int id = 0; id < draft_.graph.size(); ++id) {
    const Node& node = draft_.graph.node(id);
    if (needed(node) && !is_backward(node)) TROUPE_RETURN_IF_ERROR(copy(r, node, {begins[size_t(stage(node))]}));
  }
  // What is constant may be read by any stage.
  for (int id = 0; id < draft_.graph.size(); ++id) {
    const Node& node = draft_.graph.node(id);
    if (needed(node) && is_backward(node) && is_free(node)) TROUPE_RETURN_IF_ERROR(copy(r, node, {}));
  }
  for (int k = stages_ - 1; k >= 0; --k) {
    const Scope s = at(r, k);
    // What does not depend on the forward pass waits for it all the same.
    std::vector<const Node*> gates = {begins[size_t(k)]};
    if (k == stage(*draft_.loss.node)) gates.push_back(r.copier.now(draft_.loss).node);
    if (options_.chunks > 1) gates.push_back(await(s, of_device("done", r, k), out_.backward_passes[chunk(k)]));
    for (int id = 0; id < draft_.graph.size(); ++id) {
      const Node& node = draft_.graph.node(id);
      if (needed(node) && is_backward(node) && !is_free(node) && stage(node) == k)
        TROUPE_RETURN_IF_ERROR(copy(r, node, gates));
    }
    if (!zero_bubble_) hold_boundary(r, k);
  }
  TROUPE_RETURN_IF_ERROR(r.copier.close_loops());
  find_sinks(r);
  for (int k = 0; k < stages_; ++k) signal_passes(r, k);
  return root_.status();
}

std::string PipelineBuilder::at_home(const Copier& copier, const Node& node, const std::string& own) const {
  const Scope s = root_.device(own);
  if (node.op().name() == "VarHandleOp")
    return variables_.home(s, node.attrs().get_or<std::string>("shared_name", {})).device_name();
  for (const Output& in : node.inputs())
    if (in.dtype() == DType::kResource && copier.now(in))
      return s.in_task_of(copier.now(in).node->device()).device_name();
  return own;
}

Status PipelineBuilder::copy(Replica& r, const Node& node, const std::vector<const Node*>& gates) {
  const std::string where = at_home(r.copier, node, device(r.number, stage(node), node));
  TROUPE_RETURN_IF_ERROR(r.copier.copy(node, where, gates_of(node, gates)));
  // Where a backward pass is one piece, credit alone says when it is its turn, and forward passes fill the pipeline.
  const bool weights = zero_bubble_ && is_backward(node) && !before_boundary_[size_t(node.id())];
  if (counts(node))
    out_.priorities[r.copier.find(node)->name()] = weights ? 0 : is_backward(node) == zero_bubble_ ? 2 : 1;
  return {};
}

std::vector<const Node*> PipelineBuilder::gates_of(const Node& node, const std::vector<const Node*>& gates) const {
  if (!counts(node) || loops_.runs[size_t(node.id())]) return {};
  for (const Output& in : node.inputs())
    if (counts(*in.node) && same_pass(*in.node, node)) return {};
  for (const Node* before : node.control_inputs())
    if (counts(*before) && same_pass(*before, node)) return {};
  return gates;
}

void PipelineBuilder::hold_boundary(Replica& r, int k) {
  std::vector<const Node*> weights;
  for (const Output& gradient : draft_.gradients)
    if (gradient && stage(*gradient.node) == k) weights.push_back(r.copier.now(gradient).node);
  if (weights.empty()) return;
  for (const Output& out : boundary_[size_t(k)]) {
    const Output held = at(r, k).after(weights).named("input_gradient").op("Identity", {r.copier.now(out)});
    r.copier.replace(out, held);
  }
}

void PipelineBuilder::find_sinks(Replica& r) {
  std::vector<bool> awaited(size_t(draft_.graph.size()));
  for (int id = 0; id < draft_.graph.size(); ++id) {
    const Node& node = draft_.graph.node(id);
    if (!counts(node)) continue;
    const auto mark = [&](const Node& in) {
      if (stage(in) == stage(node)) awaited[size_t(in.id())] = true;
    };
    for (const Output& in : node.inputs()) mark(*in.node);
    for (const Node* before : node.control_inputs()) mark(*before);
  }
  r.sinks.resize(size_t(stages_));
  for (int id = 0; id < draft_.graph.size(); ++id) {
    const Node& node = draft_.graph.node(id);
    if (!counts(node) || awaited[size_t(id)] || skipped(r, node) || loops_.gives[size_t(id)]) continue;
    r.sinks[size_t(stage(node))].push_back(r.copier.find(node));
  }
}

void PipelineBuilder::signal_passes(Replica& r, int k) {
  const Scope s = at(r, k);
  if (ordered_) {
    // The ends of the forward pass: nobody else of it waits for them.
    std::vector<bool> awaited(size_t(draft_.graph.size()));
    std::vector<const Node*> ends;
    for (int id = draft_.graph.size() - 1; id >= 0; --id) {
      const Node& node = draft_.graph.node(id);
      if (!counts(node) || is_backward(node) || stage(node) != k) continue;
      if (!awaited[size_t(id)] && !skipped(r, node) && !loops_.gives[size_t(id)]) ends.push_back(r.copier.find(node));
      for (const Output& in : node.inputs()) awaited[size_t(in.node->id())] = true;
      for (const Node* before : node.control_inputs()) awaited[size_t(before->id())] = true;
    }
    r.signals.push_back(advance(s, of_device("forwards", r, k), ends));
  }
  if (zero_bubble_) {
    std::vector<const Node*> left;
    for (const Output& out : boundary_[size_t(k)]) left.push_back(r.copier.now(out).node);
    r.signals.push_back(advance(s, of_device("sent", r, k), left.empty() ? r.sinks[size_t(k)] : left));
  }
}

const Node* PipelineBuilder::begin(const Replica& r, int k) {
  const Scope s = at(r, k);
  const Output pass = out_.forward_passes[chunk(k)];
  std::vector<const Node*> gates = {await(s, of_device("done", r, k), pass, credit(k))};
  // Without, the stages would run ahead with forward passes that nobody needs yet, and gradients come late.
  if (zero_bubble_) gates.push_back(await(s, of_device("sent", r, k), pass, 2 * (devices_ - k)));
  if (ordered_) gates.push_back(await(s, of_device("forwards", r, k), pass));
  // Asynchronous passes are over before their updates are made, which bounds passes and not yet how old weights are.
  if (options_.asynchronous)
    gates.push_back(await(s, of_stage("summed", k), out_.micro_batch, credit(k) * options_.replicas));
  else
    for (const int owner : owners_[size_t(k)]) gates.push_back(await(s, of_stage("updates", owner), out_.batch));
  return s.after(gates).named("begin").node("NoOp", {});
}

Output PipelineBuilder::handle(const Scope& s, const Events& events) {
  Output& known = events_[{s.prefix(), events.name}];
  if (!known)
    known = s.named(events.name)
                .op("_EventCount", {}, {{"container", events_container(options_.name)}, {"shared_name", events.name}});
  return known;
}

const Node* PipelineBuilder::await(const Scope& s, const Events& events, Output count, int64_t credit) {
  const Scope home = s.in_task_of(events.home);
  return home.named("await_" + events.kind)
      .node("_EventCountAwait", {handle(home, events), count}, {{"slack", credit - 1}});
}

const Node* PipelineBuilder::advance(const Scope& s, const Events& events, const std::vector<const Node*>& after) {
  Scope home = s.in_task_of(events.home);
  // Of a branch that was not taken the ends are dead, and the pass is over all the same.
  if (branches_) home = home.after(std::vector<const Node*>{s.after(after).named("ended").node("ControlTrigger", {})});
  else home = home.after(after);
  return home.named("count_" + events.kind).node("_EventCountAdvance", {handle(home, events)});
}

int PipelineBuilder::credit(int stage) const {
  const int behind = devices_ - stage % devices_;  // stages from here on, with this one
  switch (options_.schedule) {
    case PipelineSchedule::kGPipe: return options_.micro_batches / options_.replicas;
    case PipelineSchedule::kOneFOneB: return behind;
    case PipelineSchedule::kInterleaved: return 2 * behind - 1 + (options_.chunks - 1) * devices_;
    case PipelineSchedule::kZeroBubble: return 2 * devices_;
  }
  return 1;
}

Status PipelineBuilder::add_test(const ModelFn& model, const std::vector<DType>& dtypes,
                                 std::vector<PartialShape> shapes) {
  for (PartialShape& shape : shapes)
    if (shape.has_rank() && shape.rank() > 0) shape.set(0, -1);  // of any size
  Draft draft(graph_.ops(), options_);
  TROUPE_RETURN_IF_ERROR(write_draft(draft, model, dtypes, shapes, options_, false, 1, where_));
  TROUPE_RETURN_IF_ERROR(cut(draft, stages_, options_.scopes, options_.rates));
  TROUPE_RETURN_IF_ERROR(add_variables(draft, "test/initial/"));
  Copier copier(graph_, "test/");
  for (int id = 0; id < draft.graph.size(); ++id)
    if (draft.needed[size_t(id)]) {
      const Node& node = draft.graph.node(id);
      const std::string where = at_home(copier, node, device(0, draft.stage[size_t(id)], node));
      TROUPE_RETURN_IF_ERROR(copier.copy(node, where));
    }
  TROUPE_RETURN_IF_ERROR(copier.close_loops());
  for (const Output& component : draft.batch) {
    if (!copier.find(*component.node)) TROUPE_RETURN_IF_ERROR(copier.copy(*component.node, device(0, 0)));
    out_.test.feeds.push_back(copier.now(component));
  }
  out_.test.fetches = {copier.now(draft.loss), copier.now(draft.accuracy)};
  return {};
}

void PipelineBuilder::describe_stages(const std::vector<double>& costs) {
  for (int k = 0; k < stages_; ++k) out_.stages.push_back({device(0, k), costs[size_t(k)], 0, credit(k), {}});
  for (int id = 0; id < draft_.graph.size(); ++id) {
    const Node& node = draft_.graph.node(id);
    if (counts(node) && !is_backward(node)) ++out_.stages[size_t(stage(node))].nodes;
  }
  const std::vector<Variable> trainable = draft_.variables.trainable();
  for (size_t i = 0; i < trainable.size(); ++i)
    if (draft_.gradients[i])
      out_.stages[size_t(stage(*draft_.gradients[i].node))].variables.push_back(trainable[i].name);
}

std::string part_device(int i) { return fmt::format("{}{}", kPart, i); }

std::vector<std::string> part_devices(int parts) {
  std::vector<std::string> out;
  for (int i = 0; i < parts; ++i) out.push_back(part_device(i));
  return out;
}

std::string events_container(const std::string& name) { return fmt::format("pipeline/{}", name); }
std::string sums_container(const std::string& name, int stage) {
  return fmt::format("pipeline/{}/stage_{}", name, stage);
}

int64_t Passes::number(int64_t micro_batch, int64_t chunk, bool forward) const {
  const int64_t batch = micro_batch / micro_batches, i = micro_batch % micro_batches;
  const int64_t group = i / devices, size = std::min(devices, micro_batches - group * devices);
  const int64_t before = (batch * micro_batches + group * devices) * chunks;
  return before + (forward ? chunk : chunks - 1 - chunk) * size + i % devices;
}

Result<PipelineGraph> build_pipeline(Graph& graph, Variables& variables, const ModelFn& model,
                                     const std::vector<DType>& dtypes, const std::vector<PartialShape>& shapes,
                                     const PipelineOptions& options, std::source_location where) {
  return PipelineBuilder(graph, variables, options, where).build(model, dtypes, shapes);
}

}  // namespace troupe::nn
