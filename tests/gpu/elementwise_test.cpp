// SPDX-License-Identifier: Apache-2.0
// _FusedElementwise on GPUs: what CPUs give, and what the functions give one by one, bit for bit; for every way an
// input may be read and every place a value may be kept in. That passes make it for nodes of GPUs.
#include "graph/passes/fuse_elementwise.h"
#include "tests/gpu/fake_platform.h"
#include "tests/gpu/parity_cases.h"
#include "troupe/scope.h"
#include "troupe/session.h"
#include "troupe/trace.h"

namespace troupe::testing {
namespace {

/// A function of a program and what it reads: inputs, then results in their order.
struct FusedCall {
  std::string op;
  int64_t a, b = -1;
};
using FusedCalls = std::vector<FusedCall>;

ParityCase fused_case(const std::vector<Tensor>& in, const FusedCalls& calls) {
  std::vector<std::string> ops;
  std::vector<int64_t> operands;
  for (const FusedCall& call : calls) {
    ops.push_back(call.op);
    operands.insert(operands.end(), {call.a, call.b});
  }
  return {"_FusedElementwise", in, {{"ops", std::move(ops)}, {"operands", std::move(operands)}}};
}

/// What the functions give as nodes of their own on the GPU.
Tensor call_by_call(Parity& parity, const std::vector<Tensor>& in, const FusedCalls& calls) {
  std::vector<Tensor> values = in;
  for (const FusedCall& call : calls) {
    std::vector<Tensor> of = {values[static_cast<size_t>(call.a)]};
    if (call.b >= 0) of.push_back(values[static_cast<size_t>(call.b)]);
    auto out = parity.run(DeviceKind::kCuda, {call.op, std::move(of)});
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    values.push_back((*out)[0]);
  }
  return values.back();
}

/// Against the CPU where that has the type, and against the functions one by one.
void check_program(Parity& parity, const std::vector<Tensor>& in, const FusedCalls& calls) {
  const ParityCase c = fused_case(in, calls);
  std::string shapes;
  for (const Tensor& x : in) shapes += " " + x.shape().str();
  INFO(calls[0].op << ".. of " << to_string(in[0].dtype()) << shapes);
  if (size_of(in[0].dtype()) > 2) parity.check(c);
  const Tensor expected = call_by_call(parity, in, calls);
  for (Parity::Layout layout : {Parity::Layout::kOwn, Parity::Layout::kShared, Parity::Layout::kUnaligned}) {
    const auto got = parity.run(DeviceKind::kCuda, c, layout);
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    parity.compare((*got)[0], expected, 0);
  }
  CHECK(gpu::fake::take_faults() == std::vector<std::string>());
}

TEST_CASE("GPUs fuse every function that CPUs fuse, and every type, into what it gives alone") {
  Parity parity;
  for (const DType dtype : gpu_types(parity, "_FusedElementwise"))
    for (const std::string_view name : fusable_ops()) {
      const std::string op(name);
      const bool unary = op_library()->ops.find(op)->inputs().size() == 1;
      const Tensor x = random_values(dtype, Shape{1027}, 1, true), y = random_values(dtype, Shape{1027}, 2, true);
      check_program(parity, {x, y}, {{op, 0, unary ? -1 : 1}, {"Square", 2}});
    }
}

TEST_CASE("sizes of fused programs on GPUs need not be multiples of anything") {
  Parity parity;
  for (const DType dtype : gpu_types(parity, "_FusedElementwise"))
    for (const Shape& shape : parity_shapes()) {
      const std::vector<Tensor> in = {random_values(dtype, shape, 1, true), random_values(dtype, shape, 2, true)};
      check_program(parity, in, {{"Mul", 0, 1}, {"Tanh", 2}, {"Sub", 3, 0}, {"Maximum", 4, 2}});
    }
}

TEST_CASE("inputs of fused programs on GPUs are repeated in every way that broadcasts") {
  Parity parity;
  for (const DType dtype : gpu_types(parity, "_FusedElementwise"))
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 7}, Shape{5, 7}, Shape{6, 8}, Shape{3, 40, 101},
                               Shape{2, 3, 4, 5}, Shape{2, 1, 3, 4}}) {
      std::vector<Shape> others = {{}, {1}, shape};
      for (int drop = 0; drop < shape.rank(); ++drop) {
        Shape one = shape;
        one.set(drop, 1);
        others.insert(others.end(), {one, Shape(shape.dims().subspan(static_cast<size_t>(drop)))});
        for (int too = 0; too < drop; ++too) {
          Shape both = one;
          both.set(too, 1);
          others.push_back(both);
        }
      }
      const Tensor x = random_values(dtype, shape, 1), two = random_values(dtype, {}, 3);
      for (const Shape& other : others) {
        const Tensor y = random_values(dtype, other, 2);
        check_program(parity, {x, y, two}, {{"Mul", 0, 1}, {"AddV2", 3, 1}, {"Tanh", 4}, {"Sub", 5, 2}});
        check_program(parity, {y, two, x}, {{"Neg", 0}, {"Mul", 3, 1}, {"Sub", 4, 2}});
      }
      if (shape.rank() < 2) continue;
      // Several that are repeated along different dimensions, and none that is not.
      Shape column = shape, row = shape;
      column.set(shape.rank() - 1, 1);
      row.set(0, 1);
      check_program(parity, {random_values(dtype, column, 4), random_values(dtype, row, 5), two},
                    {{"Square", 0}, {"Mul", 3, 1}, {"Minimum", 4, 0}, {"AddV2", 5, 2}});
    }
}

TEST_CASE("values of fused programs on GPUs are kept for as long as they are read, however many") {
  Parity parity;
  for (const DType dtype : gpu_types(parity, "_FusedElementwise")) {
    const Tensor x = random_values(dtype, Shape{777}, 1), y = random_values(dtype, Shape{7, 1}, 2),
                 z = random_values(dtype, Shape{111}, 3);
    FusedCalls near;
    for (int64_t i = 0; i < 64; ++i) near.push_back({i % 2 ? "Sub" : "Maximum", i, i / 2});
    check_program(parity, {x}, near);
    for (int64_t many : {3, 7, 12, 24, 31}) {  // the last ones made are read first
      FusedCalls far = {{"Mul", 0, 1}};
      for (int64_t i = 0; i < many; ++i) far.push_back({i % 3 ? "Cos" : "Sigmoid", 2 + i});
      for (int64_t i = 0; i < many; ++i) far.push_back({"AddV2", 2 + many + i, 2 + many - i});
      check_program(parity, {y, z}, far);
    }
  }
}

TEST_CASE("as many inputs as a fused program may have are read on GPUs") {
  Parity parity;
  std::vector<Tensor> in;
  FusedCalls calls;
  for (int64_t i = 0; i < 64; ++i) {
    const Shape shape = i % 4 == 0 ? Shape{3, 4, 5} : i % 4 == 1 ? Shape{4, 1} : i % 4 == 2 ? Shape{3, 1, 5} : Shape{};
    in.push_back(random_values(DType::kFloat32, shape, static_cast<uint64_t>(i)));
    if (i > 0) calls.push_back({"AddV2", i == 1 ? 0 : 62 + i, i});
  }
  check_program(parity, in, calls);
}

TEST_CASE("what nothing needs in a fused program changes no result of a GPU") {
  Parity parity;
  const auto values = [](Shape shape, uint64_t seed) { return random_values(DType::kFloat32, shape, seed); };
  const Tensor x = values({5, 7}, 1), y = values({5, 7}, 2);
  check_program(parity, {x, y}, {{"Exp", 0}, {"Log", 2}, {"Neg", 1}});
  check_program(parity, {x, y}, {{"Exp", 0}, {"Pow", 2, 1}, {"Neg", 2}, {"Abs", 3}, {"Square", 4}});
  check_program(parity, {x, values({}, 3), y}, {{"Neg", 0}, {"Sub", 3, 2}});
  check_program(parity, {x, values({7}, 3), y}, {{"Neg", 0}, {"Sub", 3, 2}});
  parity.check(fused_case({x, values({4}, 3), y}, {{"Neg", 0}, {"Sub", 3, 2}}));  // an error
}

TEST_CASE("fused programs on GPUs refuse what those of CPUs refuse") {
  Parity parity;
  const auto values = [](Shape shape) { return random_values(DType::kFloat32, shape, 1); };
  const auto refused = [&](const std::vector<Tensor>& in, const FusedCalls& calls) {
    const ParityCase c = fused_case(in, calls);
    CHECK_FALSE(parity.run(DeviceKind::kCuda, c).ok());
    parity.check(c);
  };
  refused({values({2}), values({3})}, {{"Neg", 0}, {"AddV2", 2, 1}});
  for (const char* op : {"EluGrad", "Relu6Grad", "ReluGrad", "RsqrtGrad", "SeluGrad", "SigmoidGrad", "SoftplusGrad",
                         "SqrtGrad", "TanhGrad"})
    refused({values({2, 1}), values({2})}, {{"Neg", 0}, {op, 2, 1}});
  refused({values({2})}, {{"MatMul", 0, 0}});
  refused({values({2})}, {});
  refused({values({2})}, {{"Neg", 1}});
  refused({values({2})}, {{"Sub", 0}});
  refused({values({2})}, FusedCalls(65, FusedCall{"Neg", 0}));
  refused(std::vector<Tensor>(65, values({2})), {{"Neg", 0}});
  const ParityCase short_of = {"_FusedElementwise",
                               {values({2})},
                               {{"ops", std::vector<std::string>{"Neg"}}, {"operands", std::vector<int64_t>{0}}}};
  CHECK_FALSE(parity.run(DeviceKind::kCuda, short_of).ok());
  parity.check(short_of);
}

TEST_CASE("fused programs on GPUs write into an input of the result's shape that nobody else wants") {
  if (on_real_gpu()) return;  // which does not tell what was said
  Parity parity;
  const auto uses = [&](Parity::Layout layout) {
    const ParityCase c = fused_case({random_values(DType::kFloat32, {5}, 1), random_values(DType::kFloat32, {7, 5}, 2)},
                                    {{"Exp", 0}, {"AddV2", 2, 1}});
    REQUIRE(parity.run(DeviceKind::kCuda, c, layout).ok());
    return parity.stream().accessed;
  };
  const auto own = uses(Parity::Layout::kOwn), shared = uses(Parity::Layout::kShared);
  REQUIRE(own.size() == 3);
  REQUIRE(shared.size() == 3);
  CHECK(own[2].writes);
  CHECK(own[2].bytes == 140);
  CHECK(own[2].at == own[1].at);
  CHECK(shared[2].at != shared[0].at);
  CHECK(shared[2].at != shared[1].at);
}

/// A tree with a row, scalars and a value that is read twice.
Output tree_of(const Scope& s, const Output& x, const Output& row, const Output& two) {
  const Output shifted = s.op("AddV2", {s.op("Mul", {x, two}), row}), curve = s.op("Sigmoid", {shifted});
  return s.op("Sub", {s.op("Mul", {shifted, curve}), s.op("Square", {s.op("Tanh", {x})})});
}

TEST_CASE("passes fuse trees of element-wise nodes on GPUs, of 16-bit floats too") {
  FakeGpus gpus;
  auto engine = std::move(*Engine::create(gpus.options()));
  Graph graph(engine->ops());
  const Scope s(graph), gpu = s.device("/gpu:0");
  std::vector<Feed> feeds;
  std::vector<Output> results;
  for (const DType dtype : FloatTypes::dtypes()) {
    const auto fed = [&](Shape shape, uint64_t seed) {
      const Output x = s.op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape(shape)}});
      feeds.push_back({x, random_values(dtype, shape, seed)});
      return x;
    };
    const Output x = fed({9, 35}, 1), row = fed({35}, 2), two = fed({}, 3);
    for (const Scope& on : {s, gpu}) results.push_back(tree_of(on, x, row, two));
  }
  REQUIRE(s.ok());
  GraphPasses fuses = GraphPasses::none();
  fuses.fuse_elementwise = true;
  std::vector<std::vector<Tensor>> out;
  for (const GraphPasses& passes : {GraphPasses::none(), fuses}) {
    Session session(*engine, graph, {.passes = passes});
    RunOptions options;
    options.trace = std::make_shared<Trace>();
    auto ran = session.run(feeds, results, {}, options);
    INFO((ran.ok() ? "" : ran.error().str()));
    REQUIRE(ran.ok());
    out.push_back(std::move(*ran));
    std::map<std::string, int> fused, left;
    for (const TraceEvent& e : options.trace->take()) {
      if (e.kind != TraceEvent::Kind::kRun || !e.node) continue;
      const std::string device = engine->devices()[e.device];
      const std::string kind = device.substr(device.rfind("device:") + 7, 3);
      fused[kind] += e.node->op().name() == "_FusedElementwise";
      left[kind] += e.node->op().name() == "Tanh";
    }
    const bool whole = out.size() == 2;
    CHECK(fused["gpu"] == (whole ? 4 : 0));
    CHECK(left["gpu"] == (whole ? 0 : 4));
    CHECK(fused["cpu"] == (whole ? 2 : 0));  // CPUs have it for float32 and float64
    CHECK(left["cpu"] == (whole ? 2 : 4));
  }
  Parity same;
  for (size_t i = 0; i < results.size(); ++i) same.compare(out[1][i], out[0][i], 0);
}

}  // namespace
}  // namespace troupe::testing
