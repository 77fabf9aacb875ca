// SPDX-License-Identifier: Apache-2.0
// Fiber: a function on a stack of its own, that stops in the middle and goes on later. The threads of a GPU's block run
// on fibers of one thread of the host. AddressSanitizer and ThreadSanitizer are told of each change of stacks.
#pragma once
#include <cstddef>

namespace troupe::gpu::fake {

/// Made and used by one thread. A fiber that goes while its function is paused takes the stack away under it: nothing
/// on it is destroyed.
class Fiber {
 public:
  explicit Fiber(size_t stack_bytes = kStack);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Begins body(argument), or goes on with it behind the pause() where it stopped. Returns whether it has returned;
  /// the next call then begins anew. Not to be called by a fiber.
  bool resume(void (*body)(void*), void* argument);
  /// Called by the body: back to who resumed it.
  void pause();

  static constexpr size_t kStack = 256 << 10;  // bytes; taken from the system page by page, as they are used

 private:
  static void run(Fiber* fiber);
  void arrived();

  char* stack_ = nullptr;
  size_t bytes_ = 0;
  void* context_ = nullptr;  // where the fiber goes on
  void* resumer_ = nullptr;  // where who resumed it does
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool begun_ = false, returned_ = true;
  // What the sanitizers know stacks by.
  void *own_shadow_ = nullptr, *resumer_shadow_ = nullptr;
  const void* resumer_stack_ = nullptr;
  size_t resumer_bytes_ = 0;

  friend void fiber_entry(Fiber* fiber);
};

}  // namespace troupe::gpu::fake
