// SPDX-License-Identifier: Apache-2.0
// Engines under the limits of a process (memory, threads, open files): what cannot be had is an error, never a signal
// and never a hang. Each case runs in a child process, a hidden test of this very program, which sets the limit itself.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>

#include "tests/child.h"
#include "tests/io/temporary_directory.h"
#include "troupe/checkpoint.h"
#include "troupe/events.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe {
namespace {

using Catch::Contains;

/// Exit statuses of a child beside 0.
constexpr int kRefused = 3, kWrong = 4;

[[noreturn]] void end(int status, const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
  _exit(status);
}

void set_limit(int resource, int64_t value) {
  const rlimit limit = {static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) end(kWrong, "no limit can be set");
}

/// A user's limit binds nobody who may do everything.
void become_another_user() {
  if (getuid() == 0 && (setgid(65'534) != 0 || setuid(65'534) != 0)) end(0, "no other user");
}

/// A network of a convolution and a product, on two devices of one thread each, and a chain of tensors whose size is
/// fed.
struct Network {
  explicit Network(const Engine& engine) : graph(engine.ops()), scope(graph) {
    const auto sizes = [&](std::vector<int32_t> of) { return scope.constant(Tensor::of<int32_t>(std::move(of))); };
    const Output x = scope.op("Fill", {sizes({16, 28, 28, 8}), scope.constant(1.f)});
    const Output filter = scope.op("Fill", {sizes({3, 3, 8, 16}), scope.constant(0.1f)});
    const Output y = scope.op("Conv2D", {x, filter},
                              {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}});
    const Output rows = scope.op("Reshape", {y, sizes({-1, 256})});
    const Output square = scope.device("/cpu:1").op("MatMul", {rows, rows}, {{"transpose_a", true}});
    size = scope.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape({1})}});
    const Output large = scope.named("large").op("Fill", {size, scope.op("Sum", {square, sizes({0, 1})})});
    sum = scope.op("Sum", {scope.op("Exp", {scope.op("Neg", {large})}), sizes({0})});
  }
  Status run(Session& session, int32_t elements) const {
    TROUPE_RETURN_IF_ERROR(scope.status());
    return session.run({{size, Tensor::of<int32_t>({elements})}}, {sum}).status();
  }
  Graph graph;
  Scope scope;
  Output size, sum;
};

}  // namespace

// Sanitizers take terabytes of address space, and end the process where memory is refused.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

/// Address space of this process.
int64_t address_space() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("child: makes an engine in limited memory", "[.child]") {
  if (argument_of_child() < 0) return;
  set_limit(RLIMIT_AS, address_space() + argument_of_child());
  const auto engine = Engine::create({.cpu_threads = {1, 1}});
  if (!engine.ok()) end(kRefused, engine.error().str());
  const Network network(**engine);
  Session session(**engine, network.graph);
  const Status ran = network.run(session, 64 << 20);  // 256 MiB
  end(ran.ok() ? 0 : kRefused, ran.ok() ? "ran" : ran.error().str());
}

TEST_CASE("in limited memory a process runs its step or gets an error, never a signal and never a hang") {
  int ran = 0, refused = 0;
  for (int64_t mib = 512; mib <= 2048; mib += 64) {
    const Ended ended = run_child("child: makes an engine in limited memory", mib << 20);
    INFO(mib << " MiB: status " << ended.status << ", signal " << ended.signal << ": " << ended.output);
    CHECK((ended.status == 0 || ended.status == kRefused));
    if (ended.status == kRefused) CHECK_THAT(ended.output, Contains("resource exhausted"));
    ran += ended.status == 0;
    refused += ended.status == kRefused;
  }
  CHECK(ran > 0);
  CHECK(refused > 0);
}

TEST_CASE("child: is refused memory while it runs", "[.child]") {
  if (argument_of_child() < 0) return;
  auto made = Engine::create({.cpu_threads = {1, 1}});
  if (!made.ok()) end(kWrong, made.error().str());
  const std::unique_ptr<Engine> engine = std::move(*made);
  const Network network(*engine);
  Session session(*engine, network.graph);
  if (const Status first = network.run(session, 1000); !first.ok()) end(kWrong, first.error().str());
  set_limit(RLIMIT_AS, address_space() + argument_of_child());
  for (int i = 0; i < 20; ++i) {
    const Status large = network.run(session, 256 << 20);  // 1 GiB
    if (large.ok() || large.error().code != Code::kResourceExhausted || large.error().node != "large")
      end(kWrong, large.ok() ? "a step got memory that there is not" : large.error().str());
    if (const Status small = network.run(session, 1000); !small.ok()) end(kWrong, small.error().str());
  }
  end(kRefused, "refused");
}

TEST_CASE("an engine at work that is refused memory fails the step, names the node, and goes on") {
  for (const int64_t mib : {64, 256, 900}) {
    const Ended ended = run_child("child: is refused memory while it runs", mib << 20);
    INFO(mib << " MiB: signal " << ended.signal << ": " << ended.output);
    CHECK(ended.status == kRefused);
  }
}

#endif

TEST_CASE("child: makes an engine with few threads", "[.child]") {
  if (argument_of_child() < 0) return;
  become_another_user();
  set_limit(RLIMIT_NPROC, argument_of_child());
  const auto engine = Engine::create({.cpu_threads = {4, 1, 1}});
  if (!engine.ok()) end(kRefused, engine.error().str());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  Session session(**engine, graph);
  const auto out = session.run(std::vector<Feed>{}, {scope.constant(1.f)});
  end(out.ok() ? 0 : kRefused, "ran");
}

TEST_CASE("an engine that gets too few threads is an error that says so") {
  int made = 0, refused = 0;
  for (const int threads : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 64}) {
    const Ended ended = run_child("child: makes an engine with few threads", threads);
    INFO(threads << " threads: status " << ended.status << ", signal " << ended.signal << ": " << ended.output);
    CHECK((ended.status == 0 || ended.status == kRefused));
    if (ended.status == kRefused) CHECK_THAT(ended.output, Contains("threads: Resource temporarily unavailable"));
    made += ended.status == 0;
    refused += ended.status == kRefused;
  }
  CHECK(made > 0);
  CHECK((refused > 0 || made == 14));  // 14: no other user could be had
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST_CASE("child: is the program of README.md with one thread", "[.child]") {
  if (argument_of_child() < 0) return;
  const int program = open("../examples/readme", O_RDONLY | O_CLOEXEC);
  if (program < 0) end(kWrong, "there is no readme");
  become_another_user();
  set_limit(RLIMIT_NPROC, argument_of_child());
  char name[] = "readme";
  char* const arguments[] = {name, nullptr};
  dup2(STDOUT_FILENO, STDERR_FILENO);
  fexecve(program, arguments, environ);
  end(kWrong, "readme cannot be begun");
}

TEST_CASE("the program of README.md says that it gets no threads, and ends with status 1") {
  const Ended ended = run_child("child: is the program of README.md with one thread", 1);
  INFO("status " << ended.status << ", signal " << ended.signal << ": " << ended.output);
  if (ended.output == "no other user\n") return;
  CHECK(ended.status == 1);
  CHECK_THAT(ended.output, Contains("threads: Resource temporarily unavailable"));
}

TEST_CASE("child: gets no more threads once it has an engine", "[.child]") {
  if (argument_of_child() < 0) return;
  become_another_user();
  const auto engine = Engine::create({.cpu_threads = {static_cast<int>(argument_of_child())}});
  if (!engine.ok()) end(kWrong, engine.error().str());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1}}});
  const Output y = scope.op("Exp", {x});
  Session session(**engine, graph);
  const Tensor large = *Tensor::zeros(DType::kFloat32, Shape{1 << 22});
  set_limit(RLIMIT_NPROC, 1);
  const auto out = session.run({{x, large}}, {y});
  end(out.ok() ? 0 : kRefused, out.ok() ? "ran" : out.error().str());
}

TEST_CASE("a process whose OpenMP is refused a thread ends with status 1, and a device of one thread needs none") {
  const Ended one = run_child("child: gets no more threads once it has an engine", 1);
  INFO("one thread: status " << one.status << ", signal " << one.signal << ": " << one.output);
  CHECK(one.status == 0);
  const Ended four = run_child("child: gets no more threads once it has an engine", 4);
  INFO("four threads: status " << four.status << ", signal " << four.signal << ": " << four.output);
  if (four.output.find("no other user") != std::string::npos) return;
  CHECK(four.status == 1);
  CHECK_THAT(four.output, Contains("Thread creation failed"));
}

#endif

TEST_CASE("child: destroys an engine when there are no more threads", "[.child]") {
  if (argument_of_child() < 0) return;
  become_another_user();
  auto engine = Engine::create({.cpu_threads = {1, 1}});
  if (!engine.ok()) end(kWrong, engine.error().str());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const Output y = scope.constant(1.f);
  Session session(**engine, graph);
  set_limit(RLIMIT_NPROC, 1);
  const auto out = session.run(std::vector<Feed>{}, {y});
  if (!out.ok()) end(kWrong, out.error().str());
  if (argument_of_child() == 0) {
    engine->reset();
    const auto later = session.run(std::vector<Feed>{}, {y});
    end(later.ok() ? kWrong : 0, later.ok() ? "ran" : later.error().str());
  }
  std::promise<void> destroyed;
  session.run_async({}, {y}, {}, [&](const RunResult&) {
    engine->reset();
    destroyed.set_value();
  });
  destroyed.get_future().wait();
  end(0, "destroyed");
}

TEST_CASE("an engine may be destroyed when the system gives no more threads, in a callback too") {
  for (const int in_callback : {0, 1}) {
    const Ended ended = run_child("child: destroys an engine when there are no more threads", in_callback);
    INFO("status " << ended.status << ", signal " << ended.signal << ": " << ended.output);
    CHECK(ended.status == 0);
  }
}

TEST_CASE("child: opens files when there are no more", "[.child]") {
  if (argument_of_child() < 0) return;
  const TemporaryDirectory files;
  const std::string there = files.file("there.safetensors");
  if (!write_safetensors(there, {{"x", Tensor::scalar(1.f)}}).ok()) end(kWrong, "the checkpoint was not written");
  auto made = Engine::create({.cpu_threads = {1}});
  if (!made.ok()) end(kWrong, made.error().str());
  const std::unique_ptr<Engine> engine = std::move(*made);
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Output read = scope.op("ReadFile", {scope.constant(Tensor::scalar(there))});
  Session session(*engine, graph);
  set_limit(RLIMIT_NOFILE, argument_of_child());
  while (open("/dev/null", O_RDONLY) >= 0) {
  }
  const auto told = [](const char* what, const Status& status) {
    if (status.ok() || status.error().str().find("Too many open files") == std::string::npos)
      end(kWrong, fmt::format("{}: {}", what, status.ok() ? "no error" : status.error().str()));
  };
  told("load", read_safetensors(there).status());
  told("save", write_safetensors(files.file("new.safetensors"), {{"x", Tensor::scalar(1.f)}}));
  told("events", EventWriter::open(files.file("events")).status());
  told("op", session.run(std::vector<Feed>{}, {read}).status());
  for (int fd = 3; fd < argument_of_child(); ++fd) close(fd);
  const auto again = session.run(std::vector<Feed>{}, {read});  // the engine goes on
  end(again.ok() ? kRefused : kWrong, again.ok() ? "refused" : again.error().str());
}

TEST_CASE("with no file descriptors left, files are errors that say so") {
  const Ended ended = run_child("child: opens files when there are no more", 64);
  INFO(ended.output);
  CHECK(ended.status == kRefused);
}

TEST_CASE("child: writes events beyond the largest file there may be", "[.child]") {
  if (argument_of_child() < 0) return;
  const TemporaryDirectory files;
  auto writer = EventWriter::open(files.file("events"));
  if (!writer.ok()) end(kWrong, writer.error().str());
  std::signal(SIGXFSZ, SIG_IGN);
  set_limit(RLIMIT_FSIZE, argument_of_child());
  for (int i = 0; i < 100'000; ++i) {
    const Status written = (*writer)->scalar("loss", i, 1.f);
    if (written.ok()) continue;
    const Status later = (*writer)->flush();
    if (later.ok()) end(kWrong, "a later call hides what was lost");
    writer->reset();
    end(kRefused, written.error().str());
  }
  end(kWrong, "all was written");
}

TEST_CASE("events that do not fit the disk are an error of the call that writes them, and of each later one") {
  const Ended ended = run_child("child: writes events beyond the largest file there may be", 100000);
  INFO(ended.output);
  CHECK(ended.status == kRefused);
  CHECK_THAT(ended.output, Contains("File too large"));
}

TEST_CASE("a checkpoint with too large a header is an error, and nothing is written") {
  const TemporaryDirectory files;
  TensorMap tensors;
  for (const char last : {'a', 'b', 'c', 'd'})
    tensors.emplace(std::string(26'000'000, 'n') + last, Tensor::scalar(1.f));
  const Status written = write_safetensors(files.file("large"), tensors);
  REQUIRE(!written.ok());
  CHECK(written.error().code == Code::kInvalidArgument);
  CHECK_THAT(written.error().message, Contains("4 tensors") && Contains("100000000"));
  CHECK(!std::ifstream(files.file("large")).good());
}

}  // namespace troupe
