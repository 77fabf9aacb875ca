// SPDX-License-Identifier: Apache-2.0
#include "cli/feed_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "io/numbers.h"

namespace troupe {
namespace {

template <class T> constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T> constexpr bool kIsFloating = std::is_floating_point_v<T> || kIsHalf<T>;

/// Whether the number is one of the type To, which it then is in `out`.
template <class To> bool put_double(double value, To& out) {
  if constexpr (std::is_same_v<To, bool>) {
    out = value != 0;
    return value == 0 || value == 1;
  } else if constexpr (kIsFloating<To>) {
    if constexpr (kIsHalf<To>) out = To(static_cast<float>(value));
    else out = static_cast<To>(value);
    bool finite = false;
    if constexpr (kIsHalf<To>) finite = std::isfinite(static_cast<float>(out));
    else finite = std::isfinite(out);
    return finite || !std::isfinite(value);
  } else {
    const double end = std::ldexp(1.0, std::numeric_limits<To>::digits);
    if (!(value >= static_cast<double>(std::numeric_limits<To>::min()) && value < end) || std::trunc(value) != value)
      return false;
    out = static_cast<To>(value);
    return true;
  }
}

template <class From, class To> bool put(const From& from, double scale, To& out) {
  if constexpr (kIsHalf<From>) return put_double(static_cast<double>(static_cast<float>(from)) * scale, out);
  else if constexpr (std::is_same_v<From, bool>) return put_double((from ? 1.0 : 0.0) * scale, out);
  else if constexpr (kIsFloating<From> || kIsFloating<To> || std::is_same_v<To, bool>)
    return put_double(static_cast<double>(from) * scale, out);
  else {
    out = static_cast<To>(from);
    return std::in_range<To>(from);
  }
}

Error not_convertible(const FeedSlot& slot, const Tensor& value) {
  return invalid_argument("{} cannot be fed for {}", to_string(value.dtype()), to_string(slot.dtype));
}

std::string with_type(DType dtype, const std::string& shape) { return to_string(dtype) + shape; }

/// The sizes of axes from the outermost on, multiplied up: [2,3] has 1, 2, 6.
std::vector<int64_t> products(const Shape& shape) {
  std::vector<int64_t> out = {1};
  for (const int64_t size : shape) out.push_back(out.back() * size);
  return out;
}

/// Whether one shape comes from the other by joining neighbouring axes.
bool regroups(const Shape& a, const Shape& b) {
  if (a.elements() != b.elements() || a.elements() == 0) return a == b;
  const std::vector<int64_t> x = products(a), y = products(b);
  const auto has_all = [](const auto& those, const auto& these) {
    return std::ranges::all_of(these, [&](int64_t p) { return std::ranges::find(those, p) != those.end(); });
  };
  return has_all(x, y) || has_all(y, x);
}

/// What the slot says of one row; nothing where it says nothing.
std::optional<PartialShape> row_of(const FeedSlot& slot) {
  if (!slot.shape.has_rank() || (slot.batched && slot.shape.rank() == 0)) return {};
  PartialShape out = PartialShape::scalar();
  for (int i = slot.batched ? 1 : 0; i < slot.shape.rank(); ++i) out.push_back(slot.shape[i]);
  return out;
}

/// The shape with its only unknown size, if it has one, such that it has `count` elements; nothing where it cannot.
std::optional<Shape> with_elements(const PartialShape& shape, int64_t count) {
  Shape out;
  int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    out.push_back(std::max<int64_t>(shape[i], 0));
    if (shape[i] >= 0) {
      if (__builtin_mul_overflow(known, shape[i], &known)) return {};
    } else if (std::exchange(unknown, i) >= 0) {
      return {};
    }
  }
  if (unknown >= 0) {
    if (known == 0 || count % known != 0) return {};
    out.set(unknown, count / known);
    return out;
  }
  return known == count ? std::optional(out) : std::nullopt;
}

template <class T> std::optional<T> parsed(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  T value = {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(value)
                                                                                   : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  constexpr const char* kBlank = " \t";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool is_true(std::string_view word) { return word == "true" || word == "True" || word == "TRUE"; }
bool is_false(std::string_view word) { return word == "false" || word == "False" || word == "FALSE"; }

}  // namespace

Result<Tensor> converted(const FeedSlot& slot, const Tensor& value) {
  if (value.dtype() == slot.dtype && !slot.scale) return value;
  TROUPE_ASSIGN(Tensor out, Tensor::make(slot.dtype, value.shape()));
  const double scale = slot.scale.value_or(1);
  int64_t bad = -1;
  bool visited = false;
  visit_real(value.dtype(), [&]<class From>(std::type_identity<From>) {
    visited = visit_real(slot.dtype, [&]<class To>(std::type_identity<To>) {
      const From* from = value.data<From>();
      To* to = out.mutable_data<To>();
      for (int64_t i = 0; i < value.elements(); ++i)
        if (!put(from[i], scale, to[i]) && bad < 0) bad = i;
    });
  });
  if (!visited) return not_convertible(slot, value);
  if (bad < 0) return out;
  TROUPE_ASSIGN(const Tensor flat, value.reshape({value.elements()}));
  TROUPE_ASSIGN(const Tensor one, flat.slice(bad, bad + 1));
  return invalid_argument("element {} of {} is not a value of {}: {}", bad,
                          with_type(value.dtype(), value.shape().str()), to_string(slot.dtype), one.str());
}

Result<Tensor> fitted(const FeedSlot& slot, const Tensor& value) {
  TROUPE_ASSIGN(const Tensor out, converted(slot, value));
  if (slot.shape.compatible(out.shape())) return out;
  const auto misfit = [&] {
    return invalid_argument("{} does not fit {}", with_type(value.dtype(), value.shape().str()),
                            with_type(slot.dtype, slot.shape.str()));
  };
  const int first = slot.batched ? 1 : 0;
  const auto wanted = row_of(slot);
  if (!wanted || out.rank() < first) return misfit();
  if (slot.batched && slot.shape[0] >= 0 && slot.shape[0] != out.dim(0)) return misfit();
  const Shape row(out.shape().dims().subspan(static_cast<size_t>(first)));
  const auto whole = with_elements(*wanted, row.elements());
  if (!whole || !regroups(row, *whole) || whole->rank() + first > kMaxRank) return misfit();
  Shape shape = *whole;
  if (slot.batched) shape.insert(0, out.dim(0));
  return out.reshape(shape);
}

Result<Shape> shape_of_row(const FeedSlot& slot, int64_t count) {
  const auto wanted = row_of(slot);
  if (!wanted) return count == 1 ? Shape() : Shape{count};
  if (const auto out = with_elements(*wanted, count)) return *out;
  return invalid_argument("{} value{} {} not a row of {}", count, count == 1 ? "" : "s", count == 1 ? "is" : "are",
                          with_type(slot.dtype, slot.shape.str()));
}

std::optional<int64_t> elements_of_row(const FeedSlot& slot) {
  const auto row = row_of(slot);
  return row && row->fully_known() ? std::optional(row->shape().elements()) : std::nullopt;
}

bool is_number(const FeedSlot& slot, std::string_view text) {
  const std::string_view word = trimmed(text);
  return parsed<double>(word).has_value() || (slot.dtype == DType::kBool && (is_true(word) || is_false(word)));
}

Status read_element(const FeedSlot& slot, std::string_view text, Tensor& out, int64_t at) {
  if (slot.dtype == DType::kString) {
    out.mutable_data<std::string>()[at] = text;
    return {};
  }
  const std::string_view word = trimmed(text);
  const double scale = slot.scale.value_or(1);
  bool done = false;
  const bool real = visit_real(slot.dtype, [&]<class T>(std::type_identity<T>) {
    T& to = out.mutable_data<T>()[at];
    if (std::is_same_v<T, bool> && is_true(word)) done = put(1, 1, to);
    else if (std::is_same_v<T, bool> && is_false(word)) done = put(0, 1, to);
    else if (const auto whole = parsed<int64_t>(word); whole && !kIsFloating<T>) done = put(*whole, 1, to);
    else if (const auto large = parsed<uint64_t>(word); large && !kIsFloating<T>) done = put(*large, 1, to);
    else if (const auto number = parsed<double>(word)) done = put(*number, scale, to);
  });
  if (!real) return invalid_argument("a {} cannot be read from text", to_string(slot.dtype));
  if (word.empty()) return invalid_argument("it is empty where a {} must be", to_string(slot.dtype));
  if (!done) return invalid_argument("{} is not a {}", in_quotes(text.substr(0, 80)), to_string(slot.dtype));
  return {};
}

}  // namespace troupe
