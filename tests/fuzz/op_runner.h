// SPDX-License-Identifier: Apache-2.0
// Runs a case of the op fuzzer in several graphs that must agree. Implemented in op_runner.cpp.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tests/fuzz/op_case.h"
#include "troupe/session.h"

namespace troupe::fuzz {

/// What came of a case.
struct Outcome {
  Status status;        // of the graph whose inputs are constants
  std::string failure;  // what must not be: empty if all is well
};

/// Runs cases on one engine. Not thread-safe.
class CaseRunner {
 public:
  /// `deadline` is that of each run. `hangs` is called when one goes on ten times as long, and must end the process.
  static Result<std::unique_ptr<CaseRunner>> create(std::chrono::milliseconds deadline, std::function<void()> hangs);
  Engine& engine() { return *engine_; }

  /// Runs the case with constants as inputs and all graph passes on; with all off; with inputs that are fed and of
  /// which the builder knows no shape, on a device of two threads; and where it is one node, in a function that is
  /// called or a branch. Checks that outputs have the dtypes and shapes that were inferred, and that the runs agree in
  /// results and in whether they fail.
  Outcome run(const Case& c);

 private:
  CaseRunner(std::unique_ptr<Engine> engine, std::chrono::milliseconds deadline, std::function<void()> hangs)
      : engine_(std::move(engine)), deadline_(deadline), hangs_(std::move(hangs)) {}
  enum class Way { kPasses, kNoPasses, kFed };
  struct Once {
    Status status;
    std::vector<Tensor> values;
    std::string wrong;
  };
  Once run_once(const Case& c, Way way);
  /// The case in a function; nothing where it has more nodes than one, no results, or ones that cannot be compared.
  std::optional<Once> run_called(const Case& c);
  Once run_graph(const Graph& graph, const SessionOptions& options, const std::vector<Feed>& feeds,
                 const std::vector<Output>& fetches, const std::vector<const Node*>& targets);

  std::unique_ptr<Engine> engine_;
  const std::chrono::milliseconds deadline_;
  const std::function<void()> hangs_;
  int64_t runs_ = 0;
};

}  // namespace troupe::fuzz
