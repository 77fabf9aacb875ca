// SPDX-License-Identifier: Apache-2.0
#include "cli/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/system_code.h"

namespace troupe {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// Whether it is not ignored, as SIGHUP is under nohup.
bool handled(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN;
}

Error system_error(const std::string& what, int error) {
  return make_error(code_of_system_error(error), "{}: {}", what, std::generic_category().message(error));
}

}  // namespace

SignalEvents::SignalEvents() {
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGQUIT, SIGCHLD, SIGXCPU, SIGVTALRM, SIGPROF,
                           SIGIO, SIGPWR, SIGSTKFLT})
    sigaddset(&all, signal);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&all, signal);
  if (handled(SIGHUP)) sigaddset(&all, SIGHUP);
  ::signal(SIGCHLD, SIG_DFL);  // whoever started this may have it ignored, and then no child's end is told
  sigprocmask(SIG_BLOCK, &all, &before_);
  fd_ = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
}

SignalEvents::~SignalEvents() {
  if (fd_ >= 0) close(fd_);
  // The mask stays: what has come and was not read would end the program otherwise.
}

std::vector<SignalEvents::Event> SignalEvents::take() {
  std::vector<Event> out;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGCHLD) out.push_back({static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL});
  return out;
}

Result<pid_t> start_child(const ChildOptions& options, const sigset_t& signals) {
  // Everything that takes memory comes before the fork.
  std::vector<std::string> arguments = options.arguments, environment = options.environment;
  const auto argv = pointers(arguments), envp = pointers(environment);
  const pid_t parent = getpid();
  int fault[2];  // carries errno where exec fails
  if (pipe2(fault, O_CLOEXEC) != 0) return system_error("cannot start a process", errno);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, options.dies_with_parent);
    if (getppid() != parent) _exit(1);  // it ended before the line above
    if (options.apart) {
      setpgid(0, 0);
      const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    }
    if (options.out >= 0) dup2(options.out, STDOUT_FILENO);
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGQUIT})
      ::signal(signal, SIG_DFL);
    if (handled(SIGHUP)) ::signal(SIGHUP, SIG_DFL);
    sigprocmask(SIG_SETMASK, &signals, nullptr);
    execvpe(options.program.c_str(), argv.data(), envp.data());
    const int error = errno;
    (void)!write(fault[1], &error, sizeof error);
    _exit(127);
  }
  const int refused = errno;
  close(fault[1]);
  int error = pid < 0 ? refused : 0;
  if (pid > 0 && read(fault[0], &error, sizeof error) > 0) waitpid(pid, nullptr, 0);
  close(fault[0]);
  if (error != 0) return system_error("cannot run '" + options.program + "'", error);
  return pid;
}

std::vector<std::string> environment_with(const std::string& name, const std::string& value) {
  std::vector<std::string> out;
  for (char** at = environ; *at; ++at)
    if (!std::string_view(*at).starts_with(name + "=")) out.emplace_back(*at);
  out.push_back(name + "=" + value);
  return out;
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("status {}", WEXITSTATUS(status));
  return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

}  // namespace troupe
