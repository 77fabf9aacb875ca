// SPDX-License-Identifier: Apache-2.0
// A cluster in one process: an engine for each task, and between them a wire that brings what they say in an order of
// its own, drawn from a seed. What a client says to a task, and the answers, keep their order, and so does what one
// task sends to another; all else may overtake. A task often says that it takes no more for now.
#pragma once
#include <catch2/catch.hpp>

#include <condition_variable>
#include <deque>
#include <random>
#include <thread>

#include "actors/engine_impl.h"
#include "graph/graph_def/graph.pb.h"
#include "tests/op_library.h"
#include "troupe/graph_def.h"
#include "troupe/session.h"

namespace troupe {

/// Carries calls out, one after the other, on a thread of its own.
class Wire {
 public:
  explicit Wire(uint32_t seed) : random_(seed), thread_([this] { carry_out(); }) {}
  ~Wire() { end(); }
  /// Carries out what was said, and what that says; what is said later is dropped.
  void end() {
    {
      std::lock_guard guard(mutex_);
      ended_ = true;
    }
    more_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void say(const std::string& lane, std::function<void()> call) {
    {
      std::lock_guard guard(mutex_);
      lanes_[lane].push_back(std::move(call));
    }
    more_.notify_all();
  }

 private:
  void carry_out() {
    std::unique_lock lock(mutex_);
    while (true) {
      more_.wait(lock, [this] { return ended_ || !lanes_.empty(); });
      if (lanes_.empty()) return;
      auto lane = lanes_.begin();
      std::advance(lane, random_() % lanes_.size());
      std::function<void()> call = std::move(lane->second.front());
      lane->second.pop_front();
      if (lane->second.empty()) lanes_.erase(lane);
      lock.unlock();
      call();
      call = nullptr;
      lock.lock();
    }
  }

  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::map<std::string, std::deque<std::function<void()>>> lanes_;
  bool ended_ = false;
  std::thread thread_;
};

/// A program as it comes out of the bytes that it was sent as.
inline Result<Worker::Program> sent_program(const PartProgram& part, const OpRegistry& ops) {
  Worker::Program out = local_program(part);
  const StepPart& own = part.cut->parts[part.part];
  auto graph = std::make_shared<Graph>(ops);
  TROUPE_RETURN_IF_ERROR(from_graph_def(to_graph_def(*own.graph), *graph));
  const auto there = [&](const Output& o) { return Output{graph->find(o.node->name()), o.port}; };
  for (Output& o : out.feeds) o = there(o);
  for (Output& o : out.fetches) o = there(o);
  out.graph = std::move(graph);
  return out;
}

/// `tasks` engines "/job:worker/replica:0/task:0", ..., each with `devices` devices, and a client.
class FakeCluster {
 public:
  static constexpr uint64_t kClient = 7;

  explicit FakeCluster(uint32_t seed = 1, int tasks = 2, int devices = 2, EngineOptions options = {}) : wire_(seed) {
    options.cpu_threads.assign(static_cast<size_t>(devices), 1);
    options.op_library = testing::op_library();
    auto made = Engine::create(options);
    REQUIRE(made.ok());
    client = std::move(*made);
    std::vector<RemoteTask> remote;
    const std::string own(Engine::Impl::kAlone);
    engines_[own] = client->shared_impl();
    for (int i = 0; i < tasks; ++i) {
      const std::string name = fmt::format("/job:worker/replica:0/task:{}", i);
      auto impl = Engine::Impl::make(options, nullptr, name);
      REQUIRE(impl.ok());
      engines_[name] = *impl;
      RemoteTask task{name, (*impl)->devices, std::make_shared<Link>(*this, name)};
      for (DeviceInfo& device : task.devices) device.allocator = nullptr;
      remote.push_back(std::move(task));
    }
    for (auto& [name, impl] : engines_)
      impl->connect([this, name = name](const std::string& to, EdgeValue value) {
        wire_.say(name + " sends to " + to, [this, to, v = std::make_shared<EdgeValue>(std::move(value))] {
          worker(to).received(std::move(*v));
        });
        if (++sent_ % 3 != 0) return false;
        wire_.say(to + " takes more of " + name, [this, name] { engine(name).may_send(); });
        return true;
      });
    client->impl().join(kClient, std::move(remote));
  }
  ~FakeCluster() {
    client.reset();
    for (auto& [name, impl] : engines_) impl->shut_down();
    *ended_ = true;
    wire_.end();
  }

  std::vector<std::string> devices() const { return client->devices(); }
  Worker& worker(const std::string& task) { return *engines_.at(task)->worker; }
  Engine::Impl& engine(const std::string& task) { return *engines_.at(task); }

  std::unique_ptr<Engine> client;

 private:
  class Link final : public TaskLink {
   public:
    Link(FakeCluster& cluster, std::string name) : c_(cluster), ended_(cluster.ended_), name_(std::move(name)) {}
    void add_program(PartProgram program) override {
      say([this, program] {
        c_.worker(name_).add_program(kClient, program.program, program.session,
                                     [this, program] { return sent_program(program, c_.engine(name_).ops); });
      });
    }
    void drop_program(uint64_t program) override {
      say([this, program] { c_.worker(name_).drop_program(kClient, program); });
    }
    void drop_session(uint64_t session) override {
      say([this, session] { c_.worker(name_).drop_session(kClient, session); });
    }
    void run(PartRun run) override {
      auto sent = std::make_shared<PartRun>(std::move(run));
      sent->done = [this, done = std::move(sent->done)](PartEnd end) {
        auto answer = std::make_shared<PartEnd>(std::move(end));
        c_.wire_.say(name_ + " answers", [done, answer] { done(std::move(*answer)); });
      };
      say([this, sent] { c_.worker(name_).run(kClient, std::move(*sent)); });
    }
    void abort(int64_t step, const Error& error) override {
      say([this, step, error] { c_.worker(name_).abort(kClient, step, error); });
    }

    void ask(ContainerAsk ask) override {
      auto sent = std::make_shared<ContainerAsk>(std::move(ask));
      const auto answer = [this](std::function<void()> call) { c_.wire_.say(name_ + " answers", std::move(call)); };
      sent->made = [answer, made = sent->made] { answer(made); };
      sent->done = [answer, done = sent->done](Result<ContainerAsk::Variables> result) {
        answer([done, kept = std::make_shared<Result<ContainerAsk::Variables>>(std::move(result))] {
          done(std::move(*kept));
        });
      };
      say([this, sent] { c_.worker(name_).ask(kClient, std::move(*sent)); });
    }

   private:
    void say(std::function<void()> call) {
      if (!*ended_) c_.wire_.say("client to " + name_, std::move(call));
    }
    FakeCluster& c_;
    const std::shared_ptr<std::atomic<bool>> ended_;  // a session may outlive the cluster
    const std::string name_;
  };

  std::atomic<uint32_t> sent_{0};
  const std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
  Wire wire_;  // outlives the engines, whose last actors may still say something
  std::map<std::string, std::shared_ptr<Engine::Impl>> engines_;
};

/// A graph, read from a GraphDef, with each node on one of `devices`, drawn from a seed. What uses the same resources
/// is on the devices of one task.
class Scatter {
 public:
  Scatter(const std::string& graph, const OpRegistry& ops, const std::vector<std::string>& devices, uint32_t seed)
      : random_(seed) {
    Graph read(ops);
    REQUIRE(from_graph_def(graph, read).ok());
    join_users(read);
    std::map<std::string, std::vector<std::string>> tasks;
    for (const std::string& device : devices) tasks[task_of(device)].push_back(device);
    std::map<int, std::string> task_of_group;
    proto::GraphDef def;
    REQUIRE(def.ParseFromString(to_graph_def(read)));
    for (auto& node : *def.mutable_node()) {
      std::string& task = task_of_group[root(read.find(node.name())->id())];
      if (task.empty()) task = std::next(tasks.begin(), static_cast<ptrdiff_t>(random_() % tasks.size()))->first;
      const auto& there = tasks[task];
      node.set_device(there[random_() % there.size()]);
      numbers[node.name()] = static_cast<size_t>(std::ranges::find(devices, node.device()) - devices.begin());
    }
    text = def.SerializeAsString();
  }
  /// The same places on another machine's devices, of as many.
  std::string on(const std::vector<std::string>& devices) const {
    proto::GraphDef def;
    REQUIRE(def.ParseFromString(text));
    for (auto& node : *def.mutable_node()) node.set_device(devices[numbers.at(node.name())]);
    return def.SerializeAsString();
  }

  std::string text;
  std::map<std::string, size_t> numbers;  // of devices, by node

 private:
  int root(int id) {
    while (parent_[static_cast<size_t>(id)] != id) id = parent_[static_cast<size_t>(id)];
    return id;
  }
  void join_users(const Graph& graph) {
    std::map<std::string, int> named;
    for (int id = 0; id < graph.size(); ++id) parent_.push_back(id);
    for (int id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      for (const Output& in : node.inputs())
        if (in.dtype() == DType::kResource) parent_[static_cast<size_t>(root(id))] = root(in.node->id());
      if (node.num_outputs() == 0 || node.dtype(0) != DType::kResource) continue;
      const std::string name = node.attrs().get_or<std::string>("shared_name", {});
      const auto [at, fresh] = named.try_emplace(name.empty() ? node.name() : name, id);
      if (!fresh) parent_[static_cast<size_t>(root(id))] = root(at->second);
    }
  }
  std::mt19937 random_;
  std::vector<int> parent_;
};

/// A graph that was built on one engine, its nodes on devices of a cluster drawn from a seed, and the same on one
/// engine that has as many devices.
struct Both {
  Both(FakeCluster& cluster, const Graph& built, uint32_t seed, SessionOptions options = {})
      : engine(*Engine::create(
            {.cpu_threads = std::vector<int>(cluster.devices().size(), 1), .op_library = testing::op_library()})),
        cut_graph(cluster.client->ops()), whole_graph(engine->ops()) {
    const Scatter scatter(to_graph_def(built), cluster.client->ops(), cluster.devices(), seed);
    REQUIRE(from_graph_def(scatter.text, cut_graph).ok());
    REQUIRE(from_graph_def(scatter.on(engine->devices()), whole_graph).ok());
    cut = std::make_unique<Session>(*cluster.client, cut_graph, options);
    whole = std::make_unique<Session>(*engine, whole_graph, options);
  }
  std::unique_ptr<Engine> engine;
  Graph cut_graph, whole_graph;
  std::unique_ptr<Session> cut, whole;
};

/// Both failed with the same error, or have the same bits.
inline void check_same(const RunResult& got, const RunResult& expected) {
  INFO((got.ok() ? "" : got.error().str()) << " / " << (expected.ok() ? "" : expected.error().str()));
  REQUIRE(got.ok() == expected.ok());
  if (!got.ok()) {
    CHECK(got.error().code == expected.error().code);
    CHECK(got.error().message == expected.error().message);
    CHECK(got.error().node == expected.error().node);
    return;
  }
  REQUIRE(got->size() == expected->size());
  for (size_t i = 0; i < got->size(); ++i) {
    INFO(i << ": " << (*got)[i].str(12) << " / " << (*expected)[i].str(12));
    CHECK((*got)[i].identical((*expected)[i]));
  }
}

using Named = std::vector<std::pair<std::string, Tensor>>;

inline Named by_name(const std::vector<Feed>& feeds) {
  Named out;
  for (const Feed& feed : feeds) out.emplace_back(feed.output.name(), feed.value);
  return out;
}
inline NameList names(const std::vector<Output>& outputs) {
  NameList out;
  for (const Output& o : outputs) out.names.push_back(o.name());
  return out;
}

}  // namespace troupe
