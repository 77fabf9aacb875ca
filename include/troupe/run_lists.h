// SPDX-License-Identifier: Apache-2.0
// What a run of a Session is given: lists of feeds, of outputs to fetch, of nodes to run and of names. They are made
// from one element, from braces or from a vector, so that `session.run(train)`, `session.run({loss, accuracy})` and
// `session.run({{x, value}}, {loss})` each mean one thing. Implemented in actors/session.cpp as
// far as not here.
#pragma once
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "troupe/export.h"
#include "troupe/graph.h"

namespace TROUPE_API troupe {

// Constructors that a slip would reach are there to say what was meant, in place of a list of all calls there are.
// They never compile.

/// A tensor for an output: any output of the graph may be fed.
struct Feed {
  Feed() = default;
  Feed(const Output& output, Tensor value) : output(output), value(std::move(value)) {}
  template <class V>
  requires(std::is_arithmetic_v<V>) Feed(const Output&, const V&) {
    static_assert(!sizeof(V), "what is fed is a Tensor, not a number: {x, Tensor::scalar(3.f)}");
  }
  template <class V> Feed(const Output&, std::initializer_list<V>) {
    static_assert(!sizeof(V), "what is fed is a Tensor, not a list: {x, Tensor::of<float>({1, 2, 3})}");
  }
  template <class V> Feed(const Output&, const std::vector<V>&) {
    static_assert(!sizeof(V), "what is fed is a Tensor, not a vector: {x, Tensor::of<float>(values)}");
  }

  Output output;
  Tensor value;
};

/// Feeds: `{}`, `{{x, value}, {y, other}}` or a vector of Feed. A copy of what it is made from.
class FeedList {
 public:
  FeedList() = default;
  FeedList(std::initializer_list<Feed> feeds) { add(feeds); }
  template <class V>
  requires(std::same_as<V, Tensor> || std::is_arithmetic_v<V>) FeedList(const Output&, const V&) {
    static_assert(!sizeof(V), "feeds are a list of pairs, with braces around each: {{x, value}}");
  }
  template <std::same_as<std::vector<Feed>> V> FeedList(const V& feeds) { add(feeds); }

  std::vector<Output> outputs;
  std::vector<Tensor> values;  // of outputs[i]

 private:
  void add(const auto& feeds) {
    outputs.reserve(feeds.size());
    values.reserve(feeds.size());
    for (const Feed& f : feeds) {
      outputs.push_back(f.output);
      values.push_back(f.value);
    }
  }
};

// Constructors from vectors are templates, since braces would otherwise be taken for a vector in passing:
// {{node, 0}} is an output, never a vector of two nodes.

/// Outputs: `loss`, `{}`, `{loss, accuracy}` or a vector. A copy of what it is made from.
class OutputList {
 public:
  OutputList() = default;
  OutputList(const Output& output) : outputs{output} {}
  OutputList(std::initializer_list<Output> list) : outputs(list) {}
  template <std::same_as<std::vector<Output>> V> OutputList(V&& list) : outputs(std::move(list)) {}
  template <std::same_as<std::vector<Output>> V> OutputList(const V& list) : outputs(list) {}

  std::vector<Output> outputs;
};

/// Nodes: `train`, `{}`, `{train, count}` or a vector. A copy of what it is made from.
class NodeList {
 public:
  /// A pointer to a node. (The literal 0 is not one: {{node, 0}} is an output.)
  struct Pointer {
    template <class P>
    requires(std::same_as<P, const Node*> || std::same_as<P, Node*> || std::same_as<P, std::nullptr_t>) Pointer(P node)
        : node(node) {}
    const Node* node;
  };
  NodeList() = default;
  NodeList(const Node* node) : nodes{node} {}
  NodeList(std::initializer_list<Pointer> list) {
    for (const Pointer& p : list) nodes.push_back(p.node);
  }
  template <std::same_as<std::vector<const Node*>> V> NodeList(V&& list) : nodes(std::move(list)) {}
  template <std::same_as<std::vector<const Node*>> V> NodeList(const V& list) : nodes(list) {}

  std::vector<const Node*> nodes;
};

/// Names of outputs ("x:0", "x") or nodes: `"loss"`, `{}`, `{"loss", "accuracy"}` or a vector of strings.
class NameList {
 public:
  struct Name {
    template <class S>
    requires(std::convertible_to<const S&, std::string_view> && !std::same_as<S, std::nullptr_t>) Name(const S& name)
        : text(std::string_view(name)) {}
    std::string text;
  };
  NameList() = default;
  template <class S>
  requires(std::convertible_to<const S&, std::string_view> && !std::same_as<S, std::nullptr_t>) NameList(const S& name)
      : names{std::string(std::string_view(name))} {}
  NameList(std::initializer_list<Name> list) {
    for (const Name& n : list) names.push_back(n.text);
  }
  template <std::same_as<std::vector<std::string>> V> NameList(const V& list) : names(list) {}

  std::vector<std::string> names;
};

/// Values for the feeds of a Session::Prepared, in their order: `{}`, `{a, b}` or a vector.
class ValueList {
 public:
  ValueList() = default;
  ValueList(std::initializer_list<Tensor> list) : values(list) {}
  template <class V>
  requires(std::is_arithmetic_v<V>) ValueList(std::initializer_list<V>) {
    static_assert(!sizeof(V), "the values of feeds are Tensors, not numbers: {Tensor::scalar(3.f)}");
  }
  template <std::same_as<std::vector<Tensor>> V> ValueList(V&& list) : values(std::move(list)) {}
  template <std::same_as<std::vector<Tensor>> V> ValueList(const V& list) : values(list) {}

  std::vector<Tensor> values;
};

}  // namespace troupe
