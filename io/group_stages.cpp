// SPDX-License-Identifier: Apache-2.0
// Stages that make one element of several, or several of one: windows, padded batches, rows, groups by key.
#include <algorithm>
#include <deque>
#include <iterator>
#include <map>

#include "io/graph_stages.h"

namespace troupe {
namespace {

// -- windows ----------------------------------------------------------------------------------------------------------

struct WindowForm {
  int64_t size, shift, stride;
  bool drop_remainder;
};

class WindowFlow final : public Flow<Element> {
 public:
  WindowFlow(FlowPtr<Element> from, const WindowForm& form, GatherFn gather)
      : from_(std::move(from)), form_(form), gather_(std::move(gather)) {
    if (__builtin_mul_overflow(form_.size - 1, form_.stride, &length_) || length_ == INT64_MAX) length_ = INT64_MAX - 1;
    ++length_;
  }
  Result<std::optional<Element>> next() override {
    while (from_ && std::ssize(held_) < length_) {
      TROUPE_ASSIGN(std::optional<Element> element, from_->next());
      if (!element) from_.reset();
      else if (passed_over_ > 0) --passed_over_;
      else held_.push_back(std::move(*element));
    }
    if (held_.empty() || (form_.drop_remainder && std::ssize(held_) < length_)) return std::optional<Element>();
    std::vector<Element> window;
    for (int64_t at = 0; at < std::ssize(held_) && std::ssize(window) < form_.size; at += form_.stride) {
      window.push_back(held_[static_cast<size_t>(at)]);
      if (form_.stride > INT64_MAX - at) break;
    }
    const int64_t gone = std::min<int64_t>(form_.shift, std::ssize(held_));
    held_.erase(held_.begin(), held_.begin() + gone);
    passed_over_ = form_.shift - gone;
    TROUPE_ASSIGN(Element out, gather_(std::move(window)));
    return std::optional<Element>(std::move(out));
  }

 private:
  FlowPtr<Element> from_;  // none: it has ended
  const WindowForm form_;
  const GatherFn gather_;
  int64_t length_ = 0;       // from the first element of a window to its last
  int64_t passed_over_ = 0;  // elements between two windows
  std::deque<Element> held_;
};

class WindowStage final : public TypedStage {
 public:
  WindowStage(StagePtr input, const WindowForm& form, GatherFn gather, ComponentTypes dtypes, ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)), form_(form),
        gather_(std::move(gather)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new WindowFlow(std::move(from), form_, gather_));
  }
  int64_t size() const override {
    const int64_t n = input_->size();
    int64_t length;
    if (n < 0) return n;
    if (!form_.drop_remainder) return n / form_.shift + (n % form_.shift != 0);
    if (__builtin_mul_overflow(form_.size - 1, form_.stride, &length) || length >= n) return 0;
    return (n - length - 1) / form_.shift + 1;
  }
  bool may_wait() const override { return input_->may_wait(); }
  bool repeatable() const override { return input_->repeatable(); }

 private:
  const StagePtr input_;
  const WindowForm form_;
  const GatherFn gather_;
};

// -- padded batches ---------------------------------------------------------------------------------------------------

/// Copies a tensor to the beginning of each dimension of a larger one, of `shape`, from dimension `axis` on.
void copy_into_corner(DType dtype, const char* from, const Shape& of_from, char* to, const Shape& of_to, int axis) {
  const size_t size = size_of(dtype);
  if (axis >= of_from.rank() - 1) {
    copy_elements(dtype, from, to, axis < of_from.rank() ? of_from[axis] : 1);
    return;
  }
  size_t from_step = size, to_step = size;
  for (int i = axis + 1; i < of_from.rank(); ++i) {
    from_step *= static_cast<size_t>(of_from[i]);
    to_step *= static_cast<size_t>(of_to[i]);
  }
  for (int64_t i = 0; i < of_from[axis]; ++i)
    copy_into_corner(dtype, from + static_cast<size_t>(i) * from_step, of_from, to + static_cast<size_t>(i) * to_step,
                     of_to, axis + 1);
}

/// Sets all elements to that of a scalar.
void fill_with(Tensor& t, const Tensor& value) {
  const int64_t n = t.elements();
  if (n == 0) return;
  const size_t size = size_of(t.dtype());
  char* const out = static_cast<char*>(t.mutable_raw());
  copy_elements(t.dtype(), value.raw(), out, 1);
  for (int64_t done = 1; done < n; done = std::min(n, 2 * done))
    copy_elements(t.dtype(), out, out + static_cast<size_t>(done) * size, std::min(done, n - done));
}

class PaddedFlow final : public Flow<Element> {
 public:
  PaddedFlow(FlowPtr<Element> from, int64_t size, bool drop_remainder, ComponentShapes padded, Element values)
      : from_(std::move(from)), size_(size), drop_(drop_remainder), padded_(std::move(padded)),
        values_(std::move(values)) {}
  Result<std::optional<Element>> next() override {
    while (std::ssize(held_) < size_) {
      TROUPE_ASSIGN(std::optional<Element> element, from_->next());
      if (!element) break;
      if (element->size() != padded_.size())
        return invalid_argument("an element of {} components, where {} are padded", element->size(), padded_.size());
      held_.push_back(std::move(*element));
    }
    if (held_.empty() || (drop_ && std::ssize(held_) < size_)) return std::optional<Element>();
    const std::vector<Element> held = std::exchange(held_, {});
    Element out;
    for (size_t c = 0; c < padded_.size(); ++c) {
      TROUPE_ASSIGN(Tensor batch, padded_batch(held, c));
      out.push_back(std::move(batch));
    }
    return std::optional<Element>(std::move(out));
  }

 private:
  Result<Tensor> padded_batch(const std::vector<Element>& held, size_t c) const {
    const PartialShape& padded = padded_[c];
    const DType dtype = values_[c].dtype();
    std::vector<int64_t> dims{std::ssize(held)};
    for (int i = 0; i < padded.rank(); ++i) dims.push_back(std::max<int64_t>(padded[i], 0));
    for (const Element& element : held) {
      const Tensor& t = element[c];
      if (t.dtype() != dtype)
        return invalid_argument("component {} is {}, padding_values are {}", c, to_string(t.dtype()), to_string(dtype));
      if (t.rank() != padded.rank())
        return invalid_argument("component {} is {}, and padded_shapes are {}: their ranks must agree", c,
                                t.shape().str(), padded.str());
      for (int i = 0; i < padded.rank(); ++i) {
        if (padded[i] >= 0 && t.dim(i) > padded[i])
          return invalid_argument("component {} is {}, larger than padded_shapes {}", c, t.shape().str(), padded.str());
        int64_t& most = dims[static_cast<size_t>(i) + 1];
        most = std::max(most, t.dim(i));
      }
    }
    TROUPE_ASSIGN(const Shape shape, Shape::make(dims));
    TROUPE_ASSIGN(Tensor batch, Tensor::make(dtype, shape));
    Shape row = shape;
    row.erase(0);
    if (std::ranges::any_of(held, [&](const Element& e) { return !(e[c].shape() == row); }))
      fill_with(batch, values_[c]);
    char* to = static_cast<char*>(batch.mutable_raw());
    const size_t step = static_cast<size_t>(row.elements()) * size_of(dtype);
    for (const Element& element : held) {
      const Tensor& t = element[c];
      if (t.elements() > 0) copy_into_corner(dtype, static_cast<const char*>(t.raw()), t.shape(), to, row, 0);
      to += step;
    }
    return batch;
  }

  const FlowPtr<Element> from_;
  const int64_t size_;
  const bool drop_;
  const ComponentShapes padded_;
  const Element values_;
  std::vector<Element> held_;
};

class PaddedStage final : public FlowStage {
 public:
  PaddedStage(StagePtr input, int64_t size, bool drop_remainder, ComponentShapes padded, Element values)
      : input_(std::move(input)), size_(size), drop_(drop_remainder), padded_(std::move(padded)),
        values_(std::move(values)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new PaddedFlow(std::move(from), size_, drop_, padded_, values_));
  }
  ComponentTypes dtypes() const override { return input_->dtypes(); }
  ComponentShapes shapes() const override {
    ComponentShapes out;
    for (const PartialShape& padded : padded_) {
      if (padded.rank() == kMaxRank) {
        out.push_back(PartialShape::unknown());
        continue;
      }
      PartialShape batch = PartialShape::of_rank(padded.rank() + 1);
      if (drop_) batch.set(0, size_);
      for (int i = 0; i < padded.rank(); ++i) batch.set(i + 1, padded[i]);
      out.push_back(batch);
    }
    return out;
  }
  int64_t size() const override {
    const int64_t n = input_->size();
    return n < 0 ? n : n / size_ + (!drop_ && n % size_ != 0);
  }
  bool may_wait() const override { return input_->may_wait(); }
  bool repeatable() const override { return input_->repeatable(); }

 private:
  const StagePtr input_;
  const int64_t size_;
  const bool drop_;
  const ComponentShapes padded_;
  const Element values_;
};

// -- rows -------------------------------------------------------------------------------------------------------------

class RowsOfElementsFlow final : public Flow<Element> {
 public:
  explicit RowsOfElementsFlow(FlowPtr<Element> from) : from_(std::move(from)) {}
  Result<std::optional<Element>> next() override {
    while (at_ >= rows_) {
      TROUPE_ASSIGN(std::optional<Element> element, from_->next());
      if (!element) return element;
      at_ = rows_ = 0;
      for (size_t i = 0; i < element->size(); ++i) {
        const Tensor& t = (*element)[i];
        if (t.rank() == 0) return invalid_argument("component {} of an element is a scalar, which has no rows", i);
        if (t.dim(0) != (*element)[0].dim(0))
          return invalid_argument("components 0 and {} of an element have {} and {} rows", i, (*element)[0].dim(0),
                                  t.dim(0));
      }
      rows_ = element->empty() ? 0 : (*element)[0].dim(0);
      element_ = std::move(*element);
    }
    Element out;
    for (const Tensor& t : element_) {
      TROUPE_ASSIGN(Tensor row, row_of(t, at_));
      out.push_back(std::move(row));
    }
    ++at_;
    return std::optional<Element>(std::move(out));
  }

 private:
  const FlowPtr<Element> from_;
  Element element_;
  int64_t at_ = 0, rows_ = 0;
};

class RowsOfElementsStage final : public TypedStage {
 public:
  RowsOfElementsStage(StagePtr input, ComponentTypes dtypes, ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new RowsOfElementsFlow(std::move(from)));
  }
  int64_t size() const override { return input_->size() == 0 ? 0 : -1; }
  bool may_wait() const override { return input_->may_wait(); }
  bool repeatable() const override { return input_->repeatable(); }

 private:
  const StagePtr input_;
};

/// Rows in batches of several sizes.
class RebatchFlow final : public Flow<Element> {
 public:
  RebatchFlow(FlowPtr<Element> rows, const std::vector<int64_t>& sizes, bool drop_remainder)
      : rows_(std::move(rows)), sizes_(sizes), drop_(drop_remainder) {}
  Result<std::optional<Element>> next() override {
    const int64_t size = sizes_[at_ % sizes_.size()];
    while (std::ssize(held_) < size) {
      TROUPE_ASSIGN(std::optional<Element> row, rows_->next());
      if (!row) break;
      held_.push_back(std::move(*row));
    }
    if (held_.empty() || (drop_ && std::ssize(held_) < size)) return std::optional<Element>();
    ++at_;
    const StagePtr batch = make_batch_stage(
        make_list_stage(std::make_shared<const std::vector<Element>>(std::exchange(held_, {})), {}, {}), size, false);
    TROUPE_ASSIGN(const FlowPtr<Element> flow, elements_of(batch)(Pass()));
    return flow->next();
  }

 private:
  const FlowPtr<Element> rows_;
  const std::vector<int64_t> sizes_;
  const bool drop_;
  size_t at_ = 0;
  std::vector<Element> held_;
};

class RebatchStage final : public TypedStage {
 public:
  RebatchStage(StagePtr input, std::vector<int64_t> sizes, bool drop_remainder, ComponentTypes dtypes,
               ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)), sizes_(std::move(sizes)),
        drop_(drop_remainder) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new RebatchFlow(FlowPtr<Element>(new RowsOfElementsFlow(std::move(from))), sizes_, drop_));
  }
  int64_t size() const override { return input_->size() == 0 ? 0 : -1; }
  bool may_wait() const override { return input_->may_wait(); }
  bool repeatable() const override { return input_->repeatable(); }

 private:
  const StagePtr input_;
  const std::vector<int64_t> sizes_;
  const bool drop_;
};

// -- groups by key ----------------------------------------------------------------------------------------------------

class GroupFlow final : public Flow<Element> {
 public:
  GroupFlow(FlowPtr<Element> from, GroupFns fns, Pass pass)
      : from_(std::move(from)), fns_(std::move(fns)), pass_(std::move(pass)) {}
  Result<std::optional<Element>> next() override {
    for (;;) {
      if (group_) {
        TROUPE_ASSIGN(std::optional<Element> element, group_->next());
        if (element) return element;
        group_.reset();
      }
      if (from_) TROUPE_RETURN_IF_ERROR(take());
      else if (groups_.empty()) return std::optional<Element>();
      else TROUPE_RETURN_IF_ERROR(begin(groups_.begin()));
    }
  }

 private:
  struct Group {
    int64_t size = 0;  // of its window
    std::vector<Element> elements;
  };
  using Groups = std::map<int64_t, Group>;

  Result<int64_t> number(const PassFn& fn, Element arguments, const char* what) const {
    TROUPE_ASSIGN(const Element out, fn(pass_, std::move(arguments)));
    if (out.size() != 1 || out[0].dtype() != DType::kInt64 || out[0].elements() != 1)
      return invalid_argument("{} must give one int64 scalar", what);
    return out[0].data<int64_t>()[0];
  }

  /// Takes one element.
  Status take() {
    TROUPE_ASSIGN(std::optional<Element> element, from_->next());
    if (!element) {
      from_.reset();
      return {};
    }
    TROUPE_ASSIGN(const int64_t key, number(fns_.key, *element, "key_func"));
    auto at = groups_.find(key);
    if (at == groups_.end()) {
      TROUPE_ASSIGN(const int64_t size, number(fns_.window_size, {Tensor::scalar(key)}, "window_size_func"));
      if (size < 1) return invalid_argument("the window of key {} must be at least 1, got {}", key, size);
      at = groups_.emplace(key, Group{size, {}}).first;
    }
    at->second.elements.push_back(std::move(*element));
    return std::ssize(at->second.elements) < at->second.size ? Status() : begin(at);
  }

  /// Goes on with the dataset of a group, which is then empty.
  Status begin(Groups::iterator at) {
    const int64_t key = at->first;
    std::vector<Element> elements = std::move(at->second.elements);
    groups_.erase(at);
    TROUPE_ASSIGN(const StagePtr stage, fns_.reduce(pass_, Tensor::scalar(key), std::move(elements)));
    TROUPE_ASSIGN(group_, flow_within(stage, pass_));
    return {};
  }

  FlowPtr<Element> from_;  // none: it has ended
  const GroupFns fns_;
  const Pass pass_;
  Groups groups_;
  FlowPtr<Element> group_;  // whose elements come now
};

class GroupStage final : public TypedStage {
 public:
  GroupStage(StagePtr input, GroupFns fns, ComponentTypes dtypes, ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)), fns_(std::move(fns)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new GroupFlow(std::move(from), fns_, pass));
  }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const GroupFns fns_;
};

class ReducerFlow final : public Flow<Element> {
 public:
  ReducerFlow(FlowPtr<Element> from, ReducerFns fns, ComponentTypes dtypes, ComponentShapes shapes, Pass pass)
      : from_(std::move(from)), fns_(std::move(fns)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)),
        pass_(std::move(pass)) {}
  Result<std::optional<Element>> next() override {
    while (from_) TROUPE_RETURN_IF_ERROR(take());
    if (states_.empty()) return std::optional<Element>();
    const auto first = states_.begin();
    Element state = std::move(first->second);
    states_.erase(first);
    TROUPE_ASSIGN(Element out, fns_.end(pass_, std::move(state)));
    TROUPE_RETURN_IF_ERROR(check_components(out, dtypes_, shapes_, "finalize_func"));
    return std::optional<Element>(std::move(out));
  }

 private:
  Status take() {
    TROUPE_ASSIGN(std::optional<Element> element, from_->next());
    if (!element) {
      from_.reset();
      return {};
    }
    TROUPE_ASSIGN(const Element key, fns_.key(pass_, *element));
    if (key.size() != 1 || key[0].dtype() != DType::kInt64 || key[0].elements() != 1)
      return invalid_argument("key_func must give one int64 scalar");
    auto at = states_.find(key[0].data<int64_t>()[0]);
    if (at == states_.end()) {
      TROUPE_ASSIGN(Element state, fns_.begin(pass_, key));
      at = states_.emplace(key[0].data<int64_t>()[0], std::move(state)).first;
    }
    Element arguments = at->second;
    std::ranges::move(*element, std::back_inserter(arguments));
    TROUPE_ASSIGN(Element state, fns_.reduce(pass_, std::move(arguments)));
    if (state.size() != at->second.size())
      return invalid_argument("reduce_func gave {} values, where the state has {}", state.size(), at->second.size());
    at->second = std::move(state);
    return {};
  }

  FlowPtr<Element> from_;  // none: it has ended
  const ReducerFns fns_;
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
  const Pass pass_;
  std::map<int64_t, Element> states_;
};

class ReducerStage final : public TypedStage {
 public:
  ReducerStage(StagePtr input, ReducerFns fns, ComponentTypes dtypes, ComponentShapes shapes)
      : TypedStage(std::move(dtypes), std::move(shapes)), input_(std::move(input)), fns_(std::move(fns)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new ReducerFlow(std::move(from), fns_, dtypes_, shapes_, pass));
  }
  int64_t size() const override { return input_->size() == 0 ? 0 : -1; }
  bool repeatable() const override { return false; }

 private:
  const StagePtr input_;
  const ReducerFns fns_;
};

}  // namespace

StagePtr make_rebatch_stage(StagePtr input, std::vector<int64_t> sizes, bool drop_remainder, ComponentTypes dtypes,
                            ComponentShapes shapes) {
  return std::make_shared<RebatchStage>(std::move(input), std::move(sizes), drop_remainder, std::move(dtypes),
                                        std::move(shapes));
}

StagePtr make_reducer_stage(StagePtr input, ReducerFns fns, ComponentTypes dtypes, ComponentShapes shapes) {
  return std::make_shared<ReducerStage>(std::move(input), std::move(fns), std::move(dtypes), std::move(shapes));
}

StagePtr make_window_stage(StagePtr input, int64_t size, int64_t shift, int64_t stride, bool drop_remainder,
                           GatherFn gather, ComponentTypes dtypes, ComponentShapes shapes) {
  return std::make_shared<WindowStage>(std::move(input), WindowForm{size, shift, stride, drop_remainder},
                                       std::move(gather), std::move(dtypes), std::move(shapes));
}

StagePtr make_padded_batch_stage(StagePtr input, int64_t size, bool drop_remainder, ComponentShapes padded,
                                 Element values) {
  for (const Tensor& t : values) t.freeze();
  return std::make_shared<PaddedStage>(std::move(input), size, drop_remainder, std::move(padded), std::move(values));
}

StagePtr make_unbatch_stage(StagePtr input, ComponentTypes dtypes, ComponentShapes shapes) {
  return std::make_shared<RowsOfElementsStage>(std::move(input), std::move(dtypes), std::move(shapes));
}

StagePtr make_group_stage(StagePtr input, GroupFns fns, ComponentTypes dtypes, ComponentShapes shapes) {
  return std::make_shared<GroupStage>(std::move(input), std::move(fns), std::move(dtypes), std::move(shapes));
}

}  // namespace troupe
