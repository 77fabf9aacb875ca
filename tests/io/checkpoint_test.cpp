// SPDX-License-Identifier: Apache-2.0
// The Checkpointer: a process killed, a power cut, a full disk or a damaged file at any byte never costs the last good
// checkpoint.
#include "troupe/checkpoint.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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
  check_holds(*Checkpointer::read_latest(dir.file("deep/er")), 20);

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

TEST_CASE("a kill within the first save leaves a whole checkpoint or nothing, and nothing is passed over") {
  auto files = std::make_shared<SimulatedFiles>();
  REQUIRE(Checkpointer::open("d", 2, files)->save(state(7), 7).ok());
  files->now.erase("d/latest");
  const auto loaded = Checkpointer::read_latest("d", files);
  REQUIRE(loaded.ok());
  check_holds(*loaded, 7);
  CHECK(loaded->skipped.empty());
  files->now.at("d/checkpoint-000000000007.safetensors")->data = "rubbish";
  CHECK(Checkpointer::read_latest("d", files).error().code == Code::kDataLoss);
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

TEST_CASE("temporaries are removed by the next save too") {
  TemporaryDirectory dir;
  auto c = Checkpointer::open(dir.path());
  REQUIRE(c.ok());
  dir.write("checkpoint-000000000007.safetensors.partial", "half");
  REQUIRE(::mkfifo(dir.file("latest.partial").c_str(), 0600) == 0);
  dir.write("notes.partial", "mine");
  REQUIRE(c->save(state(8), 8).ok());
  CHECK(std::filesystem::exists(dir.file("notes.partial")));
  CHECK(!std::filesystem::exists(dir.file("latest.partial")));
  CHECK(!std::filesystem::exists(dir.file("checkpoint-000000000007.safetensors.partial")));
  check_holds(*c->load_latest(), 8);
}

TEST_CASE("a directory has one owner, whom the error of another one names; reading needs none") {
  TemporaryDirectory dir;
  {
    auto mine = Checkpointer::open(dir.path());
    REQUIRE(mine.ok());
    REQUIRE(mine->save(state(1), 1).ok());
    const auto second = Checkpointer::open(dir.path());
    REQUIRE(!second.ok());
    CHECK(second.error().code == Code::kFailedPrecondition);
    CHECK_THAT(second.error().message,
               Catch::Contains(dir.path()) && Catch::Contains(fmt::format("process {} ", ::getpid())));
    const Checkpointer copy = *mine;
    mine = Checkpointer::open(dir.file("elsewhere"));
    CHECK(!Checkpointer::open(dir.path()).ok());  // the copy has it still
    check_holds(*Checkpointer::read_latest(dir.path()), 1);
    CHECK(Checkpointer::read_list(dir.path())->size() == 1);
  }
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto c = Checkpointer::open(dir.path());
    (void)!::write(ready[1], c.ok() ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char answer = 0;
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  const auto other = Checkpointer::open(dir.path());
  CHECK(other.error().code == Code::kFailedPrecondition);
  CHECK_THAT(other.error().message, Catch::Contains(fmt::format("process {} ", child)));
  check_holds(*Checkpointer::read_latest(dir.path()), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  CHECK(Checkpointer::open(dir.path()).ok());  // the kill released it
}

TEST_CASE("an owner whose directory was moved or made again writes nothing into another's") {
  TemporaryDirectory dir;
  const std::string here = dir.file("run"), moved = dir.file("old");
  auto first = Checkpointer::open(here);
  REQUIRE(first.ok());
  REQUIRE(first->save(state(1), 1).ok());
  const auto refused = [&](const char* words) {
    const auto saved = first->save(state(2), 2);
    REQUIRE_FALSE(saved.ok());
    CHECK(saved.error().code == Code::kFailedPrecondition);
    CHECK_THAT(saved.error().message, Catch::Contains(here) && Catch::Contains(words));
  };
  std::filesystem::rename(here, moved);
  refused("was moved or removed since");
  CHECK_FALSE(std::filesystem::exists(here));
  auto second = Checkpointer::open(here);
  REQUIRE(second.ok());
  const std::string partial = here + "/checkpoint-000000000007.safetensors.partial";
  REQUIRE(second->save(state(7), 7).ok());
  std::ofstream(partial) << "of the second";
  refused("was moved or removed and made again since");
  CHECK(std::filesystem::exists(partial));
  check_holds(*Checkpointer::read_latest(here), 7);
  CHECK(Checkpointer::read_list(here)->size() == 1);
  check_holds(*Checkpointer::read_latest(moved), 1);
  // Back where it was, it is the owner again.
  second = Checkpointer::open(dir.file("elsewhere"));
  std::filesystem::remove_all(here);
  std::filesystem::rename(moved, here);
  REQUIRE(first->save(state(2), 2).ok());
  check_holds(*Checkpointer::read_latest(here), 2);
  // A lock that somebody removes is one that another can have.
  std::filesystem::remove(here + "/checkpoint.lock");
  refused("was moved or removed since");
}

TEST_CASE("a child made by fork() holds its parent's directory until it ends") {
  TemporaryDirectory dir;
  auto mine = Checkpointer::open(dir.path());
  REQUIRE(mine.ok());
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  mine = Checkpointer::open(dir.file("elsewhere"));
  const auto other = Checkpointer::open(dir.path());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  REQUIRE(!other.ok());
  CHECK_THAT(other.error().message, Catch::Contains(fmt::format("process {} ", ::getpid())));
  CHECK(Checkpointer::open(dir.path()).ok());
}

TEST_CASE("a file system without locks is an error with words, and so is a lock that is not a file") {
  auto files = std::make_shared<SimulatedFiles>();
  files->no_locks = true;
  const auto c = Checkpointer::open("d", 2, files);
  CHECK(c.error().code == Code::kFailedPrecondition);
  CHECK_THAT(c.error().message, Catch::Contains("'d'") && Catch::Contains("cannot lock"));
  TemporaryDirectory dir;
  REQUIRE(::mkfifo(dir.file("checkpoint.lock").c_str(), 0600) == 0);
  CHECK_THAT(Checkpointer::open(dir.path()).error().message, Catch::Contains("a FIFO"));
}

TEST_CASE("a FIFO, device, directory or socket as latest or as a checkpoint is an error, not a hang") {
  const std::string name = GENERATE("latest", "checkpoint-000000000001.safetensors");
  const std::string kind = GENERATE("a FIFO", "a device", "a directory", "a socket");
  TemporaryDirectory dir;
  const std::string victim = dir.file(name);
  {
    auto c = Checkpointer::open(dir.path());
    REQUIRE(c->save(state(1), 1).ok());
  }
  REQUIRE(::unlink(victim.c_str()) == 0);
  if (kind == "a FIFO") REQUIRE(::mkfifo(victim.c_str(), 0600) == 0);
  if (kind == "a device") REQUIRE(::symlink("/dev/zero", victim.c_str()) == 0);
  if (kind == "a directory") REQUIRE(::mkdir(victim.c_str(), 0700) == 0);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (kind == "a socket") {
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    REQUIRE(victim.size() < sizeof address.sun_path);
    std::copy(victim.begin(), victim.end(), address.sun_path);
    REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  auto c = Checkpointer::open(dir.path());
  REQUIRE(c.ok());
  const auto loaded = c->load_latest();
  REQUIRE(!loaded.ok());
  CHECK(loaded.error().code == Code::kInvalidArgument);
  CHECK_THAT(loaded.error().message, Catch::Contains(victim) && Catch::Contains(kind));
  if (kind != "a device") {  // a link is replaced, what it leads to stays
    const auto saved = c->save(state(1), 1);
    REQUIRE(!saved.ok());
    CHECK_THAT(saved.error().message, Catch::Contains(victim) && Catch::Contains(kind));
  }
  ::close(listener);
}

TEST_CASE("a reader finds a whole checkpoint each time while another process saves and deletes") {
  TemporaryDirectory dir;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto c = Checkpointer::open(dir.path(), 1);
    for (int64_t step = 1; c.ok(); ++step) {
      if (!c->save(state(step), step).ok()) ::_exit(1);
      if (step == 1 && ::write(ready[1], "x", 1) != 1) ::_exit(1);
    }
    ::_exit(1);
  }
  char byte;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  int64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    const auto loaded = Checkpointer::read_latest(dir.path());
    INFO((loaded.ok() ? std::string() : loaded.error().str()));
    REQUIRE(loaded.ok());
    CHECK(loaded->skipped.empty());
    CHECK(loaded->step >= last);
    last = loaded->step;
    check_holds(*loaded, last);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("metadata is kept with a checkpoint; names that are taken are refused") {
  auto files = std::make_shared<SimulatedFiles>();
  Checkpointer c = *Checkpointer::open("d", 2, files);
  REQUIRE(c.save(state(1), 1, {{"--batch", "64"}, {"Zu\xc3\xb6rich", "a \"word\""}}).ok());
  const auto loaded = c.load_latest();
  REQUIRE(loaded.ok());
  CHECK(loaded->metadata.at("--batch") == "64");
  CHECK(loaded->metadata.at("Zu\xc3\xb6rich") == "a \"word\"");
  CHECK(loaded->metadata.at("step") == "1");
  for (const char* taken : {"format", "step", "crc32c"})
    CHECK_THAT(c.save(state(2), 2, {{taken, "x"}}).error().message, Catch::Contains(taken));
  CHECK(c.save(state(2), 2, {{"bad", "\xff"}}).error().code == Code::kInvalidArgument);
  CHECK(c.load_latest()->step == 1);
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

TEST_CASE("keep_last_n below 1 keeps all, and 1 keeps the one that was saved last, even of a lower step") {
  for (const int64_t keep : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    Checkpointer c = *Checkpointer::open("d", keep, std::make_shared<SimulatedFiles>());
    for (const int64_t step : {1, 2, 3, 4, 5, 6, 7, 8}) REQUIRE(c.save(state(step), step).ok());
    CHECK(steps(c).size() == 8);
  }
  Checkpointer one = *Checkpointer::open("d", 1, std::make_shared<SimulatedFiles>());
  for (const int64_t step : {int64_t{0}, INT64_MAX, int64_t{7}}) {
    REQUIRE(one.save(state(step), step).ok());
    CHECK(steps(one) == std::vector<int64_t>{step});
    CHECK(one.load_latest()->step == step);
  }
}

TEST_CASE("a directory without a name, or that is not there, is an error and makes nothing") {
  CHECK_FALSE(Checkpointer::open("").ok());
  CHECK_FALSE(Checkpointer::read_latest("").ok());
  TemporaryDirectory dir;
  CHECK(Checkpointer::read_latest(dir.file("none")).error().code == Code::kNotFound);
  CHECK(Checkpointer::read_list(dir.file("none")).error().code == Code::kNotFound);
  CHECK_FALSE(std::filesystem::exists(dir.file("none")));
}

TEST_CASE("metadata or names that are not UTF-8 are refused, and the latest checkpoint stays") {
  Checkpointer c = *Checkpointer::open("d", 3, std::make_shared<SimulatedFiles>());
  REQUIRE(c.save(state(1), 1).ok());
  CHECK(c.save(state(2), 2, {{"note", "\xff"}}).error().code == Code::kInvalidArgument);
  CHECK(c.save(state(2), 2, {{"\xc3", "note"}}).error().code == Code::kInvalidArgument);
  CHECK(c.save({{"\xed\xa0\x80", Tensor::scalar(1)}}, 2).error().code == Code::kInvalidArgument);
  check_holds(*c.load_latest(), 1);
  CHECK(steps(c) == std::vector<int64_t>{1});
}
