// SPDX-License-Identifier: Apache-2.0
// Value numbering over nodes in topological order.
//
// A node is looked up by op and inputs first, which nearly always decides. Where nodes that agree in these differ in
// what is dearer to look at (attributes, device, control inputs), that is hashed as well, so that many such nodes on
// one input do not make one long chain.
#include "graph/passes/cse.h"

#include <algorithm>
#include <cstring>

namespace troupe {
namespace {

class Hash {
 public:
  void mix(uint64_t h) {
    state_ = (state_ ^ h) * 0x9E3779B97F4A7C15ULL;
    state_ ^= state_ >> 32;
  }
  template <class T> void add(const T& value) { mix(std::hash<T>()(value)); }
  void add(DType value) { mix(static_cast<uint64_t>(value)); }
  void add(const PartialShape& shape) {
    mix(static_cast<uint64_t>(shape.rank()));
    for (int64_t d : shape.dims()) mix(static_cast<uint64_t>(d));
  }
  /// Of large tensors a sample.
  void add(const Tensor& t) {
    add(t.dtype());
    add(PartialShape(t.shape()));
    if (is_object(t.dtype()) || !t.defined()) return;
    constexpr size_t kSamples = 64;
    const auto* bytes = static_cast<const char*>(t.raw());
    const size_t size = t.bytes(), words = size / 8;
    uint64_t word = 0;
    for (size_t i = 0; i < std::min(words, kSamples); ++i) {
      std::memcpy(&word, bytes + (words <= kSamples ? i : i * (words - 1) / (kSamples - 1)) * 8, 8);
      mix(word);
    }
    word = 0;
    if (size % 8 > 0) std::memcpy(&word, bytes + words * 8, size % 8);
    mix(word);
  }
  template <class T> void add(const std::vector<T>& values) {
    for (size_t i = 0; i < values.size(); ++i) add(static_cast<const T&>(values[i]));
  }
  uint32_t value() const { return static_cast<uint32_t>(state_ ^ (state_ >> 29)); }

 private:
  uint64_t state_ = 0x12345;
};

bool same_attrs(const Attrs& a, const Attrs& b) {
  return std::ranges::equal(a, b, [](const Attrs::Entry& x, const Attrs::Entry& y) {
    return x.first == y.first && same(x.second, y.second);
  });
}

void add_attrs(Hash& h, const Attrs& attrs) {
  for (const auto& [name, value] : attrs) std::visit([&](const auto& v) { h.add(v); }, value);
}

}  // namespace

CommonSubexpressions::CommonSubexpressions(const StepGraph& step) : step_(step) {
  size_t size = 64;
  while (size < 2 * step.nodes().size()) size *= 2;
  table_.resize(size);
}

const Node* CommonSubexpressions::find(const Node& node) {
  const bool constant = node.inputs().empty() && node.op().name() == "Const";
  if (node.op().is_stateful() || step_.is_fed(node) || (node.inputs().empty() && !constant)) return nullptr;
  Hash h;
  h.mix(reinterpret_cast<uintptr_t>(&node.op()));
  for (const Output& input : node.inputs()) {
    const Output now = step_.now(input);
    h.mix(static_cast<uint64_t>(now.node->id()) << 16 | static_cast<uint64_t>(now.port));
  }
  if (constant) add_attrs(h, node.attrs());
  bool whole = false;  // attributes, device and control inputs are in the hash as well
  const size_t mask = table_.size() - 1;
  for (size_t at = h.value() & mask;; at = (at + 1) & mask) {
    Entry& entry = table_[at];
    if (entry.id < 0) {
      entry = {h.value(), node.id()};
      if (2 * ++used_ > table_.size()) grow();
      return nullptr;
    }
    if (entry.hash != h.value()) continue;
    const Node& other = step_.node(entry.id);
    if (!same_inputs(node, other)) continue;
    const auto before = controls(node);
    if (node.device() == other.device() && same_attrs(node.attrs(), other.attrs()) && before == controls(other))
      return &other;
    if (whole) continue;
    whole = true;
    h.add(node.device());
    add_attrs(h, node.attrs());
    for (const Output& o : before) h.mix(static_cast<uint64_t>(o.node->id()));
    at = (h.value() - 1) & mask;
  }
}

bool CommonSubexpressions::same_inputs(const Node& a, const Node& b) const {
  return &a.op() == &b.op() && std::ranges::equal(a.inputs(), b.inputs(), [this](const Output& x, const Output& y) {
    return step_.now(x) == step_.now(y);
  });
}

/// As a set: their order means nothing.
std::vector<Output> CommonSubexpressions::controls(const Node& node) const {
  std::vector<Output> out;
  step_.for_each_control(node, [&](const Output& before) { out.push_back(before); });
  std::ranges::sort(out, {}, [](const Output& o) { return std::pair(o.node->id(), o.port); });
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

void CommonSubexpressions::grow() {
  std::vector<Entry> before(2 * table_.size());
  before.swap(table_);
  const size_t mask = table_.size() - 1;
  for (const Entry& entry : before) {
    if (entry.id < 0) continue;
    size_t at = entry.hash & mask;
    while (table_[at].id >= 0) at = (at + 1) & mask;
    table_[at] = entry;
  }
}

}  // namespace troupe
