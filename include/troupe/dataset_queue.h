// SPDX-License-Identifier: Apache-2.0
// DatasetQueue: the end of a dataset that a program pushes elements into, from threads of its own or from callbacks.
// Implemented in io/dataset_queue.cpp.
//
//   auto queue = troupe::DatasetQueue::create({DType::kFloat32}, {{784}});
//   engine.add_dataset("samples", Dataset::from_queue(*queue).batch(32));
//   ... queue->push({sample}) ...     // waits while the queue is full
//   queue->close();                   // the dataset ends behind what was pushed
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "troupe/dataset.h"
#include "troupe/export.h"

namespace TROUPE_API troupe {

/// A handle: copies push into the same queue. Thread-safe. When the last handle goes, the queue is closed.
///
/// An element goes to one iterator of Dataset::from_queue(), the one that asks first: two iterators share the elements
/// out. There is one pass over them: behind the end a repeat() finds nothing more, and an engine's restart_dataset()
/// goes on with what is still in the queue (what was taken ahead is lost).
///
/// Readers are the iterators of the queue's datasets. Before the first there is none to wait for: pushes fill the queue
/// and then wait. When the last has gone (its engine ended, its dataset was removed), pushes that wait and later ones
/// fail with kCancelled, until there is another iterator; what is in the queue stays.
class DatasetQueue {
 public:
  /// Elements have components of `dtypes` and `shapes` (left out: any); at most `capacity` wait. Errors:
  /// kInvalidArgument for no dtypes, another number of shapes, a capacity below 1.
  static Result<DatasetQueue> create(std::vector<DType> dtypes, std::vector<PartialShape> shapes = {},
                                     int64_t capacity = 16);

  /// Adds an element behind the others; while the queue is full, waits for a reader. A callback, kernel or actor of an
  /// engine must not wait: there a full queue is kFailedPrecondition at once (see try_push()). The tensors are the
  /// dataset's from now on: writing to one copies it. Errors: kInvalidArgument names the component that is not as
  /// declared; kFailedPrecondition once the queue is closed; kCancelled without readers, see above; kDeadlineExceeded
  /// after `deadline` (max: none; negative: at once).
  Status push(Element element, std::chrono::nanoseconds deadline = std::chrono::nanoseconds::max()) const;
  /// The same without waiting; false: the queue is full.
  Result<bool> try_push(Element element) const;
  /// No more elements come: the dataset ends behind those there are. Pushes that wait fail. Again: nothing.
  void close() const;
  /// The same, but behind the last element each iterator first gives `error`. After close(): nothing.
  void fail(Error error) const;

  bool closed() const;
  /// Elements that wait.
  int64_t size() const;

  class State;

 private:
  friend class Dataset;
  explicit DatasetQueue(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
  std::shared_ptr<void> closer_;
};

}  // namespace troupe
