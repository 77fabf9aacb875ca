// SPDX-License-Identifier: Apache-2.0
// Updates of rows of variables on GPUs agree with the CPU's, every rule and type, rows that come several times among
// them, in place and with the variables shared; what cannot be is the CPU's error and changes nothing.
#include "tests/gpu/variables.h"

namespace troupe::testing {
namespace {

struct Rows {
  Shape shape;    // of the variables
  int64_t count;  // of indices
  DType dtype;    // of indices
};

Tensor some_rows(const Rows& rows, uint64_t seed) {
  Tensor x = *Tensor::make(rows.dtype, Shape{rows.count});
  std::mt19937_64 random(seed);
  with_type(rows.dtype, IndexTypes{}, [&]<class I>() {
    for (int64_t i = 0; i < rows.count; ++i)
      x.mutable_data<I>()[i] = static_cast<I>(random() % 3 ? random() % static_cast<uint64_t>(rows.shape[0]) : 1);
  });
  return x;
}

/// The op for a type on both devices, a few times, with the values shared before the last.
void check_rows(const OpLibrary& library, const KernelRegistry& gpu_kernels, const OpDef& op, DType dtype,
                const Rows& rows, bool flag) {
  Variables cpu(library.kernels, DeviceKind::kCpu), gpu(gpu_kernels, DeviceKind::kCuda);
  Attrs attrs;
  for (const AttrDef& a : op.attrs()) {
    if (a.type == "type") attrs.set(a.name, a.name == "T" ? dtype : rows.dtype);
    else attrs.set(a.name, a.type == "bool" ? AttrValue(flag) : *a.default_value);
  }
  Shape of_gradient = rows.shape;
  of_gradient.set(0, rows.count);
  std::vector<std::string> variables;
  std::vector<Tensor> rest;
  size_t gradient = 0;
  uint64_t seed = 1;
  for (const ArgDef& input : op.inputs()) {
    if (input.dtype == DType::kResource) {
      variables.push_back(input.name);
      const Tensor value =
          filled(dtype, rows.shape, ++seed, variables.size() > 1 ? 0.1 : -2, input.name == "mg" ? 0.3 : 2);
      cpu.assign(input.name, value);
      gpu.assign(input.name, value);
    } else if (input.name == "grad") {
      gradient = rest.size();
      rest.push_back(filled(dtype, of_gradient, ++seed, -1, 1));
    } else if (input.name == "indices") {
      rest.push_back(some_rows(rows, ++seed));
    } else if (input.dtype == DType::kInt64) {
      rest.push_back(Tensor::scalar(int64_t{3}));
    } else {
      const bool power = input.name == "lr_power";
      rest.push_back(filled(dtype, Shape{}, ++seed, power ? -0.6 : 0.1, power ? -0.4 : 0.9));
    }
  }
  const std::string what = fmt::format("{} {}{} {}", op.name(), to_string(dtype), rows.shape.str(), flag);
  INFO(what);
  for (int i = 0; i < 3; ++i) {
    if (i == 2) cpu.share(), gpu.share();
    for (Variables* device : {&cpu, &gpu}) {
      const Status status = device->update(op.name(), attrs, variables, dtype, rest);
      INFO((status.ok() ? "" : status.error().str()));
      REQUIRE(status.ok());
    }
    for (const std::string& name : variables) {
      CHECK_FALSE(gpu.at_host(name, dtype));
      check_near(gpu.value(name, dtype), cpu.value(name, dtype), what + " " + name);
    }
  }
  gpu.let_go();
  cpu.let_go();
  CHECK(gpu::fake::take_faults().empty());
  // A gradient without a row for each index changes nothing.
  const Tensor before = gpu.value(variables[0], dtype);
  std::vector<Tensor> wrong = rest;
  wrong[gradient] = filled(dtype, Shape{rows.count + 1, 2}, 7, 0, 1);
  const Status on_gpu = gpu.update(op.name(), attrs, variables, dtype, wrong),
               on_cpu = cpu.update(op.name(), attrs, variables, dtype, wrong);
  CHECK(on_gpu.error().message == on_cpu.error().message);
  CHECK(gpu.value(variables[0], dtype).identical(before));
  // Indices that are out of range are passed over.
  wrong = rest;
  with_type(rows.dtype, IndexTypes{}, [&]<class I>() {
    I* at = wrong[gradient + 1].mutable_data<I>();
    for (int64_t i = 0; i < rows.count; ++i) at[i] = static_cast<I>(i % 2 ? -1 - i : rows.shape[0] + i);
  });
  CHECK(gpu.update(op.name(), attrs, variables, dtype, wrong).ok());
  CHECK(gpu.value(variables[0], dtype).identical(before));
}

TEST_CASE("Updates of rows of variables on GPUs agree with those of CPUs") {
  const OpLibrary& library = *op_library();
  KernelRegistry gpu_kernels;
  register_tested_kernels(gpu_kernels);
  int ops = 0;
  for (const auto& [name, op] : library.ops.all()) {
    if (!name.starts_with("ResourceSparseApply")) continue;
    ++ops;
    for (DType dtype : FloatTypes::dtypes()) {
      check_rows(library, gpu_kernels, *op, dtype, {Shape{5, 67}, 40, DType::kInt32}, false);
      check_rows(library, gpu_kernels, *op, dtype, {Shape{40, 3, 2}, 9, DType::kInt64}, true);
      check_rows(library, gpu_kernels, *op, dtype, {Shape{3}, 70, DType::kInt64}, true);
      check_rows(library, gpu_kernels, *op, dtype, {Shape{3, 2}, 0, DType::kInt32}, false);
    }
  }
  CHECK(ops == 12);
}

}  // namespace
}  // namespace troupe::testing
