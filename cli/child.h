// SPDX-License-Identifier: Apache-2.0
// Child processes of `troupe launch`, which has one thread: how they start, and signals read as events.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "troupe/error.h"

namespace troupe {

/// Signals that the process gets come here instead, from now on to its end: those that ask it to end, and the end of a
/// child. Children start with the mask from before.
class SignalEvents {
 public:
  SignalEvents();
  ~SignalEvents();
  SignalEvents(const SignalEvents&) = delete;

  struct Event {
    int number = 0;
    /// A terminal sent it, to all processes in its foreground.
    bool from_terminal = false;
  };
  /// Readable when there is a signal.
  int fd() const { return fd_; }
  /// The signals that came, without waiting; not those of children.
  std::vector<Event> take();
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
  int fd_ = -1;
};

struct ChildOptions {
  std::string program;                   // a path, or looked up in PATH where it has no '/'
  std::vector<std::string> arguments;    // argv[0] first
  std::vector<std::string> environment;  // "NAME=value"
  int dies_with_parent = SIGKILL;        // the signal that it gets when its parent ends, however that ends
  int out = -1;                          // its standard output; -1: the parent's
  /// A group of its own, without an input: a terminal's signals and keys do not come to it.
  bool apart = false;
};
/// Starts one, with that mask of signals. Signals do in it what they do by default, but SIGHUP stays ignored under
/// nohup. Errors: the system's, also of a program that cannot be run.
Result<pid_t> start_child(const ChildOptions& options, const sigset_t& signals);

/// The environment of this process with one variable set.
std::vector<std::string> environment_with(const std::string& name, const std::string& value);
/// "status 1", "signal 9 (Killed)" for what waitpid says.
std::string how_it_ended(int status);

}  // namespace troupe
