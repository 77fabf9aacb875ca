// SPDX-License-Identifier: Apache-2.0
// The subcommand run: loads a graph, initialises it, runs steps, writes what is fetched.
#include "cli/run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/join.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/read_graph.h"
#include "io/model_files.h"
#include "io/whole_file.h"
#include "programs/cluster_flags.h"
#include "troupe/npy.h"
#include "troupe/saved_model.h"
#include "troupe/session.h"
#include "troupe/trace_file.h"

namespace troupe {
namespace {

Error in(const char* what, const std::string& name, Error error) {
  error.message = fmt::format("{} '{}': {}", what, name, error.message);
  return error;
}

/// The tensors of one fetch, step after step, in one tensor with a first axis of steps.
class Stack {
 public:
  Status add(const std::string& name, int64_t step, int64_t steps, const Tensor& value) {
    if (step == 0) {
      if (value.rank() == kMaxRank)
        return invalid_argument("fetch '{}' has {} dimensions; with --all-steps there is one more, and {} are most",
                                name, value.rank(), kMaxRank);
      Shape shape = value.shape();
      shape.insert(0, steps);
      auto all = Tensor::make(value.dtype(), shape);
      if (!all.ok()) return in("fetch", name, std::move(all.error()));
      all_ = std::move(*all);
      each_ = value.shape();
    }
    if (!(value.shape() == each_))
      return invalid_argument("fetch '{}' has shape {} in step {} and {} before: it cannot be stacked", name,
                              value.shape().str(), step, each_.str());
    const int64_t n = value.elements();
    if (value.dtype() == DType::kString)
      std::copy_n(value.data<std::string>(), n, all_.mutable_data<std::string>() + step * n);
    else std::memcpy(static_cast<char*>(all_.mutable_raw()) + step * value.bytes(), value.raw(), value.bytes());
    return {};
  }
  Tensor take() { return std::move(all_); }

 private:
  Tensor all_;
  Shape each_;
};

/// What a step of the job is, looked up in the graph.
struct Signature {
  std::vector<Output> feeds, fetches;
  std::vector<std::string> names;  // of the fetches
  std::vector<Tensor> values;
  std::vector<const Node*> init, targets;
};

Status find_nodes(const Graph& graph, const char* what, const std::vector<std::string>& names,
                  std::vector<const Node*>& out) {
  for (const std::string& name : names) {
    auto output = graph.output(name);
    if (!output.ok()) return in(what, name, std::move(output.error()));
    out.push_back(output->node);
  }
  return {};
}

/// A feed or a fetch: by its name in the model's signature, if it has that, else in the graph.
Result<Output> find_tensor(const Graph& graph, const std::map<std::string, SignatureTensor>& named,
                           const std::string& name) {
  if (const auto at = named.find(name); at != named.end()) return at->second.output;
  auto output = graph.output(name);
  if (output.ok() || named.empty()) return output;
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : named) keys.push_back(in_quotes(key));
  output.error().message += fmt::format("; the signature has: {}", join(keys, ", "));
  return output;
}

Result<Signature> look_up(const Graph& graph, const GraphRun& job, const ModelSignature& model) {
  Signature out;
  for (const auto& [name, value] : job.feeds) {
    auto output = find_tensor(graph, model.inputs, name);
    if (!output.ok()) return in("feed", name, std::move(output.error()));
    out.feeds.push_back(*output);
    out.values.push_back(value);
  }
  for (const auto& [name, tensor] : model.inputs) {
    if (std::ranges::find(out.feeds, tensor.output) != out.feeds.end()) continue;
    if (!tensor.value)
      return invalid_argument("signature '{}' needs input '{}' ({} {}): --feeds FILE.npz gives it", job.signature, name,
                              to_string(tensor.dtype), tensor.shape.str());
    out.feeds.push_back(tensor.output);
    out.values.push_back(*tensor.value);
  }
  out.names = job.fetches;
  if (out.names.empty() && job.targets.empty())
    for (const auto& [name, tensor] : model.outputs) out.names.push_back(name);
  for (const std::string& name : out.names) {
    auto output = find_tensor(graph, model.outputs, name);
    if (!output.ok()) return in("fetch", name, std::move(output.error()));
    if (output->port >= output->node->num_outputs())
      return invalid_argument("fetch '{}': {} has no outputs; it may be a target", name, output->node->op().name());
    if (is_object(output->dtype()) && output->dtype() != DType::kString)
      return invalid_argument("fetch '{}' is a {}, which cannot be written", name, to_string(output->dtype()));
    out.fetches.push_back(*output);
  }
  TROUPE_RETURN_IF_ERROR(find_nodes(graph, "init", job.init, out.init));
  TROUPE_RETURN_IF_ERROR(find_nodes(graph, "target", job.targets, out.targets));
  return out;
}

Result<std::vector<Tensor>> run_steps(Session& session, const GraphRun& job, const Signature& signature) {
  TROUPE_ASSIGN(const auto step, session.prepare(signature.feeds, signature.fetches, signature.targets));
  RunOptions options;
  std::unique_ptr<TraceFile> file;
  if (!job.trace.empty()) {
    TROUPE_ASSIGN(file, TraceFile::create(job.trace, session.engine()));
    options.trace = std::make_shared<Trace>();
  }
  std::vector<Stack> stacks(signature.fetches.size());
  std::vector<Tensor> fetched;
  for (int64_t i = 0; i < job.steps; ++i) {
    TROUPE_ASSIGN(fetched, session.run(step, signature.values, options));
    if (job.all_steps)
      for (size_t f = 0; f < fetched.size(); ++f)
        TROUPE_RETURN_IF_ERROR(stacks[f].add(signature.names[f], i, job.steps, fetched[f]));
    if (file) TROUPE_RETURN_IF_ERROR(file->write(options.trace->take()));
    if (job.after_step) job.after_step(i + 1);
  }
  if (file) TROUPE_RETURN_IF_ERROR(file->close());
  if (job.all_steps)
    for (size_t f = 0; f < fetched.size(); ++f) fetched[f] = stacks[f].take();
  return fetched;
}

/// Steps that measure what nodes cost, beside those that a session measures anyway.
constexpr int64_t kTimedSteps = 20;

/// What an earlier run measured; nothing where there is no file yet.
Result<std::shared_ptr<const CostModel>> load_costs(const std::string& path) {
  auto costs = CostModel::load(path);
  if (!costs.ok() && costs.error().code == Code::kNotFound) return std::make_shared<const CostModel>();
  if (!costs.ok()) return std::move(costs.error());
  return std::make_shared<const CostModel>(std::move(*costs));
}

/// Tells a terminal how far the steps are, a few times a second; it is wiped out at the end.
class Progress {
 public:
  explicit Progress(int64_t steps) : steps_(steps) {}
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  void operator()(int64_t done) {
    const auto now = Clock::now();
    if (!terminal_ || now - drawn_ < std::chrono::milliseconds(200)) return;
    drawn_ = now;
    shown_ = true;
    const double rate = static_cast<double>(done) / std::chrono::duration<double>(now - begun_).count();
    const auto left = static_cast<int64_t>(static_cast<double>(steps_ - done) / rate);
    fmt::print(stderr, "\r\033[Kstep {} of {}  {:.1f} steps/s  {}:{:02} left", done, steps_, rate, left / 60,
               left % 60);
    std::fflush(stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const int64_t steps_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point drawn_ = begun_;
  bool shown_ = false;
};

/// The signature that models have for whoever names none.
constexpr const char* kDefaultSignature = "serving_default";

struct Options {
  std::string graph, feeds, out, devices, passes = "default";
  bool place = false;
  programs::ClusterFlags cluster = {};
  GraphRun job = {};
};

Status run(Options& o) {
  const bool is_model = names_model(o.graph);
  if (o.job.init.empty() && o.job.fetches.empty() && o.job.targets.empty() && o.job.signature.empty()) {
    if (!is_model) return invalid_argument("nothing to run: give --fetch, --target or --init");
    o.job.signature = kDefaultSignature;
  }
  if (!is_model && !(o.job.signature.empty() && o.job.tags.empty()))
    return invalid_argument("--signature and --tags are of models: '{}' is neither a folder nor a .meta file", o.graph);
  TROUPE_ASSIGN(const OwnDevices devices, read_own_devices(o.devices));
  o.job.engine = o.cluster.engine({.cpu_threads = devices.cpu_threads, .gpus = {.cards = devices.gpus}});
  if (devices.gpus > 0) o.job.default_device = "/job:localhost/gpu:0";
  TROUPE_ASSIGN(o.job.passes, GraphPasses::parse(o.passes));
  o.job.placing = o.place ? Placing::kByCost : Placing::kByHand;
  o.job.engine.cluster.measure_links = o.place;
  if (is_model) {
    o.job.model = o.graph;
  } else {
    o.job.file = o.graph;
    TROUPE_ASSIGN(o.job.graph, read_file(o.graph));
  }
  if (!o.feeds.empty()) {
    TROUPE_ASSIGN(o.job.feeds, read_npz(o.feeds));
  }
  auto progress = std::make_unique<Progress>(o.job.steps);
  o.job.after_step = std::ref(*progress);
  auto fetched = run_graph(o.job);
  progress.reset();  // the line it has drawn gives way to what comes
  if (!fetched.ok()) return std::move(fetched.error());
  if (!o.out.empty()) return write_npz(o.out, *fetched);
  if (o.job.fetches.empty())
    for (const auto& [name, value] : *fetched) o.job.fetches.push_back(name);
  for (const std::string& name : o.job.fetches) fmt::print("{} {}\n", printable(name), fetched->at(name).str());
  return {};
}

}  // namespace

Result<std::map<std::string, Tensor>> run_graph(const GraphRun& job) {
  std::unique_ptr<Engine> own;
  if (!job.on) {
    TROUPE_ASSIGN(own, Engine::create(job.engine));
  }
  Engine* const engine = job.on ? job.on : own.get();
  SessionOptions options{
      .default_device = job.default_device, .soft_placement = true, .passes = job.passes, .placing = job.placing};
  options.deadline = std::chrono::nanoseconds(std::llround(job.deadline * 1e9));
  if (!job.costs.empty()) {
    TROUPE_ASSIGN(options.costs, load_costs(job.costs));
    options.timed_steps = kTimedSteps;
  }
  std::optional<SavedModel> model;
  std::optional<Graph> own_graph;
  std::optional<Session> own_session;
  ModelSignature by_name;
  if (job.model.empty()) {
    own_graph.emplace(engine->ops());
    TROUPE_RETURN_IF_ERROR(add_graph(job.graph, job.file, *own_graph));
    own_session.emplace(*engine, *own_graph, options);
  } else {
    TROUPE_ASSIGN(model, load_saved_model(*engine, job.model, {.tags = job.tags, .session = options}));
    if (!job.signature.empty()) {
      TROUPE_ASSIGN(const ModelSignature* found, model->signature(job.signature));
      by_name = *found;
    }
  }
  const Graph& graph = model ? model->graph() : *own_graph;
  Session& session = model ? model->session() : *own_session;
  TROUPE_ASSIGN(const Signature signature, look_up(graph, job, by_name));
  if (!signature.init.empty()) {
    TROUPE_ASSIGN(const auto init, session.prepare(signature.feeds, {}, signature.init));
    TROUPE_RETURN_IF_ERROR(session.run(init, signature.values));
  }
  std::map<std::string, Tensor> out;
  if (signature.fetches.empty() && signature.targets.empty()) return out;
  TROUPE_ASSIGN(std::vector<Tensor> fetched, run_steps(session, job, signature));
  if (!job.costs.empty()) TROUPE_RETURN_IF_ERROR(session.costs().save(job.costs));
  for (size_t i = 0; i < fetched.size(); ++i) out[signature.names[i]] = std::move(fetched[i]);
  return out;
}

void add_run(CLI::App& app, Job& job) {
  auto o = std::make_shared<Options>();
  CLI::App& run_app = *app.add_subcommand("run", "Runs steps of a graph or a SavedModel and writes what is fetched");
  run_app
      .add_option("GRAPH", o->graph,
                  "A GraphDef, binary or text; a SavedModel's folder; a .meta file beside its checkpoint")
      ->required();
  run_app.add_option("--signature", o->job.signature,
                     "NAME: a signature of the model: its inputs are fed, its outputs fetched by their names "
                     "[serving_default, where there is no --fetch, --target or --init]");
  run_app.add_option("--tags", o->job.tags, "TAG,...: which graph of a SavedModel [the only one, or that of serve]")
      ->delimiter(',')
      ->allow_extra_args(false);
  run_app.add_option("--feeds", o->feeds,
                     "A .npz file whose keys are tensor names, x:0, or inputs of the signature; fed in every step");
  run_app.add_option("--init", o->job.init, "NODE,...: run once before the first step")
      ->delimiter(',')
      ->allow_extra_args(false);
  run_app.add_option("--steps", o->job.steps, "How many steps")
      ->check(CLI::Range(int64_t{1}, INT64_MAX - 1))  // a greater number is read as INT64_MAX
      ->capture_default_str();
  run_app.add_option("--fetch", o->job.fetches, "NAME:PORT,...: tensors wanted")
      ->delimiter(',')
      ->allow_extra_args(false);
  run_app.add_option("--target", o->job.targets, "NODE,...: run in each step")->delimiter(',')->allow_extra_args(false);
  run_app.add_option("--out", o->out, "A .npz file for the fetches, by their names; without it they are printed");
  run_app.add_option("--deadline", o->job.deadline, "Seconds that a step, or --init, may take [any]")
      ->check(CLI::Range(1e-3, 1e9));
  run_app.add_flag("--all-steps", o->job.all_steps, "Fetches of all steps, stacked on a new first axis [of the last]");
  run_app.add_option(
      "--devices", o->devices,
      "cpu=N, gpu=N, or both with +: CPU devices share the cores; where there are GPUs, nodes that ask for no "
      "device are on the first [cpu=1]");
  run_app.add_option("--passes", o->passes, "all, none or NAME,...: graph passes to run [those on by default]");
  run_app.add_flag("--place", o->place,
                   "Place nodes by cost [by hand: where they ask to be, else on the first device]");
  run_app.add_option("--costs", o->job.costs,
                     "A file for what nodes cost: begun with, if it is there, and written with what 20 steps measured");
  run_app.add_option("--trace", o->job.trace, "A file for the trace of the steps, which Perfetto opens");
  o->cluster.add_to(run_app);
  run_app.callback([o, &job] { job = [o] { return run(*o); }; });
}

}  // namespace troupe
