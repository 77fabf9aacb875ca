// SPDX-License-Identifier: Apache-2.0
// Scope: where new nodes go: name prefix, device and control dependencies. Implemented in graph/scope.cpp. Brings the
// operators of troupe/operators.h along.
#pragma once
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "troupe/export.h"
#include "troupe/graph.h"
#include "troupe/transfers.h"

namespace TROUPE_API troupe {

class FlowContext;

/// A cheap handle: copies and derived scopes share the graph and the first error. One thread at a time.
///
/// Builders never throw: the first fault is kept, with the line of the caller that made it, and from then on
/// builders return an empty Output and do nothing. Session::run refuses a graph with an error; ask status() earlier.
/// A function of yours that adds several nodes takes a `const ScopeAt&` (below): its faults name its caller's line.
class Scope {
 public:
  /// The root scope of a graph, which must outlive it.
  explicit Scope(Graph& graph);
  /// The scope that a node was added to: its graph, first error, name scope, device, colocation and form of transfers,
  /// its branch or loop; not what it waits for. Of a node that no Scope added, as it would be in the graph's first
  /// scope. Empty for a node that is in no graph. Operators on outputs (troupe/operators.h) add their nodes there.
  static std::optional<Scope> beside(const Node& node);

  Graph& graph() const { return *graph_; }
  /// Names below get the prefix "name/"; a second scope of the same name becomes name_1 (one of another root scope of
  /// the graph does not: there only names of nodes differ). Of an empty name: this scope.
  Scope scope(std::string_view name) const;
  /// The next node gets this name (below the prefix) in place of its op's.
  Scope named(std::string_view name) const;
  /// Nodes go to this device, full or partial: "/cpu:1", "/job:worker/task:3/device:cpu:0".
  Scope device(std::string_view device) const;
  /// This scope on a device of the task that `device` is of, for nodes that use what lives there. Where its own device
  /// is of another task that is `device`, else its own, with what it leaves open of the task: "/cpu:1" becomes
  /// "/job:worker/replica:0/task:3/device:cpu:1". This very scope where `device` tells no task.
  Scope in_task_of(std::string_view device) const;
  /// Nodes go to the device of `node`, wherever that goes (TensorFlow's colocate_with: attribute _class); the scope's
  /// own device counts no more, one given later must agree. A scope may do so with several. nullptr changes nothing.
  /// A node of another graph is a fault.
  Scope colocate(const Node* node, std::source_location where = std::source_location::current()) const;
  /// What nodes make crosses to other devices in this form, whatever SessionOptions say; the gradients that flow back
  /// through them do too.
  Scope compress_transfers(TransferCompression compression = TransferCompression::kBFloat16) const;
  /// Nodes wait for these first, in a branch or loop also for what is outside of it.
  Scope after(const std::vector<Output>& outputs) const;
  Scope after(const std::vector<const Node*>& nodes) const;
  /// Faults are told for the line `where`, whichever line adds the node. A scope that has such a line keeps it.
  Scope told_at(std::source_location where) const;
  /// Faults are told for the line that adds the node, as at first: for functions that were handed in, such as the
  /// body of a loop.
  Scope told_at_each_line() const;

  /// Adds a node by op name; nullptr after a fault. Input faults, unknown ops and the like stick to the scope.
  const Node* node(std::string_view op, std::vector<Output> inputs, Attrs attrs = {},
                   std::source_location where = std::source_location::current()) const;
  /// The first output of node(), empty if it has none or failed.
  Output op(std::string_view op, std::vector<Output> inputs, Attrs attrs = {},
            std::source_location where = std::source_location::current()) const;
  /// A Const node.
  Output constant(Tensor value, std::source_location where = std::source_location::current()) const;
  template <class T>
  Output constant(T value, std::source_location where = std::source_location::current()) const
      requires(std::is_arithmetic_v<T>) {
    return constant(Tensor::scalar<T>(value), where);
  }

  bool ok() const { return !state_->error; }
  /// The first fault, its message prefixed with "file:line: ".
  Status status() const { return state_->error ? Status(*state_->error) : Status(); }
  /// Keeps `error` if it is the first.
  void fail(Error error, std::source_location where = std::source_location::current()) const;

  // -- for the builders of branches and loops (troupe/control_flow.h)
  /// The branch or loop that nodes are added to; nullptr outside.
  const std::shared_ptr<FlowContext>& flow() const { return flow_; }
  /// Nodes go into that branch or loop; of nullptr: outside of all. They wait for nothing: what is brought in does.
  Scope within(std::shared_ptr<FlowContext> flow) const;
  /// The Merge of a loop that Graph::close_loop closes; `shape` is promised for what comes back.
  const Node* open_merge(Output entered, const PartialShape& shape,
                         std::source_location where = std::source_location::current()) const;

  const std::string& prefix() const { return prefix_; }
  const std::string& device_name() const { return device_; }
  /// What that tells of a task: "/job:worker/replica:0/task:3", "/job:ps"; of "/cpu:1" nothing.
  std::string task_name() const;

 private:
  struct State {
    std::optional<Error> error;
    std::unordered_map<std::string, int> scopes;  // paths in use, with the suffix to try next
    std::unordered_map<const FlowContext*, const NodePlace*> places;
  };
  Graph* graph_;
  std::shared_ptr<State> state_;
  std::string prefix_;
  std::string name_;
  std::string device_;
  std::vector<std::string> colocated_;  // "loc:@" and a name
  std::optional<TransferCompression> compression_;
  std::optional<std::source_location> told_at_;
  std::vector<const Node*> control_inputs_;
  std::shared_ptr<FlowContext> flow_;
  const Node* add(NodeSpec spec, std::source_location where) const;
  const NodePlace& place() const;
};

/// What functions that add several nodes take (nn.h, control_flow.h, ...). A Scope turns into one at the call, and so
/// a fault names the line of that call and not one of the function's own. Handed on, it keeps the first call's line.
class ScopeAt : public Scope {
 public:
  ScopeAt(const Scope& scope, std::source_location where = std::source_location::current())
      : Scope(scope.told_at(where)) {}
};

}  // namespace troupe

#include "troupe/operators.h"
