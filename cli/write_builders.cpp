// SPDX-License-Identifier: Apache-2.0
// The program write_builders: writes troupe/ops.h and its bodies from the op registry. A file that holds the same text
// already is left alone, so that what depends on it need not be built again.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/builders.h"
#include "troupe/op_library.h"

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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes the typed C++ builders from Troupe's op registry.");
  std::string header, source;
  app.add_option("--header", header, "File for troupe/ops.h");
  app.add_option("--source", source, "File for the bodies, ops.cpp");
  CLI11_PARSE(app, argc, argv);

  const auto library = troupe::make_op_library();
  const bool written = write_if_changed(header, builders_header(library->ops)) &&
                       write_if_changed(source, builders_source(library->ops));
  return written ? 0 : 1;
}
