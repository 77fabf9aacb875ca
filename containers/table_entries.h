// SPDX-License-Identifier: Apache-2.0
// The entries of a table, keys and values as bytes, in the two orders that TensorFlow's tables show them in. Not
// thread-safe. Implemented in containers/table_entries.cpp.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "troupe/error.h"

namespace troupe {

class TableEntries {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  using Visitor = std::function<void(int64_t row, const std::string& key, const std::string& value)>;
  virtual ~TableEntries() = default;
  virtual int64_t size() const = 0;
  /// Null: there is none. Valid until the next change.
  virtual const std::string* find(const std::string& key) const = 0;
  /// Told before `n` are put.
  virtual void expect(int64_t n) = 0;
  /// Adds an entry or replaces its value.
  virtual void put(std::string key, std::string value) = 0;
  virtual void erase(const std::string& key) = 0;
  /// Replaces all by what each_row showed, or by any others.
  virtual void assign(Pairs rows) = 0;
  /// How many rows each_row shows.
  virtual int64_t rows() const = 0;
  virtual void each_row(const Visitor& f) const = 0;
};

/// In the order they came, but that the last takes the place of one removed.
class ListedEntries final : public TableEntries {
 public:
  int64_t size() const override { return static_cast<int64_t>(keys_.size()); }
  const std::string* find(const std::string& key) const override;
  void expect(int64_t) override {}
  void put(std::string key, std::string value) override;
  void erase(const std::string& key) override;
  void assign(Pairs rows) override;
  int64_t rows() const override { return size(); }
  void each_row(const Visitor& f) const override;

 private:
  std::unordered_map<std::string, size_t> rows_;  // by key
  std::vector<const std::string*> keys_;          // by row; of the map
  std::vector<std::string> values_;               // by row
};

struct BucketOptions {
  int64_t buckets = 0;                               // at first
  float most_full = 0;                               // share of the buckets that may be taken
  std::string empty_key, empty_value;                // of a bucket that never had an entry
  std::string deleted_key;                           // of one whose entry was removed
  std::function<uint64_t(const std::string&)> hash;  // of a key
};

/// By buckets, a power of two, that are searched from the hash of a key on in steps of 1, 2, 3, ...; the rows are the
/// buckets, empty ones too. Only those that are or were taken use memory. Source: TensorFlow's MutableDenseHashTable.
class BucketEntries final : public TableEntries {
 public:
  /// Errors: a number of buckets that is not a power of two of 4 or more; most_full not between 0 and 1.
  static Status check(int64_t buckets, float most_full);
  /// `options` that pass check().
  explicit BucketEntries(BucketOptions options) : options_(std::move(options)), number_(options_.buckets) {}

  int64_t size() const override { return size_; }
  const std::string* find(const std::string& key) const override;
  void expect(int64_t n) override;
  void put(std::string key, std::string value) override;
  void erase(const std::string& key) override;
  /// Rows whose keys are the empty or the deleted one are such buckets.
  void assign(Pairs rows) override;
  int64_t rows() const override { return number_; }
  void each_row(const Visitor& f) const override;

 private:
  struct Bucket {
    std::string key, value;
    bool deleted = false;
  };
  struct Place {
    int64_t bucket;
    bool found;
  };
  /// Where the key is, or else where it would be put.
  Place place(const std::string& key) const;
  void put_all(Pairs rows);

  const BucketOptions options_;
  int64_t number_, size_ = 0;
  std::unordered_map<int64_t, Bucket> buckets_;  // but empty ones
};

}  // namespace troupe
