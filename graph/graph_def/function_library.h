// SPDX-License-Identifier: Apache-2.0
// FunctionLibrary: the functions of a GraphDef, and which nodes call them.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/graph_def/graph.pb.h"
#include "troupe/op.h"

namespace troupe {

class FunctionLibrary {
 public:
  /// The library of `def`, and `ops`, must outlive it.
  FunctionLibrary(const proto::GraphDef& def, const OpRegistry& ops);

  const OpRegistry& ops() const { return ops_; }
  /// Null: it is not in the library.
  const proto::FunctionDef* find(std::string_view name) const {
    const auto at = functions_.find(name);
    return at == functions_.end() ? nullptr : at->second;
  }
  /// Error: kNotFound.
  Result<const proto::FunctionDef*> get(const std::string& name) const;
  /// The name of the function that the library gives as the gradient of `function`; null: of others.
  const std::string* gradient_of(std::string_view function) const {
    const auto at = gradients_.find(function);
    return at == gradients_.end() ? nullptr : at->second;
  }

  bool is_call(const proto::NodeDef& node) const;
  /// Whether a node has effects, or sees those of others.
  bool has_state(const proto::NodeDef& node) const;
  /// The functions that a node calls.
  std::vector<const proto::FunctionDef*> called_by(const proto::NodeDef& node) const;
  /// gradient_of() the function that `node` names, a SymbolicGradient; null: of others.
  const std::string* own_gradient(const proto::NodeDef& node) const;
  /// A function with a gradient of its own that `f` calls, directly or through others; or null.
  const proto::FunctionDef* calls_with_own_gradient(const proto::FunctionDef& f) const;

 private:
  const OpRegistry& ops_;
  std::unordered_map<std::string_view, const proto::FunctionDef*> functions_;
  std::unordered_map<std::string_view, const std::string*> gradients_;  // of functions that have one of their own
};

/// `error`, with op and name of this node where it names none.
Error error_of(const proto::NodeDef& node, Error error);

}  // namespace troupe
