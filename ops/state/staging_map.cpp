// SPDX-License-Identifier: Apache-2.0
// Staging maps: _StagingMap makes the handle; _StagingMapPut, _StagingMapTake, _StagingMapTakeAny, _StagingMapPeek,
// _StagingMapSize, _StagingMapIncompleteSize and _StagingMapClear run at its host. What MapStage, MapUnstage and the
// others of TensorFlow become (graph/graph_def/named_resources.h).
#include "queues/staging_map.h"
#include "ops/parts/resource_kernel.h"
#include "ops/state/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

Result<std::unique_ptr<ComputeKernel>> make_staging_map(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "staging_map");
  const StagingMapOptions options{handle.name, init.attr<int64_t>("capacity"), init.attr<int64_t>("memory_limit")};
  TROUPE_RETURN_IF_ERROR(StagingMap::make(options));  // wrong options show at the node
  handle.signature = signature_of(init);
  handle.input = true;
  handle.factory = [options] { return StagingMap::make(options); };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

Result<int64_t> key_of(const Tensor& t) {
  if (t.dtype() != DType::kInt64 || t.elements() != 1)
    return invalid_argument("key must be an int64 scalar, got {}", t.str());
  return t.data<int64_t>()[0];
}

Result<StagingMap::Indices> component_indices(const Tensor& t) {
  if (t.dtype() != DType::kInt32 || t.shape().rank() != 1)
    return invalid_argument("indices must be an int32 vector, got {}", t.str());
  const auto values = t.values<int32_t>();
  return StagingMap::Indices(values.begin(), values.end());
}

class MapKernel : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) final {
    auto* map = core_as<StagingMap>(resource, request, "staging map");
    if (!map) return;
    if (Status status = run(*map, request); !status.ok()) request.reply(std::move(status.error()));
  }

 private:
  /// Its error is the reply.
  virtual Status run(StagingMap& map, ResourceRequest& request) = 0;
};

class MapPutKernel final : public MapKernel {
 public:
  explicit MapPutKernel(const KernelInit& init) : dtypes_(init.attr<std::vector<DType>>("dtypes")) {}

 private:
  Status run(StagingMap& map, ResourceRequest& request) override {
    TROUPE_ASSIGN(const int64_t key, key_of(request.inputs[1]));
    TROUPE_ASSIGN(const StagingMap::Indices indices, component_indices(request.inputs[2]));
    request.inputs.erase(request.inputs.begin(), request.inputs.begin() + 3);
    map.put(key, indices, dtypes_, std::move(request.inputs), std::move(request.reply));
    return {};
  }
  const std::vector<DType> dtypes_;
};

enum class Taking { kKey, kAny, kPeek };

template <Taking how> class MapTakeKernel final : public MapKernel {
 public:
  explicit MapTakeKernel(const KernelInit& init) : dtypes_(init.attr<std::vector<DType>>("dtypes")) {}

 private:
  Status run(StagingMap& map, ResourceRequest& request) override {
    TROUPE_ASSIGN(StagingMap::Indices indices, component_indices(request.inputs[how == Taking::kAny ? 1 : 2]));
    std::optional<int64_t> key;
    if constexpr (how != Taking::kAny) {
      TROUPE_ASSIGN(key, key_of(request.inputs[1]));
    }
    if constexpr (how == Taking::kPeek) map.peek(*key, std::move(indices), dtypes_, std::move(request.reply));
    else map.take(key, std::move(indices), dtypes_, std::move(request.reply));
    return {};
  }
  const std::vector<DType> dtypes_;
};

template <bool incomplete> class MapSizeKernel final : public MapKernel {
  Status run(StagingMap& map, ResourceRequest& request) override {
    request.reply(one_output(Tensor::scalar(static_cast<int32_t>(incomplete ? map.incomplete_size() : map.size()))));
    return {};
  }
};

class MapClearKernel final : public MapKernel {
  Status run(StagingMap& map, ResourceRequest& request) override {
    map.clear();
    request.reply(std::vector<Tensor>());
    return {};
  }
};

}  // namespace

void register_staging_map_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const char *no_value = "it has no output", *taken = "elements come from the map; what was put in is not traced",
             *count = "a count does not depend on values";
  ops.add(OpDef("_StagingMap")
              .output("handle: resource")
              .attr("capacity: int = 0")
              .attr("memory_limit: int = 0")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .doc("A handle to a staging map, which holds elements by their keys, `capacity` whole ones and "
                   "`memory_limit` bytes at most (0: no bound). Nodes of the same `shared_name` (the node's name when "
                   "empty) and `container` share one.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number"));
  kernels.add("_StagingMap", cpu, {}, make_staging_map);
  const auto on_map = [](const char* name) { return OpDef(name).input("handle: resource").stateful(); };
  ops.add(on_map("_StagingMapPut")
              .input("key: int64")
              .input("indices: int32")
              .input("values: fake_dtypes")
              .attr("dtypes: list(type) >= 1")
              .attr("fake_dtypes: list(type) >= 1")
              .doc("Adds the components `indices` of the element `key`, whose components are `dtypes`; waits for room. "
                   "Others see an element once it has all of them. Errors: indices that do not ascend or are not "
                   "there; other types; a component, or an element, that is there already; values that alone are more "
                   "than the map may hold. MapStage and OrderedMapStage of TensorFlow become it.")
              .shape(no_outputs),
          not_differentiable(no_value));
  kernels.add<MapPutKernel>("_StagingMapPut", cpu, {});
  const auto shape = [](ShapeContext& c) -> Status {
    TROUPE_RETURN_IF_ERROR(c.with_rank(c.num_inputs() - 1, 1));
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape());
    return {};
  };
  ops.add(on_map("_StagingMapTake")
              .input("key: int64")
              .input("indices: int32")
              .output("values: dtypes")
              .attr("dtypes: list(type) >= 1")
              .doc("Takes the components `indices` of the element `key`; waits for it. With its last component the "
                   "element goes. Errors: as those of _StagingMapPut; a component that was taken. MapUnstage and "
                   "OrderedMapUnstage of TensorFlow become it.")
              .shape(shape),
          not_differentiable(taken));
  kernels.add<MapTakeKernel<Taking::kKey>>("_StagingMapTake", cpu, {});
  ops.add(on_map("_StagingMapTakeAny")
              .input("indices: int32")
              .output("key: int64")
              .output("values: dtypes")
              .attr("dtypes: list(type) >= 1")
              .doc("The same of the element with the least key; waits for one. MapUnstageNoKey and "
                   "OrderedMapUnstageNoKey of TensorFlow become it.")
              .shape([shape](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(shape(c));
                c.set_output(0, PartialShape::scalar());
                return {};
              }),
          not_differentiable(taken));
  kernels.add<MapTakeKernel<Taking::kAny>>("_StagingMapTakeAny", cpu, {});
  ops.add(
      on_map("_StagingMapPeek")
          .input("key: int64")
          .input("indices: int32")
          .output("values: dtypes")
          .attr("dtypes: list(type) >= 1")
          .doc("The components `indices` of the element `key`, which stay; waits for it. MapPeek and OrderedMapPeek "
               "of TensorFlow become it.")
          .shape(shape),
      not_differentiable(taken));
  kernels.add<MapTakeKernel<Taking::kPeek>>("_StagingMapPeek", cpu, {});
  ops.add(on_map("_StagingMapSize")
              .output("size: int32")
              .doc("How many whole elements the map holds. MapSize and OrderedMapSize of TensorFlow become it.")
              .shape(scalar_shape),
          not_differentiable(count));
  kernels.add<MapSizeKernel<false>>("_StagingMapSize", cpu, {});
  ops.add(on_map("_StagingMapIncompleteSize")
              .output("size: int32")
              .doc("How many elements have some of their components. MapIncompleteSize and OrderedMapIncompleteSize of "
                   "TensorFlow become it.")
              .shape(scalar_shape),
          not_differentiable(count));
  kernels.add<MapSizeKernel<true>>("_StagingMapIncompleteSize", cpu, {});
  ops.add(on_map("_StagingMapClear")
              .doc("Drops all elements, whole or not. MapClear and OrderedMapClear of TensorFlow become it.")
              .shape(no_outputs),
          not_differentiable(no_value));
  kernels.add<MapClearKernel>("_StagingMapClear", cpu, {});
}

}  // namespace troupe
