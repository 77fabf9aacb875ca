// SPDX-License-Identifier: Apache-2.0
// Stores of the first-in-first-out queues, and padding.
#include "queues/fifo_queue.h"

#include <algorithm>
#include <cstring>

namespace troupe {

Result<std::unique_ptr<Resource>> FifoQueue::make(QueueOptions options) {
  TROUPE_RETURN_IF_ERROR(check(options));
  return std::unique_ptr<Resource>(new FifoQueue(std::move(options)));
}

QueueElement FifoQueue::pop() {
  QueueElement element = std::move(store_.front());
  store_.pop_front();
  return element;
}

Result<std::unique_ptr<Resource>> PaddingFifoQueue::make(QueueOptions options) {
  TROUPE_RETURN_IF_ERROR(check(options));
  if (options.shapes.size() != options.dtypes.size())
    return invalid_argument("queue '{}' pads its components: it needs a shape for each of the {}", options.name,
                            options.dtypes.size());
  for (size_t i = 0; i < options.shapes.size(); ++i)
    if (!options.shapes[i].has_rank() || options.shapes[i].rank() == kMaxRank)
      return invalid_argument(
          "queue '{}' pads its components: component {} needs a known rank below {}, its shape is {}", options.name, i,
          kMaxRank, options.shapes[i].str());
  return std::unique_ptr<Resource>(new PaddingFifoQueue(std::move(options)));
}

namespace {

/// Copies `from` into the corner of a block of shape `sizes` at element `at` of `to`, from dimension `d` on.
template <class Copy>
void copy_corner(const Shape& from, const Shape& sizes, int d, int64_t source, int64_t target, const Copy& copy) {
  if (d >= from.rank() - 1) return copy(source, target, from.rank() ? from[d] : 1);
  int64_t source_stride = 1, target_stride = 1;
  for (int i = d + 1; i < from.rank(); ++i) {
    source_stride *= from[i];
    target_stride *= sizes[i];
  }
  for (int64_t i = 0; i < from[d]; ++i)
    copy_corner(from, sizes, d + 1, source + i * source_stride, target + i * target_stride, copy);
}

}  // namespace

Result<Tensor> PaddingFifoQueue::stack(size_t c, const std::vector<QueueElement>& rows,
                                       const std::shared_ptr<Allocator>& allocator) const {
  std::vector<int64_t> dims(options().shapes[c].dims().begin(), options().shapes[c].dims().end());
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] < 0) {
      dims[d] = 0;
      for (const QueueElement& row : rows) dims[d] = std::max(dims[d], row[c].shape()[static_cast<int>(d)]);
    }
  const Shape sizes{std::span<const int64_t>(dims)};
  dims.insert(dims.begin(), static_cast<int64_t>(rows.size()));
  TROUPE_ASSIGN(const Shape shape, Shape::make(dims));
  TROUPE_ASSIGN(Tensor out, Tensor::zeros(options().dtypes[c], shape, allocator));
  const size_t bytes = size_of(out.dtype());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Tensor& t = rows[i][c];
    if (t.elements() == 0) continue;
    copy_corner(t.shape(), sizes, 0, 0, static_cast<int64_t>(i) * sizes.elements(),
                [&](int64_t source, int64_t target, int64_t n) {
                  copy_elements(t.dtype(), static_cast<const char*>(t.raw()) + source * bytes,
                                static_cast<char*>(out.mutable_raw()) + target * bytes, n);
                });
  }
  return out;
}

}  // namespace troupe
