// SPDX-License-Identifier: Apache-2.0
// The state of signals is global because handlers have no other; handlers call only what POSIX lets them.
#include "programs/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <system_error>

#include <CLI/CLI.hpp>

namespace programs {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGQUIT};
/// These end a program too that does not know them; a profiler, say, may have handlers of its own for them. With those
/// of real time, SIGRTMIN to SIGRTMAX.
constexpr int kRarelySent[] = {SIGXCPU, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT};
/// How long a signal waits for room for its line, where stderr is a pipe that is full.
constexpr int kSpeakMs = 1000;
/// A signal that comes again so soon was sent once: timeout of coreutils signals its child, and then the child's group.
constexpr int64_t kSameNs = 300'000'000;

/// Calls f(signal, rare) for each of them.
template <class F> void for_each_ending(F f) {
  for (const int signal : kEnding) f(signal, false);
  for (const int signal : kRarelySent) f(signal, true);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) f(signal, true);
}

std::string program_name;
std::atomic<bool> leaves_at_once{true}, all_saved{false};
std::atomic<bool> leaving_now{false};  // a handler ends the program: it speaks, and nobody else
std::atomic<int> signals{0}, first{0};
std::atomic<int64_t> first_at{0};
std::atomic<int> output_fault{0};
std::atomic<int> waker{-1};  // an eventfd, written by the first signal that is counted
int status_when_done = kDone;

// What a handler says: the name is put in before handlers are.
char leaving[256] = "interrupted\n", leaving_saved[256] = "";

const char* name_of(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    case SIGUSR1: return "SIGUSR1";
    case SIGUSR2: return "SIGUSR2";
    case SIGALRM: return "SIGALRM";
    case SIGQUIT: return "SIGQUIT";
    case SIGXCPU: return "SIGXCPU";
    case SIGVTALRM: return "SIGVTALRM";
    case SIGPROF: return "SIGPROF";
    case SIGIO: return "SIGIO";
    case SIGPWR: return "SIGPWR";
    case SIGSTKFLT: return "SIGSTKFLT";
    case 0: return "";
    default: return "a signal of real time";
  }
}

int64_t now_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

/// It may run on a thread that only begins: AddressSanitizer, which knows no stack of it yet, would speak of _exit.
[[gnu::no_sanitize_address]] void on_signal(int signal) {
  const int64_t now = now_ns();
  int64_t never = 0;
  first_at.compare_exchange_strong(never, now);
  int none = 0;
  const bool again = !first.compare_exchange_strong(none, signal) && none == signal;
  if (again && !leaves_at_once && signal != SIGQUIT && now - first_at < kSameNs) return;
  const int before = signals.fetch_add(1);
  if (before == 0 && !leaves_at_once && signal != SIGQUIT) {
    const uint64_t one = 1;
    const int fault = errno;
    if (waker >= 0) (void)!::write(waker, &one, sizeof one);
    errno = fault;
    return;
  }
  // Of signals that come together the first speaks and leaves. The others let it: one that comes on its thread between
  // these lines would leave without a word.
  if (leaving_now.exchange(true)) return;
  const bool saved = all_saved;
  const char* const text = saved ? leaving_saved : leaving;
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  int ready;
  do ready = ::poll(&room, 1, kSpeakMs);
  while (ready < 0 && errno == EINTR);
  if (ready > 0) (void)!::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(saved ? kDone : kFailed);
}

template <size_t kSize> void put(char (&out)[kSize], const std::string& text) {
  std::copy_n(text.c_str(), std::min(text.size() + 1, kSize), out);
  out[kSize - 1] = '\0';
}

void handle_signals(OnSignal what) {
  if (what == OnSignal::kCount && waker < 0) waker = ::eventfd(0, EFD_CLOEXEC);
  leaves_at_once = what == OnSignal::kLeave;
  const std::string name = program_name.substr(0, 100);
  put(leaving,
      name + (what == OnSignal::kLeave ? ": interrupted by a signal; nothing more is done\n"
                                       : ": left at once by a second signal or SIGQUIT; what was not saved is lost\n"));
  put(leaving_saved, name + ": left at once by a second signal or SIGQUIT; all was saved before\n");
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_NODEFER;
  for_each_ending([&](int signal, bool rare) {
    struct sigaction before = {};
    if (sigaction(signal, nullptr, &before) != 0) return;
    const bool ours = before.sa_handler == on_signal, theirs = !ours && before.sa_handler != SIG_DFL;
    if (rare ? theirs : signal == SIGHUP && before.sa_handler == SIG_IGN) return;
    sigaction(signal, &action, nullptr);
  });
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void open_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)!::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);  // the lowest free number is this one
}

int complain(std::string text, int status) {
  std::ranges::replace(text, '\n', ' ');
  std::fputs((program_name + ": " + text + "\n").c_str(), stderr);
  return status;
}

/// CLI11 writes the largest double in 309 digits.
std::string with_words_for_largest(std::string text) {
  const std::string largest = std::to_string(std::numeric_limits<double>::max());
  if (const size_t at = text.find(largest); at != std::string::npos) text.replace(at, largest.size(), "any");
  return text;
}

/// CLI11 says of an unknown subcommand only that one is required. `from` to `to`: what is given to `app`.
std::string with_subcommands(std::string text, const CLI::App& app, char** from, char** to) {
  char** const given = std::find_if(from, to, [](const char* a) { return a[0] != '-'; });
  if (const auto chosen = app.get_subcommands(); !chosen.empty())
    return given == to ? text : with_subcommands(std::move(text), *chosen[0], given + 1, to);
  std::string known;
  for (const CLI::App* each : app.get_subcommands(std::function<bool(const CLI::App*)>()))
    known += (known.empty() ? "" : ", ") + each->get_name();
  if (known.empty()) return text;
  return (given == to ? text : fmt::format("there is no subcommand '{}'", *given)) + "; there are " + known;
}

/// CLI11 lets NaN through every range, and takes an integer that does not fit for the nearest that does.
void check_numbers(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    for (const std::string& text : option->results()) {
      if (type.starts_with("FLOAT") && !std::isfinite(std::strtod(text.c_str(), nullptr)))
        throw CLI::ValidationError(option->get_name(), "Value " + text + " is not a finite number");
      errno = 0;
      if (type.starts_with("INT")) (void)std::strtoll(text.c_str(), nullptr, 0);
      if (type.starts_with("UINT")) (void)std::strtoull(text.c_str(), nullptr, 0);
      if (errno == ERANGE && !type.starts_with("FLOAT"))
        throw CLI::ValidationError(option->get_name(), "Value " + text + " is out of range");
    }
  }
  for (const CLI::App* chosen : app.get_subcommands()) check_numbers(*chosen);
}

void explain_status(CLI::App& app, OnSignal what) {
  const char* const text = what == OnSignal::kLeave
                               ? "Exit status: 0 done; 1 failed, or interrupted by a signal; 2 a wrong command line."
                               : "Exit status: 0 done, or interrupted by a signal and saved; 1 failed, or interrupted "
                                 "before there\nwas anything to save; 2 a wrong command line.";
  if (app.get_footer().empty()) app.footer(text);
  for (CLI::App* each : app.get_subcommands(std::function<bool(CLI::App*)>())) explain_status(*each, what);
}

}  // namespace

std::optional<int> begin(CLI::App& app, int argc, char** argv, OnSignal what) {
  open_standard_descriptors();
  const std::string path = argc > 0 ? argv[0] : "";
  program_name = app.get_name().empty() ? path.substr(path.rfind('/') + 1) : app.get_name();
  handle_signals(what);
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);  // what a signal leaves is whole lines
  explain_status(app, what);
  try {
    app.parse(argc, argv);
    check_numbers(app);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0)
      return complain(with_subcommands(with_words_for_largest(e.what()), app, argv + 1, argv + argc), kBadCommandLine);
    std::ostringstream text;
    app.exit(e, text, text);
    print_text(text.str());
    return end({});
  }
  return {};
}

int end(const troupe::Status& done) {
  const troupe::Status written = flush();
  for_each_ending([](int signal, bool) {
    struct sigaction now = {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == on_signal) std::signal(signal, SIG_IGN);
  });
  if (!done.ok()) return complain(done.error().str(), kFailed);
  return written.ok() ? status_when_done : complain(written.error().message, kFailed);
}

int run(CLI::App& app, int argc, char** argv, const std::function<troupe::Status()>& work, OnSignal what) {
  if (const auto status = begin(app, argc, argv, what)) return *status;
  try {
    return end(work());
  } catch (const std::system_error& e) {  // of output, it says "file", whatever that is
    if (std::ferror(stdout) && output_fault == 0) output_fault = e.code().value();
    const troupe::Status written = flush();
    return complain(written.ok() ? e.what() : written.error().message, kFailed);
  } catch (const std::exception& e) {  // no memory
    return complain(e.what(), kFailed);
  }
}

void count_signals() { handle_signals(OnSignal::kCount); }

void wait_for_signal() {
  // Not read(), which goes on after a signal: ThreadSanitizer has the handler wait for its end.
  pollfd entry = {waker, POLLIN, 0};
  while (interrupts() == 0) (void)::poll(&entry, 1, -1);
}

void set_status(int status) { status_when_done = status; }

int interrupts() { return signals; }

void saved() {
  all_saved = true;
  while (leaving_now) ::pause();  // a handler on another thread may have looked before, and says that all is lost
}

std::string first_signal() { return name_of(first); }

void print_text(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && output_fault == 0) output_fault = errno;
}

troupe::Status flush() {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return {};
  int fault = output_fault != 0 ? output_fault.load() : errno;
  // Lost by a call that has kept no reason: the next one has the same, most likely.
  if (fault == 0 && ::write(STDOUT_FILENO, "\n", 1) < 0) fault = errno;
  if (fault == 0) fault = EIO;
  output_fault = fault;
  const auto code = fault == ENOSPC ? troupe::Code::kResourceExhausted : troupe::Code::kInternal;
  return troupe::make_error(code, "cannot write to the standard output: {}", std::generic_category().message(fault));
}

}  // namespace programs
