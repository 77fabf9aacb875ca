// SPDX-License-Identifier: Apache-2.0
// The program troupe: runs and looks into graphs in TensorFlow's format. Exit status and errors as programs/ has them.
#include <pthread.h>

#include "cli/commands.h"
#include "programs/program.h"
#include "troupe/version.h"

int main(int argc, char** argv) {
  pthread_setname_np(pthread_self(), "troupe");  // what `launch` starts is called "exe" otherwise
  CLI::App app("Runs, looks into and converts what TensorFlow writes: graphs, SavedModels, checkpoints.", "troupe");
  app.set_version_flag("--version", std::string("troupe ") + troupe::version());
  app.require_subcommand(1);
  troupe::Job job;
  troupe::add_run(app, job);
  troupe::add_ops(app, job);
  troupe::add_inspect(app, job);
  troupe::add_place(app, job);
  troupe::add_worker(app, job);
  troupe::add_launch(app, job);
  troupe::add_cluster(app, job);
  troupe::add_checkpoint(app, job);
  troupe::add_freeze(app, job);
  troupe::add_export(app, job);
  return programs::run(app, argc, argv, [&job] { return job(); });
}
