// SPDX-License-Identifier: Apache-2.0
#include "devices/collective_group.h"

#include <algorithm>
#include <numeric>

#include "troupe/chunk_sizes.h"

namespace troupe {
namespace {

using gpu::Collective;
using Kind = gpu::Collective::Kind;

bool agree(const CollectiveCall& a, const CollectiveCall& b) {
  return a.kind == b.kind && a.sizes == b.sizes && a.root == b.root;
}

}  // namespace

std::string CollectiveGroup::name_of(const Rank& rank) const {
  const std::string& device = runner_->members()[members_[rank.call.rank]].name;
  if (!rank.input.defined()) return device;
  return fmt::format("{} ({}{})", device, to_string(rank.input.dtype()), rank.input.shape().str());
}

Status CollectiveGroup::check(const CollectiveCall& call, const std::optional<Tensor>& input,
                              const ResourceRequest& request) const {
  if (call.rank >= members_.size() || call.root >= members_.size())
    return invalid_argument("rank {} of a collective with root {} of {} devices", call.rank, call.root,
                            members_.size());
  if (runner_->member_of(request.gpu) != members_[call.rank])
    return invalid_argument("rank {} is asked for on another device than {}", call.rank,
                            runner_->members()[members_[call.rank]].name);
  if (call.has_input() != input.has_value())
    return invalid_argument("rank {} of a {} has {} input", call.rank, to_string(call.kind), input ? "an" : "no");
  const bool sums = call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter;
  if (input && (input->space() != Space::kGpu || !request.gpu->holds(*input) || is_object(input->dtype())))
    return invalid_argument("its tensor is not in the device's memory");
  if (input && sums && !gpu::can_sum(input->dtype()))
    return make_error(Code::kUnimplemented, "GPUs have no sum of {}", to_string(input->dtype()));
  return {};
}

void CollectiveGroup::join(const CollectiveCall& call, int64_t ticket, std::optional<Tensor> input,
                           ResourceRequest request) {
  if (Status may = check(call, input, request); !may.ok()) return request.reply(std::move(may.error()));
  const Key key{request.reply.tag().step, call.name, ticket};
  Gathering& ranks = gatherings_[key];
  Rank rank{call, input ? std::move(*input) : Tensor(), std::move(request.allocator), std::move(request.reply)};
  Status agrees;
  if (ranks.contains(call.rank)) agrees = invalid_argument("{} takes part twice", name_of(rank));
  else if (!ranks.empty() && !agree(ranks.begin()->second.call, call))
    agrees = invalid_argument("{} and {} do not ask for the same", name_of(ranks.begin()->second), name_of(rank));
  if (!agrees.ok()) {
    Gathering refused = std::move(gatherings_.extract(key).mapped());
    for (auto& [number, other] : refused) other.reply(agrees.error());
    return rank.reply(std::move(agrees.error()));
  }
  ranks.emplace(call.rank, std::move(rank));
  if (ranks.size() == members_.size()) carry_out(std::move(gatherings_.extract(key).mapped()));
}

Result<Tensor> CollectiveGroup::output_of(Rank& rank, const Shape& shape, DType dtype) const {
  // An input that nobody else wants is summed in place.
  if (rank.call.kind == Kind::kAllReduce && rank.input.unique()) {
    (void)rank.input.mutable_address();
    return rank.input;
  }
  auto output = Tensor::make(dtype, shape, rank.allocator);
  if (!output.ok()) output.error().device = runner_->members()[members_[rank.call.rank]].name;
  return output;
}

Result<gpu::CollectiveRunner::Task> CollectiveGroup::task_of(Gathering& ranks) const {
  const CollectiveCall& call = ranks.at(0).call;
  const bool gathers = call.kind == Kind::kAllGather, broadcasts = call.kind == Kind::kBroadcast;
  const Rank& first = ranks.at(broadcasts ? call.root : 0);
  const DType dtype = first.input.dtype();
  Shape shape = first.input.shape();
  if (shape.rank() == 0 && (gathers || call.kind == Kind::kReduceScatter))
    return invalid_argument("{} has no axis 0", name_of(first));
  const int64_t rows = shape.rank() > 0 ? shape[0] : 1;
  std::vector<int64_t> parts;  // along the first dimension
  for (const auto& [number, rank] : ranks) {
    if (!rank.input.defined()) continue;
    Shape own = rank.input.shape();
    if (gathers && own.rank() == shape.rank()) {
      parts.push_back(own[0]);
      own.set(0, shape[0]);
    }
    if (rank.input.dtype() != dtype || own != shape)
      return invalid_argument("the tensors of {} and {} do not agree", name_of(first), name_of(rank));
  }
  if (call.kind == Kind::kReduceScatter) parts = call.sizes.empty() ? chunk_sizes(rows, ranks.size()) : call.sizes;
  int64_t all = 0;
  for (const int64_t part : parts)
    if (part < 0 || __builtin_add_overflow(all, part, &all)) return invalid_argument("a chunk of {} rows", part);
  if (call.kind == Kind::kReduceScatter && (parts.size() != ranks.size() || all != rows))
    return invalid_argument("{} chunks of {} rows together do not fit {}", parts.size(), all, name_of(first));

  gpu::CollectiveRunner::Task task;
  task.members = members_;
  Collective& collective = task.collective;
  collective.kind = call.kind;
  collective.dtype = dtype;
  collective.root = static_cast<int>(call.root);
  int64_t row = 1;  // elements of one
  for (int i = 1; i < shape.rank(); ++i) row *= shape[i];
  if (parts.empty()) collective.counts = {shape.elements()};
  for (const int64_t part : parts) collective.counts.push_back(part * row);
  // What only moves is bytes, so that there is a type for it.
  if (gathers || broadcasts) {
    for (int64_t& count : collective.counts) count *= static_cast<int64_t>(size_of(dtype));
    collective.dtype = DType::kUInt8;
  }
  for (auto& [number, rank] : ranks) {
    Shape own = shape;
    if (gathers) own.set(0, all);
    if (call.kind == Kind::kReduceScatter) own.set(0, parts[number]);
    if (broadcasts && number == call.root) task.outputs.push_back(rank.input);
    else {
      TROUPE_ASSIGN(Tensor output, output_of(rank, own, dtype));
      task.outputs.push_back(std::move(output));
    }
    task.inputs.push_back(std::move(rank.input));
  }
  return task;
}

void CollectiveGroup::carry_out(Gathering ranks) {
  auto replies = std::make_shared<std::vector<Reply>>();
  const std::string op = ranks.at(0).call.op;
  auto task = task_of(ranks);
  for (auto& [number, rank] : ranks) replies->push_back(std::move(rank.reply));
  const auto refuse = [replies, op](Error error) {
    error.op = op;
    for (Reply& reply : *replies) reply(error);
  };
  if (!task.ok()) return refuse(std::move(task.error()));
  const auto answer = [replies](std::vector<Tensor> outputs) {
    for (size_t rank = 0; rank < outputs.size(); ++rank) {
      std::vector<Tensor> output;
      output.push_back(std::move(outputs[rank]));  // its reader is to be the only one that has it
      (*replies)[rank](std::move(output));
    }
  };
  const auto& counts = task->collective.counts;
  if (std::accumulate(counts.begin(), counts.end(), int64_t{0}) == 0) return answer(std::move(task->outputs));
  const auto outputs = std::make_shared<std::vector<Tensor>>(task->outputs);
  task->done = [outputs, answer, refuse](Status status) {
    std::vector<Tensor> made = std::move(*outputs);
    if (status.ok()) answer(std::move(made));
    else refuse(std::move(status.error()));
  };
  runner_->run(std::move(*task));
}

void CollectiveGroup::cancel(uint64_t requester, int64_t step) {
  std::vector<Reply> cancelled;
  for (auto at = gatherings_.lower_bound({step, "", INT64_MIN}); at != gatherings_.end();) {
    if (std::get<0>(at->first) != step) break;
    Gathering& ranks = at->second;
    for (auto rank = ranks.begin(); rank != ranks.end();) {
      if (rank->second.reply.tag().requester == requester) {
        cancelled.push_back(std::move(rank->second.reply));
        rank = ranks.erase(rank);
      } else {
        ++rank;
      }
    }
    at = ranks.empty() ? gatherings_.erase(at) : std::next(at);
  }
  for (Reply& reply : cancelled) reply(make_error(Code::kCancelled, "waiting for the other ranks was cancelled"));
}

}  // namespace troupe
