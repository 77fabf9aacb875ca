// SPDX-License-Identifier: Apache-2.0
#include "base/stack.h"

#include <pthread.h>
#include <ucontext.h>
#include <catch2/catch.hpp>

#include <thread>
#include <vector>

using troupe::has_stack;

namespace {

bool asked_on_own_stack = true;
void ask() { asked_on_own_stack = has_stack(1); }

bool on_own_stack() {
  std::vector<char> stack(size_t{256} << 10);
  ucontext_t here, there;
  getcontext(&there);
  there.uc_stack.ss_sp = stack.data();
  there.uc_stack.ss_size = stack.size();
  there.uc_link = &here;
  makecontext(&there, ask, 0);
  swapcontext(&here, &there);
  return asked_on_own_stack;
}

}  // namespace

TEST_CASE("a thread has what is left of its stack") {
  CHECK(has_stack(size_t{64} << 10));
  CHECK_FALSE(has_stack(size_t{1} << 46));
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, size_t{512} << 10) == 0);
  pthread_t thread;
  bool few = false, many = true;
  std::pair asked(&few, &many);
  REQUIRE(pthread_create(
              &thread, &attributes,
              [](void* to) -> void* {
                const auto& [few, many] = *static_cast<std::pair<bool*, bool*>*>(to);
                *few = has_stack(size_t{64} << 10);
                *many = has_stack(size_t{1} << 20);
                return nullptr;
              },
              &asked) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  CHECK(few);
  CHECK_FALSE(many);
}

TEST_CASE("a stack that is not the system's has nothing to tell") {
  CHECK(has_stack(1));
  CHECK_FALSE(on_own_stack());
}
