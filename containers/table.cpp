// SPDX-License-Identifier: Apache-2.0
// Entries as bytes: a key or value of several numbers is their bytes in a row, a string is itself.
#include "containers/table.h"

#include <algorithm>

namespace troupe {
namespace {

/// Item `i` of the items of `shape` that make up `t`.
std::string bytes_of(const Tensor& t, int64_t i, const Shape& shape) {
  if (t.dtype() != DType::kString) {
    const size_t bytes = static_cast<size_t>(shape.elements()) * size_of(t.dtype());
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
      uint64_t length = 0;
      std::memcpy(&length, bytes.data() + at, sizeof length);
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

std::string describe(const Tensor& t) { return to_string(t.dtype()) + t.shape().str(); }

}  // namespace

Result<std::unique_ptr<Resource>> Table::make(TableOptions options) {
  for (const DType dtype : {options.key_dtype, options.value_dtype})
    if (!is_known(dtype) || (size_of(dtype) > 8 && dtype != DType::kString))
      return invalid_argument("table '{}' cannot hold {}", options.name, to_string(dtype));
  if (options.key_shape.rank() + options.value_shape.rank() >= kMaxRank)
    return invalid_argument("table '{}': keys {} and values {} have too many dimensions", options.name,
                            options.key_shape.str(), options.value_shape.str());
  return std::unique_ptr<Resource>(new Table(std::move(options)));
}

Table::Table(TableOptions options) : options_(std::move(options)) {
  for (const Tensor& key : options_.reserved_keys) reserved_.push_back(bytes_of(key, 0, options_.key_shape));
}

Result<int64_t> Table::count_keys(const Tensor& keys) const {
  const int rank = options_.key_shape.rank();
  bool fits = keys.dtype() == options_.key_dtype && keys.rank() >= rank;
  for (int d = 0; fits && d < rank; ++d) fits = keys.dim(d - rank) == options_.key_shape[d];
  if (!fits)
    return invalid_argument("table '{}' has keys {}{}, got {}", options_.name, to_string(options_.key_dtype),
                            options_.key_shape.str(), describe(keys));
  const int64_t one = options_.key_shape.elements(), n = one > 0 ? keys.elements() / one : 0;
  if (!reserved_.empty())
    for (int64_t i = 0; i < n; ++i)
      if (std::ranges::find(reserved_, bytes_of(keys, i, options_.key_shape)) != reserved_.end())
        return invalid_argument("table '{}': key {} is the empty or the deleted one, which may not be used",
                                options_.name, i);
  return n;
}

Status Table::check_values(const Tensor& keys, int64_t n, const Tensor& values) const {
  Shape wanted = keys.shape();
  for (int d = 0; d < options_.key_shape.rank(); ++d) wanted.erase(wanted.rank() - 1);
  if (wanted.rank() + options_.value_shape.rank() > kMaxRank)
    return invalid_argument("table '{}': keys {} are too many dimensions", options_.name, keys.shape().str());
  wanted = joined(wanted, options_.value_shape);
  if (values.dtype() != options_.value_dtype || !(values.shape() == wanted))
    return invalid_argument("table '{}' wants values {}{} for {} keys, got {}", options_.name,
                            to_string(options_.value_dtype), wanted.str(), n, describe(values));
  return {};
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
  TROUPE_ASSIGN(const int64_t n, count_keys(keys));
  const bool one = otherwise.dtype() == options_.value_dtype && otherwise.shape() == options_.value_shape;
  if (!one) TROUPE_RETURN_IF_ERROR(check_values(keys, n, otherwise));
  Shape shape = keys.shape();
  for (int d = 0; d < options_.key_shape.rank(); ++d) shape.erase(shape.rank() - 1);
  if (shape.rank() + options_.value_shape.rank() > kMaxRank)
    return invalid_argument("table '{}': keys {} are too many dimensions", options_.name, keys.shape().str());
  TROUPE_ASSIGN(Tensor out, Tensor::make(options_.value_dtype, joined(shape, options_.value_shape), allocator));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = rows_.find(bytes_of(keys, i, options_.key_shape));
    if (at != rows_.end()) set_item(out, i, options_.value_shape, values_[at->second]);
    else set_item(out, i, options_.value_shape, bytes_of(otherwise, one ? 0 : i, options_.value_shape));
  }
  return out;
}

void Table::put(std::string key, const Tensor& values, int64_t row) {
  const auto [at, added] = rows_.try_emplace(std::move(key), keys_.size());
  if (added) {
    keys_.push_back(&at->first);
    values_.emplace_back();
  }
  values_[at->second] = bytes_of(values, row, options_.value_shape);
}

Status Table::insert(const Tensor& keys, const Tensor& values) {
  TROUPE_RETURN_IF_ERROR(check_mutable());
  TROUPE_ASSIGN(const int64_t n, count_keys(keys));
  TROUPE_RETURN_IF_ERROR(check_values(keys, n, values));
  for (int64_t i = 0; i < n; ++i) put(bytes_of(keys, i, options_.key_shape), values, i);
  return {};
}

Status Table::remove(const Tensor& keys) {
  TROUPE_RETURN_IF_ERROR(check_mutable());
  TROUPE_ASSIGN(const int64_t n, count_keys(keys));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = rows_.find(bytes_of(keys, i, options_.key_shape));
    if (at == rows_.end()) continue;
    const size_t row = at->second, last = keys_.size() - 1;
    rows_.find(*keys_[last])->second = row;
    keys_[row] = keys_[last];
    std::swap(values_[row], values_[last]);
    keys_.pop_back();
    values_.pop_back();
    rows_.erase(at);
  }
  return {};
}

Status Table::fill(const Tensor& keys, const Tensor& values) {
  TROUPE_ASSIGN(const int64_t n, count_keys(keys));
  TROUPE_RETURN_IF_ERROR(check_values(keys, n, values));
  if (options_.constant) {
    std::unordered_map<std::string, std::string> fresh;
    for (int64_t i = 0; i < n; ++i) {
      std::string value = bytes_of(values, i, options_.value_shape);
      const auto [at, added] = fresh.try_emplace(bytes_of(keys, i, options_.key_shape), value);
      if (!added && at->second != value)
        return invalid_argument("table '{}': key {} of {} was there before, with another value", options_.name, i, n);
    }
    if (filled_) {
      const bool same = fresh.size() == rows_.size() && std::ranges::all_of(fresh, [&](const auto& entry) {
                          const auto at = rows_.find(entry.first);
                          return at != rows_.end() && values_[at->second] == entry.second;
                        });
      if (same) return {};
      return make_error(Code::kFailedPrecondition, "table '{}' was already initialized with other entries",
                        options_.name);
    }
  }
  rows_.clear();
  keys_.clear();
  values_.clear();
  for (int64_t i = 0; i < n; ++i) put(bytes_of(keys, i, options_.key_shape), values, i);
  filled_ = true;
  return {};
}

Result<std::vector<Tensor>> Table::entries(const std::shared_ptr<Allocator>& allocator) const {
  const Shape rows{size()};
  TROUPE_ASSIGN(Tensor keys, Tensor::make(options_.key_dtype, joined(rows, options_.key_shape), allocator));
  TROUPE_ASSIGN(Tensor values, Tensor::make(options_.value_dtype, joined(rows, options_.value_shape), allocator));
  for (size_t i = 0; i < keys_.size(); ++i) {
    set_item(keys, static_cast<int64_t>(i), options_.key_shape, *keys_[i]);
    set_item(values, static_cast<int64_t>(i), options_.value_shape, values_[i]);
  }
  return std::vector<Tensor>{std::move(keys), std::move(values)};
}

}  // namespace troupe
