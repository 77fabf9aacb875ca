// SPDX-License-Identifier: Apache-2.0
// A ring of elements, and a tree of the sums of their weights by which one is drawn in log(capacity) steps.
#include "troupe/replay_memory.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>

#include "io/dataset_stages.h"
#include "troupe/guarded.h"

namespace troupe {

/// Numbers by place, whose sums are known: node i has children 2i and 2i + 1, the root is 1.
class SumTree {
 public:
  double total() const { return nodes_.size() < 2 ? 0 : nodes_[1]; }
  double at(size_t place) const { return nodes_[leaves_ + place]; }
  void set(size_t place, double value) {
    if (place >= leaves_) grow(place + 1);
    size_t node = leaves_ + place;
    nodes_[node] = value;
    // From the leaves, so that no rounding is carried on.
    while (node >>= 1) nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
  }
  /// The first place whose number, added to all before, is beyond `sum`; of `size` places, none of them 0.
  size_t find(double sum, size_t size) const {
    size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (sum < nodes_[node] || nodes_[node + 1] == 0) continue;
      sum -= nodes_[node];
      ++node;
    }
    return std::min(node - leaves_, size - 1);
  }

 private:
  void grow(size_t places) {
    size_t leaves = std::max<size_t>(leaves_, 1);
    while (leaves < places) leaves *= 2;
    std::vector<double> nodes(2 * leaves);
    if (leaves_ > 0)
      std::copy_n(nodes_.begin() + static_cast<ptrdiff_t>(leaves_), leaves_,
                  nodes.begin() + static_cast<ptrdiff_t>(leaves));
    for (size_t node = leaves; --node > 0;) nodes[node] = nodes[2 * node] + nodes[2 * node + 1];
    nodes_ = std::move(nodes);
    leaves_ = leaves;
  }

  size_t leaves_ = 0;
  std::vector<double> nodes_;
};

namespace {

/// Elements of one batch.
constexpr int64_t kMostDrawn = int64_t{1} << 24;

bool is_priority(double x) { return x > 0 && std::isfinite(x); }

Error bad_priority(double x) { return invalid_argument("a priority must be above 0 and finite, got {}", x); }

}  // namespace

class ReplayMemory::State {
 public:
  State(std::vector<DType> dtypes, std::vector<PartialShape> shapes, const ReplayOptions& options)
      : dtypes_(std::move(dtypes)), shapes_(std::move(shapes)), options_(options), random_(options.seed) {}

  Result<int64_t> add(Element element, std::optional<double> priority) {
    if (priority && !is_priority(*priority)) return bad_priority(*priority);
    TROUPE_RETURN_IF_ERROR(check_components(element, dtypes_, shapes_, "the caller of add"));
    for (const Tensor& t : element) t.freeze();
    std::unique_lock lock(mutex_);
    if (closed_) return make_error(Code::kFailedPrecondition, "add: the replay memory is closed");
    if (priority) largest_ = std::max(largest_, *priority);
    const size_t place = place_of(added_);
    Element old;  // goes when the lock is free
    if (place == elements_.size()) elements_.push_back(std::move(element));
    else old = std::exchange(elements_[place], std::move(element));
    shares_.set(place, share_of(priority.value_or(largest_)));
    const int64_t id = added_++;
    lock.unlock();
    changed_.notify_all();
    return id;
  }

  Result<ReplaySample> sample(int64_t count) {
    if (count < 1 || count > kMostDrawn)
      return invalid_argument("sample: 1 to {} elements can be drawn, got {}", kMostDrawn, count);
    std::vector<Element> drawn;
    ReplaySample out;
    std::vector<double> weights;
    {
      const std::lock_guard lock(mutex_);
      if (elements_.empty()) return make_error(Code::kFailedPrecondition, "sample: the replay memory is empty");
      const double total = shares_.total();
      for (int64_t i = 0; i < count; ++i) {
        const double at = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
        const size_t place = shares_.find(at, elements_.size());
        drawn.push_back(elements_[place]);
        out.ids.push_back(id_at(place));
        const double chance = static_cast<double>(elements_.size()) * (shares_.at(place) / total);
        weights.push_back(std::pow(chance, -options_.weight_exponent));
      }
    }
    const double largest = *std::ranges::max_element(weights);
    for (const double weight : weights) out.weights.push_back(static_cast<float>(weight / largest));
    for (size_t c = 0; c < dtypes_.size(); ++c) {
      std::vector<int64_t> dims = {count};
      dims.insert(dims.end(), drawn[0][c].shape().begin(), drawn[0][c].shape().end());
      TROUPE_ASSIGN(const Shape shape, Shape::make(dims));
      TROUPE_ASSIGN(Tensor batch, Tensor::make(dtypes_[c], shape));
      char* target = static_cast<char*>(batch.mutable_raw());
      for (const Element& element : drawn) {
        copy_elements(dtypes_[c], element[c].raw(), target, element[c].elements());
        target += element[c].bytes();
      }
      out.batch.push_back(std::move(batch));
    }
    return out;
  }

  Status set_priorities(std::span<const int64_t> ids, std::span<const double> priorities) {
    if (ids.size() != priorities.size())
      return invalid_argument("set_priorities: {} priorities for {} elements", priorities.size(), ids.size());
    for (const double priority : priorities)
      if (!is_priority(priority)) return bad_priority(priority);
    const std::lock_guard lock(mutex_);
    for (const int64_t id : ids)
      if (id < 0 || id >= added_)
        return invalid_argument("set_priorities: there is no element {}; {} were added", id, added_);
    for (size_t i = 0; i < ids.size(); ++i) {
      largest_ = std::max(largest_, priorities[i]);
      if (ids[i] >= added_ - std::ssize(elements_)) shares_.set(place_of(ids[i]), share_of(priorities[i]));
    }
    return {};
  }

  /// Whether there are `least` elements; waits for them. False: closed, or stopped.
  bool await(int64_t least, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    return changed_.wait(lock, stop, [&] { return closed_ || std::ssize(elements_) >= least; }) && !closed_;
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  int64_t size() const {
    const std::lock_guard lock(mutex_);
    return std::ssize(elements_);
  }
  int64_t added() const {
    const std::lock_guard lock(mutex_);
    return added_;
  }

  const std::vector<DType>& dtypes() const { return dtypes_; }
  const std::vector<PartialShape>& shapes() const { return shapes_; }
  int64_t capacity() const { return options_.capacity; }

 private:
  size_t place_of(int64_t id) const { return static_cast<size_t>(id % options_.capacity); }
  /// Of the element that is at a place now.
  int64_t id_at(size_t place) const {
    const int64_t newest = added_ - 1, back = newest % options_.capacity - static_cast<int64_t>(place);
    return newest - (back < 0 ? back + options_.capacity : back);
  }
  /// Within what the sums of any number of elements can hold.
  double share_of(double priority) const {
    return std::clamp(std::pow(priority, options_.priority_exponent), 1e-200, 1e200);
  }

  const std::vector<DType> dtypes_;
  const std::vector<PartialShape> shapes_;
  const ReplayOptions options_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable_any changed_;
  std::mt19937_64 random_;
  std::vector<Element> elements_;  // by id modulo the capacity
  SumTree shares_;                 // priority ^ exponent, by the same
  double largest_ = 1;
  int64_t added_ = 0;
  bool closed_ = false;
};

Result<ReplayMemory> ReplayMemory::create(std::vector<DType> dtypes, std::vector<PartialShape> shapes,
                                          ReplayOptions options) {
  if (dtypes.empty()) return invalid_argument("a replay memory needs the dtypes of its components");
  if (shapes.size() != dtypes.size())
    return invalid_argument("a replay memory has {} dtypes, but {} shapes", dtypes.size(), shapes.size());
  for (size_t c = 0; c < shapes.size(); ++c)
    if (!shapes[c].fully_known() || shapes[c].rank() >= kMaxRank)
      return invalid_argument(
          "component {} of a replay memory has shape {}; all sizes must be known, and the rank below {}", c,
          shapes[c].str(), kMaxRank);
  if (options.capacity < 1)
    return invalid_argument("the capacity of a replay memory must be at least 1, got {}", options.capacity);
  for (const double exponent : {options.priority_exponent, options.weight_exponent})
    if (!(exponent >= 0) || !std::isfinite(exponent))
      return invalid_argument("the exponents of a replay memory must be at least 0 and finite, got {}", exponent);
  return ReplayMemory(std::make_shared<State>(std::move(dtypes), std::move(shapes), options));
}

Result<int64_t> ReplayMemory::add(Element element, std::optional<double> priority) const {
  return guarded([&] { return state_->add(std::move(element), priority); });
}
Result<ReplaySample> ReplayMemory::sample(int64_t count) const {
  return guarded([&] { return state_->sample(count); });
}
Status ReplayMemory::set_priorities(std::span<const int64_t> ids, std::span<const double> priorities) const {
  return state_->set_priorities(ids, priorities);
}
void ReplayMemory::close() const { state_->close(); }
int64_t ReplayMemory::size() const { return state_->size(); }
int64_t ReplayMemory::added() const { return state_->added(); }

Result<Dataset> ReplayMemory::samples(int64_t count, int64_t least) const {
  if (count < 1 || count > kMostDrawn)
    return invalid_argument("samples: batches can have 1 to {} elements, got {}", kMostDrawn, count);
  if (least < 1 || least > state_->capacity())
    return invalid_argument("samples: {} elements to wait for, of a memory of {}", least, state_->capacity());
  std::vector<DType> dtypes = state_->dtypes();
  std::vector<PartialShape> shapes;
  for (const PartialShape& row : state_->shapes()) {
    PartialShape batch = {count};
    for (const int64_t size : row.dims()) batch.push_back(size);
    shapes.push_back(batch);
  }
  dtypes.insert(dtypes.end(), {DType::kInt64, DType::kFloat32});
  shapes.insert(shapes.end(), 2, PartialShape{count});
  return Dataset::from_function(
      [state = state_, count, least](const std::stop_token& stop) -> Result<std::optional<Element>> {
        if (!state->await(least, stop)) return std::optional<Element>();
        TROUPE_ASSIGN(ReplaySample drawn, state->sample(count));
        drawn.batch.push_back(Tensor::of<int64_t>(drawn.ids));
        drawn.batch.push_back(Tensor::of<float>(drawn.weights));
        return std::optional<Element>(std::move(drawn.batch));
      },
      std::move(dtypes), std::move(shapes));
}

}  // namespace troupe
