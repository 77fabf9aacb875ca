// SPDX-License-Identifier: Apache-2.0
// Arithmetic of shapes beside a GPU: int32 at the host, with the results and errors of the CPU; other types on the GPU.
#include "devices/host_arguments.h"
#include "graph/passes/keep_at_host.h"
#include "tests/gpu/parity.h"

namespace troupe::testing {
namespace {

Tensor sizes(std::initializer_list<int32_t> values) { return Tensor::of<int32_t>(values); }
Tensor number(int32_t value) { return Tensor::scalar(value); }

std::vector<ParityCase> shape_cases() {
  const Tensor shape = sizes({6, 0, 3, 4}), one = number(1);
  const Attrs two = {{"N", int64_t{2}}}, all_but_one = {{"num_split", int64_t{2}}};
  std::vector<ParityCase> cases = {
      {"Identity", {shape}},
      {"StopGradient", {shape}},
      {"PreventGradient", {shape}},
      {"EnsureShape", {shape}, {{"shape", PartialShape{-1}}}},
      {"EnsureShape", {shape}, {{"shape", PartialShape{3}}}},  // an error
      {"PlaceholderWithDefault", {shape}, {{"shape", PartialShape{-1}}}},
      {"Reshape", {shape, sizes({2, -1})}},
      {"Reshape", {shape, sizes({3})}},  // an error
      {"ExpandDims", {shape, number(0)}},
      {"Squeeze", {Tensor::of<int32_t>({7}, Shape{1, 1})}},
      {"Slice", {shape, sizes({1}), sizes({2})}},
      {"Slice", {shape, sizes({3}), sizes({2})}},  // an error
      {"StridedSlice", {shape, sizes({-1}), sizes({-5}), sizes({-2})}},
      {"StridedSlice", {shape, sizes({2}), sizes({3}), sizes({1})}, {{"shrink_axis_mask", int64_t{1}}}},
      {"Concat", {number(0), shape, sizes({9})}, two},
      {"ConcatV2", {shape, sizes({9}), number(0)}, two},
      {"ConcatV2", {shape, one, number(0)}, two},  // an error
      {"ConcatOffset", {number(1), sizes({2, 3}), sizes({2, 5})}, two},
      {"Pack", {one, number(5)}, two},
      {"Unpack", {shape}, {{"num", int64_t{4}}}},
      {"Split", {number(0), shape}, all_but_one},
      {"SplitV", {shape, sizes({3, 1}), number(0)}, {{"num_split", int64_t{2}}, {"Tlen", DType::kInt32}}},
      {"DynamicStitch", {sizes({0, 2}), sizes({1}), sizes({10, 12}), sizes({11})}, two},
      {"ParallelDynamicStitch", {sizes({0, 2}), sizes({1}), sizes({10, 12}), sizes({11})}, two},
      {"DynamicPartition", {shape, sizes({1, 0, 1, 1})}, {{"num_partitions", int64_t{2}}}},
      {"DynamicPartition", {shape, sizes({1, 0, 2, 1})}, {{"num_partitions", int64_t{2}}}},  // an error
      {"Tile", {shape, sizes({3})}},
      {"AddN", {shape, sizes({1, 2, 3, 4})}, two},
      {"Select", {Tensor::of<bool>({true, false, true, false}), shape, sizes({1, 2, 3, 4})}},
      {"SelectV2", {Tensor::scalar(false), shape, one}},
      {"LogicalAnd", {Tensor::of<bool>({true, false}), Tensor::scalar(true)}, {{kAtHostAttr, DType::kBool}}},
      {"LogicalOr", {Tensor::of<bool>({true, false}), Tensor::scalar(false)}, {{kAtHostAttr, DType::kBool}}},
      {"LogicalNot", {Tensor::of<bool>({true, false})}, {{kAtHostAttr, DType::kBool}}},
      {"Gather", {shape, sizes({3, 0})}},
      {"GatherV2", {shape, sizes({3, 0}), number(0)}},
      {"GatherV2", {shape, sizes({4}), number(0)}},  // an error, which a GPU could not report
  };
  for (const char* op : {"Add", "AddV2", "Sub", "Mul", "FloorDiv", "FloorMod", "Maximum", "Minimum", "Less",
                         "LessEqual", "Greater", "GreaterEqual"}) {
    cases.push_back({op, {shape, number(-4)}});
    cases.push_back({op, {sizes({5, 7, -8, 1}), shape}});  // where it divides, an error
  }
  for (const char* op : {"Sum", "Prod", "Max", "Min"}) cases.push_back({op, {shape, number(0)}});
  return cases;
}

TEST_CASE("Arithmetic of shapes has the CPU's results and errors beside a GPU") {
  Parity parity;
  for (const ParityCase& c : shape_cases()) parity.check(c);
  // More than a few, and more than fit one launch.
  std::vector<Tensor> many;
  for (int32_t i = 0; i < 300; ++i) many.push_back(number(i));
  parity.check({"Pack", many, {{"N", int64_t{300}}}});
  const Tensor x = random_values(DType::kFloat32, Shape{2, 3}, 1);
  parity.check({"ShapeN", {x, x}, {{"N", int64_t{2}}}});
}

TEST_CASE("Arithmetic of int32 is at the host beside a GPU, that of other types is not") {
  Parity parity;
  for (const ParityCase& c : shape_cases()) {
    INFO(c.op);
    Graph graph(op_library()->ops);
    Scope scope(graph);
    std::vector<Output> inputs;
    for (const Tensor& x : c.inputs) inputs.push_back(scope.op("Placeholder", {}, {{"dtype", x.dtype()}}));
    const Node* node = scope.node(c.op, inputs, c.attrs);
    REQUIRE(node);
    const auto host = parity.gpu_kernels().host_memory(c.op, DeviceKind::kCuda, node->attrs());
    REQUIRE(host.ok());
    CHECK(names_argument(host->inputs, 0, 1));
    CHECK(names_argument(host->outputs, 0, 1));
    // The same node of other values.
    for (DType dtype : {DType::kFloat32, DType::kInt64})
      for (const char* attr : {"T", "dtype", "Tparams", "shape_type"}) {
        Attrs other = node->attrs();
        if (!other.get<DType>(attr)) continue;
        other.set(attr, dtype);
        const auto there = parity.gpu_kernels().host_memory(c.op, DeviceKind::kCuda, other);
        if (there.ok()) CHECK(there->outputs.empty());
        else CHECK(there.error().code == Code::kUnimplemented);
      }
  }
}

}  // namespace
}  // namespace troupe::testing
