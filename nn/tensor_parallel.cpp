// SPDX-License-Identifier: Apache-2.0
// Layers split over devices, and what joins their parts.
#include "troupe/tensor_parallel.h"

#include <algorithm>
#include <numeric>

#include "nn/precision.h"
#include "nn/updates.h"

namespace troupe::nn {
namespace {

// Whether x is there; else the scope fails.
bool there_is(const Scope& scope, Output x, const std::string& what) {
  if (x) return true;
  scope.fail(invalid_argument("{}: the input is empty", what));
  return false;
}

// The last size of x, or 0 after failing the scope because it is 0 or not known.
int64_t last_size(const Scope& scope, Output x, const std::string& what) {
  if (!scope.ok() || !there_is(scope, x, what)) return 0;
  const PartialShape& shape = x.shape();
  if (shape.has_rank() && shape.rank() >= 1 && shape.dim(-1) > 0) return shape.dim(-1);
  const bool empty = shape.has_rank() && shape.rank() >= 1 && shape.dim(-1) == 0;
  scope.fail(invalid_argument("{}: input {} has shape {}; {}", what, x.name(), shape.str(),
                              empty ? "its last size must be at least 1" : "a known last size is needed"));
  return 0;
}

// Whether `size` can be split over that many devices; else the scope fails.
bool splits(const Scope& scope, int64_t size, size_t devices, const std::string& what) {
  if (!scope.ok()) return false;
  if (devices > 0 && size >= static_cast<int64_t>(devices)) return true;
  scope.fail(invalid_argument("{}: {} split over {} devices", what, size, devices));
  return false;
}

// Whether there are parts, one for each device; else the scope fails.
bool is_spread(const Scope& scope, const Spread& x, const std::string& what) {
  if (!scope.ok()) return false;
  if (!x.parts.empty() && x.parts.size() == x.devices.size())
    return std::ranges::all_of(x.parts, [&](Output part) { return there_is(scope, part, what); });
  scope.fail(invalid_argument("{}: {} parts on {} devices", what, x.parts.size(), x.devices.size()));
  return false;
}

// Where each share begins.
std::vector<int64_t> begins(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> result(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), result.begin(), int64_t{0});
  return result;
}

// The slice of shape `share` from `begin` on of the initial value that variable `name` of shape `all` would have.
Initializer slice_of(const Variables& variables, const std::string& name, const Shape& all, const Initializer& initial,
                     std::vector<int64_t> begin) {
  const int64_t seed = variables.seed_for(name);
  return [=](const Scope& scope, const Shape& share, int64_t) {
    const std::vector<int64_t> size(share.begin(), share.end());
    return scope.op("Slice", {initial(scope, all, seed), scope.constant(Tensor::of<int64_t>(begin)),
                              scope.constant(Tensor::of<int64_t>(size))});
  };
}

// The sum of parts, on the scope's device.
Output sum(const Scope& scope, const std::vector<Output>& parts) {
  return parts.size() == 1 ? scope.op("Identity", {parts[0]}) : scope.op("AddN", parts);
}

// Parts one after another along `axis`, on the scope's device.
Output join_parts(const Scope& scope, std::vector<Output> parts, int32_t axis) {
  if (parts.size() == 1) return scope.op("Identity", {parts[0]});
  parts.push_back(scope.constant(axis));
  return scope.op("ConcatV2", std::move(parts));
}

// each(), with a fn of the library.
Spread on_each(const Scope& scope, const Spread& x, const std::function<Output(const Scope& scope, Output part)>& fn) {
  if (!is_spread(scope, x, "each")) return {};
  Spread result = {x.devices, {}};
  for (size_t i = 0; i < x.parts.size(); ++i) result.parts.push_back(fn(scope.device(x.devices[i]), x.parts[i]));
  return result;
}

// -- rows by index ----------------------------------------------------------------------------------------------------

// Indices into something whose first or last dimension is split, each sent to the device that has it.
struct Routes {
  std::vector<Output> places;  // int32 [n_i]: which of the indices went to share i
  std::vector<Output> inside;  // [n_i]: where in the share each of them is
};

// `indices` is a vector. One out of range has no share, which DynamicPartition refuses.
Routes route(const Scope& scope, Output indices, const std::vector<int64_t>& sizes) {
  const DType dtype = indices ? indices.dtype() : DType::kInt32;
  const auto number = [&](int64_t x) {
    return scope.constant(dtype == DType::kInt64 ? Tensor::scalar(x) : Tensor::scalar(static_cast<int32_t>(x)));
  };
  const std::vector<int64_t> from = begins(sizes);
  // The share is the number of shares that begin at or before the index, less one; beyond the last it is one more.
  std::vector<int64_t> bounds = from;
  bounds.push_back(from.back() + sizes.back());
  Tensor limits = Tensor::of<int64_t>(bounds);
  if (dtype != DType::kInt64) limits = Tensor::of<int32_t>(std::vector<int32_t>(bounds.begin(), bounds.end()));
  const Output column = scope.op("ExpandDims", {indices, scope.constant(1)});
  const Output reached = scope.op("GreaterEqual", {column, scope.constant(std::move(limits))});
  const Output count = scope.op("Sum", {scope.op("Cast", {reached}, {{"DstT", DType::kInt32}}), scope.constant(1)});
  const Output share = scope.named("share_of_index").op("Sub", {count, scope.constant(1)});
  const Output places = scope.op("Range", {scope.constant(0), scope.op("Size", {indices}), scope.constant(1)});
  const Attrs parts = {{"num_partitions", static_cast<int64_t>(sizes.size())}};
  const Node* ids = scope.named("indices_of_shares").node("DynamicPartition", {indices, share}, parts);
  const Node* where = scope.named("places_of_shares").node("DynamicPartition", {places, share}, parts);
  Routes result;
  for (size_t i = 0; ids && where && i < sizes.size(); ++i) {
    const int port = static_cast<int>(i);
    result.places.push_back(where->out(port));
    result.inside.push_back(i == 0 ? ids->out(0) : scope.op("Sub", {ids->out(port), number(from[i])}));
  }
  return result;
}

// Rows that shares gave for the indices routed to them, in the order of the indices.
Output stitch(const Scope& scope, const Routes& routes, const std::vector<Output>& rows) {
  std::vector<Output> inputs = routes.places;
  inputs.insert(inputs.end(), rows.begin(), rows.end());
  return scope.op("DynamicStitch", std::move(inputs));
}

}  // namespace

std::vector<int64_t> share_sizes(int64_t size, size_t n) {
  const auto count = static_cast<int64_t>(n);
  std::vector<int64_t> result(n, size / count);
  for (int64_t i = 0; i < size % count; ++i) ++result[static_cast<size_t>(i)];
  return result;
}

// -- from one tensor to many and back ---------------------------------------------------------------------------------

Spread copy_to(const ScopeAt& scope, Output x, const std::vector<std::string>& devices) {
  if (!splits(scope, static_cast<int64_t>(devices.size()), devices.size(), "copy_to")) return {};
  return on_each(scope.scope("copy"), {devices, std::vector<Output>(devices.size(), x)},
                 [](const Scope& s, Output part) { return s.op("Identity", {part}); });
}

Spread split_to(const ScopeAt& scope, Output x, const std::vector<std::string>& devices) {
  const int64_t size = last_size(scope, x, "split_to");
  if (size == 0 || !splits(scope, size, devices.size(), "split_to")) return {};
  const Scope there = scope.device(x.node->device());
  const Output sizes = there.constant(Tensor::of<int64_t>(share_sizes(size, devices.size())));
  const Node* parts =
      there.node("SplitV", {x, sizes, there.constant(-1)}, {{"num_split", static_cast<int64_t>(devices.size())}});
  Spread result = {devices, {}};
  for (int i = 0; parts && i < parts->num_outputs(); ++i) result.parts.push_back(parts->out(i));
  return result;
}

Spread each(const ScopeAt& scope, const Spread& x, const std::function<Output(const Scope& scope, Output part)>& fn) {
  if (!fn) return scope.fail(invalid_argument("each: the function is empty")), Spread();
  return on_each(scope, x, [&](const Scope& s, Output part) { return fn(s.told_at_each_line(), part); });
}

Output gather(const ScopeAt& scope, const Spread& shares) {
  return is_spread(scope, shares, "gather") ? join_parts(scope.named("gather"), shares.parts, -1) : Output{};
}

Output reduce(const ScopeAt& scope, const Spread& sums) {
  return is_spread(scope, sums, "reduce") ? sum(scope.named("reduce"), sums.parts) : Output{};
}

Spread all_reduce(const ScopeAt& scope, const Spread& sums) {
  if (!is_spread(scope, sums, "all_reduce")) return {};
  const int64_t size = last_size(scope, sums.parts[0], "all_reduce");
  if (size == 0) return {};
  const Scope inside = scope.scope("all_reduce");
  const size_t n = sums.devices.size();
  if (size < static_cast<int64_t>(n) || n == 1) return copy_to(inside, reduce(inside, sums), sums.devices);
  const Node* all = inside.device(sums.devices[0])
                        .named("all_reduce")
                        .node("_AllReduce", sums.parts, {{"devices", sums.devices}, {"order", std::string("DEVICES")}});
  if (!all) return {};
  Spread result = {sums.devices, {}};
  for (size_t i = 0; i < n; ++i)
    result.parts.push_back(inside.device(sums.devices[i]).op("Identity", {all->out(static_cast<int>(i))}));
  return result;
}

// -- layers -----------------------------------------------------------------------------------------------------------

Spread dense_by_columns(const ScopeAt& scope, Variables& variables, const Spread& x, int64_t units,
                        const std::string& name, const DenseOptions& options) {
  const std::string what = fmt::format("dense_by_columns '{}'", name);
  if (!is_spread(scope, x, what) || !splits(scope, units, x.devices.size(), what)) return {};
  const int64_t in = last_size(scope, x.parts[0], what);
  if (in == 0 || !variables.claim(scope, name + "/kernel_0")) return {};
  const Scope inside = scope.scope(name);
  const std::vector<int64_t> sizes = share_sizes(units, x.devices.size()), from = begins(sizes);
  Spread result = {x.devices, {}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Scope there = scope.device(x.devices[i]), own = inside.device(x.devices[i]);
    const Initializer slice = slice_of(variables, name + "/kernel", {in, units}, options.kernel, {0, from[i]});
    const Output kernel = variables.read(there, fmt::format("{}/kernel_{}", name, i), {in, sizes[i]}, slice);
    Output y = own.op("MatMul", {x.parts[i], for_input(own, kernel, x.parts[i])});
    if (options.bias) {
      const Output bias = variables.read(there, fmt::format("{}/bias_{}", name, i), {sizes[i]}, zeros());
      y = own.op("BiasAdd", {y, for_input(own, bias, y)});
    }
    result.parts.push_back(y);
  }
  return result;
}

Spread dense_by_columns(const ScopeAt& scope, Variables& variables, Output x, int64_t units, const std::string& name,
                        const std::vector<std::string>& devices, const DenseOptions& options) {
  return dense_by_columns(scope, variables, copy_to(scope, x, devices), units, name, options);
}

namespace {

// The products of dense_by_rows: partial sums.
Spread products_of_rows(const Scope& scope, const Scope& inside, Variables& variables, const Spread& x, int64_t units,
                        const std::string& name, const DenseOptions& options) {
  const std::string what = fmt::format("dense_by_rows '{}'", name);
  if (!is_spread(scope, x, what)) return {};
  std::vector<int64_t> sizes;
  for (const Output& part : x.parts) {
    sizes.push_back(last_size(scope, part, what));
    if (sizes.back() == 0) return {};
  }
  if (!variables.claim(scope, name + "/kernel_0")) return {};
  const std::vector<int64_t> from = begins(sizes);
  const int64_t in = from.back() + sizes.back();
  Spread result = {x.devices, {}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Scope there = scope.device(x.devices[i]);
    const Initializer slice = slice_of(variables, name + "/kernel", {in, units}, options.kernel, {from[i], 0});
    const Output kernel = variables.read(there, fmt::format("{}/kernel_{}", name, i), {sizes[i], units}, slice);
    const Scope own = inside.device(x.devices[i]);
    result.parts.push_back(own.op("MatMul", {x.parts[i], for_input(own, kernel, x.parts[i])}));
  }
  return result;
}

}  // namespace

Output dense_by_rows(const ScopeAt& scope, Variables& variables, const Spread& x, int64_t units,
                     const std::string& name, const DenseOptions& options) {
  const Scope inside = scope.scope(name);
  const Spread products = products_of_rows(scope, inside, variables, x, units, name, options);
  if (!scope.ok()) return {};
  const Output y = reduce(inside, products);
  if (!options.bias) return y;
  return inside.op("BiasAdd", {y, for_input(inside, variables.read(scope, name + "/bias", {units}, zeros()), y)});
}

Spread dense_by_rows_to_all(const ScopeAt& scope, Variables& variables, const Spread& x, int64_t units,
                            const std::string& name, const DenseOptions& options) {
  const Scope inside = scope.scope(name);
  const Spread products = products_of_rows(scope, inside, variables, x, units, name, options);
  if (!scope.ok()) return {};
  Spread y = all_reduce(inside, products);
  for (size_t i = 0; options.bias && i < y.parts.size(); ++i) {
    const Output bias = variables.read(scope.device(y.devices[i]), name + "/bias", {units}, zeros());
    const Scope own = inside.device(y.devices[i]);
    y.parts[i] = own.op("BiasAdd", {y.parts[i], for_input(own, bias, y.parts[i])});
  }
  return y;
}

Output embedding_by_rows(const ScopeAt& scope, Variables& variables, Output ids, int64_t rows, int64_t width,
                         const std::string& name, const std::vector<std::string>& devices,
                         const EmbeddingOptions& options) {
  const std::string what = fmt::format("embedding_by_rows '{}' of width {}", name, width);
  if (!splits(scope, width < 1 ? 0 : rows, devices.size(), what) || !there_is(scope, ids, what) ||
      !variables.claim(scope, name + "/table_0"))
    return {};
  const Scope inside = scope.scope(name);
  const std::vector<int64_t> sizes = share_sizes(rows, devices.size()), from = begins(sizes);
  const Routes routes = route(inside, inside.op("Reshape", {ids, inside.constant(Tensor::of<int32_t>({-1}))}), sizes);
  if (!scope.ok()) return {};
  std::vector<Output> taken;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Initializer slice = slice_of(variables, name + "/table", {rows, width}, options.table, {from[i], 0});
    const std::string share = fmt::format("{}/table_{}", name, i);
    const Output table = table_at_home(scope.device(devices[i]), variables, share, {sizes[i], width}, slice);
    const Scope own = variables.home(inside.device(devices[i]), share);
    taken.push_back(own.op("GatherV2", {table, routes.inside[i], own.constant(0)}));
  }
  const Output all = stitch(inside, routes, taken);
  const PartialShape& shape = ids.shape();
  Output sizes_of_all =
      inside.op("ConcatV2", {inside.op("Shape", {ids}),
                             inside.constant(Tensor::of<int32_t>({static_cast<int32_t>(width)})), inside.constant(0)});
  if (shape.fully_known()) {
    std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
    dims.push_back(static_cast<int32_t>(width));
    sizes_of_all = inside.constant(Tensor::of<int32_t>(dims));
  }
  return inside.op("Reshape", {all, sizes_of_all});
}

Spread embedding_by_columns(const ScopeAt& scope, Variables& variables, Output ids, int64_t rows, int64_t width,
                            const std::string& name, const std::vector<std::string>& devices,
                            const EmbeddingOptions& options) {
  const std::string what = fmt::format("embedding_by_columns '{}' of {} rows", name, rows);
  if (!splits(scope, rows < 1 ? 0 : width, devices.size(), what) || !there_is(scope, ids, what) ||
      !variables.claim(scope, name + "/table_0"))
    return {};
  const Scope inside = scope.scope(name);
  const std::vector<int64_t> sizes = share_sizes(width, devices.size()), from = begins(sizes);
  Spread result = {devices, {}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Initializer slice = slice_of(variables, name + "/table", {rows, width}, options.table, {0, from[i]});
    const std::string share = fmt::format("{}/table_{}", name, i);
    const Output table = table_at_home(scope.device(devices[i]), variables, share, {rows, sizes[i]}, slice);
    const Scope own = variables.home(inside.device(devices[i]), share);
    result.parts.push_back(own.op("GatherV2", {table, ids, own.constant(0)}));
  }
  return result;
}

// -- losses -----------------------------------------------------------------------------------------------------------

// With m the largest logit of a row: log(sum(exp(x - m))) + m - x[label]. The result does not depend on m, so no
// gradient goes through it.
Output sparse_softmax_cross_entropy(const ScopeAt& scope, const Spread& logits, Output labels) {
  const std::string what = "sparse_softmax_cross_entropy";
  if (!is_spread(scope, logits, what) || !there_is(scope, labels, what)) return {};
  std::vector<int64_t> sizes;
  for (const Output& part : logits.parts) {
    sizes.push_back(last_size(scope, part, what));
    if (sizes.back() == 0) return {};
  }
  const Scope s = scope.scope("cross_entropy");
  const auto along_classes = [](const Scope& at, const char* op, Output x) { return at.op(op, {x, at.constant(1)}); };
  const auto largest_of = [&](const Scope& at, Output x) { return along_classes(at, "Max", x); };
  const auto stacked = [](const Scope& at, const std::vector<Output>& xs) {
    return at.op("Pack", xs, {{"axis", int64_t{1}}});
  };
  const Output largest =
      s.op("StopGradient", {along_classes(s, "Max", stacked(s, on_each(s, logits, largest_of).parts))});
  const Spread sums = on_each(s, logits, [&](const Scope& at, Output x) {
    return along_classes(at, "Sum", at.op("Exp", {at.op("Sub", {x, at.op("ExpandDims", {largest, at.constant(1)})})}));
  });
  const Routes routes = route(s, labels, sizes);
  if (!scope.ok()) return {};
  std::vector<Output> of_label;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Scope at = s.device(logits.devices[i]);
    const Output inside = at.op("Cast", {routes.inside[i]}, {{"DstT", DType::kInt32}});
    of_label.push_back(at.op("GatherNd", {logits.parts[i], stacked(at, {routes.places[i], inside})}));
  }
  const Output total = s.op("AddV2", {s.op("Log", {sum(s, sums.parts)}), largest});
  return mean_all(s, s.op("Sub", {total, stitch(s, routes, of_label)}));
}

}  // namespace troupe::nn
