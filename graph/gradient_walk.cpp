// SPDX-License-Identifier: Apache-2.0
#include "graph/gradient_walk.h"

#include <algorithm>
#include <queue>
#include <stdexcept>

#include "graph/loop_gradient.h"
#include "graph/recompute.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {

/// Inputs that a node may have.
constexpr ptrdiff_t kMostAdded = UINT16_MAX;

/// Adds an explanation of what was being differentiated.
Error about(const Node& node, Error error) {
  std::string detail = std::move(error.message);
  if (!error.op.empty() || !error.node.empty()) detail = fmt::format("{} '{}': {}", error.op, error.node, detail);
  return {error.code, "gradient: " + detail, node.op().name(), node.name()};
}

class NodeGradient : public GradientContext {
 public:
  NodeGradient(const Node& node, Scope scope, std::vector<Output> dys, Recompute* recompute)
      : node_(node), scope_(std::move(scope)), dys_(std::move(dys)), dxs_(node.inputs().size()), recompute_(recompute) {
  }
  const Node& node() const override { return node_; }
  int num_inputs() const override { return static_cast<int>(node_.inputs().size()); }
  Output input(int i) const override { return value(node_.inputs()[checked("input", i, dxs_.size())]); }
  Output output(int i) const override {
    (void)checked("output", i, dys_.size());
    return value(node_.out(i));
  }
  Output dy(int i) const override { return dys_[checked("output", i, dys_.size())]; }
  void set_dx(int i, Output gradient) override { dxs_[checked("input", i, dxs_.size())] = gradient; }
  Scope& scope() override { return scope_; }
  const std::vector<Output>& dxs() const { return dxs_; }

 private:
  static size_t checked(const char* what, int i, size_t count) {
    if (i >= 0 && static_cast<size_t>(i) < count) return static_cast<size_t>(i);
    throw std::out_of_range(fmt::format("the gradient function asks for {0} {1}, but the node has {2} {0}{3}", what, i,
                                        count, count == 1 ? "" : "s"));
  }
  Output value(Output output) const { return recompute_ ? recompute_->value(node_, output) : output; }

  const Node& node_;
  Scope scope_;
  std::vector<Output> dys_, dxs_;
  Recompute* const recompute_;
};

}  // namespace

GradientWalk::Unit& GradientWalk::unit_of(const Node& node, const Loop* loop) {
  Unit& unit = units_[loop ? static_cast<const void*>(loop) : &node];
  if (!unit.node) {
    unit.node = &node;
    unit.loop = loop;
    unit.id = node.id();
  }
  return unit;
}

template <class F> void GradientWalk::for_each_input(const Unit& unit, F&& f) const {
  const auto read = [&](const Output& in) { f(original(scope_.graph(), in)); };
  if (!unit.loop) {
    for (const Output& in : unit.node->inputs()) read(in);
    return;
  }
  for (const CarriedValue& v : unit.loop->carried) read(v.enter->inputs()[0]);
  for (const Node* enter : unit.loop->invariants) read(enter->inputs()[0]);
}

GradientWalk::Unit* GradientWalk::maker(const Output& output) {
  if (!carries_gradient(output.dtype())) return nullptr;
  // What enters the frame, or comes from the iteration before, is not made in here.
  const ControlFlow flow = output.node->op().control_flow();
  const Loop* loop = nullptr;
  if (loops_.any()) {
    loop = loops_.loop_in(frame_, *output.node);
    if (!loop && flow == ControlFlow::kEnter && !(outward_ && is_constant_enter(*output.node))) return nullptr;
    if (!loop && frame_ > 0 && flow == ControlFlow::kMerge &&
        std::ranges::any_of(output.node->inputs(),
                            [](const Output& in) { return in.node->op().control_flow() == ControlFlow::kEnter; }))
      return nullptr;
  }
  return &unit_of(*output.node, loop);
}

Status GradientWalk::mark(const std::vector<Output>& ys) {
  std::vector<Unit*> found;
  std::unordered_set<Unit*> seen;
  const auto want = [&](const Output& o) {
    if (Unit* unit = maker(o); unit && seen.insert(unit).second) found.push_back(unit);
  };
  for (const Output& y : ys) want(y);
  for (size_t i = 0; i < found.size(); ++i) {
    for_each_input(*found[i], [&](const Output& in) {
      want(in);
      if (Unit* unit = maker(in)) ++unit->consumers;
    });
  }
  const auto added_later = [](const Unit* a, const Unit* b) { return a->id < b->id; };
  std::priority_queue<Unit*, std::vector<Unit*>, decltype(added_later)> next(added_later);
  for (Unit* unit : found)
    if (unit->consumers == 0) next.push(unit);
  while (!next.empty()) {
    path_.push_back(next.top());
    next.pop();
    for_each_input(*path_.back(), [&](const Output& in) {
      if (Unit* unit = maker(in); unit && --unit->consumers == 0) next.push(unit);
    });
  }
  for (auto at = path_.rbegin(); at != path_.rend(); ++at) {
    if (!(*at)->loop && !(*at)->node->op().gradient().function) continue;
    for_each_input(**at, [&](const Output& in) { (*at)->depends |= wanted(in); });
  }
  if (!recompute_) return {};
  for (const Unit* unit : path_) recompute_->add(*unit->node);
  return recompute_->check();
}

bool GradientWalk::wanted(const Output& o) {
  if (!carries_gradient(o.dtype())) return false;
  if (xs_.contains(o)) return true;
  const Unit* unit = maker(o);
  return unit && unit->depends && !stops_.contains(o);
}

Status GradientWalk::run() {
  for (const Unit* unit : path_) {
    if (!unit->depends) continue;
    TROUPE_RETURN_IF_ERROR(unit->loop ? visit(*unit->loop) : visit(*unit->node));
  }
  return scope_.status();
}

Output GradientWalk::total(const Output& output) {
  const auto at = parts_.find(output);
  if (at == parts_.end()) return {};
  std::vector<Output>& parts = at->second;
  while (parts.size() > 1) {
    std::vector<Output> sums;
    for (auto begin = parts.begin(); begin != parts.end();) {
      const auto end = begin + std::min<ptrdiff_t>(parts.end() - begin, kMostAdded);
      sums.push_back(scope_of(*output.node).op("AddN", {begin, end}));
      if (!sums.back()) return {};
      begin = end;
    }
    parts = std::move(sums);
  }
  return parts[0];
}

Scope GradientWalk::scope_of(const Node& node) const {
  Scope scope = scope_.scope(node.name() + "_grad");
  scope = node.attrs().has("_class") ? scope.colocate(&node) : scope.device(node.device());
  const auto compression = transfer_compression(node);
  return compression ? scope.compress_transfers(*compression) : scope;
}

Status GradientWalk::visit(const Node& node) {
  std::vector<Output> dys;
  bool any = false;
  for (int i = 0; i < node.num_outputs(); ++i) {
    dys.push_back(unstopped(node.out(i)));
    any |= static_cast<bool>(dys.back());
  }
  if (!any) return {};
  if (node.op().control_flow() == ControlFlow::kEnter) {
    if (const Output x = original(scope_.graph(), node.inputs()[0]); wanted(x)) add(x, dys[0]);
    return {};
  }
  if (recompute_) recompute_->enter(node, dys);
  NodeGradient context(node, scope_of(node), std::move(dys), recompute_);
  if (Status status = guarded([&] { return node.op().gradient().function(context); }); !status)
    return about(node, status.error());
  if (Status status = scope_.status(); !status) return about(node, status.error());
  for (int i = 0; i < context.num_inputs(); ++i) {
    const Output dx = context.dxs()[i];
    const Output x = original(scope_.graph(), node.inputs()[i]);
    if (!dx || !wanted(x)) continue;
    if (!scope_.graph().owns(dx.node))
      return about(node, make_error(Code::kInternal, "by input {} it is {}, of another graph", i, dx.name()));
    if (x.dtype() != DType::kResource && (dx.dtype() != x.dtype() || !dx.shape().compatible(x.shape())))
      return about(node, make_error(Code::kInternal, "by input {} ({} {}) it is {} {}", i, to_string(x.dtype()),
                                    x.shape().str(), to_string(dx.dtype()), dx.shape().str()));
    add(x, dx);
    if (recompute_) recompute_->leave(node, x, dx);
  }
  return {};
}

Status GradientWalk::visit(const Loop& loop) {
  if (loop.carried.empty()) return {};
  const Node& node = *loop.carried[0].merge;
  std::vector<Output> dys;
  bool any = false;
  for (const CarriedValue& v : loop.carried) {
    dys.push_back(v.exit ? unstopped(v.exit->out()) : Output{});
    any |= static_cast<bool>(dys.back());
  }
  if (!any) return {};
  auto dxs = loop_gradient(scope_of(node), loops_, loop, std::move(dys), stops_);
  if (!dxs.ok()) return about(node, std::move(dxs.error()));
  for (const auto& [entering, dx] : *dxs)
    if (const Output x = original(scope_.graph(), entering); wanted(x)) add(x, dx);
  return scope_.status();
}

}  // namespace troupe
