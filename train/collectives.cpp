// SPDX-License-Identifier: Apache-2.0
// Each collective is one node; graph/passes/expand_collectives.cpp makes rings of them when a step is planned.
#include "troupe/collectives.h"

namespace troupe::nn {
namespace {

using Outputs = std::vector<Output>;

bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}
bool is_number(DType dtype) {
  return dtype != DType::kBool && dtype != DType::kString && dtype != DType::kResource && dtype != DType::kVariant;
}

/// The devices of one collective, and what is checked of their tensors.
class Group {
 public:
  Group(const Scope& scope, const char* what, const std::vector<std::string>& devices)
      : what_(what), devices_(devices), scope_(scope.scope(what)) {
    for (const std::string& device : devices) at_.push_back(scope_.device(device));
    if (at_.empty()) fail("no devices");
  }

  bool ok() const { return scope_.ok(); }
  size_t size() const { return at_.size(); }
  const Scope& at(size_t device) const { return at_[device]; }
  template <class... Args> void fail(fmt::format_string<Args...> text, Args&&... args) const {
    scope_.fail(invalid_argument("{}: {}", what_, fmt::format(text, std::forward<Args>(args)...)));
  }

  /// One tensor for each device, of one dtype, and of one shape but for what they are joined along.
  bool check(const Outputs& xs, std::optional<int> joined = {}) const {
    if (!ok()) return false;
    if (xs.size() != size()) return fail("{} tensors for {} devices", xs.size(), size()), false;
    PartialShape known;  // what those so far say of the shape of all
    for (size_t i = 0; i < xs.size(); ++i) {
      if (!xs[i]) return fail("tensor {} is empty", i), false;
      if (xs[i].dtype() != xs[0].dtype())
        return fail("{} is {}, but {} is {}", xs[i].name(), to_string(xs[i].dtype()), xs[0].name(),
                    to_string(xs[0].dtype())),
               false;
      PartialShape shape = xs[i].shape();
      if (joined && shape.rank() > *joined) shape.set(*joined, -1);
      auto merged = PartialShape::merge(known, shape);
      if (!merged.ok())
        return fail("{} is {}, but the tensors before it are {}", xs[i].name(), xs[i].shape().str(), known.str()),
               false;
      known = *merged;
    }
    return true;
  }
  bool check(const Outputs& xs, Reduction reduction) const {
    if (!check(xs)) return false;
    const DType dtype = xs[0].dtype();
    if (!is_number(dtype) || (reduction == Reduction::kMean && !is_float(dtype)))
      return fail("{} is {}: no type for a {}", xs[0].name(), to_string(dtype),
                  reduction == Reduction::kMean ? "mean" : "sum"),
             false;
    return true;
  }
  /// The axis from 0 on. Where no rank is known, a negative one is refused too.
  std::optional<int> axis_of(const Outputs& xs, int axis) const {
    int rank = -1;
    for (const Output& x : xs)
      if (x && x.shape().has_rank()) rank = x.shape().rank();
    const int from_front = axis < 0 && rank >= 0 ? axis + rank : axis;
    if (from_front >= 0 && (rank < 0 || from_front < rank)) return from_front;
    fail("axis {} of {}", axis, xs.empty() || !xs[0] ? "no tensor" : xs[0].name() + " " + xs[0].shape().str());
    return {};
  }

  /// The collective as one node, its outputs on their devices.
  Outputs all(const char* op, Outputs xs, Attrs attrs) const {
    attrs.set("N", static_cast<int64_t>(size()));
    attrs.set("devices", devices_);
    const Node* node = at(0).named(what_).node(op, std::move(xs), std::move(attrs));
    Outputs out;
    for (size_t i = 0; i < size() && node; ++i) out.push_back(at(i).op("Identity", {node->out(static_cast<int>(i))}));
    return checked(std::move(out));
  }
  static std::string name_of(Reduction reduction) { return reduction == Reduction::kMean ? "MEAN" : "SUM"; }

  /// Nothing when there was a fault.
  Outputs checked(Outputs out) const { return ok() ? std::move(out) : Outputs(); }

 private:
  const char* what_;
  const std::vector<std::string>& devices_;
  Scope scope_;
  std::vector<Scope> at_;
};

}  // namespace

std::vector<Output> all_reduce(const ScopeAt& scope, const std::vector<std::string>& devices,
                               const std::vector<Output>& xs, Reduction reduction) {
  const Group group(scope, "all_reduce", devices);
  if (!group.check(xs, reduction)) return {};
  return group.size() == 1 ? xs : group.all("_AllReduce", xs, {{"reduction", Group::name_of(reduction)}});
}

std::vector<Output> reduce_scatter(const ScopeAt& scope, const std::vector<std::string>& devices,
                                   const std::vector<Output>& xs, Reduction reduction, int axis) {
  const Group group(scope, "reduce_scatter", devices);
  if (!group.check(xs, reduction)) return {};
  const auto along = group.axis_of(xs, axis);
  if (!along) return {};
  const Attrs attrs = {{"reduction", Group::name_of(reduction)}, {"axis", static_cast<int64_t>(*along)}};
  return group.size() == 1 ? xs : group.all("_ReduceScatter", xs, attrs);
}

std::vector<Output> all_gather(const ScopeAt& scope, const std::vector<std::string>& devices,
                               const std::vector<Output>& xs, int axis) {
  const Group group(scope, "all_gather", devices);
  if (!group.ok()) return {};
  const auto along = group.axis_of(xs, axis);
  if (!along || !group.check(xs, along)) return {};
  return group.size() == 1 ? xs : group.all("_AllGather", xs, {{"axis", static_cast<int64_t>(*along)}});
}

std::vector<Output> broadcast(const ScopeAt& scope, const std::vector<std::string>& devices, Output x, size_t root) {
  const Group group(scope, "broadcast", devices);
  if (!group.ok()) return {};
  if (!x || root >= group.size()) {
    group.fail("{} from device {} of {}", x ? x.name() : "no tensor", root, group.size());
    return {};
  }
  if (group.size() == 1) return {x};
  Outputs out = group.all("_Broadcast", {x}, {{"root", static_cast<int64_t>(root)}});
  if (!out.empty()) out[root] = x;
  return out;
}

}  // namespace troupe::nn
