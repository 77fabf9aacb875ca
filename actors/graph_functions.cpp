// SPDX-License-Identifier: Apache-2.0
#include "actors/graph_functions.h"

#include "actors/session_impl.h"
#include "graph/graph_def/function_body.h"

namespace troupe {
namespace {

/// One function with its graph and the session that runs it.
class SessionFunction final : public GraphFunction {
 public:
  static Result<std::shared_ptr<GraphFunction>> make(std::shared_ptr<Engine::Impl> engine, const FunctionBody& body) {
    auto out = std::make_shared<SessionFunction>(std::move(engine));
    TROUPE_RETURN_IF_ERROR(out->prepare(body));
    return std::shared_ptr<GraphFunction>(std::move(out));
  }

  explicit SessionFunction(std::shared_ptr<Engine::Impl> engine)
      : graph_(engine->ops), session_(std::make_shared<Session::Impl>(nullptr, engine, graph_, options())) {}
  ~SessionFunction() override { session_->close(); }

  Result<std::vector<Tensor>> call(std::vector<Tensor> arguments, const std::stop_token& stop) override {
    if (arguments.size() != arguments_)
      return invalid_argument("a function of {} arguments was called with {}", arguments_, arguments.size());
    RunOptions run;
    run.cancel = CancelToken();
    const std::stop_callback cancel(stop, [token = *run.cancel]() mutable { token.cancel(); });
    return session_->run(prepared_, std::move(arguments), run);
  }

 private:
  static SessionOptions options() {
    SessionOptions out;
    out.soft_placement = true;
    return out;
  }

  std::vector<Output> numbered(std::string_view what) const {
    std::vector<Output> out;
    while (const Node* node = graph_.find(fmt::format("{}_{}", what, out.size()))) out.push_back({node, 0});
    return out;
  }

  Status prepare(const FunctionBody& body) {
    TROUPE_RETURN_IF_ERROR(import_function(body.graph, graph_, body.container));
    std::vector<Output> arguments = numbered("argument"), results = numbered("result");
    arguments_ = arguments.size();
    std::vector<const Node*> targets;
    if (const Node* done = graph_.find("done")) targets.push_back(done);
    TROUPE_ASSIGN(prepared_, session_->prepare(std::move(arguments), std::move(results), targets));
    return {};
  }

  Graph graph_;
  const std::shared_ptr<Session::Impl> session_;
  std::shared_ptr<Session::Prepared> prepared_;
  size_t arguments_ = 0;
};

}  // namespace

Result<std::shared_ptr<GraphFunction>> GraphFunctions::prepare(const FunctionBody& body) {
  const std::shared_ptr<Engine::Impl> engine = engine_.lock();
  if (!engine) return make_error(Code::kFailedPrecondition, "the engine has gone");
  return SessionFunction::make(engine, body);
}

}  // namespace troupe
