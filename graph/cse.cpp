// SPDX-License-Identifier: Apache-2.0
// Value numbering over nodes in topological order.
#include "graph/cse.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace troupe {
namespace {

/// Bytes of a tensor that its hash looks at.
constexpr size_t kHashedBytes = 64;

class Hash {
 public:
  template <class T> void add(const T& value) { mix(std::hash<T>()(value)); }
  void add(DType value) { add(static_cast<int>(value)); }
  void add(const PartialShape& shape) {
    add(shape.rank());
    for (int64_t d : shape.dims()) add(d);
  }
  void add(const Tensor& t) {
    add(t.dtype());
    add(PartialShape(t.shape()));
    if (t.dtype() == DType::kString || t.dtype() == DType::kResource || !t.defined()) return;
    add(std::string_view(static_cast<const char*>(t.raw()), std::min(t.bytes(), kHashedBytes)));
  }
  template <class T> void add(const std::vector<T>& values) {
    for (size_t i = 0; i < values.size(); ++i) add(static_cast<const T&>(values[i]));
  }
  size_t value() const { return state_; }

 private:
  void mix(size_t h) { state_ = (state_ ^ h) * 0x9E3779B97F4A7C15ULL + (state_ >> 29); }
  size_t state_ = 0x12345;
};

bool same_attrs(const Attrs& a, const Attrs& b) {
  return std::ranges::equal(a, b, [](const Attrs::Entry& x, const Attrs::Entry& y) {
    return x.first == y.first && same(x.second, y.second);
  });
}

class Merge {
 public:
  explicit Merge(std::span<const Output> fed) {
    for (const Output& f : fed) fed_.insert(f.node);
  }

  const Node* representative(const Node& n) {
    if (n.op().is_stateful() || fed_.contains(&n) || (n.inputs().empty() && n.op().name() != "Const")) return &n;
    std::vector<const Node*>& alike = by_hash_[hash(n)];
    for (const Node* other : alike) {
      if (!equal(n, *other)) continue;
      merged_[&n] = other;
      return other;
    }
    alike.push_back(&n);
    return &n;
  }

 private:
  const Node* of(const Node* n) const {
    const auto at = merged_.find(n);
    return at == merged_.end() ? n : at->second;
  }

  /// Control inputs as a set: their order means nothing.
  std::vector<const Node*> controls(const Node& n) const {
    std::vector<const Node*> out;
    for (const Node* c : n.control_inputs()) out.push_back(of(c));
    std::ranges::sort(out, {}, &Node::id);
    out.erase(std::ranges::unique(out).begin(), out.end());
    return out;
  }

  size_t hash(const Node& n) const {
    Hash h;
    h.add(static_cast<const void*>(&n.op()));
    h.add(n.device());
    for (const Output& in : n.inputs()) {
      h.add(of(in.node)->id());
      h.add(in.port);
    }
    for (const Node* c : controls(n)) h.add(c->id());
    for (const auto& [name, value] : n.attrs()) std::visit([&](const auto& v) { h.add(v); }, value);
    return h.value();
  }

  bool equal(const Node& a, const Node& b) const {
    const auto same_input = [this](const Output& x, const Output& y) {
      return x.port == y.port && of(x.node) == of(y.node);
    };
    return &a.op() == &b.op() && a.device() == b.device() && std::ranges::equal(a.inputs(), b.inputs(), same_input) &&
           controls(a) == controls(b) && same_attrs(a.attrs(), b.attrs());
  }

  std::unordered_set<const Node*> fed_;
  std::unordered_map<size_t, std::vector<const Node*>> by_hash_;
  std::unordered_map<const Node*, const Node*> merged_;
};

}  // namespace

std::vector<const Node*> merge_common(std::span<const Node* const> nodes, std::span<const Output> fed) {
  Merge merge(fed);
  std::vector<const Node*> out;
  out.reserve(nodes.size());
  for (const Node* n : nodes) out.push_back(merge.representative(*n));
  return out;
}

}  // namespace troupe
