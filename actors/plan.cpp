// SPDX-License-Identifier: Apache-2.0
// Building plans: prune, rewrite, place, partition, flatten.
#include "actors/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "actors/evaluate.h"
#include "actors/executor.h"
#include "actors/loop_places.h"
#include "actors/partition_draft.h"
#include "actors/placer.h"
#include "actors/plan_kernels.h"
#include "base/check.h"
#include "base/device_name.h"
#include "graph/firing_order.h"
#include "graph/firings.h"
#include "graph/frames.h"
#include "graph/node_maker.h"
#include "graph/op_costs.h"
#include "graph/passes.h"
#include "graph/receive_schedule.h"

namespace troupe {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

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
    case ControlFlow::kNone: break;
  }
  return NodeKind::kNoOp;
}

class Planner {
 public:
  Planner(const Graph& graph, const PlanContext& context, KernelCache& cache)
      : graph_(graph), context_(context), cache_(cache), placer_(context), plan_(std::make_shared<StepPlan>()) {}

  Result<std::shared_ptr<const StepPlan>> make(std::vector<Output> feeds, std::vector<Output> fetches,
                                               const std::vector<const Node*>& targets) {
    plan_->feeds = std::move(feeds);
    plan_->fetches = std::move(fetches);
    step_.emplace(graph_, plan_->feeds, plan_->fetches, targets);
    run_passes(*step_, context_.passes, [this](const Node& node, std::span<const Tensor> inputs) {
      return evaluate(context_.kernels, node, inputs);
    });
    plan_->made_nodes = step_->made();
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
    cache_.by_node.resize(static_cast<size_t>(graph_.size()));
    find_chosen(needed);
    TROUPE_ASSIGN(loops_, LoopPlaces::make(*step_, frames_, needed,
                                           [this](const Node& n) -> Result<uint32_t> { return placer_.device_of(n); }));
    for (const Node* node : needed) {
      const uint32_t device = place(*node);
      devices_[static_cast<size_t>(node->id())] = device;
      TROUPE_RETURN_IF_ERROR(add(*node, device));
    }
    if (!lacking_.empty()) return lacking();
    for (const Node* node : needed) TROUPE_RETURN_IF_ERROR(connect(*node));
    if (!lacking_.empty()) return lacking();
    TROUPE_RETURN_IF_ERROR(share_loops());
    if (context_.schedule_receives && drafts_.size() > 1) hold_back_receives();
    TROUPE_RETURN_IF_ERROR(add_readers());
    close();
    return std::shared_ptr<const StepPlan>(std::move(plan_));
  }

 private:
  struct Place {
    uint32_t partition, node;
  };

  uint32_t place(const Node& node) const {
    const int frame = std::max(frames_.of[static_cast<size_t>(node.id())], frames_.of_output(node));
    return frame == 0 ? placer_.device_of(node) : loops_.device(node);
  }

  uint32_t partition_of(uint32_t device) {
    auto [at, fresh] = partition_by_device_.try_emplace(device, static_cast<uint32_t>(drafts_.size()));
    if (fresh) {
      drafts_.emplace_back();
      drafts_.back().plan.device = device;
    }
    return at->second;
  }

  /// Nodes whose being dead matters to more than their readers: what Merges choose from, and fetches that wait.
  void find_chosen(const std::vector<const Node*>& needed) {
    const auto chosen = [&](const Output& o) { chosen_.insert(step_->now(o).node->id()); };
    for (const Node* node : needed)
      if (node->op().control_flow() == ControlFlow::kMerge) std::ranges::for_each(node->inputs(), chosen);
    for (const Output& fetch : plan_->fetches)
      if (!step_->now(fetch).node->control_inputs().empty()) chosen(fetch);
  }

  Status add(const Node& node, uint32_t device) {
    std::shared_ptr<Kernel> made;
    std::shared_ptr<Kernel>& kernel = step_->is_made(node) ? made : cache_.by_node[static_cast<size_t>(node.id())];
    if (!kernel) {
      auto found = find_kernel(node, context_.devices[device].kind, context_.kernels, cache_);
      if (!found.ok() && found.error().code == Code::kUnimplemented) {
        lacking_.push_back(std::move(found.error()));  // the others are looked up too, to be told of all at once
        return {};
      }
      TROUPE_ASSIGN(kernel, std::move(found));
    }
    plan_->kernels.push_back(kernel);
    if (auto* builtin = dynamic_cast<BuiltinKernel*>(kernel.get());
        builtin && builtin->kind == Builtin::kConst && !chosen_.contains(node.id())) {
      constants_[static_cast<size_t>(node.id())] = &builtin->value;
      return {};
    }
    PlanNode p;
    p.num_inputs = static_cast<uint16_t>(node.inputs().size());
    p.num_outputs = static_cast<uint16_t>(node.num_outputs());
    if (auto* compute = dynamic_cast<ComputeKernel*>(kernel.get())) {
      p.kind = NodeKind::kCompute;
      p.compute = compute;
    } else if (auto* resource = dynamic_cast<ResourceKernel*>(kernel.get())) {
      p.kind = NodeKind::kResource;
      p.resource = resource;
    } else if (auto* blocking = dynamic_cast<BlockingKernel*>(kernel.get())) {
      p.kind = NodeKind::kBlocking;
      p.blocking = blocking;
    } else {
      const auto& builtin = static_cast<const BuiltinKernel&>(*kernel);
      if (builtin.kind == Builtin::kPlaceholder)
        return at_node(invalid_argument("needs a value: feed {}{}", to_string(node.dtype(0)), node.shape(0).str()),
                       node);
      p.kind = builtin.kind == Builtin::kConst ? NodeKind::kConst : control_kind(node);
      if (p.kind == NodeKind::kConst) p.constant = &builtin.value;
      if (p.kind == NodeKind::kEnter)
        p.enter = {static_cast<uint32_t>(frames_.of_output(node)), *node.attrs().get<bool>("is_constant")};
      if (p.kind == NodeKind::kAlive) p.alive_dtype = node.dtype(0);
      control_flow_ |= p.kind != NodeKind::kConst && p.kind != NodeKind::kNoOp;
    }
    const uint32_t partition = partition_of(device);
    PartitionDraft& draft = drafts_[partition];
    p.first_output = draft.add_slots(p.num_outputs, static_cast<uint32_t>(frames_.of_output(node)));
    where_[static_cast<size_t>(node.id())] = {partition, draft.add_node(p, &node, frame_of(node))};
    return {};
  }

  /// All nodes that have no kernel, as one error.
  Error lacking() const {
    if (lacking_.size() == 1) return lacking_[0];
    constexpr size_t kMostNamed = 20;
    std::string list;
    for (size_t i = 0; i < std::min(lacking_.size(), kMostNamed); ++i)
      list += fmt::format("{}{} '{}': {}", i ? "; " : "", lacking_[i].op, lacking_[i].node, lacking_[i].message);
    if (lacking_.size() > kMostNamed) list += fmt::format("; and {} more", lacking_.size() - kMostNamed);
    return make_error(Code::kUnimplemented, "{} nodes cannot run: {}", lacking_.size(), list);
  }

  uint32_t frame_of(const Node& node) const {
    return static_cast<uint32_t>(frames_.of[static_cast<size_t>(node.id())]);
  }

  const Tensor* constant(const Node& node) const { return constants_[static_cast<size_t>(node.id())]; }

  Status connect(const Node& node) {
    const Place here = where_[static_cast<size_t>(node.id())];
    if (here.partition == kNone) return {};  // a constant
    PartitionDraft& draft = drafts_[here.partition];
    draft.plan.nodes[here.node].first_input = static_cast<uint32_t>(draft.plan.input_slots.size());
    const size_t first_edge = draft.edges.size();
    for (const Output& in : node.inputs()) {
      TROUPE_ASSIGN(const uint32_t slot, input_slot(step_->now(in), here));
      ++draft.uses[slot];
      draft.plan.input_slots.push_back(slot);
    }
    wait_for_controls(node, here, first_edge);
    for (const Output& in : node.inputs())
      if (const Node& from = *step_->now(in).node; constant(from)) wait_for_controls(from, here, first_edge);
    return {};
  }

  /// Has `here`, whose edges begin at first_edge, wait for what `node` waits for by control inputs.
  void wait_for_controls(const Node& node, Place here, size_t first_edge) {
    step_->for_each_control(node, [&](const Output& before) {
      if (constant(*before.node)) return wait_for_controls(*before.node, here, first_edge);
      const Place there = where_[static_cast<size_t>(before.node->id())];
      if (there.partition == kNone) return;  // all its outputs are fed
      PartitionDraft& draft = drafts_[here.partition];
      const bool merge = draft.plan.nodes[here.node].kind == NodeKind::kMerge;
      if (there.partition != here.partition)
        return draft.add_edge(transfer(before, false, here.partition).node, here.node, -1);
      // Who reads a node, or waits for it already, is dead where it is.
      const bool known = std::any_of(draft.edges.begin() + static_cast<ptrdiff_t>(first_edge), draft.edges.end(),
                                     [&](const PartitionDraft::Edge& e) {
                                       return e.from == there.node && (before.port < 0 || e.port == before.port);
                                     });
      if (merge || !known) draft.add_edge(there.node, here.node, merge ? -1 : before.port);
    });
  }

  /// The slot of `in` in the partition of `here`, with the edge that fills it.
  Result<uint32_t> input_slot(const Output& in, Place here) {
    PartitionDraft& draft = drafts_[here.partition];
    if (auto fed = fed_.find({in.node->id(), in.port}); fed != fed_.end()) {
      if (draft.node_frames[here.node] != 0)
        return at_node(invalid_argument("reads {} inside a loop, where nothing can be fed", in.name()),
                       *draft.plan.graph_nodes[here.node]);
      if (draft.plan.nodes[here.node].kind == NodeKind::kMerge) draft.dependencies[here.node] &= ~1;  // it lives
      auto [at, fresh] = draft.feed_slots.try_emplace(fed->second, 0);
      if (fresh) {
        at->second = draft.add_slots(1);
        draft.plan.feeds.emplace_back(fed->second, at->second);
      }
      return at->second;
    }
    if (constant(*in.node)) return constant_slot(*in.node, here.partition);
    Place there = where_[static_cast<size_t>(in.node->id())];
    if (there.partition != here.partition && is_constant_enter(*in.node)) {
      TROUPE_ASSIGN(there, copy_enter(*in.node, here.partition));
    }
    if (there.partition == here.partition) {
      draft.add_edge(there.node, here.node, in.port);
      return draft.plan.nodes[there.node].first_output + static_cast<uint32_t>(in.port);
    }
    const Place recv = transfer(in, true, here.partition);
    draft.add_edge(recv.node, here.node, 0);
    return draft.plan.nodes[recv.node].first_output;
  }

  /// Each partition has a slot of its own for a constant that it reads: nothing need be sent.
  uint32_t constant_slot(const Node& node, uint32_t partition) {
    auto [at, fresh] = constant_slots_.try_emplace({node.id(), partition}, 0);
    if (fresh) at->second = drafts_[partition].add_constant(*constant(node), frame_of(node));
    return at->second;
  }

  /// The Recv in `partition` of an output, or, without its value, of the mere fact that the node has run (of an
  /// output of a Switch: that it was taken). There is one pair for each tensor or fact and destination.
  Place transfer(const Output& what, bool value, uint32_t partition) {
    const Node& from = *what.node;
    auto [at, fresh] = transfers_.try_emplace({from.id(), what.port, value, partition}, Place{partition, kNone});
    if (!fresh) return at->second;
    const Place there = where_[static_cast<size_t>(from.id())];
    at->second = value && is_compressed(what) ? transfer_compressed(what, there, partition)
                                              : add_pair(there, what.port, value, partition);
    return at->second;
  }

  /// A Send behind `from` and its Recv in `partition`, of that output or the mere fact.
  Place add_pair(Place from, int port, bool value, uint32_t partition) {
    PartitionDraft& source = drafts_[from.partition];
    PartitionDraft& target = drafts_[partition];
    const Node* producer = source.plan.graph_nodes[from.node];
    const uint32_t frame = frame_of_outputs(from);
    crossings_.emplace(from.partition, partition, frame);

    PlanNode recv;
    recv.kind = NodeKind::kRecv;
    recv.num_outputs = 1;
    recv.first_output = target.add_slots(1, frame);
    const Place there{partition, target.add_node(recv, producer, frame)};
    target.dependencies[there.node] = 1;

    PlanNode send;
    send.kind = NodeKind::kSend;
    send.to = {partition, there.node};
    const uint32_t send_index = source.add_node(send, producer, frame);
    if (value)
      read_later(from.partition, send_index, source.plan.nodes[from.node].first_output + static_cast<uint32_t>(port));
    source.add_edge(from.node, send_index, port);
    return there;
  }

  uint32_t frame_of_outputs(Place at) const {
    const PlanNode& node = drafts_[at.partition].plan.nodes[at.node];
    const uint32_t frame = drafts_[at.partition].node_frames[at.node];
    if (node.kind == NodeKind::kEnter) return node.enter.frame;
    return node.kind == NodeKind::kExit ? static_cast<uint32_t>(frames_.frames[frame].parent) : frame;
  }

  /// Gives a node that is none of the graph's its next input. The inputs of one node are given one after the other.
  void read_later(uint32_t partition, uint32_t node, uint32_t slot) {
    ++drafts_[partition].plan.nodes[node].num_inputs;
    ++drafts_[partition].uses[slot];
    late_readers_.push_back({partition, node, slot});
  }

  // -- loops on several devices ---------------------------------------------------------------------------------------

  bool is_constant_enter(const Node& node) const {
    return node.op().control_flow() == ControlFlow::kEnter && *node.attrs().get<bool>("is_constant");
  }

  /// What is the same in every iteration enters the loop on each device that reads it, and need not cross in each.
  Result<Place> copy_enter(const Node& node, uint32_t partition) {
    auto [at, fresh] = enter_copies_.try_emplace({node.id(), partition}, Place{partition, kNone});
    if (!fresh) return at->second;
    PartitionDraft& draft = drafts_[partition];
    const auto frame = static_cast<uint32_t>(frames_.of_output(node));
    const Place here = at->second = add_enter(node, frame, true, partition);
    const size_t first_edge = draft.edges.size();
    const Output in = step_->now(node.inputs()[0]);
    TROUPE_ASSIGN(const uint32_t slot, input_slot(in, here));
    read_later(partition, here.node, slot);
    wait_for_controls(node, here, first_edge);
    if (constant(*in.node)) wait_for_controls(*in.node, here, first_edge);
    return here;
  }

  Place add_enter(const Node& like, uint32_t frame, bool every_iteration, uint32_t partition) {
    PartitionDraft& draft = drafts_[partition];
    PlanNode enter;
    enter.kind = NodeKind::kEnter;
    enter.num_outputs = 1;
    enter.first_output = draft.add_slots(1, frame);
    enter.enter = {frame, every_iteration};
    return {partition, draft.add_node(enter, &like, static_cast<uint32_t>(frames_.frames[frame].parent))};
  }

  /// Gives every device that takes part in a loop iterations of its own.
  Status share_loops() {
    for (const auto& [frame, shared] : loops_.shared()) {
      const uint32_t decides = where_[static_cast<size_t>(shared.condition.node->id())].partition;
      std::vector<Place> merges;
      for (const uint32_t device : shared.devices) {
        TROUPE_ASSIGN(const Place merge, follow_loop(static_cast<uint32_t>(frame), shared, partition_of(device)));
        merges.push_back(merge);
      }
      // Who decides is told that the others have begun an iteration, so that it does not run away from them.
      for (const Place& merge : merges)
        if (merge.partition != decides && !crossings_.contains({merge.partition, decides, frame}))
          add_pair(merge, 0, false, decides);
    }
    return {};
  }

  /// A small loop that carries a token for as long as the condition holds. Returns its Merge.
  Result<Place> follow_loop(uint32_t frame, const LoopPlaces::Shared& shared, uint32_t partition) {
    PartitionDraft& draft = drafts_[partition];
    const Node& condition = *shared.condition.node;
    // Enters when, and lives if, the loop is entered elsewhere.
    const Place enter = add_enter(*shared.enter, frame, false, partition);
    const size_t first_edge = draft.edges.size();
    read_later(partition, enter.node,
               draft.add_constant(plan_->token, static_cast<uint32_t>(frames_.frames[frame].parent)));
    if (const Output in = step_->now(shared.enter->inputs()[0]); !step_->is_fed(in)) {
      if (constant(*in.node)) wait_for_controls(*in.node, enter, first_edge);
      else TROUPE_RETURN_IF_ERROR(wait_for(in, enter));
    }
    wait_for_controls(*shared.enter, enter, first_edge);

    PlanNode merge, branch, next;
    merge.kind = NodeKind::kMerge;
    branch.kind = NodeKind::kSwitch;
    next.kind = NodeKind::kNextIteration;
    merge.num_outputs = branch.num_outputs = 2;
    next.num_outputs = 1;
    for (PlanNode* node : {&merge, &branch, &next}) node->first_output = draft.add_slots(node->num_outputs, frame);
    const Place merged{partition, draft.add_node(merge, &condition, frame)};
    const uint32_t branched = draft.add_node(branch, &condition, frame),
                   follows = draft.add_node(next, &condition, frame);
    read_later(partition, merged.node, draft.plan.nodes[enter.node].first_output);
    read_later(partition, merged.node, next.first_output);
    draft.add_edge(enter.node, merged.node, 0);
    draft.add_edge(follows, merged.node, 0);
    read_later(partition, branched, merge.first_output);
    draft.add_edge(merged.node, branched, 0);
    TROUPE_ASSIGN(const uint32_t decision, input_slot(shared.condition, {partition, branched}));
    read_later(partition, branched, decision);
    read_later(partition, follows, branch.first_output + 1);
    draft.add_edge(branched, follows, 1);
    return merged;
  }

  /// Has `here` wait for `before`, an output of a node, and die with it.
  Status wait_for(const Output& before, Place here) {
    Place there = where_[static_cast<size_t>(before.node->id())];
    if (there.partition != here.partition && is_constant_enter(*before.node)) {
      TROUPE_ASSIGN(there, copy_enter(*before.node, here.partition));
    }
    const bool local = there.partition == here.partition;
    const uint32_t from = local ? there.node : transfer(before, false, here.partition).node;
    drafts_[here.partition].add_edge(from, here.node, local ? before.port : -1);
    return {};
  }

  bool is_compressed(const Output& what) const {
    return what.dtype() == DType::kFloat32 &&
           transfer_compression(*what.node).value_or(context_.compress_transfers) == TransferCompression::kBFloat16;
  }

  /// The node that expands it in `partition`. It is made smaller once for all who receive it.
  Place transfer_compressed(const Output& what, Place from, uint32_t partition) {
    auto [at, fresh] = compressed_.try_emplace({what.node->id(), what.port}, Place{});
    if (fresh) at->second = convert(what, from, DType::kBFloat16);
    const Place recv = add_pair(at->second, 0, true, partition);
    return convert(drafts_[from.partition].plan.graph_nodes[at->second.node]->out(), recv, DType::kFloat32);
  }

  /// A Cast behind `from`, which puts out `what` there.
  Place convert(const Output& what, Place from, DType to) {
    PartitionDraft& draft = drafts_[from.partition];
    Node& node = plan_->conversions.emplace_back();
    const int id = step_->ids() + static_cast<int>(plan_->conversions.size()) - 1;
    const bool expands = to == DType::kFloat32;
    NodeSpec spec{"Cast", what.node->name() + (expands ? "/expanded" : "/compressed"), {what}};
    spec.attrs = {{"DstT", to}, {"Truncate", true}};
    TROUPE_CHECK(NodeMaker::make(*graph_.ops().find("Cast"), std::move(spec), id, node).ok());
    auto kernel = find_kernel(node, context_.devices[draft.plan.device].kind, context_.kernels, cache_);
    if (!kernel.ok()) {
      lacking_.push_back(std::move(kernel.error()));
      return from;
    }
    plan_->kernels.push_back(*kernel);
    PlanNode cast;
    cast.kind = NodeKind::kCompute;
    cast.compute = dynamic_cast<ComputeKernel*>(kernel->get());
    cast.num_outputs = 1;
    cast.first_output = draft.add_slots(1, frame_of_outputs(from));
    const Place here{from.partition, draft.add_node(cast, &node, frame_of_outputs(from))};
    const bool received = draft.plan.nodes[from.node].kind == NodeKind::kRecv;
    const auto port = static_cast<uint32_t>(received ? 0 : what.port);
    read_later(here.partition, here.node, draft.plan.nodes[from.node].first_output + port);
    draft.add_edge(from.node, here.node, static_cast<int>(port));
    return here;
  }

  /// Has what is to come late wait for what is done shortly before it is needed.
  void hold_back_receives() {
    const auto rates = [&](const Node& node) -> const DeviceInfo& {
      return context_.devices[devices_[static_cast<size_t>(node.id())]];
    };
    const std::vector<double> firings = firings_of(*step_, frames_, context_.costs);
    const auto node_ns = [&](const Node& node) {
      const DeviceInfo& device = rates(node);
      return firings[static_cast<size_t>(node.id())] *
             (context_.costs ? context_.costs->time_ns(node, kind_of(device), device.rates)
                             : cost_of(node).time_ns(device.rates));
    };
    const auto expand_ns = [&](const Output& what) {
      if (!is_compressed(what)) return 0.;
      const double bytes = bytes_of(what.dtype(), step_->shape(what));
      return NodeCost{0, 1.5 * bytes}.time_ns(rates(*what.node).rates);
    };
    const ReceiveSchedule schedule = schedule_receives({*step_, frames_, devices_, node_ns, expand_ns, context_.link});
    for (const auto& [node, until] : schedule.made) {
      const Place here = where_[static_cast<size_t>(node->id())];
      drafts_[here.partition].add_edge(release(*until, here.partition), here.node, -1);
    }
    for (const auto& [what, device, until] : schedule.expanded) {
      const uint32_t partition = partition_by_device_.at(device);
      const Place expansion = transfers_.at({what.node->id(), what.port, true, partition});
      drafts_[partition].add_edge(release(*until, partition), expansion.node, -1);
    }
  }

  /// A node of `partition` that lives and is done once `until` is done, be it dead or not.
  uint32_t release(const Node& until, uint32_t partition) {
    auto [at, fresh] = releases_.try_emplace({until.id(), partition}, kNone);
    if (!fresh) return at->second;
    Place there = where_[static_cast<size_t>(until.id())];
    if (there.partition != partition) there = transfer({&until, -1}, false, partition);
    at->second = there.node;
    if (!control_flow_) return at->second;
    PlanNode trigger;
    trigger.kind = NodeKind::kTrigger;
    at->second = drafts_[partition].add_node(trigger, &until);
    drafts_[partition].add_edge(there.node, at->second, -1);
    return at->second;
  }

  /// What reads slots beside the graph's nodes: sends and conversions, laid out behind, and fetches.
  Status add_readers() {
    std::vector<uint32_t> last(drafts_.size(), kNone);  // node, by partition
    for (const LateReader& reader : late_readers_) {
      PartitionPlan& plan = drafts_[reader.partition].plan;
      if (std::exchange(last[reader.partition], reader.node) != reader.node)
        plan.nodes[reader.node].first_input = static_cast<uint32_t>(plan.input_slots.size());
      plan.input_slots.push_back(reader.slot);
    }
    for (uint32_t i = 0; i < plan_->fetches.size(); ++i) {
      const Output fetch = step_->now(plan_->fetches[i]);
      if (auto fed = fed_.find({fetch.node->id(), fetch.port}); fed != fed_.end()) {
        plan_->fed_fetches.emplace_back(fed->second, i);
        continue;
      }
      if (frames_.of_output(*fetch.node) != 0)
        return at_node(invalid_argument("{} is inside a loop and cannot be fetched", fetch.name()), *fetch.node);
      Place there = where_[static_cast<size_t>(fetch.node->id())];
      uint32_t slot;
      if (constant(*fetch.node)) {
        there.partition = partition_of(place(*fetch.node));
        slot = constant_slot(*fetch.node, there.partition);
      } else {
        slot = drafts_[there.partition].plan.nodes[there.node].first_output + static_cast<uint32_t>(fetch.port);
      }
      PartitionDraft& draft = drafts_[there.partition];
      ++draft.uses[slot];
      draft.plan.fetches.emplace_back(slot, i);
    }
    return {};
  }

  void close() {
    std::vector<std::vector<uint32_t>> renumbered;
    for (PartitionDraft& draft : drafts_) {
      draft.plan.control_flow = control_flow_;
      renumbered.push_back(draft.close(frames_));
    }
    for (PartitionDraft& draft : drafts_) {
      for (PlanNode& node : draft.plan.nodes)
        if (node.kind == NodeKind::kSend && !renumbered[node.to.partition].empty())
          node.to.node = renumbered[node.to.partition][node.to.node];
      if (context_.priority || placer_.by_cost()) ask_priorities(draft.plan);
      draft.plan.timed_steps = context_.timed_steps;
      if (context_.costs) begin_costs(draft.plan);
      plan_->partitions.push_back(std::move(draft.plan));
    }
  }

  void ask_priorities(PartitionPlan& plan) const {
    plan.priorities.resize(plan.size(), 0);
    for (uint32_t i = 0; i < plan.size(); ++i)
      if (plan.graph_nodes[i])
        plan.priorities[i] = static_cast<int16_t>(std::clamp(priority(*plan.graph_nodes[i]), -1000, 1000));
    if (std::ranges::count(plan.priorities, 0) == std::ssize(plan.priorities)) plan.priorities.clear();
  }

  int priority(const Node& node) const { return context_.priority ? context_.priority(node) : placer_.priority(node); }

  /// What was measured before, as if this plan had.
  void begin_costs(PartitionPlan& plan) const {
    const std::string kind = kind_of(context_.devices[plan.device]);
    for (uint32_t i = 0; i < plan.size(); ++i)
      if (plan.nodes[i].kind == NodeKind::kCompute)
        if (const MeasuredCost* cost = context_.costs->find(plan.graph_nodes[i]->name(), kind))
          plan.cost_ns[i].store(static_cast<uint32_t>(std::clamp(cost->ns, 1.0, 4e9)), std::memory_order_relaxed);
  }

  struct LateReader {
    uint32_t partition, node, slot;
  };

  const Graph& graph_;
  const PlanContext& context_;
  KernelCache& cache_;
  Placer placer_;
  std::shared_ptr<StepPlan> plan_;
  std::optional<StepGraph> step_;
  std::vector<PartitionDraft> drafts_;
  std::map<uint32_t, uint32_t> partition_by_device_;
  std::map<std::pair<int, int>, uint32_t> fed_;
  std::vector<Place> where_;       // by node id; of a constant kNone
  std::vector<uint32_t> devices_;  // by node id
  std::unordered_set<int> chosen_;
  std::vector<const Tensor*> constants_;                         // by node id: what is in slots in place of nodes
  std::map<std::pair<int, uint32_t>, uint32_t> constant_slots_;  // by id and partition
  Frames frames_;
  LoopPlaces loops_;
  std::map<std::pair<int, uint32_t>, Place> enter_copies_;        // by id and partition
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> crossings_;  // from, to, frame
  bool control_flow_ = false;
  std::map<std::tuple<int, int, bool, uint32_t>, Place> transfers_;
  std::map<std::pair<int, int>, Place> compressed_;  // by id and port of what they compress
  std::vector<LateReader> late_readers_;
  std::map<std::pair<int, uint32_t>, uint32_t> releases_;  // by id of what is waited for, and partition
  std::vector<Error> lacking_;                             // of nodes without a kernel
};

}  // namespace

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

PartitionPlan::PartitionPlan() = default;
PartitionPlan::PartitionPlan(PartitionPlan&&) noexcept = default;
PartitionPlan::~PartitionPlan() = default;

Result<std::shared_ptr<const StepPlan>> make_plan(const Graph& graph, std::vector<Output> feeds,
                                                  std::vector<Output> fetches, const std::vector<const Node*>& targets,
                                                  const PlanContext& context, KernelCache& cache) {
  return Planner(graph, context, cache).make(std::move(feeds), std::move(fetches), targets);
}

}  // namespace troupe
