// SPDX-License-Identifier: Apache-2.0
// Shuffling in TensorFlow's order. The buffer holds elements in the order in which they came, of one pass of the input
// or of several; an element is drawn from those of the oldest pass, and the first of these takes its place. Each pass
// has random words of its own.
#include <deque>

#include "io/graph_stages.h"

namespace troupe {
namespace {

/// Passes of which the buffer holds elements at once, at most, before it is filled no more.
constexpr size_t kMostPassesHeld = 3;

class DrawFlow final : public Flow<Element> {
 public:
  DrawFlow(Source<Element> source, int64_t buffer, int64_t count, MakeDrawFn make, Pass pass)
      : source_(std::move(source)), buffer_(buffer), count_(count), make_(std::move(make)), pass_(std::move(pass)),
        draw_(make_()) {}

  Result<std::optional<Element>> next() override {
    while (wants_more()) TROUPE_RETURN_IF_ERROR(fill());
    if (held_.empty()) return std::optional<Element>();
    while (passes_.front() == 0) {
      passes_.pop_front();
      draw_ = make_();
    }
    const auto drawn = static_cast<size_t>(draw_() % static_cast<uint64_t>(passes_.front()));
    std::optional<Element> out(std::move(held_[drawn]));
    if (drawn > 0) held_[drawn] = std::move(held_.front());
    held_.pop_front();
    --passes_.front();
    return out;
  }

 private:
  bool wants_more() const {
    if (ended_ || (!from_ && count_ >= 0 && epoch_ >= count_)) return false;
    if (passes_.size() > kMostPassesHeld && !held_.empty()) return false;
    return std::ssize(held_) < buffer_;
  }
  /// Takes one element, or comes to the end of a pass.
  Status fill() {
    if (!from_) {
      TROUPE_ASSIGN(from_, source_(epoch_ == 0 ? pass_ : pass_.nested(static_cast<uint64_t>(epoch_))));
      passes_.push_back(0);
      ++epoch_;
    }
    TROUPE_ASSIGN(std::optional<Element> element, from_->next());
    if (element) {
      held_.push_back(std::move(*element));
      ++passes_.back();
      any_ = true;
    } else {
      from_.reset();
      ended_ = !any_;  // no later pass would have more
    }
    return {};
  }

  const Source<Element> source_;
  const int64_t buffer_, count_;
  const MakeDrawFn make_;
  const Pass pass_;
  DrawFn draw_;  // of the pass that is drawn from
  bool any_ = false, ended_ = false;
  int64_t epoch_ = 0;
  FlowPtr<Element> from_;       // none: between two passes
  std::deque<Element> held_;    // in the order in which they came
  std::deque<int64_t> passes_;  // how many of them are of each pass
};

class DrawStage final : public FlowStage {
 public:
  DrawStage(StagePtr input, int64_t buffer, int64_t count, MakeDrawFn make)
      : input_(std::move(input)), buffer_(buffer), count_(count), make_(std::move(make)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    return FlowPtr<Element>(new DrawFlow(elements_of(input_), buffer_, count_, make_, pass));
  }
  ComponentTypes dtypes() const override { return input_->dtypes(); }
  ComponentShapes shapes() const override { return input_->shapes(); }
  int64_t size() const override { return Reorder{Reorder::Kind::kRepeat, count_}.size(input_->size()); }
  bool may_wait() const override { return input_->may_wait() || buffer_ > int64_t{1} << 16; }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const int64_t buffer_, count_;
  const MakeDrawFn make_;
};

class SamplingFlow final : public Flow<Element> {
 public:
  SamplingFlow(FlowPtr<Element> from, float rate, DrawFn draw)
      : from_(std::move(from)), rate_(rate), draw_(std::move(draw)) {}
  Result<std::optional<Element>> next() override {
    for (;;) {
      TROUPE_ASSIGN(std::optional<Element> element, from_->next());
      if (!element) return element;
      const float drawn = static_cast<float>(draw_() & 0x7fffff) * 0x1p-23f;
      if (drawn < rate_) return element;
    }
  }

 private:
  const FlowPtr<Element> from_;
  const float rate_;
  const DrawFn draw_;
};

class SamplingStage final : public FlowStage {
 public:
  SamplingStage(StagePtr input, float rate, MakeDrawFn make)
      : input_(std::move(input)), rate_(rate), make_(std::move(make)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new SamplingFlow(std::move(from), rate_, make_()));
  }
  ComponentTypes dtypes() const override { return input_->dtypes(); }
  ComponentShapes shapes() const override { return input_->shapes(); }
  int64_t size() const override { return input_->size() == 0 ? 0 : -1; }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const float rate_;
  const MakeDrawFn make_;
};

class WordsFlow final : public Flow<Element> {
 public:
  explicit WordsFlow(DrawFn draw) : draw_(std::move(draw)) {}
  Result<std::optional<Element>> next() override {
    return std::optional<Element>({Tensor::scalar(static_cast<int64_t>(draw_()))});
  }

 private:
  const DrawFn draw_;
};

class WordsStage final : public FlowStage {
 public:
  explicit WordsStage(MakeDrawFn make) : make_(std::move(make)) {}
  Result<FlowPtr<Element>> flow(const Pass&) const override { return FlowPtr<Element>(new WordsFlow(make_())); }
  ComponentTypes dtypes() const override { return {DType::kInt64}; }
  ComponentShapes shapes() const override { return {PartialShape::scalar()}; }
  int64_t size() const override { return -2; }
  bool may_wait() const override { return false; }
  bool repeatable() const override { return false; }

 private:
  const MakeDrawFn make_;
};

}  // namespace

StagePtr make_draw_stage(StagePtr input, int64_t buffer, int64_t count, MakeDrawFn make) {
  return std::make_shared<DrawStage>(std::move(input), buffer, count, std::move(make));
}

StagePtr make_sampling_stage(StagePtr input, float rate, MakeDrawFn make) {
  return std::make_shared<SamplingStage>(std::move(input), rate, std::move(make));
}

StagePtr make_words_stage(MakeDrawFn make) { return std::make_shared<WordsStage>(std::move(make)); }

}  // namespace troupe
