// SPDX-License-Identifier: Apache-2.0
#include "bench/turns.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace troupe::bench {

std::string peers_folder(const std::string& question) {
  const char* const folder = std::getenv("TROUPE_BENCH_DIR");
  return std::string(folder ? folder : BENCH_DIR) + "/" + question;
}

namespace {

/// The last line that a file has, without those of spaces alone.
std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  return last;
}

}  // namespace

std::vector<double> measure(const std::string& command) {
  const char* const kept = std::getenv("TROUPE_BENCH_LOG");
  const std::string log =
      kept ? kept : (std::filesystem::temp_directory_path() / fmt::format("troupe_bench_{}", getpid())).string();
  std::FILE* pipe = popen(fmt::format("{} 2>>'{}'", command, log).c_str(), "r");
  if (!pipe) return {};
  std::vector<double> numbers;
  for (double number; std::fscanf(pipe, "%lf", &number) == 1;) numbers.push_back(number);
  const bool worked = pclose(pipe) == 0;
  if (!worked) std::fprintf(stderr, "no numbers from %s: %s\n", command.c_str(), last_line(log).c_str());
  if (!kept) std::filesystem::remove(log);
  return worked ? numbers : std::vector<double>();
}

std::vector<std::vector<double>> rounds(int repeats, size_t numbers, const std::vector<std::string>& commands) {
  std::vector<std::vector<std::vector<double>>> all(commands.size());  // by command and round
  for (int round = 0; round < repeats; ++round)
    for (size_t i = 0; i < commands.size(); ++i) {
      if (round > 0 && all[i].empty()) continue;
      std::vector<double> measured = measure(commands[i]);
      if (measured.empty()) continue;
      measured.resize(std::max(measured.size(), numbers));
      all[i].push_back(std::move(measured));
    }
  std::vector<std::vector<double>> medians(commands.size(), std::vector<double>(numbers));
  for (size_t i = 0; i < commands.size(); ++i)
    for (size_t k = 0; k < numbers && !all[i].empty(); ++k) {
      std::ranges::sort(all[i], {}, [k](const std::vector<double>& measured) { return measured[k]; });
      medians[i][k] = all[i][all[i].size() / 2][k];
    }
  return medians;
}

double memory_mib(const char* what) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == std::string(what) + ":") {
      double kib = 0;
      status >> kib;
      return kib / 1024;
    }
  return 0;
}

std::string show(double number) {
  return number <= 0 ? "no numbers" : number < 100 ? fmt::format("{:.1f}", number) : fmt::format("{:.0f}", number);
}

std::string verdict(double ours, double peer, double other, double at_least) {
  const double best = std::max(peer, other);
  if (best <= 0) return "| - | - |";
  return fmt::format("| {:.2f} | {} |", ours / best, ours >= at_least * best ? "yes" : "**no**");
}

}  // namespace troupe::bench
