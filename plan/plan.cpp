// SPDX-License-Identifier: Apache-2.0
// Building plans: prune, rewrite, place, partition, flatten.
#include "plan/plan.h"
#include "plan/op_costs.h"

#include <algorithm>

#include "base/device_name.h"
#include "devices/host_arguments.h"
#include "devices/run_kernel.h"
#include "gpu/collectives.h"
#include "gpu/compute.h"
#include "graph/passes/expand_collectives.h"
#include "graph/passes/passes.h"
#include "plan/cut.h"
#include "plan/evaluate.h"
#include "plan/firing_order.h"
#include "plan/loop_order.h"
#include "plan/node_kernels.h"
#include "plan/planner.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

/// How a builtin node without a value is carried out.
NodeKind control_kind(const Node& node) {
  switch (node.op().control_flow()) {
    case ControlFlow::kSwitch: return NodeKind::kSwitch;
    case ControlFlow::kMerge: return NodeKind::kMerge;
    case ControlFlow::kEnter: return NodeKind::kEnter;
    case ControlFlow::kExit: return NodeKind::kExit;
    case ControlFlow::kNextIteration: return NodeKind::kNextIteration;
    case ControlFlow::kTrigger: return NodeKind::kTrigger;
    case ControlFlow::kAlive: return NodeKind::kAlive;
    case ControlFlow::kSend: return NodeKind::kSend;
    case ControlFlow::kRecv: return NodeKind::kRecv;
    case ControlFlow::kNone: break;
  }
  return NodeKind::kNoOp;
}

/// The id that a part's node has in its client's graph; -1: none, or one so large that nobody should make room for it.
int id_in_client(const Node& node) {
  constexpr int64_t kMostNodes = 1 << 22;
  const int64_t id = node.attrs().get_or<int64_t>(kNodeIdAttr, -1);
  return id < kMostNodes ? static_cast<int>(id) : -1;
}

}  // namespace

Result<std::shared_ptr<const StepPlan>> Planner::make(std::vector<Output> feeds, std::vector<Output> fetches,
                                                      const std::vector<const Node*>& targets) {
  plan_->feeds = std::move(feeds);
  plan_->fetches = std::move(fetches);
  {
    const std::lock_guard growth(graph_.mutex());
    step_.emplace(graph_, plan_->feeds, plan_->fetches, targets);
    TROUPE_RETURN_IF_ERROR(check_closed(*step_));
  }
  if (context_.partial) plan_->partial.emplace();
  if (context_.partial && !context_.part) find_needs();
  if (!context_.part) {
    TROUPE_RETURN_IF_ERROR(expand_collectives(*step_, [this](const Node& node) { return cards_of(node); }));
    run_general_passes(*step_, context_.passes, [this](const Node& node, std::span<const Tensor> inputs) {
      return evaluate(context_.kernels, node, inputs);
    });
    const PassDevices devices = find_pass_devices();
    const int first_made = step_->ids();
    run_device_passes(*step_, context_.passes, devices);
    placer_.keep(first_made, std::exchange(pass_kinds_, {}));
  }
  plan_->made_nodes = step_->made();
  if (context_.partial && !context_.part) find_needs();
  TROUPE_ASSIGN(frames_, find_frames(*step_));
  TROUPE_RETURN_IF_ERROR(placer_.find(graph_, *step_, frames_));
  // Laid out in the order of firing, a plan is walked from front to back, which large graphs need: they do not fit
  // the cache.
  const std::vector<const Node*> needed = firing_order(*step_);
  for (uint32_t i = 0; i < plan_->feeds.size(); ++i)
    fed_.emplace(std::pair(plan_->feeds[i].node->id(), plan_->feeds[i].port), i);
  where_.assign(static_cast<size_t>(step_->ids()), {kNone, kNone});
  devices_.assign(where_.size(), 0);
  constants_.assign(static_cast<size_t>(step_->ids()), nullptr);
  if (!context_.part) TROUPE_RETURN_IF_ERROR(context_.task.empty() ? place_loops(needed) : place_tasks(needed));
  find_chosen(needed);
  for (const Node* node : needed) {
    const uint32_t device = place(*node);
    devices_[static_cast<size_t>(node->id())] = device;
    TROUPE_RETURN_IF_ERROR(add(*node, device));
  }
  if (!lacking_.empty()) return lacking();
  find_exchange();
  waited_for_.resize(context_.devices.size());
  waited_through_.assign(where_.size(), 0);
  for (const Node* node : needed) TROUPE_RETURN_IF_ERROR(connect(*node));
  if (!lacking_.empty()) return lacking();
  if (context_.part) TROUPE_RETURN_IF_ERROR(find_edges());
  TROUPE_RETURN_IF_ERROR(share_loops());
  if (context_.schedule_receives && !context_.partial && drafts_.size() > 1)
    TROUPE_RETURN_IF_ERROR(hold_back_receives());
  TROUPE_RETURN_IF_ERROR(add_readers());
  TROUPE_RETURN_IF_ERROR(spans_tasks() ? cut() : close());
  return std::shared_ptr<const StepPlan>(std::move(plan_));
}

PassDevices Planner::find_pass_devices() {
  const auto is_gpu = [](const DeviceInfo& device) { return device.kind == DeviceKind::kCuda; };
  if (std::ranges::none_of(context_.devices, is_gpu) || !asks_for_devices(*step_, context_.passes))
    return PassDevices();
  const auto frames = find_frames(*step_);
  Placer placer(context_);
  const PassDevices nowhere{.has_kernel = [](const Node&, const std::string&, const Attrs&) { return false; },
                            .on_gpu = [](const Node&) { return true; },
                            .at_host = [](const Output&) { return false; }};
  // Errors are told when they are placed for good.
  if (!frames.ok() || !placer.find(graph_, *step_, *frames, false).ok()) return nowhere;
  const auto loops = LoopPlaces::make(*step_, *frames, firing_order(*step_), wishes_of(placer));
  if (!loops.ok()) return nowhere;
  // By name, as nodes that passes make have the name of what they replace; nodes of one name on several: on none.
  constexpr uint32_t kSeveral = UINT32_MAX;
  std::unordered_set<std::string> loose;
  const auto by_name = std::make_shared<std::unordered_map<std::string, uint32_t>>();
  for (const Node* node : step_->nodes()) {
    const bool in_loop = std::max(frames->of[static_cast<size_t>(node->id())], frames->of_output(*node)) > 0;
    const uint32_t device = in_loop && !context_.part ? loops->device(*node) : placer.device_of(*node);
    const auto [at, fresh] = by_name->try_emplace(node->name(), device);
    if (!fresh && at->second != device) at->second = kSeveral;
    // In a loop what is to be beside others may be elsewhere than these.
    if (in_loop && node->attrs().has("_class")) loose.insert(node->name());
  }
  const auto kind_of = [this, by_name](const Node& node) -> std::optional<DeviceKind> {
    const auto at = by_name->find(node.name());
    if (at == by_name->end() || at->second == kSeveral) return {};
    return context_.devices[at->second].kind;
  };
  pass_kinds_ = [kind_of, loose = std::move(loose)](const Node& node) {
    return loose.contains(node.name()) ? std::nullopt : kind_of(node);
  };
  return PassDevices{
      .has_kernel =
          [this, kind_of](const Node& node, const std::string& op, const Attrs& types) {
            const auto kind = kind_of(node);
            return kind && context_.kernels.serves(op, that_runs(*kind), types);
          },
      .on_gpu = [kind_of](const Node& node) { return kind_of(node) == DeviceKind::kCuda; },
      .at_host =
          [this, kind_of](const Output& value) {
            const Node& node = *value.node;
            if (step_->is_fed(value) || step_->constant(value) || kind_of(node) == DeviceKind::kCpu) return true;
            const auto host = context_.kernels.host_memory(node.op().name(), DeviceKind::kCuda, node.attrs());
            return kind_of(node) == DeviceKind::kCuda && host.ok() &&
                   names_argument(host->outputs, value.port, node.num_outputs());
          },
  };
}

std::optional<std::vector<std::string>> Planner::cards_of(const Node& collective) const {
  const bool sums = collective.attrs().has("reduction");
  const DType dtype = collective.dtype(0);
  if (!context_.collectives || context_.scatter || is_object(dtype) || (sums && !gpu::can_sum(dtype))) return {};
  std::vector<uint32_t> numbers;
  std::vector<std::string> names;
  for (const std::string& name : collective.attrs().at<std::vector<std::string>>("devices")) {
    const auto device = find_device(name, context_.devices);
    if (!device.ok()) return {};
    numbers.push_back(*device);
    names.push_back(context_.devices[*device].name);
  }
  if (!context_.collectives(numbers)) return {};
  return names;
}

void Planner::find_chosen(const std::vector<const Node*>& needed) {
  const auto chosen = [&](const Output& o) { chosen_.insert(step_->now(o).node->id()); };
  for (const Node* node : needed)
    if (node->op().control_flow() == ControlFlow::kMerge) std::ranges::for_each(node->inputs(), chosen);
  for (const Output& fetch : plan_->fetches)
    if (!step_->now(fetch).node->control_inputs().empty()) chosen(fetch);
  for (const auto& [frame, shared] : loops_.shared()) chosen_.insert(shared.condition.node->id());
}

int Planner::kept_id(const Node& node) const {
  return step_->is_made(node) ? -1 : context_.part ? id_in_client(node) : node.id();
}

Result<NodeKernel> Planner::kernel_of(const Node& node, uint32_t device) {
  const DeviceKind on = context_.devices[device].kind;
  auto known = kernel_kind(node, on, context_.kernels);
  if (is_remote(device) && (!known.ok() || *known != KernelKind::kUnknown)) {
    // The task has the kernel; that it has none here is no fault.
    const bool asks = !node.inputs().empty() && node.inputs()[0].dtype() == DType::kResource;
    return NodeKernel{known.ok() ? *known : asks ? KernelKind::kResource : KernelKind::kCompute, nullptr};
  }
  TROUPE_ASSIGN(const KernelKind registered, std::move(known));
  const int kept = kept_id(node);
  std::shared_ptr<Kernel> kernel = kept < 0 ? nullptr : cache_.find(kept, on);
  if (!kernel) {
    TROUPE_ASSIGN(kernel, find_kernel(node, on, context_.kernels, cache_));
    if (kept >= 0) kernel = cache_.keep(kept, on, std::move(kernel));
  }
  TROUPE_ASSIGN(const KernelKind kind, check_kind(node, *kernel, registered));
  return NodeKernel{kind, std::move(kernel)};
}

Result<const Tensor*> Planner::constant_output(const Node& node, uint32_t device, const ComputeKernel* kernel) const {
  if (!kernel || !node.inputs().empty() || node.num_outputs() != 1 || chosen_.contains(node.id())) return nullptr;
  // Of what is cut each part has nodes, and a simulated device takes its time for each.
  const bool cut = !context_.task.empty() && !context_.part;
  if (cut || context_.devices[device].kind == DeviceKind::kSim) return nullptr;
  auto same = guarded([&] { return Result<const Tensor*>(kernel->constant()); });
  if (same.ok() && *same && kernel->checked)
    if (Status right = check_outputs(node, *kernel, {*same, 1}, true); !right.ok()) same = std::move(right.error());
  if (!same.ok()) return at_node(std::move(same.error()), node);
  return same;
}

Status Planner::add(const Node& node, uint32_t device) {
  auto found = kernel_of(node, device);
  if (!found.ok() && found.error().code == Code::kUnimplemented) {
    lacking_.push_back(std::move(found.error()));  // the others are looked up too, to be told of all at once
    return {};
  }
  TROUPE_ASSIGN(const NodeKernel by, std::move(found));
  Kernel* const kernel = by.kernel.get();
  if (kernel) plan_->kernels.push_back(by.kernel);
  PlanNode p;
  p.num_inputs = static_cast<uint16_t>(node.inputs().size());
  p.num_outputs = static_cast<uint16_t>(node.num_outputs());
  switch (by.kind) {
    case KernelKind::kCompute: {
      p.kind = NodeKind::kCompute;
      p.compute = static_cast<ComputeKernel*>(kernel);
      TROUPE_ASSIGN(const Tensor* const same, constant_output(node, device, p.compute));
      if (!same) break;
      constants_[static_cast<size_t>(node.id())] = same;
      return {};
    }
    case KernelKind::kResource:
      p.kind = NodeKind::kResource;
      p.resource = static_cast<ResourceKernel*>(kernel);
      break;
    case KernelKind::kBlocking:
      p.kind = NodeKind::kBlocking;
      p.blocking = static_cast<uint32_t>(plan_->blocking.size());
      plan_->blocking.push_back(std::static_pointer_cast<BlockingKernel>(by.kernel));
      break;
    case KernelKind::kConst:
      p.kind = NodeKind::kConst;
      p.constant = kernel ? &static_cast<BuiltinKernel*>(kernel)->value : node.attrs().get<Tensor>("value");
      if (chosen_.contains(node.id())) break;
      constants_[static_cast<size_t>(node.id())] = p.constant;
      return {};
    case KernelKind::kPlaceholder:
      return at_node(invalid_argument("needs a value: feed {}{}", to_string(node.dtype(0)), node.shape(0).str()), node);
    case KernelKind::kNoOp:
    case KernelKind::kControlFlow:
      p.kind = control_kind(node);
      if (!context_.part && (p.kind == NodeKind::kSend || p.kind == NodeKind::kRecv))
        return at_node(invalid_argument("is only for the parts of steps that were cut"), node);
      if (p.kind == NodeKind::kEnter)
        p.enter = {static_cast<uint32_t>(frames_.of_output(node)), *node.attrs().get<bool>("is_constant")};
      if (p.kind == NodeKind::kAlive) p.alive_dtype = node.dtype(0);
      if (p.kind == NodeKind::kRecv) control_flow_ |= *node.attrs().get<bool>("conditional");
      control_flow_ |= p.kind >= NodeKind::kSwitch;
      break;
    case KernelKind::kUnknown: break;  // check_kind refuses it
  }
  const uint32_t partition = partition_of(device);
  PartitionDraft& draft = drafts_[partition];
  p.first_output = draft.add_slots(p.num_outputs, static_cast<uint32_t>(frames_.of_output(node)));
  const Place here = where_[static_cast<size_t>(node.id())] = {partition, draft.add_node(p, &node, frame_of(node))};
  if (p.kind == NodeKind::kRecv) draft.dependencies[here.node] = 1;
  return {};
}

Error Planner::lacking() const {
  if (lacking_.size() == 1) return lacking_[0];
  constexpr size_t kMostNamed = 20;
  std::string list;
  for (size_t i = 0; i < std::min(lacking_.size(), kMostNamed); ++i)
    list += fmt::format("{}{} '{}': {}", i ? "; " : "", lacking_[i].op, lacking_[i].node, lacking_[i].message);
  if (lacking_.size() > kMostNamed) list += fmt::format("; and {} more", lacking_.size() - kMostNamed);
  return make_error(Code::kUnimplemented, "{} nodes cannot run: {}", lacking_.size(), list);
}

uint32_t Planner::partition_of(uint32_t device) {
  auto [at, fresh] = partition_by_device_.try_emplace(device, static_cast<uint32_t>(drafts_.size()));
  if (fresh) {
    drafts_.emplace_back();
    drafts_.back().plan.device = device;
  }
  return at->second;
}

Status Planner::connect(const Node& node) {
  const Place here = where_[static_cast<size_t>(node.id())];
  if (here.partition == kNone) return {};  // a constant
  PartitionDraft& draft = drafts_[here.partition];
  if (draft.plan.nodes[here.node].kind == NodeKind::kRecv) return {};  // its control inputs tell its loop
  draft.plan.nodes[here.node].first_input = static_cast<uint32_t>(draft.plan.input_slots.size());
  const size_t first_edge = draft.edges.size();
  int index = 0;
  for (const Output& in : node.inputs()) {
    TROUPE_ASSIGN(const uint32_t slot, input_slot(step_->now(in), here, index++));
    ++draft.uses[slot];
    draft.plan.input_slots.push_back(slot);
  }
  return wait_for_controls(node, here, first_edge);
}

Status Planner::wait_for_controls(const Node& node, Place here, size_t first_edge) {
  ++waiter_;
  const auto look_at = [&](const Node& n) {
    if (!n.control_inputs().empty() && std::exchange(waited_through_[static_cast<size_t>(n.id())], waiter_) != waiter_)
      waits_.push_back(&n);
  };
  look_at(node);
  for (const Output& in : node.inputs())
    if (const Node& from = *step_->now(in).node; constant(from)) look_at(from);
  if (waits_.empty()) return {};

  PartitionDraft& draft = drafts_[here.partition];
  const bool merge = draft.plan.nodes[here.node].kind == NodeKind::kMerge;
  std::vector<uint32_t>& waited_for = waited_for_[here.partition];
  waited_for.resize(draft.plan.nodes.size(), 0);
  for (size_t i = first_edge; i < draft.edges.size(); ++i)
    if (draft.edges[i].to == here.node) waited_for[draft.edges[i].from] = waiter_;
  const auto has_edge = [&](uint32_t from, int port) {
    return std::any_of(
        draft.edges.begin() + static_cast<ptrdiff_t>(first_edge), draft.edges.end(),
        [&](const PartitionDraft::Edge& e) { return e.from == from && e.to == here.node && e.port == port; });
  };
  Status status;
  while (!waits_.empty()) {
    const Node& next = *waits_.back();
    waits_.pop_back();
    step_->for_each_control(next, [&](const Output& before) {
      if (constant(*before.node)) return look_at(*before.node);
      const Place there = where_[static_cast<size_t>(before.node->id())];
      if (there.partition == kNone) return;  // all its outputs are fed
      if (there.partition != here.partition) {
        const auto recv = transfer(before, false, here.partition);
        if (!recv.ok()) status = recv.status();
        else drafts_[here.partition].add_edge(recv->node, here.node, -1);
        return;
      }
      // A node that reads it, or waits for it already, dies with it.
      const bool known = std::exchange(waited_for[there.node], waiter_) == waiter_ &&
                         (before.port < 0 || has_edge(there.node, before.port));
      if (merge || !known) draft.add_edge(there.node, here.node, merge ? -1 : before.port);
    });
  }
  return status;
}

Result<uint32_t> Planner::input_slot(const Output& in, Place here, int index) {
  PartitionDraft& draft = drafts_[here.partition];
  TROUPE_ASSIGN(const Space space, space_of_input(here, index, in.dtype()));
  const auto read = [&](const Held& held) {
    const Held value = copied(held, space);
    if (value.from.node != kNone) draft.add_edge(value.from.node, here.node, value.port);
    return value.slot;
  };
  if (auto fed = fed_.find({in.node->id(), in.port}); fed != fed_.end()) {
    if (draft.node_frames[here.node] != 0)
      return at_node(invalid_argument("reads {} inside a loop, where nothing can be fed", in.name()),
                     *draft.plan.graph_nodes[here.node]);
    if (context_.partial) {
      TROUPE_ASSIGN(const Place recv, feed_receiver(fed->second, here.partition));
      return read({recv, 0, draft.plan.nodes[recv.node].first_output, Space::kHost, in.node});
    }
    auto [at, fresh] = draft.feed_slots.try_emplace(fed->second, 0);
    if (fresh) {
      at->second = draft.add_slots(1);
      draft.plan.feeds.emplace_back(fed->second, at->second);
    }
    if (draft.plan.nodes[here.node].kind == NodeKind::kMerge && space == Space::kHost)
      draft.dependencies[here.node] &= ~1;  // it lives
    return read({{here.partition, kNone}, 0, at->second, Space::kHost, in.node});
  }
  if (constant(*in.node)) return constant_slot(*in.node, here.partition, space);
  Place there = where_[static_cast<size_t>(in.node->id())];
  if (there.partition != here.partition && is_constant_enter(*in.node)) {
    TROUPE_ASSIGN(there, copy_enter(*in.node, here.partition));
  }
  int port = in.port;
  if (there.partition != here.partition) {
    TROUPE_ASSIGN(there, transfer(in, true, here.partition));
    port = 0;
  }
  TROUPE_ASSIGN(Held held, output_held(there, port));
  if (space == Space::kGpu && swaps(held, here)) held = swapped(held, here);
  return read(held);
}

Result<uint32_t> Planner::constant_slot(const Node& node, uint32_t partition, Space space) {
  auto [at, fresh] = constant_slots_.try_emplace({node.id(), partition, space}, 0);
  if (!fresh) return at->second;
  const Tensor* value = constant(node);
  if (space == Space::kGpu) {
    const uint32_t device = drafts_[partition].plan.device;
    const int kept = kept_id(node);
    std::shared_ptr<const Tensor> there = kept < 0 ? nullptr : cache_.find_constant(kept, device);
    if (!there) {
      auto uploaded = context_.devices[device].gpu->upload(*value);
      if (!uploaded.ok()) {
        uploaded.error().device = context_.devices[device].name;
        return at_node(std::move(uploaded.error()), node);
      }
      there = std::make_shared<const Tensor>(std::move(*uploaded));
      if (kept >= 0) there = cache_.keep_constant(kept, device, std::move(there));
    }
    value = plan_->constants.emplace_back(std::move(there)).get();
  }
  return at->second = drafts_[partition].add_constant(*value, frame_of(node));
}

Status Planner::add_readers() {
  TROUPE_RETURN_IF_ERROR(add_fetches());
  std::vector<uint32_t> last(drafts_.size(), kNone);  // node, by partition
  for (const LateReader& reader : late_readers_) {
    PartitionPlan& plan = drafts_[reader.partition].plan;
    if (std::exchange(last[reader.partition], reader.node) != reader.node)
      plan.nodes[reader.node].first_input = static_cast<uint32_t>(plan.input_slots.size());
    plan.input_slots.push_back(reader.slot);
  }
  return {};
}

Status Planner::add_fetches() {
  for (uint32_t i = 0; i < plan_->fetches.size(); ++i) {
    const Output fetch = step_->now(plan_->fetches[i]);
    if (auto fed = fed_.find({fetch.node->id(), fetch.port}); fed != fed_.end()) {
      (context_.partial ? plan_->partial->fed_fetches : plan_->fed_fetches).emplace_back(fed->second, i);
      continue;
    }
    if (frames_.of_output(*fetch.node) != 0)
      return at_node(invalid_argument("{} is inside a loop and cannot be fetched", fetch.name()), *fetch.node);
    Place there = where_[static_cast<size_t>(fetch.node->id())];
    uint32_t slot;
    if (constant(*fetch.node)) {
      const uint32_t device = place(*fetch.node);
      there.partition = partition_of(context_.partial && is_remote(device) ? own_device() : device);
      TROUPE_ASSIGN(slot, constant_slot(*fetch.node, there.partition));
    } else {
      slot = drafts_[there.partition].plan.nodes[there.node].first_output + static_cast<uint32_t>(fetch.port);
    }
    if (context_.partial) {
      TROUPE_RETURN_IF_ERROR(send_fetch(i, fetch, there, slot));
      continue;
    }
    if (int port = fetch.port; !constant(*fetch.node)) {
      TROUPE_ASSIGN(slot, slot_at_host(there, port, slot));
    }
    PartitionDraft& draft = drafts_[there.partition];
    ++draft.uses[slot];
    draft.plan.fetches.emplace_back(slot, i);
  }
  return {};
}

Status Planner::close() {
  std::vector<std::vector<uint32_t>> renumbered;
  std::unordered_map<const Node*, int16_t> asked;
  for (PartitionDraft& draft : drafts_) {
    draft.plan.control_flow = control_flow_;
    renumbered.push_back(draft.close(frames_));
  }
  if (context_.partial) number_receivers(renumbered);
  if (context_.part) number_edges(renumbered);
  for (PartitionDraft& draft : drafts_) {
    for (PlanNode& node : draft.plan.nodes)
      if (node.kind == NodeKind::kSend && node.to.partition < kPeer && !renumbered[node.to.partition].empty())
        node.to.node = renumbered[node.to.partition][node.to.node];
    if (context_.priority || context_.part || placer_.by_cost())
      TROUPE_RETURN_IF_ERROR(ask_priorities(draft.plan, asked));
    draft.plan.by_cost = !context_.priority && placer_.by_cost();
    draft.plan.timed_steps = context_.timed_steps;
    begin_costs(draft.plan);
    plan_->partitions.push_back(std::move(draft.plan));
  }
  order_loops(*plan_, *step_, frames_);
  return {};
}

int Planner::priority(const Node& node) const {
  if (context_.part) return static_cast<int>(node.attrs().get_or<int64_t>(kPriorityAttr, 0));
  return context_.priority ? context_.priority(node) : placer_.priority(node);
}

Status Planner::ask_priorities(PartitionPlan& plan, std::unordered_map<const Node*, int16_t>& asked) const {
  plan.priorities.resize(plan.size(), 0);
  for (uint32_t i = 0; i < plan.size(); ++i) {
    const Node* const node = plan.graph_nodes[i];
    if (!node) continue;
    const auto [at, first] = asked.try_emplace(node, int16_t{0});
    if (first) {
      auto told = guarded([&] { return Result<int>(priority(*node)); });
      if (!told.ok()) return at_node(std::move(told.error()), *node);
      at->second = static_cast<int16_t>(std::clamp(*told, -1000, 1000));
    }
    plan.priorities[i] = at->second;
  }
  if (std::ranges::count(plan.priorities, 0) == std::ssize(plan.priorities)) plan.priorities.clear();
  return {};
}

namespace {

/// Whether the node is known to make so much that its like should not all be made before what follows has used any.
bool makes_much(const Node& node) {
  constexpr double kMuch = 1 << 20;
  for (int port = 0; port < node.num_outputs(); ++port)
    if (elements_of(node.shape(port)) * static_cast<double>(size_of(node.dtype(port))) >= kMuch) return true;
  return false;
}

}  // namespace

void Planner::begin_costs(PartitionPlan& plan) const {
  const std::string kind = kind_of(context_.devices[plan.device]);
  for (uint32_t i = 0; i < plan.size(); ++i) {
    if (plan.nodes[i].kind != NodeKind::kCompute) continue;
    uint32_t ns = 0;
    // Of a GPU the card's time is measured, and what keeps its executor is the launch.
    const bool runs_on = context_.devices[plan.device].kind == DeviceKind::kCuda;
    const CostModel* const costs = runs_on ? nullptr : context_.costs;
    if (const MeasuredCost* cost = costs ? costs->find(plan.graph_nodes[i]->name(), kind) : nullptr)
      ns = static_cast<uint32_t>(std::clamp(cost->ns, 1.0, 4e9));
    else if (makes_much(*plan.graph_nodes[i])) ns = PartitionPlan::kHeavyNs + 1;
    if (ns > 0) plan.cost_ns[i].store(ns, std::memory_order_relaxed);
  }
}

Result<uint32_t> find_device(const std::string& text, std::span<const DeviceInfo> devices) {
  TROUPE_ASSIGN(const DeviceName wanted, DeviceName::parse(text));
  std::string there;
  for (uint32_t i = 0; i < devices.size(); ++i) {
    TROUPE_ASSIGN(const DeviceName full, DeviceName::parse(devices[i].name));
    if (wanted.matches(full)) return i;
    there += (there.empty() ? "" : ", ") + devices[i].name;
  }
  return make_error(Code::kNotFound, "no device is \"{}\"; there are: {}", text, there);
}

std::string kind_of(const DeviceInfo& device) {
  const auto name = DeviceName::parse(device.name);
  return name.ok() ? name->kind.value_or("") : "";
}

Result<std::shared_ptr<const StepPlan>> make_plan(const Graph& graph, std::vector<Output> feeds,
                                                  std::vector<Output> fetches, const std::vector<const Node*>& targets,
                                                  const PlanContext& context, KernelCache& cache) {
  return Planner(graph, context, cache).make(std::move(feeds), std::move(fetches), targets);
}

}  // namespace troupe
