// SPDX-License-Identifier: Apache-2.0
#include "actors/graph_functions.h"

#include <future>

#include "actors/session_impl.h"
#include "base/long_wait.h"
#include "graph/graph_def/function_body.h"

namespace troupe {
namespace {

/// One function with its graph and the session that runs it.
class SessionFunction final : public GraphFunction, public std::enable_shared_from_this<SessionFunction> {
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
    TROUPE_RETURN_IF_ERROR(check(arguments));
    RunOptions run;
    run.cancel = CancelToken();
    const std::stop_callback cancel(stop, [token = *run.cancel]() mutable { token.cancel(); });
    return session_->run(prepared_, std::move(arguments), run);
  }

  BegunCall begin(std::vector<Tensor> arguments, const std::stop_token& stop) override {
    if (Status fits = check(arguments); !fits.ok()) return [fits] { return fits.error(); };
    auto promise = std::make_shared<std::promise<RunResult>>();
    auto step = std::make_shared<Step>(shared_from_this(), promise->get_future(), stop);
    RunOptions run;
    run.cancel = step->token;
    session_->start_async(
        prepared_, std::move(arguments), [promise](RunResult result) { promise->set_value(std::move(result)); }, run);
    return [step] {
      const LongWait wait;
      return step->result.get();
    };
  }

 private:
  /// A call that was begun.
  struct Step {
    Step(std::shared_ptr<SessionFunction> of, std::future<RunResult> result, const std::stop_token& stop)
        : function(std::move(of)), result(std::move(result)), cancel(stop, [this] { token.cancel(); }) {}
    ~Step() { token.cancel(); }

    const std::shared_ptr<SessionFunction> function;
    CancelToken token;
    std::future<RunResult> result;
    const std::stop_callback<std::function<void()>> cancel;
  };

  Status check(const std::vector<Tensor>& arguments) const {
    if (arguments.size() == arguments_) return {};
    return invalid_argument("a function of {} arguments was called with {}", arguments_, arguments.size());
  }

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

Status GraphFunctions::run_apart(std::function<void()> job) {
  const std::shared_ptr<Engine::Impl> engine = engine_.lock();
  if (!engine) return make_error(Code::kFailedPrecondition, "the engine has gone");
  return engine->pool->run(std::move(job));
}

}  // namespace troupe
