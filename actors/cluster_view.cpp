// SPDX-License-Identifier: Apache-2.0
#include "actors/cluster_view.h"

#include <algorithm>

#include "actors/step_timer.h"
#include "base/log.h"
#include "troupe/resource.h"

namespace troupe {

namespace {

/// What the planner calls a variable: see resource_key().
std::string variable_key(const std::string& container, const std::string& name) {
  ResourceHandle handle;
  handle.type = "VarHandleOp";
  handle.container = container;
  handle.name = name;
  return handle.host_key();
}

/// What the keys of a container's resources have behind the kind: "/<container>/".
std::string within(const std::string& container) {
  ResourceHandle handle;
  handle.container = container;
  return handle.host_key();
}
/// That of the container in a resource's key, where slashes of its name have a backslash before them.
std::string container_in(const std::string& key) {
  const size_t begin = key.find('/');
  size_t end = begin + 1;
  while (end < key.size() && key[end] != '/') end += key[end] == '\\' ? 2 : 1;
  return key.substr(begin, end + 1 - begin);
}
bool is_within(const std::string& key, const std::string& within) {
  return key.substr(key.find('/')).starts_with(within);
}

/// Whether a node does more with a variable than to read it.
bool may_change(const Graph& graph) {
  for (int id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const std::string& op = node.op().name();
    if (op == "ReadVariableOp" || op == "ResourceGather" || op == "VariableShape") continue;
    for (const Output& in : node.inputs())
      if (in && in.node->op().name() == "VarHandleOp") return true;
  }
  return false;
}

}  // namespace

// -- steps ------------------------------------------------------------------------------------------------------------

int64_t ClusterView::begin(std::atomic<int64_t>& next) {
  std::lock_guard guard(mutex_);
  const int64_t step = next.fetch_add(1, std::memory_order_relaxed);
  steps_.insert(step);
  return step;
}

int64_t ClusterView::oldest() const {
  std::lock_guard guard(mutex_);
  return steps_.empty() ? 0 : *steps_.begin();
}

void ClusterView::ended(int64_t step) {
  std::function<void()> gone;  // of one that was never sent
  std::lock_guard guard(mutex_);
  steps_.erase(step);
  sent_.erase(step);
}

void ClusterView::send_runs(int64_t step, bool changes, std::function<void()> send) {
  {
    std::lock_guard guard(mutex_);
    if (holds_ > 0) {
      held_.push_back({step, changes, std::move(send)});
      return;
    }
    if (changes && steps_.contains(step)) sent_.insert(step);
    ++sending_;
  }
  send();
  sent();
}

void ClusterView::sent() {
  std::unique_lock lock(mutex_);
  if (--sending_ > 0 || telling_) return;
  telling_ = true;
  while (sending_ == 0 && !when_sent_.empty()) {
    Held then = std::move(when_sent_.front());
    when_sent_.pop_front();
    const std::vector<int64_t> steps(sent_.begin(), sent_.end());
    lock.unlock();
    then(steps);
    then = nullptr;
    lock.lock();
  }
  telling_ = false;
}

void ClusterView::hold(Held then) {
  {
    std::lock_guard guard(mutex_);
    begin_hold(std::move(then));
  }
  sent();
}

void ClusterView::begin_hold(Held then) {
  ++holds_;
  ++sending_;  // so that it is called by sent(), of this thread or of who is sending
  when_sent_.push_back(std::move(then));
}

void ClusterView::release() {
  decltype(held_) held;
  {
    std::lock_guard guard(mutex_);
    if (--holds_ > 0) return;
    held.swap(held_);
  }
  for (Run& run : held) send_runs(run.step, run.changes, std::move(run.send));
}

void ClusterView::set_devices(std::vector<std::string> names) {
  devices_ = std::move(names);
  for (uint32_t i = 0; i < devices_.size(); ++i) numbers_[devices_[i]] = i;
}

std::optional<uint32_t> ClusterView::device(const std::string& name) const {
  const auto at = numbers_.find(name);
  return at == numbers_.end() ? std::nullopt : std::optional(at->second);
}

// -- containers -------------------------------------------------------------------------------------------------------

uint32_t ClusterView::home(const std::string& key, uint32_t device) {
  uint32_t out = device;
  {
    std::lock_guard guard(mutex_);
    const auto [home, fresh] = homes_.try_emplace(key, device);
    out = home->second;
    if (!fresh) return out;
    // Also once the container was reset: steps that are planned make it anew.
    holders_[container_in(key)].insert(task_of(devices_[out]));
    const auto link = links.at(task_of(devices_[out]));
    bool placed = false;
    for (auto& [container, variables] : unplaced_)
      for (auto at = variables.begin(); at != variables.end(); ++at) {
        if (variable_key(container, at->first) != key) continue;
        // What has been restored is there before a run that may read it is sent.
        const auto placing = std::make_shared<Placing>(std::move(at->second));
        begin_hold([self = shared_from_this(), link, container, name = at->first, placing](const auto&) {
          self->place(*link, container, name, placing);
        });
        placing_[container][at->first] = placing;
        variables.erase(at);
        placed = true;
        break;  // `at` is gone
      }
    if (!placed) return out;
  }
  sent();
  return out;
}

void ClusterView::place(TaskLink& link, const std::string& container, const std::string& name,
                        const std::shared_ptr<Placing>& placing) {
  for (;;) {
    ContainerAsk ask{ContainerAsk::Kind::kRestore, container};
    {
      const std::lock_guard guard(mutex_);
      auto& all = placing_[container];
      const auto at = all.find(name);
      if (at == all.end() || at->second != placing) break;  // the container was reset
      if (placing->told) {
        all.erase(at);
        break;
      }
      placing->told = true;
      ask.variables.emplace(name, placing->value);
      ++holds_;
    }
    ask.done = [self = shared_from_this()](Result<Variables> done) {
      if (!done.ok()) log_error("restoring a variable: {}", done.error().message);
      self->release();
    };
    link.ask(std::move(ask));
  }
  release();
}

/// Waits for the answers of all tasks.
class ClusterView::Gathering {
 public:
  /// `home`: the task on which alone a variable of that name counts; empty: on any, but not on two.
  Gathering(size_t tasks, std::function<void()> made, std::function<void(Result<Variables>)> done,
            std::function<std::string(const std::string& name)> home = {})
      : left_(tasks), not_made_(tasks), made_(std::move(made)), done_(std::move(done)), home_(std::move(home)) {}
  void made(std::vector<bool>& told, size_t task) {
    std::function<void()> all;
    {
      std::lock_guard guard(mutex_);
      if (told[task]) return;
      told[task] = true;
      if (--not_made_ == 0) all = std::move(made_);
    }
    if (all) all();
  }
  void answered(const std::string& task, Result<Variables> result) {
    std::unique_lock lock(mutex_);
    if (!result.ok()) {
      if (error_.ok()) error_ = std::move(result.error());
    } else {
      for (auto& [name, value] : *result) {
        if (const std::string home = home_ ? home_(name) : ""; !home.empty() && home != task) continue;
        const auto [at, fresh] = from_.try_emplace(name, task);
        if (fresh) all_.emplace(name, std::move(value));
        else if (error_.ok())
          error_ = make_error(Code::kAlreadyExists, "variable '{}' is on {} and on {}", name, at->second, task);
      }
    }
    if (--left_ > 0) return;
    lock.unlock();
    if (error_.ok()) done_(std::move(all_));
    else done_(std::move(error_.error()));
  }

 private:
  std::mutex mutex_;
  size_t left_, not_made_;
  std::function<void()> made_;
  std::function<void(Result<Variables>)> done_;
  std::function<std::string(const std::string&)> home_;
  Variables all_;
  std::map<std::string, std::string> from_;
  Status error_;
};

void ClusterView::ask_all(ContainerAsk::Kind kind, const std::string& container, const std::vector<int64_t>& steps,
                          std::function<void()> made, std::function<void(Result<Variables>)> done) {
  const auto home = [self = shared_from_this(), container](const std::string& name) {
    return self->home_task(container, name);
  };
  const auto gathering = std::make_shared<Gathering>(links.size(), std::move(made), std::move(done), home);
  const auto told = std::make_shared<std::vector<bool>>(links.size());
  size_t number = 0;
  for (const auto& [name, link] : links) {
    ContainerAsk ask{kind, container, steps};
    ask.made = [gathering, told, number] { gathering->made(*told, number); };
    // One that fails makes no cut.
    ask.done = [self = shared_from_this(), container, gathering, told, number, name = name](Result<Variables> result) {
      if (!result.ok() && result.error().code == Code::kUnavailable && !self->has_any(name, container))
        result = Variables();  // it is gone, and nothing with it
      gathering->made(*told, number);
      gathering->answered(name, std::move(result));
    };
    ++number;
    link->ask(std::move(ask));
  }
}

void ClusterView::snapshot(const std::string& container, std::function<void(Result<Variables>)> done) {
  hold([self = shared_from_this(), container, done = std::move(done)](const std::vector<int64_t>& steps) {
    // What no step has used since it was restored. A task may have a former client's of that name.
    Variables restored;
    {
      const std::lock_guard guard(self->mutex_);
      if (const auto at = self->placing_.find(container); at != self->placing_.end())
        for (const auto& [name, value] : at->second) restored.insert_or_assign(name, value->value);
      if (const auto at = self->unplaced_.find(container); at != self->unplaced_.end())
        for (const auto& [name, value] : at->second) restored.insert_or_assign(name, value);
    }
    self->ask_all(
        ContainerAsk::Kind::kSnapshot, container, steps, [self] { self->release(); },
        [restored = std::move(restored), done](Result<Variables> taken) {
          if (taken.ok())
            for (const auto& [name, value] : restored) taken->insert_or_assign(name, value);
          done(std::move(taken));
        });
  });
}

void ClusterView::restore(const std::string& container, const Variables& variables, std::function<void(Status)> done) {
  std::map<std::shared_ptr<TaskLink>, Variables> by_task;
  {
    std::lock_guard guard(mutex_);
    for (const auto& [name, value] : variables) {
      const auto home = homes_.find(variable_key(container, name));
      const auto placing = placing_.find(container);
      if (home == homes_.end()) unplaced_[container][name] = value;
      else if (placing != placing_.end() && placing->second.contains(name)) *placing->second.at(name) = {value};
      else by_task[links.at(task_of(devices_[home->second]))].emplace(name, value);
    }
  }
  if (by_task.empty()) return done({});
  // A task to which it cannot be said is told of by the error; the others have their variables all the same.
  const auto gathering = std::make_shared<Gathering>(by_task.size(), nullptr, [done](Result<Variables> result) {
    done(result.ok() ? Status() : Status(result.error()));
  });
  for (auto& [link, part] : by_task) {
    ContainerAsk ask{ContainerAsk::Kind::kRestore, container};
    ask.variables = std::move(part);
    ask.done = [gathering](Result<Variables> result) { gathering->answered("", std::move(result)); };
    link->ask(std::move(ask));
  }
}

bool ClusterView::has_any(const std::string& task, const std::string& container) const {
  std::lock_guard guard(mutex_);
  const auto holders = holders_.find(within(container));
  return holders != holders_.end() && holders->second.contains(task);
}

std::string ClusterView::home_task(const std::string& container, const std::string& name) const {
  std::lock_guard guard(mutex_);
  const auto home = homes_.find(variable_key(container, name));
  return home == homes_.end() ? std::string() : task_of(devices_[home->second]);
}

void ClusterView::reset(const std::string& container) {
  {
    std::lock_guard guard(mutex_);
    unplaced_.erase(container);
    placing_.erase(container);
    std::erase_if(homes_, [within = within(container)](const auto& home) { return is_within(home.first, within); });
    resets_.fetch_add(1, std::memory_order_release);
  }
  // What begins later finds it empty.
  hold([self = shared_from_this(), container](const auto&) {
    self->ask_all(ContainerAsk::Kind::kReset, container, {}, nullptr, [self](Result<Variables>) { self->release(); });
  });
}

void ClusterView::restart_dataset(const std::string& name, std::function<void(Status)> done) {
  struct Answers {
    std::mutex mutex;
    size_t left = 0;
    bool restarted = false;
    Status lost, failed;
  };
  const auto answers = std::make_shared<Answers>();
  answers->left = links.size();
  for (const auto& [task, link] : links) {
    ContainerAsk ask{ContainerAsk::Kind::kRestart};
    ask.dataset = name;
    ask.done = [answers, name, done](Result<Variables> result) {
      std::unique_lock lock(answers->mutex);
      if (result.ok()) answers->restarted = true;
      else if (result.error().code == Code::kUnavailable) answers->lost = std::move(result.error());
      else if (result.error().code != Code::kNotFound) answers->failed = std::move(result.error());
      if (--answers->left > 0) return;
      lock.unlock();
      if (!answers->failed.ok() || answers->restarted) return done(std::move(answers->failed));
      if (!answers->lost.ok()) return done(std::move(answers->lost));
      done(make_error(Code::kNotFound, "there is no dataset '{}', neither here nor on a task", name));
    };
    link->ask(std::move(ask));
  }
}

/// Ends all parts of a step that has failed.
class CutProgram::Parts final : public RemoteParts {
 public:
  Parts(std::shared_ptr<const CutStep> cut, std::vector<std::shared_ptr<TaskLink>> links, int64_t step)
      : cut_(std::move(cut)), links_(std::move(links)), step_(step) {}
  void abort(const Error& error) override {
    for (const auto& link : links_) link->abort(step_, error);
  }
  bool has(const std::string& task) const override {
    return std::ranges::any_of(cut_->parts, [&](const StepPart& part) { return part.task == task; });
  }

 private:
  const std::shared_ptr<const CutStep> cut_;
  const std::vector<std::shared_ptr<TaskLink>> links_;
  const int64_t step_;
};

Result<std::shared_ptr<CutProgram>> CutProgram::make(std::shared_ptr<ClusterView> cluster, uint64_t session,
                                                     std::shared_ptr<const CutStep> cut, int64_t timed_steps) {
  std::shared_ptr<CutProgram> out(new CutProgram());
  for (const StepPart& part : cut->parts) {
    const auto link = cluster->links.find(part.task);
    if (link == cluster->links.end()) return make_error(Code::kUnavailable, "there is no way to {}", part.task);
    out->links_.push_back(link->second);
  }
  out->number_ = cluster->next_program.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < cut->parts.size(); ++i)
    out->links_[i]->add_program({out->number_, session, cut, i, timed_steps});
  out->cluster_ = std::move(cluster);
  out->timed_steps_ = timed_steps;
  out->costs_.resize(cut->parts.size());
  out->changes_variables_ = std::ranges::any_of(cut->parts, [](const StepPart& p) { return may_change(*p.graph); });
  out->cut_ = std::move(cut);
  return out;
}

CutProgram::~CutProgram() {
  if (!cut_ || cluster_->in_child()) return;
  for (const auto& link : links_) link->drop_program(number_);
}

void CutProgram::run(const StepRef& call, const Directory& directory, const std::shared_ptr<PartCaller>& caller) const {
  // The program stays until all its runs have ended: to forget it may overtake a run.
  // A part may end, and the step fail, while others have not begun: they are begun all the same, and then ended.
  const int64_t oldest = cluster_->oldest();
  // The tasks time the second run and some more, then every 64th (Executor::begin): when they have, they are asked.
  const int64_t nth = runs_.fetch_add(1, std::memory_order_relaxed);
  const bool costs = nth > 0 && (nth <= timed_steps_ + 1 || nth % 64 == 0);
  for (uint32_t i = 0; i < links_.size(); ++i) {
    PartRun run;
    run.program = number_;
    run.step = call->id;
    run.oldest = oldest;
    if (cut_->parts[i].partial) run.caller = caller;
    else
      for (const auto& [feed, output] : cut_->parts[i].feeds) run.feeds.push_back(call->feeds[feed]);
    run.check_numerics = call->check_numerics;
    run.random_step = call->random_step;
    run.trace = call->trace != nullptr;
    run.costs = costs || run.trace;
    run.done = [call, program = shared_from_this(), cut = cut_, i, &directory](PartEnd end) {
      const auto& fetches = cut->parts[i].fetches;
      Result<std::vector<Tensor>>& result = end.result;
      program->take_report(i, *call, end);
      if (!result.ok()) {
        const Error& error = result.error();
        abort_step(call, error, directory);
        if (error.code == call->error().code && !error.node.empty())
          call->waited_for(error.op, error.node, error.device);
      } else if (result->size() != fetches.size()) {
        abort_step(call,
                   make_error(Code::kInternal, "{} answered with {} values for {} fetches", cut->parts[i].task,
                              result->size(), fetches.size()),
                   directory);
      } else {
        for (size_t k = 0; k < fetches.size(); ++k) call->fetches[fetches[k].first] = std::move((*result)[k]);
      }
      call->partition_done();
    };
    links_[i]->run(std::move(run));
  }
  // Some of what has ended it may have come before their runs.
  if (call->failed()) call->parts->abort(call->error());
}

void CutProgram::take_report(uint32_t part, StepCall& call, PartEnd& end) const {
  const StepPart& own = cut_->parts[part];
  if (!end.costs.empty()) {
    const std::lock_guard guard(mutex_);
    costs_[part] = std::move(end.costs);
  }
  if (!call.trace) return;
  for (const net::TraceRecord& record : end.trace) {
    const Node* const node = own.origin(record.node);
    const auto device = cluster_->device(record.device);
    if (!node || !device || record.kind > static_cast<uint8_t>(TraceEvent::Kind::kCopyOut)) continue;
    call.trace->add(
        {static_cast<TraceEvent::Kind>(record.kind), node, *device, call.id, record.begin_ns, record.end_ns});
  }
}

void CutProgram::add_costs(CostModel& out) const {
  const std::lock_guard guard(mutex_);
  for (uint32_t part = 0; part < costs_.size(); ++part)
    for (const net::CostRecord& cost : costs_[part])
      if (const Node* const node = cut_->parts[part].origin(cost.node))
        out.add(node->name(), cost.kind, cost.ns, cost.bytes, cost.firings, cost.in_step);
}

std::shared_ptr<RemoteParts> CutProgram::parts(int64_t step) const {
  return std::make_shared<Parts>(cut_, links_, step);
}

}  // namespace troupe
