// SPDX-License-Identifier: Apache-2.0
// The subcommand run: loads a graph, initialises it, runs steps, writes what is fetched.
#include "cli/run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <optional>

#include "base/device_name.h"
#include "base/join.h"
#include "base/printable.h"
#include "cli/checkpoint_files.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/feed_values.h"
#include "cli/queue_runners.h"
#include "cli/read_graph.h"
#include "graph/prune.h"
#include "io/model_files.h"
#include "io/whole_file.h"
#include "programs/cluster_flags.h"
#include "troupe/guarded.h"
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
  /// `steps`: how many there will be; 0: who knows.
  Status add(const std::string& name, int64_t step, int64_t steps, const Tensor& value) {
    if (step == 0) {
      if (value.rank() == kMaxRank)
        return invalid_argument("fetch '{}' has {} dimensions; with --all-steps there is one more, and {} are most",
                                name, value.rank(), kMaxRank);
      each_ = value.shape();
      dtype_ = value.dtype();
    }
    if (!(value.shape() == each_))
      return invalid_argument("fetch '{}' has shape {} in step {} and {} before: it cannot be stacked", name,
                              value.shape().str(), step + 1, each_.str());
    if (step >= room_)
      if (Status grown = grow(step, steps > 0 ? steps : std::max(kFirst, 2 * room_)); !grown.ok())
        return in("fetch", name, std::move(grown.error()));
    put(value, step);
    count_ = step + 1;
    return {};
  }
  Result<Tensor> take() { return all_.defined() ? all_.slice(0, count_) : Result<Tensor>(std::move(all_)); }

 private:
  static constexpr int64_t kFirst = 64;

  Status grow(int64_t filled, int64_t room) {
    Shape shape = each_;
    shape.insert(0, room);
    TROUPE_ASSIGN(Tensor larger, Tensor::make(dtype_, shape));
    const Tensor before = std::exchange(all_, std::move(larger));
    room_ = room;
    if (filled > 0) copy_elements(dtype_, before.raw(), all_.mutable_raw(), filled * each_.elements());
    return {};
  }
  void put(const Tensor& value, int64_t step) {
    char* const to = static_cast<char*>(all_.mutable_raw()) + static_cast<size_t>(step) * value.bytes();
    copy_elements(dtype_, value.raw(), to, value.elements());
  }

  Tensor all_;
  Shape each_;
  DType dtype_ = DType::kInvalid;
  int64_t room_ = 0, count_ = 0;
};

/// What a step of the job is, looked up in the graph.
struct Signature {
  std::vector<Output> feeds, fetches;  // feeds: those that are the same in every step
  std::vector<Output> step_feeds;
  std::vector<std::string> names;  // of the fetches
  std::vector<Tensor> values;      // of `feeds`
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

Result<Signature> look_up(const Graph& graph, const GraphRun& job, const ModelSignature& model,
                          const std::vector<std::string>& step_feeds) {
  Signature out;
  const auto is_fed = [&out](const Output& output) {
    return std::ranges::find(out.feeds, output) != out.feeds.end() ||
           std::ranges::find(out.step_feeds, output) != out.step_feeds.end();
  };
  for (const auto& [name, value] : job.feeds) {
    auto output = find_tensor(graph, model.inputs, name);
    if (!output.ok()) return in("feed", name, std::move(output.error()));
    out.feeds.push_back(*output);
    out.values.push_back(value);
    if (output->port >= output->node->num_outputs() || output->dtype() != DType::kBFloat16) continue;
    auto rounded = converted({.name = name, .dtype = DType::kBFloat16}, value);  // files have no such numbers
    if (!rounded.ok()) return in("feed", name, std::move(rounded.error()));
    out.values.back() = std::move(*rounded);
  }
  for (const std::string& name : step_feeds) {
    auto output = find_tensor(graph, model.inputs, name);
    if (!output.ok()) return in("feed", name, std::move(output.error()));
    if (output->port >= output->node->num_outputs())
      return invalid_argument("feed '{}': {} has no outputs", name, output->node->op().name());
    if (is_fed(*output)) return invalid_argument("feed '{}' is given twice", name);
    out.step_feeds.push_back(*output);
  }
  for (const auto& [name, tensor] : model.inputs) {
    if (is_fed(tensor.output)) continue;
    if (!tensor.value)
      return invalid_argument("signature '{}' needs input '{}' ({} {}): --feeds FILE.npz gives it, or --data {}=FILE",
                              job.signature, name, to_string(tensor.dtype), tensor.shape.str(), name);
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

/// Nodes that the steps need, and with `init` those that --init needs.
std::vector<const Node*> needed_by(const Graph& graph, const Signature& signature, bool init = false) {
  std::vector<Output> feeds = signature.feeds;
  feeds.insert(feeds.end(), signature.step_feeds.begin(), signature.step_feeds.end());
  const std::lock_guard lock(graph.mutex());
  std::vector<const Node*> targets = signature.targets;
  if (init) targets.insert(targets.end(), signature.init.begin(), signature.init.end());
  return needed_nodes(graph, feeds, signature.fetches, targets);
}

/// The tables that steps can write to, whose contents a checkpoint does not have, in a line; empty without such.
std::string tables_not_saved(const Graph& graph) {
  std::vector<std::string> tables;
  const std::lock_guard lock(graph.mutex());
  for (int id = 0; id < graph.size(); ++id)
    if (const std::string& op = graph.node(id).op().name(); op.starts_with("Mutable") && op.ends_with("V2"))
      tables.push_back(in_quotes(graph.node(id).name()));
  if (tables.empty()) return {};
  return fmt::format("the checkpoint has variables, and not what is in tables: {}", join(tables, ", "));
}

/// Which devices of a cluster nodes ask for whose tasks it has not, in a line; empty: none, or it is one process.
std::string tasks_not_there(const std::vector<const Node*>& nodes, const std::vector<std::string>& devices) {
  std::vector<DeviceName> tasks;
  for (const std::string& name : devices)
    if (const auto device = DeviceName::parse(name); device.ok())
      if (const DeviceName task{device->job, device->replica, device->task}; std::ranges::count(tasks, task) == 0)
        tasks.push_back(task);
  if (tasks.size() < 2) return {};
  std::map<std::string, std::vector<std::string>> missing;
  for (const Node* node : nodes) {
    const auto asked = DeviceName::parse(node->device());
    if (!asked.ok()) continue;
    const DeviceName task{asked->job, asked->replica, asked->task};
    const auto is_it = [&](const DeviceName& there) { return task.matches(there); };
    if (std::ranges::none_of(tasks, is_it)) missing[task.str()].push_back(node->name());
  }
  std::vector<std::string> parts;
  for (const auto& [task, names] : missing)
    parts.push_back(fmt::format("{} (asked for by '{}'{})", task, names[0],
                                names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : ""));
  if (parts.empty()) return {};
  return fmt::format("the cluster has no {}; the nodes are placed where there is one of the kind",
                     join(parts, ", no "));
}

/// One step after the other, each with the data of its own.
class Steps {
 public:
  Steps(Session& session, const GraphRun& job, const Signature& signature, StepFeeds& data)
      : session_(session), job_(job), signature_(signature), data_(data) {}

  /// Reads the data of the first step.
  Status begin() { return data_.empty() ? Status() : read(); }

  Result<std::vector<Tensor>> run() {
    std::vector<Output> feeds = signature_.feeds;
    feeds.insert(feeds.end(), signature_.step_feeds.begin(), signature_.step_feeds.end());
    TROUPE_ASSIGN(step_, session_.prepare(feeds, signature_.fetches, signature_.targets));
    std::unique_ptr<TraceFile> file;
    if (!job_.trace.empty()) {
      TROUPE_ASSIGN(file, TraceFile::create(job_.trace, session_.engine()));
      options_.trace = std::make_shared<Trace>();
    }
    std::vector<Stack> stacks(signature_.fetches.size());
    std::vector<Tensor> fetched;
    for (int64_t i = 0; data_.empty() ? i < job_.steps : next_.has_value(); ++i) {
      TROUPE_ASSIGN(fetched, run_one());
      if (job_.all_steps)
        for (size_t f = 0; f < fetched.size(); ++f)
          TROUPE_RETURN_IF_ERROR(stacks[f].add(signature_.names[f], i, job_.steps, fetched[f]));
      if (file) TROUPE_RETURN_IF_ERROR(file->write(options_.trace->take()));
      if (job_.after_step) job_.after_step(i + 1);
    }
    if (file) TROUPE_RETURN_IF_ERROR(file->close());
    if (job_.all_steps)
      for (size_t f = 0; f < fetched.size(); ++f) {
        TROUPE_ASSIGN(fetched[f], stacks[f].take());
      }
    return fetched;
  }

 private:
  Status read() {
    TROUPE_ASSIGN(next_, data_.next());
    return {};
  }

  /// Runs a step, and reads the data of the next one meanwhile.
  Result<std::vector<Tensor>> run_one() {
    if (data_.empty()) return session_.run(step_, signature_.values, options_);
    std::vector<Tensor> values = signature_.values;
    values.insert(values.end(), next_->begin(), next_->end());
    std::promise<RunResult> promise;
    auto result = promise.get_future();
    session_.run_async(
        step_, std::move(values), [&promise](RunResult r) { promise.set_value(std::move(r)); }, options_);
    const Status data = guarded([this] { return read(); });
    auto fetched = result.get();
    if (!fetched.ok() || data.ok()) return fetched;
    return data.error();
  }

  Session& session_;
  const GraphRun& job_;
  const Signature& signature_;
  StepFeeds& data_;
  std::shared_ptr<Session::Prepared> step_;
  RunOptions options_;
  std::optional<std::vector<Tensor>> next_;  // the data of the step that comes
};

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
class StepsDone {
 public:
  /// 0: who knows how many.
  explicit StepsDone(int64_t steps) : steps_(steps) {}
  ~StepsDone() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  void operator()(int64_t done) {
    const auto now = Clock::now();
    if (!terminal_ || now - drawn_ < std::chrono::milliseconds(200)) return;
    drawn_ = now;
    shown_ = true;
    const double rate = static_cast<double>(done) / std::chrono::duration<double>(now - begun_).count();
    if (steps_ == 0) {
      fmt::print(stderr, "\r\033[Kstep {}  {:.1f} steps/s", done, rate);
      std::fflush(stderr);
      return;
    }
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

struct RunArguments {
  std::string graph, feeds, out, devices, passes = "default";
  bool place = false;
  int64_t steps = 0;  // 0: not given
  programs::ClusterFlags cluster = {};
  GraphRun job = {};
};

/// What is wrong with the command line, as far as it tells without a file.
Status check(const RunArguments& o) {
  TROUPE_RETURN_IF_ERROR(read_own_devices(o.devices));
  if (const auto passes = GraphPasses::parse(o.passes); !passes.ok())
    return invalid_argument("--passes {}: {}", o.passes, passes.error().message);
  return {};
}

Status run(RunArguments& o) {
  const bool is_model = names_model(o.graph);
  // A checkpoint alone is written from what the model begins with; what is said of steps asks for some.
  const bool steps =
      o.job.checkpoint_out.empty() || o.steps != 0 || !o.feeds.empty() || !o.out.empty() || !o.job.data.files.empty();
  if (o.job.init.empty() && o.job.fetches.empty() && o.job.targets.empty() && o.job.signature.empty() && steps) {
    if (!is_model)
      return with_kind_of_file(o.graph, "a graph",
                               invalid_argument("nothing to run: give --fetch, --target or --init"));
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
  o.job.steps = o.steps == 0 && o.job.data.files.empty() ? 1 : o.steps;
  auto progress = std::make_unique<StepsDone>(o.job.steps);
  o.job.after_step = std::ref(*progress);
  o.job.note = [](const std::string& line) { fmt::print(stderr, "troupe: {}\n", line); };
  auto fetched = run_graph(o.job);
  progress.reset();  // the line it has drawn gives way to what comes
  if (!fetched.ok()) return std::move(fetched.error());
  if (!o.out.empty()) {
    for (auto& [name, value] : *fetched) {
      if (value.dtype() != DType::kBFloat16) continue;  // NumPy has no such dtype; float32 has its numbers
      TROUPE_ASSIGN(value, converted({.name = name, .dtype = DType::kFloat32}, value));
    }
    return write_npz(o.out, *fetched);
  }
  if (o.job.fetches.empty())
    for (const auto& [name, value] : *fetched) o.job.fetches.push_back(name);
  for (const std::string& name : o.job.fetches) fmt::print("{} {}\n", printable(name), fetched->at(name).str());
  return {};
}

void add_data(CLI::App& run_app, DataOptions& data) {
  const CLI::Range any_count(int64_t{0}, INT64_MAX - 1);
  run_app
      .add_option("--data", data.files,
                  "FEED=FILE: a feed that has another row of the file in each step: of an array (.npy, idx, or "
                  "FILE.npz:KEY), of comma-separated text (FILE:COLUMN,COLUMN,A..B, by names or numbers from 0) or of "
                  "TFRecord files (FILE:FEATURE of tf.train.Example; the record itself without). FILE.npz alone: its "
                  "keys are feeds. Text and TFRecord files may be a pattern. May be repeated")
      ->allow_extra_args(false);
  run_app.add_option("--batch", data.batch, "So many rows of --data at once, on a new first axis [one row, without]")
      ->check(CLI::Range(int64_t{1}, INT64_MAX - 1));
  run_app.add_flag("--drop-remainder", data.drop_remainder, "Leave out the smaller batch at the end of each pass");
  run_app.add_option("--shuffle", data.shuffle, "Draw from so many rows of --data at random, anew in each pass")
      ->check(CLI::Range(int64_t{1}, INT64_MAX - 1));
  run_app.add_option("--seed", data.seed, "Of --shuffle")->capture_default_str();
  run_app.add_option("--epochs", data.epochs, "How often to pass over --data; 0: as often as --steps takes")
      ->check(any_count)
      ->capture_default_str();
  run_app
      .add_option("--scale", data.scale,
                  "FEED=NUMBER or FEED=A/B: what numbers of --data are multiplied by, as pixels by 1/255")
      ->allow_extra_args(false);
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
  TROUPE_ASSIGN(StepFeeds data, StepFeeds::open(job.data));
  TROUPE_ASSIGN(const Signature signature, look_up(graph, job, by_name, data.names()));
  const std::vector<const Node*> needed = needed_by(graph, signature);
  if (const auto line = tasks_not_there(needed, engine->devices());
      job.note && !line.empty() && job.engine.cluster.scatter == 0)
    job.note(line);
  const bool is_saved_model = model && !job.model.ends_with(".meta");
  GraphVariables variables = GraphVariables::of(graph, needed, is_saved_model);
  if (!job.checkpoint_out.empty()) {
    const auto all = GraphVariables::of(graph, needed_by(graph, signature, true), is_saved_model);
    TROUPE_RETURN_IF_ERROR(check_target(all, job.checkpoint_out));
    if (const auto line = tables_not_saved(graph); job.note && !line.empty()) job.note(line);
  }
  if (!data.empty()) TROUPE_RETURN_IF_ERROR(data.begin(signature.step_feeds, job.steps));
  Steps steps(session, job, signature, data);
  TROUPE_RETURN_IF_ERROR(steps.begin());
  if (!signature.init.empty()) {
    TROUPE_ASSIGN(const auto init, session.prepare(signature.feeds, {}, signature.init));
    TROUPE_RETURN_IF_ERROR(session.run(init, signature.values));
  }
  if (!job.checkpoint.empty()) {
    std::vector<std::string> notes;
    variables.name_objects(job.model);
    TROUPE_RETURN_IF_ERROR(restore_variables(*engine, variables, job.checkpoint, notes));
    for (const std::string& line : notes)
      if (job.note) job.note(line);
  }
  std::map<std::string, Tensor> out;
  std::vector<Tensor> fetched;
  const bool has_steps = !signature.fetches.empty() || !signature.targets.empty();
  if (has_steps) {
    QueueRunners runners(session);
    if (model) runners.start(used_queue_runners(graph, model->queue_runners(), needed));
    auto result = steps.run();
    // What stopped the runners is why the steps got no more.
    if (Status stopped = runners.stop(); !stopped.ok() && !result.ok()) return std::move(stopped.error());
    TROUPE_ASSIGN(fetched, std::move(result));
  }
  if (!job.checkpoint_out.empty()) TROUPE_RETURN_IF_ERROR(save_variables(*engine, variables, job.checkpoint_out));
  if (!job.costs.empty() && has_steps) TROUPE_RETURN_IF_ERROR(session.costs().save(job.costs));
  for (size_t i = 0; i < fetched.size(); ++i) out[signature.names[i]] = std::move(fetched[i]);
  return out;
}

void add_run(CLI::App& app, Job& job) {
  // An empty one is a slip, such as a variable of a shell that is not set, and would lose what the run made.
  const CLI::Validator names_file(
      [](const std::string& text) { return std::string(text.empty() ? "the name of a file is missing" : ""); }, "");
  auto o = std::make_shared<RunArguments>();
  CLI::App& run_app = *app.add_subcommand("run", "Runs steps of a graph or a SavedModel and writes what is fetched");
  run_app
      .add_option("GRAPH", o->graph,
                  "A GraphDef, binary or text; a SavedModel's folder; a .meta file beside its checkpoint")
      ->required();
  run_app.add_option(
      "--signature", o->job.signature,
      "NAME: a signature of the model: its inputs are fed, its outputs fetched by their names "
      "[serving_default, where there is no --fetch, --target or --init, and not --checkpoint-out alone]");
  run_app.add_option("--tags", o->job.tags, "TAG,...: which graph of a SavedModel [the only one, or that of serve]")
      ->delimiter(',')
      ->allow_extra_args(false);
  run_app
      .add_option("--feeds", o->feeds,
                  "A .npz file whose keys are tensor names, x:0, or inputs of the signature; the same in every step; "
                  "numbers for bfloat16 are rounded")
      ->check(names_file);
  run_app.add_option("--init", o->job.init, "NODE,...: run once before the first step")
      ->delimiter(',')
      ->allow_extra_args(false);
  run_app
      .add_option("--checkpoint", o->job.checkpoint,
                  "What variables begin with, after --init: a TensorFlow checkpoint (V2 or V1), by its prefix, a "
                  "safetensors file, or a folder with one, of several the latest; what it lacks and what nobody takes "
                  "is listed")
      ->check(names_file);
  run_app
      .add_option("--checkpoint-out", o->job.checkpoint_out,
                  "Where variables are written after the last step: a name that ends in .safetensors, or the prefix "
                  "of a TensorFlow checkpoint (V2); what is there is replaced once the new one is whole")
      ->check(names_file);
  run_app.add_option("--steps", o->steps, "How many steps [1; with --data as many as they give]")
      ->check(CLI::Range(int64_t{1}, INT64_MAX - 1));  // a greater number is read as INT64_MAX
  add_data(run_app, o->job.data);
  run_app.add_option("--fetch", o->job.fetches, "NAME:PORT,...: tensors wanted")
      ->delimiter(',')
      ->allow_extra_args(false);
  run_app.add_option("--target", o->job.targets, "NODE,...: run in each step")->delimiter(',')->allow_extra_args(false);
  run_app
      .add_option("--out", o->out,
                  "A .npz file for the fetches, by their names, bfloat16 as float32; without it they are printed")
      ->check(names_file);
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
  run_app
      .add_option("--costs", o->job.costs,
                  "A file for what nodes cost: begun with, if it is there, and written with what 20 steps measured")
      ->check(names_file);
  run_app.add_option("--trace", o->job.trace, "A file for the trace of the steps, which Perfetto opens")
      ->check(names_file);
  o->cluster.add_to(run_app);
  run_app.callback([o, &job] {
    if (const Status status = check(*o); !status.ok()) throw CLI::ValidationError("run", status.error().message);
    job = [o] { return run(*o); };
  });
}

}  // namespace troupe
