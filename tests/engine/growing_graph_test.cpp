// SPDX-License-Identifier: Apache-2.0
// A graph that one thread adds to while others run, plan and export what they were told of.
#include <atomic>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/graph_def.h"

namespace troupe {
namespace {

std::string name_of(int i) { return fmt::format("node_{}", i); }

TEST_CASE("nodes are found by name, run and exported while another thread adds more") {
  TestEngine t({1, 1});
  const Output x = t.placeholder(DType::kFloat32, {});
  std::atomic<int> newest{-1}, wrong{0};
  std::atomic<bool> done{false};
  const auto fails_late = [](const RunResult& r) { return r.error().message.find("late") != std::string::npos; };
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader)
    readers.emplace_back([&, reader] {
      while (!done) {
        const int i = newest;
        if (i < 0) {
          std::this_thread::yield();
          continue;
        }
        const RunResult r = reader == 0
                                ? t.session->run({{"x:0", f(2)}}, NameList(name_of(i)), NameList(name_of(i / 2)))
                                : t.session->run({{"x", f(2)}}, NameList(name_of(i) + ":0"));
        wrong += r.ok() ? number((*r)[0]) != -2 : !fails_late(r);
      }
    });
  readers.emplace_back([&] {
    while (!done) {
      wrong += to_graph_def(t.graph).empty() || t.graph.dot().empty();
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < repeats(300); ++i) {
    if (!t.scope.named(name_of(i)).op("Neg", {x})) ++wrong;
    newest = i;
  }
  t.scope.fail(invalid_argument("late"));
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
  refused(t.session->run({{"x", f(2)}}, NameList(name_of(0))), Code::kInvalidArgument, "late");
}

}  // namespace
}  // namespace troupe
