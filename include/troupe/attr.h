// SPDX-License-Identifier: Apache-2.0
// Attributes of nodes: named constants fixed when the graph is built. Implemented in tensor/attr.cpp.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "troupe/export.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// The value of one attribute: the alternatives are those of GraphDef's AttrValue (functions come as kFunc in a
/// later version).
using AttrValue = std::variant<int64_t, float, bool, std::string, DType, PartialShape, Tensor, std::vector<int64_t>,
                               std::vector<float>, std::vector<bool>, std::vector<std::string>, std::vector<DType>,
                               std::vector<PartialShape>>;

/// "int", "float", "bool", "string", "type", "shape", "tensor" or "list(...)": the words of op schemas.
const char* attr_type_name(const AttrValue& value);
/// For messages and DOT: 3, "SAME", float32, [1,2,2,1].
std::string to_string(const AttrValue& value);
/// Equal type and value; floats and tensors bit by bit, so NaN is the same as itself and 0 is not -0.
bool same(const AttrValue& a, const AttrValue& b);

/// A few attributes by name, sorted.
class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;
  Attrs();
  Attrs(std::initializer_list<Entry> entries);
  Attrs(const Attrs& other);
  Attrs(Attrs&& other) noexcept;
  Attrs& operator=(const Attrs& other);
  Attrs& operator=(Attrs&& other) noexcept;
  ~Attrs();
  void set(std::string_view name, AttrValue value);
  const AttrValue* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The value as a T, or nullptr when there is none of that name and type.
  template <class T> const T* get(std::string_view name) const {
    const AttrValue* v = find(name);
    return v ? std::get_if<T>(v) : nullptr;
  }
  /// The value as a T; std::out_of_range, naming those there are, when there is none of that name and type.
  template <class T> const T& at(std::string_view name) const {
    const T* v = get<T>(name);
    if (!v) [[unlikely]]
      no_such(name);
    return *v;
  }
  /// The value, or `fallback`.
  template <class T> T get_or(std::string_view name, T fallback) const {
    const T* v = get<T>(name);
    return v ? *v : fallback;
  }
  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  [[noreturn]] void no_such(std::string_view name) const;
  std::vector<Entry> entries_;
};

}  // namespace troupe
