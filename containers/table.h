// SPDX-License-Identifier: Apache-2.0
// Table: keys to values, the core behind HashTable and MutableHashTable. Implemented in containers/table.cpp.
//
// Invariant: a call either does all it says or returns an error and changes nothing.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "troupe/resource.h"

namespace troupe {

struct TableOptions {
  std::string name;  // for messages
  DType key_dtype = DType::kInvalid;
  DType value_dtype = DType::kInvalid;
  Shape key_shape;                         // of one key
  Shape value_shape;                       // of one value
  bool constant = false;                   // it is filled once
  std::vector<Tensor> reserved_keys = {};  // which may not be used
};

/// A passive core (see Resource). Keys and values are numbers, bool or strings; entries stay in the order they came,
/// but that the last takes the place of one removed. Source: TensorFlow's lookup tables.
class Table final : public Resource {
 public:
  /// Errors: kInvalidArgument for types that cannot be kept.
  static Result<std::unique_ptr<Resource>> make(TableOptions options);

  const TableOptions& options() const { return options_; }
  int64_t size() const { return static_cast<int64_t>(keys_.size()); }

  /// The values of `keys` [..., key_shape], as [..., value_shape]; where a key is not there, `otherwise`, which is one
  /// value or one for each key. Errors: kInvalidArgument for what does not fit; kFailedPrecondition for a constant
  /// table not filled yet.
  Result<Tensor> find(const Tensor& keys, const Tensor& otherwise, const std::shared_ptr<Allocator>& allocator) const;
  /// Adds entries or replaces their values. Error: kFailedPrecondition for a constant table.
  Status insert(const Tensor& keys, const Tensor& values);
  /// Removes entries; keys that are not there are none. Error: as insert.
  Status remove(const Tensor& keys);
  /// Replaces all entries; fills a constant table. Errors: kFailedPrecondition for a constant table filled before with
  /// other entries; kInvalidArgument for one key of a constant table with two values.
  Status fill(const Tensor& keys, const Tensor& values);
  /// All keys and all values.
  Result<std::vector<Tensor>> entries(const std::shared_ptr<Allocator>& allocator) const;

 private:
  explicit Table(TableOptions options);
  /// How many keys `keys` are. Errors: type, shape, a key that is reserved.
  Result<int64_t> count_keys(const Tensor& keys) const;
  Status check_values(const Tensor& keys, int64_t n, const Tensor& values) const;
  Status check_mutable() const;
  void put(std::string key, const Tensor& values, int64_t row);

  const TableOptions options_;
  std::vector<std::string> reserved_;
  bool filled_ = false;
  std::unordered_map<std::string, size_t> rows_;  // by the bytes of a key
  std::vector<const std::string*> keys_;          // by row; of the map
  std::vector<std::string> values_;               // by row: bytes, or one string
};

}  // namespace troupe
