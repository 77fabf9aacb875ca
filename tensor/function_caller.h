// SPDX-License-Identifier: Apache-2.0
// Functions that nodes of a graph carry, such as what a MapDataset does to each element, and who calls them. Kernels
// and datasets know no engine, so the engine that runs them gives them a FunctionCaller (actors/graph_functions.h).
#pragma once
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "troupe/tensor.h"

namespace troupe {

/// A function as a node carries it: a value.
struct FunctionBody {
  /// A GraphDef, as bytes or text. Its arguments are the placeholders "argument_0", "argument_1", ...; its results the
  /// outputs of the nodes "result_0", "result_1", ...; the node "done" runs after all that the function must do.
  std::string graph;
  /// Of its resources that name no container.
  std::string container;
};

/// Waits for a call that was begun, and gives what came of it. Called once at most; where the last copy goes without
/// that, the call is cancelled.
using BegunCall = std::function<Result<std::vector<Tensor>>()>;

/// A function that is ready to be called. Thread-safe.
class GraphFunction {
 public:
  virtual ~GraphFunction() = default;
  /// Calls it and waits: not on a thread of the engine, where it is an error. Each call is a step of the engine, so it
  /// may read variables and do whatever a graph does. Errors: those of the step, which name the node of the function;
  /// kInvalidArgument for another number of arguments or other types; kCancelled once `stop` asks to stop, or the
  /// engine ends.
  virtual Result<std::vector<Tensor>> call(std::vector<Tensor> arguments, const std::stop_token& stop) = 0;
  /// Begins such a call. Errors come to whoever waits for it.
  virtual BegunCall begin(std::vector<Tensor> arguments, const std::stop_token& stop) = 0;
};

/// Thread-safe.
class FunctionCaller {
 public:
  virtual ~FunctionCaller() = default;
  /// Reads and plans a function. Errors: what is wrong with its graph; kFailedPrecondition once the engine has gone.
  virtual Result<std::shared_ptr<GraphFunction>> prepare(const FunctionBody& body) = 0;
  /// Has `job` called by another thread, where it may wait; once the engine ends it may be destroyed instead. Errors:
  /// no thread can be had; the engine ends.
  virtual Status run_apart(std::function<void()> job) = 0;
};

}  // namespace troupe
