// SPDX-License-Identifier: Apache-2.0
#include "graph/loop_gradient.h"

#include <algorithm>
#include <optional>

#include "graph/loop_builder.h"
#include "graph/node_place.h"

namespace troupe {
namespace {

class LoopGradient {
 public:
  LoopGradient(const Scope& scope, Loops& loops, const Loop& loop, const OutputSet& stops)
      : scope_(scope), loops_(loops), loop_(loop), stops_(stops), around_(outside_of(scope, loop)),
        forward_(around_, *loop.carried[0].enter, loop.condition), backward_(scope, parallel()) {}
  ~LoopGradient() {
    if (body_) body_->end();  // it brings in by this object
  }

  Result<std::vector<std::pair<Output, Output>>> run(std::vector<Output> dys) {
    TROUPE_ASSIGN(const std::vector<size_t> carrying, find_carrying(dys));
    open_counters();
    std::vector<Output> opened;
    for (const size_t i : carrying) {
      const CarriedValue& v = loop_.carried[i];
      const Output init = dys[i] ? dys[i] : scope_.op("ZerosLike", {exit_of(v)});
      opened.push_back(backward_.open(shaped(scope_, init, v.merge->shape(0)), v.merge->shape(0)));
    }
    TROUPE_RETURN_IF_ERROR(scope_.status());
    const Scope& inside = backward_.inside();
    backward_.set_pivot(left_merge_.node);
    backward_.set_condition(inside.op("Greater", {left_merge_, inside.constant<int32_t>(0)}));
    const LoopValue left = backward_.split(left_merge_);
    std::vector<LoopValue> values;
    for (const Output& merge : opened) values.push_back(backward_.split(merge));
    TROUPE_RETURN_IF_ERROR(scope_.status());
    backward_.set_pivot(left.value.node);
    backward_.close(left, inside.op("Sub", {left.value, inside.constant<int32_t>(1)}));

    // The body: from what the next iteration got to what this one began with.
    body_ = std::make_shared<FlowContext>(inside.flow(), left.value.node,
                                          [this](Output outside) { return bring_in(outside); });
    const Scope body = inside.within(body_);
    std::vector<Output> xs, ys;
    for (const CarriedValue& v : loop_.carried) xs.push_back(v.value());
    for (const Node* enter : loop_.invariants) xs.push_back(enter->out());
    for (const size_t i : carrying) ys.push_back(loop_.carried[i].next->inputs()[0]);
    GradientWalk walk(body, loops_, loop_.frame, xs, stops_);
    TROUPE_RETURN_IF_ERROR(walk.mark(ys));
    for (size_t k = 0; k < carrying.size(); ++k) walk.add(ys[k], values[k].value);
    TROUPE_RETURN_IF_ERROR(walk.run());

    std::vector<std::pair<Output, Output>> out;
    for (size_t k = 0; k < carrying.size(); ++k) {
      const CarriedValue& v = loop_.carried[carrying[k]];
      const Output dx = walk.total(v.value());
      backward_.close(values[k], dx ? shaped(body, dx, v.merge->shape(0)) : body.op("ZerosLike", {values[k].value}));
      out.emplace_back(v.enter->inputs()[0], values[k].exit);
    }
    for (const Node* enter : loop_.invariants) {
      const Output dx = walk.total(enter->out());
      if (!dx) continue;
      const LoopValue sum = backward_.add(zeros(enter->inputs()[0], dx), sum_shape(*enter, dx));
      TROUPE_RETURN_IF_ERROR(scope_.status());
      backward_.close(sum, body.op("AddN", {sum.value, dx}));
      out.emplace_back(enter->inputs()[0], sum.exit);
    }
    TROUPE_RETURN_IF_ERROR(scope_.status());
    return out;
  }

 private:
  int64_t parallel() const { return loop_.carried[0].enter->attrs().get_or<int64_t>("parallel_iterations", 10); }

  /// Where nodes go that the loop itself reads: the frame around it. Nodes without inputs wait for what enters. To the
  /// branch or body that the loop was built in they are inside, as where that asks for a gradient.
  static Scope outside_of(const Scope& scope, const Loop& loop) {
    const Node& enter = *loop.carried[0].enter;
    const Node* anchor = loop.parent > 0 ? enter.inputs()[0].node : nullptr;
    return scope.within(std::make_shared<FlowContext>(enter.place() ? enter.place()->flow : nullptr, anchor,
                                                      [](Output there) { return there; }));
  }

  /// The carried values that have a gradient: those whose exits do, and what these are made from.
  Result<std::vector<size_t>> find_carrying(const std::vector<Output>& dys) const {
    std::vector<bool> carries(loop_.carried.size());
    std::vector<size_t> out;
    for (size_t i = 0; i < dys.size(); ++i) {
      if (!dys[i]) continue;
      carries[i] = true;
      out.push_back(i);
    }
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> found;
    for (size_t k = 0; k < out.size(); ++k) {
      found.push_back(loop_.carried[out[k]].next);
      while (!found.empty()) {
        const Node* node = found.back();
        found.pop_back();
        for (const Output& in : node->inputs()) {
          if (!carries_gradient(in.dtype()) || stops_.contains(in) || !seen.insert(in.node).second) continue;
          const auto carried =
              std::ranges::find_if(loop_.carried, [&](const CarriedValue& v) { return v.branch == in.node; });
          if (carried == loop_.carried.end()) {
            if (in.node->op().gradient().function && !is_invariant(*in.node)) found.push_back(in.node);
            continue;
          }
          const auto i = static_cast<size_t>(carried - loop_.carried.begin());
          if (!carries[i]) out.push_back(i);
          carries[i] = true;
        }
      }
    }
    for (const size_t i : out)
      if (loop_.carried[i].merge->dtype(0) == DType::kResource)
        return make_error(Code::kUnimplemented, "'{}' carries a handle from iteration to iteration",
                          loop_.carried[i].merge->name());
    std::ranges::sort(out);
    return out;
  }

  bool is_invariant(const Node& node) const {
    return std::ranges::find(loop_.invariants, &node) != loop_.invariants.end();
  }

  /// Counts the iterations forward, to count them down backward.
  void open_counters() {
    const Output merge = forward_.open(around_.constant<int32_t>(0), PartialShape::scalar());
    if (!merge) return;
    const LoopValue count = forward_.split(merge);
    if (!count.value) return;
    forward_.set_pivot(count.value.node);
    const Scope& in = forward_.inside();
    forward_.close(count, in.op("AddV2", {count.value, in.constant<int32_t>(1)}));
    tell(count.exit);
    left_merge_ = backward_.open(count.exit, PartialShape::scalar());
  }

  /// A new exit of the loop can be used by whoever differentiates what is around.
  void tell(Output exit) { loops_.add(exit, loop_.parent, loop_.carried[0].enter->inputs()[0]); }

  Output exit_of(const CarriedValue& v) {
    if (v.exit) return v.exit->out();
    const Output exit = around_.named("exit").op("Exit", {v.branch->out(0)});
    if (exit) tell(exit);
    return exit;
  }

  /// Zeros for the gradient by something that enters in every iteration; by a handle it is that of its variable.
  Output zeros(Output entering, Output gradient) {
    const bool handle = entering.dtype() == DType::kResource;
    if (!handle && !entering.shape().fully_known()) return scope_.op("ZerosLike", {entering});
    if (entering.dtype() == DType::kVariant) return scope_.op("ZerosLike", {entering});
    const Output zero = scope_.constant(*Tensor::zeros(gradient.dtype(), Shape{}));
    return scope_.op("Fill",
                     {handle ? scope_.op("VariableShape", {entering}) : size_vector(scope_, entering.shape()), zero});
  }
  /// `value` with the shape that a loop promised, where inference did not find that it has it.
  static Output shaped(const Scope& scope, Output value, const PartialShape& shape) {
    auto merged = PartialShape::merge(value.shape(), shape);
    if (!merged.ok() || *merged == value.shape()) return value;
    return scope.op("EnsureShape", {value}, {{"shape", *merged}});
  }
  static PartialShape sum_shape(const Node& enter, Output gradient) {
    const bool handle = enter.dtype(0) == DType::kResource;
    return handle ? gradient.shape() : enter.shape(0);
  }

  /// An output that the gradient of the body uses, as the backward loop sees it.
  Output bring_in(Output outside) {
    if (loops_.frame_of(outside) != loop_.frame) return backward_.context().inside(outside);
    const Node& node = *outside.node;
    if (is_invariant(node)) return backward_.context().inside(node.inputs()[0]);
    if (node.op().name() == "Const") return backward_.inside().constant(*node.attrs().get<Tensor>("value"));
    return recall(outside);
  }

  /// Keeps the value of each iteration in a list, and takes it off that list in the backward loop.
  Output recall(Output forward) {
    Scope in = forward_.inside();
    const bool maybe_dead = loops_.maybe_dead(loop_, forward);
    Output kept = forward, alive;
    if (maybe_dead) {
      const Node* node = in.node("_Alive", {forward});
      if (!node) return {};
      kept = node->out(0);
      alive = recall_live(node->out(1));
    }
    const Output value = recall_live(kept);
    if (!maybe_dead || !value) return value;
    // Dead where it was. What is kept in place of the dead has another shape.
    const Scope& inside = backward_.inside();
    const Node* branch = inside.node("Switch", {value, alive});
    if (!branch || !forward.shape().has_rank()) return branch ? branch->out(1) : Output{};
    return inside.op("EnsureShape", {branch->out(1)}, {{"shape", forward.shape()}});
  }

  Output recall_live(Output kept) {
    const Attrs type{{"element_dtype", kept.dtype()}};
    const Output list = forward_.open(
        around_.op("EmptyTensorList", {around_.constant<int32_t>(-1), around_.constant<int32_t>(-1)}, type),
        PartialShape::scalar());
    if (!list) return {};
    const LoopValue keeping = forward_.split(list);
    forward_.close(keeping, forward_.inside().op("TensorListPushBack", {keeping.value, kept}));
    if (!keeping.exit) return {};
    tell(keeping.exit);

    const LoopValue taking = backward_.add(keeping.exit, PartialShape::scalar());
    const Scope& inside = backward_.inside();
    const Node* pop = inside.node("TensorListPopBack", {taking.value, size_vector(inside, kept.shape())}, type);
    if (!pop) return {};
    backward_.close(taking, pop->out(0));
    return pop->out(1);
  }

  const Scope scope_;
  Loops& loops_;
  const Loop& loop_;
  const OutputSet& stops_;
  const Scope around_;
  LoopBuilder forward_, backward_;
  std::shared_ptr<FlowContext> body_;
  Output left_merge_;
};

}  // namespace

Result<std::vector<std::pair<Output, Output>>> loop_gradient(const Scope& scope, Loops& loops, const Loop& loop,
                                                             std::vector<Output> dys, const OutputSet& stops) {
  return LoopGradient(scope, loops, loop, stops).run(std::move(dys));
}

}  // namespace troupe
