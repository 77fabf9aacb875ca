// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/cluster.md take for granted.
#pragma once
#include "troupe/cluster.h"
#include "troupe/scope.h"
#include "troupe/session.h"

using namespace troupe;

extern const std::string spec;
extern const EngineOptions client_options;
extern const Dataset my_dataset;
extern const std::vector<std::string> files;
extern const int task;
extern const std::unique_ptr<Engine> engine;
void register_my_ops(OpRegistry& ops, KernelRegistry& kernels);
void wait_until_asked_to_end();
