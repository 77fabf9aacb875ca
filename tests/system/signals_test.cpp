// SPDX-License-Identifier: Apache-2.0
// Every example gets every signal that asks it to end, at moments drawn from a seed over the whole of its run: it ends
// with a documented status, and what it says is true.
#include <thread>

#include "tests/repeats.h"
#include "tests/system/program.h"
#include "tests/system/train_images.h"

namespace troupe::testing {
namespace {

using std::chrono::nanoseconds;

/// A moment between 0 and `most`, more often an early one, where starts, loads and first steps are.
nanoseconds moment(std::mt19937& random, nanoseconds most) {
  const double x = std::uniform_real_distribution<double>()(random);
  return nanoseconds(static_cast<int64_t>(x * x * static_cast<double>(most.count())));
}

/// Each signal so many times, in turn; under a sanitizer a quarter of that in all.
template <size_t N> std::vector<int> in_turn(int times, const int (&signals)[N]) {
  std::vector<int> out;
  for (int i = 0; i < repeats(times * static_cast<int>(N)); ++i) out.push_back(signals[static_cast<size_t>(i) % N]);
  return out;
}

void check_example(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string path = "../examples/" + name;
  const auto begun = std::chrono::steady_clock::now();
  Program whole(path, arguments);
  const int normal = whole.wait();
  INFO(name << ": " << whole.out() << whole.err());
  REQUIRE(normal == 0);
  const nanoseconds length = std::chrono::steady_clock::now() - begun;
  std::mt19937 random(7);
  for (const int number : in_turn(3, {SIGINT, SIGPIPE, SIGTERM, SIGHUP})) {
    Program program(path, arguments);
    program.read_for(moment(random, length));
    program.signal(number);
    const int status = program.wait();
    INFO(name << ", signal " << number << ", status " << status << ", died of " << program.died_of() << "\n"
              << program.out() << program.err());
    if (status == -1) {  // before main had begun
      CHECK(program.died_of() == number);
      CHECK((program.out() + program.err()).empty());
    } else if (number == SIGPIPE || status == 0) {
      CHECK(status == 0);
      CHECK(program.err().empty());
      CHECK(std::ranges::count(program.out(), '\n') == std::ranges::count(whole.out(), '\n'));
    } else {
      CHECK(status == 1);
      CHECK(program.err() == name + ": interrupted by a signal; nothing more is done\n");
    }
  }
}

TEST_CASE("signals: examples of small graphs") {
  check_example("readme", {});
  check_example("first_graph", {});
  check_example("linear_regression", {"--steps", std::to_string(many(2000))});
  check_example("shared_loop", {"--steps", std::to_string(many(500))});
  check_example("embed_async", {"--steps", std::to_string(many(1000))});
}

TEST_CASE("signals: the rarer ones end a program too, and nohup keeps it from SIGHUP") {
  const std::string path = "../examples/linear_regression";
  for (const int number : in_turn(1, {SIGUSR1, SIGRTMIN, SIGQUIT, SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO, SIGPWR,
                                      SIGSTKFLT, SIGUSR2, SIGRTMIN + 5, SIGRTMAX})) {
    INFO("signal " << number);
    Program program(path, {"--steps", "100000000"});
    REQUIRE(program.read_for(std::chrono::minutes(1), "step "));
    program.signal(number);
    CHECK(program.wait() == 1);
    CHECK(program.err() == "linear_regression: interrupted by a signal; nothing more is done\n");
  }
  Program kept("/usr/bin/nohup", {path, "--steps", std::to_string(many(3000))});
  REQUIRE(kept.read_for(std::chrono::minutes(1), "step "));
  kept.signal(SIGHUP);
  CHECK(kept.wait() == 0);
  CHECK_THAT(kept.out(), Catch::Contains("y = "));

  const Data data;
  const Directory out;
  std::vector<std::string> limited = arguments(data, out, {"--epochs", "2"});
  limited.insert(limited.begin(), {"-c", R"(ulimit -f 8; exec "$0" "$@")", "../examples/train_images"});
  Program full("/bin/sh", limited);  // SIGXFSZ would end it
  CHECK(full.wait() == 1);
  CHECK_THAT(full.err(), Catch::Contains("train_images: ") && Catch::Contains("File too large"));
}

TEST_CASE("signals: of several that come together one is told, never none") {
  for (int i = 0; i < repeats(40); ++i) {
    Program program("../examples/linear_regression", {"--steps", "100000000"});
    REQUIRE(program.read_for(std::chrono::minutes(1), "step "));
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGQUIT, SIGRTMIN}) program.signal(number);
    CHECK(program.wait() == 1);
    CHECK(program.err() == "linear_regression: interrupted by a signal; nothing more is done\n");
  }
}

TEST_CASE("signals: a program whose stderr takes nothing more leaves nonetheless") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
  const std::vector<char> much(1 << 16, ' ');
  while (::write(ends[1], much.data(), much.size()) > 0) {
  }
  const std::string script = fmt::format(R"(exec 2>&{}; exec "$0" "$@")", ends[1]);
  REQUIRE(::fcntl(ends[1], F_SETFD, 0) == 0);
  REQUIRE(::fcntl(ends[1], F_SETFL, 0) == 0);
  Program program("/bin/sh", {"-c", script, "../examples/linear_regression", "--steps", "100000000"});
  REQUIRE(program.read_for(std::chrono::minutes(1), "step "));
  program.signal(SIGTERM);
  CHECK(program.wait() == 1);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("signals: examples of replicas") {
  const Data data;
  check_example("data_parallel", {"--data", data.path.string(), "--updates", std::to_string(many(200))});
  check_example("hybrid_backup",
                {"--data", data.path.string(), "--updates", std::to_string(repeats(50)), "--pause", "2"});
}

TEST_CASE("signals: examples of pipelines and layers over devices") {
  const Data data;
  const std::string text = (data.path / "text").string();
  std::ofstream out(text);
  for (int i = 0; i < 2000; ++i) out << "the quick brown fox jumps over the lazy dog " << i << "\n";
  out.close();
  check_example("pipeline", {"--data", data.path.string(), "--batches", "4"});
  check_example("pipeline_async", {"--data", data.path.string(), "--batches", "4"});
  check_example("tensor_parallel", {"--data", data.path.string(), "--steps", "10"});
  check_example("model_parallel_lstm", {"--text", text, "--steps", "2", "--parts", "2"});
}

/// What train_images says after signals is what its folder holds.
void check_training(const Program& program, int status, const Directory& out) {
  const auto held = Checkpointer::read_latest((out.path / "checkpoints").string());
  INFO("status " << status << ", died of " << program.died_of() << "\n" << program.out() << program.err());
  if (held.ok()) CHECK(held->skipped.empty());
  else CHECK(held.error().code == Code::kNotFound);
  const size_t said = program.out().find("interrupted at step ");
  if (status == -1) {  // before main had begun
    CHECK((program.out() + program.err()).empty());
  } else if (status == 0) {
    REQUIRE(held.ok());
    if (said == std::string::npos)
      CHECK_THAT(program.out() + program.err(),
                 Catch::Contains("waited for input") || Catch::Contains("all was saved before"));
    else CHECK(std::atoll(program.out().c_str() + said + 20) == held->step);
  } else {
    CHECK(status == 1);
    CHECK_THAT(program.err(), Catch::StartsWith("train_images: "));
    CHECK(said == std::string::npos);  // what it has said holds
    if (program.err().find("nothing new is saved") != std::string::npos) CHECK_FALSE(held.ok());
  }
}

TEST_CASE("signals: train_images saves or says that it did not, at every moment") {
  const Data data;
  const std::string mode = GENERATE("async", "sync", "zero", "local");
  if (kSlowness > 1 && (mode == "sync" || mode == "local")) return;
  const std::vector<std::string> options = {"--mode",         mode,  "--epochs", kSlowness > 1 ? "2" : "6",
                                            "--save-seconds", "0.02"};
  const Directory first;
  const auto begun = std::chrono::steady_clock::now();
  Program whole("../examples/train_images", arguments(data, first, options));
  REQUIRE(whole.wait() == 0);
  const nanoseconds length = std::chrono::steady_clock::now() - begun;
  std::mt19937 random(11);
  for (const int number : in_turn(4, {SIGINT, SIGTERM, SIGHUP})) {
    const Directory out;
    Program program("../examples/train_images", arguments(data, out, options));
    program.read_for(moment(random, length));
    program.signal(number);
    const bool twice = random() % 3 == 0;
    if (twice) {
      program.read_for(moment(random, std::chrono::milliseconds(20)));
      program.signal(number == SIGTERM ? SIGINT : SIGTERM);  // another one, which is in haste
    }
    const int status = program.wait();
    check_training(program, status, out);
  }
}

TEST_CASE("signals: once train_images has said that it saved, its status is 0 whatever comes") {
  const Data data;
  for (const int number : in_turn(4, {SIGINT, SIGTERM, SIGQUIT})) {
    const Directory out;
    Program program("../examples/train_images", arguments(data, out, {"--epochs", "10000"}));
    REQUIRE(program.read_for(std::chrono::minutes(1), "epoch 1/"));
    program.signal(SIGINT);
    REQUIRE(program.read_for(std::chrono::minutes(1), "interrupted at step"));
    for (int i = 0; i < 3; ++i) program.signal(number);
    const int status = program.wait();
    CHECK(status == 0);
    check_training(program, status, out);
  }
}

TEST_CASE("signals: one that comes twice at once, as from timeout, is one") { check_sent_at_once({}); }

TEST_CASE("signals: train_images before its first step says that nothing is saved") {
  const Data data;
  for (const int number : in_turn(3, {SIGINT, SIGTERM, SIGHUP})) {
    const Directory out;
    Program program("../examples/train_images", arguments(data, out, {"--epochs", "10000"}));
    REQUIRE(program.read_for(std::chrono::minutes(1), "training mlp"));  // the last line before the first step
    program.signal(number);
    const int status = program.wait();
    check_training(program, status, out);
    if (status == 1) CHECK_THAT(program.err(), Catch::Contains("nothing new is saved"));
    else CHECK_THAT(program.out(), Catch::Contains("interrupted at step"));
  }
}

TEST_CASE("signals: train_images that waits for its cluster ends at once") {
  const Data data;
  for (const int number : in_turn(2, {SIGINT, SIGTERM, SIGQUIT})) {
    const Directory out;
    const std::string cluster = R"({"cluster": {"worker": ["unix:)" + (out.path / "nobody").string() + R"("]}})";
    Program program("../examples/train_images",
                    arguments(data, out, {"--devices", "workers", "--cluster", cluster, "--cluster-wait", "600"}));
    while (!std::filesystem::exists(out.path / "checkpoints")) std::this_thread::yield();  // the last thing before
    program.signal(number);
    CHECK(program.wait() == 1);
    CHECK(program.err() == "train_images: interrupted by a signal; nothing more is done\n");
    CHECK(program.out().empty());
  }
}

TEST_CASE("train_images refuses another batch, limit, optimizer, model or seed, and says which") {
  const Data data;
  const Directory out;
  Program first("../examples/train_images", arguments(data, out, {"--epochs", "1"}));
  REQUIRE(first.wait() == 0);
  const auto run = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--epochs", "2"});
    auto program = std::make_unique<Program>("../examples/train_images", arguments(data, out, options));
    const int status = program->wait();
    INFO(program->out() << program->err());
    return std::tuple(status, program->out(), program->err());
  };
  const std::vector<std::pair<std::vector<std::string>, std::string>> others = {
      {{"--batch", "32"}, "--batch 16 (now 32)"},
      {{"--limit", "320"}, "--limit 640 (now 320)"},
      {{"--optimizer", "sgd"}, "--optimizer adam (now sgd)"},
      {{"--model", "lenet"}, "--model mlp (now lenet)"},
      {{"--seed", "2", "--batch", "8"}, "--batch 16 (now 8), --seed 1 (now 2)"}};
  for (const auto& [options, words] : others) {
    const auto [status, said, fault] = run(options);
    CHECK(status == 1);
    CHECK(std::ranges::count(fault, '\n') == 1);
    CHECK_THAT(fault, Catch::Contains(words) && Catch::Contains("--fresh"));
  }
  const auto [status, said, word] = run({"--lr", "0.001", "--replicas", "1", "--dtype", "bfloat16"});
  CHECK(status == 0);
  CHECK(
      word ==
      "train_images: made before with --dtype float32 (now bfloat16), --lr usual (now 0.001), --replicas 2 (now 1)\n");
  CHECK_THAT(said, Catch::Contains("going on from step"));
  const auto [again, restarted, nothing] = run({"--batch", "32", "--fresh"});
  CHECK(again == 0);
  CHECK(nothing.empty());
}

TEST_CASE("a second train_images in the same folder is told who has it") {
  const Data data;
  const Directory out;
  Program first("../examples/train_images", arguments(data, out, {"--epochs", "10000"}));
  REQUIRE(first.read_for(std::chrono::minutes(1), "epoch 1/"));
  Program second("../examples/train_images", arguments(data, out, {"--epochs", "10000"}));
  CHECK(second.wait() == 1);
  CHECK_THAT(second.err(),
             Catch::Contains((out.path / "checkpoints").string()) && Catch::Contains("locked by process"));
  first.signal(SIGINT);
  CHECK(first.wait() == 0);
}

}  // namespace
}  // namespace troupe::testing
