// SPDX-License-Identifier: Apache-2.0
// The machinery of dataset stages. Between from_tensors and batch, stages carry row numbers rather than rows:
// shuffle, repeat, take, skip and shard then move 8 bytes an element, and batch gathers the rows in one pass.
// So each of these algorithms is a template over what flows: int64_t row numbers, or Elements.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "tensor/function_caller.h"
#include "troupe/dataset.h"

namespace troupe {

/// Yields values of T until nothing; an error concerns one value, the next call goes on behind it.
template <class T> class Flow {
 public:
  virtual ~Flow() = default;
  virtual Result<std::optional<T>> next() = 0;
};
template <class T> using FlowPtr = std::unique_ptr<Flow<T>>;

/// One pass over the values of an iterator.
struct Pass {
  uint64_t number = 0;        // what depends on chance differs between passes; 0 is the first of iterate()
  std::stop_token stop = {};  // the iterator was cancelled: what waits need not go on
  /// What sources keep from pass to pass, by source; all passes of the iterator share this.
  using Kept = std::map<const void*, std::shared_ptr<void>>;
  std::shared_ptr<Kept> kept = std::make_shared<Kept>();
  std::shared_ptr<FunctionCaller> functions = {};  // calls functions of graphs; none: nobody does
  int depth = 0;                                   // datasets that functions gave, around this one
  /// Where a dataset that a function gives says how many elements are wanted ahead; none: nobody asks.
  std::shared_ptr<std::atomic<int64_t>> ahead = {};

  /// Pass `inner` of a repeat within this one.
  Pass nested(uint64_t inner) const {
    Pass out = *this;
    out.number = number * 0x9e3779b97f4a7c15u + inner;
    return out;
  }
};

/// Starts a pass.
template <class T> using Source = std::function<Result<FlowPtr<T>>(const Pass&)>;

/// SplitMix64: small, and the same on every machine. Source: Steele, Lea, Flood 2014.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, n), by Lemire's method.
  uint64_t below(uint64_t n) {
    auto product = static_cast<unsigned __int128>(next()) * n;
    if (static_cast<uint64_t>(product) < n)
      for (const uint64_t least = -n % n; static_cast<uint64_t>(product) < least;)
        product = static_cast<unsigned __int128>(next()) * n;
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  uint64_t state_;
};

template <class T> class ShuffleFlow final : public Flow<T> {
 public:
  ShuffleFlow(FlowPtr<T> from, int64_t buffer, uint64_t seed) : from_(std::move(from)), limit_(buffer), random_(seed) {}
  Result<std::optional<T>> next() override {
    while (!drained_ && static_cast<int64_t>(held_.size()) < limit_) {
      TROUPE_ASSIGN(std::optional<T> value, from_->next());
      if (value) held_.push_back(std::move(*value));
      else drained_ = true;
    }
    if (held_.empty()) return std::optional<T>();
    std::swap(held_[random_.below(held_.size())], held_.back());
    std::optional<T> out(std::move(held_.back()));
    held_.pop_back();
    return out;
  }

 private:
  FlowPtr<T> from_;
  int64_t limit_;
  SplitMix random_;
  std::vector<T> held_;
  bool drained_ = false;
};

template <class T> class RepeatFlow final : public Flow<T> {
 public:
  RepeatFlow(Source<T> source, int64_t count, Pass pass)
      : source_(std::move(source)), count_(count), outer_(std::move(pass)) {}
  Result<std::optional<T>> next() override {
    while (count_ < 0 || done_ < count_) {
      if (!flow_) {
        auto flow = source_(outer_.nested(static_cast<uint64_t>(done_)));
        if (!flow.ok()) {
          count_ = 0;
          return std::move(flow.error());
        }
        flow_ = std::move(*flow);
        empty_ = true;
      }
      TROUPE_ASSIGN(std::optional<T> value, flow_->next());
      if (value) {
        empty_ = false;
        return value;
      }
      flow_.reset();
      ++done_;
      if (empty_) count_ = 0;  // no later pass would have more
    }
    outer_ = Pass();  // and what its passes shared
    return std::optional<T>();
  }

 private:
  Source<T> source_;
  int64_t count_;
  Pass outer_;
  int64_t done_ = 0;
  bool empty_ = true;
  FlowPtr<T> flow_;
};

/// Values first, first + step, ... below `end` of what flows; end -1 is no end.
template <class T> class RangeFlow final : public Flow<T> {
 public:
  RangeFlow(FlowPtr<T> from, int64_t first, int64_t end, int64_t step)
      : from_(std::move(from)), wanted_(first), end_(end), step_(step) {}
  Result<std::optional<T>> next() override {
    if (end_ >= 0 && wanted_ >= end_) return std::optional<T>();
    for (;;) {
      TROUPE_ASSIGN(std::optional<T> value, from_->next());
      if (!value) return value;
      if (at_++ == wanted_) {
        if (__builtin_add_overflow(wanted_, step_, &wanted_)) wanted_ = INT64_MAX;
        return value;
      }
    }
  }

 private:
  FlowPtr<T> from_;
  int64_t wanted_;
  int64_t end_;
  int64_t step_;
  int64_t at_ = 0;
};

/// What a stage does with what flows; the parameters of the stages that work on row numbers and elements alike.
struct Reorder {
  enum class Kind { kShuffle, kRepeat, kRange, kShard } kind;
  int64_t a = 0;   // kShuffle: buffer; kRepeat: count; kRange, kShard: first
  int64_t b = -1;  // kRange: end
  int64_t c = 1;   // kShard: step
  uint64_t seed = 0;

  /// kInvalidArgument naming the value that makes no sense.
  Status check() const;
  /// Elements left of `size` (-1: not known, -2: endless).
  int64_t size(int64_t size) const;

  /// Whether what it passes over, or gathers first, takes long.
  bool takes_long() const {
    constexpr int64_t kMany = 1 << 20;
    return kind != Kind::kRepeat && (a > kMany || c > kMany);
  }

  template <class T> Result<FlowPtr<T>> apply(const Source<T>& source, const Pass& pass) const {
    if (kind == Kind::kRepeat) return FlowPtr<T>(new RepeatFlow<T>(source, a, pass));
    TROUPE_ASSIGN(FlowPtr<T> from, source(pass));
    if (kind == Kind::kShuffle)
      return FlowPtr<T>(new ShuffleFlow<T>(std::move(from), a, SplitMix(seed ^ SplitMix(pass.number).next()).next()));
    return FlowPtr<T>(new RangeFlow<T>(std::move(from), a, b, c));
  }
};

/// Base of our own stages: they know passes, and may offer their elements as rows of tensors.
class FlowStage : public Dataset::Stage {
 public:
  /// The tensors whose rows the elements are; nullptr where they are not.
  virtual const Element* rows() const { return nullptr; }
  /// Row numbers of a pass; only where there are rows().
  virtual Result<FlowPtr<int64_t>> row_flow(const Pass& pass) const;
  /// Elements of a pass. Rows are views by default.
  virtual Result<FlowPtr<Element>> flow(const Pass& pass) const;
  Result<std::unique_ptr<DatasetIterator>> iterate() const final { return iterate(Pass()); }
  /// The same by somebody who calls functions; `pass` has no stop.
  Result<std::unique_ptr<DatasetIterator>> iterate(Pass pass) const;
};

using StagePtr = std::shared_ptr<const Dataset::Stage>;

/// Row `i` of a tensor of rank 1 or more, as a view.
Result<Tensor> row_of(const Tensor& tensor, int64_t i);

/// kInvalidArgument, naming the component, for an element without these components. `who` gave it: "the function".
Status check_components(const Element& element, const std::vector<DType>& dtypes,
                        const std::vector<PartialShape>& shapes, const char* who);

/// The elements of any stage, a user's own included (for which every pass is the same).
Source<Element> elements_of(StagePtr stage);

/// The stages; Dataset's functions make them.
StagePtr make_rows_stage(Element components);
StagePtr make_reorder_stage(StagePtr input, Reorder reorder);
StagePtr make_batch_stage(StagePtr input, int64_t size, bool drop_remainder);
StagePtr make_map_stage(StagePtr input, Dataset::MapFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes);
/// A scalar string for each line, or each record, of the files.
StagePtr make_lines_stage(std::vector<std::string> files);
StagePtr make_records_stage(std::vector<std::string> files);
/// Calls `fn` for each element; `shapes` as many as `dtypes`.
StagePtr make_function_stage(Dataset::StoppableSourceFn fn, std::vector<DType> dtypes,
                             std::vector<PartialShape> shapes);

}  // namespace troupe
