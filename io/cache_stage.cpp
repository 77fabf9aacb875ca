// SPDX-License-Identifier: Apache-2.0
// Elements kept in memory for later passes.
#include "io/graph_stages.h"

namespace troupe {
namespace {

class ListFlow final : public Flow<Element> {
 public:
  explicit ListFlow(ElementCache::Elements elements) : elements_(std::move(elements)) {}
  Result<std::optional<Element>> next() override {
    if (at_ == elements_->size()) return std::optional<Element>();
    return std::optional<Element>((*elements_)[at_++]);
  }

 private:
  const ElementCache::Elements elements_;
  size_t at_ = 0;
};

class ListStage final : public FlowStage {
 public:
  ListStage(ElementCache::Elements elements, ComponentTypes dtypes, ComponentShapes shapes)
      : elements_(std::move(elements)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}
  Result<FlowPtr<Element>> flow(const Pass&) const override { return FlowPtr<Element>(new ListFlow(elements_)); }
  ComponentTypes dtypes() const override { return dtypes_; }
  ComponentShapes shapes() const override { return shapes_; }
  int64_t size() const override { return std::ssize(*elements_); }
  bool may_wait() const override { return false; }

 private:
  const ElementCache::Elements elements_;
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
};

/// Gives what its input gives, and keeps it for the cache. After an error there is nothing to keep.
class KeepFlow final : public Flow<Element> {
 public:
  KeepFlow(FlowPtr<Element> from, std::shared_ptr<ElementCache> cache)
      : from_(std::move(from)), cache_(std::move(cache)) {}
  Result<std::optional<Element>> next() override {
    Result<std::optional<Element>> element = from_->next();
    if (!element.ok()) {
      cache_ = nullptr;
      kept_.clear();
    } else if (cache_ && *element) {
      for (const Tensor& t : **element) t.freeze();
      kept_.push_back(**element);
    } else if (cache_) {
      std::exchange(cache_, nullptr)->set(std::move(kept_));
    }
    return element;
  }

 private:
  const FlowPtr<Element> from_;
  std::shared_ptr<ElementCache> cache_;  // none: nothing is kept any more
  std::vector<Element> kept_;
};

class CacheStage final : public PassingStage {
 public:
  CacheStage(StagePtr input, std::shared_ptr<ElementCache> cache)
      : PassingStage(std::move(input)), cache_(std::move(cache)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    if (auto elements = cache_->get()) return FlowPtr<Element>(new ListFlow(std::move(elements)));
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new KeepFlow(std::move(from), cache_));
  }
  bool may_wait() const override { return input_->may_wait(); }

 private:
  const std::shared_ptr<ElementCache> cache_;
};

}  // namespace

ElementCache::Elements ElementCache::get() const {
  const std::lock_guard lock(mutex_);
  return elements_;
}

void ElementCache::set(std::vector<Element> elements) {
  auto made = std::make_shared<const std::vector<Element>>(std::move(elements));
  const std::lock_guard lock(mutex_);
  if (!elements_) elements_ = std::move(made);
}

StagePtr make_cache_stage(StagePtr input, std::shared_ptr<ElementCache> cache) {
  return std::make_shared<CacheStage>(std::move(input), std::move(cache));
}

StagePtr make_list_stage(std::shared_ptr<const std::vector<Element>> elements, ComponentTypes dtypes,
                         ComponentShapes shapes) {
  return std::make_shared<ListStage>(std::move(elements), std::move(dtypes), std::move(shapes));
}

}  // namespace troupe
