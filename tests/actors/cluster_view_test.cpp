// SPDX-License-Identifier: Apache-2.0
// A client's view of its cluster, over links that note what is asked of their tasks.
#include "actors/cluster_view.h"

#include <catch2/catch.hpp>

#include "troupe/resource.h"

namespace troupe {
namespace {

/// Keeps what is asked of its task until it is answered.
struct NotingLink final : TaskLink {
  void add_program(PartProgram) override {}
  void drop_program(uint64_t) override {}
  void drop_session(uint64_t) override {}
  void run(PartRun) override {}
  void abort(int64_t, const Error&) override {}
  void ask(ContainerAsk ask) override {
    asks.push_back(std::move(ask));
    if (while_asked) std::exchange(while_asked, nullptr)();
  }
  void answer_all() {
    for (size_t i = 0; i < asks.size(); ++i)
      if (auto done = std::exchange(asks[i].done, nullptr)) done(ContainerAsk::Variables());
  }
  /// What was asked, in order: "reset", or the values that a restore gives "v".
  std::vector<std::string> told() const {
    std::vector<std::string> out;
    for (const ContainerAsk& ask : asks)
      out.push_back(ask.kind == ContainerAsk::Kind::kReset ? "reset" : ask.variables.at("v").str());
    return out;
  }
  std::vector<ContainerAsk> asks;
  std::function<void()> while_asked;
};

struct ViewOfOne {
  ViewOfOne() { view->set_devices({"/job:worker/replica:0/task:0/device:cpu:0"}); }
  ~ViewOfOne() { link->asks.clear(); }  // what is not answered holds the view
  uint32_t home() {
    ResourceHandle handle;
    handle.type = "VarHandleOp";
    handle.container = "c";
    handle.name = "v";
    return view->home(handle.host_key(), 0);
  }
  void restore(int value) {
    Status restored;
    view->restore("c", {{"v", Tensor::scalar(value)}}, [&](const Status& status) { restored = status; });
    CHECK(restored.ok());
  }
  /// A step's runs; `meanwhile` is called as they are sent.
  void send(std::function<void()> meanwhile) { view->send_runs(1, true, std::move(meanwhile)); }

  const std::shared_ptr<NotingLink> link = std::make_shared<NotingLink>();
  const std::shared_ptr<ClusterView> view = std::make_shared<ClusterView>(
      "/job:client/task:0",
      std::map<std::string, std::shared_ptr<TaskLink>>{{task_of("/job:worker/replica:0/task:0/device:cpu:0"), link}});
};

const std::string kEarlierValue = Tensor::scalar(1).str(), kLaterValue = Tensor::scalar(2).str();

TEST_CASE("of two values that are restored as a variable gets its home the later one is told last") {
  ViewOfOne t;
  t.restore(1);
  SECTION("before the first is told") {
    t.send([&] {
      t.home();
      t.restore(2);
      CHECK(t.link->asks.empty());
    });
    CHECK(t.link->told() == std::vector{kLaterValue});
  }
  SECTION("while it is told") {
    t.link->while_asked = [&] { t.restore(2); };
    t.home();
    CHECK(t.link->told() == std::vector{kEarlierValue, kLaterValue});
  }
  // Runs wait for the answers.
  bool sent = false;
  t.send([&] { sent = true; });
  CHECK_FALSE(sent);
  t.link->answer_all();
  CHECK(sent);
}

TEST_CASE("a run that is sent as a variable gets its home waits for its restored value") {
  ViewOfOne t;
  t.restore(1);
  bool sent = false;
  t.send([&] {
    t.home();
    t.send([&] { sent = true; });
    CHECK_FALSE(sent);
  });
  CHECK_FALSE(sent);
  CHECK(t.link->told() == std::vector{kEarlierValue});
  t.link->answer_all();
  CHECK(sent);
}

TEST_CASE("a value that is restored before a reset is not told after it, and one restored after it is not before it") {
  ViewOfOne t;
  t.restore(1);
  t.send([&] {
    t.home();
    t.view->reset("c");
    t.restore(2);
    t.home();
  });
  CHECK(t.link->told() == std::vector<std::string>{"reset", kLaterValue});
  t.link->answer_all();
  bool sent = false;
  t.send([&] { sent = true; });
  CHECK(sent);
}

}  // namespace
}  // namespace troupe
