// SPDX-License-Identifier: Apache-2.0
// What only moves elements gives the same on GPUs as on CPUs: orders, slices, joins, splits, borders, repeats.
#include <numeric>

#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

Tensor ints(std::vector<int32_t> values) { return Tensor::of<int32_t>(std::span<const int32_t>(values)); }
Tensor pairs(std::vector<int32_t> values) {
  const auto rows = static_cast<int64_t>(values.size() / 2);
  return Tensor::of<int32_t>(std::span<const int32_t>(values), Shape{rows, 2});
}

/// Elements that all differ, as far as the type can tell; of every type that GPUs have in their memory.
Tensor elements(DType dtype, const Shape& shape, uint64_t seed = 1) {
  Tensor x = *Tensor::make(dtype, shape);
  std::mt19937_64 random(seed);
  if (dtype == DType::kBool) return random_values(dtype, shape, seed);
  auto* bytes = static_cast<unsigned char*>(x.mutable_raw());
  for (size_t i = 0; i < x.bytes(); ++i) bytes[i] = static_cast<unsigned char>(random() & 0x3f);  // no NaN
  return x;
}

/// One type of each size, so that not every case runs for all; those of one size go by one kernel.
const DType kSizes[] = {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kComplex64, DType::kComplex128};

TEST_CASE("Every type moves on GPUs") {
  Parity parity;
  for (const char* op : {"Transpose", "ConjugateTranspose"})
    for (DType dtype : gpu_types(parity, op)) {
      parity.check({op, {elements(dtype, Shape{9, 33}), ints({1, 0})}});
      parity.check({op, {elements(dtype, Shape{3, 4}), ints({0, 1})}});
    }
  for (DType dtype : gpu_types(parity, "ConcatV2")) {
    const Tensor x = elements(dtype, Shape{3, 5}), y = elements(dtype, Shape{3, 4}, 2);
    parity.check({"ConcatV2", {x, y, Tensor::scalar<int32_t>(1)}, {{"N", int64_t{2}}}});
    parity.check({"Split", {Tensor::scalar<int32_t>(1), y}, {{"num_split", int64_t{2}}}});
    parity.check({"Slice", {x, ints({1, 1}), ints({2, 3})}});
    parity.check({"Pad", {x, pairs({1, 0, 2, 1})}});
    parity.check({"PadV2", {x, pairs({1, 0, 2, 1}), elements(dtype, Shape{}, 3)}});
    parity.check({"Tile", {x, ints({2, 3})}});
    parity.check({"ReverseV2", {x, ints({1})}});
    parity.check({"BroadcastTo", {elements(dtype, Shape{3, 1}), ints({2, 3, 5})}});
  }
}

TEST_CASE("Transposes on GPUs agree with those of CPUs") {
  Parity parity;
  const std::pair<Shape, std::vector<int32_t>> cases[] = {
      {Shape{}, {}},
      {Shape{5}, {0}},
      {Shape{0, 3}, {1, 0}},
      {Shape{1, 7}, {1, 0}},
      {Shape{3, 7}, {1, 0}},
      {Shape{31, 8}, {1, 0}},
      {Shape{32, 64}, {1, 0}},
      {Shape{65, 33}, {1, 0}},
      {Shape{2, 40, 3}, {0, 2, 1}},
      {Shape{2, 40, 35}, {0, 2, 1}},
      {Shape{2, 9, 10, 16}, {0, 3, 1, 2}},
      {Shape{2, 16, 9, 10}, {0, 2, 3, 1}},
      {Shape{4, 5, 6, 8}, {0, 2, 1, 3}},
      {Shape{3, 4, 5, 6}, {3, 2, 1, 0}},
      {Shape{9, 3, 11, 2}, {2, 1, 3, 0}},
      {Shape{2, 1, 2, 1, 2, 3, 1, 2, 2, 1, 2, 2, 1, 2, 1, 2}, {15, 0, 14, 1, 13, 2, 12, 3, 11, 4, 10, 5, 9, 6, 8, 7}},
      {Shape{3, 4}, {0, 0}},  // errors
      {Shape{3, 4}, {0}},
  };
  for (DType dtype : kSizes)
    for (const auto& [shape, perm] : cases) parity.check({"Transpose", {elements(dtype, shape), ints(perm)}});
}

TEST_CASE("Joins on GPUs agree with those of CPUs") {
  Parity parity;
  struct Join {
    std::vector<Shape> shapes;
    int32_t axis;
  };
  std::vector<Join> cases = {{{Shape{5}}, 0},
                             {{Shape{5}, Shape{0}, Shape{3}}, 0},
                             {{Shape{0, 2}, Shape{0, 3}}, 1},
                             {{Shape{4, 16}, Shape{4, 32}}, -1},
                             {{Shape{4, 3}, Shape{4, 1}, Shape{4, 9}}, 1},
                             {{Shape{2, 3, 8}, Shape{2, 1, 8}}, 1},
                             {{Shape{2, 3, 5}, Shape{4, 3, 5}}, 0},
                             {{Shape{700, 2}, Shape{700, 4}}, 1},
                             {{Shape{2, 3}, Shape{2, 4}}, 0},  // errors
                             {{Shape{}, Shape{}}, 0}};
  Join many{{}, 1};  // more than one launch takes
  for (int i = 0; i < 300; ++i) many.shapes.push_back(Shape{3, i % 4});
  cases.push_back(many);
  for (DType dtype : kSizes)
    for (const auto& [shapes, axis] : cases) {
      std::vector<Tensor> parts;
      for (const Shape& shape : shapes) parts.push_back(elements(dtype, shape, parts.size()));
      const auto n = static_cast<int64_t>(parts.size());
      std::vector<Tensor> inputs = parts;
      inputs.push_back(Tensor::scalar<int32_t>(axis));
      parity.check({"ConcatV2", inputs, {{"N", n}}});
      if (n < 2) continue;
      inputs = parts;
      inputs.insert(inputs.begin(), Tensor::scalar<int32_t>(axis));
      parity.check({"Concat", inputs, {{"N", n}}});
      for (int64_t i = 0; i < n; ++i) parts[static_cast<size_t>(i)] = elements(dtype, shapes[0], i);
      for (int64_t at : {int64_t{0}, int64_t{-1}}) parity.check({"Pack", parts, {{"N", n}, {"axis", at}}});
    }
  const Tensor row = elements(DType::kFloat32, Shape{1, 3});
  parity.check({"ParallelConcat", {row, row}, {{"N", int64_t{2}}, {"shape", PartialShape{2, 3}}}});
  parity.check({"Pack", {row, elements(DType::kFloat32, Shape{3})}, {{"N", int64_t{2}}}});
}

TEST_CASE("Splits on GPUs agree with those of CPUs") {
  Parity parity;
  const std::tuple<Shape, int32_t, std::vector<int32_t>> cases[] = {
      {Shape{6}, 0, {2, 2, 2}},
      {Shape{4, 6}, 1, {2, 2, 2}},
      {Shape{4, 64}, 1, {32, 32}},
      {Shape{4, 6}, 0, {2, 2}},
      {Shape{3, 4, 5}, -2, {1, 1, 1, 1}},
      {Shape{0, 4}, 1, {2, 2}},
      {Shape{3, 400}, 1, std::vector<int32_t>(200, 2)},
      {Shape{4, 9}, 1, {0, 4, 5}},
      {Shape{4, 9}, 1, {1, -1, 3}},
      {Shape{4, 9}, 1, {4, 4}},  // errors
      {Shape{4, 9}, 2, {4, 5}},
  };
  for (DType dtype : kSizes)
    for (const auto& [shape, axis, sizes] : cases) {
      const Tensor x = elements(dtype, shape), at = Tensor::scalar<int32_t>(axis);
      const Attrs attrs = {{"num_split", static_cast<int64_t>(sizes.size())}};
      parity.check({"SplitV", {x, ints(sizes), at}, attrs});
      parity.check({"Split", {at, x}, attrs});
      parity.check(
          {"Unpack",
           {x},
           {{"num", axis < shape.rank() ? shape[axis < 0 ? axis + shape.rank() : axis] : 1}, {"axis", int64_t{axis}}}});
    }
}

TEST_CASE("Slices on GPUs agree with those of CPUs") {
  Parity parity;
  const std::tuple<Shape, std::vector<int32_t>, std::vector<int32_t>> cases[] = {
      {Shape{}, {}, {}},
      {Shape{9}, {2}, {5}},
      {Shape{9, 16}, {2, 0}, {3, 16}},
      {Shape{9, 16}, {0, 4}, {9, 8}},
      {Shape{9, 16}, {1, 3}, {-1, 7}},
      {Shape{9, 16}, {1, 3}, {4, 0}},
      {Shape{3, 5, 8, 8}, {0, 1, 4, 0}, {3, 3, 4, 8}},
      {Shape{3, 5, 8, 8}, {1, 1, 1, 1}, {2, 2, 2, 2}},
      {Shape{9, 16}, {2, 0}, {8, 16}},  // errors
      {Shape{9, 16}, {2}, {8}},
  };
  for (DType dtype : kSizes)
    for (const auto& [shape, begin, size] : cases)
      parity.check({"Slice", {elements(dtype, shape), ints(begin), ints(size)}});

  struct Strided {
    Shape shape;
    std::vector<int32_t> begin, end, strides;
    int64_t shrink = 0, new_axis = 0;
  };
  const Strided strided[] = {
      {Shape{9, 16}, {1, 4}, {8, 12}, {1, 1}},   {Shape{9, 16}, {8, 15}, {-10, -17}, {-1, -1}},
      {Shape{9, 16}, {1, 0}, {9, 16}, {3, 2}},   {Shape{9, 16}, {1, 0}, {9, 16}, {2, 1}},
      {Shape{9, 16}, {4, 3}, {5, 9}, {1, 2}, 1}, {Shape{5, 6, 7}, {0, 2}, {0, 3}, {1, 1}, 2, 1},
      {Shape{9, 16}, {3, 3}, {3, 9}, {2, 2}},    {Shape{9, 16}, {0, 0}, {9, 16}, {0, 1}}};  // an error
  for (DType dtype : kSizes)
    for (const Strided& s : strided) {
      const Attrs attrs = {{"shrink_axis_mask", s.shrink}, {"new_axis_mask", s.new_axis}};
      const ParityCase slice = {
          "StridedSlice", {elements(dtype, s.shape), ints(s.begin), ints(s.end), ints(s.strides)}, attrs};
      parity.check(slice);
      const auto part = parity.run(DeviceKind::kCpu, slice);
      std::vector<int32_t> sizes(s.shape.begin(), s.shape.end());
      for (const Shape& of : {part.ok() ? (*part)[0].shape() : Shape{2}, Shape{3}})
        parity.check({"StridedSliceGrad",
                      {ints(sizes), ints(s.begin), ints(s.end), ints(s.strides), elements(dtype, of, 2)},
                      attrs});
    }
}

TEST_CASE("Borders on GPUs agree with those of CPUs") {
  Parity parity;
  const std::pair<Shape, std::vector<int32_t>> cases[] = {
      {Shape{}, {}},
      {Shape{5}, {0, 0}},
      {Shape{5}, {3, 2}},
      {Shape{0}, {3, 2}},
      {Shape{0, 4}, {0, 0, 1, 1}},
      {Shape{16, 16}, {0, 0, 16, 0}},
      {Shape{16, 16}, {1, 2, 0, 0}},
      {Shape{3, 5, 5, 8}, {0, 0, 1, 1, 2, 2, 0, 0}},
      {Shape{3, 5, 5, 3}, {0, 1, 1, 1, 2, 2, 1, 0}},
      {Shape{1, 7, 1, 4}, {0, 0, 3, 3, 0, 0, 3, 3}},
      {Shape{2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2},
       {1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}},
      {Shape{5}, {-1, 2}},  // errors
      {Shape{5, 2}, {1, 2}},
  };
  for (DType dtype : kSizes)
    for (const auto& [shape, paddings] : cases) {
      const Tensor x = elements(dtype, shape);
      parity.check({"Pad", {x, pairs(paddings)}});
      parity.check({"PadV2", {x, pairs(paddings), elements(dtype, Shape{}, 2)}});
      for (const char* mode : {"REFLECT", "SYMMETRIC"})
        parity.check({"MirrorPad", {x, pairs(paddings)}, {{"mode", std::string(mode)}}});
    }
  parity.check({"PadV2", {elements(DType::kFloat32, Shape{5}), pairs({1, 1}), elements(DType::kFloat32, Shape{1}, 2)}});
}

TEST_CASE("Repeats on GPUs agree with those of CPUs") {
  Parity parity;
  const std::pair<Shape, std::vector<int32_t>> tiles[] = {
      {Shape{}, {}},
      {Shape{3}, {4}},
      {Shape{3, 1}, {1, 5}},
      {Shape{3, 16}, {2, 1}},
      {Shape{3, 16}, {2, 3}},
      {Shape{2, 3, 4, 5}, {2, 1, 3, 2}},
      {Shape{2, 3}, {0, 2}},
      {Shape{0, 3}, {2, 2}},
      {Shape{2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2}, {1, 2, 2, 1, 2, 2, 1, 1, 1, 1, 2, 1, 1, 1, 2, 2}},
      {Shape{2, 3}, {2}},  // errors
      {Shape{2, 3}, {2, -1}},
  };
  const std::pair<Shape, std::vector<int32_t>> broadcasts[] = {
      {Shape{}, {}},         {Shape{}, {3, 5}},           {Shape{4}, {3, 4}},          {Shape{3, 1}, {3, 40}},
      {Shape{16}, {9, 16}},  {Shape{2, 1, 5}, {2, 3, 5}}, {Shape{1, 3, 1}, {2, 3, 4}}, {Shape{1}, {0}},
      {Shape{2, 3}, {2, 3}}, {Shape{2, 3}, {2, 4}},  // an error
  };
  for (DType dtype : kSizes) {
    for (const auto& [shape, multiples] : tiles) parity.check({"Tile", {elements(dtype, shape), ints(multiples)}});
    for (const auto& [shape, sizes] : broadcasts) parity.check({"BroadcastTo", {elements(dtype, shape), ints(sizes)}});
  }
}

TEST_CASE("Reversed and rolled tensors on GPUs agree with those of CPUs") {
  Parity parity;
  const std::pair<Shape, std::vector<int32_t>> cases[] = {
      {Shape{}, {}},          {Shape{5}, {0}},        {Shape{5, 16}, {0}}, {Shape{5, 16}, {1}},
      {Shape{5, 16}, {0, 1}}, {Shape{3, 4, 5}, {-2}}, {Shape{0, 3}, {1}},  {Shape{3, 4}, {2}},  // errors
      {Shape{3, 4}, {1, -1}},
  };
  for (DType dtype : kSizes)
    for (const auto& [shape, axes] : cases) {
      const Tensor x = elements(dtype, shape);
      parity.check({"ReverseV2", {x, ints(axes)}});
      std::vector<int32_t> shifts(axes.size());
      std::iota(shifts.begin(), shifts.end(), 2);
      parity.check({"Roll", {x, ints(shifts), ints(axes)}});
      parity.check({"Roll", {x, Tensor::scalar<int32_t>(-1), Tensor::scalar<int32_t>(0)}});
    }
  parity.check({"Reverse", {elements(DType::kFloat32, Shape{3, 4}), Tensor::of<bool>({true, false})}});
  parity.check({"Reverse", {elements(DType::kFloat32, Shape{3, 4}), Tensor::of<bool>({true})}});
}

}  // namespace
}  // namespace troupe::testing
