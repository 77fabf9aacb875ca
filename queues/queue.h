// SPDX-License-Identifier: Apache-2.0
// Queue: what all queues share: waiting requests, capacity, closing, cancelling, checks of components; a kind of queue
// adds how elements are kept. Implemented in queues/queue.cpp. Semantics are those of TensorFlow's queues.
//
// Invariants:
//  1. Every request is answered exactly once, enqueues in the order they came and dequeues in theirs.
//  2. An element is in the store, collected by the first waiting dequeue, or was given away: never two of them, never
//     none. A dequeue that fails or is cancelled puts what it collected back in front, in order.
//  3. After each call, the first waiting enqueue has no room and the first waiting dequeue no element.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "troupe/resource.h"

namespace troupe {

/// One element: its component tensors.
using QueueElement = std::vector<Tensor>;

struct QueueOptions {
  std::string name;                  // for messages
  std::vector<DType> dtypes;         // of the components, at least one
  std::vector<PartialShape> shapes;  // of the components; empty: any
  int64_t capacity = -1;             // elements; -1: no bound
};

/// A passive core (see Resource): its host calls it, one call at a time. Replies may be given during any call.
class Queue : public Resource {
 public:
  /// Adds an element; waits for room. Reply: nothing. Errors: kInvalidArgument for components that do not fit;
  /// kCancelled when the queue is closed.
  void enqueue(QueueElement element, Reply reply);
  /// Adds row i of every component as element i, as room comes; of no rows even when the queue is closed. Errors
  /// as enqueue, and for first sizes that differ.
  void enqueue_many(QueueElement batch, Reply reply);
  /// Takes an element; waits for one. Reply: the components. Error: kOutOfRange when the queue is closed and empty.
  void dequeue(Reply reply);
  /// Takes `n` elements, stacked on a new first axis in memory of `allocator`; waits for them. Errors: kOutOfRange when
  /// the queue is closed and holds fewer; kInvalidArgument for n < 0 or a queue whose shapes do not allow it.
  void dequeue_many(int64_t n, std::shared_ptr<Allocator> allocator, Reply reply);
  /// As dequeue_many, but once the queue is closed takes what is left, if anything is.
  void dequeue_up_to(int64_t n, std::shared_ptr<Allocator> allocator, Reply reply);
  /// No more elements come in: waiting enqueues are carried out first, or cancelled on request. Waiting dequeues are
  /// answered from what is there. Error: kCancelled when the queue was closed already.
  void close(bool cancel_pending_enqueues, Reply reply);
  /// Elements in the store; those collected by a waiting dequeue do not count.
  virtual int64_t size() const = 0;
  bool is_closed() const { return closed_; }
  const QueueOptions& options() const { return options_; }
  /// The op that makes such a queue, without "V2".
  virtual const char* kind() const = 0;

  void cancel(uint64_t requester, int64_t step) override;

 protected:
  /// `copy_rows`: elements of enqueue_many get buffers of their own in place of a view of the batch, for queues that
  /// keep some elements of a batch long after the others left.
  explicit Queue(QueueOptions options, bool copy_rows = false) : options_(std::move(options)), copy_rows_(copy_rows) {}
  /// What is wrong with the options, if anything.
  static Status check(const QueueOptions& options);

  virtual void push(QueueElement element) = 0;
  virtual QueueElement pop() = 0;  // only when not empty
  /// Puts back what pop() gave last; called in the reverse order of pops.
  virtual void give_back(QueueElement element) = 0;
  /// How many elements a dequeue may take while the queue is open.
  virtual int64_t available() const { return size(); }
  /// Whether elements can be stacked; asked once for each dequeue of many.
  virtual Status stackable() const;
  /// Component `c` of the rows on a new first axis.
  virtual Result<Tensor> stack(size_t c, const std::vector<QueueElement>& rows,
                               const std::shared_ptr<Allocator>& allocator) const;

 private:
  struct Put {
    Reply reply;
    QueueElement batch;  // or one element
    int64_t next = 0;
    int64_t count = 0;
    bool many = false;
    bool closes = false;  // a close that waits for the enqueues before it
  };
  struct Take {
    Reply reply;
    int64_t wanted = 1;
    bool many = false;
    bool up_to = false;
    std::shared_ptr<Allocator> allocator = nullptr;
    std::vector<QueueElement> collected = {};
  };
  struct Answer {
    Reply reply;
    Result<std::vector<Tensor>> outputs;
  };

  bool full() const { return options_.capacity >= 0 && size() >= options_.capacity; }
  Status check_components(const QueueElement& element, bool many) const;
  Result<QueueElement> row(const Put& put) const;
  void take_many(int64_t n, bool up_to, std::shared_ptr<Allocator> allocator, Reply reply);
  void return_collected(Take& take);
  void answer(Reply& reply, Result<std::vector<Tensor>> outputs) {
    answers_.push_back({std::move(reply), std::move(outputs)});
  }
  bool serve_puts();
  bool serve_takes();
  /// Carries out what can be, then sends the answers: sinks may call back only when the queue is consistent.
  void settle();

  const QueueOptions options_;
  const bool copy_rows_;
  bool closed_ = false;
  std::deque<Put> puts_;
  std::deque<Take> takes_;  // only the first may have collected something
  std::vector<Answer> answers_;
};

}  // namespace troupe
