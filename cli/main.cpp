// SPDX-License-Identifier: Apache-2.0
// The program troupe: runs and looks into graphs in TensorFlow's format. Exit status 0; 1 when the work failed and 2
// for a command line that is wrong, with one line on stderr.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/commands.h"

namespace {

int complain(std::string text, int status) {
  std::ranges::replace(text, '\n', ' ');
  std::fprintf(stderr, "troupe: %s\n", text.c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs and looks into dataflow graphs in TensorFlow's format (GraphDef).", "troupe");
  app.set_version_flag("--version", "troupe " TROUPE_VERSION);
  app.require_subcommand(1);
  troupe::Job job;
  troupe::add_run(app, job);
  troupe::add_ops(app, job);
  troupe::add_inspect(app, job);
  troupe::add_place(app, job);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : complain(e.what(), 2);
  }
  try {  // printing throws when nobody takes what is printed, making a graph when there is no memory for it
    const troupe::Status status = job();
    if (!status.ok()) return complain(status.error().str(), 1);
  } catch (const std::exception& e) {
    return complain(e.what(), 1);
  }
  return std::fflush(stdout) == 0 ? 0 : complain("cannot write to the standard output", 1);
}
