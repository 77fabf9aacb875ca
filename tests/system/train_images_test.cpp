// SPDX-License-Identifier: Apache-2.0
// The main job as its users run it: every mode, resuming, the same weights from the same seed, Ctrl-C, broken data.
#include <catch2/catch.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <sys/wait.h>
#include <unistd.h>

#include "troupe/checkpoint.h"

namespace troupe {
namespace {

namespace fs = std::filesystem;

// A directory that goes with the test.
struct Directory {
  fs::path path;
  Directory() {
    std::string name = (fs::temp_directory_path() / "train_images_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

void write_idx(const fs::path& file, const std::vector<uint32_t>& sizes, const std::vector<uint8_t>& bytes) {
  std::ofstream out(file, std::ios::binary);
  out.write("\0\0\x08", 3).put(static_cast<char>(sizes.size()));
  for (const uint32_t n : sizes)
    for (const int shift : {24, 16, 8, 0}) out.put(static_cast<char>(n >> shift & 255));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

// Ten kinds of images of 12 x 12: noise with a bright bar at a place that tells the kind.
void write_images(const fs::path& directory, const std::string& prefix, uint32_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> pixels(count * 144), labels(count);
  for (uint32_t i = 0; i < count; ++i) {
    labels[i] = static_cast<uint8_t>(random() % 10);
    for (uint32_t p = 0; p < 144; ++p) pixels[i * 144 + p] = static_cast<uint8_t>(random() % 80);
    for (uint32_t x = 0; x < 12; ++x) pixels[i * 144 + (labels[i] + 1) * 12 + x] = 220;
  }
  write_idx(directory / (prefix + "-images-idx3-ubyte"), {count, 12, 12}, pixels);
  write_idx(directory / (prefix + "-labels-idx1-ubyte"), {count}, labels);
}

struct Data : Directory {
  Data() {
    write_images(path, "train", 640, 1);
    write_images(path, "t10k", 200, 2);
  }
};

// train_images as a child process; its output and errors come through one pipe.
class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    const char* program = std::getenv("TRAIN_IMAGES");
    arguments.insert(arguments.begin(), program ? program : "../examples/train_images");
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (std::string& a : arguments) argv.push_back(a.data());
      argv.push_back(nullptr);
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    std::fclose(out_);
  }
  // Reads until a line holds `text`; false at the end.
  bool read_until(const std::string& text) {
    std::string line;
    for (int c; (c = std::fgetc(out_)) != EOF;) {
      output.push_back(static_cast<char>(c));
      if (c != '\n') {
        line.push_back(static_cast<char>(c));
        continue;
      }
      if (line.find(text) != std::string::npos) return true;
      line.clear();
    }
    return false;
  }
  void interrupt() { REQUIRE(kill(pid_, SIGINT) == 0); }
  // Reads the rest; the exit status, or -1 for death by a signal.
  int wait() {
    read_until("\n");  // no line holds that
    int status = 0;
    REQUIRE(waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string output;

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
};

std::vector<std::string> arguments(const Data& data, const Directory& out, std::vector<std::string> more) {
  std::vector<std::string> all = {"--data", data.path.string(), "--out", out.path.string(), "--model",
                                  "mlp",    "--batch",          "16",    "--replicas",      "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TensorMap latest(const Directory& out) {
  auto checkpoints = Checkpointer::open((out.path / "checkpoints").string());
  REQUIRE(checkpoints.ok());
  auto loaded = checkpoints->load_latest();
  INFO((loaded.ok() ? std::string() : loaded.error().str()));
  REQUIRE(loaded.ok());
  return loaded->tensors;
}

TEST_CASE("train_images learns in every mode, and a second run goes on") {
  const Data data;
  const Directory out;
  const std::string mode = GENERATE("sync", "async", "hybrid");
  std::vector<std::string> options = {"--mode", mode, "--epochs", "2"};
  if (mode == "hybrid") options.insert(options.end(), {"--replicas", "3", "--backups", "1"});
  Child first(arguments(data, out, options));
  const int status = first.wait();
  INFO(first.output);
  REQUIRE(status == 0);
  CHECK_THAT(first.output,
             Catch::Contains("epoch 2/2") && Catch::Contains("test accuracy") && Catch::Contains("waited for input"));
  CHECK_FALSE(fs::is_empty(out.path / "events"));

  options[3] = "4";
  Child second(arguments(data, out, options));
  const int again = second.wait();
  INFO(second.output);
  REQUIRE(again == 0);
  CHECK_THAT(second.output,
             Catch::Contains("going on from step") && Catch::Contains("epoch 4/4") && !Catch::Contains("epoch 1/4"));
  CHECK_THAT(second.output, Catch::Contains("test accuracy 100.00 %") || Catch::Contains("test accuracy 9"));
}

TEST_CASE("train_images gives the same weights for the same seed in synchronous mode") {
  const Data data;
  const Directory a, b, c;
  const auto train = [&](const Directory& out, const char* seed) {
    Child child(arguments(data, out, {"--mode", "sync", "--epochs", "1", "--seed", seed}));
    const int status = child.wait();
    INFO(child.output);
    REQUIRE(status == 0);
    return latest(out);
  };
  const TensorMap first = train(a, "1"), same = train(b, "1"), other = train(c, "2");
  REQUIRE(first.size() == same.size());
  for (const auto& [name, value] : first) {
    INFO(name);
    CHECK(value.identical(same.at(name)));
  }
  CHECK_FALSE(first.at("hidden/kernel").identical(other.at("hidden/kernel")));
}

TEST_CASE("Ctrl-C saves a checkpoint and leaves with status 0; the next run goes on") {
  const Data data;
  const Directory out;
  const std::string mode = GENERATE("sync", "async", "hybrid");
  {
    Child child(arguments(data, out, {"--mode", mode, "--epochs", "10000"}));
    const bool begun = child.read_until("epoch 1/");
    INFO(child.output);
    REQUIRE(begun);
    child.interrupt();
    const int status = child.wait();
    INFO(child.output);
    CHECK(status == 0);
    CHECK_THAT(child.output, Catch::Contains("interrupted at step"));
  }
  CHECK(latest(out).contains("hidden/kernel"));
  Child child(arguments(data, out, {"--mode", mode, "--epochs", "10000", "--resume"}));
  const bool resumed = child.read_until("going on from step") && child.read_until("epoch");
  INFO(child.output);
  REQUIRE(resumed);
  CHECK_THAT(child.output, !Catch::Contains("epoch 1/"));
  child.interrupt();
  CHECK(child.wait() == 0);
}

TEST_CASE("a synchronous run that was interrupted ends with the weights of one that was not") {
  const Data data;
  const Directory whole, parts;
  const std::vector<std::string> options = {"--mode", "sync", "--epochs", "40", "--augment"};
  const auto finish = [&](const Directory& out) {
    Child child(arguments(data, out, options));
    const int status = child.wait();
    INFO(child.output);
    REQUIRE(status == 0);
    return latest(out);
  };
  for (const char* reached : {"epoch 1/", "epoch 3/"}) {
    Child child(arguments(data, parts, options));
    const bool begun = child.read_until(reached);
    child.interrupt();
    CHECK(child.wait() == 0);
    INFO(child.output);
    CHECK((begun && child.output.find("interrupted at step") != std::string::npos));
  }
  const TensorMap wanted = finish(whole), resumed = finish(parts);
  REQUIRE(wanted.size() == resumed.size());
  for (const auto& [name, value] : wanted) {
    INFO(name);
    CHECK(value.identical(resumed.at(name)));
  }
}

TEST_CASE("train_images names what is wrong in one line, with status 1") {
  Data data;
  const Directory out;
  const auto fails = [&](std::vector<std::string> options) {
    Child child(arguments(data, out, std::move(options)));
    const int status = child.wait();
    INFO(child.output);
    CHECK(status == 1);
    CHECK(std::count(child.output.begin(), child.output.end(), '\n') == 1);
    return child.output;
  };
  const fs::path images = data.path / "train-images-idx3-ubyte";
  SECTION("a truncated file") {
    fs::resize_file(images, 1000);
    CHECK_THAT(fails({}), Catch::Contains(images.string()));
  }
  SECTION("a missing file") {
    fs::remove(data.path / "t10k-labels-idx1-ubyte");
    CHECK_THAT(fails({}), Catch::Contains("t10k-labels-idx1-ubyte"));
  }
  SECTION("nothing to resume") { CHECK_THAT(fails({"--resume"}), Catch::Contains(out.path.string())); }
  SECTION("a batch larger than the data") { CHECK_THAT(fails({"--batch", "1000"}), Catch::Contains("1000")); }
}

TEST_CASE("train_images explains itself and refuses wrong options") {
  Child help({"--help"});
  CHECK(help.wait() == 0);
  CHECK_THAT(help.output, Catch::Contains("--mode") && Catch::Contains("--replicas") && Catch::Contains("--resume"));
  Child wrong({"--mode", "sometimes"});
  CHECK(wrong.wait() != 0);
  CHECK_THAT(wrong.output, Catch::Contains("sometimes"));
}

}  // namespace
}  // namespace troupe
