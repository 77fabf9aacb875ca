// SPDX-License-Identifier: Apache-2.0
// What several devices do together, each as one node: _AllReduce, _ReduceScatter, _AllGather, _Broadcast. They have no
// kernels: when a step is planned, the nodes that do it on the devices come in their place
// (graph/passes/expand_collectives.h).
#include <algorithm>
#include <numeric>

#include "ops/control/register.h"
#include "ops/parts/type_dispatch.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

/// A ring has about twice the square of that many nodes.
constexpr int64_t kMostDevices = 1024;

std::vector<int64_t> even_sizes(int64_t size, int64_t n) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(size / n + (i < size % n ? 1 : 0));
  return out;
}

Status check_devices(ShapeContext& c) {
  const auto n = c.attr<int64_t>("N");
  if (n > kMostDevices) return invalid_argument("devices must be at most {}, got {}", kMostDevices, n);
  const auto& devices = c.attr<std::vector<std::string>>("devices");
  if (static_cast<int64_t>(devices.size()) == n) return {};
  return invalid_argument("devices must be as many as tensors, {}, got {}", n, devices.size());
}

/// What is known of the shape of all inputs, where they differ along `axis` at most.
Result<PartialShape> merged_shape(ShapeContext& c, std::optional<int> axis = {}) {
  PartialShape known;
  for (int i = 0; i < c.num_inputs(); ++i) {
    PartialShape shape = c.input(i);
    if (axis && shape.rank() > *axis) shape.set(*axis, -1);
    auto both = PartialShape::merge(known, shape);
    if (!both.ok())
      return invalid_argument("tensor {} is {}, but those before it are {}", i, c.input(i).str(), known.str());
    known = *both;
  }
  if (axis && known.has_rank() && *axis >= known.rank()) return invalid_argument("axis {} of {}", *axis, known.str());
  return known;
}

Status check_reduction(ShapeContext& c) {
  const DType dtype = c.attr<DType>("T");
  if (c.attr<std::string>("reduction") != "MEAN" || is_floating(dtype)) return {};
  return invalid_argument("a mean is of floating-point types, not {}", to_string(dtype));
}

Status all_reduce_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(check_devices(c));
  TROUPE_RETURN_IF_ERROR(check_reduction(c));
  TROUPE_ASSIGN(const PartialShape shape, merged_shape(c));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shape);
  return {};
}

Status reduce_scatter_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(check_devices(c));
  TROUPE_RETURN_IF_ERROR(check_reduction(c));
  TROUPE_ASSIGN(PartialShape shape, merged_shape(c));
  const auto axis = static_cast<int>(std::min<int64_t>(c.attr<int64_t>("axis"), INT32_MAX));
  if (shape.has_rank() && axis >= shape.rank()) return invalid_argument("axis {} of {}", axis, shape.str());
  std::vector<int64_t> sizes = c.attr<std::vector<int64_t>>("sizes");
  const int64_t size = shape.has_rank() ? shape[axis] : -1;
  if (sizes.empty() && size >= 0) sizes = even_sizes(size, c.num_outputs());
  if (!sizes.empty()) {
    if (static_cast<int>(sizes.size()) != c.num_outputs())
      return invalid_argument("sizes must be as many as tensors, {}, got {}", c.num_outputs(), sizes.size());
    int64_t sum = 0;
    for (const int64_t part : sizes)
      if (part < 0 || __builtin_add_overflow(sum, part, &sum))
        return invalid_argument("sizes must be at least 0, and their sum a size, got {}", part);
    if (size >= 0 && sum != size) return invalid_argument("the sum of sizes must be {}, got {}", size, sum);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (shape.has_rank()) shape.set(axis, sizes.empty() ? -1 : sizes[static_cast<size_t>(i)]);
    c.set_output(i, shape);
  }
  return {};
}

Status all_gather_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(check_devices(c));
  const auto axis = static_cast<int>(std::min<int64_t>(c.attr<int64_t>("axis"), INT32_MAX));
  TROUPE_ASSIGN(PartialShape shape, merged_shape(c, axis));
  int64_t sum = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const int64_t size = c.input(i).has_rank() ? c.input(i)[axis] : -1;
    if (size < 0) sum = -1;
    else if (sum >= 0 && __builtin_add_overflow(sum, size, &sum))
      return invalid_argument("the tensors have too many elements together");
  }
  if (shape.has_rank()) shape.set(axis, sum);
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shape);
  return {};
}

Status broadcast_to_devices_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(check_devices(c));
  if (const auto root = c.attr<int64_t>("root"); root >= c.num_outputs())
    return invalid_argument("from device {} of {}", root, c.num_outputs());
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return {};
}

// -- gradients --------------------------------------------------------------------------------------------------------

using CollectiveOutputs = std::vector<Output>;

const std::vector<std::string>& devices_of(GradientContext& g) {
  return g.node().attrs().at<std::vector<std::string>>("devices");
}
Scope scope_on(GradientContext& g, size_t device) { return g.scope().device(devices_of(g)[device]); }

/// The gradient by each output, zeros where the loss does not depend on it.
CollectiveOutputs all_dys(GradientContext& g) {
  CollectiveOutputs out;
  for (int i = 0; i < g.node().num_outputs(); ++i)
    out.push_back(g.dy(i) ? g.dy(i) : scope_on(g, static_cast<size_t>(i)).op("ZerosLike", {g.output(i)}));
  return out;
}

/// Attributes of the collective that its gradient has as well.
Attrs same_attrs(GradientContext& g, std::initializer_list<const char*> names) {
  Attrs out;
  for (const char* name : names) out.set(name, *g.node().attrs().find(name));
  return out;
}

/// The outputs of a collective, on its devices.
CollectiveOutputs on_devices(GradientContext& g, const char* op, CollectiveOutputs xs, Attrs attrs) {
  CollectiveOutputs out = g.ops(op, std::move(xs), std::move(attrs));
  for (size_t i = 0; i < out.size(); ++i) out[i] = scope_on(g, i).op("Identity", {out[i]});
  return out;
}

Status set_all(GradientContext& g, const CollectiveOutputs& dxs) {
  for (size_t i = 0; i < dxs.size(); ++i) g.set_dx(static_cast<int>(i), dxs[i]);
  return g.scope().status();
}

Status all_reduce_gradient(GradientContext& g) {
  return set_all(g, on_devices(g, "_AllReduce", all_dys(g), same_attrs(g, {"devices", "reduction", "order"})));
}

Status reduce_scatter_gradient(GradientContext& g) {
  CollectiveOutputs dxs = on_devices(g, "_AllGather", all_dys(g), same_attrs(g, {"devices", "axis"}));
  if (g.node().attrs().at<std::string>("reduction") == "MEAN")
    for (size_t i = 0; i < dxs.size(); ++i) {
      const Scope s = scope_on(g, i);
      const double share = 1.0 / static_cast<double>(dxs.size());
      dxs[i] = s.op("Mul", {dxs[i], s.op("Cast", {s.constant(share)}, {{"DstT", g.node().dtype(0)}})});
    }
  return set_all(g, dxs);
}

Status all_gather_gradient(GradientContext& g) {
  const auto axis = g.node().attrs().at<int64_t>("axis");
  std::vector<int64_t> sizes;
  for (int i = 0; i < g.num_inputs(); ++i) {
    const PartialShape& shape = g.input(i).shape();
    if (shape.has_rank() && shape[static_cast<int>(axis)] >= 0) sizes.push_back(shape[static_cast<int>(axis)]);
  }
  if (static_cast<int>(sizes.size()) == g.num_inputs()) {
    Attrs attrs = same_attrs(g, {"devices", "axis"});
    attrs.set("sizes", sizes);
    return set_all(g, on_devices(g, "_ReduceScatter", all_dys(g), std::move(attrs)));
  }
  // Where the chunks begin is known when the step runs.
  CollectiveOutputs sums = on_devices(g, "_AllReduce", all_dys(g), same_attrs(g, {"devices"}));
  CollectiveOutputs chunks;
  for (size_t i = 0; i < sums.size(); ++i) {
    const Output sizes_there =
        scope_on(g, i).op("Shape", {g.input(static_cast<int>(i))}, {{"out_type", DType::kInt64}});
    const Tensor at = Tensor::of<int64_t>({axis}), one = Tensor::of<int64_t>({1});
    const Scope s = scope_on(g, i);
    chunks.push_back(s.op("Slice", {sizes_there, s.constant(at), s.constant(one)}));
  }
  for (size_t i = 0; i < sums.size() && g.scope().ok(); ++i) {
    const Scope s = scope_on(g, i);
    CollectiveOutputs all = chunks;
    all.push_back(s.constant(int32_t{0}));
    const Node* parts =
        s.node("SplitV", {sums[i], s.op("ConcatV2", std::move(all)), s.constant(static_cast<int32_t>(axis))},
               {{"num_split", static_cast<int64_t>(sums.size())}});
    if (parts) g.set_dx(static_cast<int>(i), parts->out(static_cast<int>(i)));
  }
  return g.scope().status();
}

Status broadcast_to_devices_gradient(GradientContext& g) {
  const auto root = g.node().attrs().at<int64_t>("root");
  const CollectiveOutputs dxs = on_devices(g, "_AllReduce", all_dys(g), same_attrs(g, {"devices"}));
  if (g.scope().ok()) g.set_dx(0, dxs[static_cast<size_t>(root)]);
  return g.scope().status();
}

}  // namespace

void register_collective_ops(OpRegistry& ops, KernelRegistry&) {
  const std::string where =
      " Tensor i is on device i. Planning a step puts nodes of these devices in its place: "
      "see troupe/collectives.h, by which graphs are made.";
  const auto several = [&](OpDef op) {
    return op.input("xs: N * T").output("ys: N * T").attr("N: int >= 1").attr("devices: list(string)");
  };
  ops.add(several(OpDef("_AllReduce"))
              .attr("reduction: {'SUM', 'MEAN'} = 'SUM'")
              .attr("order: {'RING', 'DEVICES'} = 'RING'")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .doc("On each of several devices the sum or mean of all tensors, which have one shape. Where no library "
                   "adds them, the order is that of the ring or of the devices: then each adds a share of the last "
                   "dimension, whose size must be known and be at least theirs, and hands it to all others." +
                   where)
              .shape(all_reduce_shape),
          gradient(all_reduce_gradient));
  ops.add(several(OpDef("_ReduceScatter"))
              .attr("reduction: {'SUM', 'MEAN'} = 'SUM'")
              .attr("axis: int >= 0 = 0")
              .attr("sizes: list(int) = []")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .doc("On device i the chunk i along `axis` of the sum or mean of all tensors, which have one shape; "
                   "chunks are of these sizes, without any as even as may be." +
                   where)
              .shape(reduce_scatter_shape),
          gradient(reduce_scatter_gradient));
  ops.add(several(OpDef("_AllGather"))
              .attr("axis: int >= 0 = 0")
              .attr("T: type")
              .doc("On each of several devices all tensors, joined along `axis`, where their sizes may differ." + where)
              .shape(all_gather_shape),
          gradient(all_gather_gradient));
  ops.add(OpDef("_Broadcast")
              .input("x: T")
              .output("ys: N * T")
              .attr("N: int >= 1")
              .attr("devices: list(string)")
              .attr("root: int >= 0 = 0")
              .attr("T: type")
              .doc("On each of several devices the tensor, which is on device `root`." + where)
              .shape(broadcast_to_devices_shape),
          gradient(broadcast_to_devices_gradient));
}

}  // namespace troupe
