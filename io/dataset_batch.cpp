// SPDX-License-Identifier: Apache-2.0
// The batch stage: one gather where the elements are rows of tensors, stacking otherwise.
#include <algorithm>
#include <cstring>

#include "io/dataset_stages.h"

namespace troupe {
namespace {

class GatherFlow final : public Flow<Element> {
 public:
  GatherFlow(FlowPtr<int64_t> rows, Element components, int64_t size, bool drop_remainder)
      : rows_(std::move(rows)), components_(std::move(components)), size_(size), drop_(drop_remainder) {}

  Result<std::optional<Element>> next() override {
    while (static_cast<int64_t>(picked_.size()) < size_) {
      TROUPE_ASSIGN(const std::optional<int64_t> row, rows_->next());
      if (!row) break;
      picked_.push_back(*row);
    }
    if (picked_.empty() || (drop_ && static_cast<int64_t>(picked_.size()) < size_)) return std::optional<Element>();
    Element out;
    out.reserve(components_.size());
    for (const Tensor& t : components_) {
      Shape shape = t.shape();
      shape.set(0, static_cast<int64_t>(picked_.size()));
      TROUPE_ASSIGN(Tensor batch, Tensor::make(t.dtype(), shape));
      gather(t, batch);
      out.push_back(std::move(batch));
    }
    picked_.clear();
    return std::optional<Element>(std::move(out));
  }

 private:
  void gather(const Tensor& from, Tensor& to) const {
    const int64_t row = from.elements() / from.dim(0);  // there is a row: one was picked
    const size_t bytes = static_cast<size_t>(row) * size_of(from.dtype());
    const char* source = static_cast<const char*>(from.raw());
    char* target = static_cast<char*>(to.mutable_raw());
    for (const int64_t index : picked_) {
      copy_elements(from.dtype(), source + static_cast<size_t>(index) * bytes, target, row);
      target += bytes;
    }
  }

  FlowPtr<int64_t> rows_;
  Element components_;
  int64_t size_;
  bool drop_;
  std::vector<int64_t> picked_;
};

class StackFlow final : public Flow<Element> {
 public:
  StackFlow(FlowPtr<Element> from, int64_t size, bool drop_remainder)
      : from_(std::move(from)), size_(size), drop_(drop_remainder) {}

  Result<std::optional<Element>> next() override {
    while (static_cast<int64_t>(held_.size()) < size_) {
      TROUPE_ASSIGN(std::optional<Element> element, from_->next());
      if (!element) break;
      const int64_t index = at_++;
      if (!held_.empty()) TROUPE_RETURN_IF_ERROR(check(*element, index));
      held_.push_back(std::move(*element));
    }
    if (held_.empty() || (drop_ && static_cast<int64_t>(held_.size()) < size_)) return std::optional<Element>();
    const std::vector<Element> held = std::exchange(held_, {});
    Element out;
    for (size_t c = 0; c < held[0].size(); ++c) {
      TROUPE_ASSIGN(Tensor batch, stack(held, c));
      out.push_back(std::move(batch));
    }
    return std::optional<Element>(std::move(out));
  }

 private:
  Status check(const Element& element, int64_t index) const {
    const Element& first = held_[0];
    if (element.size() != first.size())
      return invalid_argument("batch: element {} has {} components, those before it {}", index, element.size(),
                              first.size());
    for (size_t c = 0; c < first.size(); ++c)
      if (element[c].dtype() != first[c].dtype() || !(element[c].shape() == first[c].shape()))
        return invalid_argument("batch: component {} of element {} is {}{}, that of those before it {}{}", c, index,
                                to_string(element[c].dtype()), element[c].shape().str(), to_string(first[c].dtype()),
                                first[c].shape().str());
    return {};
  }

  static Result<Tensor> stack(const std::vector<Element>& held, size_t c) {
    const Tensor& first = held[0][c];
    std::vector<int64_t> dims(first.shape().begin(), first.shape().end());
    dims.insert(dims.begin(), static_cast<int64_t>(held.size()));
    TROUPE_ASSIGN(const Shape shape, Shape::make(dims));
    TROUPE_ASSIGN(Tensor batch, Tensor::make(first.dtype(), shape));
    char* target = static_cast<char*>(batch.mutable_raw());
    for (const Element& element : held) {
      copy_elements(first.dtype(), element[c].raw(), target, first.elements());
      target += first.bytes();
    }
    return batch;
  }

  FlowPtr<Element> from_;
  int64_t size_;
  bool drop_;
  std::vector<Element> held_;
  int64_t at_ = 0;
};

class BatchStage final : public FlowStage {
 public:
  BatchStage(StagePtr input, int64_t size, bool drop_remainder)
      : input_(std::move(input)), size_(size), drop_(drop_remainder) {}

  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    if (size_ < 1) return invalid_argument("batches of {} elements", size_);
    const auto* ours = dynamic_cast<const FlowStage*>(input_.get());
    if (ours && ours->rows()) {
      TROUPE_ASSIGN(FlowPtr<int64_t> from, ours->row_flow(pass));
      return FlowPtr<Element>(new GatherFlow(std::move(from), *ours->rows(), size_, drop_));
    }
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new StackFlow(std::move(from), size_, drop_));
  }

  std::vector<DType> dtypes() const override { return input_->dtypes(); }

  std::vector<PartialShape> shapes() const override {
    std::vector<PartialShape> out;
    for (const PartialShape& s : input_->shapes()) {
      if (!s.has_rank() || s.rank() == kMaxRank) {
        out.push_back(PartialShape::unknown());
        continue;
      }
      PartialShape batch = PartialShape::of_rank(s.rank() + 1);
      if (drop_ && size_ > 0) batch.set(0, size_);
      for (int i = 0; i < s.rank(); ++i) batch.set(i + 1, s[i]);
      out.push_back(batch);
    }
    return out;
  }

  bool may_wait() const override { return input_->may_wait(); }
  bool repeatable() const override { return input_->repeatable(); }

  int64_t size() const override {
    const int64_t n = input_->size();
    if (n < 0 || size_ < 1) return n < 0 ? n : 0;
    return n / size_ + (!drop_ && n % size_ != 0);
  }

 private:
  StagePtr input_;
  int64_t size_;
  bool drop_;
};

}  // namespace

StagePtr make_batch_stage(StagePtr input, int64_t size, bool drop_remainder) {
  return std::make_shared<BatchStage>(std::move(input), size, drop_remainder);
}

}  // namespace troupe
