// SPDX-License-Identifier: Apache-2.0
// Convolutions as graphs that cuDNN's engines carry out: of one operation, or with those that add a bias and apply an
// activation, whose inputs never come to memory.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "gpu/cuda/cudnn_calls.h"
#include "gpu/cudnn.h"
#include "gpu/plan_choice.h"

namespace troupe::gpu {
namespace {

constexpr int64_t kMostPlanWorkspace = int64_t{1} << 30;  // bytes
constexpr int64_t kMostAdvised = 64;                      // plans that heuristics are asked for
constexpr int64_t kInputId = 'x', kFilterId = 'w', kOutputId = 'y', kBiasId = 'b';
constexpr int64_t kConvolvedId = 'c', kBiasedId = 's';  // virtual: between operations
using Makes = Convolution::Makes;
/// Input, filter, output, and the bias or null.
using ConvAddresses = std::array<const void*, 4>;

/// The alignment of a tensor that engines are told; none knows what to do with more.
int64_t told_alignment(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return address % 16 == 0 ? 16 : int64_t{1} << std::countr_zero(address);
}

/// What the choice of a plan depends on.
struct ConvProblem {
  std::array<int64_t, 24> parts;
  ConvProblem(const Convolution& c, const ConvAddresses& at, bool tf32)
      : parts{static_cast<int64_t>(c.makes),
              static_cast<int64_t>(c.dtype),
              c.channels_first,
              c.dtype == DType::kFloat32 && tf32,
              c.batch,
              c.in_channels,
              c.out_channels,
              c.groups,
              c.y.in,
              c.y.size,
              c.y.stride,
              c.y.dilation,
              c.y.padding,
              c.x.in,
              c.x.size,
              c.x.stride,
              c.x.dilation,
              c.x.padding,
              told_alignment(at[0]),
              told_alignment(at[1]),
              told_alignment(at[2]),
              told_alignment(at[3]),
              at[3] != nullptr,
              static_cast<int64_t>(c.activation)} {}
  bool operator==(const ConvProblem&) const = default;
};
struct ConvProblemHash {
  size_t operator()(const ConvProblem& p) const {
    uint64_t hash = 0;
    for (const int64_t part : p.parts) {
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

Result<cudnnDataType_t> cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return CUDNN_DATA_FLOAT;
    case DType::kFloat64: return CUDNN_DATA_DOUBLE;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    default: return make_error(Code::kUnimplemented, "GPUs have no convolution of {}", to_string(dtype));
  }
}

/// Whether more than the convolution is to be done.
bool is_of_several(const Convolution& c) { return c.bias || c.activation != Activation::kNone; }

/// The error of a problem that has no plan. What cuDNN does not like about a graph of several operations, whatever it
/// calls it, is not there for the caller, who has another way.
Error not_found(Error error, const Convolution& c) {
  if (is_of_several(c) && error.code != Code::kResourceExhausted) error.code = Code::kUnimplemented;
  return error;
}

/// A convolution for cuDNN, which plans refer to.
struct ConvGraph {
  std::vector<CudnnDescriptor> parts, operations;
  CudnnDescriptor graph;
};
struct ConvPlan {
  std::shared_ptr<const ConvGraph> graph;
  CudnnDescriptor engine, plan;
  int64_t workspace = 0;  // bytes
};

/// The plans of a problem, of which one is chosen.
struct ConvPlans {
  std::vector<ConvPlan> plans;
  PlanChoice choice;
};

class CudnnDnn final : public Dnn {
 public:
  explicit CudnnDnn(const CudnnOptions& options)
      : options_(options),
        events_(options.runtime && options.timed > 1 ? std::make_shared<TimedEvents>(options.runtime, options.card)
                                                     : nullptr) {}
  ~CudnnDnn() override {
    plans_.clear();
    if (handle_) library_.cudnnDestroy(handle_);
  }
  Status convolve(const Compute& gpu, const Convolution& c) override;

 private:
  Status open();
  Status check(cudaError_t error, const char* call) const {
    if (error == cudaSuccess) return {};
    return make_error(Code::kInternal, "{} of card {}: {}", call, options_.card, cudaGetErrorString(error));
  }
  /// Without an address, one of what is between operations.
  Result<CudnnDescriptor> tensor(int64_t id, cudnnDataType_t type, std::optional<const void*> at, bool channels_first,
                                 int64_t n, int64_t c, int64_t h, int64_t w) const;
  /// Adds to `graph` the operation y = f(x), or y = x + b, of tensors.
  Status add_pointwise(ConvGraph& graph, cudnnPointwiseMode_t mode, bool doubles, const CudnnDescriptor& x,
                       const CudnnDescriptor* b, const CudnnDescriptor& y) const;
  Result<std::shared_ptr<const ConvGraph>> describe(const Convolution& c, const ConvAddresses& at) const;
  /// Plans for a problem, the most advisable first. With `strict` only such as give the same bits each time.
  Result<std::vector<ConvPlan>> advise(const std::shared_ptr<const ConvGraph>& graph, cudnnBackendHeurMode_t mode,
                                       bool tensor_cores, bool strict, int64_t most) const;
  Result<bool> is_fit(const CudnnDescriptor& config, bool tensor_cores, bool strict) const;
  Result<std::vector<ConvPlan>> find(const Compute& gpu, const Convolution& c, const ConvAddresses& at) const;
  Status run(const Compute& gpu, const ConvPlan& plan, const ConvAddresses& at) const;

  const CudnnOptions options_;
  const std::shared_ptr<TimedEvents> events_;  // null: no plan is timed
  std::mutex mutex_;
  std::optional<Status> opened_;
  Cudnn library_;
  cudnnHandle_t handle_ = nullptr;
  std::unordered_map<ConvProblem, ConvPlans, ConvProblemHash> plans_;
};

Status CudnnDnn::open() {
  TROUPE_RETURN_IF_ERROR(library_.load());
  TROUPE_RETURN_IF_ERROR(check(cudaSetDevice(options_.card), "cudaSetDevice"));
  return library_.check(library_.cudnnCreate(&handle_), "cudnnCreate");
}

Result<CudnnDescriptor> CudnnDnn::tensor(int64_t id, cudnnDataType_t type, std::optional<const void*> at,
                                         bool channels_first, int64_t n, int64_t c, int64_t h, int64_t w) const {
  const int64_t sizes[] = {n, c, h, w};
  const int64_t first[] = {c * h * w, h * w, w, 1}, last[] = {c * h * w, 1, w * c, c};
  CudnnDescriptor out(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  out.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  out.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  out.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, at ? told_alignment(*at) : 16);
  if (!at) out.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  out.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(sizes));
  out.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(channels_first ? first : last));
  TROUPE_RETURN_IF_ERROR(out.finalize());
  return out;
}

Status CudnnDnn::add_pointwise(ConvGraph& graph, cudnnPointwiseMode_t mode, bool doubles, const CudnnDescriptor& x,
                               const CudnnDescriptor* b, const CudnnDescriptor& y) const {
  CudnnDescriptor function(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  function.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, doubles ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  TROUPE_RETURN_IF_ERROR(function.finalize());
  CudnnDescriptor operation(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  TROUPE_RETURN_IF_ERROR(operation.finalize());
  graph.parts.push_back(std::move(function));
  graph.operations.push_back(std::move(operation));
  return {};
}

Result<std::shared_ptr<const ConvGraph>> CudnnDnn::describe(const Convolution& c, const ConvAddresses& at) const {
  TROUPE_ASSIGN(const cudnnDataType_t type, cudnn_type(c.dtype));
  const bool doubles = c.dtype == DType::kFloat64;
  // Groups follow from the channels of input and filter.
  TROUPE_ASSIGN(CudnnDescriptor x,
                tensor(kInputId, type, at[0], c.channels_first, c.batch, c.in_channels, c.y.in, c.x.in));
  TROUPE_ASSIGN(CudnnDescriptor w, tensor(kFilterId, type, at[1], c.channels_first, c.out_channels,
                                          c.in_channels / c.groups, c.y.size, c.x.size));
  TROUPE_ASSIGN(CudnnDescriptor y,
                tensor(kOutputId, type, at[2], c.channels_first, c.batch, c.out_channels, c.y.out, c.x.out));

  CudnnDescriptor convolution(library_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int64_t strides[] = {c.y.stride, c.x.stride}, dilations[] = {c.y.dilation, c.x.dilation},
                padding[] = {c.y.padding, c.x.padding};
  convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                  doubles ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span<const int64_t>(strides));
  convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span<const int64_t>(dilations));
  convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span<const int64_t>(padding));
  convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span<const int64_t>(padding));
  TROUPE_RETURN_IF_ERROR(convolution.finalize());

  struct Attributes {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
  };
  const Attributes a = c.makes == Makes::kOutput ? Attributes{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA}
                       : c.makes == Makes::kInput
                           ? Attributes{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}
                           : Attributes{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  CudnnDescriptor operation(library_, a.operation);
  operation.set(a.convolution, convolution);
  operation.set(a.x, x);
  operation.set(a.w, w);
  const bool adds = at[3] != nullptr, activates = c.activation != Activation::kNone;
  // What is between operations is as exact as sums are.
  const auto between = [&](int64_t id) {
    return tensor(id, doubles ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT, {}, c.channels_first, c.batch, c.out_channels,
                  c.y.out, c.x.out);
  };
  CudnnDescriptor convolved, biased, bias;
  if (adds || activates) {
    TROUPE_ASSIGN(convolved, between(kConvolvedId));
  }
  if (adds && activates) {
    TROUPE_ASSIGN(biased, between(kBiasedId));
  }
  if (adds) {
    TROUPE_ASSIGN(bias, tensor(kBiasId, type, at[3], c.channels_first, 1, c.out_channels, 1, 1));
  }
  operation.set(a.y, adds || activates ? convolved : y);
  if (doubles) {
    operation.set(a.alpha, CUDNN_TYPE_DOUBLE, 1.0);
    operation.set(a.beta, CUDNN_TYPE_DOUBLE, 0.0);
  } else {
    operation.set(a.alpha, CUDNN_TYPE_FLOAT, 1.0f);
    operation.set(a.beta, CUDNN_TYPE_FLOAT, 0.0f);
  }
  TROUPE_RETURN_IF_ERROR(operation.finalize());

  auto out = std::make_shared<ConvGraph>();
  out->operations.push_back(std::move(operation));
  if (adds)
    TROUPE_RETURN_IF_ERROR(add_pointwise(*out, CUDNN_POINTWISE_ADD, doubles, convolved, &bias, activates ? biased : y));
  if (activates)
    TROUPE_RETURN_IF_ERROR(
        add_pointwise(*out, CUDNN_POINTWISE_RELU_FWD, doubles, adds ? biased : convolved, nullptr, y));
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& each : out->operations) operations.push_back(each.raw());
  out->graph = CudnnDescriptor(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  out->graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_);
  out->graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 std::span<const cudnnBackendDescriptor_t>(operations));
  TROUPE_RETURN_IF_ERROR(out->graph.finalize());
  for (CudnnDescriptor* part : {&x, &w, &y, &convolution, &convolved, &biased, &bias})
    out->parts.push_back(std::move(*part));
  return std::shared_ptr<const ConvGraph>(std::move(out));
}

Result<bool> CudnnDnn::is_fit(const CudnnDescriptor& config, bool tensor_cores, bool strict) const {
  TROUPE_ASSIGN(const auto engine,
                config.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1));
  if (engine.empty()) return false;
  TROUPE_ASSIGN(const auto notes,
                engine[0].get_all<cudnnBackendNumericalNote_t>(
                    CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT));
  return std::ranges::none_of(notes, [&](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           (!tensor_cores &&
            (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) ||
           (strict && note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  });
}

Result<std::vector<ConvPlan>> CudnnDnn::advise(const std::shared_ptr<const ConvGraph>& graph,
                                               cudnnBackendHeurMode_t mode, bool tensor_cores, bool strict,
                                               int64_t most) const {
  std::vector<ConvPlan> out;
  CudnnDescriptor heuristics(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph->graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (Status status = heuristics.finalize(); !status.ok()) {
    if (status.error().code == Code::kUnimplemented) return out;
    return std::move(status.error());
  }
  TROUPE_ASSIGN(auto configs, heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                         CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kMostAdvised));
  for (CudnnDescriptor& config : configs) {
    if (static_cast<int64_t>(out.size()) == most) break;
    TROUPE_ASSIGN(const bool fit, is_fit(config, tensor_cores, strict));
    if (!fit) continue;
    ConvPlan plan{
        .graph = graph, .engine = {}, .plan = CudnnDescriptor(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
    plan.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    plan.plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (!plan.plan.finalize().ok()) continue;  // heuristics also advise what an engine then refuses
    TROUPE_ASSIGN(plan.workspace, plan.plan.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64));
    if (plan.workspace > kMostPlanWorkspace) continue;
    plan.engine = std::move(config);
    out.push_back(std::move(plan));
  }
  return out;
}

Result<std::vector<ConvPlan>> CudnnDnn::find(const Compute& gpu, const Convolution& c, const ConvAddresses& at) const {
  TROUPE_ASSIGN(const auto graph, describe(c, at));
  const bool tensor_cores = c.dtype != DType::kFloat32 || gpu.tf32;
  std::vector<ConvPlan> plans;
  // Of a graph of several operations only what is good: the caller has another way.
  const bool only_good = is_of_several(c);
  for (const bool strict : {true, false})
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      if (plans.empty() && (!only_good || (strict && mode == CUDNN_HEUR_MODE_A))) {
        TROUPE_ASSIGN(plans, advise(graph, mode, tensor_cores, strict, events_ ? options_.timed : 1));
      }
  if (plans.empty())
    return make_error(
        Code::kUnimplemented,
        "cuDNN has no convolution of {}: {} images [{},{}], {} to {} channels in {} groups, filter [{},{}]",
        to_string(c.dtype), c.batch, c.y.in, c.x.in, c.in_channels, c.out_channels, c.groups, c.y.size, c.x.size);
  return plans;
}

Status CudnnDnn::run(const Compute& gpu, const ConvPlan& plan, const ConvAddresses& at) const {
  // Given back at once: whoever takes it next uses it later in the stream.
  Tensor workspace;
  if (plan.workspace > 0) {
    TROUPE_ASSIGN(workspace, Tensor::make(DType::kUInt8, {plan.workspace}, gpu.allocator));
  }
  const int64_t ids[] = {kInputId, kFilterId, kOutputId, kBiasId};
  const size_t count = at[3] ? 4 : 3;
  CudnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids, count));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<const void* const>(at.data(), count));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace.mutable_address());
  TROUPE_RETURN_IF_ERROR(pack.finalize());
  return library_.check(library_.cudnnBackendExecute(handle_, plan.plan.raw(), pack.raw()), "cudnnBackendExecute");
}

Status CudnnDnn::convolve(const Compute& gpu, const Convolution& c) {
  TROUPE_RETURN_IF_ERROR(check_convolution(c));
  TROUPE_RETURN_IF_ERROR(cudnn_type(c.dtype).status());
  if (c.activation != Activation::kNone && c.activation != Activation::kRelu)
    return make_error(Code::kUnimplemented, "convolutions have no such activation");
  const ConvAddresses at = {c.makes == Makes::kInput ? c.made : c.input, c.makes == Makes::kFilter ? c.made : c.filter,
                            c.makes == Makes::kOutput ? c.made : c.output, c.bias};
  // One at a time: the handle has one stream. What it puts in takes little time once a plan is there.
  const std::lock_guard lock(mutex_);
  if (!opened_) opened_ = open();
  TROUPE_RETURN_IF_ERROR(Status(*opened_));
  auto* const stream = static_cast<cudaStream_t>(gpu.stream.native());
  TROUPE_RETURN_IF_ERROR(library_.check(library_.cudnnSetStream(handle_, stream), "cudnnSetStream"));
  const ConvProblem problem(c, at, gpu.tf32);
  auto known = plans_.find(problem);
  if (known == plans_.end()) {
    auto found = find(gpu, c, at);
    if (!found.ok()) return not_found(std::move(found.error()), c);
    std::vector<ConvPlan> plans = std::move(*found);
    PlanChoice choice(plans.size(), events_);
    known = plans_.emplace(problem, ConvPlans{std::move(plans), std::move(choice)}).first;
  }
  auto& [plans, choice] = known->second;
  if (plans.size() == 1) {
    TROUPE_RETURN_IF_ERROR(run(gpu, plans[0], at));
    return gpu.stream.check_launch("cudnnBackendExecute");
  }
  cudaStreamCaptureStatus captures = cudaStreamCaptureStatusNone;
  TROUPE_RETURN_IF_ERROR(check(cudaStreamIsCapturing(stream, &captures), "cudaStreamIsCapturing"));
  // Where memory is short or an engine fails, another may do.
  TROUPE_RETURN_IF_ERROR(choice.call(
      gpu.stream, [&](size_t way) { return run(gpu, plans[way], at); }, captures == cudaStreamCaptureStatusNone));
  if (const auto chosen = choice.chosen()) {
    ConvPlan only = std::move(plans[*chosen]);
    plans.clear();
    plans.push_back(std::move(only));
  }
  return gpu.stream.check_launch("cudnnBackendExecute");
}

}  // namespace

std::shared_ptr<Dnn> make_cudnn(const CudnnOptions& options) { return std::make_shared<CudnnDnn>(options); }

}  // namespace troupe::gpu
