// SPDX-License-Identifier: Apache-2.0
// Updates of variables on GPUs agree with the CPU's: every rule and type, several times one after the other, in place
// and with the variables shared; what cannot be is the CPU's error and changes nothing.
#include "tests/gpu/variables.h"

namespace troupe::testing {
namespace {

/// The op for a type on both devices, a few times, with the values shared before the last.
void check_update(const OpLibrary& library, const KernelRegistry& gpu_kernels, const OpDef& op, DType dtype,
                  const Shape& shape, bool flag) {
  Variables cpu(library.kernels, DeviceKind::kCpu), gpu(gpu_kernels, DeviceKind::kCuda);
  Attrs attrs;
  for (const AttrDef& a : op.attrs()) {
    if (a.type == "type") attrs.set(a.name, dtype);
    else attrs.set(a.name, a.type == "bool" ? AttrValue(flag) : *a.default_value);
  }
  std::vector<std::string> variables;
  std::vector<Tensor> rest;
  uint64_t seed = 1;
  for (const ArgDef& input : op.inputs()) {
    if (input.dtype == DType::kResource) {
      variables.push_back(input.name);
      // The mean of gradients is no larger than the root of that of their squares.
      const Tensor value = filled(dtype, shape, ++seed, variables.size() > 1 ? 0.1 : -2, input.name == "mg" ? 0.3 : 2);
      cpu.assign(input.name, value);
      gpu.assign(input.name, value);
    } else if (input.name == "grad" || input.name == "delta" || input.name == "value") {
      rest.push_back(filled(dtype, shape, ++seed, -1, 1));
    } else if (input.dtype == DType::kInt64) {
      rest.push_back(Tensor::scalar(int64_t{3}));
    } else {
      rest.push_back(
          filled(dtype, Shape{}, ++seed, input.name == "lr_power" ? -0.6 : 0.1, input.name == "lr_power" ? -0.4 : 0.9));
    }
  }
  const std::string what = fmt::format("{} {}{} {}", op.name(), to_string(dtype), shape.str(), flag);
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
  // A gradient of another shape changes nothing.
  for (Tensor& x : rest)
    if (x.rank() > 0 || shape.rank() == 0) x = filled(dtype, Shape{3, 1, 2}, 7, 0, 1);
  const Tensor before = gpu.value(variables[0], dtype);
  CHECK(gpu.update(op.name(), attrs, variables, dtype, rest).error().code == Code::kInvalidArgument);
  CHECK(gpu.value(variables[0], dtype).identical(before));
}

}  // namespace

TEST_CASE("Updates of variables on GPUs agree with those of CPUs") {
  const OpLibrary& library = *op_library();
  KernelRegistry gpu_kernels;
  register_tested_kernels(gpu_kernels);
  int ops = 0;
  for (const auto& [name, op] : library.ops.all()) {
    const bool applies = name.starts_with("ResourceApply"),
               adds = name == "AssignAddVariableOp" || name == "AssignSubVariableOp";
    if (!applies && !adds) continue;
    ++ops;
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32,
                        DType::kInt64, DType::kInt8, DType::kUInt8, DType::kInt16}) {
      Attrs attrs;
      attrs.set(applies ? "T" : "dtype", dtype);
      if (applies && !is_floating(dtype)) continue;
      REQUIRE(gpu_kernels.serves(name, DeviceKind::kCuda, attrs));
      check_update(library, gpu_kernels, *op, dtype, Shape{5, 67}, false);
      check_update(library, gpu_kernels, *op, dtype, Shape{3}, true);
    }
  }
  CHECK(ops == 20);
}

}  // namespace troupe::testing
