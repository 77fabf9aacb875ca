// SPDX-License-Identifier: Apache-2.0
// What the code blocks of docs/embedding.md take for granted.
#pragma once
#include <caf/all.hpp>
#include <caf/io/middleman.hpp>
#include <coroutine>
#include <deque>

#include "troupe/dataset_queue.h"
#include "troupe/embed.h"
#include "troupe/nn.h"

using namespace troupe;

struct Job {
  struct promise_type {
    Job get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_value(Status) {}
    void unhandled_exception() {}
  };
};
struct Tokenizer : caf::event_based_actor {
  using caf::event_based_actor::event_based_actor;
};

extern std::unique_ptr<Engine> engine;
extern const Scope scope;
extern Session session;
extern const std::string spec;
extern nn::Variables model;
extern const Node* train;
extern Output loss, accuracy, x, y, image, mask, features, answer;
extern Tensor images, labels, picture;
Tensor choose(const Tensor& seen);
