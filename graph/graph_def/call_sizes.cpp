// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/call_sizes.h"

#include <unordered_set>

namespace troupe {
namespace {

using proto::FunctionDef;
using proto::NodeDef;

/// What a call becomes, at least: nodes, inputs of those, and bytes. Sums stay
/// at their most in place of wrapping.
struct CallSize {
  uint64_t nodes = 0, inputs = 0, bytes = 0;

  static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
  static uint64_t product(uint64_t a, uint64_t b) { return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b; }
  void add(const CallSize& other) {
    nodes = sum(nodes, other.nodes);
    inputs = sum(inputs, other.inputs);
    bytes = sum(bytes, other.bytes);
  }
};

using CallSizes = std::unordered_map<const FunctionDef*,
                                     CallSize>;  // of one call, but for the call's own name

/// Of a call; what it calls is in `sizes`.
CallSize size_of(const NodeDef& call, const FunctionLibrary& library, const CallSizes& sizes) {
  CallSize out;
  for (const FunctionDef* f : library.called_by(call)) {
    const CallSize& in = sizes.at(f);
    const auto ends = static_cast<uint64_t>(f->signature().input_arg_size() + f->signature().output_arg_size());
    // The name of the call, at least with a '/', comes before that of each
    // node, and of each input within.
    const uint64_t name = call.name().size() + 1;
    out.add(in);
    out.add({2 + ends, 2 + ends, CallSize::product(name, 2 + ends)});
    out.bytes = CallSize::sum(out.bytes, CallSize::product(name, CallSize::sum(in.nodes, in.inputs)));
  }
  return out;
}

}  // namespace

Status check_call_sizes(const proto::GraphDef& def, const FunctionLibrary& library) {
  struct Visit {
    const FunctionDef* function;
    int next = 0;  // node
    std::vector<const FunctionDef*> called = {};
    CallSize size = {};
  };
  std::unordered_set<const FunctionDef*> open;
  std::vector<Visit> path;
  CallSize all;
  CallSizes sizes;
  for (const NodeDef& node : def.node()) {
    std::vector<const FunctionDef*> waiting = library.called_by(node);
    while (!waiting.empty() || !path.empty()) {
      if (path.empty()) {
        const FunctionDef* f = waiting.back();
        waiting.pop_back();
        if (sizes.contains(f)) continue;
        path.push_back({f});
        open.insert(f);
      }
      Visit& visit = path.back();
      if (!visit.called.empty()) {
        const FunctionDef* f = visit.called.back();
        visit.called.pop_back();
        if (sizes.contains(f)) continue;
        if (!open.insert(f).second)
          return error_of(
              node, invalid_argument("function '{}' calls itself, directly or through others", f->signature().name()));
        path.push_back({f});
        continue;
      }
      if (visit.next > 0) visit.size.add(size_of(visit.function->node_def(visit.next - 1), library, sizes));
      if (visit.next < visit.function->node_def_size()) {
        const NodeDef& inner = visit.function->node_def(visit.next++);
        visit.size.add({1, static_cast<uint64_t>(inner.input_size()), inner.ByteSizeLong()});
        visit.called = library.called_by(inner);
        continue;
      }
      sizes.emplace(visit.function, visit.size);
      open.erase(visit.function);
      path.pop_back();
    }
    all.add(size_of(node, library, sizes));
    if (all.nodes > kMostNodes || all.bytes > kMostLoweredBytes)
      return error_of(node, make_error(Code::kResourceExhausted,
                                       "with it the calls of functions become at "
                                       "least {} nodes and {} bytes; {} and {} "
                                       "are most",
                                       all.nodes, all.bytes, kMostNodes, kMostLoweredBytes));
  }
  return {};
}

}  // namespace troupe
