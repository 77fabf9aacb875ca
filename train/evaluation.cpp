// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation.h"

#include <deque>
#include <future>
#include <optional>

#include "nn/updates.h"

namespace troupe::nn {

ModelOutputs checked_outputs(const Scope& scope, ModelOutputs outputs) {
  if (!scope.ok()) return {};
  if (!outputs.loss) {
    scope.fail(invalid_argument("the model gives no loss"));
    return {};
  }
  const auto check = [&](Output& x, const char* what) {
    if (x.dtype() != DType::kFloat32 || !x.shape().compatible(PartialShape::scalar()))
      scope.fail(invalid_argument("the model's {} '{}' is {}{}; a float32 scalar is needed", what, x.name(),
                                  to_string(x.dtype()), x.shape().str()));
    else if (!x.shape().has_rank())
      x = at(scope, x).named(what).op("EnsureShape", {x}, {{"shape", PartialShape::scalar()}});
  };
  check(outputs.loss, "loss");
  if (outputs.accuracy) check(outputs.accuracy, "accuracy");
  else outputs.accuracy = scope.named("no_accuracy").constant(0.f);
  return outputs;
}

Result<Metrics> evaluate_batches(Session& session, BatchSource& batches,
                                 std::span<const std::shared_ptr<Session::Prepared>> tests, size_t at_once,
                                 const std::function<bool()>& stopped) {
  struct Pending {
    std::future<RunResult> result;
    int64_t examples;
  };
  std::deque<Pending> pending;
  Metrics sum;
  std::optional<Error> error;
  const auto take = [&] {
    const auto n = static_cast<double>(pending.front().examples);
    RunResult r = pending.front().result.get();
    pending.pop_front();
    if (!r.ok()) {
      if (!error) error = r.error();
      return;
    }
    if (n == 0) return;  // the mean over no rows is not a number
    sum.loss += n * (*r)[0].data<float>()[0];
    sum.accuracy += n * (*r)[1].data<float>()[0];
    sum.examples += static_cast<int64_t>(n);
  };
  for (size_t i = 0; !error; ++i) {
    auto batch = batches.next(stopped);
    if (!batch) batch = make_error(Code::kCancelled, "the evaluation was stopped while its dataset waited");
    auto& element = *batch;
    if (!element.ok()) error = element.error();
    else if (*element && (*element)->empty()) error = invalid_argument("a batch without components");
    if (error || !*element) break;
    const int64_t examples = (**element)[0].rank() > 0 ? (**element)[0].dim(0) : 1;
    auto promise = std::make_shared<std::promise<RunResult>>();
    pending.push_back({promise->get_future(), examples});
    session.run_async(tests[i % tests.size()], std::move(**element),
                      [promise](RunResult r) { promise->set_value(std::move(r)); });
    if (pending.size() >= at_once) take();
  }
  while (!pending.empty()) take();
  if (error) return *error;
  if (sum.examples > 0) {
    sum.loss /= static_cast<double>(sum.examples);
    sum.accuracy /= static_cast<double>(sum.examples);
  }
  return sum;
}

}  // namespace troupe::nn
