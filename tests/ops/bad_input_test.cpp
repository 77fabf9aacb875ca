// SPDX-License-Identifier: Apache-2.0
// Bad input of the elementary ops: each is an error that names what is wrong, whether the graph's builder can see it or
// only the kernel.
#include <cmath>

#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"
#include "troupe/gradients.h"

namespace troupe::testing {
namespace {

/// The op fails on these inputs, both when their shapes and values are known to the builder and when not, and says
/// `words`.
void check_fails(const std::string& op, const std::vector<Tensor>& inputs, const std::string& words, Attrs attrs = {}) {
  const auto at_build = apply(op, inputs, attrs), at_run = apply_unshaped(op, inputs, attrs);
  INFO(op);
  REQUIRE_FALSE(at_build.ok());
  REQUIRE_FALSE(at_run.ok());
  INFO(at_build.error().str() << "\n" << at_run.error().str());
  CHECK(at_build.error().message.find(words) != std::string::npos);
  CHECK(at_run.error().message.find(words) != std::string::npos);
  CHECK(at_run.error().op == op);
}

}  // namespace

TEST_CASE("arithmetic refuses shapes that do not broadcast and division by zero", "[bad_input]") {
  check_fails("Add", {kMatrix, D({1, 2})}, "[2,3]");
  check_fails("SelectV2", {B({true, false}), kMatrix, D(1)}, "broadcast");
  check_fails("Select", {B({true, false, true}), kMatrix, kMatrix}, "fits neither");
  for (const char* op : {"Div", "FloorDiv", "TruncateDiv", "Mod", "TruncateMod", "FloorMod"}) {
    check_fails(op, {I({1, 2}), I({1, 0})}, "division by zero");
    check_fails(op, {I(1), I(0)}, "division by zero");
    check_fails(op, {L({1, 2, 3, 4}, {2, 2}), L({1, 0})}, "division by zero");
  }
  check_fails("Pow", {I({2}), I({-1})}, "negative integer power");
  check_fails("AddN", {D({1, 2}), D({1})}, "[2]");
  check_fails("AccumulateNV2", {D({1, 2}), D({1, 2})}, "[3]", {{"shape", PartialShape{3}}});
  check_fails("ReluGrad", {D({1, 2}), D({1})}, "[2]");
  check_fails("ClipByValue", {kMatrix, D({1, 2}), D(1)}, "[2]");
  check_fails("BroadcastTo", {D({1, 2}), I({3})}, "[2]");
  check_fails("BroadcastTo", {D({1, 2}), I({1})}, "[2]");
}

TEST_CASE("arithmetic names types that do not fit", "[bad_input]") {
  const auto mixed = apply("Add", {D({1}), I({1})});
  REQUIRE_FALSE(mixed.ok());
  CHECK(mixed.error().message.find("float64") != std::string::npos);
  REQUIRE_FALSE(apply("Sqrt", {I({4})}).ok());
  REQUIRE_FALSE(apply("LogicalAnd", {D({1}), D({1})}).ok());
}

TEST_CASE("sizes and ranges are checked", "[bad_input]") {
  check_fails("Fill", {I({2, -1}), D(1)}, "-1");
  check_fails("Fill", {L({INT64_MAX, 4}), D(1)}, "more elements");
  check_fails("Range", {I(0), I(3), I(0)}, "delta is 0");
  check_fails("Range", {I(0), I(3), I(-1)}, "never leads");
  check_fails("Reshape", {kMatrix, I({4, -1})}, "6 elements");
  check_fails("Reshape", {kMatrix, I({-1, -1})}, "two sizes");
  check_fails("EnsureShape", {kMatrix}, "[?,2]", {{"shape", PartialShape{-1, 2}}});
  check_fails("Reshape", {kMatrix, I({7})}, "6 elements");
  check_fails("ExpandDims", {kMatrix, I(4)}, "axis 4");
  check_fails("Squeeze", {kMatrix}, "is not 1", {{"squeeze_dims", std::vector<int64_t>{0}}});
  check_fails("Tile", {kMatrix, I({1, -2})}, "-2");
  check_fails("Tile", {kMatrix, L({INT64_MAX, 2})}, "multiple");
  const auto unrepresentable = apply("CheckNumerics", {D({1, NAN})}, {{"message", std::string("loss")}});
  REQUIRE_FALSE(unrepresentable.ok());
  CHECK(unrepresentable.error().message.find("loss: element 1") != std::string::npos);
}

TEST_CASE("axes are checked", "[bad_input]") {
  check_fails("Sum", {kMatrix, I({2})}, "axis 2 of a tensor of rank 2");
  check_fails("Sum", {kMatrix, I({0, -2})}, "named twice");
  check_fails("ArgMax", {kMatrix, I(-3)}, "axis -3");
  check_fails("Transpose", {kMatrix, I({0, 0})}, "not a permutation");
  check_fails("Transpose", {kMatrix, I({0})}, "rank 2");
  check_fails("ConcatV2", {kMatrix, D({1, 2}, {1, 2}), I(0)}, "[");
  check_fails("ConcatV2", {D(1), D(2), I(0)}, "a");
  check_fails("Split", {I(1), kMatrix}, "does not part", {{"num_split", int64_t{2}}});
  check_fails("SplitV", {kMatrix, I({1, 1}), I(1)}, "do not add up", {{"num_split", int64_t{2}}});
  check_fails("Pack", {D({1}), D({1, 2})}, "[1]");
  check_fails("Unpack", {kMatrix}, "does not part", {{"num", int64_t{3}}});
  const auto empty = apply("ArgMax", {D({}, {0, 2}), I(0)});
  REQUIRE_FALSE(empty.ok());
}

TEST_CASE("slices stay inside", "[bad_input]") {
  check_fails("Slice", {kMatrix, I({0, 2}), I({2, 2})}, "begin 2 and size 2 of dimension 1");
  check_fails("Slice", {kMatrix, I({-1, 0}), I({1, 1})}, "begin -1");
  check_fails("Slice", {kMatrix, L({1, 0}), L({INT64_MAX, 1})}, "of dimension 0");
  check_fails("Slice", {kMatrix, L({INT64_MIN, 0}), L({-1, 1})}, "of dimension 0");
  check_fails("Slice", {kMatrix, I({0}), I({1})}, "[2,3]");
  check_fails("StridedSlice", {kMatrix, I({5}), I({6}), I({1})}, "index 5 of dimension 0",
              {{"shrink_axis_mask", int64_t{1}}});
  check_fails("StridedSlice", {kMatrix, I({0}), I({1}), I({0})}, "stride");
  check_fails("StridedSlice", {kMatrix, I({0, 0, 0}), I({1, 1, 1}), I({1, 1, 1})}, "3 entries");
  check_fails("StridedSlice", {kMatrix, I({0, 0}), I({1, 1}), I({1, 1})}, "ellipsis", {{"ellipsis_mask", int64_t{3}}});
  check_kernel_fails("XlaDynamicSlice", {kMatrix, I({0, 0}), I({1, 4})}, "size 4 in dimension 1 is not within [2,3]");
  check_kernel_fails("XlaDynamicSlice", {kMatrix, I({0}), I({1})}, "1 start indices of a box of 1 dimensions");
  check_fails("XlaDynamicUpdateSlice", {kMatrix, D({1}), I({0, 0})}, "in a tensor of shape [2,3]");
  check_kernel_fails("XlaDynamicUpdateSlice", {kMatrix, D({1, 2, 3}, {3, 1}), I({0, 0})}, "size 3 in dimension 0");
  check_fails("TensorStridedSliceUpdate", {kMatrix, I({0}), I({1}), I({1}), D({1, 2})}, "[1,3]");
  check_fails("Pad", {kMatrix, I({1, 1}, {1, 2})}, "paddings");
  check_fails("Pad", {D({1}), I({1, -1}, {1, 2})}, "-1 is not a size");
  check_fails("PadV2", {kMatrix, I({0, 0, 0, 0}, {2, 2}), D({1, 2})}, "[2]");
}

TEST_CASE("shapes that a node promises are those it gives", "[bad_input]") {
  check_fails("PlaceholderWithDefault", {D({1, 2})}, "[3]", {{"shape", PartialShape{3}}});
  check_fails("LoopCond", {B({true, false})}, "[2]");
}

TEST_CASE("crops of images without channels have a gradient of zeros", "[bad_input]") {
  const auto dx =
      apply("CropAndResizeGradBoxes", {F({}, {1, 2, 2, 0}), F({}, {1, 3, 3, 0}), F({0, 0, 1, 1}, {1, 4}), I({0})});
  REQUIRE(dx.ok());
  CHECK(dx->identical(F({0, 0, 0, 0}, {1, 4})));
}

TEST_CASE("indices are checked and named", "[bad_input]") {
  const auto fails = [](const std::string& op, const std::vector<Tensor>& inputs, const std::string& words) {
    const auto r = apply(op, inputs);
    INFO(op);
    REQUIRE_FALSE(r.ok());
    INFO(r.error().str());
    CHECK(r.error().message.find(words) != std::string::npos);
  };
  fails("Gather", {kMatrix, I({0, 2})}, "index 2 at position 1 is not in [0, 2)");
  fails("GatherV2", {kMatrix, I({0, 2}), I(0)}, "index 2 at position 1 is not in [0, 2)");
  fails("GatherV2", {kMatrix, L({-1}), I(1)}, "index -1 at position 0 is not in [0, 3)");
  fails("GatherNd", {kMatrix, I({1, 3}, {1, 2})}, "index 3");
  fails("ScatterNd", {I({7}, {1, 1}), D({1}), I({3})}, "index 7");
  fails("UnsortedSegmentSum", {D({1, 2}), I({0, 4}), I(3)}, "segment id 4");
  fails("TopKV2", {D({1, 2}), I(3)}, "top 3");
  fails("OneHot", {I({1}), I(-2), D(1), D(0)}, "depth -2");
  fails("RandomUniformInt", {I({2}), I(3), I(3)}, "minval 3");
  fails("InvertPermutation", {I({0, 5})}, "not a permutation");
}

TEST_CASE("a placeholder that is not fed names itself", "[bad_input]") {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Output p = scope.named("images").op("Placeholder", {}, {{"dtype", DType::kFloat32}});
  const auto r = Evaluator().run({scope.op("Relu", {p})});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().node == "images");
}

TEST_CASE("a gradient through PreventGradient is an error with its message", "[bad_input]") {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}});
  const Output y = scope.op("PreventGradient", {x}, {{"message", std::string("not here")}});
  const auto r = gradients(scope, {y}, {x});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().message.find("not here") != std::string::npos);
}

TEST_CASE("ClipByValue has no gradient for complex numbers", "[bad_input]") {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kComplex64}});
  const Output bound = scope.constant(Tensor::scalar(complex64(1, 1)));
  const Output y = scope.named("cut").op("ClipByValue", {x, bound, bound});
  const auto r = gradients(scope, {y}, {x}, {scope.op("OnesLike", {y})});
  REQUIRE_FALSE(r.ok());
  CHECK_THAT(r.error().message, Catch::Contains("complex numbers have no order"));
  CHECK(r.error().node == "cut");
}

TEST_CASE("real and complex types of two precisions are refused", "[bad_input]") {
  const Tensor real = Tensor::of<double>({1, 2, 3, 4}, {2, 2}), complex = Tensor::of<complex128>({{1, 2}});
  const Tensor length = Tensor::of<int32_t>({2});
  const auto refused = [](const char* op, const std::vector<Tensor>& inputs, Attrs attrs, const char* words) {
    const auto r = apply(op, inputs, std::move(attrs));
    INFO(op);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().code == Code::kInvalidArgument);
    CHECK_THAT(r.error().message, Catch::Contains(words));
  };
  refused("Complex", {real, real}, {}, "Tout must be complex128 beside float64, not complex64");
  for (const char* op : {"Real", "Imag", "Angle", "ComplexAbs"})
    refused(op, {complex}, {}, "Tout must be float64 beside complex128, not float32");
  refused("Eig", {real}, {{"Tout", DType::kComplex64}}, "Tout must be complex128");
  refused("RFFT", {real, length}, {}, "Tcomplex must be complex128 beside float64, not complex64");
  refused("IRFFT", {complex, length}, {}, "Tcomplex must be complex64 beside float32, not complex128");
}

TEST_CASE("ranges of integers that stand for numbers are checked", "[bad_input]") {
  const Tensor x = Tensor::of<uint8_t>({1, 2}), low = Tensor::scalar(-1.f), high = Tensor::scalar(2.f);
  const Tensor matrix = *x.reshape({1, 2}), image = *x.reshape({1, 1, 2, 1}), two = Tensor::of<float>({1, 2});
  const auto fails = [](const std::string& op, const std::vector<Tensor>& inputs, const std::string& words,
                        const Attrs& attrs = {}) {
    const auto r = apply_unshaped(op, inputs, attrs);
    INFO(op << " " << words);
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().message, Catch::Contains(words));
  };
  for (const char* op : {"QuantizedAdd", "QuantizedMul", "QuantizedMatMul"}) {
    fails(op, {matrix, matrix, high, low, low, high}, "inputs 2 and 3 are not a range: 2 is not below -1");
    fails(op, {matrix, matrix, low, high, high, high}, "inputs 4 and 5");
    fails(op, {matrix, matrix, low, high, two, high}, "input 4");
  }
  fails("QuantizedAdd", {x, Tensor::of<uint8_t>({1, 2, 3}), low, high, low, high}, "[3]");
  fails("QuantizedMatMul", {matrix, matrix, low, high, low, high}, "inner sizes differ: [1,2] x [1,2]");
  fails("QuantizedMatMul", {x, matrix, low, high, low, high}, "[2], [1,2]");
  const Attrs wide{{"out_type", DType::kInt32}}, down{{"out_type", DType::kUInt8}};
  fails("QuantizedBiasAdd", {matrix, *x.slice(0, 1), low, high, low, high}, "bias [1]", wide);
  const Tensor one_byte = *x.slice(0, 1), pixel = *x.reshape({1, 1, 1, 2});
  fails("QuantizedBatchNormWithGlobalNormalization",
        {pixel, low, high, x, low, high, x, low, high, one_byte, low, high, x, low, high}, "input 9 of shape [1]",
        {{"out_type", DType::kInt32}, {"variance_epsilon", 0.1f}, {"scale_after_normalization", true}});
  Attrs conv{{"strides", std::vector<int64_t>{1, 1, 2, 1}}, {"padding", "SAME"}};
  fails("QuantizedConv2D", {image, image, low, high, low, high}, "strides", conv);
  conv.set("strides", std::vector<int64_t>{1, 1, 1, 1});
  fails("QuantizedConv2D", {image, *x.reshape({1, 1, 2, 1}), low, high, low, high}, "filter [1,1,2,1]", conv);
  fails("QuantizedConv2D", {x, image, low, high, low, high}, "not of shape [2]", conv);
  fails("QuantizedConv2D", {image, Tensor::of<uint8_t>({}, {0, 2, 1, 1}), low, high, low, high}, "no weights", conv);
  const Attrs pool{
      {"ksize", std::vector<int64_t>{1, 3, 2, 1}}, {"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", "VALID"}};
  fails("QuantizedMaxPool", {image, low, high}, "larger than the height of 1", pool);
  fails("QuantizedAvgPool", {image, two, high}, "input 1", pool);
  fails("QuantizedInstanceNorm", {image, high, low}, "2 is not below -1");
  fails("QuantizedInstanceNorm", {image, low, high}, "given_y_min 0", {{"output_range_given", true}});
  fails("QuantizedResizeBilinear", {image, I({0, 3}), low, high}, "[0,3]");
  fails("QuantizedReshape", {x, I({3}), low, high}, "3");
  fails("QuantizedConcat", {I(0), x, matrix, low, low, high, high}, "value 1 of shape [1,2]");
  fails("QuantizedConcat", {I(0), x, x, low, two, high, high}, "range of value 1");
  fails("QuantizedConcat", {I(1), x, x, low, low, high, high}, "1");
  fails("QuantizedRelu", {x, two, high}, "input 1", down);
  fails("QuantizedRelu", {x, low, high}, "no kernel on cpu for Tinput=uint8 out_type=int32", wide);
  const Tensor whole = I({1, 2}), pixels = *whole.reshape({1, 1, 1, 2}), one = Tensor::of<float>({1});
  fails("Requantize", {whole, low, high, high, high}, "2 to 2, does not hold zero", down);
  fails("RequantizePerChannel", {pixels, one, two, low, high}, "input 1 of shape [1]", down);
  fails("RequantizePerChannel", {whole, two, two, low, high}, "not of shape [2]", down);
  fails("RequantizationRangePerChannel", {pixels, two, one}, "input 2 of shape [1]", {{"clip_value_max", 1.f}});
}

TEST_CASE("segments, partitions and picked rows are checked", "[bad_input]") {
  const Tensor x = D({1, 2, 3});
  for (const char* op : {"SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin"}) {
    check_fails(op, {x, I({0, 2, 1})}, "position 2 there is 1");
    check_fails(op, {x, I({-1, 0, 1})}, "position 0 there is -1");
    check_fails(op, {x, I({0, 1})}, "segment_ids of shape [2] do not lead shape [3]");
    check_fails(op, {x, L({0, 1, INT64_MAX})}, "9223372036854775807");
  }
  for (const char* op : {"UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"}) {
    check_fails(op, {x, I({0, 2, 1}), I(2)}, "segment id 2");
    check_fails(op, {x, I({0, 2, 1}), I(-1)}, "num_segments must not be negative: -1");
    check_fails(op, {x, I({0, 1}, {1, 2}), I(2)}, "do not lead");
  }
  for (const char* op : {"SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"}) {
    check_fails(op, {x, I({3}), I({0})}, "index 3");
    check_fails(op, {x, I({0, 1}), I({1, 0})}, "position 1 there is 0");
    check_fails(std::string(op) + "WithNumSegments", {x, I({0}), I({2}), I(2)}, "segment id 2");
    check_fails(std::string(op) + "Grad", {x, I({4}), I({0}), I(4)}, "index 4");
    check_fails(std::string(op) + "GradV2", {x, I({0}), I({3}), I(4)}, "index 3");
  }
  check_fails("DynamicPartition", {x, I({0, 2, 1})}, "index 2 at position 1", {{"num_partitions", int64_t{2}}});
  check_fails("DynamicStitch", {I({0, -1}), D({1, 2})}, "index -1");
  check_fails("DynamicStitch", {I({0, 1}), D(1)}, "do not lead");
}

TEST_CASE("sets, counts and orders are checked", "[bad_input]") {
  check_fails("Unique", {kMatrix}, "[2,3]");
  check_fails("UniqueV2", {kMatrix, L({2})}, "axis 2");
  check_fails("ListDiff", {kMatrix, D({1})}, "[2,3]");
  check_fails("DenseToDenseSetOperation", {I({1}), I({2})}, "set_operation 'xor'", {{"set_operation", "xor"}});
  check_fails("DenseToDenseSetOperation", {I({1}, {1, 1}), I({2, 3}, {2, 1})}, "groups [1] and [2]",
              {{"set_operation", "union"}});
  check_fails("SetSize", {L({0, 2}, {1, 2}), I({5}), L({3, 2})}, "index 2 at [0,1]");
  check_fails("SetSize", {L({0, 1, 0, 0}, {2, 2}), I({5, 6}), L({3, 2})}, "out of order");
  check_fails("Bincount", {I({1, -2}), I(3), D({})}, "value -2");
  check_fails("Bincount", {I({1, 2}), I(-3), D({})}, "negative: -3");
  check_fails("Bincount", {I({1, 2}), I(3), D({1})}, "weights of shape [1]");
  check_fails("HistogramFixedWidth", {kMatrix, D({1, 1}), I(3)}, "from 1 to 1");
  check_fails("HistogramFixedWidth", {kMatrix, D({0, 1}), I(0)}, "0 bins");
  check_fails("Bucketize", {kMatrix}, "do not ascend", {{"boundaries", std::vector<float>{2, 1}}});
  check_fails("LowerBound", {kMatrix, D({1}, {1, 1})}, "as many rows");
  check_fails("NthElement", {kMatrix, I(3)}, "element 3");
  check_fails("TopK", {kMatrix}, "top 4", {{"k", int64_t{4}}});
  check_fails("Cumsum", {kMatrix, I(2)}, "axis 2");
  check_fails("Cross", {kMatrix, D({1, 2, 3, 4}, {2, 2})}, "[2,2]");
  check_fails("Betainc", {D({1, 2}), D({1, 2, 3}), D(0.5)}, "[2]");
  check_fails("LRN", {F({1}, {1})}, "[1]");
}

TEST_CASE("fingerprints are of rows and by one method", "[bad_input]") {
  check_fails("Fingerprint", {I(1), Tensor::scalar<std::string>("farmhash64")}, "must have rank 1 or more");
  check_fails("Fingerprint", {I({1}), Tensor::scalar<std::string>("md5")}, "not 'md5'");
}

TEST_CASE("sparse tensors are checked", "[bad_input]") {
  check_fails("SparseToDense", {I({1, 4}), I({4}), D({1, 2}), D(0)}, "index 4");
  check_fails("SparseToDense", {I({2, 1}), I({4}), D({1, 2}), D(0)}, "out of order");
  check_fails("SparseToDense", {I({1, 1}), I({4}), D({1, 2}), D(0)}, "repeated");
  check_fails("SparseToDense", {I({1, 2}), I({4}), D({1}), D(0)}, "for 2 indices");
  check_fails("SparseFillEmptyRows", {L({5, 0}, {1, 2}), D({1}), L({3, 2}), D(0)}, "index 5");
  check_fails("InplaceUpdate", {D({1, 2}), I({0}), D({1, 2})}, "no rows of x");
  check_fails("InplaceAdd", {D({}), I({0}), D({1})}, "has no rows");
  check_fails("DataFormatDimMap", {I({4})}, "dimension 4 is not in [-4, 4)");
  check_fails("DataFormatVecPermute", {I({1, 2, 3})}, "4 or 2 numbers", {});
  check_fails("DataFormatVecPermute", {I({1, 2})}, "the same 4 or 5 letters", {{"dst_format", std::string("NCHH")}});
  check_fails("RaggedFillEmptyRows", {L({5}), D({1}), L(3), D(0)}, "index 5");
  check_fails("SparseFillEmptyRowsGrad", {L({3}), D({1, 2})}, "index 3");
  const Tensor places = L({0, 1, 2, 0}, {2, 2}), b = D({1, 2}, {2, 1});
  check_fails("SparseTensorDenseMatMul", {places, D({1, 2}), L({2, 2}), b}, "index 2 at [1,0]");
  check_fails("SparseTensorDenseMatMul", {places, D({1, 2}), L({3, 3}), b}, "inner sizes differ");
  check_fails("SparseTensorDenseMatMul", {places, D({1}), L({3, 2}), b}, "[2,2]");
  check_fails("SparseTensorDenseMatMul", {places, D({1, 2}), L({3}), b}, "a_shape");
  const Tensor two = D({1, 2}), sizes = L({3, 2});
  check_fails("SparseAdd", {places, two, sizes, places, two, L({3, 3}), D(0)}, "[3,2] and [3,3]");
  check_fails("SparseAdd", {places, two, L({2, 2}), places, two, sizes, D(0)}, "index 2 at [1,0]");
  check_fails("SparseTensorDenseAdd", {places, two, sizes, b}, "[3,2]");
  check_fails("SparseDenseCwiseMul", {places, two, sizes, D({1, 2, 3})}, "does not broadcast");
  check_fails("SparseDenseCwiseDiv", {places, I({1, 2}), sizes, I(0)}, "division by zero");
  check_fails("SparseSlice", {places, two, sizes, L({-1, 0}), L({1, 1})}, "negative");
  check_fails("SparseSlice", {places, two, sizes, L({0}), L({1})}, "of [3,2]");
  check_fails("SparseReduceSum", {places, two, sizes, I({2})}, "2");
  check_fails("SparseSoftmax", {L({1}, {1, 1}), D({1}), L({2})}, "rank 2 or more");
  check_fails("SparseSoftmax", {places, two, L({INT64_MAX, INT64_MAX})}, "more elements");
  check_fails("SparseReorder", {places, D({1, 2, 3}), L({3, 2})}, "[2,2]");
  check_fails("SparseReshape", {places, L({3, 2}), L({4, -1})}, "6 elements do not fit [4,1]");
  check_fails("SparseReshape", {places, L({3, 2}), L({-1, -1})}, "two open sizes");
  check_fails("SerializeSparse", {places, two, L({2, 2})}, "index 2 at [1,0]");
  check_fails("SerializeManySparse", {L({0}, {1, 1}), D({1}), L({3})}, "above 1, not 1");
  check_fails("SerializeManySparse", {L({2, 0, 0, 1}, {2, 2}), two, sizes}, "indices[1] = [0,1] is out of order");
  const Attrs wanted = {{"dtype", DType::kFloat64}};
  const auto text = [](int64_t n) {
    return Tensor::of<std::string>(std::vector<std::string>(static_cast<size_t>(n), "\xff"), Shape{n});
  };
  check_fails("DeserializeSparse", {text(2)}, "[...,3], not [2]", wanted);
  check_fails("DeserializeSparse", {text(3)}, "1 bytes are not a TensorProto", wanted);
  check_fails("DeserializeManySparse", {*text(0).reshape({0, 3})}, "[0,3] has no sparse tensor", wanted);
  const auto packed = apply("SerializeManySparse", {places, two, sizes});
  REQUIRE(packed.ok());
  check_fails("DeserializeManySparse", {*packed}, "values of float64, not float32", {{"dtype", DType::kFloat32}});
  const Attrs count = {{"binary_output", false}};
  check_fails("SparseBincount", {places, L({1, -2}), sizes, L(3), D({})}, "value -2 at position 1 is negative");
  check_fails("SparseBincount", {places, L({1, 2}), sizes, L(-3), D({})}, "size");
  check_fails("SparseBincount", {L({0, 0, 0}, {1, 3}), L({1}), L({1, 1, 1}), L(3), D({})}, "[1,1,1] is neither");
  check_fails("SparseCountSparseOutput", {places, L({1, 2}), sizes, D({1})}, "weights of shape [1]", count);
  check_fails("DenseCountSparseOutput", {L({1, 2}, {1, 1, 2}), D({})}, "[1,1,2] have more than rows", count);
  check_fails("DenseCountSparseOutput", {L({-1}), D({})}, "value -1 at position 0 is negative", count);
  const auto S = [](const char* s) { return Tensor::scalar<std::string>(s); };
  const Attrs one = {{"N", int64_t{1}}, {"sparse_types", std::vector<DType>{DType::kInt64}}};
  const Attrs no_sparse = {{"N", int64_t{0}}, {"sparse_types", std::vector<DType>{}}};
  check_fails("SparseCrossV2", {places, L({1, 2}), L({3, 2}), L({1, 2}, {2, 1}), S("-")}, "2 rows, the first input 3",
              one);
  check_fails("SparseCrossV2", {L({1, 0, 0, 0}, {2, 2}), L({1, 2}), L({2, 1}), S("-")}, "must be sorted", one);
  check_fails("SparseCrossV2", {L({1}, {1, 1}), L({1}), L({2}), S("-")}, "[2] must be a matrix", one);
  check_fails("SparseCrossV2", {places, L({1, 2}), sizes, L({1}, {1, 1}), S("-")}, "2 types for N = 1 sparse inputs",
              {{"N", int64_t{1}}, {"sparse_types", std::vector<DType>{DType::kInt64, DType::kInt64}}});
  check_fails("SparseCrossV2", {L({1}), S("-")}, "dense input of shape [1] must be a matrix", no_sparse);
  const Attrs hashed = {
      {"N", int64_t{0}}, {"sparse_types", std::vector<DType>{}}, {"dense_types", std::vector<DType>{DType::kInt64}}};
  const Tensor no = Tensor::scalar(false), row = L({1, 2}, {1, 2});
  check_fails("SparseCrossHashed", {row, L(-1), no, L({1, 2})}, "num_buckets must be at least 0, not -1", hashed);
  check_fails("SparseCrossHashed", {row, L(1), no, L({1})}, "salt must be two numbers", hashed);
  check_fails("SparseCrossHashed", {row, L(1), Tensor::of<bool>({true}), L({1, 2})}, "strong_hash must be a scalar",
              hashed);
  check_fails("SparseReshape", {places, L({2, 3}), L({6})}, "index 2 at [1,0]");
  check_fails("ComputeAccidentalHits", {L({1}, {1, 1}), L({1})}, "2 columns", {{"num_true", int64_t{2}}});
}

TEST_CASE("partitions that do not fit one another are refused", "[bad_input]") {
  const auto types = [](std::vector<std::string> words) {
    return Attrs{{"row_partition_types", std::move(words)}, {"num_row_partition_tensors", int64_t{1}}};
  };
  const Attrs splits = types({"ROW_SPLITS"});
  const char* op = "RaggedTensorToTensor";
  check_kernel_fails(op, {L(-1), I({1, 2}), I(0), L({0, 1})}, "of 1 values, but there are 2", splits);
  check_kernel_fails(op, {L(-1), I({1, 2}), I(0), L({0, 2, 1, 2})}, "got 1 at position 2", splits);
  check_kernel_fails(op, {L(-1), I({1, 2}), I(0), L({0, int64_t{1} << 40})}, "at most 2", splits);
  check_kernel_fails(op, {L(-1), I({1, 2}), I(0), L({})}, "numbers from 0 on", splits);
  check_kernel_fails(op, {L(-1), I({1, 2}), I({0, 1}), L({0, 2})}, "default_value [2]", splits);
  check_fails(op, {L({-1, 2, 2}), I({1, 2}), I(0), L({0, 2})}, "shape [?,2,2] does not fit", splits);
  check_fails(op, {L(-1), I(1), I(0), L({0, 1})}, "at least one dimension", splits);
  check_fails(op, {L(-1), I({1, 2}), I(0), L({0, 2})}, "\"ROWS\" at position 0", types({"ROWS"}));
  check_fails(op, {L(-1), I({1, 2}), I(0), L({0, 2})}, "must be as many", types({"ROW_SPLITS", "ROW_SPLITS"}));
  const Attrs one = {{"PARAMS_RAGGED_RANK", int64_t{1}}, {"OUTPUT_RAGGED_RANK", int64_t{1}}};
  check_kernel_fails("RaggedGather", {L({0, 2}), I({1, 2}), I({0, 1})}, "index 1 at position 1", one);
  check_kernel_fails("RaggedGather", {L({0, 1}), I({1, 2}), I({0})}, "end at 1, where there are 2", one);
  check_kernel_fails("RaggedGather", {L({0, 3, 2}), I({1, 2}), I({0})}, "must not fall, got 2 at position 2", one);
  check_fails("RaggedGather", {L({0, 2}), I({1, 2}), I({0, 1}, {1, 2})}, "OUTPUT_RAGGED_RANK is 1", one);
  check_fails("RaggedTensorToSparse", {L({0, 1}), I(1)}, "must not be a scalar", {{"RAGGED_RANK", int64_t{1}}});
  check_kernel_fails("RaggedRange", {I({0, 1}), I(3), I({1, 0})}, "delta is 0 at position 1");
  check_kernel_fails("RaggedRange", {D(0), D(INFINITY), D(1)}, "too many steps of 1 from 0 to inf");
  check_kernel_fails("RaggedRange", {I({0, 1}), I({3}), I(1)}, "limits are 1, where others are 2");
  check_kernel_fails("RaggedBincount", {L({0, 1}), I({1, 2}), I(3), I({})}, "end at 1, where there are 2");
  check_kernel_fails("RaggedBincount", {L({1, 2}), I({1, 2}), I(3), I({})}, "numbers from 0 on");
  const Attrs ids = {{"row_partition_types", std::vector<std::string>{"FIRST_DIM_SIZE", "VALUE_ROWIDS"}},
                     {"num_row_partition_tensors", int64_t{2}}};
  check_kernel_fails(op, {L(-1), I({1, 2}), I(0), L(2), L({1, 0})}, "must not fall", ids);
  check_kernel_fails(op, {L(-1), I({1, 2}), I(0), L(2), L({0, 2})}, "in [0, 2), got 2", ids);
  check_kernel_fails(op, {L(-1), I({1, 2}), I(0), L(-2), L({0, 0})}, "-2", ids);
  CHECK(apply(op, {L(-1), I({1, 2}), I(0), L(int64_t{1} << 62), L({0, 0})}, ids).status().error().message.size() > 0);
}

TEST_CASE("projective transforms that do not fit their images are refused", "[bad_input]") {
  const Tensor image = F({1, 2}, {1, 1, 2, 1}), same = F({1, 0, 0, 0, 1, 0, 0, 0}, {1, 8}), size = I({1, 2});
  const Attrs nearest = {{"interpolation", "NEAREST"}};
  const char* op = "ImageProjectiveTransformV2";
  check_kernel_fails(op, {F({1, 2}, {1, 2}), same, size}, "[batch, height, width, channels]", nearest);
  check_kernel_fails(op, {image, F({1, 0, 0}, {1, 3}), size}, "transforms must be [1 or 1,8]", nearest);
  check_fails(op, {image, same, I({0, 2})}, "above 0", nearest);
  check_fails(op, {image, same, I({2, 2, 2})}, "above 0", nearest);
  check_kernel_fails(op, {image, same, size}, "\"CUBIC\"", {{"interpolation", "CUBIC"}});
  check_kernel_fails(op, {image, same, size}, "\"EDGE\"", {{"interpolation", "NEAREST"}, {"fill_mode", "EDGE"}});
  const float inf = INFINITY, nan = NAN;
  for (const char* mode : {"CONSTANT", "REFLECT", "WRAP", "NEAREST"})
    for (const char* interpolation : {"NEAREST", "BILINEAR"})
      for (const float wild : {inf, -inf, nan, 3e38f, -3e38f})
        CHECK(apply(op, {image, F({wild, 0, 1, 0, wild, 1, 0, 0}, {1, 8}), I({2, 3})},
                    {{"interpolation", interpolation}, {"fill_mode", mode}})
                  .ok());
}

TEST_CASE("the gradient of a projective transform goes back through its inverse", "[gradients]") {
  // Expected: TensorFlow 2.21.
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{1, 3, 4, 1}}});
  const Output t = scope.constant(F({1, 0.5f, 0, 0.25f, 1, 0, 0.125f, 0}, {1, 8}));
  const Output y = scope.op("ImageProjectiveTransformV3", {x, t, scope.constant(I({2, 3})), scope.constant(0.0f)},
                            {{"interpolation", "BILINEAR"}});
  const auto dx = gradients(scope, {y}, {x}, {scope.constant(F({1, 2, 3, 4, 5, 6}, {1, 2, 3, 1}))});
  REQUIRE(dx.ok());
  const Tensor got = Evaluator().value((*dx)[0], {{x, *Tensor::zeros(DType::kFloat32, {1, 3, 4, 1})}});
  check_close(doubles(got), {1, 1.5555556, 0, 0, 1.7422221, 4.3846154, 4.2396679, 0, 0, 0, 0, 0}, 1e-5);
}

TEST_CASE("points and centers that do not fit are errors", "[bad_input]") {
  const Tensor points = Tensor::of<float>({1, 2, 3, 4}, {2, 2});
  check_fails("NearestNeighbors", {points, Tensor::of<float>({1, 2, 3}, {1, 3}), L(1)}, "2 coordinates, centers 3");
  check_fails("NearestNeighbors", {points, points, L(-1)}, "k");
  check_fails("KmeansPlusPlusInitialization", {points, L(3), L(1), L(0)}, "from 1 to the number of points, 2, got 3");
  check_fails("KmeansPlusPlusInitialization", {points, L(0), L(1), L(0)}, "from 1 to the number of points, 2, got 0");
  check_fails("KmeansPlusPlusInitialization", {points, L(1), L(1), L(INT64_MAX)},
              "num_retries_per_sample must be at most");
  check_fails("KMC2ChainInitialization", {Tensor::of<float>({}), L(1)}, "a vector of some elements");
}

TEST_CASE("uniform integers need a range of their type and a scale for each slice", "[bad_input]") {
  const Tensor x = F({1, 2}, {1, 2}), scale = Tensor::scalar(1.f);
  const auto options = [](int64_t axis, int64_t least, int64_t most) {
    return Attrs{{"Tout", DType::kInt8},
                 {"quantization_axis", axis},
                 {"quantization_min_val", least},
                 {"quantization_max_val", most}};
  };
  check_fails("UniformQuantize", {x, scale, I(0)}, "-129 and quantization_max_val 0 are no range of int8",
              options(-1, -129, 0));
  check_fails("UniformQuantize", {x, scale, I(0)}, "2 and quantization_max_val 1 are no range", options(-1, 2, 1));
  check_fails("UniformQuantize", {x, scale, I(0)}, "scales of shape [] for 2 slices", options(1, 0, 1));
  check_fails("UniformQuantize", {x, F({1, 1}, {2}), I({0})}, "zero_points of shape [1] for 2 slices",
              options(1, 0, 1));
  check_fails("UniformQuantize", {x, scale, I(0)}, "axis 2 of input", options(2, 0, 1));
  check_fails("UniformQuantize", {x, scale, I(0)}, "quantization_axis must be -1 or more, not -2", options(-2, 0, 1));
}

}  // namespace troupe::testing
