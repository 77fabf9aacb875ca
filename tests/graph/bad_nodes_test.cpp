// SPDX-License-Identifier: Apache-2.0
// Every op of the registry with inputs and attributes drawn at random, most of them wrong: adding the node, and
// differentiating it, must give a node or an error that says so, never a crash.
#include <catch2/catch.hpp>
#include <random>

#include "tests/op_library.h"
#include "tests/repeats.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }
  template <class T> const T& one_of(const std::vector<T>& values) { return values[below(values.size())]; }
  int64_t integer() {
    static const std::vector<int64_t> kEdges = {0, 1,   2,         3,         -1,        -2,
                                                5, 100, INT32_MAX, INT64_MAX, INT64_MIN, int64_t{1} << 40};
    return kEdges[below(3) ? below(7) : below(kEdges.size())];
  }
  DType dtype() {
    static const std::vector<DType> kTypes = {DType::kFloat32, DType::kFloat32,   DType::kFloat64,  DType::kInt32,
                                              DType::kInt64,   DType::kBool,      DType::kString,   DType::kFloat16,
                                              DType::kUInt8,   DType::kComplex64, DType::kResource, DType::kVariant,
                                              DType::kUInt64,  DType::kComplex128};
    return one_of(kTypes);
  }
  PartialShape shape() {
    if (below(5) == 0) return PartialShape::unknown();
    static const std::vector<int64_t> kSizes = {-1, 0, 1, 2, 2, 3, 4, 7, int64_t{1} << 40};
    PartialShape out = PartialShape::scalar();
    for (size_t rank = below(below(4) ? 5 : kMaxRank + 1); rank > 0; --rank) out.push_back(one_of(kSizes));
    if (out.fully_known() && !Shape::make(out.dims()).ok()) return PartialShape{-1, int64_t{1} << 40};
    return out;
  }
  template <class F> auto list(F item) {
    std::vector<decltype(item())> out;
    for (size_t n = below(6); n > 0; --n) out.push_back(item());
    return out;
  }
  AttrValue attr(const AttrDef& def) {
    const auto text = [&] {
      return def.allowed_values.empty() || !below(8) ? std::string(below(3), 'x') : one_of(def.allowed_values);
    };
    const auto type = [&] { return def.allowed_types.empty() || !below(8) ? dtype() : one_of(def.allowed_types); };
    if (def.type == "int") return integer();
    if (def.type == "float") return static_cast<float>(integer());
    if (def.type == "bool") return below(2) == 1;
    if (def.type == "string") return text();
    if (def.type == "type") return type();
    if (def.type == "shape") return shape();
    if (def.type == "tensor") return Tensor::of<float>({1, 2, 3});
    if (def.type == "list(int)") {
      if (!below(3)) return list([&] { return integer(); });
      return std::vector<int64_t>{1, static_cast<int64_t>(below(4)), static_cast<int64_t>(below(4)), 1};
    }
    if (def.type == "list(float)") return list([&] { return static_cast<float>(integer()); });
    if (def.type == "list(bool)") return list([&] { return below(2) == 1; });
    if (def.type == "list(string)") return list(text);
    if (def.type == "list(type)") return list(type);
    return list([&] { return shape(); });
  }

 private:
  std::mt19937 random_;
};

/// Inputs of many types and shapes, constants with odd values among them.
std::vector<Output> make_inputs(const Scope& scope, Draw& draw) {
  std::vector<Output> out;
  for (int i = 0; i < 150; ++i)
    out.push_back(scope.op("Placeholder", {}, {{"dtype", draw.dtype()}, {"shape", draw.shape()}}));
  for (int i = 0; i < 60; ++i) {
    std::vector<int64_t> values = draw.list([&] { return draw.integer(); });
    std::vector<int32_t> narrow(values.begin(), values.end());
    out.push_back(scope.constant(Tensor::of<int64_t>(values)));
    out.push_back(scope.constant(Tensor::of<int32_t>(narrow)));
    out.push_back(scope.constant(Tensor::scalar<int64_t>(draw.integer())));
    out.push_back(scope.constant(Tensor::scalar<int32_t>(static_cast<int32_t>(draw.integer()))));
  }
  out.push_back(scope.constant(Tensor::of<int32_t>({0, 1, 2, 3}, {2, 2})));
  REQUIRE(scope.ok());
  return out;
}

}  // namespace

TEST_CASE("wrong nodes of every op are errors") {
  const auto& [ops, kernels] = *testing::op_library();
  int added = 0, refused = 0, differentiated = 0;
  for (const auto& [name, op] : ops.all()) {
    INFO(name);
    Draw draw(static_cast<uint32_t>(std::hash<std::string>()(name)));
    Graph graph(ops);
    const std::vector<Output> inputs = make_inputs(Scope(graph), draw);
    std::map<DType, std::vector<Output>> by_type;
    for (const Output& o : inputs) by_type[o.dtype()].push_back(o);
    for (int round = 0; round < repeats(150); ++round) {
      NodeSpec spec{name, "node" + std::to_string(round)};
      const DType common = op->inputs().empty() ? DType::kFloat32 : draw.dtype();
      for (const ArgDef& arg : op->inputs()) {
        const bool list = !arg.number_attr.empty() || !arg.type_list_attr.empty();
        for (size_t n = list ? draw.below(4) : 1; n > 0; --n) {
          const DType type = arg.dtype != DType::kInvalid ? arg.dtype : draw.below(2) ? common : DType::kInt32;
          spec.inputs.push_back(draw.below(20) ? draw.one_of(by_type.at(type)) : draw.one_of(inputs));
        }
      }
      for (const AttrDef& attr : op->attrs()) {
        const bool told = std::ranges::any_of(op->inputs(), [&](const ArgDef& in) {
          return in.type_attr == attr.name || in.number_attr == attr.name || in.type_list_attr == attr.name;
        });
        if (told ? draw.below(20) == 0 : !attr.default_value || draw.below(2) == 0)
          spec.attrs.set(attr.name, draw.attr(attr));
      }
      const auto node = graph.add(std::move(spec));
      if (!node.ok()) {
        ++refused;
        CHECK(node.error().op == name);
        CHECK(node.error().node == "node" + std::to_string(round));
        CHECK(!node.error().message.empty());
        continue;
      }
      ++added;
      for (int p = 0; p < (*node)->num_outputs() && p < 3; ++p) {
        if (!is_floating((*node)->dtype(p))) continue;
        std::vector<Output> xs;
        for (const Output& in : (*node)->inputs())
          if (is_floating(in.dtype())) xs.push_back(in);
        const auto dxs = gradients(Scope(graph), {(*node)->out(p)}, xs);
        differentiated += dxs.ok();
        // A node whose gradient contradicts its shapes should have been refused.
        if (!dxs.ok()) {
          INFO(dxs.error().str());
          CHECK(dxs.error().code != Code::kInternal);
        }
      }
    }
  }
  INFO(added << " added, " << refused << " refused, " << differentiated << " differentiated");
  CHECK(added > 1000);
  CHECK(refused > 1000);
  CHECK(differentiated > 100);
}
