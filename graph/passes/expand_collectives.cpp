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
#include "troupe/transfers.h"

namespace troupe {
namespace {

using Chain = std::vector<Output>;

/// As even as may be, the larger ones first.
std::vector<int64_t> even_chunks(int64_t size, size_t chunks) {
  const auto n = static_cast<int64_t>(chunks);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(size / n + (i < size % n ? 1 : 0));
  return out;
}

/// Adds the nodes of one collective. After the first that cannot be added it adds nothing.
class RingBuilder {
 public:
  /// `in_loop`: constants wait for what enters, so that they are in its loop.
  RingBuilder(StepGraph& step, const Node& whole, bool in_loop)
      : step_(step), whole_(whole), devices_(whole.attrs().at<std::vector<std::string>>("devices")), in_loop_(in_loop) {
    for (const Output& in : whole.inputs()) xs_.push_back(step.now(in));
  }

  const Status& status() const { return status_; }

  Chain all_reduce() {
    if (size() == 1) return xs_;
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
    else if (known.has_rank() && known[axis] >= 0) sizes = integers(device, even_chunks(known[axis], size()));
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

  /// 1/n.
  Output share(size_t device, DType dtype) {
    const Output exact = constant(device, Tensor::scalar(1.0 / static_cast<double>(size())));
    return op(device, "Cast", {exact}, {{"DstT", dtype}});
  }
  /// even_chunks() of what is known when the step runs.
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

  StepGraph& step_;
  const Node& whole_;
  const std::vector<std::string>& devices_;
  const bool in_loop_;
  Chain xs_;
  Status status_;
};

using Build = Chain (RingBuilder::*)();

/// The collectives of a step, and how their rings are built.
class Expansion {
 public:
  explicit Expansion(StepGraph& step) : step_(step) {
    const std::pair<const char*, Build> known[] = {{"_AllReduce", &RingBuilder::all_reduce},
                                                   {"_ReduceScatter", &RingBuilder::reduce_scatter},
                                                   {"_AllGather", &RingBuilder::all_gather},
                                                   {"_Broadcast", &RingBuilder::broadcast}};
    for (const auto& [name, build] : known)
      if (const OpDef* op = step.ops().find(name)) builds_.emplace_back(op, build);
  }

  Build build_of(const Node& node) const {
    for (const auto& [op, build] : builds_)
      if (op == &node.op()) return build;
    return nullptr;
  }
  bool is_needed() const {
    return std::ranges::any_of(step_.nodes(), [&](const Node* node) { return build_of(*node) != nullptr; });
  }

  Status run() {
    if (std::ranges::any_of(step_.nodes(), [](const Node* n) { return flow_of(*n) == ControlFlow::kEnter; })) {
      auto frames = find_frames(step_);
      if (!frames.ok()) return {};  // who plans the step reports it
      frames_ = std::move(*frames);
    }
    Status status;
    step_.sweep([&](const Node& node) {
      if (const Build build = build_of(node); build && status.ok()) status = expand(node, build);
    });
    step_.drop_unneeded();
    return status;
  }

 private:
  Status expand(const Node& node, Build build) {
    Status status;
    if (step_.is_fed(node)) {
      status = invalid_argument("an output of a collective is fed: feed what reads it");
    } else {
      const bool in_loop = frames_.loops() && frames_.of[static_cast<size_t>(node.id())] > 0;
      RingBuilder ring(step_, node, in_loop);
      const Chain outputs = (ring.*build)();
      status = ring.status();
      if (status.ok()) step_.replace(node, outputs);
    }
    if (!status.ok()) {
      status.error().node = node.name();
      status.error().op = node.op().name();
    }
    return status;
  }

  StepGraph& step_;
  std::vector<std::pair<const OpDef*, Build>> builds_;
  Frames frames_;
};

}  // namespace

Status expand_collectives(StepGraph& step) {
  Expansion expansion(step);
  return expansion.is_needed() ? expansion.run() : Status();
}

}  // namespace troupe
