// SPDX-License-Identifier: Apache-2.0
// What all programs around the library do alike: the exit status, one line on stderr for what is wrong, output that
// failed is an error, signals. docs/programs.md tells it to users.
#pragma once
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "troupe/error.h"

namespace CLI {
class App;
}

namespace programs {

// Exit statuses.
constexpr int kDone = 0;
constexpr int kFailed = 1;          // the work failed, or a signal ended it before it was done
constexpr int kBadCommandLine = 2;  // nothing was begun

/// What SIGINT, SIGTERM, SIGHUP (unless nohup has it ignored), SIGUSR1, SIGUSR2 and SIGALRM do, and, where nothing else
/// handles them, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT and those of real time. SIGQUIT always leaves at
/// once. SIGPIPE and SIGXFSZ do nothing: the write that caused them is an error.
enum class OnSignal {
  kLeave,  // say so and leave with kFailed
  kCount,  // the first one is told by interrupts(); a second one leaves, with kFailed or, after saved(), kDone; the
           // same one within 0.3 s is still the first
};

/// A program from its command line to its exit status: parses, does `work`, reports its error, or an exception, in one
/// line on stderr. Call it first in main.
int run(CLI::App& app, int argc, char** argv, const std::function<troupe::Status()>& work,
        OnSignal on_signal = OnSignal::kLeave);

/// The two halves of run(), for a main that needs them apart. begin() opens /dev/null for standard descriptors that are
/// closed, so that no file gets their numbers, handles signals and parses; a status is one to leave with at once.
/// Numbers must be finite and within their types' ranges.
std::optional<int> begin(CLI::App& app, int argc, char** argv, OnSignal on_signal = OnSignal::kLeave);
/// Reports `done`, or output that was lost; the exit status. From here on signals change nothing.
int end(const troupe::Status& done);

/// From here on signals are counted, as by OnSignal::kCount: for a subcommand of a program where others leave.
void count_signals();
/// Waits for the first signal. Only where signals are counted.
void wait_for_signal();
/// What a program that is done leaves with instead of kDone: the status of another one that it ran.
void set_status(int status);

/// How many signals came so far.
int interrupts();
/// "SIGINT": the first that came, or "".
std::string first_signal();
/// Tells that nothing is left that a signal could lose: one that leaves from here on does so with kDone. Call it before
/// saying that all is saved.
void saved();

/// Prints on stdout; from any thread. What fails, flush() and end() tell: this does not throw.
void print_text(const std::string& text);
template <class... Args> void print(fmt::format_string<Args...> format, Args&&... args) {
  print_text(fmt::format(format, std::forward<Args>(args)...));
}
/// Writes out what was printed. Errors: some of it could not be written, now or before.
troupe::Status flush();

}  // namespace programs
