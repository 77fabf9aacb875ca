// SPDX-License-Identifier: Apache-2.0
// Cutting a step that several tasks run: the partitions that were drafted, written down as one graph a task.
#include <algorithm>
#include <deque>

#include "plan/cut.h"
#include "plan/loop_order.h"
#include "plan/node_kernels.h"
#include "plan/planner.h"
#include "troupe/guarded.h"
#include "troupe/resource.h"

namespace troupe {
namespace {

/// Handles mean something to their own task alone.
bool crosses(DType dtype) { return dtype != DType::kResource; }
/// Whether another task takes it as a feed and gives it as a fetch. Lists go from node to node alone.
bool crosses_to_caller(DType dtype) { return crosses(dtype) && dtype != DType::kVariant; }

/// But where it is to be: that is settled.
Attrs attrs_of(const Node& node) {
  Attrs out;
  for (const auto& [name, value] : node.attrs())
    if (name != "_class") out.set(name, value);
  return out;
}

}  // namespace

std::string resource_key(const Node& node) {
  const std::string* name = node.attrs().get<std::string>("shared_name");
  if (!name || node.num_outputs() == 0 || node.dtype(0) != DType::kResource) return {};
  ResourceHandle handle;
  handle.type = node.op().name();
  handle.container = node.attrs().get_or<std::string>("container", {});
  handle.name = name->empty() ? node.name() : *name;
  return handle.host_key();
}

std::string task_of(const std::string& device) { return device.substr(0, device.find("/device:")); }

const Node* StepPart::origin(std::string_view name) const {
  for (;;) {
    if (const Node* node = graph->find(std::string(name))) return origins[static_cast<size_t>(node->id())];
    const size_t end = name.rfind('/');
    if (end == std::string_view::npos) return nullptr;
    name = name.substr(0, end);
  }
}

/// Writes the drafts of one task's devices as a graph.
class Planner::PartWriter {
 public:
  PartWriter(const Planner& planner, StepPart& part) : p_(planner), part_(part) {
    part_.graph = std::make_unique<Graph>(planner.graph_.ops());
  }

  /// `originals`: names of the graph's own nodes, which keep theirs.
  Status write(const std::vector<uint32_t>& partitions, const std::unordered_set<std::string_view>& originals) {
    originals_ = &originals;
    for (const uint32_t partition : partitions) TROUPE_RETURN_IF_ERROR(write(partition));
    std::ranges::sort(part_.feeds, {}, &std::pair<uint32_t, Output>::first);
    std::ranges::sort(part_.fetches, {}, &std::pair<uint32_t, Output>::first);
    return {};
  }

 private:
  /// What fills a slot: an output of a node of the draft, a feed or a constant.
  struct Source {
    enum { kNothing, kNode, kFeed, kConstant, kToken } kind = kNothing;
    uint32_t index = 0;  // the node; the feed; the constant's id
    int port = 0;
  };

  Status write(uint32_t partition) {
    draft_ = &p_.drafts_[partition];
    device_ = &p_.context_.devices[draft_->plan.device].name;
    partition_ = partition;
    find_sources();
    const uint32_t n = draft_->plan.size();
    edges_to_.assign(n, {});
    for (const PartitionDraft::Edge& e : draft_->edges) edges_to_[e.to].push_back(e);
    find_markers();
    made_.assign(n, nullptr);
    pivots_.clear();
    frame_constants_.clear();
    feeds_of_recvs_.clear();
    for (const auto& [key, recv] : p_.feed_receivers_)
      if (recv.partition == partition) feeds_of_recvs_[recv.node] = key.first;
    std::vector<std::pair<uint32_t, uint32_t>> loops;  // (Merge, NextIteration)
    TROUPE_ASSIGN(const std::vector<uint32_t> order, sort(loops));
    for (const uint32_t i : order) TROUPE_RETURN_IF_ERROR(add(i));
    for (const auto& [merge, next] : loops)
      if (made_[merge]->open()) TROUPE_RETURN_IF_ERROR(part_.graph->close_loop(*made_[merge], made_[next]->out()));
    for (const auto& [slot, fetch] : draft_->plan.fetches) {
      TROUPE_ASSIGN(const Output output, output_of(slot, 0));
      TROUPE_RETURN_IF_ERROR(add_fetch(fetch, output));
    }
    return {};
  }
  Status add_fetch(uint32_t index, const Output& output) {
    if (is_remote() && !crosses_to_caller(output.dtype()))
      return at_node(make_error(Code::kUnimplemented, "its output {} is a {}, which cannot be fetched from {}",
                                output.port, to_string(output.dtype()), part_.task),
                     *output.node);
    part_.fetches.emplace_back(index, output);
    return {};
  }
  bool is_remote() const { return part_.task != p_.context_.task; }

  void find_sources() {
    sources_.assign(draft_->uses.size(), {});
    for (uint32_t i = 0; i < draft_->plan.size(); ++i) {
      const PlanNode& node = draft_->plan.nodes[i];
      for (uint32_t port = 0; port < node.num_outputs; ++port)
        sources_[node.first_output + port] = {Source::kNode, i, static_cast<int>(port)};
    }
    for (const auto& [feed, slot] : draft_->feed_slots) sources_[slot] = {Source::kFeed, feed, 0};
    for (const auto& [slot, value] : draft_->constants)
      if (value == &p_.plan_->token) sources_[slot] = {Source::kToken, 0, 0};
    for (const auto& [key, slot] : p_.constant_slots_) {
      const auto [id, partition, space] = key;
      if (partition == partition_) sources_[slot] = {Source::kConstant, static_cast<uint32_t>(id), 0};
    }
  }

  /// In each frame a node that lives in every iteration: by it a node without inputs tells that it is there.
  void find_markers() {
    markers_.assign(p_.frames_.frames.size(), kNone);
    const auto& nodes = draft_->plan.nodes;
    for (const PartitionDraft::Edge& e : draft_->edges)
      if (nodes[e.from].kind == NodeKind::kEnter && nodes[e.to].kind == NodeKind::kMerge && e.port >= 0)
        markers_[draft_->node_frames[e.to]] = e.to;
    for (uint32_t i = 0; i < draft_->plan.size(); ++i)
      if (nodes[i].kind == NodeKind::kEnter && markers_[nodes[i].enter.frame] == kNone)
        markers_[nodes[i].enter.frame] = i;
  }
  /// The marker of the frame that node i is in; kNone outside of loops.
  uint32_t marker(uint32_t i) const {
    const uint32_t frame = draft_->node_frames[i];
    return frame == 0 ? kNone : markers_[frame];
  }

  /// Inputs first, but for those that close a loop.
  Result<std::vector<uint32_t>> sort(std::vector<std::pair<uint32_t, uint32_t>>& loops) const {
    const uint32_t n = draft_->plan.size();
    const auto& nodes = draft_->plan.nodes;
    std::vector<uint32_t> waits(n), order;
    std::vector<std::vector<uint32_t>> after(n);
    const auto comes_before = [&](uint32_t from, uint32_t to) {
      after[from].push_back(to);
      ++waits[to];
    };
    for (const PartitionDraft::Edge& e : draft_->edges) {
      if (nodes[e.from].kind == NodeKind::kNextIteration && nodes[e.to].kind == NodeKind::kMerge && e.port >= 0)
        loops.emplace_back(e.to, e.from);
      else comes_before(e.from, e.to);
    }
    for (uint32_t i = 0; i < n; ++i) {
      if (nodes[i].kind == NodeKind::kRecv && marker(i) != kNone) comes_before(marker(i), i);
      for (uint32_t k = 0; k < nodes[i].num_inputs; ++k)
        if (const uint32_t constant = constant_marker(input_slot(nodes[i], k)); constant != kNone && constant != i)
          comes_before(constant, i);
    }
    std::deque<uint32_t> ready;
    for (uint32_t i = 0; i < n; ++i)
      if (waits[i] == 0) ready.push_back(i);
    while (!ready.empty()) {
      const uint32_t i = ready.front();
      ready.pop_front();
      order.push_back(i);
      for (const uint32_t next : after[i])
        if (--waits[next] == 0) ready.push_back(next);
    }
    if (order.size() < n) return make_error(Code::kInternal, "the part of {} has a cycle", *device_);
    return order;
  }

  uint32_t input_slot(const PlanNode& node, uint32_t i) const { return draft_->plan.input_slots[node.first_input + i]; }
  /// The node that tells the frame of a constant in a loop; kNone of others.
  uint32_t constant_marker(uint32_t slot) const {
    const bool constant = sources_[slot].kind == Source::kConstant || sources_[slot].kind == Source::kToken;
    return constant && draft_->slot_frames[slot] != 0 ? markers_[draft_->slot_frames[slot]] : kNone;
  }

  Result<const Node*> add(NodeSpec spec, const Node* origin) {
    TROUPE_ASSIGN(const Node* node, part_.graph->add(std::move(spec)));
    part_.origins.resize(static_cast<size_t>(node->id()) + 1);
    part_.origins.back() = origin;
    return node;
  }

  Status add(uint32_t i) {
    const PlanNode& node = draft_->plan.nodes[i];
    if (node.kind == NodeKind::kSend && node.to.partition == kCaller) {
      TROUPE_ASSIGN(const Output fetch, output_of(input_slot(node, 0), 0));
      return add_fetch(node.to.node, fetch);
    }
    if (node.kind == NodeKind::kRecv && !p_.pair_of_recv_.contains({partition_, i})) {
      TROUPE_ASSIGN(const Output fed, feed(feed_of_recv(i)));
      made_[i] = fed.node;
      return {};
    }
    NodeSpec spec;
    spec.device = *device_;
    const Node* like = draft_->plan.graph_nodes[i];
    switch (node.kind) {
      case NodeKind::kRecv: TROUPE_RETURN_IF_ERROR(describe_recv(i, spec)); break;
      case NodeKind::kSend: TROUPE_RETURN_IF_ERROR(describe_send(i, spec)); break;
      default: describe(i, *like, spec); break;
    }
    // Of what a node waits for, each input accounts for one edge; the others are control edges.
    std::map<std::pair<uint32_t, int>, uint32_t> accounted;
    for (uint32_t k = 0; k < node.num_inputs; ++k) {
      const uint32_t slot = input_slot(node, k);
      const Source& source = sources_[slot];
      if (source.kind == Source::kNode) {
        ++accounted[{source.index, source.port}];
        if (node.kind == NodeKind::kMerge && !made_[source.index]) {  // closes its loop
          spec.inputs.emplace_back();
          continue;
        }
      }
      TROUPE_ASSIGN(const Output input, output_of(slot, source.port));
      spec.inputs.push_back(input);
    }
    std::unordered_set<const Node*> known;
    for (const PartitionDraft::Edge& e : edges_to_[i]) {
      if (const auto of = accounted.find({e.from, e.port}); of != accounted.end() && of->second > 0) {
        --of->second;
        continue;
      }
      TROUPE_ASSIGN(const Node* before, control(e));
      if (known.insert(before).second) spec.control_inputs.push_back(before);
    }
    if (node.kind == NodeKind::kRecv && marker(i) != kNone) spec.control_inputs = {made_[marker(i)]};
    if (node.kind == NodeKind::kSend) set_types(spec);
    if (part_.graph->find(spec.name)) spec.name = part_.graph->unique_name(spec.name);
    TROUPE_ASSIGN(made_[i], add(std::move(spec), like));
    return {};
  }

  /// A node of the graph, one that a pass or the planner made, or one by which a device follows a loop.
  void describe(uint32_t i, const Node& like, NodeSpec& spec) {
    const PlanNode& node = draft_->plan.nodes[i];
    const bool own = &like == own_node(i);
    switch (node.kind) {
      case NodeKind::kEnter: {
        const Frame& frame = p_.frames_.frames[node.enter.frame];
        spec.op = "Enter";
        spec.attrs = {{"frame_name", frame.name},
                      {"is_constant", node.enter.every_iteration},
                      {"parallel_iterations", static_cast<int64_t>(frame.parallel_iterations)}};
        break;
      }
      case NodeKind::kMerge: spec.op = "Merge"; break;
      case NodeKind::kSwitch: spec.op = own ? like.op().name() : "Switch"; break;
      case NodeKind::kNextIteration: spec.op = "NextIteration"; break;
      case NodeKind::kTrigger: spec.op = "ControlTrigger"; break;
      default: spec.op = like.op().name(); break;
    }
    const bool copied = own || (node.kind != NodeKind::kEnter && node.kind < NodeKind::kSwitch);
    if (copied) {
      spec.attrs = attrs_of(like);
      if (own && !p_.step_->is_made(like) && like.op().is_stateful())
        spec.attrs.set(kNodeIdAttr, static_cast<int64_t>(like.id()));
    }
    const int priority = p_.part_priority(like);
    if (priority != 0) spec.attrs.set(kPriorityAttr, static_cast<int64_t>(priority));
    spec.name = name_for(like, own && !p_.step_->is_made(like));
  }

  /// The node of the graph that is node i of the draft, where it is one; nullptr: it was added by the planner.
  const Node* own_node(uint32_t i) const {
    const Node* node = draft_->plan.graph_nodes[i];
    const auto id = static_cast<size_t>(node->id());
    if (id >= p_.where_.size()) return nullptr;
    const Place at = p_.where_[id];
    return at.partition == partition_ && at.node == i ? node : nullptr;
  }

  /// To be made unique. The graph's own nodes keep their names.
  std::string name_for(const Node& like, bool original) const {
    return original || !originals_->contains(like.name()) ? like.name() : like.name() + "/part";
  }

  Status describe_recv(uint32_t i, NodeSpec& spec) {
    const size_t number = p_.pair_of_recv_.at({partition_, i});
    const Pair& pair = p_.pairs_[number];
    const Node& producer = *pair.what.node;
    const DType dtype = pair.value ? pair.what.dtype() : DType::kBool;
    spec.op = "_Recv";
    spec.name = producer.name() + "/_recv";
    const bool of_step = static_cast<size_t>(producer.id()) < p_.where_.size();
    PartialShape shape = PartialShape::unknown();
    if (pair.value) shape = of_step ? p_.step_->shape(pair.what) : pair.what.shape();
    spec.attrs = {{"edge", static_cast<int64_t>(number)},
                  {"tensor_type", dtype},
                  {"shape", shape},
                  {"has_value", pair.value},
                  {"conditional", p_.control_flow_}};
    if (pair.value && !crosses(dtype) && p_.task_of_partition(pair.send.partition) != part_.task)
      return at_node(
          make_error(Code::kUnimplemented,
                     "its output {} is a {}, which cannot go from {} to {}: have the nodes that read it run "
                     "where it is made",
                     pair.what.port, to_string(dtype), p_.task_of_partition(pair.send.partition), part_.task),
          producer);
    return {};
  }

  Status describe_send(uint32_t i, NodeSpec& spec) {
    const size_t pair = p_.pair_of_send_.at({partition_, i});
    spec.op = "_Send";
    spec.name = draft_->plan.graph_nodes[i]->name() + "/_send";
    spec.attrs = {{"edge", static_cast<int64_t>(pair)}};
    return {};
  }
  /// Of a Recv that does not belong to a pair.
  uint32_t feed_of_recv(uint32_t i) const { return feeds_of_recvs_.at(i); }
  static void set_types(NodeSpec& spec) {
    std::vector<DType> types;
    for (const Output& in : spec.inputs) types.push_back(in.dtype());
    spec.attrs.set("T", std::move(types));
  }

  Result<Output> output_of(uint32_t slot, int port) {
    const Source& source = sources_[slot];
    switch (source.kind) {
      case Source::kNode: return Output{made_[source.index], port == 0 ? source.port : port};
      case Source::kFeed: return feed(source.index);
      case Source::kConstant: return constant(p_.step_->node(static_cast<int>(source.index)), slot);
      case Source::kToken: return token(slot);
      case Source::kNothing: break;
    }
    return make_error(Code::kInternal, "nothing fills a slot of {}", *device_);
  }

  Result<Output> feed(uint32_t index) {
    if (const auto known = feeds_.find(index); known != feeds_.end()) return known->second;
    const Output& fed = p_.plan_->feeds[index];
    if (is_remote() && !crosses_to_caller(fed.dtype()))
      return at_node(make_error(Code::kUnimplemented, "a {} cannot be fed to {}", to_string(fed.dtype()), part_.task),
                     *fed.node);
    TROUPE_ASSIGN(const Node* node, add({"Placeholder",
                                         part_.graph->unique_name(fed.node->name() + "/fed"),
                                         {},
                                         {{"dtype", fed.dtype()}, {"shape", fed.shape()}},
                                         {},
                                         *device_},
                                        fed.node));
    part_.feeds.emplace_back(index, node->out());
    feeds_.emplace(index, node->out());
    return node->out();
  }

  Result<Output> constant(const Node& node, uint32_t slot) {
    const uint32_t frame = draft_->slot_frames[slot];
    if (frame == 0) {
      if (const auto known = constants_.find(&node); known != constants_.end()) return known->second->out();
    } else if (const auto known = frame_constants_.find(slot); known != frame_constants_.end()) {
      return known->second->out();
    }
    NodeSpec spec{"Const", name_for(node, false), {}, attrs_of(node), {}, *device_};
    if (part_.graph->find(spec.name)) spec.name = part_.graph->unique_name(spec.name);
    if (frame != 0) spec.control_inputs = {made_[markers_[frame]]};
    TROUPE_ASSIGN(const Node* made, add(std::move(spec), &node));
    if (frame == 0) constants_[&node] = made;
    else frame_constants_[slot] = made;
    return made->out();
  }

  Result<Output> token(uint32_t slot) {
    const uint32_t frame = draft_->slot_frames[slot];
    NodeSpec spec{"Const", part_.graph->unique_name("_token"),
                  {},      {{"value", p_.plan_->token}, {"dtype", DType::kBool}},
                  {},      *device_};
    if (frame != 0) spec.control_inputs = {made_[markers_[frame]]};
    TROUPE_ASSIGN(const Node* made, add(std::move(spec), nullptr));
    return made->out();
  }

  /// What a node waits for by a control edge: a node or, for an output of a Switch, an Identity that dies with it.
  Result<const Node*> control(const PartitionDraft::Edge& e) {
    if (e.port < 0 || draft_->plan.nodes[e.from].kind != NodeKind::kSwitch) return made_[e.from];
    const Node*& pivot = pivots_[{e.from, e.port}];
    if (!pivot) {
      TROUPE_ASSIGN(pivot, add({"Identity",
                                part_.graph->unique_name(made_[e.from]->name() + "/_taken"),
                                {{made_[e.from], e.port}},
                                {},
                                {},
                                *device_},
                               nullptr));
    }
    return pivot;
  }

  const Planner& p_;
  StepPart& part_;
  const std::unordered_set<std::string_view>* originals_ = nullptr;
  std::unordered_map<const Node*, const Node*> constants_;  // outside of loops, of the whole part
  std::unordered_map<uint32_t, Output> feeds_;              // of the whole part
  // Of the partition that is written:
  const PartitionDraft* draft_ = nullptr;
  const std::string* device_ = nullptr;
  uint32_t partition_ = 0;
  std::vector<Source> sources_;                            // by slot
  std::unordered_map<uint32_t, uint32_t> feeds_of_recvs_;  // by node of the draft
  std::vector<std::vector<PartitionDraft::Edge>> edges_to_;
  std::vector<uint32_t> markers_;  // by frame
  std::vector<const Node*> made_;  // by node of the draft
  std::map<std::pair<uint32_t, int>, const Node*> pivots_;
  std::map<uint32_t, const Node*> frame_constants_;  // by slot
};

Status Planner::place_tasks(const std::vector<const Node*>& needed) {
  for (const DeviceInfo& device : context_.devices) tasks_.push_back(task_of(device.name));
  // What moves takes others along, which may be why more has to move.
  constexpr int kMostRounds = 8;
  for (int round = 0; round < kMostRounds; ++round) {
    brings_ = false;
    TROUPE_RETURN_IF_ERROR(find_homes());
    TROUPE_RETURN_IF_ERROR(place_loops(needed));
    const bool moved = bring_makers();
    if (!bring_lists() && !moved && !brings_) break;
  }
  return brings_ ? check_readers() : Status();
}

bool Planner::bring_makers() {
  bool moved = false;
  for (const Node* node : step_->nodes()) {
    if (frame_of(*node) == 0) continue;
    for (const Output& in : node->inputs()) {
      if (in.dtype() != DType::kResource) continue;
      const Node* maker = nullptr;
      for (Output from = step_->now(in); from.dtype() == DType::kResource;) {
        maker = from.node;
        if (maker->inputs().empty() || step_->is_fed(from)) break;
        from = step_->now(maker->inputs()[0]);
      }
      if (!maker || !resource_key(*maker).empty() || frame_of(*maker) != 0) continue;
      const uint32_t used = place(*node);
      if (tasks_[device_of(*maker)] == tasks_[used]) continue;
      moved_[maker->id()] = used;
      moved = true;
    }
  }
  return moved;
}

Status Planner::find_homes() {
  for (const Node* node : step_->nodes()) {
    const Node* holder = nullptr;  // of a handle that it reads
    for (const Output& in : node->inputs()) {
      const Output now = step_->now(in);
      if (now.dtype() != DType::kResource || step_->is_fed(now)) continue;
      if (!holder) holder = now.node;
      if (const std::string& first = tasks_[device_of(*holder)], &other = tasks_[device_of(*now.node)]; first != other)
        return at_node(invalid_argument("uses resources of two tasks: '{}' is on {}, '{}' on {}", holder->name(), first,
                                        now.node->name(), other),
                       *node);
    }
    if (!holder) TROUPE_RETURN_IF_ERROR(bring_home(*node));
    TROUPE_ASSIGN(const auto place, place_reader(*node, holder));
    if (place && tasks_[*place] != tasks_[device_of(*node)]) moved_[node->id()] = *place;
    if (holder) place_list(*node, *holder);
  }
  return {};
}

Status Planner::bring_home(const Node& node) {
  const std::string key = resource_key(node);
  if (key.empty() || !context_.home) return {};
  if (node.op().name() == "IteratorV2" || node.op().name() == "ActorHandle") {
    // Each process has datasets and actors of its own, of one name perhaps, and a step makes none.
    if (const uint32_t at = placer_.by_hand(node); tasks_[at] != tasks_[device_of(node)]) moved_[node.id()] = at;
    return {};
  }
  const uint32_t asked = device_of(node), home = context_.home(key, asked);
  if (tasks_[asked] == tasks_[home]) return {};
  if (!context_.soft_placement && !context_.scatter && !node.device().empty())
    return at_node(
        invalid_argument("{} is on {}: on {} it would be another one of the same name. Have one device name for all "
                         "its handles, or another name or container",
                         key, tasks_[home], tasks_[asked]),
        node);
  moved_[node.id()] = home;
  return {};
}

bool Planner::spans_tasks() const {
  if (context_.task.empty()) return false;
  return std::ranges::any_of(drafts_, [&](const PartitionDraft& d) { return is_remote(d.plan.device); });
}

Status Planner::find_edges() {
  if (!pairs_.empty())
    return at_node(invalid_argument("is read on another device, but not through a _Send and a _Recv"),
                   *pairs_[0].what.node);
  std::unordered_map<int64_t, const Node*> recvs;  // by edge
  for (const Node* node : step_->nodes()) {
    if (node->op().control_flow() != ControlFlow::kRecv) continue;
    if (const auto [at, fresh] = recvs.try_emplace(node->attrs().at<int64_t>("edge"), node); !fresh)
      return at_node(invalid_argument("'{}' receives edge {} too", at->second->name(), at->first), *node);
  }
  std::unordered_set<int64_t> sent;
  for (const Node* node : step_->nodes()) {
    if (node->op().control_flow() != ControlFlow::kSend) continue;
    const int64_t edge = node->attrs().at<int64_t>("edge");
    if (edge >= kPeer || !sent.insert(edge).second)
      return at_node(invalid_argument("edge {} is sent twice, or too large a number", edge), *node);
    const Place from = where_[static_cast<size_t>(node->id())];
    PlanNode& send = drafts_[from.partition].plan.nodes[from.node];
    const auto recv = recvs.find(edge);
    if (recv == recvs.end()) {
      send.to = {kPeer, static_cast<uint32_t>(edge)};
      continue;
    }
    const Place to = where_[static_cast<size_t>(recv->second->id())];
    if (frame_of(*node) != frame_of(*recv->second))
      return at_node(invalid_argument("'{}' receives edge {} in another loop", recv->second->name(), edge), *node);
    send.to = {to.partition, to.node};
    recvs.erase(recv);
  }
  for (const auto& [edge, node] : recvs) {
    if (edge >= kPeer) return at_node(invalid_argument("edge {} is too large a number", edge), *node);
    const Place at = where_[static_cast<size_t>(node->id())];
    uint32_t depth = 0;
    for (uint32_t f = frame_of(*node); f != 0; f = static_cast<uint32_t>(frames_.frames[f].parent)) ++depth;
    plan_->edges.push_back({static_cast<uint32_t>(edge), at.partition, at.node, depth,
                            *node->attrs().get<bool>("conditional"), *node->attrs().get<bool>("has_value"),
                            node->dtype(0), node->shape(0)});
  }
  std::ranges::sort(plan_->edges, {}, &EdgeReceiver::edge);
  return {};
}

void Planner::number_edges(const std::vector<std::vector<uint32_t>>& renumbered) {
  for (EdgeReceiver& edge : plan_->edges)
    if (const std::vector<uint32_t>& numbers = renumbered[edge.partition]; !numbers.empty())
      edge.node = numbers[edge.node];
}

int Planner::part_priority(const Node& node) const {
  if (!context_.priority && !placer_.by_cost()) return 0;
  return std::clamp(priority(node), -1000, 1000);
}

Status Planner::cut() {
  // Each task waits for all that enters a loop before the loop begins, and sees its own part alone.
  if (frames_.loops()) {
    const std::vector<bool> wait = frames_that_wait(*step_, frames_);
    if (const auto at = std::ranges::find(wait, false); at != wait.end())
      return make_error(Code::kUnimplemented,
                        "loop '{}' waits for what comes out of it, which several tasks cannot run",
                        frames_.frames[static_cast<size_t>(at - wait.begin())].name);
  }
  auto out = std::make_shared<CutStep>();
  std::map<std::string, std::vector<uint32_t>> tasks;  // their partitions
  for (uint32_t i = 0; i < drafts_.size(); ++i) tasks[task_of_partition(i)].push_back(i);
  std::unordered_set<std::string_view> originals;
  for (const Node* node : step_->nodes())
    if (!step_->is_made(*node)) originals.insert(node->name());
  for (size_t i = 0; i < pairs_.size(); ++i) {
    pair_of_send_[{pairs_[i].send.partition, pairs_[i].send.node}] = i;
    pair_of_recv_[{pairs_[i].recv.partition, pairs_[i].recv.node}] = i;
  }
  std::map<std::string, uint32_t> numbers;
  for (const auto& [task, partitions] : tasks) {
    numbers[task] = static_cast<uint32_t>(out->parts.size());
    StepPart& part = out->parts.emplace_back();
    part.task = task;
    part.partial = context_.partial && task == context_.task;
    TROUPE_RETURN_IF_ERROR(
        guarded([&, &partitions = partitions] { return PartWriter(*this, part).write(partitions, originals); }));
  }
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    const uint32_t from = numbers[task_of_partition(pairs_[i].send.partition)];
    const uint32_t to = numbers[task_of_partition(pairs_[i].recv.partition)];
    if (from != to) out->edges.push_back({i, from, to});
  }
  plan_->kernels.clear();
  plan_->blocking.clear();
  plan_->cut = std::move(out);
  return {};
}

}  // namespace troupe
