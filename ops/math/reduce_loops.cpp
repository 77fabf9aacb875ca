// SPDX-License-Identifier: Apache-2.0
// The order of reductions.
#include "ops/math/reduce_loops.h"

#include <algorithm>
#include <memory>

#include "devices/parallel.h"
#include "ops/parts/reduce_plan.h"

namespace troupe {
namespace {

constexpr int64_t kShortLine = 64;   // elements of lines for which calls are dear
constexpr int64_t kBlock = 4096;     // elements summed before their sum joins the others
constexpr int64_t kChunk = 1024;     // columns a unit of work takes at once
constexpr int64_t kRowBlock = 256;   // rows summed before their sums join the others
constexpr int64_t kSegment = 32768;  // elements worth a unit of their own when outputs are few

class ReductionLoop {
 public:
  ReductionLoop(const ReducePlan& plan, const Tensor& x, const ReduceLoops& loops, void* out, int threads)
      : plan_(plan), loops_(loops), x_(static_cast<const char*>(x.raw())),
        size_(static_cast<int64_t>(size_of(x.dtype()))), out_(static_cast<char*>(out)), threads_(threads) {}

  /// Innermost elements meet in one result.
  void inner() {
    const int64_t outputs = plan_.kept.count(), rows = plan_.reduced.count(), total = rows * plan_.inner;
    const int64_t segments = outputs >= 16 || total < 2 * kSegment ? 1 : std::min<int64_t>(total / kSegment, 64);
    if (segments == 1) {
      parallel_for(threads_, outputs, std::max<int64_t>(kCheapGrain / std::max<int64_t>(total, 1), 1),
                   [&](int64_t begin, int64_t end) {
                     // Lines that lie one after the other.
                     if (loops_.lines && total == plan_.inner && total <= kShortLine)
                       return loops_.lines(out_ + begin * size_, x_ + begin * total * size_, end - begin, total);
                     for (int64_t o = begin; o < end; ++o) {
                       AccumulatorRoom acc;
                       loops_.init(&acc, 1);
                       inner_segment(&acc, o, 0, total);
                       loops_.finish(out_ + o * size_, &acc, 1, total);
                     }
                   });
      return;
    }
    const auto acc = std::make_unique<AccumulatorRoom[]>(static_cast<size_t>(outputs * segments));
    parallel_for(threads_, outputs * segments, 1, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        loops_.init(&acc[u], 1);
        inner_segment(&acc[u], u / segments, total * (u % segments) / segments, total * (u % segments + 1) / segments);
      }
    });
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t s = 1; s < segments; ++s) loops_.merge(&acc[o * segments], &acc[o * segments + s], 1);
      loops_.finish(out_ + o * size_, &acc[o * segments], 1, total);
    }
  }

  /// Innermost elements belong to different results.
  void outer() {
    const int64_t outputs = plan_.kept.count(), rows = plan_.reduced.count();
    const int64_t chunks = (plan_.inner + kChunk - 1) / kChunk;
    const int64_t work = rows * std::min(plan_.inner, kChunk);
    const int64_t segments = outputs * chunks >= 16 || work < 2 * kSegment
                                 ? 1
                                 : std::clamp<int64_t>(work / kSegment, 1, std::min<int64_t>(rows, 32));
    const int64_t units = outputs * chunks * segments;
    std::unique_ptr<AccumulatorRoom[]> all;
    if (segments > 1) all = std::make_unique<AccumulatorRoom[]>(static_cast<size_t>(units * kChunk));
    parallel_for(threads_, units, std::max<int64_t>(kCheapGrain * segments / std::max<int64_t>(work, 1), 1),
                 [&](int64_t begin, int64_t end) {
                   alignas(64) AccumulatorRoom local[kChunk];
                   for (int64_t u = begin; u < end; ++u) {
                     const int64_t segment = u % segments, chunk = u / segments % chunks, o = u / segments / chunks;
                     const int64_t from = chunk * kChunk, n = std::min(kChunk, plan_.inner - from);
                     AccumulatorRoom* acc = segments > 1 ? &all[u * kChunk] : local;
                     loops_.init(acc, n);
                     column_segment(acc, plan_.kept.offset(o) + from, n, rows * segment / segments,
                                    rows * (segment + 1) / segments);
                     if (segments == 1) loops_.finish(out_ + (o * plan_.inner + from) * size_, acc, n, rows);
                   }
                 });
    for (int64_t u = 0; segments > 1 && u < outputs * chunks; ++u) {
      const int64_t from = u % chunks * kChunk, n = std::min(kChunk, plan_.inner - from);
      AccumulatorRoom* acc = &all[u * segments * kChunk];
      for (int64_t s = 1; s < segments; ++s) loops_.merge(acc, acc + s * kChunk, n);
      loops_.finish(out_ + (u / chunks * plan_.inner + from) * size_, acc, n, rows);
    }
  }

 private:
  /// One result takes elements [begin, end) of those it is made of.
  void inner_segment(void* acc, int64_t output, int64_t begin, int64_t end) {
    const int64_t base = plan_.kept.offset(output);
    while (begin < end) {
      const int64_t row = begin / plan_.inner, column = begin % plan_.inner;
      const int64_t n = std::min({plan_.inner - column, kBlock, end - begin});
      const char* at = x_ + (base + plan_.reduced.offset(row) + column) * size_;
      AccumulatorRoom block;
      loops_.init(&block, 1);
      loops_.run(&block, at, n);
      loops_.merge(acc, &block, 1);
      begin += n;
    }
  }

  /// n results take rows [begin, end).
  void column_segment(void* acc, int64_t base, int64_t n, int64_t begin, int64_t end) {
    if (end - begin <= kRowBlock) {
      for (int64_t r = begin; r < end; ++r) loops_.rows(acc, row(base, r), n);
      return;
    }
    alignas(64) AccumulatorRoom block[kChunk];
    for (int64_t r = begin; r < end;) {
      const int64_t stop = std::min(end, r + kRowBlock);
      loops_.init(block, n);
      for (; r < stop; ++r) loops_.rows(block, row(base, r), n);
      loops_.merge(acc, block, n);
    }
  }
  const char* row(int64_t base, int64_t r) const { return x_ + (base + plan_.reduced.offset(r)) * size_; }

  const ReducePlan& plan_;
  const ReduceLoops& loops_;
  const char* const x_;
  const int64_t size_;  // bytes of an element of the input and of the output
  char* const out_;
  const int threads_;
};

}  // namespace

void reduce(const Tensor& x, std::span<const bool> reduced, const ReduceLoops& loops, void* out, int threads) {
  const ReducePlan plan = plan_reduce(x.shape(), reduced);
  ReductionLoop reduction(plan, x, loops, out, threads);
  if (plan.inner_reduced) reduction.inner();
  else reduction.outer();
}

void reduce_row(const void* x, int64_t n, size_t size, const ReduceLoops& loops, void* out) {
  AccumulatorRoom acc;
  loops.init(&acc, 1);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    AccumulatorRoom block;
    loops.init(&block, 1);
    loops.run(&block, static_cast<const char*>(x) + static_cast<size_t>(begin) * size, std::min(kBlock, n - begin));
    loops.merge(&acc, &block, 1);
  }
  loops.finish(out, &acc, 1, n);
}

Status ReduceKernel::compute(KernelContext& c) {
  const Tensor& x = c.input(0);
  std::array<bool, kMaxRank> reduced;
  reduced.fill(true);
  if (!all_) {
    TROUPE_ASSIGN(reduced, reduced_axes(c.input(1), x.rank()));
  }
  TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), reduced_shape(x.shape(), reduced, keep_dims_)));
  if (y.elements() > 0) reduce(x, reduced, loops_, y.mutable_raw(), c.threads());
  c.set_output(0, std::move(y));
  return {};
}

}  // namespace troupe
