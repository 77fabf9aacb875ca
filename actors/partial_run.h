// SPDX-License-Identifier: Apache-2.0
// PartialStep: what the calls of a partial run share: which feeds were given, which fetches came, who waits.
// Thread-safe.
#pragma once
#include <map>
#include <mutex>
#include <optional>

#include "actors/task_link.h"
#include "troupe/run_lists.h"

namespace troupe {

class PartialStep final : public PartCaller {
 public:
  using Callback = std::function<void(Result<std::vector<Tensor>>)>;
  /// What a partial step needs of its session.
  class Host {
   public:
    virtual ~Host() = default;
    /// Sends a feed to a Recv of the step or of the client's own part of it. Called under the step's lock, never after
    /// its end.
    virtual void send(const StepRef& step, const PartialPlan::Receiver& to, const Tensor& value) = 0;
    /// Fails the step.
    virtual void abort(const StepRef& step, Error error) = 0;
    /// Calls back on a thread of the engine, later. `of_step`: because of what the step did.
    virtual void answer(Callback done, Result<std::vector<Tensor>> result, bool of_step) = 0;
    /// An error in a child after fork(), where no step goes on.
    virtual Status in_child() const = 0;
    /// An error where the calling thread must not wait for the engine.
    virtual Status may_wait() const = 0;
  };

  explicit PartialStep(std::shared_ptr<Host> host) : host_(std::move(host)) {}
  /// Before the step begins; one that cannot begin has only ended().
  void begin(const StepRef& step);
  /// Gives feeds and asks for fetches. `done` is called once: by the host, or, `at_once`, as soon as all is there, on
  /// the thread that is the last to bring it.
  void call(const FeedList& feeds, const OutputList& fetches, Callback done, bool at_once);
  /// Of a step of several tasks, by the client's own part of it.
  void begun(const StepRef& part) override;
  void fetched(uint32_t fetch, Tensor value) override;
  Error dead(uint32_t fetch) override;
  void ended(Result<std::vector<Tensor>> result);
  /// Nobody can call any more.
  void drop();
  Host& host() const { return *host_; }

 private:
  /// A call that is not answered.
  struct Call {
    std::vector<uint32_t> fetches;
    Callback done;
    bool at_once;
    bool last;  // it waits for the step's end
  };
  using Index = std::map<std::pair<const Node*, int>, uint32_t>;
  using Answers = std::vector<std::pair<Call, Result<std::vector<Tensor>>>>;

  /// Whether the call fits; its feeds' and fetches' numbers.
  Status check(const FeedList& feeds, const OutputList& fetches, std::vector<uint32_t>& given,
               std::vector<uint32_t>& asked) const;
  /// Takes the calls out that can be answered now.
  Answers take_answers();
  void answer(Answers answers, bool of_step);
  /// The step's number of a fetch of the step or its own part.
  uint32_t number(uint32_t fetch) const { return own_ ? own_->fetches[fetch].first : fetch; }
  /// Hands a feed to who receives it, or keeps it until the own part has begun.
  void give(uint32_t feed, const Tensor& value);

  const std::shared_ptr<Host> host_;
  std::weak_ptr<StepCall> step_;
  std::shared_ptr<const StepPlan> plan_;
  const StepPart* own_ = nullptr;  // of a step of several tasks: the part in this one, of plan_
  Index feeds_, fetches_;

  std::mutex mutex_;                  // guards what follows
  std::weak_ptr<StepCall> receiver_;  // the step, or its own part once that has begun
  bool begun_ = false;
  std::vector<std::pair<uint32_t, Tensor>> early_;  // feeds given before
  std::vector<bool> given_, asked_;
  size_t left_ = 0;              // feeds to be given and fetches to be asked for
  std::vector<Tensor> arrived_;  // by fetch
  std::vector<Call> waiting_;
  std::optional<Status> end_;
};

}  // namespace troupe
