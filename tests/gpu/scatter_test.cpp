// SPDX-License-Identifier: Apache-2.0
// Updates that GPUs scatter over the rows of tensors and variables, and sums by segment, are those of CPUs bit for bit,
// since each element meets them in the same order; indices that are out of range are passed over.
#include "tests/gpu/parity_cases.h"
#include "tests/gpu/variables.h"

namespace troupe::testing {
namespace {

/// Numbers in [low, bound), many of them several times.
Tensor indices_to(DType dtype, const Shape& shape, int64_t bound, uint64_t seed, int64_t low = 0) {
  Tensor x = *Tensor::make(dtype, shape);
  std::mt19937_64 random(seed);
  with_type(dtype, TypeList<int16_t, int32_t, int64_t>{}, [&]<class I>() {
    for (int64_t i = 0; i < x.elements(); ++i)
      x.mutable_data<I>()[i] = static_cast<I>(
          random() % 4 ? low + static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(bound - low, 1)))
                       : low);
  });
  return x;
}

struct Case {
  Shape table, indices, updates;
};
const Case kCases[] = {
    {Shape{7}, Shape{50, 1}, Shape{50}},         {Shape{7, 33}, Shape{100, 1}, Shape{100, 33}},
    {Shape{100, 70}, Shape{9, 1}, Shape{9, 70}}, {Shape{3, 4, 5}, Shape{6, 7, 2}, Shape{6, 7, 5}},
    {Shape{3, 4}, Shape{40, 2}, Shape{40}},      {Shape{3, 4}, Shape{2, 0}, Shape{2, 3, 4}},
    {Shape{3, 4}, Shape{0, 1}, Shape{0, 4}},     {Shape{3, 0}, Shape{5, 1}, Shape{5, 0}},
    {Shape{3, 4}, Shape{5, 1}, Shape{5, 3}},  // errors
    {Shape{3, 4}, Shape{5, 3}, Shape{5}},
};

TEST_CASE("Scatters on GPUs agree with those of CPUs") {
  Parity parity;
  const auto least = [](const Shape& s) { return s.rank() > 1 ? std::min(s[0], s[1] > 0 ? s[1] : s[0]) : s[0]; };
  for (const char* op : {"TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMin",
                         "TensorScatterMax", "ScatterNdNonAliasingAdd"})
    for (DType dtype : gpu_types(parity, op))
      for (const Case& c : kCases)
        for (DType index : IndexTypes::dtypes()) {
          if (is_complex(dtype)) continue;  // moves as numbers do
          const Tensor indices = indices_to(index, c.indices, least(c.table), 1);
          parity.check({op, {random_values(dtype, c.table, 2), indices, random_values(dtype, c.updates, 3)}});
        }
  for (DType dtype : gpu_types(parity, "ScatterNd"))
    for (const Case& c : kCases)
      for (DType index : {DType::kInt16, DType::kInt32, DType::kInt64}) {
        Tensor sizes = *Tensor::make(index, Shape{c.table.rank()});
        with_type(index, TypeList<int16_t, int32_t, int64_t>{}, [&]<class I>() {
          for (int d = 0; d < c.table.rank(); ++d) sizes.mutable_data<I>()[d] = static_cast<I>(c.table[d]);
        });
        const Tensor indices = indices_to(index, c.indices, least(c.table), 1);
        parity.check({"ScatterNd", {indices, random_values(dtype, c.updates, 3), sizes}});
      }
  // A tensor scattered over itself.
  const Tensor x = Tensor::of<int32_t>({2, 0, 1}), rows = Tensor::of<int32_t>({2, 0, 1}, Shape{3, 1});
  parity.check({"TensorScatterUpdate", {x, rows, x}});
}

TEST_CASE("Sums by segment on GPUs agree with those of CPUs") {
  Parity parity;
  const std::tuple<Shape, Shape, int32_t> cases[] = {
      {Shape{100}, Shape{100}, 7},       {Shape{100, 33}, Shape{100}, 7}, {Shape{9, 70}, Shape{9}, 100},
      {Shape{6, 7, 5}, Shape{6, 7}, 11}, {Shape{}, Shape{}, 3},           {Shape{0, 4}, Shape{0}, 3},
      {Shape{5, 0}, Shape{5}, 3},        {Shape{5, 3}, Shape{4}, 3},  // errors
      {Shape{5, 3}, Shape{5, 2}, 3},     {Shape{0, 3}, Shape{0}, -1},
  };
  for (DType dtype : gpu_types(parity, "UnsortedSegmentSum"))
    for (const auto& [data, ids, segments] : cases)
      for (DType index : {DType::kInt16, DType::kInt32, DType::kInt64})
        parity.check(
            {"UnsortedSegmentSum",
             {random_values(dtype, data, 4), indices_to(index, ids, segments, 5, -1), Tensor::scalar(segments)}});
  const auto beyond = parity.run(
      DeviceKind::kCuda, {"UnsortedSegmentSum",
                          {Tensor::of<float>({1, 2, 3}), Tensor::of<int32_t>({2, 0, 5}), Tensor::scalar<int32_t>(2)}});
  REQUIRE(beyond.ok());
  CHECK((*beyond)[0].identical(Tensor::of<float>({2, 0})));
}

TEST_CASE("Scatters over variables in a GPU's memory agree with those of CPUs") {
  KernelRegistry gpu_kernels;
  register_tested_kernels(gpu_kernels);
  const std::string name = "table";
  int tried = 0;
  for (const char* how :
       {"Update", "Add", "Sub", "Mul", "Div", "Min", "Max", "NdUpdate", "NdAdd", "NdSub", "NdMin", "NdMax"})
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32,
                        DType::kInt64, DType::kInt8, DType::kBool}) {
      const std::string op = std::string("ResourceScatter") + how;
      const bool nd = op.find("Nd") != std::string::npos;
      Attrs attrs = {{nd ? "T" : "dtype", dtype}, {"Tindices", DType::kInt32}};
      if (!gpu_kernels.serves(op, DeviceKind::kCuda, attrs)) continue;
      ++tried;
      Variables cpu(op_library()->kernels, DeviceKind::kCpu), gpu(gpu_kernels, DeviceKind::kCuda);
      const Tensor value = random_values(dtype, Shape{7, 5, 3}, 6);
      cpu.assign(name, value);
      gpu.assign(name, value);
      const auto check = [&](const Tensor& indices, const Tensor& updates) {
        INFO(op << " " << to_string(dtype) << " by " << indices.shape().str());
        attrs.set("Tindices", indices.dtype());
        const std::vector<Tensor> rest = {indices, updates};
        const Status expected = cpu.update(op, attrs, {&name, 1}, dtype, rest);
        const Status actual = gpu.update(op, attrs, {&name, 1}, dtype, rest);
        REQUIRE(actual.ok() == expected.ok());
        if (!actual.ok()) CHECK(actual.error().message == expected.error().message);
        check_near(gpu.value(name, dtype), cpu.value(name, dtype), op);
        CHECK_FALSE(gpu.at_host(name, dtype));
        CHECK(gpu::fake::take_faults().empty());
      };
      for (DType index : IndexTypes::dtypes()) {
        const Shape many = nd ? Shape{40, 1} : Shape{40}, few = nd ? Shape{2, 2} : Shape{2, 2};
        check(indices_to(index, many, 7, 7), random_values(dtype, Shape{40, 5, 3}, 8));
        cpu.share(), gpu.share();
        check(indices_to(index, few, 5, 7), random_values(dtype, nd ? Shape{2, 3} : Shape{2, 2, 5, 3}, 9));
        cpu.let_go(), gpu.let_go();
        if (!nd)
          check(indices_to(index, many, 7, 10), filled(dtype == DType::kBool ? DType::kInt8 : dtype, {}, 1, 1, 3));
        check(indices_to(index, many, 7, 7), random_values(dtype, Shape{40, 5}, 8));  // errors
        check(indices_to(index, Shape{}, 7, 7), random_values(dtype, Shape{4}, 8));
      }
      const Tensor before = gpu.value(name, dtype), beyond = Tensor::of<int32_t>({-1, 7}, nd ? Shape{2, 1} : Shape{2});
      attrs.set("Tindices", DType::kInt32);
      const std::vector<Tensor> rest = {beyond, random_values(dtype, Shape{2, 5, 3}, 11)};
      CHECK(gpu.update(op, attrs, {&name, 1}, dtype, rest).ok());
      CHECK(gpu.value(name, dtype).identical(before));
    }
  CHECK(tried == 2 * 8 + 5 * 6 + 4 + 4 * 6);
}

}  // namespace
}  // namespace troupe::testing
