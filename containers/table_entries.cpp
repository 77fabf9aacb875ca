// SPDX-License-Identifier: Apache-2.0
// A list with an index, and open addressing.
#include "containers/table_entries.h"

#include <algorithm>
#include <bit>

namespace troupe {

// -- ListedEntries ----------------------------------------------------------------------------------------------------

const std::string* ListedEntries::find(const std::string& key) const {
  const auto at = rows_.find(key);
  return at == rows_.end() ? nullptr : &values_[at->second];
}

void ListedEntries::put(std::string key, std::string value) {
  const auto [at, added] = rows_.try_emplace(std::move(key), keys_.size());
  if (added) {
    keys_.push_back(&at->first);
    values_.emplace_back();
  }
  values_[at->second] = std::move(value);
}

void ListedEntries::erase(const std::string& key) {
  const auto at = rows_.find(key);
  if (at == rows_.end()) return;
  const size_t row = at->second, last = keys_.size() - 1;
  rows_.find(*keys_[last])->second = row;
  keys_[row] = keys_[last];
  std::swap(values_[row], values_[last]);
  keys_.pop_back();
  values_.pop_back();
  rows_.erase(at);
}

void ListedEntries::assign(Pairs rows) {
  rows_.clear();
  keys_.clear();
  values_.clear();
  for (auto& [key, value] : rows) put(std::move(key), std::move(value));
}

void ListedEntries::each_row(const Visitor& f) const {
  for (size_t i = 0; i < keys_.size(); ++i) f(static_cast<int64_t>(i), *keys_[i], values_[i]);
}

// -- BucketEntries ----------------------------------------------------------------------------------------------------

namespace {
bool is_number_of_buckets(int64_t n) { return n >= 4 && std::has_single_bit(static_cast<uint64_t>(n)); }
}  // namespace

Status BucketEntries::check(int64_t buckets, float most_full) {
  if (!is_number_of_buckets(buckets))
    return invalid_argument("the number of buckets must be a power of two of at least 4, not {}", buckets);
  if (!(most_full > 0 && most_full < 1))
    return invalid_argument("max_load_factor must lie between 0 and 1, not be {}", most_full);
  return {};
}

BucketEntries::Place BucketEntries::place(const std::string& key) const {
  Place free{-1, false};
  auto at = static_cast<int64_t>(options_.hash(key) & static_cast<uint64_t>(number_ - 1));
  for (int64_t step = 1; step <= number_; at = (at + step++) & (number_ - 1)) {
    const auto taken = buckets_.find(at);
    if (taken == buckets_.end()) return {free.bucket < 0 ? at : free.bucket, false};
    if (taken->second.deleted) {
      if (free.bucket < 0) free.bucket = at;
    } else if (taken->second.key == key) {
      return {at, true};
    }
  }
  return free;
}

const std::string* BucketEntries::find(const std::string& key) const {
  const Place at = place(key);
  return at.found ? &buckets_.find(at.bucket)->second.value : nullptr;
}

void BucketEntries::expect(int64_t n) {
  const auto full = static_cast<float>(size_ + n);
  int64_t number = number_;
  while (full > static_cast<float>(number) * options_.most_full) number *= 2;
  if (number == number_) return;
  Pairs rows;
  std::vector<int64_t> order;
  for (const auto& [at, bucket] : buckets_)
    if (!bucket.deleted) order.push_back(at);
  std::ranges::sort(order);
  for (const int64_t at : order) {
    Bucket& bucket = buckets_.find(at)->second;
    rows.emplace_back(std::move(bucket.key), std::move(bucket.value));
  }
  buckets_.clear();
  size_ = 0;
  number_ = number;
  put_all(std::move(rows));
}

void BucketEntries::put_all(Pairs rows) {
  for (auto& [key, value] : rows) put(std::move(key), std::move(value));
}

void BucketEntries::put(std::string key, std::string value) {
  const Place at = place(key);
  size_ += !at.found;
  buckets_.insert_or_assign(at.bucket, Bucket{std::move(key), std::move(value)});
}

void BucketEntries::erase(const std::string& key) {
  const Place at = place(key);
  if (!at.found) return;
  Bucket& bucket = buckets_.find(at.bucket)->second;
  bucket.key = options_.deleted_key;
  bucket.deleted = true;
  --size_;
}

void BucketEntries::assign(Pairs rows) {
  buckets_.clear();
  size_ = 0;
  if (const auto number = static_cast<int64_t>(rows.size()); is_number_of_buckets(number)) {
    number_ = number;
    for (int64_t i = 0; i < number; ++i) {
      const auto& [key, value] = rows[static_cast<size_t>(i)];
      if (key == options_.empty_key) continue;
      const bool deleted = key == options_.deleted_key;
      buckets_.emplace(i, Bucket{key, value, deleted});
      size_ += !deleted;
    }
    const bool found = std::ranges::all_of(buckets_, [&](const auto& entry) {
      return entry.second.deleted || place(entry.second.key).bucket == entry.first;
    });
    if (found) return;
  }
  std::erase_if(rows,
                [&](const auto& row) { return row.first == options_.empty_key || row.first == options_.deleted_key; });
  buckets_.clear();
  size_ = 0;
  number_ = options_.buckets;
  expect(static_cast<int64_t>(rows.size()));
  put_all(std::move(rows));
}

void BucketEntries::each_row(const Visitor& f) const {
  for (int64_t i = 0; i < number_; ++i) {
    const auto at = buckets_.find(i);
    if (at == buckets_.end()) f(i, options_.empty_key, options_.empty_value);
    else f(i, at->second.key, at->second.value);
  }
}

}  // namespace troupe
