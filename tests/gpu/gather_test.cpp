// SPDX-License-Identifier: Apache-2.0
// Slices that GPUs read by index are those of CPUs, of tensors and variables; an index that is out of range reads
// zeros.
#include "tests/gpu/parity_cases.h"
#include "tests/gpu/variables.h"

namespace troupe::testing {
namespace {

Tensor places(DType dtype, const Shape& shape, int64_t bound, uint64_t seed = 1) {
  Tensor x = *Tensor::make(dtype, shape);
  std::mt19937_64 random(seed);
  with_type(dtype, TypeList<int16_t, int32_t, int64_t>{}, [&]<class I>() {
    for (int64_t i = 0; i < x.elements(); ++i)
      x.mutable_data<I>()[i] = static_cast<I>(random() % static_cast<uint64_t>(std::max<int64_t>(bound, 1)));
  });
  return x;
}

/// Of one size each, and those that have no arithmetic.
const DType kTypes[] = {DType::kBool,  DType::kInt8,     DType::kFloat16, DType::kFloat32,   DType::kComplex64,
                        DType::kInt64, DType::kBFloat16, DType::kFloat64, DType::kComplex128};

Tensor any_values(DType dtype, const Shape& shape, uint64_t seed) {
  if (!is_complex(dtype)) return random_values(dtype, shape, seed);
  Tensor x = *Tensor::make(dtype, shape);
  with_type(dtype, ComplexTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < x.elements(); ++i)
      x.mutable_data<T>()[i] = {static_cast<Real<T>>(i), static_cast<Real<T>>(-i)};
  });
  return x;
}

TEST_CASE("Gathers on GPUs agree with those of CPUs") {
  Parity parity;
  struct Case {
    Shape x, indices;
    int32_t axis;
    int64_t batch = 0;
  };
  const Case cases[] = {{Shape{7}, Shape{}, 0},
                        {Shape{7}, Shape{300}, 0},
                        {Shape{7, 16}, Shape{5}, 0},
                        {Shape{7, 3}, Shape{2, 5}, 0},
                        {Shape{7, 3}, Shape{2, 2}, -1},
                        {Shape{3, 7, 5, 4}, Shape{6}, 1},
                        {Shape{3, 7, 5}, Shape{3, 4}, 1, 1},
                        {Shape{3, 2, 7, 5}, Shape{3, 4}, 2, 1},
                        {Shape{3, 2, 7}, Shape{3, 2, 4, 1}, -1, -2},
                        {Shape{7, 0}, Shape{5}, 0},
                        {Shape{7, 2}, Shape{0}, 0},
                        {Shape{3, 7}, Shape{2, 4}, 1, 1},  // errors
                        {Shape{}, Shape{2}, 0},
                        {Shape{3, 7}, Shape{2}, 2}};
  for (DType index : {DType::kInt16, DType::kInt32, DType::kInt64})
    for (DType dtype : kTypes)
      for (const Case& c : cases) {
        const int axis = c.axis < 0 ? c.axis + c.x.rank() : c.axis;
        const Tensor x = any_values(dtype, c.x, 2),
                     indices = places(index, c.indices, axis < c.x.rank() ? c.x[axis] : 1);
        parity.check({"GatherV2", {x, indices, Tensor::scalar<int32_t>(c.axis)}, {{"batch_dims", c.batch}}});
        if (index != DType::kInt16 && axis == 0) parity.check({"Gather", {x, indices}});
      }
}

TEST_CASE("Slices by rows of indices on GPUs are those of CPUs") {
  Parity parity;
  const std::tuple<Shape, Shape> cases[] = {
      {Shape{7}, Shape{5, 1}},          {Shape{3, 4, 16}, Shape{5, 2}}, {Shape{3, 4, 5}, Shape{2, 2, 3}},
      {Shape{3, 4, 5}, Shape{2, 2, 0}}, {Shape{3, 4, 5}, Shape{1}},     {Shape{3, 0}, Shape{5, 1}},
      {Shape{3, 4}, Shape{5, 3}},       {Shape{3, 4}, Shape{}},  // errors
  };
  for (DType index : {DType::kInt16, DType::kInt32, DType::kInt64})
    for (DType dtype : kTypes)
      for (const auto& [x, indices] : cases)
        parity.check({"GatherNd", {any_values(dtype, x, 3), places(index, indices, 3)}});
}

TEST_CASE("Indices that are out of range read zeros on GPUs") {
  Parity parity;
  const Tensor x = Tensor::of<float>({1, 2, 3, 4, 5, 6}, Shape{3, 2});
  const auto rows = parity.run(
      DeviceKind::kCuda,
      {"GatherV2", {x, Tensor::of<int32_t>({2, -1, 3, INT32_MIN, INT32_MAX, 0}), Tensor::scalar<int32_t>(0)}});
  REQUIRE(rows.ok());
  CHECK((*rows)[0].identical(Tensor::of<float>({5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2}, Shape{6, 2})));
  const auto elements =
      parity.run(DeviceKind::kCuda,
                 {"GatherNd", {x, Tensor::of<int64_t>({2, 1, 0, 2, -1, 3, INT64_MAX, INT64_MAX}, Shape{4, 2})}});
  REQUIRE(elements.ok());
  CHECK((*elements)[0].identical(Tensor::of<float>({6, 0, 0, 0})));
}

TEST_CASE("Parts of variables that GPUs read are those that CPUs read") {
  KernelRegistry gpu_kernels;
  register_tested_kernels(gpu_kernels);
  const std::string name = "table";
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt64, DType::kInt8, DType::kBool}) {
    Variables cpu(op_library()->kernels, DeviceKind::kCpu), gpu(gpu_kernels, DeviceKind::kCuda);
    const Tensor value = random_values(dtype, Shape{6, 4, 3}, 5);
    cpu.assign(name, value);
    gpu.assign(name, value);
    const auto check = [&](const char* op, const Tensor& indices, int64_t batch = 0) {
      const Attrs attrs = {{"batch_dims", batch}, {"dtype", dtype}, {"Tindices", indices.dtype()}};
      const auto expected = cpu.run(op, attrs, {&name, 1}, dtype, {&indices, 1});
      const auto actual = gpu.run(op, attrs, {&name, 1}, dtype, {&indices, 1});
      INFO(op << " " << to_string(dtype) << " by " << indices.shape().str() << " "
              << (expected.ok() ? "" : expected.error().message));
      REQUIRE(actual.ok() == expected.ok());
      if (!actual.ok()) {
        CHECK(actual.error().message == expected.error().message);
        return;
      }
      CHECK((*actual)[0].identical((*expected)[0]));
      CHECK_FALSE(gpu.at_host(name, dtype));
      CHECK(gpu::fake::take_faults().empty());
    };
    for (DType index : {DType::kInt32, DType::kInt64}) {
      check("ResourceGather", places(index, Shape{9}, 6));
      check("ResourceGather", places(index, Shape{2, 2}, 6));
      check("ResourceGather", places(index, Shape{}, 6));
      check("ResourceGather", places(index, Shape{0}, 6));
      check("ResourceGather", places(index, Shape{6, 2}, 4), 1);
      check("ResourceGather", places(index, Shape{5, 2}, 4), 1);  // errors
      check("ResourceGather", places(index, Shape{5, 2}, 4), 3);
      check("ResourceGatherNd", places(index, Shape{9, 1}, 6));
      check("ResourceGatherNd", places(index, Shape{2, 5, 2}, 4));
      check("ResourceGatherNd", places(index, Shape{2, 3}, 3));
      check("ResourceGatherNd", places(index, Shape{2, 4}, 3));  // errors
      check("ResourceGatherNd", places(index, Shape{}, 3));
    }
  }
  Variables empty(gpu_kernels, DeviceKind::kCuda);
  const Tensor indices = places(DType::kInt32, Shape{2}, 2);
  CHECK(empty
            .run("ResourceGather", {{"dtype", DType::kFloat32}, {"Tindices", DType::kInt32}}, {&name, 1},
                 DType::kFloat32, {&indices, 1})
            .error()
            .code == Code::kFailedPrecondition);
}

}  // namespace
}  // namespace troupe::testing
