// SPDX-License-Identifier: Apache-2.0
// Entries as bytes: a key or value of several numbers is their bytes in a row, a string is itself.
#include "containers/table.h"

#include <algorithm>

#include "base/murmur.h"

namespace troupe {
namespace {

/// How many bytes an item of zeros, or of empty strings, is.
size_t item_bytes(DType dtype, const Shape& shape) {
  if (dtype == DType::kString && shape.rank() == 0) return 0;
  return static_cast<size_t>(shape.elements()) * (dtype == DType::kString ? sizeof(uint64_t) : size_of(dtype));
}

/// The length of the string that an item of several has there.
uint64_t length_at(const std::string& bytes, size_t at) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data() + at, sizeof length);
  return length;
}

/// Item `i` of the items of `shape` that make up `t`.
std::string bytes_of_row(const Tensor& t, int64_t i, const Shape& shape) {
  if (t.dtype() != DType::kString) {
    const size_t bytes = item_bytes(t.dtype(), shape);
    return {static_cast<const char*>(t.raw()) + static_cast<size_t>(i) * bytes, bytes};
  }
  if (shape.rank() == 0) return t.data<std::string>()[i];
  std::string out;  // lengths keep the strings of an item apart
  for (int64_t k = 0; k < shape.elements(); ++k) {
    const std::string& s = t.data<std::string>()[i * shape.elements() + k];
    const auto length = static_cast<uint64_t>(s.size());
    out.append(reinterpret_cast<const char*>(&length), sizeof length).append(s);
  }
  return out;
}

void set_item(Tensor& t, int64_t i, const Shape& shape, const std::string& bytes) {
  if (t.dtype() != DType::kString) {
    std::memcpy(static_cast<char*>(t.mutable_raw()) + static_cast<size_t>(i) * bytes.size(), bytes.data(),
                bytes.size());
  } else if (shape.rank() == 0) {
    t.mutable_data<std::string>()[i] = bytes;
  } else {
    size_t at = 0;
    for (int64_t k = 0; k < shape.elements(); ++k) {
      const uint64_t length = length_at(bytes, at);
      t.mutable_data<std::string>()[i * shape.elements() + k] = bytes.substr(at + sizeof length, length);
      at += sizeof length + length;
    }
  }
}

Shape joined(const Shape& first, const Shape& second) {
  Shape out = first;
  for (const int64_t d : second) out.push_back(d);
  return out;
}

/// As TensorFlow takes a number for its hash: whole numbers keep their sign.
uint64_t number_hash(DType dtype, const char* element) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof value);
    return static_cast<uint64_t>(value);
  };
  switch (dtype) {
    case DType::kInt8: return as(int8_t());
    case DType::kInt16: return as(int16_t());
    case DType::kInt32: return as(int32_t());
    default: {
      uint64_t bits = 0;
      std::memcpy(&bits, element, size_of(dtype));
      return bits;
    }
  }
}

std::string describe(const Tensor& t) { return to_string(t.dtype()) + t.shape().str(); }

}  // namespace

Result<std::unique_ptr<Table>> Table::make(TableOptions options) {
  for (const DType dtype : {options.key_dtype, options.value_dtype})
    if (!is_known(dtype) || (size_of(dtype) > 8 && dtype != DType::kString))
      return invalid_argument("table '{}' cannot hold {}", options.name, to_string(dtype));
  if (options.key_shape.rank() + options.value_shape.rank() >= kMaxRank)
    return invalid_argument("table '{}': keys {} and values {} have too many dimensions", options.name,
                            options.key_shape.str(), options.value_shape.str());
  if (options.dense) {
    for (const Shape* item : {&options.key_shape, &options.value_shape})
      if (item->rank() > 1)
        return invalid_argument("table '{}': keys and values must be scalars or vectors, not {}", options.name,
                                item->str());
    TROUPE_RETURN_IF_ERROR(BucketEntries::check(options.buckets, options.most_full));
  }
  return std::unique_ptr<Table>(new Table(std::move(options)));
}

Table::Table(TableOptions options) : options_(std::move(options)) {
  for (const Tensor& key : options_.reserved_keys) reserved_.push_back(bytes_of_row(key, 0, options_.key_shape));
  if (!options_.dense) {
    entries_ = std::make_unique<ListedEntries>();
    return;
  }
  BucketOptions buckets{options_.buckets, options_.most_full,
                        reserved_[0],     std::string(item_bytes(options_.value_dtype, options_.value_shape), '\0'),
                        reserved_[1],     [this](const std::string& key) { return hash(key); }};
  entries_ = std::make_unique<BucketEntries>(std::move(buckets));
}

uint64_t Table::hash(const std::string& key) const {
  const DType dtype = options_.key_dtype;
  const int64_t n = options_.key_shape.elements();
  if (dtype == DType::kString && options_.key_shape.rank() == 0) return murmur(key);
  uint64_t out = 0;
  for (size_t at = 0; at < key.size();) {
    uint64_t part = 0;
    if (dtype == DType::kString) {
      const uint64_t length = length_at(key, at);
      part = murmur(std::string_view(key).substr(at + sizeof length, length));
      at += sizeof length + length;
    } else {
      part = number_hash(dtype, key.data() + at);
      at += size_of(dtype);
    }
    if (n == 1) return part;
    out ^= part + 0x9e3779b97f4a7800 + (out << 10) + (out >> 4);
  }
  return out;
}

Result<Shape> Table::rows_of(int64_t n, const Shape& item) const {
  std::vector<int64_t> sizes = {n};
  sizes.insert(sizes.end(), item.begin(), item.end());
  if (options_.dense && item.rank() == 0) sizes.push_back(1);  // as TensorFlow has it
  return Shape::make(sizes);
}

Result<int64_t> Table::count_keys(const Tensor& keys, const Shape& key) const {
  const int rank = key.rank();
  bool fits = keys.dtype() == options_.key_dtype && keys.rank() >= rank;
  for (int d = 0; fits && d < rank; ++d) fits = keys.dim(d - rank) == key[d];
  if (!fits)
    return invalid_argument("table '{}' has keys {}{}, got {}", options_.name, to_string(options_.key_dtype), key.str(),
                            describe(keys));
  const int64_t one = key.elements();
  return one > 0 ? keys.elements() / one : 0;
}

Result<int64_t> Table::count_usable_keys(const Tensor& keys) const {
  TROUPE_ASSIGN(const int64_t n, count_keys(keys, options_.key_shape));
  if (!reserved_.empty())
    for (int64_t i = 0; i < n; ++i)
      if (std::ranges::find(reserved_, bytes_of_row(keys, i, options_.key_shape)) != reserved_.end())
        return invalid_argument("table '{}': key {} is the empty or the deleted one, which may not be used",
                                options_.name, i);
  return n;
}

Result<Shape> Table::values_for(const Tensor& keys) const {
  Shape shape = keys.shape();
  for (int d = 0; d < options_.key_shape.rank(); ++d) shape.erase(shape.rank() - 1);
  if (shape.rank() + options_.value_shape.rank() > kMaxRank)
    return invalid_argument("table '{}': keys {} are too many dimensions", options_.name, keys.shape().str());
  return joined(shape, options_.value_shape);
}

Status Table::check_values(const Tensor& values, const Shape& wanted, int64_t n) const {
  if (values.dtype() == options_.value_dtype && values.shape() == wanted) return {};
  return invalid_argument("table '{}' wants values {}{} for {} keys, got {}", options_.name,
                          to_string(options_.value_dtype), wanted.str(), n, describe(values));
}

Status Table::check_mutable() const {
  if (!options_.constant) return {};
  return make_error(Code::kFailedPrecondition, "table '{}' is constant: it is filled once and then only read",
                    options_.name);
}

Result<Tensor> Table::find(const Tensor& keys, const Tensor& otherwise,
                           const std::shared_ptr<Allocator>& allocator) const {
  if (options_.constant && !filled_)
    return make_error(Code::kFailedPrecondition, "table '{}' is not initialized", options_.name);
  TROUPE_ASSIGN(const int64_t n, count_usable_keys(keys));
  TROUPE_ASSIGN(const Shape shape, values_for(keys));
  const bool one = otherwise.dtype() == options_.value_dtype && otherwise.shape() == options_.value_shape;
  if (!one) TROUPE_RETURN_IF_ERROR(check_values(otherwise, shape, n));
  TROUPE_ASSIGN(Tensor out, Tensor::make(options_.value_dtype, shape, allocator));
  for (int64_t i = 0; i < n; ++i) {
    const std::string* value = entries_->find(bytes_of_row(keys, i, options_.key_shape));
    set_item(out, i, options_.value_shape, value ? *value : bytes_of_row(otherwise, one ? 0 : i, options_.value_shape));
  }
  return out;
}

TableEntries::Pairs Table::pairs(const Tensor& keys, const Tensor& values, int64_t n) const {
  TableEntries::Pairs out;
  out.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    out.emplace_back(bytes_of_row(keys, i, options_.key_shape), bytes_of_row(values, i, options_.value_shape));
  return out;
}

Status Table::insert(const Tensor& keys, const Tensor& values) {
  TROUPE_RETURN_IF_ERROR(check_mutable());
  TROUPE_ASSIGN(const int64_t n, count_usable_keys(keys));
  TROUPE_ASSIGN(const Shape shape, values_for(keys));
  TROUPE_RETURN_IF_ERROR(check_values(values, shape, n));
  entries_->expect(n);
  for (auto& [key, value] : pairs(keys, values, n)) entries_->put(std::move(key), std::move(value));
  return {};
}

Status Table::remove(const Tensor& keys) {
  TROUPE_RETURN_IF_ERROR(check_mutable());
  TROUPE_ASSIGN(const int64_t n, count_usable_keys(keys));
  for (int64_t i = 0; i < n; ++i) entries_->erase(bytes_of_row(keys, i, options_.key_shape));
  return {};
}

Status Table::fill(const Tensor& keys, const Tensor& values) {
  if (options_.dense) {
    const Shape key = options_.key_shape.rank() == 0 ? Shape{1} : options_.key_shape;
    TROUPE_ASSIGN(const int64_t n, count_keys(keys, key));
    TROUPE_ASSIGN(const Shape shape, rows_of(n, options_.value_shape));
    TROUPE_RETURN_IF_ERROR(check_values(values, shape, n));
    entries_->assign(pairs(keys, values, n));
    return {};
  }
  TROUPE_ASSIGN(const int64_t n, count_usable_keys(keys));
  TROUPE_ASSIGN(const Shape shape, values_for(keys));
  TROUPE_RETURN_IF_ERROR(check_values(values, shape, n));
  TableEntries::Pairs rows = pairs(keys, values, n);
  if (options_.constant) {
    ListedEntries fresh;
    for (int64_t i = 0; i < n; ++i) {
      const auto& [key, value] = rows[static_cast<size_t>(i)];
      if (const std::string* before = fresh.find(key); before && *before != value)
        return invalid_argument("table '{}': key {} of {} was there before, with another value", options_.name, i, n);
      fresh.put(key, value);
    }
    if (filled_) {
      const bool same = fresh.size() == size() && std::ranges::all_of(rows, [&](const auto& row) {
                          const std::string* there = entries_->find(row.first);
                          return there && *there == row.second;
                        });
      if (same) return {};
      return make_error(Code::kFailedPrecondition, "table '{}' was already initialized with other entries",
                        options_.name);
    }
  }
  entries_->assign(std::move(rows));
  filled_ = true;
  return {};
}

Result<std::vector<Tensor>> Table::entries(const std::shared_ptr<Allocator>& allocator) const {
  const int64_t n = entries_->rows();
  TROUPE_ASSIGN(const Shape key_rows, rows_of(n, options_.key_shape));
  TROUPE_ASSIGN(const Shape value_rows, rows_of(n, options_.value_shape));
  TROUPE_ASSIGN(Tensor keys, Tensor::make(options_.key_dtype, key_rows, allocator));
  TROUPE_ASSIGN(Tensor values, Tensor::make(options_.value_dtype, value_rows, allocator));
  entries_->each_row([&](int64_t row, const std::string& key, const std::string& value) {
    set_item(keys, row, options_.key_shape, key);
    set_item(values, row, options_.value_shape, value);
  });
  return std::vector<Tensor>{std::move(keys), std::move(values)};
}

}  // namespace troupe
