// SPDX-License-Identifier: Apache-2.0
// Collectives by rings of chunks.
//
//   reduce_scatter: chunk c starts at device c+1 and is added to on its way round; the sum is whole at device c.
//   all_gather:     from there it goes round once more, handed on from device to device.
//
// Who hands on is an EnsureShape: passes leave it where it is (an Identity they would leave out, and the chunk would go
// from its owner to every device straight).
#include "graph/passes/expand_collectives.h"

#include <algorithm>

#include "graph/frames.h"
#include "troupe/chunk_sizes.h"
#include "troupe/transfers.h"

namespace troupe {
namespace {

using Chain = std::vector<Output>;

/// Adds the nodes of one collective. After the first that cannot be added it adds nothing.
class CollectiveBuilder {
 public:
  /// `in_loop`: constants wait for what enters, so that they are in its loop.
  CollectiveBuilder(StepGraph& step, const Node& whole, std::vector<std::string> devices, bool in_loop)
      : step_(step), whole_(whole), devices_(std::move(devices)), in_loop_(in_loop) {
    for (const Output& in : whole.inputs()) xs_.push_back(step.now(in));
  }

  const Status& status() const { return status_; }

 protected:
  using Nodes = std::vector<const Node*>;

  bool ok() const { return status_.ok(); }
  size_t size() const { return devices_.size(); }
  int axis() const { return static_cast<int>(whole_.attrs().at<int64_t>("axis")); }
  bool is_mean() const { return whole_.attrs().at<std::string>("reduction") == "MEAN"; }

  /// Adds a node on a device. What reads an input of the collective waits for what that waits for. After an error the
  /// collective itself, whose outputs nobody will read.
  const Node* node(size_t device, const char* name, Chain inputs, Attrs attrs = {}, Nodes after = {}) {
    if (!ok()) return &whole_;
    const bool reads = std::ranges::any_of(inputs, [&](Output in) { return std::ranges::count(xs_, in) > 0; });
    if (reads) after.insert(after.end(), whole_.control_inputs().begin(), whole_.control_inputs().end());
    if (inputs.empty() && in_loop_) after.push_back(xs_[std::min(device, xs_.size() - 1)].node);
    std::ranges::sort(after, {}, &Node::id);
    after.erase(std::unique(after.begin(), after.end()), after.end());
    if (const AttrValue* transfers = whole_.attrs().find(kTransferAttr)) attrs.set(kTransferAttr, *transfers);
    auto added =
        step_.add({name, whole_.name(), std::move(inputs), std::move(attrs), std::move(after), devices_[device]});
    if (added.ok()) return *added;
    status_ = std::move(added.error());
    return &whole_;
  }
  Output op(size_t device, const char* name, Chain inputs, Attrs attrs = {}) {
    return node(device, name, std::move(inputs), std::move(attrs))->out();
  }
  Output constant(size_t device, Tensor value) {
    const DType dtype = value.dtype();
    return op(device, "Const", {}, {{"dtype", dtype}, {"value", std::move(value)}});
  }
  Output integer(size_t device, int64_t value) { return constant(device, Tensor::scalar(value)); }
  Output integers(size_t device, std::span<const int64_t> values) { return constant(device, Tensor::of(values)); }
  PartialShape shape(Output x) const { return ok() ? step_.shape(x) : PartialShape(); }
  /// 1/n.
  Output share(size_t device, DType dtype) {
    const Output exact = constant(device, Tensor::scalar(1.0 / static_cast<double>(size())));
    return op(device, "Cast", {exact}, {{"DstT", dtype}});
  }

  StepGraph& step_;
  const Node& whole_;
  const std::vector<std::string> devices_;
  const bool in_loop_;
  Chain xs_;

 private:
  Status status_;
};

/// Nodes that send chunks from each device to the next.
class RingBuilder : public CollectiveBuilder {
 public:
  using CollectiveBuilder::CollectiveBuilder;

  Chain all_reduce() {
    if (size() == 1) return xs_;
    if (is_exchanged()) return exchange();
    Chain vectors;
    for (size_t i = 0; i < size(); ++i) vectors.push_back(flat(i, xs_[i]));
    Chain out = gather(reduce(vectors, 0), 0);
    for (size_t i = 0; i < size() && ok(); ++i) {
      const Node* same = same_shape(i);
      out[i] = node(i, "Reshape", {out[i], sizes_of(i, xs_[i])}, {}, same ? Nodes{same} : Nodes())->out();
    }
    return out;
  }

  Chain reduce_scatter() { return size() == 1 ? xs_ : reduce(xs_, axis()); }
  Chain all_gather() { return size() == 1 ? xs_ : gather(xs_, axis()); }

  Chain broadcast() {
    const auto root = static_cast<size_t>(whole_.attrs().at<int64_t>("root"));
    const Output x = xs_[0];
    if (size() == 1) return {x};
    const Output sizes = sizes_of(root, x), vector = flat(root, x);
    const Chain chunks = split(root, vector, 0);
    std::vector<Chain> there(size(), Chain(size()));
    for (size_t c = 0; c < chunks.size(); ++c)
      pass_on(root, chunks[c], [&](size_t device, Output part) { there[device][c] = part; });
    Chain out;
    for (size_t i = 0; i < size() && ok(); ++i)
      out.push_back(i == root ? x : op(i, "Reshape", {join(i, there[i], 0), sizes}));
    return out;
  }

 private:
  /// Whether each device adds a share of the last dimension, in the order of the devices.
  bool is_exchanged() const {
    const PartialShape known = shape(xs_[0]);
    return whole_.attrs().at<std::string>("order") == "DEVICES" && known.rank() > 0 &&
           known.dim(-1) >= static_cast<int64_t>(size());
  }
  Chain exchange() {
    const int last = shape(xs_[0]).rank() - 1;
    std::vector<Chain> shares(size());  // by who adds them
    for (size_t from = 0; from < size(); ++from) {
      const Chain cut = split(from, xs_[from], last);
      for (size_t to = 0; to < size(); ++to) shares[to].push_back(cut[to]);
    }
    Chain sums, out;
    for (size_t to = 0; to < size(); ++to) {
      const Output sum = op(to, "AddN", shares[to]);
      sums.push_back(is_mean() ? op(to, "Mul", {sum, share(to, whole_.dtype(0))}) : sum);
    }
    for (size_t i = 0; i < size(); ++i) out.push_back(join(i, sums, last));
    return out;
  }

  /// x of `device` as a vector.
  Output flat(size_t device, Output x) {
    return op(device, "Reshape", {x, constant(device, Tensor::of<int32_t>({-1}))});
  }
  /// The sizes of x, which is on `device`.
  Output sizes_of(size_t device, Output x) {
    if (const PartialShape known = shape(x); known.fully_known()) return integers(device, known.shape().dims());
    return op(device, "Shape", {x}, {{"out_type", DType::kInt64}});
  }

  /// A node that fails unless x of `device` and that of the one before it in the ring have one shape; nullptr where
  /// that is known.
  const Node* same_shape(size_t device) {
    const size_t previous = (device + size() - 1) % size();
    const Output x = xs_[device], before = xs_[previous];
    if (shape(x).fully_known() && shape(before).fully_known()) return nullptr;
    const Output mine = sizes_of(device, x), others = sizes_of(previous, before);
    // AddN refuses vectors of different length, where Equal would broadcast one of length 1.
    const Output differences = op(device, "AddN", {mine, op(device, "Neg", {others})});
    const Output equal = op(device, "Equal", {differences, integer(device, 0)});
    const Output same = op(device, "All", {equal, constant(device, Tensor::scalar(int32_t{0}))});
    return node(device, "Assert", {same, mine, others});
  }

  /// The chunks of x along an axis, as many as there are devices.
  Chain split(size_t device, Output x, int axis) {
    const PartialShape known = shape(x);
    const auto* asked = whole_.attrs().get<std::vector<int64_t>>("sizes");
    Output sizes;
    if (asked && !asked->empty()) sizes = integers(device, *asked);
    else if (known.has_rank() && known[axis] >= 0) sizes = integers(device, chunk_sizes(known[axis], size()));
    else sizes = unknown_sizes(device, x, axis);
    const Node* parts = node(device, "SplitV", {x, sizes, constant(device, Tensor::scalar(int32_t{axis}))},
                             {{"num_split", static_cast<int64_t>(size())}});
    Chain out;
    for (size_t i = 0; i < size(); ++i) out.push_back(parts->out(ok() ? static_cast<int>(i) : 0));
    return out;
  }
  Output join(size_t device, Chain parts, int axis) {
    parts.push_back(constant(device, Tensor::scalar(int32_t{axis})));
    return op(device, "ConcatV2", std::move(parts));
  }

  /// Chunk c of the sum, or the mean, on device c.
  Chain reduce(const Chain& xs, int axis) {
    const size_t n = size();
    std::vector<Chain> chunks;
    for (size_t i = 0; i < n; ++i) chunks.push_back(split(i, xs[i], axis));
    Chain sums;
    for (size_t c = 0; c < n; ++c) {
      Output sum = chunks[(c + 1) % n][c];
      for (size_t step = 2; step <= n; ++step) {
        const size_t device = (c + step) % n;
        sum = op(device, "AddN", {sum, chunks[device][c]});
      }
      sums.push_back(is_mean() ? op(c, "Mul", {sum, share(c, whole_.dtype(0))}) : sum);
    }
    return sums;
  }

  /// Calls take(device, x there) for each device from `from` on.
  template <class F> void pass_on(size_t from, Output x, F take) {
    for (size_t step = 0; step < size() && ok(); ++step) {
      const size_t device = (from + step) % size();
      if (step > 0) x = op(device, "EnsureShape", {x}, {{"shape", shape(x)}});
      take(device, x);
    }
  }
  /// On every device what xs[c] of each device c is, joined.
  Chain gather(const Chain& xs, int axis) {
    std::vector<Chain> there(size(), Chain(size(), whole_.out()));
    for (size_t c = 0; c < size(); ++c) pass_on(c, xs[c], [&](size_t device, Output x) { there[device][c] = x; });
    Chain out;
    for (size_t i = 0; i < size(); ++i) out.push_back(join(i, there[i], axis));
    return out;
  }

  /// chunk_sizes() of what is known when the step runs.
  Output unknown_sizes(size_t device, Output x, int axis) {
    const int64_t at[] = {axis}, one[] = {1};
    const Output all = op(device, "Shape", {x}, {{"out_type", DType::kInt64}});
    const Output own = op(device, "Slice", {all, integers(device, at), integers(device, one)});
    const Output total = op(device, "Squeeze", {own}), n = integer(device, static_cast<int64_t>(size()));
    const Output numbers = op(device, "Range", {integer(device, 0), n, integer(device, 1)});
    const Output larger = op(device, "Less", {numbers, op(device, "FloorMod", {total, n})});
    const Output more = op(device, "Cast", {larger}, {{"DstT", DType::kInt64}});
    return op(device, "AddV2", {op(device, "FloorDiv", {total, n}), more});
  }
};

/// A node for each device that takes part by a library.
class RankBuilder : public CollectiveBuilder {
 public:
  /// `conditional`: the inputs may be dead, or come again in a loop.
  RankBuilder(StepGraph& step, const Node& whole, std::vector<std::string> devices, bool in_loop, bool conditional)
      : CollectiveBuilder(step, whole, std::move(devices), in_loop), conditional_(conditional) {}

  Chain all_reduce() { return means(ranks("ALL_REDUCE", xs_, shapes())); }
  Chain reduce_scatter() {
    const auto* sizes = whole_.attrs().get<std::vector<int64_t>>("sizes");
    return means(along_axis("REDUCE_SCATTER", {{"sizes", *sizes}}));
  }
  Chain all_gather() { return along_axis("ALL_GATHER", {}); }
  Chain broadcast() {
    const auto root = whole_.attrs().at<int64_t>("root");
    Chain xs(size());
    xs[static_cast<size_t>(root)] = xs_[0];
    return ranks("BROADCAST", xs, shapes(), {{"root", root}});
  }
  /// Whether it knows enough: along another axis than the first, the rank.
  bool can() const {
    return !whole_.attrs().has("axis") || axis() == 0 ||
           std::ranges::all_of(xs_, [&](Output x) { return shape(x).has_rank(); });
  }

 private:
  std::vector<PartialShape> shapes() const {
    std::vector<PartialShape> out;
    for (size_t i = 0; i < size(); ++i) out.push_back(shape(whole_.out(static_cast<int>(i))));
    return out;
  }

  /// Libraries know the first dimension alone, so another one is brought there and back.
  Chain along_axis(const char* kind, Attrs attrs) {
    if (axis() == 0) return ranks(kind, xs_, shapes(), std::move(attrs));
    const int rank = shape(xs_[0]).rank();
    std::vector<int32_t> there = {axis()}, back;
    for (int i = 0; i < rank; ++i)
      if (i != axis()) there.push_back(i);
    for (int i = 1; i <= axis(); ++i) back.push_back(i);
    back.push_back(0);
    for (int i = axis() + 1; i < rank; ++i) back.push_back(i);
    Chain xs;
    for (size_t i = 0; i < size(); ++i) xs.push_back(transposed(i, xs_[i], there));
    std::vector<PartialShape> moved = shapes();
    for (PartialShape& shape : moved) {
      if (!shape.has_rank()) continue;
      const PartialShape own = shape;
      for (int i = 0; i < rank; ++i) shape.set(i, own[there[static_cast<size_t>(i)]]);
    }
    Chain out = ranks(kind, xs, moved, std::move(attrs));
    for (size_t i = 0; i < size(); ++i) out[i] = transposed(i, out[i], back);
    return out;
  }
  Output transposed(size_t device, Output x, const std::vector<int32_t>& perm) {
    return op(device, "Transpose", {x, constant(device, Tensor::of<int32_t>(perm))});
  }

  /// xs: one for each device, or an empty one for none.
  Chain ranks(const char* kind, Chain xs, const std::vector<PartialShape>& shapes, Attrs attrs = {}) {
    if (conditional_)
      for (size_t i = 0; i < size(); ++i)
        if (xs[i]) xs[i] = op(i, "Identity", {xs[i]});  // which dies with it
    const Output ticket = conditional_ ? ticket_after(xs) : Output();
    attrs.set("kind", std::string(kind));
    attrs.set("collective", whole_.name());
    attrs.set("T", whole_.dtype(0));
    Chain out;
    for (size_t i = 0; i < size(); ++i) {
      const Output group = op(i, "_CollectiveGroup", {}, {{"devices", devices_}});
      Chain inputs = {group, conditional_ ? ticket : integer(i, 0)};
      if (xs[i]) inputs.push_back(xs[i]);
      attrs.set("rank", static_cast<int64_t>(i));
      attrs.set("inputs", static_cast<int64_t>(inputs.size() - 2));
      attrs.set("shape", shapes[i]);
      out.push_back(node(i, "_CollectiveRank", std::move(inputs), attrs, whole_.control_inputs())->out());
    }
    return out;
  }
  /// A number that all ranks get once all inputs are there; without, if one is dead, so are they.
  Output ticket_after(const Chain& xs) {
    Nodes after = whole_.control_inputs();
    for (const Output& x : xs)
      if (x) after.push_back(x.node);
    return node(0, "_CollectiveTicket", {}, {}, std::move(after))->out();
  }

  Chain means(Chain sums) {
    if (is_mean())
      for (size_t i = 0; i < size(); ++i) sums[i] = op(i, "Mul", {sums[i], share(i, whole_.dtype(0))});
    return sums;
  }

  const bool conditional_;
};

struct Builds {
  const char* op;
  Chain (RingBuilder::*ring)();
  Chain (RankBuilder::*ranks)();
};
constexpr Builds kBuilds[] = {{"_AllReduce", &RingBuilder::all_reduce, &RankBuilder::all_reduce},
                              {"_ReduceScatter", &RingBuilder::reduce_scatter, &RankBuilder::reduce_scatter},
                              {"_AllGather", &RingBuilder::all_gather, &RankBuilder::all_gather},
                              {"_Broadcast", &RingBuilder::broadcast, &RankBuilder::broadcast}};

/// The collectives of a step, and how each is built.
class Expansion {
 public:
  Expansion(StepGraph& step, const FindCards& cards) : step_(step), cards_(cards) {
    for (const Builds& builds : kBuilds)
      if (const OpDef* op = step.ops().find(builds.op)) known_.emplace_back(op, &builds);
    for (const char* name : {"_CollectiveGroup", "_CollectiveRank", "_CollectiveTicket"})
      if (const OpDef* op = step.ops().find(name)) made_.push_back(op);
  }

  Status run() {
    bool any = false;
    for (const Node* node : step_.nodes()) {
      any |= builds_of(*node) != nullptr;
      if (std::ranges::find(made_, &node->op()) != made_.end())
        return at(*node, invalid_argument("planning a step makes such nodes, graphs have none"));
    }
    if (!any) return {};
    const auto is = [&](auto flow) {
      return std::ranges::any_of(step_.nodes(), [&](const Node* node) { return flow(flow_of(*node)); });
    };
    conditional_ = is([](ControlFlow flow) { return flow != ControlFlow::kNone; });
    if (is([](ControlFlow flow) { return flow == ControlFlow::kEnter; })) {
      auto frames = find_frames(step_);
      if (!frames.ok()) return {};  // who plans the step reports it
      frames_ = std::move(*frames);
    }
    Status status;
    step_.sweep([&](const Node& node) {
      if (const Builds* builds = builds_of(node); builds && status.ok()) status = expand(node, *builds);
    });
    step_.drop_unneeded();
    return status;
  }

 private:
  const Builds* builds_of(const Node& node) const {
    for (const auto& [op, builds] : known_)
      if (op == &node.op()) return builds;
    return nullptr;
  }
  static Status at(const Node& node, Status status) {
    if (!status.ok()) {
      status.error().node = node.name();
      status.error().op = node.op().name();
    }
    return status;
  }

  Status expand(const Node& node, const Builds& builds) {
    if (step_.is_fed(node)) return at(node, invalid_argument("an output of a collective is fed: feed what reads it"));
    const bool in_loop = frames_.loops() && frames_.of[static_cast<size_t>(node.id())] > 0;
    const auto& devices = node.attrs().at<std::vector<std::string>>("devices");
    if (const auto cards = cards_ && devices.size() > 1 ? cards_(node) : std::nullopt) {
      RankBuilder ranks(step_, node, *cards, in_loop, conditional_);
      if (ranks.can()) return put(node, (ranks.*builds.ranks)(), ranks.status());
    }
    RingBuilder ring(step_, node, devices, in_loop);
    const Chain outputs = (ring.*builds.ring)();
    return put(node, outputs, ring.status());
  }
  Status put(const Node& node, const Chain& outputs, const Status& status) {
    if (status.ok()) step_.replace(node, outputs);
    return at(node, status);
  }

  StepGraph& step_;
  const FindCards& cards_;
  std::vector<std::pair<const OpDef*, const Builds*>> known_;
  std::vector<const OpDef*> made_;
  Frames frames_;
  bool conditional_ = false;
};

}  // namespace

Status expand_collectives(StepGraph& step, const FindCards& cards) { return Expansion(step, cards).run(); }

}  // namespace troupe
