// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt, whose functions are looked up in the library at run time.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <bit>
#include <mutex>
#include <unordered_map>

#include "gpu/cublas.h"
#include "gpu/cuda/shared_library.h"

namespace troupe::gpu {
namespace {

constexpr size_t kMostWorkspace = size_t{32} << 20;  // bytes; what is advised for the newest cards

/// The functions that are called.
struct CublasLt {
#define TROUPE_CUBLASLT(F)            \
  F(cublasLtCreate)                   \
  F(cublasLtDestroy)                  \
  F(cublasLtMatmul)                   \
  F(cublasLtMatmulAlgoGetHeuristic)   \
  F(cublasLtMatmulDescCreate)         \
  F(cublasLtMatmulDescDestroy)        \
  F(cublasLtMatmulDescSetAttribute)   \
  F(cublasLtMatrixLayoutCreate)       \
  F(cublasLtMatrixLayoutDestroy)      \
  F(cublasLtMatrixLayoutSetAttribute) \
  F(cublasLtMatmulPreferenceCreate)   \
  F(cublasLtMatmulPreferenceDestroy) F(cublasLtMatmulPreferenceSetAttribute) F(cublasLtGetStatusName)
#define TROUPE_DECLARE(name) decltype(&::name) name = nullptr;
  TROUPE_CUBLASLT(TROUPE_DECLARE)
#undef TROUPE_DECLARE

  Status load() {
    TROUPE_ASSIGN(SharedLibrary library,
                  SharedLibrary::open("cuBLASLt", "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)));
#define TROUPE_FIND(name) library.find(#name, name);
    TROUPE_CUBLASLT(TROUPE_FIND)
#undef TROUPE_FIND
#undef TROUPE_CUBLASLT
    return library.found_all();
  }
  Status check(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return {};
    const Code code = status == CUBLAS_STATUS_ALLOC_FAILED    ? Code::kResourceExhausted
                      : status == CUBLAS_STATUS_NOT_SUPPORTED ? Code::kUnimplemented
                                                              : Code::kInternal;
    return make_error(code, "{}: {}", call, cublasLtGetStatusName(status));
  }
};

/// The alignment of an address in bytes, as far as the library cares.
uint32_t alignment_of(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return address % 256 == 0 ? 256 : uint32_t{1} << std::countr_zero(address);
}

/// What the choice of an algorithm depends on.
struct Problem {
  int64_t m, n, k, batch, a_step, b_step;
  uint32_t a_alignment, b_alignment, c_alignment, bias_alignment, aux_alignment;
  cublasLtEpilogue_t epilogue;
  DType dtype;
  bool ta, tb, tf32, adds;
  bool operator==(const Problem&) const = default;
};
struct ProblemHash {
  size_t operator()(const Problem& p) const {
    uint64_t hash = 0;
    for (const int64_t part : {p.m, p.n, p.k, p.batch, p.a_step, p.b_step, int64_t{p.a_alignment},
                               int64_t{p.b_alignment}, int64_t{p.c_alignment}, int64_t{p.bias_alignment},
                               int64_t{p.aux_alignment}, int64_t{p.epilogue}, static_cast<int64_t>(p.dtype),
                               int64_t{p.ta} | int64_t{p.tb} << 1 | int64_t{p.tf32} << 2 | int64_t{p.adds} << 3}) {
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

cublasLtEpilogue_t epilogue_of(const Product& p) {
  const bool sums = p.sums == SumsOf::kResult;
  if (p.mask) return sums ? CUBLASLT_EPILOGUE_DRELU_BGRAD : CUBLASLT_EPILOGUE_DRELU;
  if (p.gelu_of) return sums ? CUBLASLT_EPILOGUE_DGELU_BGRAD : CUBLASLT_EPILOGUE_DGELU;
  // Its A is what is b here (ColumnMajorProduct).
  if (p.sums == SumsOf::kB) return CUBLASLT_EPILOGUE_BGRADA;
  if (p.sums == SumsOf::kA) return CUBLASLT_EPILOGUE_BGRADB;
  int epilogue = p.bias ? CUBLASLT_EPILOGUE_BIAS : 0;
  if (p.activation == Activation::kRelu) epilogue |= CUBLASLT_EPILOGUE_RELU;
  if (p.activation == Activation::kGelu) epilogue |= CUBLASLT_EPILOGUE_GELU;
  return epilogue == 0 ? CUBLASLT_EPILOGUE_DEFAULT : static_cast<cublasLtEpilogue_t>(epilogue);
}

struct CublasTypes {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
};
Result<CublasTypes> types_of(DType dtype, bool tf32) {
  switch (dtype) {
    case DType::kFloat32:
      return CublasTypes{CUDA_R_32F, CUDA_R_32F, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case DType::kFloat64: return CublasTypes{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::kFloat16: return CublasTypes{CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::kBFloat16: return CublasTypes{CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    default: return make_error(Code::kUnimplemented, "GPUs have no product of {}", to_string(dtype));
  }
}

class CublasBlas final : public Blas {
 public:
  explicit CublasBlas(int card) : card_(card) {}
  ~CublasBlas() override {
    if (handle_) library_.cublasLtDestroy(handle_);
  }
  Status open() {
    TROUPE_RETURN_IF_ERROR(library_.load());
    TROUPE_RETURN_IF_ERROR(set_card());
    return library_.check(library_.cublasLtCreate(&handle_), "cublasLtCreate");
  }
  Status multiply(const Compute& gpu, const Product& p) override;

 private:
  using Choice = cublasLtMatmulHeuristicResult_t;

  /// Of one call: descriptors of the product and its matrices.
  struct Descriptors {
    const CublasLt& library;
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    ~Descriptors() {
      if (preference) library.cublasLtMatmulPreferenceDestroy(preference);
      for (cublasLtMatrixLayout_t layout : {left, right, result})
        if (layout) library.cublasLtMatrixLayoutDestroy(layout);
      if (product) library.cublasLtMatmulDescDestroy(product);
    }
    template <class T> Status set(cublasLtMatmulDescAttributes_t attribute, T value) {
      return library.check(library.cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
                           "cublasLtMatmulDescSetAttribute");
    }
    Status lay_out(cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch,
                   int64_t step) {
      TROUPE_RETURN_IF_ERROR(
          library.check(library.cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                                           static_cast<uint64_t>(columns), rows),
                        "cublasLtMatrixLayoutCreate"));
      const auto count = static_cast<int32_t>(batch);
      TROUPE_RETURN_IF_ERROR(library.check(
          library.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
          "cublasLtMatrixLayoutSetAttribute"));
      return library.check(library.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                                    &step, sizeof step),
                           "cublasLtMatrixLayoutSetAttribute");
    }
    template <class T> Status prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
      return library.check(library.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                           "cublasLtMatmulPreferenceSetAttribute");
    }
  };

  Status set_card() const {
    if (const cudaError_t error = cudaSetDevice(card_); error != cudaSuccess)
      return make_error(Code::kUnavailable, "cuBLASLt on card {}: {}", card_, cudaGetErrorString(error));
    return {};
  }
  Status describe(Descriptors& d, const Product& p, const CublasTypes& types) const;
  /// The algorithm for a problem, as chosen before or now.
  Result<Choice> choose(Descriptors& d, const Problem& problem);

  const int card_;
  CublasLt library_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<Problem, Choice, ProblemHash> choices_;
};

Status CublasBlas::describe(Descriptors& d, const Product& p, const CublasTypes& types) const {
  const ColumnMajorProduct c = column_major(p);
  TROUPE_RETURN_IF_ERROR(library_.check(library_.cublasLtMatmulDescCreate(&d.product, types.compute, types.scale),
                                        "cublasLtMatmulDescCreate"));
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  TROUPE_RETURN_IF_ERROR(d.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(c.transpose_left)));
  TROUPE_RETURN_IF_ERROR(d.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(c.transpose_right)));
  TROUPE_RETURN_IF_ERROR(d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p)));
  if (const void* vector = p.sums == SumsOf::kNone ? p.bias : p.sums_to)
    TROUPE_RETURN_IF_ERROR(d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector));
  if (const void* const aux = p.mask ? p.mask : p.gelu_of) {
    TROUPE_RETURN_IF_ERROR(d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux));
    TROUPE_RETURN_IF_ERROR(d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.mask ? (p.n + 127) / 128 * 128 : p.n));
  }
  TROUPE_RETURN_IF_ERROR(d.lay_out(d.left, types.data, c.left_rows, c.left_columns, p.batch, c.left_step));
  TROUPE_RETURN_IF_ERROR(d.lay_out(d.right, types.data, c.right_rows, c.right_columns, p.batch, c.right_step));
  return d.lay_out(d.result, types.data, c.m, c.n, p.batch, c.result_step);
}

Result<CublasBlas::Choice> CublasBlas::choose(Descriptors& d, const Problem& problem) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = choices_.find(problem); known != choices_.end()) return known->second;
  }
  TROUPE_RETURN_IF_ERROR(
      library_.check(library_.cublasLtMatmulPreferenceCreate(&d.preference), "cublasLtMatmulPreferenceCreate"));
  TROUPE_RETURN_IF_ERROR(d.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kMostWorkspace}));
  TROUPE_RETURN_IF_ERROR(d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.b_alignment));
  TROUPE_RETURN_IF_ERROR(d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.a_alignment));
  TROUPE_RETURN_IF_ERROR(d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.c_alignment));
  TROUPE_RETURN_IF_ERROR(d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.c_alignment));
  Choice choice{};
  int found = 0;
  const cublasStatus_t status = library_.cublasLtMatmulAlgoGetHeuristic(handle_, d.product, d.left, d.right, d.result,
                                                                        d.result, d.preference, 1, &choice, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
    return make_error(Code::kUnimplemented, "cuBLASLt has no {} product [{},{}] x [{},{}] with epilogue {}",
                      to_string(problem.dtype), problem.m, problem.k, problem.k, problem.n,
                      static_cast<int>(problem.epilogue));
  TROUPE_RETURN_IF_ERROR(library_.check(status, "cublasLtMatmulAlgoGetHeuristic"));
  const std::lock_guard lock(mutex_);
  return choices_.emplace(problem, choice).first->second;
}

Status CublasBlas::multiply(const Compute& gpu, const Product& p) {
  TROUPE_ASSIGN(const CublasTypes types, types_of(p.dtype, gpu.tf32));
  if (p.dtype == DType::kFloat64 && (p.activation == Activation::kGelu || p.gelu_of))
    return make_error(Code::kUnimplemented, "cuBLASLt rounds GELU of float64 as if it were float32");
  // What GELU was of lies in rows of n elements, which must be whole 16 bytes of 16-bit floats for the library.
  if (p.gelu_of && (p.n % 8 != 0 || alignment_of(p.gelu_of) < 16))
    return make_error(Code::kUnimplemented, "cuBLASLt has no derivative of GELU for rows of {}", p.n);
  TROUPE_RETURN_IF_ERROR(set_card());
  Descriptors d{library_};
  TROUPE_RETURN_IF_ERROR(describe(d, p, types));
  const void *const vector = p.sums == SumsOf::kNone ? p.bias : p.sums_to, *const aux = p.mask ? p.mask : p.gelu_of;
  TROUPE_ASSIGN(const Choice choice, choose(d, {.m = p.m,
                                                .n = p.n,
                                                .k = p.k,
                                                .batch = p.batch,
                                                .a_step = p.a_step,
                                                .b_step = p.b_step,
                                                .a_alignment = alignment_of(p.a),
                                                .b_alignment = alignment_of(p.b),
                                                .c_alignment = alignment_of(p.c),
                                                .bias_alignment = vector ? alignment_of(vector) : 0,
                                                .aux_alignment = aux ? alignment_of(aux) : 0,
                                                .epilogue = epilogue_of(p),
                                                .dtype = p.dtype,
                                                .ta = p.ta,
                                                .tb = p.tb,
                                                .tf32 = gpu.tf32,
                                                .adds = p.beta != 0}));
  // Given back at once: whoever takes it next uses it later in the stream.
  Tensor workspace;
  if (choice.workspaceSize > 0) {
    TROUPE_ASSIGN(workspace, Tensor::make(DType::kUInt8, {static_cast<int64_t>(choice.workspaceSize)}, gpu.allocator));
  }
  const auto alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const bool doubles = types.scale == CUDA_R_64F;
  const cublasStatus_t status = library_.cublasLtMatmul(
      handle_, d.product, doubles ? static_cast<const void*>(&p.alpha) : &alpha, p.b, d.left, p.a, d.right,
      doubles ? static_cast<const void*>(&p.beta) : &beta, p.c, d.result, p.c, d.result, &choice.algo,
      workspace.mutable_address(), choice.workspaceSize, static_cast<cudaStream_t>(gpu.stream.native()));
  TROUPE_RETURN_IF_ERROR(library_.check(status, "cublasLtMatmul"));
  return gpu.stream.check_launch("cublasLtMatmul");
}

}  // namespace

Result<std::shared_ptr<Blas>> make_cublas(int card) {
  auto blas = std::make_shared<CublasBlas>(card);
  TROUPE_RETURN_IF_ERROR(blas->open());
  return std::shared_ptr<Blas>(std::move(blas));
}

}  // namespace troupe::gpu
