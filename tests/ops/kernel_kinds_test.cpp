// SPDX-License-Identifier: Apache-2.0
// Walks the registry: the registration of every kernel tells of what kind it is, and tells the truth.
#include <set>

#include "tests/ops/evaluate.h"

namespace troupe::testing {
namespace {

/// A value for an attribute without a default.
AttrValue any_value(const AttrDef& attr) {
  const auto count = static_cast<size_t>(attr.minimum.value_or(0));
  const DType dtype = attr.allowed_types.empty() ? DType::kFloat32 : attr.allowed_types[0];
  if (attr.type == "int") return attr.minimum.value_or(1);
  if (attr.type == "float") return 1.f;
  if (attr.type == "bool") return false;
  if (attr.type == "string") return attr.allowed_values.empty() ? std::string() : attr.allowed_values[0];
  if (attr.type == "type") return dtype;
  if (attr.type == "shape") return PartialShape(Shape{});
  if (attr.type == "tensor") return Tensor::scalar(1.f);
  if (attr.type == "list(int)") return std::vector<int64_t>(std::max<size_t>(count, 4), 1);
  if (attr.type == "list(float)") return std::vector<float>(count, 1.f);
  if (attr.type == "list(bool)") return std::vector<bool>(count, false);
  if (attr.type == "list(string)") return std::vector<std::string>(count);
  if (attr.type == "list(type)") return std::vector<DType>(count, dtype);
  return std::vector<PartialShape>(count, PartialShape(Shape{}));
}

/// The attributes of a node that a kernel of these types serves.
Attrs attrs_for(const OpDef& op, const KernelRegistry::Types& types) {
  Attrs attrs;
  for (const AttrDef& attr : op.attrs()) {
    const auto served = types.find(attr.name);
    if (served != types.end() && attr.type == "type") attrs.set(attr.name, served->second.front());
    else attrs.set(attr.name, attr.default_value ? *attr.default_value : any_value(attr));
  }
  return attrs;
}

std::vector<DType> dtypes_of(const std::vector<ArgDef>& args, const Attrs& attrs) {
  std::vector<DType> out;
  for (const ArgDef& arg : args) {
    if (!arg.type_list_attr.empty()) {
      const auto& list = attrs.at<std::vector<DType>>(arg.type_list_attr);
      out.insert(out.end(), list.begin(), list.end());
      continue;
    }
    const auto count = arg.number_attr.empty() ? 1 : attrs.at<int64_t>(arg.number_attr);
    const DType dtype = arg.type_attr.empty() ? arg.dtype : attrs.at<DType>(arg.type_attr);
    out.insert(out.end(), static_cast<size_t>(count), dtype);
  }
  return out;
}

/// The kernel of a node of these attributes with inputs of unknown shape.
Result<std::unique_ptr<Kernel>> make(const OpDef& op, DeviceKind device, const Attrs& attrs) {
  KernelInit init{op.name(), "node", &attrs, dtypes_of(op.inputs(), attrs), dtypes_of(op.outputs(), attrs), {}, {}};
  init.input_shapes.resize(init.input_dtypes.size());
  init.constants.resize(init.input_dtypes.size());
  return op_library()->kernels.make(init, device);
}

}  // namespace

TEST_CASE("the kind of every kernel is known without making it, and is that of the kernel made") {
  const KernelRegistry& kernels = op_library()->kernels;
  int made = 0;
  std::set<std::string> refused;
  for (const auto& [name, op] : op_library()->ops.all()) {
    for (const auto& [device, types] : kernels.kernels(name)) {
      const Attrs attrs = attrs_for(*op, types);
      INFO(name << " of " << types.size() << " types");
      const auto kind = kernels.kind(name, device, attrs);
      REQUIRE(kind.ok());
      CHECK(*kind != KernelKind::kUnknown);
      const auto kernel = make(*op, device, attrs);
      if (!kernel.ok()) {
        refused.insert(name);
        continue;
      }
      CHECK(to_string(kind_of(**kernel)) == std::string(to_string(*kind)));
      ++made;
    }
  }
  // These need attributes that fit one another; their own tests make them.
  std::string list;
  for (const std::string& name : refused) list += name + " ";
  INFO(list);
  CHECK(made > 1500);
  CHECK(refused.size() < 20);
}

TEST_CASE("a kernel's kind follows from attributes where these decide what may wait") {
  const auto& [ops, kernels] = *op_library();
  for (const auto& [op, attr, file] : {std::tuple("PrintV2", "output_stream", "file:///tmp/x"),
                                       {"FixedUnigramCandidateSampler", "vocab_file", "words"}}) {
    Attrs attrs = attrs_for(*ops.find(op), {});
    if (op == std::string("FixedUnigramCandidateSampler")) attrs.set("unigrams", std::vector<float>{1.f});
    for (const KernelKind kind : {KernelKind::kCompute, KernelKind::kBlocking}) {
      INFO(op);
      CHECK(*kernels.kind(op, DeviceKind::kCpu, attrs) == kind);
      const auto kernel = make(*ops.find(op), DeviceKind::kCpu, attrs);
      REQUIRE(kernel.ok());
      CHECK(kind_of(**kernel) == kind);
      attrs.set(attr, std::string(file));
    }
  }
}

}  // namespace troupe::testing
