// SPDX-License-Identifier: Apache-2.0
// Graph: nodes, their attributes, data and control edges. Implemented in graph/graph.cpp.
//
// A graph only grows: a node never changes once added, but for the Merge of a loop, whose second input comes when the
// loop is closed; pointers to nodes stay valid for the graph's life. One thread at a time may add nodes. Any thread may
// read, by its pointer, a node that was added before it was told of it; another thread than the one that adds looks
// nodes up (node, find, size, output) with mutex() held. The inputs of a node have smaller ids, but for that one.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "troupe/attr.h"
#include "troupe/export.h"
#include "troupe/op.h"

namespace TROUPE_API troupe {

class FlowContext;
class Node;
class NodePlace;

/// One output of a node. A default Output stands for "none".
struct Output {
  const Node* node = nullptr;
  int port = 0;

  explicit operator bool() const { return node != nullptr; }
  bool operator==(const Output&) const = default;
  DType dtype() const;
  /// As inferred when the graph was built. "none", which a builder returns after a fault, is of dtype kInvalid and
  /// unknown shape.
  const PartialShape& shape() const;
  /// "fc1/matmul:0".
  std::string name() const;
};

/// One operation of a graph. Owned by its Graph; immutable.
class Node {
 public:
  int id() const { return id_; }  // dense: 0, 1, 2, ... in the order of adding
  const std::string& name() const { return name_; }
  const OpDef& op() const { return *op_; }
  const Attrs& attrs() const { return attrs_; }
  /// As asked for: full, partial ("/cpu:1") or empty. Placement decides.
  const std::string& device() const { return device_; }
  const std::vector<Output>& inputs() const { return inputs_; }
  const std::vector<const Node*>& control_inputs() const { return control_inputs_; }
  int num_outputs() const { return static_cast<int>(dtypes_.size()); }
  Output out(int port = 0) const { return {this, port}; }
  /// kInvalid for a port that is not there, so that a builder given one comes to Graph::add, which refuses it.
  DType dtype(int port) const { return has(port) ? dtypes_[static_cast<size_t>(port)] : DType::kInvalid; }
  /// Unknown for a port that is not there.
  const PartialShape& shape(int port) const { return has(port) ? shapes_[static_cast<size_t>(port)] : no_shape(); }
  /// The Merge of a loop that is not closed yet (see Graph::close_loop).
  bool open() const { return open_input_ >= 0; }
  /// Where it was added, for operators on its outputs (troupe/operators.h); nullptr for a node of no graph.
  const NodePlace* place() const { return place_; }

 private:
  friend class NodeMaker;
  friend struct Output;
  bool has(int port) const { return static_cast<size_t>(port) < dtypes_.size(); }
  static const PartialShape& no_shape();
  int id_ = 0;
  int open_input_ = -1;  // it reads inputs_[0] until it is closed
  std::string name_;
  const OpDef* op_ = nullptr;
  Attrs attrs_;
  std::string device_;
  std::vector<Output> inputs_;
  std::vector<const Node*> control_inputs_;
  std::vector<DType> dtypes_;
  std::vector<PartialShape> shapes_;
  const NodePlace* place_ = nullptr;
  PartialShape open_shape_;
};

/// What Graph::add needs to make a node.
struct NodeSpec {
  std::string op;
  std::string name;                 // must be new in the graph; see Graph::unique_name
  std::vector<Output> inputs = {};  // of a Merge, one behind the first may be empty: Graph::close_loop gives it
  Attrs attrs = {};  // type attributes may be left out where the inputs tell them, others where they have a default
  std::vector<const Node*> control_inputs = {};
  std::string device = {};
  PartialShape open_shape = {};  // of the input that is empty, promised
};

/// A dataflow graph.
class Graph {
 public:
  /// `ops` must outlive the graph.
  explicit Graph(const OpRegistry& ops) : ops_(&ops) {}
  Graph(const Graph&) = delete;

  /// Adds a node: finds its op, fills in attributes, checks inputs, infers output types and shapes.
  /// Errors (nothing is added): kNotFound for an unknown op (names near it are listed), kAlreadyExists for a name
  /// in use, kInvalidArgument with node, op and values for anything that does not fit.
  Result<const Node*> add(NodeSpec spec);
  /// The same for a node of a Scope, at a place of this graph.
  Result<const Node*> add(NodeSpec spec, const NodePlace& place);
  /// A place for nodes of one Scope in one branch or loop, which lives as long as the graph.
  const NodePlace& add_place(std::shared_ptr<void> scope_state, std::shared_ptr<FlowContext> flow);

  /// Gives a loop's Merge the input that was left empty: the output of a NextIteration.
  /// Errors: kInvalidArgument for a Merge without such an input, another op, another dtype, or a shape that is not as
  /// promised (both are printed).
  Status close_loop(const Node& merge, Output next_iteration);

  const OpRegistry& ops() const { return *ops_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  const Node& node(int id) const { return nodes_[id]; }
  /// Whether the node is of this graph; nullptr is of none.
  bool owns(const Node* node) const {
    return node && node->id() >= 0 && node->id() < size() && &nodes_[node->id()] == node;
  }
  /// nullptr when there is none.
  const Node* find(std::string_view name) const;
  /// "name", "name:port" or "^name" looked up. Errors: kNotFound with names near it, kInvalidArgument.
  Result<Output> output(std::string_view name) const;
  /// `base`, or base_1, base_2, ... whatever is free; reserves nothing. Only for the thread that adds nodes.
  std::string unique_name(std::string_view base) const;
  /// Graphviz text: nodes by op, data edges solid, control edges dashed, scopes as clusters. Any thread, without
  /// mutex().
  std::string dot() const;

  /// The first fault of a builder (see Scope). Sessions refuse to run a graph that has one. Any thread, without
  /// mutex(); so is fail().
  Status status() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  /// Keeps `error` if it is the first.
  void fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = std::move(error);
  }

  /// Guards what grows; held by add(), but not while a shape function runs, and by who looks nodes up.
  std::mutex& mutex() const { return mutex_; }

 private:
  const OpRegistry* ops_;
  std::deque<Node> nodes_;
  std::unordered_map<std::string_view, Node*> by_name_;
  mutable std::unordered_map<std::string, int> next_suffix_;
  Status error_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const NodePlace>> places_;  // of nodes; few: one for each root scope, branch and loop
};

inline DType Output::dtype() const { return node ? node->dtype(port) : DType::kInvalid; }
inline const PartialShape& Output::shape() const { return node ? node->shape(port) : Node::no_shape(); }

}  // namespace troupe
