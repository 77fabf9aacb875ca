// SPDX-License-Identifier: Apache-2.0
// Waiting requests of a queue, and how elements become batches and back.
#include "queues/queue.h"

#include <algorithm>
#include <cstring>

namespace troupe {
namespace {

std::string describe(DType dtype, const std::string& shape) { return to_string(dtype) + shape; }

}  // namespace

Status Queue::check(const QueueOptions& options) {
  if (options.dtypes.empty()) return invalid_argument("queue '{}' has no components", options.name);
  if (!options.shapes.empty() && options.shapes.size() != options.dtypes.size())
    return invalid_argument("queue '{}' has {} component types but {} shapes", options.name, options.dtypes.size(),
                            options.shapes.size());
  if (options.capacity < -1 || options.capacity == 0)
    return invalid_argument("queue '{}' has capacity {}; it must be positive, or -1 for no bound", options.name,
                            options.capacity);
  return {};
}

Status Queue::check_components(const QueueElement& element, bool many) const {
  const auto& dtypes = options_.dtypes;
  if (element.size() != dtypes.size())
    return invalid_argument("{} '{}' has {} components, got {}", kind(), options_.name, dtypes.size(), element.size());
  for (size_t i = 0; i < element.size(); ++i) {
    const Tensor& t = element[i];
    if (many && (t.rank() == 0 || t.dim(0) != element[0].dim(0)))
      return invalid_argument("{} '{}': component {} of a batch of {} has shape {}", kind(), options_.name, i,
                              element[0].rank() ? std::to_string(element[0].dim(0)) : "elements", t.shape().str());
    Shape shape = t.shape();
    if (many) shape.erase(0);
    if (t.dtype() != dtypes[i] || (!options_.shapes.empty() && !options_.shapes[i].compatible(shape)))
      return invalid_argument("{} '{}': component {} must be {}, got {}", kind(), options_.name, i,
                              describe(dtypes[i], options_.shapes.empty() ? "" : options_.shapes[i].str()),
                              describe(t.dtype(), shape.str()));
  }
  return {};
}

void Queue::enqueue(QueueElement element, Reply reply) {
  if (Status fits = check_components(element, false); !fits.ok()) return reply(std::move(fits.error()));
  puts_.push_back({std::move(reply), std::move(element), 0, 1});
  settle();
}

void Queue::enqueue_many(QueueElement batch, Reply reply) {
  if (Status fits = check_components(batch, true); !fits.ok()) return reply(std::move(fits.error()));
  const int64_t count = batch[0].dim(0);
  if (count == 0) return reply(std::vector<Tensor>());
  puts_.push_back({std::move(reply), std::move(batch), 0, count, true});
  settle();
}

void Queue::dequeue(Reply reply) {
  takes_.push_back({std::move(reply)});
  settle();
}

void Queue::dequeue_many(int64_t n, std::shared_ptr<Allocator> allocator, Reply reply) {
  take_many(n, false, std::move(allocator), std::move(reply));
}

void Queue::dequeue_up_to(int64_t n, std::shared_ptr<Allocator> allocator, Reply reply) {
  take_many(n, true, std::move(allocator), std::move(reply));
}

void Queue::take_many(int64_t n, bool up_to, std::shared_ptr<Allocator> allocator, Reply reply) {
  if (n < 0) return reply(invalid_argument("{} '{}' was asked for {} elements", kind(), options_.name, n));
  if (Status ok = stackable(); !ok.ok()) return reply(std::move(ok.error()));
  if (n > 0) {
    takes_.push_back({std::move(reply), n, true, up_to, std::move(allocator)});
    return settle();
  }
  std::vector<Tensor> none;
  for (size_t c = 0; c < options_.dtypes.size(); ++c) {
    auto t = stack(c, {}, allocator);
    if (!t.ok()) return reply(std::move(t.error()));
    none.push_back(std::move(*t));
  }
  reply(std::move(none));
}

void Queue::close(bool cancel_pending_enqueues, Reply reply) {
  if (cancel_pending_enqueues)
    for (; !puts_.empty(); puts_.pop_front())
      answer(puts_.front().reply, make_error(Code::kCancelled, "{} '{}' was closed and its waiting enqueues cancelled",
                                             kind(), options_.name));
  puts_.push_back({std::move(reply), {}, 0, 0, false, true});
  settle();
}

void Queue::cancel(uint64_t requester, int64_t step) {
  const auto drop = [&](auto& waiting, const char* what) {
    std::erase_if(waiting, [&](auto& w) {
      if (w.reply.tag().requester != requester || w.reply.tag().step != step) return false;
      if constexpr (requires { w.collected; }) return_collected(w);
      answer(w.reply, make_error(Code::kCancelled, "{} of {} '{}' was cancelled", what, kind(), options_.name));
      return true;
    });
  };
  drop(puts_, "an enqueue");
  drop(takes_, "a dequeue");
  settle();
}

Result<QueueElement> Queue::row(const Put& put) const {
  QueueElement element;
  element.reserve(put.batch.size());
  for (const Tensor& t : put.batch) {
    Shape shape = t.shape();
    shape.erase(0);
    TROUPE_ASSIGN(Tensor view, t.slice(put.next, put.next + 1));
    TROUPE_ASSIGN(view, view.reshape(shape));
    if (copy_rows_) {
      TROUPE_ASSIGN(view, view.clone());
    }
    element.push_back(std::move(view));
  }
  return element;
}

bool Queue::serve_puts() {
  bool progress = false;
  for (; !puts_.empty(); puts_.pop_front(), progress = true) {
    Put& put = puts_.front();
    if (closed_) {
      answer(put.reply,
             make_error(Code::kCancelled, "{} '{}' is {}closed", kind(), options_.name, put.closes ? "already " : ""));
      continue;
    }
    if (put.closes) {
      closed_ = true;
      answer(put.reply, std::vector<Tensor>());
      continue;
    }
    Status status;
    for (; put.next < put.count && !full(); ++put.next) {
      if (!put.many) {
        push(std::move(put.batch));
      } else if (auto element = row(put); element.ok()) {
        push(std::move(*element));
      } else {
        status = std::move(element.error());
        break;
      }
      progress = true;
    }
    if (!status.ok()) answer(put.reply, std::move(status.error()));
    else if (put.next == put.count) answer(put.reply, std::vector<Tensor>());
    else break;
  }
  return progress;
}

void Queue::return_collected(Take& take) {
  for (; !take.collected.empty(); take.collected.pop_back()) give_back(std::move(take.collected.back()));
}

bool Queue::serve_takes() {
  bool progress = false;
  for (; !takes_.empty(); takes_.pop_front(), progress = true) {
    Take& take = takes_.front();
    if (closed_ && size() + static_cast<int64_t>(take.collected.size()) < take.wanted) {
      return_collected(take);
      if (!take.up_to || size() == 0) {
        answer(take.reply, make_error(Code::kOutOfRange,
                                      "{} '{}' is closed and has insufficient elements (requested {}, current size {})",
                                      kind(), options_.name, take.wanted, size()));
        continue;
      }
      take.wanted = size();
    }
    int64_t there = closed_ ? size() : available();
    for (; static_cast<int64_t>(take.collected.size()) < take.wanted && there > 0; --there) {
      take.collected.push_back(pop());
      progress = true;
    }
    if (static_cast<int64_t>(take.collected.size()) < take.wanted) break;
    if (!take.many) {
      answer(take.reply, std::move(take.collected[0]));
      continue;
    }
    std::vector<Tensor> outputs;
    Status status;
    for (size_t c = 0; c < options_.dtypes.size() && status.ok(); ++c) {
      auto t = stack(c, take.collected, take.allocator);
      if (t.ok()) outputs.push_back(std::move(*t));
      else status = std::move(t.error());
    }
    if (status.ok()) {
      answer(take.reply, std::move(outputs));
    } else {
      return_collected(take);
      answer(take.reply, std::move(status.error()));
    }
  }
  return progress;
}

void Queue::settle() {
  while (serve_puts() | serve_takes()) {
  }
  for (Answer& a : std::exchange(answers_, {})) a.reply(std::move(a.outputs));
}

Status Queue::stackable() const {
  if (!options_.shapes.empty() && std::ranges::all_of(options_.shapes, &PartialShape::fully_known)) return {};
  return invalid_argument("{} '{}' has components without a full shape: its elements cannot be dequeued as a batch",
                          kind(), options_.name);
}

Result<Tensor> Queue::stack(size_t c, const std::vector<QueueElement>& rows,
                            const std::shared_ptr<Allocator>& allocator) const {
  Shape shape = options_.shapes[c].shape();
  if (shape.rank() == kMaxRank)
    return invalid_argument("{} '{}': component {} of shape {} cannot be stacked: a tensor has at most {} dimensions",
                            kind(), options_.name, c, shape.str(), kMaxRank);
  shape.insert(0, static_cast<int64_t>(rows.size()));
  TROUPE_ASSIGN(Tensor out, Tensor::make(options_.dtypes[c], shape, allocator));
  const int64_t n = rows.empty() ? 0 : out.elements() / static_cast<int64_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Tensor& t = rows[i][c];
    copy_elements(t.dtype(), t.raw(), static_cast<char*>(out.mutable_raw()) + i * t.bytes(), n);
  }
  return out;
}

}  // namespace troupe
