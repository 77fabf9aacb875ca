// SPDX-License-Identifier: Apache-2.0
// The Checkpointer: a process killed, a power cut, a full disk or a damaged file at any byte never costs the last good
// checkpoint.
#include "troupe/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include "tests/io/simulated_files.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

TensorMap state(int64_t step) {
  return {{"w", Tensor::of<float>({float(step), 1, 2})}, {"step", Tensor::scalar<int64_t>(step)}};
}

void check_holds(const Checkpointer::Loaded& loaded, int64_t step) {
  CHECK(loaded.step == step);
  REQUIRE(loaded.tensors.size() == 2);
  CHECK(loaded.tensors.at("step").identical(Tensor::scalar<int64_t>(step)));
  CHECK(loaded.tensors.at("w").identical(Tensor::of<float>({float(step), 1, 2})));
}

std::vector<int64_t> steps(const Checkpointer& c) {
  std::vector<int64_t> out;
  const auto entries = c.list();
  REQUIRE(entries.ok());
  for (const auto& e : *entries) out.push_back(e.step);
  return out;
}

std::shared_ptr<SimulatedFiles> with_two() {
  auto files = std::make_shared<SimulatedFiles>();
  Checkpointer c = *Checkpointer::open("d", 2, files);
  REQUIRE(c.save(state(1), 1).ok());
  REQUIRE(c.save(state(2), 2).ok());
  return files;
}

/// Opens what a crash left and loads; the step found.
int64_t recovered(const std::shared_ptr<SimulatedFiles>& files) {
  auto c = Checkpointer::open("d", 2, files);
  REQUIRE(c.ok());
  for (const auto& [path, file] : files->now) CHECK(!path.ends_with(".partial"));
  auto loaded = c->load_latest();
  REQUIRE(loaded.ok());
  CHECK(loaded->skipped.empty());
  check_holds(*loaded, loaded->step);
  REQUIRE(c->save(state(loaded->step + 1), loaded->step + 1).ok());  // and training goes on
  check_holds(*c->load_latest(), loaded->step + 1);
  return loaded->step;
}

}  // namespace

TEST_CASE("a checkpointer saves, loads, lists and keeps the last n") {
  TemporaryDirectory dir;
  auto opened = Checkpointer::open(dir.file("deep/er"), 3);
  REQUIRE(opened.ok());
  Checkpointer& c = *opened;
  CHECK(c.load_latest().error().code == Code::kNotFound);
  for (int64_t step : {5, 10, 15, 20}) {
    auto path = c.save(state(step), step);
    REQUIRE(path.ok());
    CHECK(std::filesystem::exists(*path));
  }
  CHECK(steps(c) == std::vector<int64_t>{10, 15, 20});
  auto loaded = c.load_latest();
  REQUIRE(loaded.ok());
  check_holds(*loaded, 20);
  CHECK(loaded->skipped.empty());
  check_holds(*Checkpointer::open(dir.file("deep/er"))->load_latest(), 20);

  REQUIRE(c.save(state(20), 20).ok());  // the same step again
  CHECK(steps(c) == std::vector<int64_t>{10, 15, 20});
  CHECK(c.save(state(1), -1).error().code == Code::kInvalidArgument);
  CHECK_THAT(c.save({{"names", Tensor::scalar<std::string>("x")}}, 25).error().message, Catch::Contains("names"));
  check_holds(*c.load_latest(), 20);
}

TEST_CASE("a run that was set back keeps what it saves and drops the abandoned checkpoints first") {
  auto files = std::make_shared<SimulatedFiles>();
  Checkpointer c = *Checkpointer::open("d", 3, files);
  for (int64_t step : {10, 20, 30}) REQUIRE(c.save(state(step), step).ok());
  REQUIRE(c.save(state(15), 15).ok());
  CHECK(steps(c) == std::vector<int64_t>{10, 15, 30});
  check_holds(*c.load_latest(), 15);
}

TEST_CASE("killed or cut off at every byte of a save, the last good checkpoint loads") {
  auto whole = with_two();
  const int64_t before = whole->spent;
  REQUIRE(Checkpointer::open("d", 2, whole)->save(state(3), 3).ok());
  const int64_t cost = whole->spent - before;
  REQUIRE(cost > 200);
  int64_t old = 0, fresh = 0;
  for (int64_t budget = 1; budget <= cost + 1; ++budget) {
    auto files = with_two();
    files->budget = budget;
    if (auto c = Checkpointer::open("d", 2, files); c.ok()) (void)c->save(state(3), 3).ok();
    const int64_t after_kill = recovered(files->after_kill());
    const int64_t after_cut = recovered(files->after_power_cut());
    const int64_t after_late_cut = recovered(files->after_late_power_cut());
    for (int64_t step : {after_kill, after_cut, after_late_cut}) {
      CHECK((step == 2 || step == 3));
      ++(step == 2 ? old : fresh);
    }
  }
  CHECK(old > 0);
  CHECK(fresh > 0);
}

TEST_CASE("a disk that is full at any byte is an error that leaves everything as it was") {
  for (int64_t space = 0; space < 400; space += 7) {
    auto files = with_two();
    files->space = space;
    Checkpointer c = *Checkpointer::open("d", 2, files);
    auto saved = c.save(state(3), 3);
    if (saved.ok()) {
      CHECK(space > 200);
      continue;
    }
    CHECK(saved.error().code == Code::kResourceExhausted);
    for (const auto& [path, file] : files->now) CHECK(!path.ends_with(".partial"));
    auto loaded = c.load_latest();
    REQUIRE(loaded.ok());
    CHECK(loaded->skipped.empty());
    check_holds(*loaded, 2);
    files->space = -1;
    REQUIRE(c.save(state(3), 3).ok());
    check_holds(*c.load_latest(), 3);
  }
}

TEST_CASE("the real file system reports a full disk") {
  if (!std::filesystem::exists("/dev/full")) return;
  const Status status = write_safetensors("/dev/full", state(1), 1);
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::kResourceExhausted);
  CHECK_THAT(status.error().message, Catch::Contains("/dev/full"));
}

TEST_CASE("an operation that fails leaves the last good checkpoint") {
  for (const char* operation : {"create", "append", "sync", "close", "rename", "sync_directory"}) {
    auto files = with_two();
    files->fail = operation;
    Checkpointer c = *Checkpointer::open("d", 2, files);
    auto saved = c.save(state(3), 3);
    REQUIRE(!saved.ok());
    CHECK_THAT(saved.error().message, Catch::Contains(operation));
    CHECK(c.load_latest()->step == 2);
  }
  auto files = with_two();
  files->fail = "remove";  // of the checkpoint beyond keep: what was asked for is done all the same
  Checkpointer c = *Checkpointer::open("d", 2, files);
  CHECK(c.save(state(3), 3).ok());
  CHECK(steps(c).size() == 3);
}

TEST_CASE("data are synced before they get their name, and names before the next step") {
  auto files = std::make_shared<SimulatedFiles>();
  Checkpointer c = *Checkpointer::open("d", 1, files);
  REQUIRE(c.save({}, 1).ok());
  files->log.clear();
  REQUIRE(c.save({}, 2).ok());
  const std::string two = "d/checkpoint-000000000002.safetensors", one = "d/checkpoint-000000000001.safetensors";
  CHECK(files->log == std::vector<std::string>{
                          "create " + two + ".partial", "append " + two + ".partial", "sync " + two + ".partial",
                          "close " + two + ".partial", "rename " + two + ".partial", "sync_directory d",
                          "create d/latest.partial", "append d/latest.partial", "sync d/latest.partial",
                          "close d/latest.partial", "rename d/latest.partial", "sync_directory d", "remove " + one});
}

TEST_CASE("any damaged byte of a checkpoint, or of the pointer, falls back and says so") {
  const auto good = with_two();
  const std::string path = "d/checkpoint-000000000002.safetensors";
  for (const std::string& victim : {path, std::string("d/latest")}) {
    const size_t size = good->now.at(victim)->data.size();
    for (size_t i = 0; i < size; ++i) {
      for (bool cut : {false, true}) {
        auto files = good->after_kill();
        std::string& data = files->now[victim]->data;
        if (cut) data.resize(i);
        else data[i] = static_cast<char>(data[i] ^ 0x10);
        auto loaded = Checkpointer::open("d", 2, files)->load_latest();
        REQUIRE(loaded.ok());
        check_holds(*loaded, loaded->step);
        if (victim == path && loaded->step == 1) {
          REQUIRE(loaded->skipped.size() == 1);
          CHECK_THAT(loaded->skipped[0],
                     Catch::Contains(path) && (Catch::Contains("offset") || Catch::Contains("dtype")));
        }
        // Only a byte of the header's padding may go unnoticed.
        if (victim == path && loaded->step == 2) CHECK((!cut && good->now.at(victim)->data[i] == ' '));
      }
    }
  }
}

TEST_CASE("a missing pointer or target falls back; nothing sound is an error that lists the faults") {
  auto files = with_two();
  Checkpointer c = *Checkpointer::open("d", 2, files);
  files->now.erase("d/latest");
  auto loaded = c.load_latest();
  REQUIRE(loaded.ok());
  check_holds(*loaded, 2);
  CHECK(loaded->skipped.size() == 1);

  files = with_two();
  c = *Checkpointer::open("d", 2, files);
  files->now.erase("d/checkpoint-000000000002.safetensors");
  loaded = c.load_latest();
  REQUIRE(loaded.ok());
  check_holds(*loaded, 1);
  CHECK_THAT(loaded->skipped.at(0), Catch::Contains("000002"));

  files->now["d/checkpoint-000000000001.safetensors"]->data = "rubbish";
  loaded = c.load_latest();
  REQUIRE(!loaded.ok());
  CHECK(loaded.error().code == Code::kDataLoss);
  CHECK_THAT(loaded.error().message, Catch::Contains("000001") && Catch::Contains("000002"));
}

TEST_CASE("a checkpoint under another step's name is passed over") {
  auto files = with_two();
  files->now["d/checkpoint-000000000002.safetensors"] = files->now["d/checkpoint-000000000001.safetensors"];
  CHECK(Checkpointer::open("d", 2, files)->load_latest()->step == 1);
}

TEST_CASE("temporaries of a killed process are removed at the start, other files stay") {
  TemporaryDirectory dir;
  dir.write("checkpoint-000000000007.safetensors.partial", "half");
  dir.write("latest.partial", "half");
  dir.write("notes.partial", "mine");
  REQUIRE(Checkpointer::open(dir.path()).ok());
  CHECK(std::filesystem::exists(dir.file("notes.partial")));
  CHECK(!std::filesystem::exists(dir.file("latest.partial")));
  CHECK(!std::filesystem::exists(dir.file("checkpoint-000000000007.safetensors.partial")));
}

TEST_CASE("a directory that cannot be made is an error that names it") {
  TemporaryDirectory dir;
  dir.write("file", "x");
  auto c = Checkpointer::open(dir.file("file/sub"));
  REQUIRE(!c.ok());
  CHECK_THAT(c.error().message, Catch::Contains("file/sub"));
}

TEST_CASE("a saving process killed by SIGKILL leaves a loadable checkpoint") {
  TemporaryDirectory dir;
  for (int round = 0; round < 5; ++round) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto c = Checkpointer::open(dir.path(), 2);
      for (int64_t step = 1 + 1000 * round; c.ok(); ++step) {
        if (!c->save(state(step), step).ok()) ::_exit(1);
        if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      }
      ::_exit(1);
    }
    char byte;
    for (int saves = 0; saves <= round; ++saves) REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    ::close(ready[0]);
    ::close(ready[1]);
    auto loaded = Checkpointer::open(dir.path(), 2)->load_latest();
    REQUIRE(loaded.ok());
    CHECK(loaded->skipped.empty());
    CHECK(loaded->step >= 1 + 1000 * round + round);
    check_holds(*loaded, loaded->step);
  }
}
