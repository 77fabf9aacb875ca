// SPDX-License-Identifier: Apache-2.0
// Stages that pass elements on: rows of tensors, reordering, map.
#include "io/dataset_stages.h"

#include <algorithm>

#include "troupe/guarded.h"

namespace troupe {
namespace {

class CountFlow final : public Flow<int64_t> {
 public:
  explicit CountFlow(int64_t size) : size_(size) {}
  Result<std::optional<int64_t>> next() override { return at_ < size_ ? std::optional<int64_t>(at_++) : std::nullopt; }

 private:
  int64_t at_ = 0;
  int64_t size_;
};

class ViewFlow final : public Flow<Element> {
 public:
  ViewFlow(FlowPtr<int64_t> rows, Element components) : rows_(std::move(rows)), components_(std::move(components)) {}
  Result<std::optional<Element>> next() override {
    TROUPE_ASSIGN(const std::optional<int64_t> row, rows_->next());
    if (!row) return std::optional<Element>();
    Element out;
    out.reserve(components_.size());
    for (const Tensor& t : components_) {
      TROUPE_ASSIGN(Tensor view, row_of(t, *row));
      out.push_back(std::move(view));
    }
    return std::optional<Element>(std::move(out));
  }

 private:
  FlowPtr<int64_t> rows_;
  Element components_;
};

class IteratorOfFlow final : public DatasetIterator {
 public:
  IteratorOfFlow(FlowPtr<Element> flow, std::stop_source stop) : flow_(std::move(flow)), stop_(std::move(stop)) {}
  Result<std::optional<Element>> next() override {
    if (stop_.stop_requested()) return make_error(Code::kCancelled, "the iterator was cancelled");
    return flow_->next();
  }
  void cancel() override { stop_.request_stop(); }

 private:
  FlowPtr<Element> flow_;
  std::stop_source stop_;
};

/// For what comes of a user's function or iterator, which may have kept the tensors: whoever writes to them, such as a
/// map behind, gets a copy.
void freeze_all(const Element& element) {
  for (const Tensor& t : element) t.freeze();
}

class FlowOfIterator final : public Flow<Element> {
 public:
  FlowOfIterator(std::unique_ptr<DatasetIterator> iterator, const std::stop_token& stop)
      : iterator_(std::move(iterator)),
        on_stop_(stop, [i = iterator_.get()] { (void)guarded_call([&] { i->cancel(); }).ok(); }) {}
  Result<std::optional<Element>> next() override {
    auto out = guarded([&] { return iterator_->next(); });
    if (out.ok() && *out) freeze_all(**out);
    return out;
  }

 private:
  std::unique_ptr<DatasetIterator> iterator_;
  std::stop_callback<std::function<void()>> on_stop_;
};

/// Calls a function for each element.
class FunctionFlow final : public Flow<Element> {
 public:
  FunctionFlow(Dataset::StoppableSourceFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes,
               std::stop_token stop)
      : fn_(std::move(fn)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)), stop_(std::move(stop)) {}
  Result<std::optional<Element>> next() override {
    if (ended_) return std::optional<Element>();
    const int64_t index = at_++;
    Result<std::optional<Element>> out = guarded([&] { return fn_(stop_); });
    if (out.ok() && *out)
      if (Status status = check_components(**out, dtypes_, shapes_, "the function"); !status.ok())
        out = std::move(status.error());
    if (!out.ok()) {
      out.error().message = fmt::format("from_function, element {}: {}", index, out.error().message);
      return out;
    }
    ended_ = !*out;
    if (*out) freeze_all(**out);
    return out;
  }

 private:
  Dataset::StoppableSourceFn fn_;
  std::vector<DType> dtypes_;
  std::vector<PartialShape> shapes_;
  std::stop_token stop_;
  int64_t at_ = 0;
  bool ended_ = false;
};

class FunctionStage final : public FlowStage {
 public:
  FunctionStage(Dataset::StoppableSourceFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes)
      : fn_(std::move(fn)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    return FlowPtr<Element>(new FunctionFlow(fn_, dtypes_, shapes_, pass.stop));
  }
  std::vector<DType> dtypes() const override { return dtypes_; }
  std::vector<PartialShape> shapes() const override { return shapes_; }
  bool repeatable() const override { return false; }

 private:
  Dataset::StoppableSourceFn fn_;
  std::vector<DType> dtypes_;
  std::vector<PartialShape> shapes_;
};

class RowsStage final : public FlowStage {
 public:
  /// Whoever writes to a component from now on, or to a row, as a map may, gets a copy.
  explicit RowsStage(Element components) : components_(std::move(components)) {
    for (const Tensor& t : components_) t.freeze();
  }
  const Element* rows() const override { return &components_; }
  Result<FlowPtr<int64_t>> row_flow(const Pass&) const override { return FlowPtr<int64_t>(new CountFlow(size())); }
  bool may_wait() const override { return false; }
  std::vector<DType> dtypes() const override {
    std::vector<DType> out;
    for (const Tensor& t : components_) out.push_back(t.dtype());
    return out;
  }
  std::vector<PartialShape> shapes() const override {
    std::vector<PartialShape> out;
    for (const Tensor& t : components_) {
      Shape shape = t.shape();
      shape.erase(0);
      out.emplace_back(shape);
    }
    return out;
  }
  int64_t size() const override { return components_[0].dim(0); }

 private:
  Element components_;
};

class ReorderStage final : public FlowStage {
 public:
  ReorderStage(StagePtr input, Reorder reorder)
      : input_(std::move(input)), flow_input_(dynamic_cast<const FlowStage*>(input_.get())), reorder_(reorder) {}
  const Element* rows() const override { return flow_input_ ? flow_input_->rows() : nullptr; }
  Result<FlowPtr<int64_t>> row_flow(const Pass& pass) const override {
    TROUPE_RETURN_IF_ERROR(reorder_.check());
    return reorder_.apply<int64_t>(
        [input = input_, stage = flow_input_](const Pass& inner) { return stage->row_flow(inner); }, pass);
  }
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    if (rows()) return FlowStage::flow(pass);
    TROUPE_RETURN_IF_ERROR(reorder_.check());
    return reorder_.apply<Element>(elements_of(input_), pass);
  }
  std::vector<DType> dtypes() const override { return input_->dtypes(); }
  std::vector<PartialShape> shapes() const override { return input_->shapes(); }
  int64_t size() const override { return reorder_.size(input_->size()); }
  bool may_wait() const override { return input_->may_wait() || reorder_.takes_long(); }
  bool repeatable() const override { return input_->repeatable(); }

 private:
  StagePtr input_;
  const FlowStage* flow_input_;  // input_, where it is one of ours
  Reorder reorder_;
};

class MapFlow final : public Flow<Element> {
 public:
  MapFlow(FlowPtr<Element> from, Dataset::MapFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes)
      : from_(std::move(from)), fn_(std::move(fn)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}
  Result<std::optional<Element>> next() override {
    TROUPE_ASSIGN(std::optional<Element> in, from_->next());
    if (!in) return in;
    const int64_t index = at_++;
    Result<Element> out = guarded([&] { return fn_(std::move(*in)); });
    if (out.ok())
      if (Status status = check_components(*out, dtypes_, shapes_, "the function"); !status.ok())
        out = std::move(status.error());
    if (!out.ok()) {
      out.error().message = fmt::format("map of element {}: {}", index, out.error().message);
      return std::move(out.error());
    }
    freeze_all(*out);
    return std::optional<Element>(std::move(*out));
  }

 private:
  FlowPtr<Element> from_;
  Dataset::MapFn fn_;
  std::vector<DType> dtypes_;
  std::vector<PartialShape> shapes_;
  int64_t at_ = 0;
};

class MapStage final : public FlowStage {
 public:
  MapStage(StagePtr input, Dataset::MapFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes)
      : input_(std::move(input)), fn_(std::move(fn)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {
    if (dtypes_.empty()) {
      dtypes_ = input_->dtypes();
      if (shapes_.empty()) shapes_ = input_->shapes();
    }
  }
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    if (!fn_) return invalid_argument("map without a function");
    if (!shapes_.empty() && shapes_.size() != dtypes_.size())
      return invalid_argument("map declares {} dtypes, but {} shapes", dtypes_.size(), shapes_.size());
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new MapFlow(std::move(from), fn_, dtypes_, shapes()));
  }
  std::vector<DType> dtypes() const override { return dtypes_; }
  std::vector<PartialShape> shapes() const override {
    return shapes_.empty() ? std::vector<PartialShape>(dtypes_.size()) : shapes_;
  }
  int64_t size() const override { return input_->size(); }
  bool repeatable() const override { return input_->repeatable(); }

 private:
  StagePtr input_;
  Dataset::MapFn fn_;
  std::vector<DType> dtypes_;
  std::vector<PartialShape> shapes_;
};

}  // namespace

Result<Tensor> row_of(const Tensor& tensor, int64_t i) {
  TROUPE_ASSIGN(const Tensor one, tensor.slice(i, i + 1));
  Shape shape = tensor.shape();
  shape.erase(0);
  return one.reshape(shape);
}

Status check_components(const Element& element, const std::vector<DType>& dtypes,
                        const std::vector<PartialShape>& shapes, const char* who) {
  if (element.size() != dtypes.size())
    return invalid_argument("{} gave {} components, {} were declared", who, element.size(), dtypes.size());
  for (size_t i = 0; i < element.size(); ++i)
    if (element[i].dtype() != dtypes[i] || !shapes[i].compatible(element[i].shape()))
      return invalid_argument("{} gave {}{} as component {}, declared was {}{}", who, to_string(element[i].dtype()),
                              element[i].shape().str(), i, to_string(dtypes[i]), shapes[i].str());
  return {};
}

Status Reorder::check() const {
  switch (kind) {
    case Kind::kShuffle:
      if (a < 1) return invalid_argument("shuffle with a buffer of {} elements", a);
      break;
    case Kind::kRepeat:
      if (a < -1) return invalid_argument("repeat of {} passes; -1 is for ever", a);
      break;
    case Kind::kRange:
      if (a < 0) return invalid_argument("skip of {} elements", a);
      break;
    case Kind::kShard:
      if (a < 0 || a >= c) return invalid_argument("shard {} of {}", a, c);
      break;
  }
  return {};
}

int64_t Reorder::size(int64_t size) const {
  switch (kind) {
    case Kind::kShuffle: return size;
    case Kind::kRepeat: {
      int64_t product;
      if (size == 0 || a == 0) return 0;
      if (a < 0) return size == -1 ? -1 : -2;
      if (size < 0) return size;
      return __builtin_mul_overflow(size, a, &product) ? -1 : product;
    }
    case Kind::kRange:
    case Kind::kShard: {
      if (b >= 0 && size == -2) size = b;
      if (size < 0) return size;
      if (b >= 0) size = std::min(size, b);
      return size <= a || a < 0 ? 0 : (size - a - 1) / std::max<int64_t>(c, 1) + 1;
    }
  }
  return -1;
}

Result<FlowPtr<int64_t>> FlowStage::row_flow(const Pass&) const {
  return make_error(Code::kInternal, "the elements of this stage are not rows");
}

Result<FlowPtr<Element>> FlowStage::flow(const Pass& pass) const {
  TROUPE_ASSIGN(FlowPtr<int64_t> from, row_flow(pass));
  return FlowPtr<Element>(new ViewFlow(std::move(from), *rows()));
}

Result<std::unique_ptr<DatasetIterator>> FlowStage::iterate(Pass pass) const {
  std::stop_source stop;
  pass.stop = stop.get_token();
  TROUPE_ASSIGN(FlowPtr<Element> from, flow(pass));
  return std::unique_ptr<DatasetIterator>(new IteratorOfFlow(std::move(from), std::move(stop)));
}

Source<Element> elements_of(StagePtr stage) {
  return [stage = std::move(stage)](const Pass& pass) -> Result<FlowPtr<Element>> {
    if (const auto* ours = dynamic_cast<const FlowStage*>(stage.get())) return ours->flow(pass);
    TROUPE_ASSIGN(auto iterator, guarded([&] { return stage->iterate(); }));
    if (!iterator) return make_error(Code::kInternal, "a stage gave no iterator");
    return FlowPtr<Element>(new FlowOfIterator(std::move(iterator), pass.stop));
  };
}

StagePtr make_rows_stage(Element components) { return std::make_shared<RowsStage>(std::move(components)); }

StagePtr make_reorder_stage(StagePtr input, Reorder reorder) {
  return std::make_shared<ReorderStage>(std::move(input), reorder);
}

StagePtr make_function_stage(Dataset::StoppableSourceFn fn, std::vector<DType> dtypes,
                             std::vector<PartialShape> shapes) {
  return std::make_shared<FunctionStage>(std::move(fn), std::move(dtypes), std::move(shapes));
}

StagePtr make_map_stage(StagePtr input, Dataset::MapFn fn, std::vector<DType> dtypes,
                        std::vector<PartialShape> shapes) {
  return std::make_shared<MapStage>(std::move(input), std::move(fn), std::move(dtypes), std::move(shapes));
}

}  // namespace troupe
