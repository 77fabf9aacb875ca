// SPDX-License-Identifier: Apache-2.0
// StagingMap: elements by keys, each of which may come and go component by component. Implemented in
// queues/staging_map.cpp. Source: TensorFlow's MapStage and OrderedMapStage.
#pragma once
#include <list>
#include <map>
#include <optional>

#include "queues/queue.h"

namespace troupe {

struct StagingMapOptions {
  std::string name;          // for messages
  int64_t capacity = 0;      // whole elements; 0: no bound
  int64_t memory_limit = 0;  // bytes, those of elements that are not whole included; 0: no bound
};

/// A passive core (see Resource): its host calls it, one call at a time. Calls that wait hold up nobody but those that
/// wait for the same, which come in order.
class StagingMap final : public Resource {
 public:
  using Indices = std::vector<int64_t>;
  using Types = std::vector<DType>;

  /// Errors: kInvalidArgument for bounds below 0.
  static Result<std::unique_ptr<Resource>> make(StagingMapOptions options);

  const StagingMapOptions& options() const { return options_; }

  /// Adds the components `indices` of the element `key`, whose components are `types`; waits for room. The element is
  /// there for others when it has all of them. Reply: nothing. Errors: kInvalidArgument for other types, indices that
  /// do not ascend or are not there, a component that has come already, a key of an element that is there;
  /// kResourceExhausted for values that alone are more than the memory limit.
  void put(int64_t key, const Indices& indices, const Types& types, QueueElement values, Reply reply);
  /// Takes the components `indices`, of these types, of the element `key`, none: of the one with the least key; waits
  /// for it. With the last component the element goes. Reply: the key, where none was given, and the components.
  /// Errors: kInvalidArgument for indices as above, other types, a component that was taken.
  void take(std::optional<int64_t> key, Indices indices, Types types, Reply reply);
  /// The same, but the components stay.
  void peek(int64_t key, Indices indices, Types types, Reply reply);
  int64_t size() const { return std::ssize(whole_); }
  /// How many elements have some of their components.
  int64_t incomplete_size() const { return std::ssize(parts_); }
  /// Drops all elements.
  void clear();

  void cancel(uint64_t requester, int64_t step) override;

 private:
  using Components = std::vector<std::optional<Tensor>>;
  struct Put {
    Reply reply;
    int64_t key;
    Indices indices;
    QueueElement values;
    int64_t bytes;
  };
  struct Take {
    Reply reply;
    std::optional<int64_t> key;
    Indices indices;
    Types types;
    bool stays;
  };
  struct Answer {
    Reply reply;
    Result<std::vector<Tensor>> outputs;
  };

  explicit StagingMap(StagingMapOptions options) : options_(std::move(options)) {}
  Status check(const Indices& indices, const Types& types) const;
  /// Whether the put is over: it was carried out, or is wrong.
  bool try_put(Put& put);
  bool try_take(Take& take);
  Result<std::vector<Tensor>> components(Components& element, int64_t key, const Take& take);
  /// Carries out what can be, then sends the answers.
  void settle();

  const StagingMapOptions options_;
  Types types_;  // of the first put; empty before
  std::map<int64_t, Components> whole_, parts_;
  int64_t bytes_ = 0;
  std::list<Put> puts_;
  std::list<Take> takes_;
  std::vector<Answer> answers_;
};

}  // namespace troupe
