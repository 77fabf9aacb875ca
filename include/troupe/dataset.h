// SPDX-License-Identifier: Apache-2.0
// Dataset: a pipeline of input stages (from tensors or files, map, batch, shuffle, repeat, prefetch).
// Implemented in io/dataset.cpp.
//
// A Dataset describes; an iterator, made by iterate(), produces. Both are passive: whoever calls next() does the work.
// An engine hosts iterators as actors, which produce ahead of the steps that ask (see Engine::add_dataset).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "troupe/export.h"
#include "troupe/resource.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// One element: its component tensors.
using Element = std::vector<Tensor>;

/// Produces the elements of a dataset, one call at a time.
class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;
  /// The next element, nothing at the end (and again at each later call), or an error; after an error the next call
  /// goes on with the element after the bad one where that is possible.
  virtual Result<std::optional<Element>> next() = 0;
};

/// Immutable, cheap to copy. Every stage is deterministic given the seed. A parameter that makes no sense (a batch of
/// 0, shard 3 of 2) is an error of iterate(). Stages on rows of tensors (from_tensors, then any of shuffle, repeat,
/// take, skip, shard) are joined with a batch after them into one gather.
class Dataset {
 public:
  using MapFn = std::function<Result<Element>(Element)>;
  /// Node of the description; stages of a user's own derive from it.
  class Stage {
   public:
    virtual ~Stage() = default;
    virtual Result<std::unique_ptr<DatasetIterator>> iterate() const = 0;
    virtual std::vector<DType> dtypes() const = 0;
    virtual std::vector<PartialShape> shapes() const = 0;
    /// Elements, -1 when not known, -2 when endless.
    virtual int64_t size() const { return -1; }
  };
  explicit Dataset(std::shared_ptr<const Stage> stage) : stage_(std::move(stage)) {}

  /// Row i of each component is element i. Error: components of different first size, or scalars.
  static Result<Dataset> from_tensors(Element components);
  /// Lines of text files, gzip recognised, in order; a scalar string each.
  static Result<Dataset> from_text_lines(std::vector<std::string> files);
  /// Records of TFRecord files, a scalar string each.
  static Result<Dataset> from_records(std::vector<std::string> files);

  /// `dtypes` and `shapes` of what fn returns; left out, those of its input. What fn returns is checked against them.
  /// An error of fn is reported with the element's index and costs this element only.
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
  /// How many elements an engine's iterator produces ahead.
  Dataset prefetch(int64_t elements) const;

  Result<std::unique_ptr<DatasetIterator>> iterate() const { return stage_->iterate(); }
  std::vector<DType> dtypes() const { return stage_->dtypes(); }
  std::vector<PartialShape> shapes() const { return stage_->shapes(); }
  int64_t size() const { return stage_->size(); }
  int64_t prefetch_depth() const { return prefetch_; }

 private:
  std::shared_ptr<const Stage> stage_;
  int64_t prefetch_ = 2;
};

/// The core of an iterator actor: produces up to prefetch_depth() elements ahead between requests.
/// get_next answers with the next element, kOutOfRange at the end, or the element's error: at once where one is
/// ready, else from work(), which the host calls as long as wants_work(); in the order of asking.
class IteratorResource : public Resource {
 public:
  explicit IteratorResource(Dataset dataset);
  ~IteratorResource() override;
  void get_next(Reply reply);
  /// Starts again from the first element; what was produced ahead is dropped, who waits goes on waiting.
  void restart();
  void cancel(uint64_t requester, int64_t step) override;
  bool wants_work() const override;
  /// Produces one element: for who waits longest, else ahead.
  void work() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
