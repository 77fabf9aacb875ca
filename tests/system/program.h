// SPDX-License-Identifier: Apache-2.0
// Programs as child processes: what they print on which stream, how they end, and signals for them.
#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::testing {

/// What a standard stream of a program is.
enum class Stream {
  kRead,     // a pipe that the test reads
  kClosed,   // closed, as by >&-
  kFull,     // /dev/full
  kNoReader  // a pipe whose reader is gone
};

class Program {
 public:
  /// Starts the program of this path, which is relative to the folder of the tests.
  Program(const std::string& path, std::vector<std::string> arguments, Stream out = Stream::kRead,
          Stream err = Stream::kRead)
      : ends_{open_stream(out), open_stream(err)} {
    arguments.insert(arguments.begin(), path);
    // A program that a signal ends leaves its threads, which ThreadSanitizer would report.
    const char* options = std::getenv("TSAN_OPTIONS");
    std::vector<std::string> environment = {"TSAN_OPTIONS=" + std::string(options ? options : "") +
                                            ":report_thread_leaks=0"};
    for (char** at = environ; *at; ++at)
      if (!std::string_view(*at).starts_with("TSAN_OPTIONS=")) environment.emplace_back(*at);

    // By posix_spawn(), not fork(): an engine of the test has threads, which may hold the locks of a sanitizer's
    // allocator, and what runs between fork() and exec would wait for them for ever.
    posix_spawn_file_actions_t streams;
    ::posix_spawn_file_actions_init(&streams);
    for (const auto& [end, stream, number] :
         {std::tuple(ends_[0], out, STDOUT_FILENO), std::tuple(ends_[1], err, STDERR_FILENO)}) {
      if (end.child >= 0) ::posix_spawn_file_actions_adddup2(&streams, end.child, number);
      if (stream == Stream::kClosed) ::posix_spawn_file_actions_addclose(&streams, number);
    }
    sigset_t ends, mask;
    ::sigemptyset(&ends);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::sigaddset(&ends, s);
    ::sigprocmask(SIG_BLOCK, nullptr, &mask);
    posix_spawnattr_t how;
    ::posix_spawnattr_init(&how);
    ::posix_spawnattr_setsigdefault(&how, &ends);
    ::posix_spawnattr_setsigmask(&how, &mask);
    ::posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    const int error =
        ::posix_spawn(&pid_, path.c_str(), &streams, &how, pointers(arguments).data(), pointers(environment).data());
    ::posix_spawnattr_destroy(&how);
    ::posix_spawn_file_actions_destroy(&streams);
    INFO(path << ": " << std::strerror(error));
    REQUIRE(error == 0);
    for (End& end : ends_)
      if (end.child >= 0) ::close(end.child);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const End& end : ends_)
      if (end.parent >= 0) ::close(end.parent);
  }

  const std::string& out() const { return ends_[0].text; }
  const std::string& err() const { return ends_[1].text; }
  /// Of the process; -1 once wait() has seen its end.
  pid_t pid() const { return pid_; }
  /// The signal that it died of, else 0.
  int died_of() const { return died_of_; }

  /// Reads what it prints for so long, or until `text` is there or it ends; whether `text` is there.
  bool read_for(std::chrono::nanoseconds most, const std::string& text = {}) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + most;
    for (;;) {
      if (!text.empty() && (out().find(text) != std::string::npos || err().find(text) != std::string::npos))
        return true;
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now()).count();
      if (left <= 0 || (ends_[0].parent < 0 && ends_[1].parent < 0)) return false;
      pollfd ready[2] = {{ends_[0].parent, POLLIN, 0}, {ends_[1].parent, POLLIN, 0}};
      const timespec wait = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
      if (::ppoll(ready, 2, &wait, nullptr) <= 0) continue;
      for (int i : {0, 1})
        if (ready[i].revents != 0) read_some(ends_[i]);
    }
  }
  void signal(int number) { REQUIRE(::kill(pid_, number) == 0); }
  /// Reads the rest; the exit status, -1 for death by a signal, -2 where it does not end in a minute.
  int wait() {
    read_for(std::chrono::minutes(1));
    if (ends_[0].parent >= 0 || ends_[1].parent >= 0) return -2;
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    died_of_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  struct End {
    int parent = -1, child = -1;
    std::string text = {};
  };
  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> out;
    for (std::string& s : strings) out.push_back(s.data());
    out.push_back(nullptr);
    return out;
  }
  static End open_stream(Stream stream) {
    if (stream == Stream::kClosed) return {};
    if (stream == Stream::kFull) return {.child = ::open("/dev/full", O_WRONLY | O_CLOEXEC)};
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    if (stream == Stream::kRead) return {.parent = ends[0], .child = ends[1]};
    ::close(ends[0]);
    return {.child = ends[1]};
  }
  static void read_some(End& end) {
    char piece[4096];
    const ssize_t n = ::read(end.parent, piece, sizeof piece);
    if (n > 0) return void(end.text.append(piece, static_cast<size_t>(n)));
    ::close(end.parent);
    end.parent = -1;
  }

  pid_t pid_ = -1;
  End ends_[2];
  int died_of_ = 0;
};

}  // namespace troupe::testing
