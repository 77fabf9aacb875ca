// SPDX-License-Identifier: Apache-2.0
// Sparse tensors kept outside of graphs, by number, so that queues can carry them: _SparseTensorsMap makes the handle;
// _SparseTensorsMapInsert and _SparseTensorsMapTake run at its host. What AddSparseToTensorsMap,
// AddManySparseToTensorsMap and TakeManySparseFromTensorsMap become (graph/graph_def/named_resources.h).
#include <map>
#include <set>

#include "ops/parts/resource_kernel.h"
#include "ops/parts/type_dispatch.h"
#include "ops/sparse/input.h"
#include "ops/sparse/register.h"
#include "troupe/graph.h"
#include "troupe/tensor_list.h"

namespace troupe {
namespace {

/// A passive core (see Resource).
class SparseTensorsMap final : public Resource {
 public:
  explicit SparseTensorsMap(std::string name) : name_(std::move(name)) {}

  /// Keeps sparse tensors [...,3]; their numbers have the shape [...].
  Result<Tensor> insert(const Tensor& serialized) {
    if (serialized.dtype() != DType::kVariant || serialized.rank() == 0 || serialized.dim(-1) != kSerializedParts)
      return invalid_argument("what is inserted must be variants [...,3], not {}{}", to_string(serialized.dtype()),
                              serialized.shape().str());
    const Shape batch(serialized.shape().dims().first(static_cast<size_t>(serialized.rank() - 1)));
    TROUPE_ASSIGN(Tensor numbers, Tensor::make(DType::kInt64, batch));
    const TensorListRef* parts = serialized.data<TensorListRef>();
    for (int64_t i = 0; i < batch.elements(); ++i, parts += kSerializedParts) {
      kept_.emplace(next_, std::array{parts[0], parts[1], parts[2]});
      numbers.mutable_data<int64_t>()[i] = next_++;
    }
    return numbers;
  }

  /// Gives those of these numbers [n] and forgets them: all, or on an error none.
  Result<Tensor> take(const Tensor& numbers) {
    if (numbers.rank() != 1) return invalid_argument("sparse_handles must be a vector, not {}", numbers.shape().str());
    std::set<int64_t> wanted;
    for (const int64_t number : numbers.values<int64_t>())
      if (!kept_.contains(number) || !wanted.insert(number).second)
        return make_error(Code::kNotFound, "no sparse tensor of '{}' has the handle {}{}", name_, number,
                          wanted.contains(number) ? " a second time" : "");
    TROUPE_ASSIGN(Tensor out, Tensor::make(DType::kVariant, Shape{numbers.elements(), kSerializedParts}));
    TensorListRef* at = out.mutable_data<TensorListRef>();
    for (const int64_t number : numbers.values<int64_t>())
      at = std::ranges::move(kept_.extract(number).mapped(), at).out;
    return out;
  }

 private:
  const std::string name_;
  std::map<int64_t, std::array<TensorListRef, kSerializedParts>> kept_;
  int64_t next_ = 0;
};

Result<std::unique_ptr<ComputeKernel>> make_map(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "sparse_tensors_map");
  handle.factory = [name = handle.name]() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(std::make_unique<SparseTensorsMap>(name));
  };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

template <Result<Tensor> (SparseTensorsMap::*use)(const Tensor&)> class Use final : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) override {
    if (auto* map = core_as<SparseTensorsMap>(resource, request, "map of sparse tensors"))
      request.reply(one_output((map->*use)(request.inputs[1])));
  }
};

Status map_insert_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape in, c.with_rank_at_least(1, 1));
  if (!in.has_rank()) return {};
  std::vector<int64_t> batch;
  for (int i = 0; i + 1 < in.rank(); ++i) batch.push_back(in[i]);
  TROUPE_ASSIGN(const PartialShape shape, PartialShape::make(batch));
  c.set_output(0, shape);
  return {};
}

Status map_take_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape handles, c.with_rank(1, 1));
  c.set_output(0, PartialShape{handles.has_rank() ? handles[0] : -1, kSerializedParts});
  return {};
}

}  // namespace

void register_sparse_map_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("_SparseTensorsMap")
              .output("handle: resource")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .doc("A handle to a map of sparse tensors. Nodes of the same `shared_name` (the node's name when empty) "
                   "and `container` share one.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number"));
  kernels.add("_SparseTensorsMap", DeviceKind::kCpu, {}, make_map);
  const Gradient none = not_differentiable("TensorFlow gives it none");
  ops.add(OpDef("_SparseTensorsMapInsert")
              .input("handle: resource")
              .input("serialized: variant")
              .output("sparse_handles: int64")
              .doc("Keeps sparse tensors that were serialized, [...,3], and gives the numbers [...] that they are kept "
                   "by. AddSparseToTensorsMap and AddManySparseToTensorsMap of TensorFlow become it and a "
                   "SerializeSparse or SerializeManySparse.")
              .shape(map_insert_shape)
              .stateful(),
          none);
  kernels.add<Use<&SparseTensorsMap::insert>>("_SparseTensorsMapInsert", DeviceKind::kCpu, {});
  ops.add(OpDef("_SparseTensorsMapTake")
              .input("handle: resource")
              .input("sparse_handles: int64")
              .output("serialized: variant")
              .doc("The sparse tensors [n,3] that are kept by these numbers [n]; they are kept no longer. Error "
                   "kNotFound where there is none; then all stay. TakeManySparseFromTensorsMap of TensorFlow becomes "
                   "it and a DeserializeSparse.")
              .shape(map_take_shape)
              .stateful(),
          none);
  kernels.add<Use<&SparseTensorsMap::take>>("_SparseTensorsMapTake", DeviceKind::kCpu, {});
}

}  // namespace troupe
