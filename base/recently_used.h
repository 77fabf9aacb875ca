// SPDX-License-Identifier: Apache-2.0
// RecentlyUsed: values by key, with bounds on their number and bytes: beyond either, those that were not looked up for
// longest go. What somebody else holds stays, for letting go of it would free nothing.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// One thread at a time, but for the values' own counts of owners.
template <class Value> class RecentlyUsed {
 public:
  /// `most` >= 1; `most_bytes` >= 0.
  RecentlyUsed(size_t most, int64_t most_bytes) : most_(most), most_bytes_(most_bytes) {}

  /// nullptr: there is none.
  std::shared_ptr<Value> find(const std::string& key) {
    const auto at = by_key_.find(key);
    if (at == by_key_.end()) return nullptr;
    entries_.splice(entries_.end(), entries_, at->second);
    return at->second->value;
  }

  /// Adds `value`, which counts as `bytes`, under a key that has none. Returns the evicted entries, never the new one.
  std::vector<std::shared_ptr<Value>> add(const std::string& key, std::shared_ptr<Value> value, int64_t bytes) {
    std::vector<std::shared_ptr<Value>> gone;
    bytes_ += bytes;
    for (int looks = kMostLooks; looks > 0 && !entries_.empty() && full(); --looks) {
      Entry& oldest = entries_.front();
      if (oldest.value.use_count() > 1) {
        entries_.splice(entries_.end(), entries_, entries_.begin());
        continue;
      }
      bytes_ -= oldest.bytes;
      gone.push_back(std::move(oldest.value));
      by_key_.erase(std::string(oldest.key));
      entries_.pop_front();
    }
    entries_.push_back({{}, std::move(value), bytes});
    const auto at = by_key_.emplace(key, std::prev(entries_.end())).first;
    entries_.back().key = at->first;
    return gone;
  }

  /// f(value) of each, the longest unused first.
  template <class F> void for_each(F&& f) const {
    for (const Entry& entry : entries_) f(*entry.value);
  }
  size_t size() const { return entries_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  /// At one addition, so that many values that others hold do not make it slow.
  static constexpr int kMostLooks = 64;
  struct Entry {
    std::string_view key;  // of by_key_
    std::shared_ptr<Value> value;
    int64_t bytes;
  };
  bool full() const { return entries_.size() >= most_ || bytes_ > most_bytes_; }

  const size_t most_;
  const int64_t most_bytes_;
  std::list<Entry> entries_;  // the longest unused first
  std::unordered_map<std::string, typename std::list<Entry>::iterator> by_key_;
  int64_t bytes_ = 0;
};

}  // namespace troupe
