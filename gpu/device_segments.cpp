// SPDX-License-Identifier: Apache-2.0
// Where blocks come from, and when they may be used again.
#include "gpu/device_segments.h"

#include <algorithm>

#include "base/check.h"

namespace troupe::gpu {
namespace {

constexpr size_t kRound = 512;
constexpr size_t kMostSmall = size_t{1} << 20;
constexpr size_t kSlab = kLeastDeviceMemory / 2;
constexpr size_t kMostPiece = size_t{32} << 20;  // what goes back to the card goes by pieces
constexpr size_t kMostMarks = 64;                // before someone looks which are passed
/// Addresses for each byte of memory, so that large blocks find room beside holes.
constexpr size_t kAddresses = 8;

size_t round_up_to(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
size_t block_bytes(size_t bytes) { return std::max(round_up_to(bytes, kRound), kRound); }

}  // namespace

DeviceSegments::DeviceSegments(std::shared_ptr<Runtime> runtime, std::shared_ptr<Stream> compute,
                               DeviceMemoryOptions options)
    : runtime_(std::move(runtime)), compute_(std::move(compute)), options_(std::move(options)),
      unit_(round_up_to(kSlab, runtime_->granularity(options_.card))),
      most_(options_.limit > 0 ? options_.limit : runtime_->cards()[options_.card].memory),
      events_(*runtime_, options_.card) {
  for (AllocatorStats* stats : {&stats_[kStream], &stats_[kTransfers], &all_}) stats->limit = options_.limit;
  // Else what was freed last would keep all that is free around it from transfers.
  for (const int pool : {kLarge, kSmall}) blocks_.keep_apart(pool + kTransfers);
}

Status DeviceSegments::reserve() {
  const size_t bytes = round_up_to(static_cast<size_t>(most_), unit_) * kAddresses;
  TROUPE_ASSIGN(void* const at, runtime_->reserve(options_.card, bytes));
  range_ = static_cast<char*>(at);
  range_bytes_ = bytes;
  first_ = blocks_.add(range_, bytes, kHoles);
  return {};
}

DeviceSegments::~DeviceSegments() {
  mark();
  // Without a mark, or where waiting is refused, work may still use the memory: then it stays.
  bool idle = lost_ || !unmarked_;
  if (idle && !marks_.empty()) {
    const Status waited = marks_.back().event->wait();
    idle = waited.ok() || waited.error().code == Code::kUnavailable;
  }
  if (!idle) return;
  for (const auto& [at, bytes] : pieces_) runtime_->unmap(at, bytes);
  if (range_) runtime_->unreserve(range_, range_bytes_);
}

void DeviceSegments::count(Owner owner, int64_t bytes) {
  for (AllocatorStats* const stats : {&stats_[owner], &all_}) {
    stats->in_use += bytes;
    stats->peak = std::max(stats->peak, stats->in_use);
  }
}

void* DeviceSegments::allocate(Owner owner, size_t bytes) {
  std::lock_guard guard(mutex_);
  AllocatorStats& stats = stats_[owner];
  ++stats.allocations;
  const int64_t maps = maps_;
  const size_t rounded = bytes <= range_bytes_ ? block_bytes(bytes) : 0;
  Place place;
  if (rounded > 0) place = rounded <= kMostSmall ? find_small(owner, rounded) : find_large(owner, rounded);
  if (!place.block) {
    ++stats.failures;
    return nullptr;
  }
  stats.cache_hits += maps_ == maps;
  count(owner, static_cast<int64_t>(rounded));
  return blocks_.use(place.block, place.at, rounded)->at;
}

void DeviceSegments::deallocate(Owner owner, void* memory, size_t bytes) noexcept {
  if (options_.poison) options_.poison(memory, block_bytes(bytes));
  std::lock_guard guard(mutex_);
  AddressBlock* block = blocks_.find(memory);
  TROUPE_CHECK(block && block->bytes == block_bytes(bytes) && block->pool % 2 == owner);
  count(owner, -static_cast<int64_t>(block->bytes));
  blocks_.give_back(block, next_mark_);
  unmarked_ = true;
  free_slabs(owner);
  if (owner == kTransfers) mark();
  if (marks_.size() > kMostMarks) collect();
}

DeviceSegments::Place DeviceSegments::fit(Owner owner, int pool, size_t bytes) {
  const auto find = [&](bool any) {
    AddressBlock* const block = blocks_.best_fit(pool + owner, bytes, any ? UINT64_MAX : passed_);
    return Place{block, block ? block->at : nullptr};
  };
  const Place place = find(owner == kStream || lost_);
  if (place.block || owner == kStream || marks_.empty()) return place;
  collect();  // there may be some that is not known to be idle
  return find(lost_);
}

void DeviceSegments::free_slabs(Owner owner) {
  const AddressBlocks::Free& small = blocks_.free(kSmall + owner);
  while (!small.empty() && (*small.rbegin())->bytes == kSlab) {
    AddressBlock* const block = *small.rbegin();
    blocks_.move(block, block->at, kSlab, kLarge + owner, block->mark);
  }
}

DeviceSegments::Place DeviceSegments::find_small(Owner owner, size_t bytes) {
  if (const Place place = fit(owner, kSmall, bytes); place.block) return place;
  const auto [block, at] = find_large(owner, kSlab);
  if (!block) return {};
  return {blocks_.move(block, at, kSlab, kSmall + owner, owner == kTransfers ? 0 : block->mark, at), at};
}

DeviceSegments::Place DeviceSegments::find_large(Owner owner, size_t bytes) {
  if (const Place place = fit(owner, kLarge, bytes); place.block) return place;
  if (const Place place = grow(owner, bytes); place.block) return place;
  mark();  // what is free can be had by transfers, or go back to the card, only when it is known to be idle
  collect();
  if (const Place place = fit(owner, kLarge, bytes); place.block) return place;
  if (const Place place = take_over(owner, bytes); place.block) return place;
  if (all_.in_use + static_cast<int64_t>(bytes) > most_) return {};
  give_back_idle();  // and take as much for addresses that follow each other
  return grow(owner, bytes);
}

DeviceSegments::Place DeviceSegments::grow(Owner owner, size_t bytes) {
  // Memory that is free before a hole serves too.
  const auto free_before = [&](const AddressBlock* hole) -> size_t {
    const AddressBlock* const before = hole->before;
    const bool serves =
        before && !before->used && before->pool == kLarge + owner && (owner == kStream || before->mark <= passed_);
    return serves ? before->bytes : 0;
  };
  AddressBlock* best = nullptr;
  size_t least = SIZE_MAX;
  for (AddressBlock* const hole : blocks_.free(kHoles)) {
    const size_t needed = round_up_to(bytes - std::min(bytes, free_before(hole)), unit_);
    if (needed <= hole->bytes && (needed < least || (needed == least && hole->at < best->at))) {
      best = hole;
      least = needed;
    }
  }
  if (!best || mapped_ > most_ - static_cast<int64_t>(least)) return {};

  char* const from = best->at;
  char* const at = from - free_before(best);
  size_t done = 0;
  while (done < least) {
    const size_t piece = std::min(least - done, std::max(kMostPiece / unit_ * unit_, unit_));
    const Status mapped = runtime_->map(options_.card, from + done, piece);
    if (!mapped.ok()) {
      lost_ = lost_ || mapped.error().code == Code::kUnavailable;
      break;
    }
    pieces_[from + done] = piece;
    mapped_ += static_cast<int64_t>(piece);
    ++maps_;
    done += piece;
  }
  if (done == 0) return {};
  AddressBlock* const block = blocks_.move(best, from, done, kLarge + owner, 0);
  return done == least ? Place{block, at} : Place{};
}

DeviceSegments::Place DeviceSegments::take_over(Owner owner, size_t bytes) {
  if (owner == kTransfers) {
    AddressBlock* const block = blocks_.best_fit(kLarge + kStream, bytes, lost_ ? UINT64_MAX : passed_);
    if (!block) return {};
    char* const at = block->at;
    return {blocks_.move(block, at, bytes, kLarge + kTransfers, block->mark), at};
  }
  const std::vector<AddressBlock*> free(blocks_.free(kLarge + kTransfers).begin(),
                                        blocks_.free(kLarge + kTransfers).end());
  for (AddressBlock* const block : free) blocks_.move(block, block->at, block->bytes, kLarge + kStream, block->mark);
  return fit(owner, kLarge, bytes);
}

void DeviceSegments::give_back_idle() {
  AddressBlock* block = first_;
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    const auto [at, bytes] = *it;
    char* const end = at + bytes;
    while (block->at + block->bytes <= at) block = block->after;
    bool free = true;
    for (const AddressBlock* b = block; free && b && b->at < end; b = b->after)
      free = !b->used && b->pool < kSmall && idle(*b);
    if (!free) {
      ++it;
      continue;
    }
    runtime_->unmap(at, bytes);
    mapped_ -= static_cast<int64_t>(bytes);
    for (char* from = at; from < end;) {  // blocks of both owners may share a piece
      while (block->at + block->bytes <= from) block = block->after;
      const size_t part = static_cast<size_t>(std::min(end, block->at + block->bytes) - from);
      block = blocks_.move(block, from, part, kHoles, 0);
      from += part;
    }
    it = pieces_.erase(it);
  }
}

void DeviceSegments::trim() {
  std::lock_guard guard(mutex_);
  mark();
  collect();
  give_back_idle();
}

void DeviceSegments::mark() {
  if (!unmarked_ || lost_) return;
  auto event = events_.take();
  Status recorded = event.ok() ? compute_->record(**event) : event.status();
  if (!recorded.ok()) {  // the next mark stands for this one
    lost_ = recorded.error().code == Code::kUnavailable;
    return;
  }
  marks_.push_back({next_mark_++, std::move(*event)});
  unmarked_ = false;
}

void DeviceSegments::collect() {
  const uint64_t before = passed_;
  while (!marks_.empty() && !lost_) {
    const auto done = marks_.front().event->done();
    if (!done.ok()) lost_ = done.error().code == Code::kUnavailable;
    if (!done.ok() || !*done) break;
    passed_ = marks_.front().number;
    events_.give_back(std::move(marks_.front().event));
    marks_.pop_front();
  }
  if (passed_ == before) return;
  blocks_.settle(passed_);
  free_slabs(kTransfers);
}

AllocatorStats DeviceSegments::stats(Owner owner) const {
  std::lock_guard guard(mutex_);
  AllocatorStats out = stats_[owner];
  out.cached = static_cast<int64_t>(blocks_.free_bytes(kLarge + owner) + blocks_.free_bytes(kSmall + owner));
  return out;
}

AllocatorStats DeviceSegments::stats() const {
  std::lock_guard guard(mutex_);
  AllocatorStats out = all_;
  for (const AllocatorStats& stats : stats_) {
    out.allocations += stats.allocations;
    out.cache_hits += stats.cache_hits;
    out.failures += stats.failures;
  }
  out.cached = mapped_ - out.in_use;
  return out;
}

}  // namespace troupe::gpu
