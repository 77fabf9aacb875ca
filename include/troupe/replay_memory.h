// SPDX-License-Identifier: Apache-2.0
// ReplayMemory: the newest elements that a program adds, and batches drawn from them, for reinforcement learning.
// Implemented in io/replay_memory.cpp.
//
//   auto memory = ReplayMemory::create({DType::kFloat32, DType::kInt32}, {{4}, PartialShape::scalar()}).value();
//   memory.add({state, action});                    // the oldest goes when it is full
//   auto drawn = memory.sample(32).value();         // drawn.batch[0] is [32,4]
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "troupe/dataset.h"
#include "troupe/export.h"

namespace TROUPE_API troupe {

struct ReplayOptions {
  /// Elements that are kept; the oldest goes for a new one.
  int64_t capacity = 100'000;
  /// An element is drawn with a probability in proportion to priority ^ exponent; 0: all alike. Prioritised experience
  /// replay, Schaul et al., 2015, takes 0.6.
  double priority_exponent = 0;
  /// The weight of a draw is (size * its probability) ^ -exponent, divided by the largest of its batch: with 1 they
  /// make up for the priorities. 0: all are 1.
  double weight_exponent = 0;
  /// The same calls in the same order draw the same.
  uint64_t seed = 1;
};

/// What was drawn, one row a draw. An element may come more than once.
struct ReplaySample {
  Element batch = {};             // the components, stacked along a new first axis
  std::vector<int64_t> ids = {};  // of the elements: what add() returned
  std::vector<float> weights = {};
};

/// A handle: copies share the memory. Thread-safe: actors add while a trainer draws.
class ReplayMemory {
 public:
  /// Elements have components of `dtypes` and `shapes`, which must be whole, so that they can be stacked. Errors:
  /// kInvalidArgument for no dtypes, another number of shapes, a shape with an unknown size, a capacity below 1, an
  /// exponent that is negative or not finite.
  static Result<ReplayMemory> create(std::vector<DType> dtypes, std::vector<PartialShape> shapes,
                                     ReplayOptions options = {});

  /// Adds an element and returns its id: 0, 1, 2, ... Without a priority it has the largest that any element was given
  /// so far, at first 1, so that it is likely to be drawn soon. The tensors are the memory's from now on: writing to
  /// one copies it. Errors: kInvalidArgument for a component that is not as declared, and for a priority that is not
  /// above 0 and finite; kFailedPrecondition once it is closed.
  Result<int64_t> add(Element element, std::optional<double> priority = {}) const;

  /// Draws `count` elements, with replacement. Errors: kInvalidArgument for a count below 1 or above 2^24;
  /// kFailedPrecondition where the memory is empty; kResourceExhausted where there is no memory for the batch.
  Result<ReplaySample> sample(int64_t count) const;

  /// Gives elements new priorities, such as the errors that the model makes on them; those that have gone meanwhile are
  /// passed over. Errors, and nothing is changed: kInvalidArgument for another number of priorities than ids, an id
  /// that was never given, a priority that is not above 0 and finite.
  Status set_priorities(std::span<const int64_t> ids, std::span<const double> priorities) const;

  /// An endless dataset of batches of `count`: the components, then ids (int64 [count]) and weights (float32 [count]).
  /// Its iterators wait until the memory has `least` elements, and end when it is closed. What it gives is drawn when
  /// it is asked for, which with prefetching is before it is used.
  Result<Dataset> samples(int64_t count, int64_t least = 1) const;
  /// No more elements come: datasets end. Again: nothing.
  void close() const;

  /// Elements that it has, and how many were ever added.
  int64_t size() const;
  int64_t added() const;

  class State;

 private:
  explicit ReplayMemory(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace troupe
