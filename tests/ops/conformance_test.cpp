// SPDX-License-Identifier: Apache-2.0
// Walks the registry: every op is documented and has examples; inferred shapes are the computed ones, types agree with
// one another, gradients agree with finite differences.
#include <set>

#include "ops/parts/type_dispatch.h"
#include "tests/ops/array/move_cases.h"
#include "tests/ops/array_cases.h"
#include "tests/ops/check_op.h"
#include "tests/ops/complex_cases.h"
#include "tests/ops/image/image_cases.h"
#include "tests/ops/linear/linear_cases.h"
#include "tests/ops/math/math_cases.h"
#include "tests/ops/math/special_cases.h"
#include "tests/ops/nn/window_cases.h"
#include "tests/ops/quantized/quantized_cases.h"
#include "tests/ops/segment_cases.h"
#include "tests/ops/signal/fourier_cases.h"
#include "tests/ops/sparse/sparse_cases.h"
#include "tests/ops/text/string_cases.h"

namespace troupe::testing {
namespace {

/// Ops without an example here, and why.
const std::map<std::string, std::string>& exempt() {
  static const std::map<std::string, std::string> ops = {
      {"Const", "the executor's; every case has some"},
      {"Placeholder", "the executor's; every case has some"},
      {"NoOp", "the executor's; has no output"},
      {"Assert", "has no output; string_test.cpp"},
      {"PrintV2", "has no output; string_test.cpp"},
      {"Timestamp", "never twice the same"},
      {"ReadFile", "needs a file; file_test.cpp"},
      {"WriteFile", "needs a file; file_test.cpp"},
      {"MatchingFiles", "needs files; file_test.cpp"},
      {"GenerateVocabRemapping", "needs files; warm_start_test.cpp"},
      {"LoadAndRemapMatrix", "needs files; warm_start_test.cpp"},
      {"ParseExample", "parse_example_test.cpp"},
      {"ParseExampleV2", "parse_example_test.cpp"},
      {"ParseSingleExample", "parse_example_test.cpp"},
      {"ParseSingleSequenceExample", "parse_example_test.cpp"},
      {"ParseSequenceExampleV2", "parse_example_test.cpp"},
  };
  return ops;
}

/// Families that need files, datasets, an executor or kernels for one layout, with tests of their own.
const std::set<std::string>& tested_elsewhere() {
  static const std::set<std::string> ops = {"_AllGather",  // collectives: tests/train/collectives_test.cpp
                                            "_AllReduce",
                                            "_Broadcast",
                                            "_ReduceScatter",
                                            "_BlockImages",
                                            "_BlockedConv2D",
                                            "_PointwiseDepthwise",
                                            "_BlockLSTMStates",
                                            "_MeanOfBlockedImages",
                                            "_ScaleBlockedImages",
                                            "_UnblockImages",
                                            "_FusedAttention",
                                            "_FusedConv2D",
                                            "_FusedDepthwiseConv2dNative",
                                            "_FusedElementwise",
                                            "_FusedLayerNorm",
                                            "_FusedMatMul",
                                            "_FusedMatMulBiasAddGrad",
                                            "_FusedMatMulGeluGrad",
                                            "_FusedMatMulReluGrad",
                                            "Abort",
                                            "LoopCond",
                                            "Conv2D",
                                            "Conv2DBackpropInput",
                                            "Conv2DBackpropFilter",
                                            "DepthwiseConv2dNative",
                                            "MaxPool",
                                            "MaxPoolGrad",
                                            "MaxPoolGradGrad",
                                            "AvgPool",
                                            "AvgPoolGrad",
                                            "Softmax",
                                            "LogSoftmax",
                                            "SoftmaxGrad",
                                            "SoftmaxCrossEntropyWithLogits",
                                            "SparseSoftmaxCrossEntropyWithLogits",
                                            "FusedBatchNormV3",
                                            "FusedBatchNormGradV3",
                                            "_BatchNormStatistics",  // tests/engine/pass_property_test.cpp
                                            "_FusedBatchNormRelu",   // tests/gpu/batch_norm_test.cpp
                                            "_FusedBatchNormReluGrad",
                                            "DepthwiseConv2dNativeBackpropInput",
                                            "DepthwiseConv2dNativeBackpropFilter",
                                            "FusedBatchNorm",
                                            "FusedBatchNormGrad",
                                            "FusedBatchNormV2",
                                            "FusedBatchNormGradV2",
                                            "DecodeProtoV2",  // tests/ops/input/protos_test.cpp
                                            "EncodeProto",
                                            "DecodeJSONExample",
                                            "DecodePng",
                                            "DecodeJpeg",
                                            "DecodeAndCropJpeg",
                                            "DecodeGif",
                                            "DecodeBmp",
                                            "DecodeImage",
                                            "ExtractJpegShape",
                                            "EncodePng",
                                            "EncodeJpeg",
                                            "EncodeJpegVariableQuality"};
  return ops;
}

/// Whether an op works on a resource or a list, or makes handles; those have tests of their own.
bool uses_resource(const OpDef& op) {
  const auto is = [](const ArgDef& a) { return a.dtype == DType::kResource || a.dtype == DType::kVariant; };
  return std::ranges::any_of(op.inputs(), is) || std::ranges::any_of(op.outputs(), is);
}

bool handles_files(const std::string& op) {
  return op.find("Save") != std::string::npos || op.find("Restore") != std::string::npos ||
         op.find("Checkpoint") != std::string::npos || op.find("Summary") != std::string::npos;
}

/// A case of complex64 with complex128 and float64 in place of complex64 and float32. What is expected has no more than
/// the digits of float32, so the twin has none of it.
OpCase twin(const OpCase& c) {
  const auto wider = [](DType t) {
    return t == DType::kComplex64 ? DType::kComplex128 : t == DType::kFloat32 ? DType::kFloat64 : t;
  };
  OpCase out = {c.op, {}, {}, {}, c.gradient, c.random};
  for (const Tensor& t : c.inputs)
    out.inputs.push_back(wider(t.dtype()) == t.dtype() ? t : *apply("Cast", {t}, {{"DstT", wider(t.dtype())}}));
  const OpDef& op = *op_library()->ops.find(c.op);
  out.attrs = c.attrs;
  for (const AttrDef& attr : op.attrs()) {
    const AttrValue* value = c.attrs.find(attr.name);
    if (!value && attr.default_value) value = &*attr.default_value;
    const auto* dtype = value ? std::get_if<DType>(value) : nullptr;
    if (dtype && wider(*dtype) != *dtype) out.attrs.set(attr.name, wider(*dtype));
  }
  return out;
}

const std::vector<OpCase>& all_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> out;
    for (const auto& part :
         {const_cases(),   unary_cases(),         binary_cases(),   reduction_cases(),  array_cases(),
          gather_cases(),  random_cases(),        matrix_cases(),   complex_cases(),    move_cases(),
          block_cases(),   diagonal_cases(),      nd_index_cases(), einsum_cases(),     rounding_cases(),
          string_cases(),  ragged_string_cases(), ragged_cases(),   projective_cases(), special_cases(),
          bessel_cases(),  scan_cases(),          segment_cases(),  set_cases(),        sequence_cases(),
          fourier_cases(), resize_cases(),        image_cases(),    sparse_cases(),     linear_cases(),
          window_cases(),  volume_cases(),        quantized_cases()})
      out.insert(out.end(), part.begin(), part.end());
    for (size_t i = 0, n = out.size(); i < n; ++i)
      if (std::ranges::any_of(out[i].inputs, [](const Tensor& t) { return t.dtype() == DType::kComplex64; }))
        out.push_back(twin(out[i]));
    return out;
  }();
  return cases;
}

/// Ops the sizes of whose results follow from values.
bool depends_on_values(const std::string& op) {
  for (const char* start : {"Where",
                            "BroadcastGradientArgs",
                            "PlaceholderWithDefault",
                            "Unique",
                            "ListDiff",
                            "StringNGrams",
                            "StringSplit",
                            "UnicodeDecode",
                            "DecodeRaw",
                            "DecodePaddedRaw",
                            "ParseTensor",
                            "Ragged",
                            "DecodeWav",
                            "DeserializeSparse",
                            "DeserializeManySparse",
                            "DenseCountSparseOutput",
                            "SparseCountSparseOutput",
                            "SparseCross",
                            "SparseFillEmptyRows",
                            "ComputeAccidentalHits",
                            "CTCGreedyDecoder",
                            "CTCBeamSearchDecoder",
                            "DenseTo",
                            "SparseToSparse",
                            "NearestNeighbors",
                            "KmeansPlusPlus",
                            "NonMaxSuppression",
                            "SparseAdd",
                            "SparseSparse",
                            "SparseSplit",
                            "SparseSlice",
                            "SparseReduce"})
    if (op.starts_with(start)) return true;
  return op.starts_with("SparseSegment") && op.ends_with("GradV2");
}

std::string title(const OpCase& c) {
  std::string out = c.op + "(";
  for (const Tensor& t : c.inputs) out += t.str(4) + " ";
  return out + ")";
}

bool differentiable(DType dtype) { return is_floating(dtype) || is_complex(dtype); }

/// A graph with the case's node; inputs are constants, or placeholders of known or unknown shape.
struct BuiltCase {
  enum class Inputs { kConstants, kPlaceholders, kUnknownShapes };
  Graph graph{op_library()->ops};
  Scope scope{graph};
  std::vector<Output> in;
  std::vector<std::pair<Output, Tensor>> feeds;
  const Node* node = nullptr;

  /// Inputs that can be differentiated by become placeholders, others stay constants unless `all`.
  BuiltCase(const OpCase& c, Inputs inputs, bool all = false) {
    for (const Tensor& t : c.inputs) {
      if (inputs == Inputs::kConstants || (!all && !differentiable(t.dtype()))) {
        in.push_back(scope.constant(t));
        continue;
      }
      const PartialShape shape = inputs == Inputs::kUnknownShapes ? PartialShape() : PartialShape(t.shape());
      in.push_back(scope.op("Placeholder", {}, {{"dtype", t.dtype()}, {"shape", shape}}));
      feeds.emplace_back(in.back(), t);
    }
    node = scope.node(c.op, in, c.attrs);
  }
  std::vector<Output> outputs() const {
    std::vector<Output> out;
    for (int i = 0; i < node->num_outputs(); ++i) out.push_back(node->out(i));
    return out;
  }
};

Tensor convert(const Tensor& t, DType to) {
  auto out = apply("Cast", {t}, {{"DstT", to}});
  REQUIRE(out.ok());
  return *out;
}

void check_same(const Tensor& got, const Tensor& want, double tolerance) {
  INFO("got " << got.str() << ", want " << want.str());
  REQUIRE(got.shape() == want.shape());
  REQUIRE(got.dtype() == want.dtype());
  if (!differentiable(want.dtype())) {
    CHECK(got.identical(want));
    return;
  }
  const auto a = doubles(got), b = doubles(want);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                      std::fabs(a[i] - b[i]) <= tolerance * std::max(1.0, std::fabs(b[i]));
    INFO("element " << i);
    CHECK(same);
  }
}

/// Expected values are exact, or correctly rounded where the type is narrow.
double rounding(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kComplex64 ? 2e-6 : 1e-12; }

/// The gradients of sum of w * outputs by every floating or complex input; empty tensors where there are none.
Result<std::vector<Tensor>> analytic(const OpCase& c, BuiltCase& b, const std::vector<Tensor>& weights) {
  std::vector<Output> ys, dys, xs;
  for (int i = 0; i < b.node->num_outputs(); ++i) {
    if (!weights[i].defined()) continue;
    ys.push_back(b.node->out(i));
    dys.push_back(b.scope.constant(weights[i]));
  }
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (differentiable(c.inputs[i].dtype())) xs.push_back(b.in[i]);
  TROUPE_ASSIGN(auto dxs, gradients(b.scope, ys, xs, dys));
  std::vector<Tensor> out;
  Evaluator evaluator;
  for (const Output& dx : dxs) {
    if (!dx) {
      out.emplace_back();
      continue;
    }
    TROUPE_ASSIGN(auto value, evaluator.run({dx}, b.feeds));
    out.push_back(value[0]);
  }
  return out;
}

}  // namespace

TEST_CASE("every op with a kernel has an example", "[conformance]") {
  std::set<std::string> have;
  for (const OpCase& c : all_cases()) have.insert(c.op);
  for (const auto& [name, op] : op_library()->ops.all()) {
    INFO(name);
    CHECK(op->doc().size() > 3);
    CHECK(op->shape_fn());
    CHECK((op->gradient().function || !op->gradient().no_gradient_reason.empty()));
    const bool excused = exempt().count(name) || tested_elsewhere().count(name) || uses_resource(*op) ||
                         handles_files(name) || op->control_flow() != ControlFlow::kNone;
    CHECK((excused || have.count(name)));
    const bool expanded =
        name == "_AllGather" || name == "_AllReduce" || name == "_Broadcast" || name == "_ReduceScatter";
    CHECK(op_library()->kernels.has(name, DeviceKind::kCpu) != expanded);
  }
}

TEST_CASE("names and defaults that functions and graphs of TensorFlow go by", "[conformance]") {
  const OpRegistry& ops = op_library()->ops;
  CHECK(ops.find("ComplexAbs")->inputs()[0].name == "x");
  CHECK(ops.find("ComplexAbs")->outputs()[0].name == "y");
  CHECK(std::get<DType>(*ops.find("MaxPool3DGrad")->find_attr("T")->default_value) == DType::kFloat32);
  CHECK(
      std::get<std::vector<DType>>(*ops.find("PriorityQueueV2")->find_attr("component_types")->default_value).empty());
}

TEST_CASE("ops give the expected values and the inferred shapes", "[conformance]") {
  for (const OpCase& c : all_cases()) {
    INFO(title(c));
    BuiltCase b(c, BuiltCase::Inputs::kConstants);
    INFO((b.scope.ok() ? "" : b.scope.status().error().str()));
    REQUIRE(b.scope.ok());
    auto values = Evaluator().run(b.outputs());
    INFO((values.ok() ? "" : values.error().str()));
    REQUIRE(values.ok());
    for (size_t i = 0; i < values->size(); ++i) {
      const Tensor& v = (*values)[i];
      const PartialShape& inferred = b.node->shape(static_cast<int>(i));
      INFO("inferred " << inferred.str() << ", computed " << v.str());
      CHECK(inferred.compatible(v.shape()));
      CHECK((inferred.fully_known() || depends_on_values(c.op)));
      CHECK(v.dtype() == b.node->dtype(static_cast<int>(i)));
    }
    for (size_t i = 0; i < c.expected.size(); ++i)
      check_same((*values)[i], c.expected[i], rounding(c.expected[i].dtype()));
  }
}

TEST_CASE("ops give the same on inputs of unknown shape and on two threads", "[conformance]") {
  for (const OpCase& c : all_cases()) {
    if (c.random) continue;
    INFO(title(c));
    BuiltCase known(c, BuiltCase::Inputs::kConstants), unknown(c, BuiltCase::Inputs::kUnknownShapes, true);
    INFO((unknown.scope.ok() ? "" : unknown.scope.status().error().str()));
    REQUIRE(unknown.scope.ok());
    auto want = Evaluator(1).run(known.outputs()), got = Evaluator(2).run(unknown.outputs(), unknown.feeds);
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE((want.ok() && got.ok()));
    for (size_t i = 0; i < want->size(); ++i) {
      check_same((*got)[i], (*want)[i], 0);
      CHECK(unknown.node->shape(static_cast<int>(i)).compatible((*want)[i].shape()));
    }
  }
}

TEST_CASE("ops leave inputs that others still want as they were", "[conformance]") {
  for (const OpCase& c : all_cases()) {
    INFO(title(c));
    BuiltCase b(c, BuiltCase::Inputs::kPlaceholders, true);
    std::vector<Tensor> before;
    for (auto& [output, value] : b.feeds) before.push_back(*value.clone());
    REQUIRE(Evaluator().run(b.outputs(), b.feeds).ok());
    for (size_t i = 0; i < before.size(); ++i) CHECK(before[i].identical(b.feeds[i].second));
  }
}

TEST_CASE("kernels of all floating types agree with float64", "[conformance]") {
  for (const OpCase& c : all_cases()) {
    if (c.random || std::ranges::none_of(c.inputs, [](const Tensor& t) { return t.dtype() == DType::kFloat64; }))
      continue;
    BuiltCase exact(c, BuiltCase::Inputs::kConstants);
    const auto want = Evaluator().run(exact.outputs());
    for (const auto& [dtype, tolerance] :
         {std::pair{DType::kFloat32, 4e-6}, {DType::kFloat16, 2e-2}, {DType::kBFloat16, 1e-1}}) {
      OpCase narrow = c;
      for (Tensor& t : narrow.inputs)
        if (t.dtype() == DType::kFloat64) t = convert(t, dtype);
      // Only cases whose values the type holds exactly have the same result.
      bool exact_inputs = true;
      for (size_t i = 0; i < c.inputs.size(); ++i)
        if (c.inputs[i].dtype() == DType::kFloat64 && dtype != DType::kFloat32)
          exact_inputs &= convert(narrow.inputs[i], DType::kFloat64).identical(c.inputs[i]);
      if (!exact_inputs) continue;
      BuiltCase b(narrow, BuiltCase::Inputs::kConstants);
      if (!b.scope.ok()) continue;  // the op has not this type
      INFO(title(narrow));
      auto got = Evaluator().run(b.outputs());
      if (!got.ok() && got.error().code == Code::kUnimplemented) continue;
      INFO((got.ok() ? "" : got.error().str()));
      REQUIRE(got.ok());
      for (size_t i = 0; i < want->size(); ++i) {
        Tensor w = (*want)[i], g = (*got)[i].dtype() == dtype ? convert((*got)[i], w.dtype()) : (*got)[i];
        if (c.op == "SelfAdjointEigV2" && i == 1)  // the signs of vectors differ between types, in TensorFlow too
          for (Tensor* t : {&w, &g}) *t = *apply("Abs", {*t});
        check_same(g, w, tolerance);
      }
    }
  }
}

TEST_CASE("integer kernels run and agree with float64 where there is no rounding", "[conformance]") {
  for (const OpCase& c : binary_cases()) {
    if (c.inputs[0].dtype() != DType::kInt32 || c.op == "BroadcastGradientArgs") continue;
    const bool fits = std::ranges::none_of(c.inputs, [](const Tensor& t) {
      return std::ranges::any_of(t.values<int32_t>(), [](int32_t v) { return v < -100 || v > 100; });
    });
    for (DType dtype : {DType::kInt8, DType::kInt16, DType::kInt64}) {
      OpCase other = c;
      for (Tensor& t : other.inputs) t = convert(t, dtype);
      BuiltCase b(other, BuiltCase::Inputs::kConstants);
      if (!fits || !b.scope.ok()) continue;
      INFO(title(other));
      auto got = Evaluator().run(b.outputs());
      REQUIRE(got.ok());
      check_same(convert((*got)[0], DType::kInt32), c.expected[0], 0);
    }
  }
}

namespace {

/// A case is differentiated in float64, or, with inputs of complex64 or float32, in float32.
struct Precision {
  bool single;
  explicit Precision(const OpCase& c)
      : single(std::ranges::any_of(
            c.inputs, [](const Tensor& t) { return t.dtype() == DType::kComplex64 || t.dtype() == DType::kFloat32; })) {
  }
  bool has(DType dtype) const {
    if (single) return dtype == DType::kComplex64 || dtype == DType::kFloat32;
    return dtype == DType::kComplex128 || dtype == DType::kFloat64;
  }
  double step() const { return single ? 0.02 : 1e-6; }
  double tolerance() const { return single ? 2e-4 : 1e-5; }

  /// Random weights for the outputs that count; empty where none does.
  std::vector<Tensor> weights(const std::vector<Tensor>& outputs) const {
    std::vector<Tensor> out;
    bool any = false;
    for (const Tensor& v : outputs) {
      Tensor w;
      if (has(v.dtype())) {
        Shape parts = v.shape();
        if (is_complex(v.dtype())) parts.push_back(2);
        w = single ? random_tensor<float>(parts, 5) : random_tensor<double>(parts, 5);
        if (is_complex(v.dtype())) w = *apply("Bitcast", {w}, {{"type", v.dtype()}});
      }
      any |= w.defined();
      out.push_back(std::move(w));
    }
    return any ? out : std::vector<Tensor>();
  }
  /// Of the sum of weights * ys by every number of what is fed for `feeds[f]`.
  std::vector<double> differences(Evaluator& evaluator, const std::vector<Output>& ys,
                                  const std::vector<Tensor>& weights, std::vector<std::pair<Output, Tensor>> feeds,
                                  size_t f) const {
    const Tensor x = feeds[f].second;
    const auto at = [&](size_t element, double by) {
      feeds[f].second = moved(x, static_cast<int64_t>(element), by);
      auto v = evaluator.run(ys, feeds);
      REQUIRE(v.ok());
      double sum = 0;
      for (size_t i = 0; i < v->size(); ++i) {
        if (!weights[i].defined()) continue;
        const auto y = doubles((*v)[i]), w = doubles(weights[i]);
        for (size_t k = 0; k < y.size(); ++k) sum += y[k] * w[k];
      }
      return sum;
    };
    std::vector<double> out(doubles(x).size());
    const double h = step();
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = (8 * (at(i, h) - at(i, -h)) - (at(i, 2 * h) - at(i, -2 * h))) / (12 * h);
    return out;
  }
  /// A gradient by `x` against differences; one that is not there must be zero.
  void check(const Tensor& dx, const std::vector<double>& want, const Tensor& x) const {
    if (!dx.defined()) {
      INFO("has no gradient");
      for (double w : want) CHECK(std::fabs(w) < tolerance());
      return;
    }
    INFO("gradient " << dx.str());
    REQUIRE(dx.shape() == x.shape());
    check_close(doubles(dx), want, tolerance());
  }

 private:
  /// x with its real number `i` moved by `by`.
  Tensor moved(const Tensor& x, int64_t i, double by) const {
    Tensor out = *x.clone();
    if (!single) static_cast<double*>(out.mutable_raw())[i] += by;
    else static_cast<float*>(out.mutable_raw())[i] += static_cast<float>(by);
    return out;
  }
};

}  // namespace

namespace {

bool has_zero(const Tensor& t) {
  return std::ranges::any_of(doubles(t), [](double v) { return v == 0; });
}

}  // namespace

TEST_CASE("gradients agree with finite differences", "[conformance]") {
  for (const OpCase& c : all_cases()) {
    const OpDef& op = *op_library()->ops.find(c.op);
    if (!c.gradient || c.random || !op.gradient().no_gradient_reason.empty()) continue;
    INFO(title(c));
    const Precision precision(c);
    BuiltCase b(c, BuiltCase::Inputs::kPlaceholders);
    REQUIRE(b.scope.ok());
    Evaluator evaluator;
    auto values = evaluator.run(b.outputs(), b.feeds);
    REQUIRE(values.ok());
    const std::vector<Tensor> weights = precision.weights(*values);
    if (weights.empty() || b.feeds.empty()) continue;
    const auto got = analytic(c, b, weights);
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    for (size_t f = 0; f < b.feeds.size(); ++f) {
      INFO("input " << f);
      precision.check((*got)[f], precision.differences(evaluator, b.outputs(), weights, b.feeds, f), b.feeds[f].second);
    }
  }
}

TEST_CASE("gradients of gradients agree with finite differences", "[conformance]") {
  for (const OpCase& c : all_cases()) {
    const OpDef& op = *op_library()->ops.find(c.op);
    if (!c.gradient || c.random || !op.gradient().no_gradient_reason.empty()) continue;
    if (c.op.ends_with("Prod") && has_zero(c.inputs[0])) continue;  // docs/gradients.md
    if (c.op == "Spence") continue;                                 // its slope is 0 / 0 at 1
    INFO(title(c));
    const Precision precision(c);
    BuiltCase b(c, BuiltCase::Inputs::kPlaceholders);
    REQUIRE(b.scope.ok());
    Evaluator evaluator;
    auto values = evaluator.run(b.outputs(), b.feeds);
    REQUIRE(values.ok());
    // What comes back to the outputs is an input of the gradient too.
    std::vector<Output> ys, dys, xs;
    for (const auto& [x, value] : b.feeds) xs.push_back(x);
    const std::vector<Tensor> weights = precision.weights(*values);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!weights[i].defined()) continue;
      ys.push_back(b.node->out(static_cast<int>(i)));
      dys.push_back(
          b.scope.op("Placeholder", {}, {{"dtype", weights[i].dtype()}, {"shape", PartialShape(weights[i].shape())}}));
      b.feeds.emplace_back(dys.back(), weights[i]);
    }
    if (ys.empty() || xs.empty()) continue;
    const auto first = gradients(b.scope, ys, xs, dys);
    INFO((first.ok() ? "" : first.error().str()));
    REQUIRE(first.ok());
    std::vector<Output> dxs, vs;
    for (const Output& dx : *first)
      if (dx) dxs.push_back(dx);
    auto slopes = evaluator.run(dxs, b.feeds);
    INFO((slopes.ok() ? "" : slopes.error().str()));
    REQUIRE(slopes.ok());
    const std::vector<Tensor> again = precision.weights(*slopes);
    std::vector<Output> zs;
    for (size_t i = 0; i < again.size(); ++i) {
      if (!again[i].defined()) continue;
      zs.push_back(dxs[i]);
      vs.push_back(b.scope.constant(again[i]));
    }
    if (zs.empty()) continue;
    xs.insert(xs.end(), dys.begin(), dys.end());
    const auto second = gradients(b.scope, zs, xs, vs);
    if (!second.ok() && second.error().message.find("has no gradient") != std::string::npos) continue;  // said so
    INFO((second.ok() ? "" : second.error().str()));
    REQUIRE(second.ok());
    for (size_t f = 0; f < b.feeds.size(); ++f) {
      INFO("input " << f);
      Tensor got;
      if ((*second)[f]) got = evaluator.value((*second)[f], b.feeds);
      precision.check(got, precision.differences(evaluator, dxs, again, b.feeds, f), b.feeds[f].second);
    }
  }
}

TEST_CASE("gradients on inputs of unknown shape are those on known ones", "[conformance]") {
  for (const OpCase& c : all_cases()) {
    const OpDef& op = *op_library()->ops.find(c.op);
    if (!c.gradient || !op.gradient().no_gradient_reason.empty()) continue;
    INFO(title(c));
    BuiltCase known(c, BuiltCase::Inputs::kPlaceholders), unknown(c, BuiltCase::Inputs::kUnknownShapes);
    auto values = Evaluator().run(known.outputs(), known.feeds);
    REQUIRE(values.ok());
    const std::vector<Tensor> weights = Precision(c).weights(*values);
    if (weights.empty() || known.feeds.empty()) continue;
    const auto want = analytic(c, known, weights), got = analytic(c, unknown, weights);
    REQUIRE(want.ok());
    if (!got.ok() && got.error().message.find("known") != std::string::npos) continue;  // said so
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    for (size_t i = 0; i < want->size(); ++i) {
      REQUIRE((*want)[i].defined() == (*got)[i].defined());
      if ((*want)[i].defined()) check_same((*got)[i], (*want)[i], rounding((*want)[i].dtype()));
    }
  }
}

TEST_CASE("empty inputs and odd integers are computed or refused, never a crash", "[conformance]") {
  const auto check = [](const OpCase& c) {
    INFO(title(c));
    BuiltCase b(c, BuiltCase::Inputs::kUnknownShapes, true);
    REQUIRE(b.scope.ok());
    BuiltCase constants(c, BuiltCase::Inputs::kConstants);
    for (int threads : {1, 2}) {
      Evaluator evaluator(threads);
      evaluator.device().allocator = make_caching_allocator(int64_t{1} << 22);  // not all that a huge range asks for
      const auto values = evaluator.run(b.outputs(), b.feeds);
      if (!values.ok()) CHECK(values.error().message.size() > 3);
      if (constants.scope.ok()) (void)evaluator.run(constants.outputs());
    }
  };
  for (const OpCase& c : all_cases()) {
    OpCase all_empty = c;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const Tensor& x = c.inputs[i];
      for (int d = 0; d < x.rank(); ++d) {
        Shape empty = x.shape();
        empty.set(d, 0);
        OpCase other = c;
        other.inputs[i] = all_empty.inputs[i] = *Tensor::zeros(x.dtype(), empty);
        check(other);
      }
      with_type(x.dtype(), TypeList<int32_t, int64_t>{}, [&]<class T>() {
        for (T value : {T(0), T(-1), std::numeric_limits<T>::min()})
          for (int64_t e = 0; e < std::min<int64_t>(x.elements(), 3); ++e) {
            OpCase other = c;
            other.inputs[i] = *x.clone();
            other.inputs[i].mutable_data<T>()[e] = value;
            check(other);
          }
      });
    }
    check(all_empty);
  }
}

}  // namespace troupe::testing
