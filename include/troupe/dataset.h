// SPDX-License-Identifier: Apache-2.0
// Dataset: a pipeline of input stages (from tensors, files, functions or a queue, map, batch, shuffle, repeat,
// prefetch). Implemented in io/dataset.cpp.
//
// A Dataset describes; an iterator, made by iterate(), produces. Both are passive: whoever calls next() does the work.
// An engine hosts iterators as actors, which produce ahead of the steps that ask (see Engine::add_dataset). What may
// wait (files, users' functions, queues) is called there by threads apart, so it holds up nothing but the steps that
// ask for its elements, and these only until their deadline. Functions and stages of the user's own must own what they
// use, by shared pointers: one that does not return when its engine ends is left behind, and may go on later.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "troupe/export.h"
#include "troupe/shape.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// One element: its component tensors.
using Element = std::vector<Tensor>;

class DatasetQueue;

/// What one of several processes reads of the same data: shard `index` of `count`.
struct Shard {
  int64_t count = 1;
  int64_t index = 0;
};

/// Produces the elements of a dataset, one call at a time.
class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;
  /// The next element, nothing at the end (and again at each later call), or an error; after an error the next call
  /// goes on with the element after the bad one where that is possible. May wait.
  virtual Result<std::optional<Element>> next() = 0;
  /// Nobody will want another element: next() need not go on waiting, and may fail with kCancelled from now on. From
  /// any thread, also while next() runs; returns at once. An iterator that cannot stop does nothing. What it throws is
  /// dropped.
  virtual void cancel() {}
};

/// Immutable, cheap to copy, used by any thread. Every stage is deterministic given the seed. A parameter that makes no
/// sense (a batch of 0, shard 3 of 2) is an error of iterate(). Stages on rows of tensors (from_tensors, then any of
/// shuffle, repeat, take, skip, shard) are joined with a batch after them into one gather.
class Dataset {
 public:
  using MapFn = std::function<Result<Element>(Element)>;
  using SourceFn = std::function<Result<std::optional<Element>>()>;
  using StoppableSourceFn = std::function<Result<std::optional<Element>>(const std::stop_token& stop)>;
  /// Node of the description; stages of a user's own derive from it.
  class Stage {
   public:
    virtual ~Stage() = default;
    virtual Result<std::unique_ptr<DatasetIterator>> iterate() const = 0;
    virtual std::vector<DType> dtypes() const = 0;
    virtual std::vector<PartialShape> shapes() const = 0;
    /// Elements, -1 when not known, -2 when endless.
    virtual int64_t size() const { return -1; }
    /// Whether next() may wait, or take long: engines then call it by threads apart, never by those of their devices.
    virtual bool may_wait() const { return true; }
    /// Whether every iterator gives the same elements, so that what was lost can be read again.
    virtual bool repeatable() const { return true; }
  };
  explicit Dataset(std::shared_ptr<const Stage> stage) : stage_(std::move(stage)) {}

  /// Row i of each component is element i. Error: components of different first size, or scalars.
  static Result<Dataset> from_tensors(Element components);
  /// Lines of text files, gzip recognised, in order; a scalar string each.
  static Result<Dataset> from_text_lines(std::vector<std::string> files);
  /// Records of TFRecord files, a scalar string each.
  static Result<Dataset> from_records(std::vector<std::string> files);
  /// The same, of one shard: each of `count` processes that are given the same files, in any order, has another, and
  /// together they have each element once. The files are sorted, and file i is of shard i mod count. Where there are
  /// fewer files than shards, each process reads all files for every `count`-th element, as shard() does. Error:
  /// kInvalidArgument for an index that is not from 0 to count - 1.
  static Result<Dataset> from_text_lines(std::vector<std::string> files, Shard shard);
  static Result<Dataset> from_records(std::vector<std::string> files, Shard shard);
  /// What `fn` returns, call by call: elements of these components, nothing at the end, or an error, after which it is
  /// called again. It may wait. Each pass of a repeat, and each iterator, begins by calling it; two iterators may do so
  /// at once. Elements are checked (`shapes` left out: any). The second form is told by `stop`, which it may hand to
  /// std::condition_variable_any, that its iterator was cancelled. Error: no function; `shapes` as many as not
  /// `dtypes`.
  static Result<Dataset> from_function(SourceFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes = {});
  static Result<Dataset> from_function(StoppableSourceFn fn, std::vector<DType> dtypes,
                                       std::vector<PartialShape> shapes = {});
  /// What other threads push (troupe/dataset_queue.h). Each element goes to the iterator that asks first.
  static Dataset from_queue(const DatasetQueue& queue);

  /// `dtypes` and `shapes` of what fn returns; left out, those of its input. What fn returns is checked against them.
  /// An error of fn, or an exception, is reported with the element's index and costs this element only. fn may wait.
  Dataset map(MapFn fn, std::vector<DType> dtypes = {}, std::vector<PartialShape> shapes = {}) const;
  /// Batches of `size`, components stacked on a new first axis; a smaller last one unless drop_remainder.
  Dataset batch(int64_t size, bool drop_remainder = false) const;
  /// Draws at random from a buffer of `buffer` elements. Each pass of a later repeat has another order.
  Dataset shuffle(int64_t buffer, uint64_t seed) const;
  /// `count` passes; -1 for ever.
  Dataset repeat(int64_t count = -1) const;
  /// The first `count` elements; all when negative.
  Dataset take(int64_t count) const;
  /// All but the first `count`.
  Dataset skip(int64_t count) const;
  /// Every `count`-th element from `index` on, to split data over replicas.
  Dataset shard(int64_t count, int64_t index) const;
  /// How many elements an engine's iterator produces ahead; below 0: none.
  Dataset prefetch(int64_t elements) const;

  Result<std::unique_ptr<DatasetIterator>> iterate() const { return stage_->iterate(); }
  std::vector<DType> dtypes() const { return stage_->dtypes(); }
  std::vector<PartialShape> shapes() const { return stage_->shapes(); }
  int64_t size() const { return stage_->size(); }
  int64_t prefetch_depth() const { return prefetch_; }
  bool may_wait() const { return stage_->may_wait(); }
  /// Whether every iterator gives the same elements. from_function and from_queue do not promise it.
  bool repeatable() const { return stage_->repeatable(); }

 private:
  std::shared_ptr<const Stage> stage_;
  int64_t prefetch_ = 2;
};

}  // namespace troupe
