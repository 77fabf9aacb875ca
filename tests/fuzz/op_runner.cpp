// SPDX-License-Identifier: Apache-2.0
// Builds the graphs of a case, runs them and compares.
#include "tests/fuzz/op_runner.h"

#include <algorithm>

#include "tests/fuzz/op_call.h"
#include "tests/op_library.h"
#include "troupe/control_flow.h"
#include "troupe/dataset.h"
#include "troupe/graph_def.h"
#include "troupe/scope.h"

namespace troupe::fuzz {
namespace {

/// A graph with the nodes of a case, or the first error.
struct Built {
  Graph graph;
  Scope scope{graph};
  std::vector<const Node*> nodes;
  std::vector<Feed> feeds;

  Built(const OpRegistry& ops, const Case& c, bool fed, const std::string& container) : graph(ops) {
    if (is_loop_op(c) && !c.hostile) loop(c, fed);
    else
      for (const CaseNode& node : c.nodes)
        if (!add(node, c, fed, container)) return;
  }

  static bool is_loop_op(const Case& c) {
    const std::string& op = c.nodes[static_cast<size_t>(c.main)].op;
    return op == "Enter" || op == "Exit" || op == "NextIteration" || op == "LoopCond";
  }

  Output value(const Tensor& tensor, bool fed) {
    if (!fed) return scope.constant(tensor);
    const Output output = scope.op("Placeholder", {}, {{"dtype", tensor.dtype()}});
    feeds.push_back({output, tensor});
    return output;
  }

  bool add(const CaseNode& node, const Case& c, bool fed, const std::string& container) {
    std::vector<Output> inputs;
    for (const Given& given : node.inputs)
      if (const Ref* ref = std::get_if<Ref>(&given)) {
        const Node& source = *nodes[static_cast<size_t>(ref->node)];
        inputs.push_back(source.out(ref->port));
      } else {
        const Tensor& tensor = std::get<Tensor>(given);
        const bool object = tensor.dtype() == DType::kResource || tensor.dtype() == DType::kVariant;
        inputs.push_back(value(tensor, fed || object));
      }
    Attrs attrs = node.attrs;
    const OpDef* op = graph.ops().find(node.op);
    if (op && op->find_attr("container") && node.op != "IteratorV2") attrs.set("container", container);
    const Scope in = nodes.empty() || c.unordered ? scope : scope.after(std::vector<const Node*>{nodes.back()});
    const Node* made = in.node(node.op, std::move(inputs), std::move(attrs));
    if (!scope.ok()) return false;
    nodes.push_back(made);
    if (node.op == "Placeholder") {
      const PartialShape& shape = made->shape(0);
      std::vector<int64_t> dims;
      if (shape.has_rank())
        for (const int64_t d : shape.dims()) dims.push_back(std::max<int64_t>(d, 0));
      if (auto zeros = Tensor::zeros(made->dtype(0), Shape(dims)); zeros.ok()) feeds.push_back({made->out(0), *zeros});
    }
    return true;
  }

  /// Ops of loops stand in one: three iterations that hand on the case's data.
  void loop(const Case& c, bool fed) {
    const Output data = value(std::get<Tensor>(c.nodes[0].inputs.at(0)), fed);
    const auto results = while_loop(
        scope, {scope.constant(int32_t{0}), data},
        [](const Scope& s, const std::vector<Output>& v) {
          return s.op("Less", {v[0], s.constant(int32_t{3})});
        },
        [](const Scope& s, const std::vector<Output>& v) {
          return std::vector{s.op("Add", {v[0], s.constant(int32_t{1})}), s.op("Identity", {v[1]})};
        },
        {.shapes = {PartialShape{}, PartialShape()}});
    if (scope.ok())
      for (const Output& result : results) nodes.push_back(result.node);
  }
};

bool without_verdict(const Status& status) {
  return !status.ok() && (status.error().code == Code::kDeadlineExceeded || status.error().code == Code::kCancelled ||
                          status.error().code == Code::kResourceExhausted);
}

/// Whether the builder wants a scalar or a vector where a kernel, which cannot mistake a tensor of one element, takes
/// any rank, as TensorFlow's do.
bool wants_rank(const Status& status) {
  return !status.ok() && status.error().device.empty() &&
         status.error().message.find("must have rank") != std::string::npos;
}

std::string said(const Status& status) { return status.ok() ? "succeeds" : "fails (" + status.error().str() + ")"; }

}  // namespace

Result<std::unique_ptr<CaseRunner>> CaseRunner::create(std::chrono::milliseconds deadline,
                                                       std::function<void()> hangs) {
  EngineOptions options;
  options.cpu_threads = {1, 2};
  options.memory_limit = int64_t{8} << 20;
  options.op_library = testing::op_library();
  TROUPE_ASSIGN(auto engine, Engine::create(std::move(options)));
  TROUPE_ASSIGN(const Dataset numbers,
                Dataset::from_tensors({Tensor::of<float>({1, 2}, {1, 2}), Tensor::of<int64_t>({3})}));
  TROUPE_RETURN_IF_ERROR(engine->add_dataset("fuzz_numbers", numbers.repeat()));
  return std::unique_ptr<CaseRunner>(new CaseRunner(std::move(engine), deadline, std::move(hangs)));
}

CaseRunner::Once CaseRunner::run_once(const Case& c, Way way) {
  Once once;
  const std::string container = fmt::format("fuzz{}", ++runs_);
  Built built(engine_->ops(), c, way == Way::kFed, container);
  if (!built.scope.ok()) {
    once.status = built.scope.status();
    return once;
  }
  std::vector<Output> fetches;
  const bool loop = built.nodes.size() > c.nodes.size();
  for (size_t i = loop ? 0 : static_cast<size_t>(c.main) + c.unordered; i < built.nodes.size(); ++i)
    for (int port = 0; port < built.nodes[i]->num_outputs(); ++port)
      if (built.nodes[i]->dtype(port) != DType::kResource) fetches.push_back(built.nodes[i]->out(port));
  std::vector<const Node*> targets;
  if (!c.unordered && !loop)
    for (const Node* node : built.nodes)
      if (node->op().name() != "Placeholder") targets.push_back(node);

  SessionOptions options;
  options.passes = way == Way::kNoPasses ? GraphPasses::none()
                   : way == Way::kPasses ? GraphPasses::all()
                                         : GraphPasses();
  if (way == Way::kFed) options.default_device = "/cpu:1";
  once = run_graph(built.graph, options, built.feeds, fetches, targets);
  engine_->reset_container(container);
  if (!once.status.ok()) return once;
  if (once.values.size() != fetches.size())
    once.wrong = fmt::format("{} results for {} fetches", once.values.size(), fetches.size());
  for (size_t i = 0; i < once.values.size() && once.wrong.empty(); ++i) {
    const Tensor& v = once.values[i];
    if (v.dtype() != fetches[i].dtype())
      once.wrong =
          fmt::format("{} is {}, declared {}", fetches[i].name(), to_string(v.dtype()), to_string(fetches[i].dtype()));
    else if (!fetches[i].shape().compatible(v.shape()))
      once.wrong =
          fmt::format("{} has shape {}, inferred {}", fetches[i].name(), v.shape().str(), fetches[i].shape().str());
  }
  return once;
}

CaseRunner::Once CaseRunner::run_graph(const Graph& graph, const SessionOptions& options,
                                       const std::vector<Feed>& feeds, const std::vector<Output>& fetches,
                                       const std::vector<const Node*>& targets) {
  Session session(*engine_, graph, options);
  auto future = session.run_future(feeds, fetches, targets, {.deadline = deadline_, .random_step = 0});
  if (future.wait_for(deadline_ * 10) != std::future_status::ready) hangs_();
  auto result = future.get();
  Once once;
  once.status = result.status();
  if (result.ok()) once.values = *std::move(result);
  return once;
}

std::optional<CaseRunner::Once> CaseRunner::run_called(const Case& c) {
  const OpDef* op = engine_->ops().find(c.nodes[0].op);
  const auto object = [](const ArgDef& arg) { return arg.dtype == DType::kResource || arg.dtype == DType::kVariant; };
  if (c.nodes.size() != 1 || op->control_flow() != ControlFlow::kNone || op->outputs().empty() ||
      std::ranges::any_of(op->inputs(), object) || std::ranges::any_of(op->outputs(), object) ||
      op->name() == "Placeholder" || op->name() == "LoopCond")
    return {};
  Built built(engine_->ops(), c, true, "");
  if (!built.scope.ok() || built.nodes[0]->num_outputs() == 0) return {};
  const Node& node = *built.nodes[0];
  const int64_t turn = c.turn % 3;
  Graph graph(engine_->ops());
  Once once;
  once.status = from_graph_def(call_of(built.graph, node, turn), graph);
  if (!once.status.ok()) return once;
  std::vector<Feed> feeds;
  for (size_t i = 0; i < built.feeds.size(); ++i)
    feeds.push_back({*graph.output(fmt::format("x{}", i)), built.feeds[i].value});
  if (turn == 1) feeds.push_back({*graph.output("p"), Tensor::scalar(c.turn % 2 == 0)});
  if (turn == 2) feeds.push_back({*graph.output("p"), Tensor::scalar(static_cast<int32_t>(c.turn % 5))});
  std::vector<Output> fetches;
  for (int i = 0; i < node.num_outputs(); ++i) fetches.push_back(*graph.output(fmt::format("call:{}", i)));
  return run_graph(graph, {}, feeds, fetches, {});
}

Outcome CaseRunner::run(const Case& c) {
  Outcome out;
  const Once a = run_once(c, Way::kPasses);
  out.status = a.status;
  const char* names[] = {"without passes", "with inputs fed, their shapes unknown", "in a function that is called"};
  if (!a.wrong.empty()) out.failure = a.wrong;
  for (int i = 0; i < 3; ++i) {
    if (i == 0 && !a.status.ok() && a.status.error().device.empty()) continue;  // it failed before it ran
    const auto made = i < 2 ? run_once(c, i == 0 ? Way::kNoPasses : Way::kFed) : run_called(c);
    if (!made) continue;
    const Once& b = *made;
    if (!out.failure.empty()) continue;
    if (!b.wrong.empty()) out.failure = fmt::format("{}: {}", names[i], b.wrong);
    else if (without_verdict(a.status) || without_verdict(b.status) || c.unsteady) continue;
    else if (a.status.ok() != b.status.ok()) {
      if (!wants_rank(a.status))
        out.failure = fmt::format("with constants it {}, but {} it {}", said(a.status), names[i], said(b.status));
    } else
      for (size_t k = 0; k < a.values.size() && out.failure.empty(); ++k)
        if (!agree(a.values[k], b.values[k], c.close))
          out.failure = fmt::format("result {} is {} with constants, {} {}", k, a.values[k].str(64),
                                    b.values[k].str(64), names[i]);
  }
  return out;
}

}  // namespace troupe::fuzz
