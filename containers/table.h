// SPDX-License-Identifier: Apache-2.0
// Table: keys to values, the core behind HashTable and MutableHashTable. Implemented in containers/table.cpp.
//
// Invariant: a call either does all it says or returns an error and changes nothing.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "containers/table_entries.h"
#include "troupe/tensor.h"

namespace troupe {

struct TableOptions {
  std::string name;  // for messages
  DType key_dtype = DType::kInvalid;
  DType value_dtype = DType::kInvalid;
  Shape key_shape;                         // of one key
  Shape value_shape;                       // of one value
  bool constant = false;                   // it is filled once
  std::vector<Tensor> reserved_keys = {};  // which may not be used
  bool dense = false;                      // it has buckets, and the reserved keys are an empty and a deleted one's
  int64_t buckets = 0;                     // of a dense table at first
  float most_full = 0;                     // share of them that may be taken
};

/// Keys and values are numbers, bool or strings. Not thread-safe. Source: TensorFlow's lookup tables.
class Table {
 public:
  /// Errors: kInvalidArgument for types, shapes or buckets that cannot be.
  static Result<std::unique_ptr<Table>> make(TableOptions options);

  const TableOptions& options() const { return options_; }
  int64_t size() const { return entries_->size(); }

  /// The values of `keys` [..., key_shape], as [..., value_shape]; where a key is not there, `otherwise`, which is one
  /// value or one for each key. Errors: kInvalidArgument for what does not fit; kFailedPrecondition for a constant
  /// table not filled yet.
  Result<Tensor> find(const Tensor& keys, const Tensor& otherwise, const std::shared_ptr<Allocator>& allocator) const;
  /// Adds entries or replaces their values. Error: kFailedPrecondition for a constant table.
  Status insert(const Tensor& keys, const Tensor& values);
  /// Removes entries; keys that are not there are none. Error: as insert.
  Status remove(const Tensor& keys);
  /// Replaces all entries, those of a dense table by what entries() gave; fills a constant table. Errors:
  /// kFailedPrecondition for a constant table filled before with other entries; kInvalidArgument for one key of a
  /// constant table with two values.
  Status fill(const Tensor& keys, const Tensor& values);
  /// All keys and all values, of a dense table all buckets.
  Result<std::vector<Tensor>> entries(const std::shared_ptr<Allocator>& allocator) const;

 private:
  explicit Table(TableOptions options);
  /// The shape of n rows of keys or values. Error: too many elements.
  Result<Shape> rows_of(int64_t n, const Shape& item) const;
  /// How many keys of the shape of `key` `keys` are. Errors: type, shape.
  Result<int64_t> count_keys(const Tensor& keys, const Shape& key) const;
  /// The same for keys that are looked up. Error: a key that is reserved.
  Result<int64_t> count_usable_keys(const Tensor& keys) const;
  Status check_values(const Tensor& values, const Shape& wanted, int64_t n) const;
  Status check_mutable() const;
  /// The values for these keys, [..., value_shape]. Error: too many dimensions.
  Result<Shape> values_for(const Tensor& keys) const;
  TableEntries::Pairs pairs(const Tensor& keys, const Tensor& values, int64_t n) const;
  uint64_t hash(const std::string& key) const;

  const TableOptions options_;
  std::vector<std::string> reserved_;
  bool filled_ = false;
  std::unique_ptr<TableEntries> entries_;
};

}  // namespace troupe
