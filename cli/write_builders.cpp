// SPDX-License-Identifier: Apache-2.0
// The program write_builders: writes troupe/ops.h, its bodies and the table of ops from the op registry. A file that
// holds the same text already is left alone, so that what depends on it need not be built again.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/kernel_lines.h"
#include "graph/builders.h"
#include "ops/all.h"

namespace {

bool write_if_changed(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  if (std::ifstream present(path, std::ios::binary); present) {
    std::ostringstream bytes;
    bytes << present.rdbuf();
    if (bytes.str() == text) return true;
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) std::cerr << "write_builders: cannot write " << path << "\n";
  return static_cast<bool>(file);
}

std::string kernels_of(const troupe::KernelRegistry& kernels, std::string_view op) {
  const std::vector<std::string> lines = troupe::kernel_lines(kernels, op);
  return lines.empty() ? "none" : fmt::format("{}", fmt::join(lines, "<br>"));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes the typed C++ builders and the table of ops from Troupe's op registry.");
  std::string header, source, docs;
  app.add_option("--header", header, "File for troupe/ops.h");
  app.add_option("--source", source, "File for the bodies, ops.cpp");
  app.add_option("--docs", docs, "File for the table of ops, ops.md");
  CLI11_PARSE(app, argc, argv);

  troupe::OpRegistry ops;
  troupe::KernelRegistry kernels;
  troupe::register_all_ops(ops, kernels);
  const auto devices = [&](std::string_view op) { return kernels_of(kernels, op); };
  const bool written = write_if_changed(header, builders_header(ops)) &&
                       write_if_changed(source, builders_source(ops)) && write_if_changed(docs, ops_page(ops, devices));
  return written ? 0 : 1;
}
