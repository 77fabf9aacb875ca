// SPDX-License-Identifier: Apache-2.0
// Whether code ends the program, and with which words: it runs in a child of its own.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace troupe {

/// What `code` printed on stderr before it called abort(); "survived" when it returned, "crashed" when it died
/// otherwise. Only from a test without other threads.
template <class F> std::string words_of_abort(F&& code) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child < 0) return "no child";
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not the test framework's
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    code();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string words;
  char piece[512];
  for (ssize_t n; (n = ::read(ends[0], piece, sizeof piece)) > 0;) words.append(piece, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) return "survived";
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? words : "crashed";
}

}  // namespace troupe
