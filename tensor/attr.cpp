// SPDX-License-Identifier: Apache-2.0
// Attribute values: names of types, printing, equality, the sorted list.
#include "troupe/attr.h"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>

#include "base/printable.h"

namespace troupe {
namespace {

std::string show(int64_t v) { return std::to_string(v); }
std::string show(float v) { return fmt::format("{}", v); }
std::string show(bool v) { return v ? "true" : "false"; }
std::string show(const std::string& v) { return in_quotes(v, '"'); }
std::string show(DType v) { return to_string(v); }
std::string show(const PartialShape& v) { return v.str(); }
std::string show(const Tensor& v) { return v.str(); }

template <class T> std::string show(const std::vector<T>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = values[i];
    if (i) out += ',';
    out += show(value);
  }
  return out + "]";
}

template <class T> bool equal(const T& a, const T& b) { return a == b; }
bool equal(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
bool equal(const Tensor& a, const Tensor& b) { return a.identical(b); }
bool equal(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) { return equal(x, y); });
}

}  // namespace

const char* attr_type_name(const AttrValue& value) {
  static constexpr std::array kNames = {"int",          "float",      "bool",       "string",      "type",
                                        "shape",        "tensor",     "list(int)",  "list(float)", "list(bool)",
                                        "list(string)", "list(type)", "list(shape)"};
  return kNames[value.index()];
}

std::string to_string(const AttrValue& value) {
  return std::visit([](const auto& v) { return show(v); }, value);
}

bool same(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&b]<class T>(const T& v) { return equal(v, std::get<T>(b)); }, a);
}

Attrs::Attrs() = default;
Attrs::Attrs(std::initializer_list<Entry> entries) {
  for (const Entry& e : entries) set(e.first, e.second);
}
Attrs::Attrs(const Attrs& other) = default;
Attrs::Attrs(Attrs&& other) noexcept = default;
Attrs& Attrs::operator=(const Attrs& other) = default;
Attrs& Attrs::operator=(Attrs&& other) noexcept = default;
Attrs::~Attrs() = default;

void Attrs::set(std::string_view name, AttrValue value) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const Entry& e, std::string_view n) { return e.first < n; });
  if (at != entries_.end() && at->first == name) at->second = std::move(value);
  else entries_.insert(at, {std::string(name), std::move(value)});
}

void Attrs::no_such(std::string_view name) const {
  std::string there;
  for (const auto& [other, value] : entries_)
    there += fmt::format("{}{}: {}", there.empty() ? "" : ", ", other, attr_type_name(value));
  throw std::out_of_range(fmt::format("there is no attribute '{}' of the type asked for; there are: {}", name,
                                      there.empty() ? "none" : there));
}

const AttrValue* Attrs::find(std::string_view name) const {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const Entry& e, std::string_view n) { return e.first < n; });
  return at != entries_.end() && at->first == name ? &at->second : nullptr;
}

}  // namespace troupe
