// SPDX-License-Identifier: Apache-2.0
// Kernels: the code of an op for one kind of device and its types. Implemented in devices/kernel.cpp.
//
// A kernel is made once for each node of a plan and then called by many steps, one call at a time per device but
// possibly by several devices at once: it must be thread-safe in what it keeps (caches of primitives: a mutex or none).
// An exception from a kernel is an error of its node (kResourceExhausted for std::bad_alloc, else kInternal with
// what()). Of kernels that are registered by EngineOptions::register_ops, dtype and shape of each output are checked
// against what the node declares, and of GPUs' kernels whose memory it is in (KernelRegistry::HostMemory).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "troupe/attr.h"
#include "troupe/device_rates.h"
#include "troupe/export.h"
#include "troupe/resource.h"

namespace TROUPE_API troupe {

enum class DeviceKind { kCpu, kCuda, kSim };

namespace gpu {
struct Compute;  // gpu/compute.h
}

/// What a kernel may know of the device it runs on.
struct DeviceInfo {
  std::string name;  // full: "/job:localhost/replica:0/task:0/device:cpu:0"
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 1;  // helpers included; kernels split their work by devices/parallel.h
  std::shared_ptr<Allocator> allocator;
  DeviceRates rates = {};       // what it can do: of a simulated device given, else a guess until steps were measured
  gpu::Compute* gpu = nullptr;  // of a GPU: what its kernels run by
};

class DataFolders;  // io/data_folders.h

/// What a kernel is made from.
struct KernelInit {
  std::string_view op;
  std::string_view node;
  const Attrs* attrs = nullptr;  // complete: defaults filled in
  std::vector<DType> input_dtypes;
  std::vector<DType> output_dtypes;
  std::vector<PartialShape> input_shapes;  // as inferred
  std::vector<Tensor> constants;           // input i where it is a Const, else undefined
  /// Where the node may touch files; null: anywhere. Kernels of Troupe's own keep to it.
  std::shared_ptr<const DataFolders> data_folders = {};

  /// One that the op's schema has is there, with the schema's type; of others std::out_of_range.
  template <class T> const T& attr(std::string_view name) const { return attrs->at<T>(name); }
};

/// One call of a ComputeKernel: inputs, outputs, memory. A view on the executor's arrays, valid during the call.
class KernelContext {
 public:
  /// values[input_slots[i]] is input i; values[first_output + i] becomes output i; uses[slot] counts the nodes (this
  /// one included) that still want a slot.
  KernelContext(Tensor* values, const int32_t* uses, const uint32_t* input_slots, int num_inputs, uint32_t first_output,
                int num_outputs, const DeviceInfo& device, int64_t step, int64_t random_step = -1)
      : values_(values), uses_(uses), input_slots_(input_slots), num_inputs_(num_inputs), first_output_(first_output),
        num_outputs_(num_outputs), device_(device), step_(step), random_step_(random_step) {}

  int num_inputs() const { return num_inputs_; }
  int num_outputs() const { return num_outputs_; }
  /// Input i; std::out_of_range if there is none.
  const Tensor& input(int i) const {
    if (static_cast<unsigned>(i) >= static_cast<unsigned>(num_inputs_)) [[unlikely]]
      no_such("input", i, num_inputs_);
    return values_[input_slots_[i]];
  }
  /// A new, uninitialised tensor in the device's memory.
  Result<Tensor> allocate(DType dtype, const Shape& shape) const {
    return Tensor::make(dtype, shape, device_.allocator);
  }
  /// The buffer of input i reused for an output of this dtype and shape when nobody else wants it and sizes agree,
  /// else a new tensor. A reused buffer still holds the input: element-wise kernels may write it in place.
  /// std::out_of_range if there is no input i.
  Result<Tensor> forward_or_allocate(int i, DType dtype, const Shape& shape) const {
    if (static_cast<unsigned>(i) >= static_cast<unsigned>(num_inputs_)) [[unlikely]]
      no_such("input", i, num_inputs_);
    const uint32_t slot = input_slots_[i];
    Tensor& t = values_[slot];
    if (uses_[slot] == 1 && t.dtype() == dtype && t.unique() && t.shape() == shape) {
      (void)t.mutable_address();  // no longer frozen, if it was
      return t;
    }
    return allocate(dtype, shape);
  }
  /// Every output is to be set once; std::out_of_range if there is none of that number.
  void set_output(int i, Tensor value) {
    if (static_cast<unsigned>(i) >= static_cast<unsigned>(num_outputs_)) [[unlikely]]
      no_such("output", i, num_outputs_);
    values_[first_output_ + i] = std::move(value);
  }
  const DeviceInfo& device() const { return device_; }
  int threads() const { return device_.threads; }
  int64_t step() const { return step_; }
  /// What random ops draw by beside their seeds; -1: nothing (see RunOptions).
  int64_t random_step() const { return random_step_; }

 private:
  [[noreturn]] static void no_such(const char* what, int i, int count);
  Tensor* values_;
  const int32_t* uses_;
  const uint32_t* input_slots_;
  int num_inputs_;
  uint32_t first_output_;
  int num_outputs_;
  const DeviceInfo& device_;
  int64_t step_;
  int64_t random_step_;
};

/// What all kernels are: a class of a user's own derives from ComputeKernel, ResourceKernel or BlockingKernel.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Whether it depends on nothing but its op and attributes, so that nodes that agree in these may share it. A large
  /// graph of small ops then has its kernels in the cache.
  virtual bool shareable() const { return false; }
  /// Whether the executor checks what it puts out; set by the registry, see KernelRegistry::check_from_now_on.
  bool checked = false;
  /// Of a GPU's kernel that is checked: HostMemory::outputs that it is registered with; null: of others. Set by the
  /// registry.
  std::shared_ptr<const std::vector<int>> host_outputs = {};
};

/// Runs on the device: reads inputs, sets every output, returns. May not block. Errors need not name node or op: the
/// executor adds them.
class ComputeKernel : public Kernel {
 public:
  virtual Status compute(KernelContext& context) = 0;
  /// Of a node without inputs: its one output, in the host's memory, where that is the same in every step; the plan has
  /// it then, and the node never runs, nor do numeric checks look at it. nullptr: it runs.
  virtual const Tensor* constant() const { return nullptr; }
};

/// One use of a resource: the inputs of the node (input 0 is the handle) and the duty to reply.
struct ResourceRequest {
  std::vector<Tensor> inputs;
  std::shared_ptr<Allocator> allocator;  // of the asking device
  Reply reply;
  gpu::Compute* gpu = nullptr;  // of the asking device, if that is a GPU: its tensors are in the GPU's memory then
  const ResourceHandle& handle(int i = 0) const { return *inputs[i].data<ResourceRef>()[0]; }
};

/// Runs at the actor that hosts the resource of input 0. `resource` is what the handle's factory made: a kernel
/// casts it to the core its op is for, after checking (dynamic_cast) that it is one. Must reply or hand the reply on.
class ResourceKernel : public Kernel {
 public:
  virtual void execute(Resource& resource, ResourceRequest request) = 0;
  /// Whether it reads or changes the elements of the variables that it is given. If not, they are not brought to where
  /// it is from the memory of another device.
  virtual bool uses_elements() const { return true; }
  /// Whether it is an AnsweringKernel.
  bool answers_at_once() const { return answers_at_once_; }

 private:
  friend class AnsweringKernel;
  bool answers_at_once_ = false;
};

/// A ResourceKernel that never waits: the request is answered with what answer() returns, which is less work for its
/// host than a reply.
class AnsweringKernel : public ResourceKernel {
 public:
  AnsweringKernel() { answers_at_once_ = true; }
  /// The outputs of the requesting node. The request's `reply` is not to be used.
  virtual Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) = 0;
  void execute(Resource& resource, ResourceRequest request) final {
    Reply reply = std::move(request.reply);
    reply(answer(resource, request));
  }
};

/// Nodes whose work the executor does itself; kControlFlow: what their op says (OpDef::control_flow). Kernels of a
/// user's own ops may not be of these: nobody would hold them to what their nodes declare.
enum class Builtin { kConst, kNoOp, kPlaceholder, kControlFlow };
class BuiltinKernel : public Kernel {
 public:
  explicit BuiltinKernel(Builtin kind, Tensor value = {}) : kind(kind), value(std::move(value)) {}
  const Builtin kind;
  const Tensor value;  // of kConst
};

class BlockingKernel;  // troupe/blocking_kernel.h

/// How a node is carried out: by a kernel of one of three classes or, from kConst on, by the executor itself.
enum class KernelKind : uint8_t {
  kUnknown,  // only a kernel that was made can tell
  kCompute,
  kResource,
  kBlocking,
  kConst,
  kNoOp,
  kPlaceholder,
  kControlFlow,
};
const char* to_string(KernelKind kind);
/// The kind of a kernel; kUnknown if it derives from Kernel alone.
KernelKind kind_of(const Kernel& kernel);
/// The kind of all kernels of a class; kUnknown of Kernel and BuiltinKernel, whose kernels differ.
template <class K> constexpr KernelKind kind_of_class() {
  if constexpr (std::is_base_of_v<ComputeKernel, K>) return KernelKind::kCompute;
  else if constexpr (std::is_base_of_v<ResourceKernel, K>) return KernelKind::kResource;
  else if constexpr (std::is_base_of_v<BlockingKernel, K>) return KernelKind::kBlocking;
  else return KernelKind::kUnknown;
}

/// Makes a kernel of a class without constructor arguments, or with (const KernelInit&).
template <class K> Result<std::unique_ptr<Kernel>> make_kernel(const KernelInit& init) {
  if constexpr (std::is_constructible_v<K, const KernelInit&>) return std::unique_ptr<Kernel>(new K(init));
  else return std::unique_ptr<Kernel>(new K());
}

/// Makes the kernel of a node when a step that needs it is planned; by any thread, by several at once, without a lock.
/// Of the kernels that threads make for one node at once the first stays. It knows the kind of its kernels before it
/// makes one, so that a node can be planned where its kernel cannot be made. A value that can be copied.
class KernelFactory {
 public:
  using Make = std::function<Result<std::unique_ptr<Kernel>>(const KernelInit&)>;
  using Choose = KernelKind (*)(const Attrs&);

  KernelFactory() = default;
  /// From a function of a const KernelInit& that returns a Result<std::unique_ptr<K>>. The kind is that of the class K.
  /// Where K is Kernel itself it is kUnknown: such nodes can only be planned where their kernels can be made.
  template <class F>
  requires(!std::is_same_v<F, KernelFactory> && std::is_invocable_v<F&, const KernelInit&>) KernelFactory(F make)
      : KernelFactory(kind_of_result(std::type_identity<Made<F>>()), std::move(make)) {}
  /// The same of a named kind; a kernel of another kind is an error of its node.
  template <class F> KernelFactory(KernelKind kind, F make) : kind_(kind), make_(upcast(std::move(make))) {}
  /// The same where the kind depends on the node's attributes, which are complete.
  template <class F> KernelFactory(Choose choose, F make) : choose_(choose), make_(upcast(std::move(make))) {}
  /// Of a kernel class, see make_kernel.
  template <class K> static KernelFactory of() { return {kind_of_class<K>(), make_kernel<K>}; }

  Result<std::unique_ptr<Kernel>> operator()(const KernelInit& init) const { return make_(init); }
  explicit operator bool() const { return static_cast<bool>(make_); }
  KernelKind kind(const Attrs& attrs) const { return choose_ ? choose_(attrs) : kind_; }

 private:
  template <class F> using Made = std::invoke_result_t<F&, const KernelInit&>;
  template <class K> static constexpr KernelKind kind_of_result(std::type_identity<Result<std::unique_ptr<K>>>) {
    return kind_of_class<K>();
  }
  static constexpr KernelKind kind_of_result(...) { return KernelKind::kUnknown; }
  template <class F> static Make upcast(F make) {
    if constexpr (std::is_convertible_v<Made<F>, Result<std::unique_ptr<Kernel>>>) return make;
    else
      return [make = std::move(make)](const KernelInit& init) mutable -> Result<std::unique_ptr<Kernel>> {
        auto made = make(init);
        if (!made.ok()) return std::move(made.error());
        return std::unique_ptr<Kernel>(std::move(made).value());
      };
  }

  KernelKind kind_ = KernelKind::kUnknown;
  Choose choose_ = nullptr;  // in place of kind_
  Make make_;
};

/// Which kernel serves an op, by device kind and types. What the executor carries out itself (from KernelKind::kConst
/// on) serves devices of every kind. Filled once (ops/all.cpp), then only read, by any thread. A copy shares the
/// kernels' factories that it was made with, and may be added to.
class KernelRegistry {
 public:
  /// Types a kernel is for, by type attribute; attributes not named here may be anything.
  using Types = std::map<std::string, std::vector<DType>, std::less<>>;
  void add(std::string_view op, DeviceKind kind, Types types, KernelFactory factory);
  /// For one type of one attribute.
  void add(std::string_view op, DeviceKind kind, std::string_view attr, DType dtype, KernelFactory factory);
  /// A kernel class, see make_kernel.
  template <class K> void add(std::string_view op, DeviceKind kind, const Types& types) {
    add(op, kind, types, KernelFactory::of<K>());
  }
  /// Of a GPU's kernel: the inputs that it reads and the outputs that it sets in the host's memory, such as shapes and
  /// axes; negative numbers count from the end. All others are in the GPU's, but for strings, handles and lists.
  struct HostMemory {
    std::vector<int> inputs, outputs;
  };
  void add(std::string_view op, DeviceKind kind, Types types, KernelFactory factory, HostMemory host);
  template <class K> void add(std::string_view op, DeviceKind kind, const Types& types, HostMemory host) {
    add(op, kind, types, KernelFactory::of<K>(), std::move(host));
  }
  /// Kernels that are added from now on are not Troupe's own: an executor checks dtype and shape of their outputs, and
  /// of GPUs' kernels whose memory they are in.
  void check_from_now_on() { checked_ = true; }
  /// Kernels that are made from now on touch files in these folders alone (KernelInit::data_folders).
  void limit_files(std::shared_ptr<const DataFolders> folders) { data_folders_ = std::move(folders); }
  /// Errors: kUnimplemented naming op, device kind, the types asked for and those there are; what the factory returns
  /// or throws.
  Result<std::unique_ptr<Kernel>> make(const KernelInit& init, DeviceKind kind) const;
  /// The kind of the kernel that make() makes for a node with these attributes, found without making one. Errors:
  /// kUnimplemented as of make().
  Result<KernelKind> kind(std::string_view op, DeviceKind device, const Attrs& attrs) const;
  /// What that kernel has in the host's memory. Errors: as of kind().
  Result<HostMemory> host_memory(std::string_view op, DeviceKind device, const Attrs& attrs) const;
  bool has(std::string_view op, DeviceKind kind) const;
  /// Whether there is a kernel for a node with these attributes.
  bool serves(std::string_view op, DeviceKind kind, const Attrs& attrs) const;
  /// The type lists of each kernel of an op, for docs.
  std::vector<std::pair<DeviceKind, Types>> kernels(std::string_view op) const;

 private:
  struct Entry {
    DeviceKind kind;
    Types types;
    KernelFactory factory;
    bool checked = false;
    HostMemory host = {};
  };
  Result<std::unique_ptr<Kernel>> made_by(const Entry& entry, const KernelInit& init) const;
  static bool is_for(const Entry& entry, DeviceKind kind, const Attrs& attrs);
  Result<const Entry*> find(std::string_view op, DeviceKind kind, const Attrs& attrs) const;
  bool checked_ = false;
  std::shared_ptr<const DataFolders> data_folders_;
  std::map<std::string, std::vector<std::shared_ptr<const Entry>>, std::less<>> entries_;
};

}  // namespace troupe
