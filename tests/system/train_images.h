// SPDX-License-Identifier: Apache-2.0
// What tests of the main job share: small images in MNIST's format, and train_images as a child process.
#pragma once
#include <catch2/catch.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/system/program.h"
#include "troupe/checkpoint.h"

namespace troupe::testing {

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

inline void write_idx(const fs::path& file, const std::vector<uint32_t>& sizes, const std::vector<uint8_t>& bytes) {
  std::ofstream out(file, std::ios::binary);
  out.write("\0\0\x08", 3).put(static_cast<char>(sizes.size()));
  for (const uint32_t n : sizes)
    for (const int shift : {24, 16, 8, 0}) out.put(static_cast<char>(n >> shift & 255));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

// Ten kinds of images of 12 x 12: noise with a bright bar at a place that tells the kind.
inline void write_images(const fs::path& directory, const std::string& prefix, uint32_t count, uint32_t seed) {
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
  // With `terminal` its output goes to a terminal, and with `file_bytes` no file of it grows beyond so many bytes: a
  // write there fails as on a full disk.
  explicit Child(std::vector<std::string> arguments, bool terminal = false, long file_bytes = -1) {
    const char* program = std::getenv("TRAIN_IMAGES");
    arguments.insert(arguments.begin(), program ? program : "../examples/train_images");
    int ends[2];
    REQUIRE((terminal ? openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) : pipe(ends)) == 0);
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
      if (file_bytes >= 0) {
        const rlimit limit = {static_cast<rlim_t>(file_bytes), static_cast<rlim_t>(file_bytes)};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
      }
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
  // Reads until a line (or a state of the progress bar) holds `text`; false at the end.
  bool read_until(const std::string& text) {
    std::string line;
    for (int c; (c = std::fgetc(out_)) != EOF;) {
      output.push_back(static_cast<char>(c));
      if (c != '\n' && c != '\r') {
        line.push_back(static_cast<char>(c));
        continue;
      }
      if (line.find(text) != std::string::npos) return true;
      line.clear();
    }
    return false;
  }
  void interrupt() { end_by(SIGINT); }
  void end_by(int signal) { REQUIRE(kill(pid_, signal) == 0); }
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

inline std::vector<std::string> arguments(const Data& data, const Directory& out, std::vector<std::string> more) {
  std::vector<std::string> all = {"--data", data.path.string(), "--out", out.path.string(), "--model",
                                  "mlp",    "--batch",          "16",    "--replicas",      "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// train_images behind `prefix`, in a group of its own, saves and ends well though its group is sent SIGTERM three
/// times at once, as timeout and batch systems do.
inline void check_sent_at_once(std::vector<std::string> prefix) {
  const Data data;
  const Directory out;
  prefix.push_back("../examples/train_images");
  for (std::string& argument : arguments(data, out, {"--epochs", "10000"})) prefix.push_back(std::move(argument));
  Program program("/usr/bin/setsid", prefix);
  REQUIRE(program.read_for(std::chrono::minutes(1), "epoch 1/"));
  for (int i = 0; i < 3; ++i) ::kill(-program.pid(), SIGTERM);
  CHECK(program.wait() == 0);
  INFO(program.out() << program.err());
  CHECK_THAT(program.out(), Catch::Contains("interrupted at step"));
}

inline TensorMap latest(const Directory& out) {
  auto loaded = Checkpointer::read_latest((out.path / "checkpoints").string());
  INFO((loaded.ok() ? std::string() : loaded.error().str()));
  REQUIRE(loaded.ok());
  return loaded->tensors;
}

}  // namespace troupe::testing
