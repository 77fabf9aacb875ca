// SPDX-License-Identifier: Apache-2.0
// Elements of a barrier until they are complete.
#include "queues/barrier.h"

#include <algorithm>
#include <unordered_set>

namespace troupe {

Result<std::unique_ptr<Resource>> Barrier::make(QueueOptions options) {
  if (options.capacity != -1)
    return invalid_argument("barrier '{}' has capacity {}; it must be -1, for no bound", options.name,
                            options.capacity);
  if (options.dtypes.empty()) return invalid_argument("barrier '{}' has no components", options.name);
  QueueOptions ready = options;
  ready.dtypes.insert(ready.dtypes.begin(), DType::kString);
  if (!ready.shapes.empty()) ready.shapes.insert(ready.shapes.begin(), PartialShape::scalar());
  TROUPE_ASSIGN(std::unique_ptr<Resource> queue, PriorityQueue::make_called("barrier", std::move(ready)));
  std::unique_ptr<PriorityQueue> mine(static_cast<PriorityQueue*>(queue.release()));
  return std::unique_ptr<Resource>(new Barrier(std::move(options), std::move(mine)));
}

Status Barrier::check(int64_t component, const Tensor& keys, const Tensor& values) const {
  const auto count = static_cast<int64_t>(options_.dtypes.size());
  if (component < 0 || component >= count)
    return invalid_argument("barrier '{}' has {} components, got component_index {}", options_.name, count, component);
  const auto c = static_cast<size_t>(component);
  if (keys.dtype() != DType::kString || keys.rank() != 1)
    return invalid_argument("barrier '{}': keys must be a vector of strings, got {}", options_.name, keys.str());
  Shape row = values.shape();
  if (row.rank() > 0) row.erase(0);
  if (values.dtype() != options_.dtypes[c] || values.rank() == 0 || values.dim(0) != keys.dim(0) ||
      (!options_.shapes.empty() && !options_.shapes[c].compatible(row)))
    return invalid_argument("barrier '{}': component {} must be {} {}{}, got {}{}", options_.name, component,
                            keys.dim(0), to_string(options_.dtypes[c]),
                            options_.shapes.empty() ? "" : options_.shapes[c].str(), to_string(values.dtype()),
                            values.shape().str());
  if (cancelled_) return make_error(Code::kCancelled, "barrier '{}' is closed and cancelled", options_.name);
  std::unordered_set<std::string_view> seen;
  for (const std::string& key : keys.values<std::string>()) {
    const auto at = incomplete_.find(key);
    if (at == incomplete_.end() && closed_)
      return make_error(Code::kCancelled, "barrier '{}' is closed; key '{}' is new", options_.name, key);
    if (!seen.insert(key).second || (at != incomplete_.end() && at->second.components[c].defined()))
      return invalid_argument("barrier '{}': key '{}' has component {} already", options_.name, key, component);
  }
  return {};
}

Status Barrier::insert_many(int64_t component, const Tensor& keys, const Tensor& values) {
  TROUPE_RETURN_IF_ERROR(check(component, keys, values));
  std::vector<Tensor> rows;  // copies: an element may stay long after the others of its batch left
  Shape shape = values.shape();
  shape.erase(0);
  for (int64_t i = 0; i < keys.dim(0); ++i) {
    TROUPE_ASSIGN(Tensor row, values.slice(i, i + 1));
    TROUPE_ASSIGN(row, row.reshape(shape));
    TROUPE_ASSIGN(row, row.clone());
    rows.push_back(std::move(row));
  }
  bool any_new = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string& key = keys.data<std::string>()[i];
    const auto [at, fresh] = incomplete_.try_emplace(key);
    Incomplete& element = at->second;
    if (fresh) element = {next_index_, std::vector<Tensor>(options_.dtypes.size()), options_.dtypes.size()};
    any_new |= fresh;
    element.components[static_cast<size_t>(component)] = std::move(rows[i]);
    if (--element.missing > 0) continue;
    QueueElement complete = {Tensor::scalar(element.index), Tensor::scalar(key)};
    std::ranges::move(element.components, std::back_inserter(complete));
    incomplete_.erase(at);
    ready_->enqueue(std::move(complete), Reply());
  }
  next_index_ += any_new;
  close_if_complete();
  return {};
}

void Barrier::take_many(int64_t n, bool allow_small_batch, std::shared_ptr<Allocator> allocator, Reply reply) {
  if (allow_small_batch) ready_->dequeue_up_to(n, std::move(allocator), std::move(reply));
  else ready_->dequeue_many(n, std::move(allocator), std::move(reply));
}

Status Barrier::close(bool cancel_pending) {
  if (closed_ && (cancelled_ || !cancel_pending))
    return make_error(Code::kCancelled, "barrier '{}' is closed already", options_.name);
  closed_ = true;
  cancelled_ = cancel_pending;
  close_if_complete();
  return {};
}

void Barrier::close_if_complete() {
  if (closed_ && (cancelled_ || incomplete_.empty()) && !ready_->is_closed()) ready_->close(cancelled_, Reply());
}

}  // namespace troupe
