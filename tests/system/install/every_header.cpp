// SPDX-License-Identifier: Apache-2.0
// Calls functions of every public header, so that the linker must find them in the installed library. None of these
// functions runs.
#include "troupe/allocator.h"
#include "troupe/attr.h"
#include "troupe/batcher.h"
#include "troupe/blocking_kernel.h"
#include "troupe/checkpoint.h"
#include "troupe/chunk_sizes.h"
#include "troupe/cluster.h"
#include "troupe/collectives.h"
#include "troupe/control_flow.h"
#include "troupe/cost_model.h"
#include "troupe/dataset.h"
#include "troupe/dataset_queue.h"
#include "troupe/deadline.h"
#include "troupe/device_mesh.h"
#include "troupe/device_rates.h"
#include "troupe/dtype.h"
#include "troupe/embed.h"
#include "troupe/engine.h"
#include "troupe/error.h"
#include "troupe/events.h"
#include "troupe/export.h"
#include "troupe/gradients.h"
#include "troupe/graph.h"
#include "troupe/graph_def.h"
#include "troupe/graph_file.h"
#include "troupe/graph_passes.h"
#include "troupe/guarded.h"
#include "troupe/idx.h"
#include "troupe/kernel.h"
#include "troupe/nn.h"
#include "troupe/npy.h"
#include "troupe/op.h"
#include "troupe/op_cost.h"
#include "troupe/op_library.h"
#include "troupe/operators.h"
#include "troupe/ops.h"
#include "troupe/optimizers.h"
#include "troupe/partial_run.h"
#include "troupe/pipeline.h"
#include "troupe/placement.h"
#include "troupe/replay_memory.h"
#include "troupe/resource.h"
#include "troupe/run_awaitable.h"
#include "troupe/run_lists.h"
#include "troupe/saved_model.h"
#include "troupe/scope.h"
#include "troupe/session.h"
#include "troupe/shape.h"
#include "troupe/space.h"
#include "troupe/tensor.h"
#include "troupe/tensor_list.h"
#include "troupe/tensor_parallel.h"
#include "troupe/trace.h"
#include "troupe/trace_file.h"
#include "troupe/train.h"
#include "troupe/transfers.h"
#include "troupe/transformer.h"
#include "troupe/variable_copies.h"
#include "troupe/version.h"

namespace every_header {

using namespace troupe;

struct Doubled final : ComputeKernel {
  Status compute(KernelContext& context) override {
    TROUPE_ASSIGN(Tensor y, context.forward_or_allocate(0, DType::kFloat32, context.input(0).shape()));
    context.set_output(0, std::move(y));
    return {};
  }
};
struct Reading final : BlockingKernel {
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override { return request.inputs; }
};

Status of_own_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Doubled")
              .input("x: float")
              .output("y: float")
              .doc("Twice x.")
              .shape(unchanged_shape)
              .cost(arithmetic_cost),
          not_differentiable("an example"));
  kernels.add<Doubled>("Doubled", DeviceKind::kCpu, {});
  kernels.add<Reading>("Reading", DeviceKind::kCpu, {});
  return {};
}

Status of_values(const Tensor& tensor, const AttrValue& value) {
  const std::string text =
      tensor.str() + to_string(value) + attr_type_name(value) + to_string(tensor.dtype()) + version();
  TROUPE_RETURN_IF_ERROR(broadcast(Shape{1}, Shape{2}).status());
  TROUPE_RETURN_IF_ERROR(tensor.reshape({1}).status());
  if (!same(value, value) || !is_floating(tensor.dtype()) || !dtype_from_string(text))
    return invalid_argument("{}", text);
  list_tensor({.dtype = DType::kFloat32, .shape = {}});
  if (tensor.space() == Space::kGpu) return make_error(Code::kInternal, "{}", to_string(tensor.space()));
  copy_elements(tensor.dtype(), nullptr, nullptr, 0);
  return make_error(Code::kInternal, "{} {}", make_caching_allocator()->stats().in_use,
                    system_allocator()->stats().in_use);
}

Status of_files(const std::string& path, const Tensor& tensor, Engine& engine) {
  TROUPE_RETURN_IF_ERROR(write_safetensors(path, {{"x", tensor}}));
  TROUPE_RETURN_IF_ERROR(read_safetensors(path).status());
  TROUPE_ASSIGN(auto checkpoints, Checkpointer::open(path));
  TROUPE_RETURN_IF_ERROR(checkpoints.save({{"x", tensor}}, 1).status());
  TROUPE_RETURN_IF_ERROR(checkpoints.load_latest().status());
  Graph graph(engine.ops());
  TROUPE_RETURN_IF_ERROR(read_graph_def(path, graph));
  TROUPE_ASSIGN(const SavedModel model, load_saved_model(engine, path));
  TROUPE_RETURN_IF_ERROR(model.run("serving_default", {{"x", tensor}}).status());
  TROUPE_ASSIGN(auto events, EventWriter::open(path));
  TROUPE_RETURN_IF_ERROR(events->scalar("loss", 1, 2));
  TROUPE_RETURN_IF_ERROR(write_npy(path, tensor));
  TROUPE_RETURN_IF_ERROR(read_npz(path).status());
  TROUPE_RETURN_IF_ERROR(read_idx(path).status());
  TROUPE_RETURN_IF_ERROR(read_mnist(path).status());
  TROUPE_ASSIGN(auto trace, TraceFile::create(path, engine));
  TROUPE_RETURN_IF_ERROR(trace->close());
  TROUPE_ASSIGN(const CostModel costs, CostModel::load(path));
  return costs.save(path);
}

Status of_graphs(const Scope& scope, Output x) {
  TROUPE_RETURN_IF_ERROR(gradients(scope, {x}, {x}).status());
  const std::vector<Output> both = cond(
      scope, x, [&](const Scope&) { return std::vector{x}; }, [&](const Scope&) { return std::vector{x}; });
  const std::vector<Output> loop = while_loop(
      scope, both, [](const Scope&, const std::vector<Output>& state) { return state[0]; },
      [](const Scope&, const std::vector<Output>& state) { return state; });
  nn::all_reduce(scope, {"/cpu:0"}, loop);
  ops::MatMul(scope, x, ops::Identity(scope, scope.constant(1.f)));
  TROUPE_RETURN_IF_ERROR(GraphPasses::parse("all").status());
  const std::string text(to_string(TransferCompression::kOff));
  TROUPE_RETURN_IF_ERROR(freeze_graph(scope.graph(), {x}, {}).status());
  Graph again(scope.graph().ops());
  return from_graph_def(to_graph_def(scope.graph()) + to_graph_def_text(scope.graph()) + text, again);
}

Status of_layers(const Scope& scope, nn::Variables& variables, Output x, Output labels) {
  const Output y =
      nn::dropout(scope, variables, nn::dense(scope, variables, nn::relu(scope, x), 3, "dense"), 0.5f, true);
  nn::conv2d(scope, variables, y, 2, 3, "conv");
  nn::lstm(scope, variables, y, 4, "lstm");
  nn::layer_norm(scope, variables, y, "norm");
  const nn::Spread shares = nn::dense_by_columns(scope, variables, x, 4, "up", nn::part_devices(2));
  nn::gather(scope, shares);
  nn::minimize(scope, variables, nn::adam(nn::cosine_decay(1e-3f, 100)),
               nn::sparse_softmax_cross_entropy(scope, y, labels));
  nn::Variables copies("copies");
  nn::copy_variables(scope, copies, variables);
  TROUPE_ASSIGN(const auto mesh, nn::DeviceMesh::create({"/cpu:0"}, {{"data", 1}}));
  return mesh.along("data", {}).status();
}

Status of_clusters(const Engine& engine, const EngineOptions& options) {
  TROUPE_ASSIGN(const auto worker, ClusterWorker::start(options));
  return cluster_status(engine).size() == worker->connected().size() ? Status() : worker->engine().status();
}

Status of_actors(caf::actor_system& system, const caf::actor& actor) {
  TROUPE_RETURN_IF_ERROR(start_worker(system, {}).status());
  TROUPE_RETURN_IF_ERROR(RunAnswer{RunRequest().tag}.result.status());
  TROUPE_ASSIGN(auto engine, create_engine(system));
  TROUPE_RETURN_IF_ERROR(add_actor(*engine, "actor", actor));
  return guarded_call([&] { actor_system(*engine); });
}

Status of_requests(Session& session, Output x, const Tensor& tensor) {
  TROUPE_ASSIGN(auto batcher, Batcher::create(session, {x}, {x}));
  TROUPE_RETURN_IF_ERROR(batcher->run({tensor}));
  TROUPE_ASSIGN(const ReplayMemory memory, ReplayMemory::create({tensor.dtype()}, {PartialShape(tensor.shape())}));
  TROUPE_RETURN_IF_ERROR(memory.add({tensor}));
  return memory.sample(1).status();
}

Status of_partial_runs(Session& session, Output x) {
  const Output y = 2.f * x + x;
  TROUPE_ASSIGN(PartialRun run, session.partial_run({x}, {y}));
  TROUPE_RETURN_IF_ERROR(run.run({{x, Tensor::scalar(1.f)}}, {y}));
  (void)session.run_async(y);
  return session.run(y).status();
}

Status of_training(Engine& engine, const nn::ModelFn& model, const Dataset& batches) {
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(engine, model, batches, {}));
  TROUPE_RETURN_IF_ERROR(trainer->run(1).status());
  TROUPE_ASSIGN(auto pipeline, nn::Pipeline::create(engine, model, batches, {}));
  TROUPE_RETURN_IF_ERROR(pipeline->run(1).status());
  TROUPE_RETURN_IF_ERROR(Dataset::from_text_lines({"text"}).status());
  TROUPE_RETURN_IF_ERROR(engine.add_dataset("batches", batches));
  return check_memory({}, {});
}

}  // namespace every_header
