// SPDX-License-Identifier: Apache-2.0
// A case of the op fuzzer: one node of the op that is tried, with the values that it reads and the nodes that it needs,
// as data. Implemented in op_case.cpp.
#pragma once
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tests/fuzz/op_values.h"
#include "troupe/graph.h"
#include "troupe/kernel.h"

namespace troupe::fuzz {

/// Output `port` of node `node` of the case.
struct Ref {
  int node = 0;
  int port = 0;
};
using Given = std::variant<Tensor, Ref>;

struct CaseNode {
  std::string op;
  std::vector<Given> inputs;
  Attrs attrs;
};

/// Nodes in the order in which they run: each waits for the one before it unless `unordered`.
struct Case {
  std::vector<CaseNode> nodes;
  int main = 0;            // the node of the op that is tried
  int64_t turn = 0;        // for what a runner does by turns
  bool unordered = false;  // dead values would stop those that wait
  bool close = false;      // results may differ by rounding from one graph to the other
  bool unsteady = false;   // results differ from run to run, or from graph to graph
  bool fails = false;      // the op works when it fails
  bool hostile = false;    // something was changed so that it may not fit
  /// One line for each node.
  std::string str() const;
};

/// One line of the table of rules (op_rules.cpp).
struct Rule {
  struct Item {
    std::string name, spec;
  };
  struct Statement {
    std::string name, op;      // op is empty for the node that is tried
    std::vector<Item> sizes;   // "n:1..3", "*S:0..2"
    std::vector<Item> inputs;  // "x=[n]<3"
    std::vector<Item> attrs;   // "@k=n"
  };
  std::vector<Statement> statements;
  bool unordered = false, close = false, unsteady = false, fails = false;
};
using Rules = std::map<std::string, std::vector<Rule>, std::less<>>;

/// The rules by op; an op without one has inputs of one shape, or of shapes that broadcast.
Rules read_rules();

/// Makes cases. Not thread-safe.
class CaseMaker {
 public:
  /// `folder` holds files that cases may write and read.
  CaseMaker(const OpRegistry& ops, const KernelRegistry& kernels, std::string folder);
  /// The case of an op that follows from a seed.
  Case make(const OpDef& op, uint64_t seed) const;
  /// Ops that a rule names and the registry does not have.
  std::vector<std::string> unknown_ops() const;

 private:
  const OpRegistry& ops_;
  const KernelRegistry& kernels_;
  const std::string folder_;
  const Rules rules_;
};

}  // namespace troupe::fuzz
