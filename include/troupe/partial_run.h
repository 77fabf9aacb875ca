// SPDX-License-Identifier: Apache-2.0
// PartialRun: one step whose feeds are given and whose fetches are taken in several calls, as TensorFlow's
// partial_run_setup and partial_run. Implemented in actors/partial_run.cpp; made by Session::partial_run.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "troupe/export.h"
#include "troupe/run_lists.h"

namespace TROUPE_API troupe {

class PartialStep;

/// A step under way. It began when it was made: what needs no feed has run already, whatever a feed completes runs as
/// soon as it is given. Every feed that was announced is given once and every fetch taken once, in any order and split,
/// by one call or many, from any threads at once; the fetches of all calls are those of one step.
///
///   auto part = session.partial_run({x, y}, {doubled, sum}).value();
///   auto first = part.run({{x, value}}, doubled);                       // does not need y
///   auto rest = part.run({{y, choose((*first)[0])}}, sum);
///
/// The call after which nothing is left to give or to take waits for the end of the step, its targets included. The
/// first error of the step (a node's, the deadline, a cancel) is the result of the calls that wait then and of all
/// later ones. A call that is refused leaves the step as it was.
///
/// Movable; the last owner going cancels the step unless it has ended. It may outlive its session and engine: their end
/// cancels the step.
class PartialRun {
 public:
  PartialRun() = default;
  PartialRun(PartialRun&&) noexcept = default;
  PartialRun& operator=(PartialRun&& other) noexcept;
  ~PartialRun();

  /// Gives these feeds and returns these fetches, in order. Blocks; not from a thread of the engine.
  /// Errors: kInvalidArgument for a feed or fetch that was not announced, was given or taken before, or does not fit,
  /// and for a fetch that needs feeds not given yet (they are named); the step's own; kFailedPrecondition of an empty
  /// PartialRun, on a thread of the engine, and in a child after fork().
  Result<std::vector<Tensor>> run(const FeedList& feeds, const OutputList& fetches = {});
  /// Returns at once; callable from anywhere. `done` runs on a thread of the engine, exactly once, never inside this
  /// call; it must not block. Of an empty PartialRun, once the engine has gone, and in a child after fork(), there is
  /// no such thread, and it runs inside this call.
  void run_async(const FeedList& feeds, const OutputList& fetches,
                 std::function<void(Result<std::vector<Tensor>>)> done);

 private:
  friend class Session;
  explicit PartialRun(std::shared_ptr<PartialStep> step) : step_(std::move(step)) {}
  std::shared_ptr<PartialStep> step_;
};

}  // namespace troupe
