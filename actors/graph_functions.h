// SPDX-License-Identifier: Apache-2.0
// GraphFunctions: how an engine calls the functions that nodes carry: each has a session of the engine's own, in which
// a call is a step, and the threads of the engine's BlockingPool.
#pragma once
#include <memory>

#include "tensor/function_caller.h"
#include "troupe/engine.h"

namespace troupe {

class GraphFunctions final : public FunctionCaller {
 public:
  explicit GraphFunctions(std::weak_ptr<Engine::Impl> engine) : engine_(std::move(engine)) {}
  Result<std::shared_ptr<GraphFunction>> prepare(const FunctionBody& body) override;
  Status run_apart(std::function<void()> job) override;

 private:
  const std::weak_ptr<Engine::Impl> engine_;
};

}  // namespace troupe
