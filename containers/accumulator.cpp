// SPDX-License-Identifier: Apache-2.0
// Who waits for gradients.
#include "containers/accumulator.h"

namespace troupe {

Status Accumulator::check(const std::string& name, DType dtype) {
  if (is_floating(dtype)) return {};
  return invalid_argument("accumulator '{}' is for {}; gradients are floating", name, to_string(dtype));
}

void Accumulator::add_one() {
  ++count_;
  serve();
}

void Accumulator::take_gradient(int64_t num_required, Reply reply) {
  if (num_required < 1)
    return reply(invalid_argument("accumulator '{}' was asked for {} gradients", name_, num_required));
  takes_.push_back({num_required, std::move(reply)});
  serve();
}

void Accumulator::serve() {
  while (!takes_.empty() && count_ >= takes_.front().required) {
    Take take = std::move(takes_.front());
    takes_.pop_front();
    auto gradient = reduce();
    if (gradient.ok()) {
      count_ = 0;
      ++global_step_;
    }
    take.reply(std::move(gradient));
  }
}

void Accumulator::cancel(uint64_t requester, int64_t step) {
  std::vector<Reply> cancelled;
  std::erase_if(takes_, [&](Take& t) {
    if (t.reply.tag().requester != requester || t.reply.tag().step != step) return false;
    cancelled.push_back(std::move(t.reply));
    return true;
  });
  for (Reply& reply : cancelled)
    reply(make_error(Code::kCancelled, "taking a gradient from accumulator '{}' was cancelled", name_));
  serve();
}

}  // namespace troupe
