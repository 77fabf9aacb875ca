// SPDX-License-Identifier: Apache-2.0
// The states of generators: RngReadAndSkip, RngSkip, and NonDeterministicInts, which they begin with.
#include "ops/random/generator.h"
#include "ops/random/register.h"

#include <random>

#include "containers/container.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/resource_kernel.h"
#include "ops/random/source.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

constexpr int64_t kStateSize = 3;

/// The state [3] before; its counter goes on by as much as `numbers` may use.
Result<Tensor> skip(Container& container, const ResourceRequest& request, uint64_t numbers) {
  const ResourceHandle* handle = &request.handle();
  Tensor before;
  TROUPE_RETURN_IF_ERROR(
      container.update({&handle, 1}, request.allocator, [&](std::span<Tensor* const> variables) -> Status {
        Tensor& v = *variables[0];
        if (v.dtype() != DType::kInt64 || v.rank() != 1 || v.elements() < kStateSize)
          return invalid_argument("variable '{}' must be int64[3], a generator's state, not {}{}", handle->name,
                                  to_string(v.dtype()), v.shape().str());
        int64_t* state = v.mutable_data<int64_t>();
        before = Tensor::of<int64_t>({state[0], state[1], state[2]});
        const uint64_t blocks = numbers * kBlocksOfElement, low = static_cast<uint64_t>(state[0]) + blocks;
        // As TensorFlow carries, in words: a carry into an upper word of ones, of steps back, goes no further.
        const auto upper =
            static_cast<uint32_t>((blocks >> 32) + (static_cast<uint32_t>(low) < static_cast<uint32_t>(blocks)));
        state[0] = static_cast<int64_t>(low);
        state[1] = static_cast<int64_t>(static_cast<uint64_t>(state[1]) + (static_cast<uint32_t>(low >> 32) < upper));
        return {};
      }));
  return before;
}

Status check_algorithm_of(const Tensor& algorithm) {
  TROUPE_ASSIGN(const int64_t number, int_scalar(algorithm, "algorithm"));
  return check_algorithm(number);
}

/// Moves on; as RngReadAndSkip it also gives the state before.
class Skip final : public AnsweringKernel {
 public:
  explicit Skip(const KernelInit& init) : gives_state_(!init.output_dtypes.empty()) {}
  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    TROUPE_ASSIGN(Container* const container, core_of<Container>(resource, request, "variable"));
    return run(*container, request);
  }

 private:
  Result<std::vector<Tensor>> run(Container& container, const ResourceRequest& request) const {
    TROUPE_RETURN_IF_ERROR(check_algorithm_of(request.inputs[1]));
    const Tensor& delta = request.inputs[2];
    if (delta.elements() != 1) return invalid_argument("delta must be a scalar, not {}", delta.shape().str());
    const uint64_t numbers =
        gives_state_ ? *delta.data<uint64_t>() : static_cast<uint64_t>(*delta.data<int64_t>());  // below 0: back
    TROUPE_ASSIGN(Tensor before, skip(container, request, numbers));
    if (gives_state_) return one_output(std::move(before));
    return std::vector<Tensor>();
  }
  const bool gives_state_;
};

template <class T> class NonDeterministic final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, shape_from(c.input(0), "shape"));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
    std::random_device device;
    T* out = y.mutable_data<T>();
    for (int64_t i = 0; i < shape.elements(); ++i) out[i] = static_cast<T>(uint64_t{device()} << 32 | device());
    c.set_output(0, std::move(y));
    return {};
  }
};

/// The outputs of `draw` for these inputs.
Result<std::vector<Tensor>> outputs_of(ComputeKernel& draw, const std::vector<Tensor>& inputs,
                                       std::shared_ptr<Allocator> allocator, int64_t step) {
  const auto n = static_cast<uint32_t>(inputs.size());
  std::vector<Tensor> values = inputs;
  values.emplace_back();
  std::vector<uint32_t> slots(n);
  for (uint32_t i = 0; i < n; ++i) slots[i] = i;
  const std::vector<int32_t> uses(values.size(), 2);  // the request holds them too
  DeviceInfo host;
  host.allocator = std::move(allocator);
  KernelContext c(values.data(), uses.data(), slots.data(), static_cast<int>(n), n, 1, host, step);
  TROUPE_RETURN_IF_ERROR(draw.compute(c));
  return one_output(std::move(values[n]));
}

Status skip_shape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) TROUPE_RETURN_IF_ERROR(c.with_rank(i, 0).status());
  if (c.num_outputs() > 0) c.set_output(0, PartialShape{kStateSize});
  return {};
}

}  // namespace

void GeneratorKernel::execute(Resource& resource, ResourceRequest request) {
  auto* container = core_as<Container>(resource, request, "variable");
  if (!container) return;
  const auto draw = [&]() -> Result<std::vector<Tensor>> {
    TROUPE_RETURN_IF_ERROR(check_algorithm_of(request.inputs[1]));
    TROUPE_ASSIGN(const int64_t numbers, uses_(request.inputs));
    TROUPE_ASSIGN(const Tensor before, skip(*container, request, static_cast<uint64_t>(numbers)));
    const auto state = before.values<int64_t>();
    std::vector<Tensor> inputs = {
        request.inputs[2], Tensor::of<uint64_t>({static_cast<uint64_t>(state[2])}),
        Tensor::of<uint64_t>({static_cast<uint64_t>(state[0]), static_cast<uint64_t>(state[1])}),
        Tensor::scalar<int32_t>(kPhilox)};
    inputs.insert(inputs.end(), request.inputs.begin() + 3, request.inputs.end());
    return outputs_of(*draw_, inputs, request.allocator, request.reply.tag().step);
  };
  request.reply(draw());
}

Result<int64_t> elements_drawn(std::span<const Tensor> inputs) {
  TROUPE_ASSIGN(const Shape shape, shape_from(inputs[2], "shape"));
  return shape.elements();
}

OpDef generator_op(const std::string& name, const std::string& what, const std::string& shape_type) {
  OpDef op(name);
  op.input("resource: resource").input("algorithm: int64").input("shape: " + shape_type);
  op.stateful().shape([](ShapeContext& c) { return shape_said_by(c, 2); });
  op.doc(what +
         " The numbers follow from the generator's state, which the variable int64[3] of `resource` holds (a "
         "counter's lower and upper half, a key), and move it on, as TensorFlow's do; algorithm is 1 (Philox) or "
         "3 (automatic, the same).");
  return op;
}

void register_random_generator_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const Gradient none = not_differentiable("it gives integers");
  const std::string how =
      " the counter of the generator whose state the variable int64[3] of `resource` holds, as far as "
      "`delta` numbers that are drawn do.";
  ops.add(OpDef("RngReadAndSkip")
              .input("resource: resource")
              .input("alg: int32")
              .input("delta: uint64")
              .output("value: int64")
              .doc("Moves" + how + " Gives the state before.")
              .shape(skip_shape)
              .stateful(),
          none);
  ops.add(OpDef("RngSkip")
              .input("resource: resource")
              .input("algorithm: int64")
              .input("delta: int64")
              .doc("Moves" + how)
              .shape(skip_shape)
              .stateful(),
          not_differentiable("it has no output"));
  for (const char* op : {"RngReadAndSkip", "RngSkip"}) kernels.add<Skip>(op, DeviceKind::kCpu, {});
  ops.add(OpDef("NonDeterministicInts")
              .input("shape: shape_dtype")
              .output("output: dtype")
              .attr(type_attr("dtype", FullIntTypes{}, "int64"))
              .attr(type_attr("shape_dtype", IndexTypes{}, "int64"))
              .doc("Integers that nobody knows before, from the operating system.")
              .shape(shape_of_input)
              .stateful(),
          none);
  add_cpu_kernels<NonDeterministic>(kernels, "NonDeterministicInts", FullIntTypes{}, "dtype");
}

}  // namespace troupe
