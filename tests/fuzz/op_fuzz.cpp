// SPDX-License-Identifier: Apache-2.0
// The op fuzzer: runs every op of the registry on random inputs, most of which fit it, some not. Fails when a run
// crashes, hangs, gives what was not inferred or other results in another graph, and when an op never succeeds.
//
// A parent process watches a child, which runs the cases; where that dies it says at which case, and starts another
// that goes on with the next. What both know of the work is in memory that they share.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <poll.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <regex>

#include <CLI/CLI.hpp>

#include "tests/fuzz/op_runner.h"
#include "tests/op_library.h"

namespace {

using namespace troupe;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct Options {
  uint64_t seed = 1;
  std::string ops = ".*";
  int64_t runs = 20, seconds = 0, deadline_ms = kSanitized ? 5000 : 1000;
  bool table = false, print = false;
};

constexpr int64_t kReported = 5;  // failures of one op
constexpr int kCodes = 12;        // those of errors, and success as the last

/// What is known of one op.
struct OpCounts {
  int64_t runs, failures, codes[kCodes];
};

/// What parent and child share.
struct Shared {
  std::atomic<int64_t> round, op;  // the case at work
  std::atomic<bool> done;
  char what[1 << 16];  // that case, as text
  OpCounts counts[2048];
};

std::vector<const OpDef*> wanted_ops(const OpRegistry& ops, const std::string& pattern) {
  const std::regex wanted(pattern);
  std::vector<const OpDef*> out;
  for (const auto& [name, op] : ops.all()) {
    // Those of parts of cut steps run nowhere else: tests/actors/cut_test.cpp.
    const bool of_parts = op->control_flow() == ControlFlow::kSend || op->control_flow() == ControlFlow::kRecv;
    if (!of_parts && std::regex_match(name, wanted)) out.push_back(op.get());
  }
  return out;
}

void report(const std::string& op, uint64_t seed, const std::string& failure, const char* what) {
  std::printf("FAILED: %s: %s\n%s  replay: op_fuzz --seed %llu --ops %s --runs 1\n", op.c_str(), failure.c_str(), what,
              static_cast<unsigned long long>(seed), op.c_str());
  std::fflush(stdout);
}

// -- the child --------------------------------------------------------------------------------------------------------

/// How many runs an op has that never succeeded, for each that others have.
constexpr int64_t kPatience = 40;

class Child {
 public:
  Child(const Options& options, Shared& shared, std::string folder, Clock::time_point end)
      : options_(options), shared_(shared), folder_(std::move(folder)), end_(end) {}

  int run() {
    auto made = fuzz::CaseRunner::create(std::chrono::milliseconds(options_.deadline_ms), [this] {
      ++counts().failures;
      report(op_, seed_, "a run goes on ten times as long as its deadline", shared_.what);
      std::_Exit(3);
    });
    if (!made.ok()) {
      std::fprintf(stderr, "op_fuzz: %s\n", made.error().str().c_str());
      return 1;
    }
    fuzz::CaseRunner& runner = **made;
    const OpRegistry& registry = runner.engine().ops();
    const fuzz::CaseMaker maker(registry, runner.engine().kernels(), folder_);
    for (const std::string& name : maker.unknown_ops())
      std::fprintf(stderr, "op_fuzz: a rule for %s, which is not an op\n", name.c_str());
    const auto ops = wanted_ops(registry, options_.ops);
    bool more = true;
    for (int64_t round = shared_.round; more; shared_.round = ++round, shared_.op = 0) {
      more = false;
      for (auto i = static_cast<size_t>(shared_.op); i < ops.size(); ++i) {
        shared_.op = static_cast<int64_t>(i);
        if (Clock::now() >= end_) break;
        if (round >= options_.runs && (counts().codes[kCodes - 1] > 0 || round >= options_.runs * kPatience)) continue;
        more = true;
        one(runner, maker, *ops[i], options_.seed + static_cast<uint64_t>(round));
      }
    }
    shared_.done = true;
    return 0;
  }

 private:
  OpCounts& counts() { return shared_.counts[shared_.op]; }

  void one(fuzz::CaseRunner& runner, const fuzz::CaseMaker& maker, const OpDef& op, uint64_t seed) {
    op_ = op.name();
    seed_ = seed;
    const fuzz::Case c = maker.make(op, seed);
    const std::string text = c.str();
    std::strncpy(shared_.what, text.c_str(), sizeof(shared_.what) - 1);
    ++counts().runs;
    fuzz::Outcome outcome = runner.run(c);
    if (c.fails && !outcome.status.ok() && outcome.status.error().code == Code::kFailedPrecondition)
      outcome.status = {};
    ++counts().codes[outcome.status.ok() ? kCodes - 1 : static_cast<int>(outcome.status.error().code)];
    if (options_.print)
      std::printf("%s%s seed %llu: %s\n", text.c_str(), op_.c_str(), static_cast<unsigned long long>(seed),
                  outcome.status.ok() ? "ok" : outcome.status.error().str().c_str());
    if (outcome.failure.empty()) return;
    if (++counts().failures <= kReported) report(op_, seed, outcome.failure, shared_.what);
  }

  const Options& options_;
  Shared& shared_;
  const std::string folder_;
  const Clock::time_point end_;
  std::string op_;
  uint64_t seed_ = 0;
};

// -- the parent -------------------------------------------------------------------------------------------------------

/// Runs the child once; whether it came to its end.
bool watch(const Options& options, Shared& shared, const std::string& folder, Clock::time_point end,
           const std::vector<const OpDef*>& ops) {
  int alive[2];  // closed by the end of the child
  if (pipe(alive) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    close(alive[0]);
    if (!kSanitized) {
      const rlimit memory = {rlim_t{6} << 30, rlim_t{6} << 30};
      setrlimit(RLIMIT_AS, &memory);
    }
    if (chdir(folder.c_str()) != 0) std::exit(1);  // names of files may be anything
    const int status = Child(options, shared, folder, end).run();
    std::fflush(stdout);
    std::exit(status);
  }
  close(alive[1]);
  const auto patience = std::chrono::milliseconds(options.deadline_ms * 40);
  auto last = Clock::now();
  int64_t seen = -1, round = -1, op = 0;
  const bool terminal = isatty(2) != 0;
  for (bool open = true, killed = false; open;) {
    pollfd ended = {alive[0], POLLIN, 0};
    open = poll(&ended, 1, 500) == 0;
    round = shared.round;
    op = shared.op;
    const int64_t now = round * 4096 + op + shared.done;
    if (now != seen) last = Clock::now();
    seen = now;
    if (terminal && op < static_cast<int64_t>(ops.size()))
      std::fprintf(stderr, "\rround %lld, %-40.40s", static_cast<long long>(round + 1),
                   ops[static_cast<size_t>(op)]->name().c_str());
    if (open && !killed && Clock::now() - last > patience) {
      std::printf("it does not go on any more\n");
      kill(child, SIGABRT);
      killed = true;
    }
  }
  close(alive[0]);
  if (terminal) std::fprintf(stderr, "\r%60s\r", "");
  int status = 0;
  waitpid(child, &status, 0);
  if (shared.done && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (op < static_cast<int64_t>(ops.size()) && !(WIFEXITED(status) && WEXITSTATUS(status) == 3)) {
    ++shared.counts[op].failures;
    const std::string how = WIFSIGNALED(status) ? fmt::format("the process died by signal {} ({})", WTERMSIG(status),
                                                              strsignal(WTERMSIG(status)))
                                                : fmt::format("the process ended with status {}", WEXITSTATUS(status));
    report(ops[static_cast<size_t>(op)]->name(), options.seed + static_cast<uint64_t>(round), how, shared.what);
  }
  shared.op = op + 1;
  return shared.done;
}

/// The ops by successes, least first, and the sums. Whether all is well.
bool conclude(const Options& options, const Shared& shared, const std::vector<const OpDef*>& ops) {
  std::vector<size_t> order(ops.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto successes = [&](size_t i) { return shared.counts[i].codes[kCodes - 1]; };
  std::ranges::stable_sort(order, {}, successes);
  int64_t runs = 0, well = 0, failures = 0, never = 0;
  if (options.table) std::printf("%-44s %8s %8s %8s  errors\n", "op", "runs", "success", "failed");
  for (const size_t i : order) {
    const OpCounts& c = shared.counts[i];
    runs += c.runs;
    well += successes(i);
    failures += c.failures;
    never += c.runs > 0 && successes(i) == 0;
    if (c.runs > 0 && successes(i) == 0)
      std::printf("FAILED: %s never succeeded in %lld runs\n", ops[i]->name().c_str(), static_cast<long long>(c.runs));
    if (!options.table) continue;
    std::printf("%-44s %8lld %8lld %8lld ", ops[i]->name().c_str(), static_cast<long long>(c.runs),
                static_cast<long long>(successes(i)), static_cast<long long>(c.failures));
    for (int code = 0; code < kCodes - 1; ++code)
      if (c.codes[code] > 0)
        std::printf(" %s: %lld", to_string(static_cast<Code>(code)), static_cast<long long>(c.codes[code]));
    std::printf("\n");
  }
  std::printf("%zu ops, %lld runs, %lld successes, %lld failures, %lld ops without a success\n", ops.size(),
              static_cast<long long>(runs), static_cast<long long>(well), static_cast<long long>(failures),
              static_cast<long long>(never));
  return failures == 0 && never == 0 && runs > 0;
}

int complain(const std::string& text) {
  std::fprintf(stderr, "op_fuzz: %s\n", text.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Runs every op on random inputs, in three graphs that must agree: with constants and all graph passes, without\n"
      "passes, and with inputs that are fed. Exit status: 0; 1 when a run crashed, hung or differed, or an op never\n"
      "succeeded; 2 for a command line that is wrong.",
      "op_fuzz");
  app.add_option("--seed", options.seed, "Run k of an op follows from its name and seed + k")->capture_default_str();
  app.add_option("--ops", options.ops, "Only ops whose names match this regular expression")->capture_default_str();
  app.add_option("--runs", options.runs, "Runs of each op; one that never succeeded has forty times as many")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Begins no run after this time; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--deadline-ms", options.deadline_ms, "Of each run; one that goes on ten times as long hangs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--table", options.table, "Prints the counts of each op, those with the fewest successes first");
  app.add_flag("--print", options.print, "Prints each case and what came of it");
  try {
    app.parse(argc, argv);
    std::regex check(options.ops);
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : complain(e.what());
  } catch (const std::regex_error& e) {
    return complain(fmt::format("--ops '{}': {}", options.ops, e.what()));
  }

  // No engine here: a process with threads cannot fork one that goes on.
  const auto& [registry, kernels] = *testing::op_library();
  const auto ops = wanted_ops(registry, options.ops);
  if (ops.empty()) return complain(fmt::format("no op matches '{}'", options.ops));
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return complain("no memory");
  Shared& shared = *new (memory) Shared;
  char folder[] = "/tmp/op_fuzz_XXXXXX";
  if (!mkdtemp(folder)) return complain(std::string(folder) + ": " + std::strerror(errno));
  const auto end =
      options.seconds > 0 ? Clock::now() + std::chrono::seconds(options.seconds) : Clock::time_point::max();
  for (int deaths = 0; deaths < 200 && !watch(options, shared, folder, end, ops); ++deaths)
    if (shared.done) break;
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return conclude(options, shared, ops) ? 0 : 1;
}
