// SPDX-License-Identifier: Apache-2.0
// The subcommands of the program troupe, each in the file of its name.
#pragma once
#include <functional>

#include <CLI/CLI.hpp>

#include "troupe/error.h"

namespace troupe {

/// What the command line asks for. Results go to stdout; the error is for the caller to print.
using Job = std::function<Status()>;

/// Each adds its subcommand to `app`; parsing a line that names it sets `job`, which must outlive `app`.
void add_run(CLI::App& app, Job& job);
void add_ops(CLI::App& app, Job& job);
void add_inspect(CLI::App& app, Job& job);
void add_place(CLI::App& app, Job& job);
void add_worker(CLI::App& app, Job& job);
void add_launch(CLI::App& app, Job& job);
void add_cluster(CLI::App& app, Job& job);
void add_checkpoint(CLI::App& app, Job& job);
void add_freeze(CLI::App& app, Job& job);
void add_export(CLI::App& app, Job& job);
/// Of `troupe cluster`.
void add_cluster_keys(CLI::App& cluster, Job& job);

}  // namespace troupe
