// SPDX-License-Identifier: Apache-2.0
// StagingArea: a queue without an end, which may be bounded by its bytes, be looked into, and be emptied. Implemented
// in queues/staging_area.cpp. Source: TensorFlow's Stage and Unstage.
#pragma once
#include "queues/queue.h"

namespace troupe {

struct StagingOptions {
  std::string name;           // for messages
  std::vector<DType> dtypes;  // of an element's components; empty: any
  int64_t capacity = 0;       // elements; 0: no bound
  int64_t memory_limit = 0;   // bytes; 0: no bound
};

/// A passive core (see Resource): its host calls it, one call at a time. Puts are carried out in the order they came,
/// and so are gets; a peek that waits holds up nobody.
class StagingArea final : public Resource {
 public:
  /// Errors: kInvalidArgument for bounds below 0.
  static Result<std::unique_ptr<Resource>> make(StagingOptions options);

  const StagingOptions& options() const { return options_; }

  /// Adds an element; waits for room. Reply: nothing. Errors: kInvalidArgument for components of other types;
  /// kResourceExhausted for an element that alone is more than the memory limit.
  void put(QueueElement element, Reply reply);
  /// Takes the element that came first; waits for one. Reply: its components.
  void get(Reply reply);
  /// The components of element `index`, from the one that came first on; waits until there are so many. Error:
  /// kInvalidArgument for an index below 0.
  void peek(int64_t index, Reply reply);
  int64_t size() const { return static_cast<int64_t>(elements_.size()); }
  /// Drops all elements.
  void clear();

  void cancel(uint64_t requester, int64_t step) override;

 private:
  struct Put {
    Reply reply;
    QueueElement element;
    int64_t bytes;
  };
  struct Peek {
    Reply reply;
    int64_t index;
  };
  struct Answer {
    Reply reply;
    Result<std::vector<Tensor>> outputs;
  };

  explicit StagingArea(StagingOptions options) : options_(std::move(options)) {}
  bool has_room(int64_t bytes) const;
  /// Carries out what can be, then sends the answers.
  void settle();

  const StagingOptions options_;
  std::deque<std::pair<QueueElement, int64_t>> elements_;  // with their bytes
  int64_t bytes_ = 0;
  std::deque<Put> puts_;
  std::deque<Reply> gets_;
  std::vector<Peek> peeks_;
  std::vector<Answer> answers_;
};

}  // namespace troupe
