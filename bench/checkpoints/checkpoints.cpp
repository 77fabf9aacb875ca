// SPDX-License-Identifier: Apache-2.0
// How does the time of writing and reading a checkpoint grow with the number of its tensors? Prints one Markdown table;
// the last column, the time of a tensor beside that of the row before, is about 1 where the time is linear.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>

#include "bench/turns.h"
#include "programs/program.h"
#include "troupe/checkpoint.h"

using namespace troupe;

namespace {

template <class Work> double seconds_of(const Work& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

Status measure(const std::vector<int64_t>& counts, const std::string& file, int rounds) {
  programs::print(
      "| tensors | file MiB | written in s | read in s | peak MiB | read, us a tensor | beside the row before |\n"
      "|---|---|---|---|---|---|---|\n");
  double before = 0;
  for (const int64_t count : counts) {
    TensorMap tensors;
    for (int64_t i = 0; i < count; ++i) tensors[fmt::format("layer/{:07}/kernel", i)] = Tensor::scalar<float>(0.5f);
    double written = 1e9, read = 1e9;
    for (int round = 0; round < rounds; ++round) {
      Status status;
      written = std::min(written, seconds_of([&] { status = write_safetensors(file, tensors, 1); }));
      TROUPE_RETURN_IF_ERROR(status);
      read = std::min(read, seconds_of([&] {
                        const auto back = read_safetensors(file);
                        status = back.status();
                        if (back.ok() && std::ssize(back->tensors) != count)
                          status = make_error(Code::kInternal, "{} tensors came back", back->tensors.size());
                      }));
      TROUPE_RETURN_IF_ERROR(status);
    }
    const double each = read / static_cast<double>(count) * 1e6;
    programs::print("| {} | {:.1f} | {:.2f} | {:.2f} | {:.0f} | {:.2f} | {} |\n", count,
                    static_cast<double>(std::filesystem::file_size(file)) / (1 << 20), written, read,
                    bench::memory_mib("VmHWM"), each, before > 0 ? fmt::format("{:.2f}", each / before) : "");
    before = each;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures writing and reading safetensors files of many tensors; prints a Markdown table.");
  std::vector<int64_t> counts = {50'000, 200'000, 1'000'000};
  std::string folder = std::filesystem::temp_directory_path().string();
  int rounds = 3;
  app.add_option("--tensors", counts, "How many, one row each")->delimiter(',')->check(CLI::Range(1, 1'200'000));
  app.add_option("--rounds", rounds, "The best of so many is shown")->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--folder", folder, "Where the file is written, and removed")->capture_default_str();
  return programs::run(app, argc, argv, [&]() -> Status {
    const std::string file = folder + "/bench_checkpoints.safetensors";
    const Status done = measure(counts, file, rounds);
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    return done;
  });
}
