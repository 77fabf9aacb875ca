// SPDX-License-Identifier: Apache-2.0
// Hashes of snapshots: the same for the same pipeline, others for others.
#include "graph/graph_def/snapshot_hash.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>

namespace troupe {
namespace {

std::string node(const std::string& name, const std::string& op, const std::string& rest) {
  return "node { name: '" + name + "' op: '" + op + "' " + rest + "} ";
}
std::string number(const std::string& name, int value) {
  return node(name, "Const",
              "attr { key: 'value' value { tensor { dtype: DT_INT64 tensor_shape { } int64_val: " +
                  std::to_string(value) + " } } } ");
}
std::string text_attr(const std::string& key, const std::string& value) {
  return "attr { key: '" + key + "' value { s: '" + value + "' } } ";
}
std::string range(const std::string& inputs, const std::string& attrs = "") {
  return node("range", "RangeDataset", inputs + attrs);
}
const std::string kInputs = "input: 'a' input: 'b' ";

/// The hash that the snapshot of `range` gets in this graph.
int64_t hash_in(const std::string& nodes, const std::vector<Tensor>& apart = {}, const std::string& attrs = "") {
  proto::GraphDef def;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      nodes + node("snapshot", "SnapshotDatasetV2", "input: 'range' " + attrs), &def));
  hash_snapshots(def, apart);
  int64_t hash = 0;
  bool valid = false;
  for (const proto::NodeDef& n : def.node())
    for (const proto::AttrEntry& attr : n.attr()) {
      if (attr.key() == "hash") hash = attr.value().i();
      if (attr.key() == "hash_valid") valid = attr.value().b();
    }
  CHECK(valid);
  return hash;
}

}  // namespace

TEST_CASE("a snapshot goes by what its elements are made of, not by names") {
  const std::string two = number("a", 1) + number("b", 2);
  const int64_t hash = hash_in(two + range(kInputs));
  CHECK(hash_in(range(kInputs) + two) == hash);
  CHECK(hash_in(number("x", 1) + number("y", 2) + range("input: 'x:0' input: 'y' ")) == hash);
  CHECK(hash_in(two + range(kInputs, text_attr("metadata", "RangeDataset:4") + text_attr("_class", "x"))) == hash);
  CHECK(hash_in(two + number("c", 3) + range(kInputs)) == hash);  // what is not before it

  CHECK(hash_in(number("a", 1) + number("b", 3) + range(kInputs)) != hash);
  CHECK(hash_in(two + range("input: 'b' input: 'a' ")) != hash);
  CHECK(hash_in(two + range("input: 'a' input: 'a' ")) != hash);
  CHECK(hash_in(two + range("input: 'a' input: 'b:1' ")) != hash);
  CHECK(hash_in(two + range("input: 'a' input: '^b' ")) != hash);
  CHECK(hash_in(two + range(kInputs, text_attr("f", "x"))) != hash);
}

TEST_CASE("a snapshot's hash covers large constants, ends in cycles and keeps one that is given") {
  const std::string large = node("range", "Const", "attr { key: 'value' value { tensor { content_apart: 1 } } } ");
  const auto of_bytes = [&](uint8_t byte) { return hash_in(large, {Tensor::of<uint8_t>({byte, 1})}); };
  CHECK(of_bytes(3) == of_bytes(3));
  CHECK(of_bytes(3) != of_bytes(4));
  CHECK(hash_in(large) != of_bytes(3));
  CHECK(hash_in(node("range", "Merge", "input: 'next' ") + node("next", "NextIteration", "input: 'range' ")) != 0);
  CHECK(hash_in(range("input: 'nowhere' ")) != 0);
  const std::string given = "attr { key: 'hash' value { i: 7 } } attr { key: 'hash_valid' value { b: true } } ";
  CHECK(hash_in(range(""), {}, given) == 7);
}

}  // namespace troupe
