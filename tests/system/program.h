// SPDX-License-Identifier: Apache-2.0
// Programs as child processes: what they print on which stream, how they end, and signals for them.
#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
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
    // A signal that comes before the program does finds no handler of the tests.
    sigset_t all, before;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, &before);
    pid_ = ::fork();
    if (pid_ != 0) ::sigprocmask(SIG_SETMASK, &before, nullptr);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (std::string& a : arguments) argv.push_back(a.data());
      argv.push_back(nullptr);
      if (ends_[0].child >= 0) ::dup2(ends_[0].child, STDOUT_FILENO);
      if (ends_[1].child >= 0) ::dup2(ends_[1].child, STDERR_FILENO);
      if (out == Stream::kClosed) ::close(STDOUT_FILENO);
      if (err == Stream::kClosed) ::close(STDERR_FILENO);
      // A program that a signal ends leaves its threads, which ThreadSanitizer would report.
      const char* options = std::getenv("TSAN_OPTIONS");
      ::setenv("TSAN_OPTIONS", (std::string(options ? options : "") + ":report_thread_leaks=0").c_str(), 1);
      for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(s, SIG_DFL);
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
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
