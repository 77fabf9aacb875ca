// SPDX-License-Identifier: Apache-2.0
// What a staging map holds, and who waits for it.
#include "queues/staging_map.h"

#include <algorithm>

#include "troupe/attr.h"

namespace troupe {
namespace {

int64_t bytes_of(const Tensor& t) { return static_cast<int64_t>(t.bytes()); }

}  // namespace

Result<std::unique_ptr<Resource>> StagingMap::make(StagingMapOptions options) {
  for (const auto& [what, bound] : {std::pair{"capacity", options.capacity}, {"memory_limit", options.memory_limit}})
    if (bound < 0)
      return invalid_argument("staging map '{}': {} must be at least 0, got {}", options.name, what, bound);
  return std::unique_ptr<Resource>(new StagingMap(std::move(options)));
}

Status StagingMap::check(const Indices& indices, const Types& types) const {
  if (indices.size() != types.size())
    return invalid_argument("staging map '{}': {} indices, of {} components", options_.name, indices.size(),
                            types.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices[i];
    if (i > 0 && index <= indices[i - 1])
      return invalid_argument("staging map '{}': indices must ascend, got {} behind {}", options_.name, index,
                              indices[i - 1]);
    if (index < 0 || index >= std::ssize(types_))
      return invalid_argument("staging map '{}': index {}, of elements of {} components", options_.name, index,
                              types_.size());
    if (const DType held = types_[static_cast<size_t>(index)]; held != types[i])
      return invalid_argument("staging map '{}': component {} is {}, the node has {}", options_.name, index,
                              to_string(held), to_string(types[i]));
  }
  return {};
}

void StagingMap::put(int64_t key, const Indices& indices, const Types& types, QueueElement values, Reply reply) {
  if (types_.empty()) types_ = types;
  if (types != types_)
    return reply(invalid_argument("staging map '{}' holds {}, the node puts {}", options_.name,
                                  to_string(AttrValue(types_)), to_string(AttrValue(types))));
  Types given;
  int64_t bytes = 0;
  for (const Tensor& t : values) {
    given.push_back(t.dtype());
    bytes += bytes_of(t);
  }
  if (Status status = check(indices, given); !status.ok()) return reply(std::move(status.error()));
  if (indices.empty()) return reply(invalid_argument("staging map '{}': there are no values", options_.name));
  if (options_.memory_limit > 0 && bytes > options_.memory_limit)
    return reply(make_error(Code::kResourceExhausted,
                            "staging map '{}': values of {} bytes are more than its memory_limit, {}", options_.name,
                            bytes, options_.memory_limit));
  puts_.push_back({std::move(reply), key, indices, std::move(values), bytes});
  settle();
}

void StagingMap::take(std::optional<int64_t> key, Indices indices, Types types, Reply reply) {
  takes_.push_back({std::move(reply), key, std::move(indices), std::move(types), false});
  settle();
}

void StagingMap::peek(int64_t key, Indices indices, Types types, Reply reply) {
  takes_.push_back({std::move(reply), key, std::move(indices), std::move(types), true});
  settle();
}

void StagingMap::clear() {
  whole_.clear();
  parts_.clear();
  bytes_ = 0;
  settle();
}

void StagingMap::cancel(uint64_t requester, int64_t step) {
  const auto drop = [&](auto& waiting) {
    std::erase_if(waiting, [&](auto& w) {
      if (w.reply.tag().requester != requester || w.reply.tag().step != step) return false;
      answers_.push_back(
          {std::move(w.reply),
           make_error(Code::kCancelled, "waiting for the staging map '{}' was cancelled", options_.name)});
      return true;
    });
  };
  drop(puts_);
  drop(takes_);
  settle();
}

bool StagingMap::try_put(Put& put) {
  const auto refuse = [&](Error error) {
    answers_.push_back({std::move(put.reply), std::move(error)});
    return true;
  };
  if (whole_.contains(put.key))
    return refuse(invalid_argument("staging map '{}' has an element of key {}", options_.name, put.key));
  const auto part = parts_.find(put.key);
  size_t there = 0;
  if (part != parts_.end()) {
    there = static_cast<size_t>(std::ranges::count_if(part->second, [](const auto& c) { return c.has_value(); }));
    for (const int64_t index : put.indices)
      if (part->second[static_cast<size_t>(index)])
        return refuse(invalid_argument("staging map '{}': component {} of key {} has come already", options_.name,
                                       index, put.key));
  }
  const bool makes_whole = there + put.indices.size() == types_.size();
  if (makes_whole && options_.capacity > 0 && size() >= options_.capacity) return false;
  if (options_.memory_limit > 0 && bytes_ + put.bytes > options_.memory_limit) return false;
  Components& element = parts_.try_emplace(put.key, types_.size()).first->second;
  for (size_t i = 0; i < put.indices.size(); ++i)
    element[static_cast<size_t>(put.indices[i])] = std::move(put.values[i]);
  bytes_ += put.bytes;
  if (makes_whole) whole_.insert(parts_.extract(put.key));
  answers_.push_back({std::move(put.reply), std::vector<Tensor>()});
  return true;
}

Result<std::vector<Tensor>> StagingMap::components(Components& element, int64_t key, const Take& take) {
  TROUPE_RETURN_IF_ERROR(check(take.indices, take.types));
  std::vector<Tensor> out;
  if (!take.key) out.push_back(Tensor::scalar(key));
  for (const int64_t index : take.indices) {
    const std::optional<Tensor>& component = element[static_cast<size_t>(index)];
    if (!component)
      return invalid_argument("staging map '{}': component {} of key {} was taken", options_.name, index, key);
    out.push_back(*component);
  }
  if (take.stays) return out;
  for (const int64_t index : take.indices) {
    bytes_ -= bytes_of(*element[static_cast<size_t>(index)]);
    element[static_cast<size_t>(index)].reset();
  }
  return out;
}

bool StagingMap::try_take(Take& take) {
  const auto found = take.key ? whole_.find(*take.key) : whole_.begin();
  if (found == whole_.end()) return false;
  answers_.push_back({std::move(take.reply), components(found->second, found->first, take)});
  if (std::ranges::none_of(found->second, [](const auto& c) { return c.has_value(); })) whole_.erase(found);
  return true;
}

void StagingMap::settle() {
  for (size_t waiting = 0; waiting != puts_.size() + takes_.size();) {
    waiting = puts_.size() + takes_.size();
    std::erase_if(puts_, [&](Put& put) { return try_put(put); });
    std::erase_if(takes_, [&](Take& take) { return try_take(take); });
  }
  for (Answer& a : std::exchange(answers_, {})) a.reply(std::move(a.outputs));
}

}  // namespace troupe
