// SPDX-License-Identifier: Apache-2.0
// GraphDef in and out: round trips, TensorFlow's encodings, and bytes that are wrong.
#include "troupe/graph_def.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "graph/graph_def/graph.pb.h"
#include "tests/graph/fake_ops.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// A graph with every kind of attribute and edge.
void build_sample(test::Fixture& f) {
  const Output x = f.placeholder("x", {-1, 4});
  const Node* pair = f.scope.scope("layer").device("/job:worker/task:1/device:cpu:0").node("Pair", {x});
  f.scope.op("Mul", {pair->out(0), pair->out(1)});
  f.scope.after({pair}).node("NoOp", {});
  f.scope.op("Pool", {x},
             {{"ksize", std::vector<int64_t>{1, -2, 3, 4}},
              {"padding", "VALID"},
              {"alpha", 0.25F},
              {"names", std::vector<std::string>{}},
              {"shape", PartialShape::unknown()},
              {"_note", "free"}});
  const Output h = f.scope.op("Handle", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}});
  f.scope.node("Enqueue", {h, x, x});
  f.scope.constant(Tensor::of<std::string>({"a", "", std::string("b\0c\xFF", 4)}));
  f.scope.constant(Tensor::of<bool>({true, false}));
  f.scope.constant(Tensor::of<int64_t>({-1, INT64_MAX}, {2, 1}));
  f.scope.constant(Tensor::of<float16>({float16(1.5F)}));
  f.scope.constant(Tensor::of<complex64>({{1, 2}}));
  f.scope.constant(Tensor::of<float>({}, {0, 3}));
  REQUIRE(f.scope.ok());
}

void check_equal(const Graph& a, const Graph& b) {
  REQUIRE(a.size() == b.size());
  for (int i = 0; i < a.size(); ++i) {
    const Node &m = a.node(i), &n = b.node(i);
    INFO(m.name());
    CHECK(m.name() == n.name());
    CHECK(m.op().name() == n.op().name());
    CHECK(m.device() == n.device());
    REQUIRE(m.attrs().size() == n.attrs().size());
    for (const auto& [name, value] : m.attrs()) {
      INFO(name);
      REQUIRE(n.attrs().has(name));
      CHECK(same(value, *n.attrs().find(name)));
    }
    REQUIRE(m.inputs().size() == n.inputs().size());
    for (size_t k = 0; k < m.inputs().size(); ++k) CHECK(m.inputs()[k].name() == n.inputs()[k].name());
    REQUIRE(m.control_inputs().size() == n.control_inputs().size());
    for (int p = 0; p < m.num_outputs(); ++p) CHECK(m.shape(p) == n.shape(p));
  }
}

Error import_error(const std::string& text) {
  test::Fixture f;
  const Status status = from_graph_def(text, f.graph);
  INFO(text);
  REQUIRE(!status.ok());
  return status.error();
}

/// The value of a Const whose tensor is given as text.
Result<Tensor> tensor_of(const std::string& dtype, const std::string& fields) {
  test::Fixture f;
  const std::string text = "node { name: 'c' op: 'Const' attr { key: 'dtype' value { type: " + dtype +
                           " } } attr { key: 'value' value { tensor { dtype: " + dtype + " " + fields + " } } } }";
  if (Status status = from_graph_def(text, f.graph); !status) return status.error();
  return *f.graph.find("c")->attrs().get<Tensor>("value");
}

}  // namespace

TEST_CASE("a graph survives GraphDef, binary and text") {
  test::Fixture f, binary, text;
  build_sample(f);
  REQUIRE(from_graph_def(to_graph_def(f.graph), binary.graph).ok());
  check_equal(f.graph, binary.graph);
  REQUIRE(from_graph_def(to_graph_def_text(f.graph), text.graph).ok());
  check_equal(f.graph, text.graph);
  CHECK(to_graph_def(f.graph) == to_graph_def(text.graph));
  CHECK_THAT(to_graph_def_text(f.graph), Contains("type: DT_FLOAT") && Contains("input: \"^layer/Pair\""));
  CHECK_THAT(to_graph_def_text(f.graph), Contains("input: \"layer/Pair:1\"") && Contains("op: \"Mul\""));
}

TEST_CASE("bytes without a field of a graph are refused, not taken for an empty one") {
  CHECK_THAT(import_error("model_checkpoint_path: \"model.ckpt-7\"\n").message, Contains("have no field of one"));
  CHECK(import_error("model_checkpoint_path: \"model.ckpt-7\"\n").code == Code::kDataLoss);
  CHECK(import_error(std::string("\x50\x01", 2)).code == Code::kDataLoss);
  test::Fixture f;
  CHECK(from_graph_def("versions { producer: 134 }", f.graph).ok());
  CHECK(f.graph.size() == 0);
}

TEST_CASE("the bytes are those of TensorFlow's fields") {
  test::Fixture f;
  f.scope.named("n").node("NoOp", {});
  // node (1) { name (1): "n", op (2): "NoOp" }, versions (4) { producer (1), min_consumer (2) }
  const std::string bytes = to_graph_def(f.graph);
  CHECK(bytes.substr(0, 11) == std::string("\x0a\x09\x0a\x01n\x12\x04NoOp"));
  CHECK(bytes[11] == 0x22);
}

TEST_CASE("nodes come in any order, below a prefix") {
  test::Fixture f;
  const std::string text =
      "node { name: 'c' op: 'Mul' input: 'b' input: 'a:0' input: '^n' }"
      "node { name: 'b' op: 'Neg' input: 'a' }"
      "node { name: 'n' op: 'NoOp' }"
      "node { name: 'a' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } }";
  REQUIRE(from_graph_def(text, f.graph).ok());
  CHECK(f.graph.find("c")->inputs()[0].name() == "b:0");
  CHECK(f.graph.find("c")->control_inputs()[0]->name() == "n");
  REQUIRE(from_graph_def(text, f.graph, "copy").ok());
  CHECK(f.graph.find("copy/c")->inputs()[1].name() == "copy/a:0");
  CHECK(from_graph_def(text, f.graph).error().code == Code::kAlreadyExists);
}

TEST_CASE("all tensor encodings are read") {
  CHECK(tensor_of("DT_FLOAT", "tensor_shape { dim { size: 3 } } float_val: 1 float_val: 2")
            ->identical(Tensor::of<float>({1, 2, 2})));
  CHECK(tensor_of("DT_FLOAT", "tensor_shape { dim { size: 2 } }")->identical(Tensor::of<float>({0, 0})));
  CHECK(tensor_of("DT_DOUBLE", "tensor_shape { } double_val: 0.5")->identical(Tensor::scalar(0.5)));
  CHECK(tensor_of("DT_INT32", "tensor_shape { } int_val: -7")->identical(Tensor::scalar<int32_t>(-7)));
  CHECK(tensor_of("DT_UINT8", "tensor_shape { } int_val: 255")->identical(Tensor::scalar<uint8_t>(255)));
  CHECK(tensor_of("DT_INT8", "tensor_shape { } int_val: -1")->identical(Tensor::scalar<int8_t>(-1)));
  CHECK(tensor_of("DT_INT16", "tensor_shape { } int_val: -1")->identical(Tensor::scalar<int16_t>(-1)));
  CHECK(tensor_of("DT_UINT16", "tensor_shape { } int_val: 65535")->identical(Tensor::scalar<uint16_t>(65535)));
  CHECK(tensor_of("DT_INT64", "tensor_shape { } int64_val: -9000000000")
            ->identical(Tensor::scalar<int64_t>(-9000000000)));
  CHECK(tensor_of("DT_UINT32", "tensor_shape { } uint32_val: 4000000000")
            ->identical(Tensor::scalar<uint32_t>(4000000000U)));
  CHECK(tensor_of("DT_UINT64", "tensor_shape { } uint64_val: 9")->identical(Tensor::scalar<uint64_t>(9)));
  CHECK(tensor_of("DT_BOOL", "tensor_shape { dim { size: 2 } } bool_val: true")
            ->identical(Tensor::of<bool>({true, true})));
  CHECK(tensor_of("DT_HALF", "tensor_shape { } half_val: 15872")->identical(Tensor::scalar(float16(1.5F))));
  CHECK(tensor_of("DT_BFLOAT16", "tensor_shape { } half_val: 16320")->identical(Tensor::scalar(bfloat16(1.5F))));
  CHECK(tensor_of("DT_COMPLEX64", "tensor_shape { } scomplex_val: 1 scomplex_val: 2")
            ->identical(Tensor::scalar(complex64(1, 2))));
  CHECK(tensor_of("DT_COMPLEX128", "tensor_shape { dim { size: 2 } } dcomplex_val: 1 dcomplex_val: 0.1")
            ->identical(Tensor::of<complex128>({{1, 0.1}, {1, 0.1}})));
  CHECK(tensor_of("DT_STRING", "tensor_shape { dim { size: 2 } } string_val: 'ab' string_val: ''")
            ->identical(Tensor::of<std::string>({"ab", ""})));
  CHECK(tensor_of("DT_STRING", "tensor_shape { dim { size: 2 } } tensor_content: '\\002\\001abc'")
            ->identical(Tensor::of<std::string>({"ab", "c"})));
  CHECK(tensor_of("DT_INT32", "tensor_shape { dim { size: 1 } } tensor_content: '\\001\\000\\000\\000'")
            ->identical(Tensor::of<int32_t>({1})));
  CHECK(tensor_of("DT_BOOL", "tensor_shape { dim { size: 2 } } tensor_content: '\\377\\000'")
            ->identical(Tensor::of<bool>({true, false})));
}

TEST_CASE("quantised types are plain integers here and are written as they were read") {
  test::Fixture f;
  REQUIRE(from_graph_def(R"(
node { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_QUINT8 } }
       attr { key: 'value' value { tensor { dtype: DT_QUINT8 tensor_shape { } int_val: 7 } } } }
node { name: 'i' op: 'Identity' input: 'c' attr { key: 'T' value { type: DT_QUINT8 } } }
node { name: 'h' op: 'Handle' attr { key: 'dtype' value { type: DT_FLOAT } }
       attr { key: 'shape' value { shape { } } } }
node { name: 'e' op: 'Enqueue' input: 'h' input: 'c' input: 'n'
       attr { key: 'Tcomponents' value { list { type: [ DT_QUINT8, DT_UINT8 ] } } } }
node { name: 'n' op: 'Const' attr { key: 'dtype' value { type: DT_UINT8 } }
       attr { key: 'value' value { tensor { dtype: DT_UINT8 tensor_shape { } int_val: 7 } } } }
)",
                         f.graph)
              .ok());
  CHECK((*f.graph.output("i:0")).dtype() == DType::kUInt8);
  {
    proto::GraphDef def;
    REQUIRE(def.ParseFromString(to_graph_def(f.graph)));
    for (const proto::NodeDef& node : def.node()) {
      INFO(node.DebugString());
      const int type = node.name() == "n" ? proto::DT_UINT8 : proto::DT_QUINT8;
      for (const proto::AttrEntry& attr : node.attr()) {
        CHECK_FALSE(attr.key().starts_with("_"));
        if (node.name() == "h") continue;
        if (attr.key() == "Tcomponents") {
          REQUIRE(attr.value().list().type_size() == 2);
          CHECK(attr.value().list().type(0) == proto::DT_QUINT8);
          CHECK(attr.value().list().type(1) == proto::DT_UINT8);
        } else if (attr.value().has_tensor()) {
          CHECK(attr.value().tensor().dtype() == type);
        } else if (attr.value().value_case() == proto::AttrValue::kType) {
          CHECK(attr.value().type() == type);
        }
      }
    }
    test::Fixture again;
    REQUIRE(from_graph_def(to_graph_def(f.graph), again.graph).ok());
    CHECK(to_graph_def(again.graph) == to_graph_def(f.graph));
  }
}

TEST_CASE("tensors that lie about their size are errors, without taking memory") {
  const std::string huge = "tensor_shape { dim { size: 1152921504606846976 } } ";
  const std::string wide = "tensor_shape { dim { size: 1099511627776 } } ";
  for (const std::string& shape : {huge, wide}) {
    CHECK(!tensor_of("DT_FLOAT", shape).ok());
    CHECK(!tensor_of("DT_FLOAT", shape + "float_val: 1").ok());
    CHECK(!tensor_of("DT_STRING", shape).ok());
    CHECK(!tensor_of("DT_STRING", shape + "tensor_content: 'a'").ok());
    CHECK(!tensor_of("DT_INT8", shape + "tensor_content: 'a'").ok());
  }
  CHECK_THAT(tensor_of("DT_FLOAT", wide).error().str(),
             Contains("Const 'c': attribute value") && Contains("1099511627776"));
  CHECK_THAT(tensor_of("DT_FLOAT", "tensor_shape { } float_val: 1 float_val: 2").error().message, Contains("2 values"));
  CHECK_THAT(tensor_of("DT_FLOAT", "tensor_shape { } tensor_content: 'abc'").error().message,
             Contains("needs 4 bytes, but has 3"));
  CHECK(!tensor_of("DT_FLOAT", "tensor_shape { dim { size: -1 } }").ok());
  CHECK(!tensor_of("DT_FLOAT", "tensor_shape { unknown_rank: true }").ok());
  std::string sizes;
  for (int i = 0; i <= kMaxRank; ++i) sizes += "dim{} ";
  CHECK(!tensor_of("DT_FLOAT", "tensor_shape { " + sizes + "}").ok());
  CHECK(!tensor_of("DT_STRING", "tensor_shape { dim { size: 2 } } tensor_content: '\\377\\377\\377\\377\\377\\377'")
             .ok());
  CHECK(!tensor_of("DT_STRING", "tensor_shape { } tensor_content: '\\011abc'").ok());
  CHECK_THAT(tensor_of("DT_FLOAT_REF", "tensor_shape { }").error().message, Contains("DT_FLOAT_REF"));
  CHECK(!tensor_of("DT_RESOURCE", "tensor_shape { }").ok());
}

TEST_CASE("graphs that do not fit are errors that name node and op") {
  const Error unknown = import_error(
      "node { name: 'a' op: 'Nope' } node { name: 'b' op: 'NoOp' } node { name: 'c' op: 'Nope' } node { name: 'd' op: "
      "'Other' }");
  CHECK(unknown.code == Code::kNotFound);
  CHECK_THAT(unknown.message, Contains("Nope (a, c)") && Contains("Other (d)"));
  CHECK_THAT(import_error("node { name: 'a' op: 'Neg' input: 'gone' }").str(), Contains("Neg 'a'") && Contains("gone"));
  CHECK_THAT(import_error("node { name: 'a' op: 'NoOp' input: '^gone' }").str(), Contains("gone"));
  CHECK_THAT(import_error("node { name: 'a' op: 'NoOp' } node { name: 'b' op: 'Neg' input: 'a:x' }").str(),
             Contains("a:x"));
  CHECK_THAT(import_error("node { name: 'a' op: 'NoOp' } node { name: 'b' op: 'Neg' input: 'a:0' }").str(),
             Contains("0 outputs"));
  CHECK(import_error("node { name: 'a' op: 'NoOp' } node { name: 'a' op: 'NoOp' }").code == Code::kAlreadyExists);
  CHECK_THAT(import_error("node { name: 'a' op: 'Neg' input: 'b' } node { name: 'b' op: 'Neg' input: 'c' }"
                          "node { name: 'c' op: 'Neg' input: 'b' } node { name: 'x' op: 'NoOp' }")
                 .message,
             Contains("cycle of 2 nodes") && (Contains("b -> c") || Contains("c -> b")));
  CHECK_THAT(import_error("node { name: 'self' op: 'Neg' input: 'self' }").message, Contains("self -> self"));
  CHECK_THAT(import_error("node { name: 'p' op: 'Placeholder' attr { key: 'dtype' value { i: 1 } } }").str(),
             Contains("must be type, not int"));
  CHECK_THAT(
      import_error("node { name: 'p' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT_REF } } }").str(),
      Contains("DT_FLOAT_REF"));
  // Keras's quantize("float8") makes casts to such types; in a file they are numbers, in text names.
  CHECK_THAT(import_error("node { name: 'p' op: 'Placeholder' attr { key: 'dtype' value { type: 25 } } }").str(),
             Contains("Placeholder 'p'") && Contains("DT_FLOAT8_E4M3FN is not supported"));
  CHECK_THAT(import_error("node { name: 'p' op: 'Placeholder' attr { key: 'dtype' value { type: DT_INT4 } } }").str(),
             Contains("DT_INT4 is not supported"));
  CHECK_THAT(import_error("node { name: 'n' op: 'NoOp' attr { key: 'f' value { func { name: 'body' } } } }").str(),
             Contains("body"));
  CHECK_THAT(import_error("node { name: 'n' op: 'NoOp' attr { key: 'what' value { b: true } } }").str(),
             Contains("no attribute what"));
  test::Fixture f;
  CHECK(
      from_graph_def(
          "node { name: 'n' op: 'NoOp' attr { key: 'what' value { b: false } } attr { key: '_f' value { func { } } } }",
          f.graph)
          .ok());
}

TEST_CASE("bytes that are not a GraphDef are data loss") {
  CHECK(import_error("").code == Code::kDataLoss);
  CHECK(import_error("nonsense").code == Code::kDataLoss);
  CHECK_THAT(import_error("node { name: 'a'\n op }").message, Contains("line 2"));
  test::Fixture f;
  build_sample(f);
  const std::string bytes = to_graph_def(f.graph);
  CHECK(import_error(bytes.substr(0, bytes.size() / 2)).code != Code::kInternal);
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "attr { key: 'a' value { func { ";
  CHECK(import_error("node { name: 'n' op: 'NoOp' " + deep).code == Code::kDataLoss);
}

TEST_CASE("mutated and truncated bytes never crash the reader") {
  test::Fixture sample;
  build_sample(sample);
  const std::string good[] = {to_graph_def(sample.graph), to_graph_def_text(sample.graph)};
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  int loaded = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = good[round % 4 == 0];
    for (size_t edits = 1 + below(4); edits > 0 && !bytes.empty(); --edits) {
      const size_t at = below(bytes.size());
      switch (below(5)) {
        case 0: bytes.resize(at); break;
        case 1: bytes[at] = static_cast<char>(random()); break;
        case 2: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
        case 3: bytes.erase(at, 1 + below(8)); break;
        case 4: bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16))); break;
      }
    }
    Graph graph(sample.ops);
    loaded += from_graph_def(bytes, graph).ok();
  }
  CHECK(loaded > 0);
  CHECK(loaded < 6000);
}

namespace {

/// A graph with constants that are many bytes, among others.
void build_large(test::Fixture& f) {
  std::vector<float> floats(5000);
  std::iota(floats.begin(), floats.end(), -7.F);
  f.scope.constant(Tensor::of<float>(floats, {50, 100}));
  f.scope.constant(Tensor::scalar(1.F));
  Tensor bools = *Tensor::make(DType::kBool, {6000});
  for (int i = 0; i < 6000; ++i) bools.mutable_data<bool>()[i] = i % 3 == 0;
  f.scope.constant(bools);
  f.scope.constant(Tensor::of<std::string>({std::string(9000, 'x'), "y"}));
  std::vector<int64_t> words(1000, INT64_MIN);
  f.scope.constant(Tensor::of<int64_t>(words, {10, 100}));
  REQUIRE(f.scope.ok());
}

/// What reads `bytes`; `where` gets the places that it was asked to copy to.
ByteSource source_of(const std::string& bytes, std::vector<const void*>* where = nullptr) {
  return {static_cast<int64_t>(bytes.size()), [&bytes, where](int64_t offset, void* to, size_t count) -> Status {
            REQUIRE((offset >= 0 && static_cast<size_t>(offset) + count <= bytes.size()));
            if (where) where->push_back(to);
            std::memcpy(to, bytes.data() + offset, count);
            return {};
          }};
}

}  // namespace

TEST_CASE("large constants are read straight into their tensors, the rest as ever") {
  test::Fixture f, read;
  build_large(f);
  const std::string bytes = to_graph_def(f.graph);
  std::vector<const void*> where;
  REQUIRE(from_graph_def(source_of(bytes, &where), read.graph).ok());
  check_equal(f.graph, read.graph);
  CHECK(to_graph_def(read.graph) == bytes);
  int straight = 0;
  for (int id = 0; id < read.graph.size(); ++id)
    straight += std::ranges::count(where, read.graph.node(id).attrs().get<Tensor>("value")->raw()) > 0;
  CHECK(straight == 2);
  test::Fixture text;
  REQUIRE(from_graph_def(source_of(to_graph_def_text(f.graph)), text.graph).ok());
  check_equal(f.graph, text.graph);
}

TEST_CASE("a source that ends early or fails is an error") {
  test::Fixture f;
  build_large(f);
  const std::string bytes = to_graph_def(f.graph);
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 50) {
    Graph graph(f.ops);
    INFO(size);
    const Status status = from_graph_def(bytes.substr(0, size), graph);
    CHECK((status.ok() || status.error().message.find('\n') == std::string::npos));
  }
  for (const int64_t from : {0, 100, 10000, 30000}) {
    Graph graph(f.ops);
    ByteSource source = source_of(bytes);
    source.read = [from, read = source.read](int64_t offset, void* to, size_t count) -> Status {
      if (offset + static_cast<int64_t>(count) > from) return make_error(Code::kDataLoss, "the disk is gone");
      return read(offset, to, count);
    };
    CHECK(from_graph_def(source, graph).error().message == "the disk is gone");
  }
}

TEST_CASE("large constants of a wrong size, or that are elsewhere, are errors") {
  test::Fixture f;
  std::vector<float> floats(2000, 1.F);
  f.scope.constant(Tensor::of<float>(floats));
  const std::string bytes = to_graph_def(f.graph);
  // tensor_shape (2) { dim (2) { size (1): 2000 } }
  const std::string shape("\x12\x05\x12\x03\x08\xD0\x0F", 7);
  const size_t at = bytes.find(shape);
  REQUIRE(at != std::string::npos);
  std::string other = bytes;
  other[at + 5] = '\xD1';
  CHECK_THAT(import_error(other).message, Contains("needs 8004 bytes, but has 8000"));
  CHECK_THAT(tensor_of("DT_FLOAT", "tensor_shape { dim { size: 2 } } content_apart: 1").error().message,
             Contains("content must come with it"));
}
