// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/serving.md take for granted.
#pragma once
#include <cstdio>

#include "troupe/batcher.h"
#include "troupe/replay_memory.h"
#include "troupe/train.h"
#include "troupe/variable_copies.h"

using namespace troupe;

extern std::unique_ptr<Engine> engine;
extern std::unique_ptr<nn::Trainer> trainer;
extern std::vector<std::unique_ptr<Batcher>> services;
extern Batcher* current;
extern nn::ModelFn model;
extern Dataset batches;
extern Session session;
extern const Scope s;
extern Output x, y, states, next_states;
extern Tensor image, state, action, reward, next;
extern std::vector<double> errors;
Output network(const Scope& scope, nn::Variables& variables, Output input, bool training);
Output loss_of(const Scope& scope, Output q, Output aim);
