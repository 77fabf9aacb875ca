// SPDX-License-Identifier: Apache-2.0
// Tests of what ends or limits a process run it in a child: a hidden test case ("[.child]") of the same program, which
// begins with `if (argument_of_child() < 0) return;`. What a child after fork() may do is tried by in_child().
#pragma once
#include <catch2/catch.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace troupe {

/// How a child ended, and what it had written to its outputs.
struct Ended {
  int status = -1;  // -1: by a signal
  int signal = 0;
  std::string output;
};

/// Runs the hidden test case `name` of this program with `argument`; a signal ends it after a minute.
inline Ended run_child(const std::string& name, int64_t argument = 0) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    setenv("TROUPE_CHILD", std::to_string(argument).c_str(), 1);
    alarm(60);
    execl("/proc/self/exe", "tests", name.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  Ended out;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) out.output.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  if (WIFEXITED(status)) out.status = WEXITSTATUS(status);
  else out.signal = WTERMSIG(status);
  return out;
}

/// The exit status of a child after fork() that returns what `body` does; minus the signal that ended it, SIGALRM after
/// 20 seconds.
template <class F> int in_child(F&& body) {
#if defined(__SANITIZE_ADDRESS__)
  int tries = 5;  // a child gets the sanitizer's locks as other threads hold them, and may wait for one for ever
#else
  int tries = 1;
#endif
  for (;;) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20);
      _exit(body());
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (WTERMSIG(status) != SIGALRM || --tries == 0) return -WTERMSIG(status);
  }
}

/// The argument of run_child(); -1: this is not a child.
inline int64_t argument_of_child() {
  const char* argument = std::getenv("TROUPE_CHILD");
  return argument ? std::atoll(argument) : -1;
}

}  // namespace troupe
