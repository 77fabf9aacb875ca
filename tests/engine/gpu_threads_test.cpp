// SPDX-License-Identifier: Apache-2.0
// Engines with GPUs under a limit of threads: what cannot be had is an error of Engine::create, and nothing is asked of
// the system later. Each case runs in a child process, which sets the limit itself.
#include <catch2/catch.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "tests/child.h"
#include "tests/gpu/fake_platform.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe::testing {
namespace {

/// Exit status of a child whose engine was refused.
constexpr int kRefused = 3, kWrong = 4;

[[noreturn]] void end(int status, const std::string& text) {
  std::puts(text.c_str());
  std::fflush(stdout);
  _exit(status);
}

/// A user's limit binds nobody who may do everything.
void become_another_user() {
  if (getuid() == 0 && (setgid(65'534) != 0 || setuid(65'534) != 0)) end(0, "no other user");
}

void set_limit(int64_t threads) {
  const rlimit limit = {static_cast<rlim_t>(threads), static_cast<rlim_t>(threads)};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) end(kWrong, "no limit can be set");
}

/// Steps that copy a small and a large value in and out, on two cards, with a variable, and a snapshot.
Status work(Engine& engine) {
  Graph graph(engine.ops());
  const Scope scope(graph), first = scope.device("/gpu:0"), second = scope.device("/gpu:1");
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1}}});
  const Output y = second.op("Neg", {first.op("Neg", {x})});
  const Output v = first.op(
      "VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}, {"shared_name", std::string("v")}});
  const Node* set = first.node("AssignVariableOp", {v, first.constant(Tensor::of<float>({1, 2}))});
  TROUPE_RETURN_IF_ERROR(scope.status());
  Session session(engine, graph);
  const RunOptions options{.deadline = std::chrono::seconds(30)};
  TROUPE_RETURN_IF_ERROR(session.run(set, options).status());
  for (const int64_t elements : {2, 1 << 20, 2})
    TROUPE_RETURN_IF_ERROR(
        session.run({{x, *Tensor::zeros(DType::kFloat32, Shape{elements})}}, {y}, {}, options).status());
  return engine.snapshot().get().status();
}

}  // namespace

TEST_CASE("child: works on GPUs with no more threads than it has", "[.child]") {
  if (argument_of_child() < 0) return;
  become_another_user();
  FakeGpus gpus({.cards = 2});
  const auto engine = Engine::create(gpus.options(2, 1));
  if (!engine.ok()) end(kWrong, engine.error().str());
  set_limit(1);
  const Status worked = work(**engine);
  end(worked.ok() ? 0 : kWrong, worked.ok() ? "worked" : worked.error().str());
}

TEST_CASE("gpu: an engine that was made needs no more threads for its GPUs") {
  const Ended ended = run_child("child: works on GPUs with no more threads than it has");
  INFO("status " << ended.status << ", signal " << ended.signal << ": " << ended.output);
  CHECK(ended.status == 0);
}

TEST_CASE("child: makes an engine of GPUs with few threads", "[.child]") {
  if (argument_of_child() < 0) return;
  become_another_user();
  FakeGpus gpus({.cards = 2});
  set_limit(argument_of_child());
  auto engine = Engine::create(gpus.options(2, 2));
  if (!engine.ok()) end(engine.error().code == Code::kResourceExhausted ? kRefused : kWrong, engine.error().str());
  const Status worked = work(**engine);
  engine->reset();
  end(worked.ok() ? 0 : kWrong, worked.ok() ? "worked" : worked.error().str());
}

TEST_CASE("gpu: an engine of GPUs that gets too few threads is an error that says so") {
  if (on_real_gpu()) return;  // CUDA has threads of its own
  for (const int threads : {1, 4, 8, 12, 14, 15, 16, 18, 20, 22, 24, 64}) {
    const Ended ended = run_child("child: makes an engine of GPUs with few threads", threads);
    INFO(threads << " threads: status " << ended.status << ", signal " << ended.signal << ": " << ended.output);
    CHECK((ended.status == 0 || ended.status == kRefused));
    if (ended.status == kRefused) CHECK_THAT(ended.output, Catch::Contains("Resource temporarily unavailable"));
  }
}

}  // namespace troupe::testing
