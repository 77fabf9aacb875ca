// SPDX-License-Identifier: Apache-2.0
// CarriedFunction: a function that a node carries in an attribute, and the graph's function that it becomes once an
// engine is to call it.
#pragma once
#include <memory>
#include <mutex>

#include "io/graph_stages.h"
#include "tensor/function_caller.h"
#include "troupe/kernel.h"

namespace troupe {

/// Thread-safe. Shared by the node's kernel and the datasets that it made.
class CarriedFunction {
 public:
  /// Of the attribute `attr` of the node.
  CarriedFunction(const KernelInit& init, std::string_view attr);

  /// Calls it with `arguments`, and waits. Errors: those of FunctionCaller and GraphFunction, which name the attribute
  /// and the node; kFailedPrecondition where there is no caller.
  Result<Element> call(const std::shared_ptr<FunctionCaller>& functions, Element arguments,
                       const std::stop_token& stop);

  /// Begins such a call; errors come to whoever waits for it.
  static BegunCall begin(const std::shared_ptr<CarriedFunction>& self, const std::shared_ptr<FunctionCaller>& functions,
                         Element arguments, const std::stop_token& stop);

  /// The function of elements that are followed by `captured`.
  static PassFn bind(std::shared_ptr<CarriedFunction> function, Element captured);
  /// The same of one whose calls are begun before they are waited for.
  static BeginFn bind_begun(std::shared_ptr<CarriedFunction> function, Element captured);
  /// The same of one that gives a dataset.
  static StageOfElementFn bind_stage(std::shared_ptr<CarriedFunction> function, Element captured);

 private:
  /// With the names of both nodes.
  Result<Element> named(Result<Element> out) const;
  Result<std::shared_ptr<GraphFunction>> prepared(const std::shared_ptr<FunctionCaller>& functions);

  FunctionBody body_;
  std::string what_;  // "function 'f' of 'MapDataset'"
  std::mutex mutex_;  // guards the rest
  std::weak_ptr<FunctionCaller> by_;
  std::shared_ptr<GraphFunction> prepared_;  // by by_
};

}  // namespace troupe
