// SPDX-License-Identifier: Apache-2.0
// _FusedElementwise on GPUs: makes the program that a kernel interprets. Nothing here is launched by itself, so that
// this serves CUDA and its fake.
#include "ops/fused/gpu_elementwise.h"

#include <algorithm>

#include "ops/fused/register.h"
#include "ops/math/binary_functors.h"
#include "ops/math/unary_functors.h"
#include "ops/nn/activation_functors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

struct NamedGpuFunction {
  FusedFunction form;
  GpuFunction function;
};
template <class F> inline constexpr bool kFusedBroadcasts = !requires { typename F::SameShape; };
constexpr NamedGpuFunction kGpuFunctions[] = {
#define TROUPE_UNARY_ENTRY(name, functor) {{#name, FusedKind::kUnary}, GpuFunction::k##name},
#define TROUPE_BINARY_ENTRY(name, functor) \
  {{#name, FusedKind::kBinary, kFusedBroadcasts<functor>}, GpuFunction::k##name},
    TROUPE_FUSED_UNARY(TROUPE_UNARY_ENTRY) TROUPE_FUSED_BINARY(TROUPE_BINARY_ENTRY)
#undef TROUPE_UNARY_ENTRY
#undef TROUPE_BINARY_ENTRY
        {{"AddV2"}, GpuFunction::kAdd},
    {{"RealDiv"}, GpuFunction::kDiv},
    {{"Round", FusedKind::kUnary}, GpuFunction::kRint},
};

const NamedGpuFunction* find_gpu_function(std::string_view op) {
  const auto* at = std::ranges::find(kGpuFunctions, op, [](const NamedGpuFunction& f) { return f.form.op; });
  return at == std::end(kGpuFunctions) ? nullptr : at;
}

/// Leaves out what the last function does not need, and keeps what is not read by the next function alone.
GpuProgram make_gpu_program(const FusedProgram& from) {
  const size_t count = from.steps.size();
  std::vector<size_t> last_reader(count, 0);
  std::vector<bool> needed(count, false), kept(count, false);
  needed.back() = true;
  std::vector<size_t> order;
  for (size_t j = count; j-- > 0;) {
    if (!needed[j]) continue;
    order.insert(order.begin(), j);
    for (size_t operand : {from.steps[j].a, from.steps[j].b})
      if (operand >= from.inputs) {
        needed[operand - from.inputs] = true;
        last_reader[operand - from.inputs] = std::max(last_reader[operand - from.inputs], j);
      }
  }
  const auto follows = [&](size_t result, size_t k) { return k > 0 && order[k - 1] == result; };
  for (size_t k = 0; k < order.size(); ++k)
    for (size_t operand : {from.steps[order[k]].a, from.steps[order[k]].b})
      if (operand >= from.inputs && !follows(operand - from.inputs, k)) kept[operand - from.inputs] = true;

  GpuProgram program;
  std::vector<uint8_t> slot(count, GpuInstruction::kNoSlot), free;
  for (size_t k = 0; k < order.size(); ++k) {
    const FusedStep& step = from.steps[order[k]];
    const auto operand = [&](size_t at) -> uint8_t {
      if (at < from.inputs) return static_cast<uint8_t>(at);
      at -= from.inputs;
      return follows(at, k) ? GpuOperand::kLast : static_cast<uint8_t>(GpuOperand::kKept + slot[at]);
    };
    GpuInstruction& to = program.code[program.length++];
    to.function = find_gpu_function(step.function.op)->function;
    to.a = operand(step.a);
    if (step.function.kind == FusedKind::kBinary) to.b = operand(step.b);
    for (size_t read = 0; read < order[k]; ++read)  // operands are read before a result is kept
      if (slot[read] != GpuInstruction::kNoSlot && last_reader[read] == order[k]) free.push_back(slot[read]);
    if (!kept[order[k]]) continue;
    if (free.empty()) free.push_back(static_cast<uint8_t>(program.slots++));
    to.slot = slot[order[k]] = free.back();
    free.pop_back();
  }
  return program;
}

class GpuFusedElementwise final : public ComputeKernel {
 public:
  GpuFusedElementwise(FusedProgram form, GpuFusedLaunch launch)
      : form_(std::move(form)), program_(make_gpu_program(form_)), launch_(launch) {}
  bool shareable() const override { return true; }

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, form_.shape(c));
    TROUPE_ASSIGN(const GpuFusedInputs inputs, lay_out(c, shape));
    TROUPE_ASSIGN(Tensor y, form_.result(c, shape));
    if (y.elements() > 0) {
      declare_uses(c, {&y});
      TROUPE_RETURN_IF_ERROR(launch_(*c.device().gpu, program_, inputs, y));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  Result<GpuFusedInputs> lay_out(const KernelContext& c, const Shape& shape) const {
    GpuFusedInputs inputs;
    std::vector<size_t> strided;
    for (size_t i = 0; i < form_.inputs; ++i) {
      const Tensor& x = c.input(static_cast<int>(i));
      inputs.at[i] = {.at = x.address(), .reads = reads_of(x, shape.elements())};
      if (inputs.at[i].reads != Reads::kStrided) continue;
      // What the result needs fits it; an error is that of an input that nothing needs.
      if (auto plan = plan_broadcast(x.shape(), shape); !plan.ok()) return plan.error();
      strided.push_back(i);
    }
    int64_t sizes[kMaxRank];
    int rank = 0;
    uint64_t before = 0;  // of each strided input, whether it has the dimension before this
    for (int d = 0; d < shape.rank() && !strided.empty(); ++d) {
      if (shape[d] == 1) continue;
      uint64_t have = 0;
      for (size_t i : strided) {
        const Shape& of_input = c.input(static_cast<int>(i)).shape();
        const int at = d - (shape.rank() - of_input.rank());
        if (at >= 0 && of_input[at] != 1) have |= uint64_t{1} << i;
      }
      if (rank > 0 && have == before) {
        sizes[rank - 1] *= shape[d];
        continue;
      }
      for (size_t i : strided)
        if (have >> i & 1) inputs.at[i].dimensions |= static_cast<uint16_t>(1u << rank);
      sizes[rank++] = shape[d];
      before = have;
    }
    inputs.sizes = GpuSizes(sizes, rank);
    return inputs;
  }

  const FusedProgram form_;
  const GpuProgram program_;
  const GpuFusedLaunch launch_;
};

}  // namespace

void register_fused_elementwise_gpu(KernelRegistry& kernels, GpuFusedLaunch launch) {
  kernels.add("_FusedElementwise", DeviceKind::kCuda, {{"T", FloatTypes::dtypes()}},
              [launch](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                const auto find = [](std::string_view op) -> std::optional<FusedFunction> {
                  const auto* at = find_gpu_function(op);
                  return at ? std::optional(at->form) : std::nullopt;
                };
                TROUPE_ASSIGN(FusedProgram form, FusedProgram::parse(init, find));
                return std::unique_ptr<ComputeKernel>(new GpuFusedElementwise(std::move(form), launch));
              });
}

}  // namespace troupe
