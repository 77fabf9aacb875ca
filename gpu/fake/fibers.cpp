// SPDX-License-Identifier: Apache-2.0
// Changing stacks: a few instructions on x86-64, elsewhere ucontext, whose every change is a call of the system.
#include "gpu/fake/fibers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TROUPE_FIBERS_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define TROUPE_FIBERS_TSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TROUPE_FIBERS_ASAN
#endif
#if defined(__SANITIZE_THREAD__)
#define TROUPE_FIBERS_TSAN
#endif
#ifdef TROUPE_FIBERS_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TROUPE_FIBERS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
// Keeps what a function must keep, in the order of the pops below it: then the other stack has the same to give back.
asm(R"(
.text
.p2align 4
.hidden troupe_change_stack
.globl troupe_change_stack
.type troupe_change_stack, @function
troupe_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size troupe_change_stack, .-troupe_change_stack
.hidden troupe_begin_fiber
.globl troupe_begin_fiber
.type troupe_begin_fiber, @function
troupe_begin_fiber:
  movq %r12, %rdi
  xorl %ebp, %ebp
  callq *%rbx
  ud2
.size troupe_begin_fiber, .-troupe_begin_fiber
)");
extern "C" void troupe_change_stack(void** from, void* to);
extern "C" void troupe_begin_fiber();
#endif

namespace troupe::gpu::fake {

void fiber_entry(Fiber* fiber) { Fiber::run(fiber); }

namespace {

#if defined(__x86_64__)
/// A stack as troupe_change_stack leaves one, whose caller is the beginning of a fiber.
void* first_context(char* stack, size_t bytes, Fiber* fiber) {
  auto* top = reinterpret_cast<uintptr_t*>(stack + bytes);
  *--top = 0;  // the end, for whoever reads stacks; two of them, since calls begin at multiples of 16 bytes
  *--top = 0;
  *--top = reinterpret_cast<uintptr_t>(&troupe_begin_fiber);
  *--top = 0;                                          // rbp
  *--top = reinterpret_cast<uintptr_t>(&fiber_entry);  // rbx
  *--top = reinterpret_cast<uintptr_t>(fiber);         // r12
  for (int i = 0; i < 3; ++i) *--top = 0;              // r13, r14, r15
  return top;
}
void change(void** from, void* to) { troupe_change_stack(from, to); }
#else
void begin(unsigned low, unsigned high) { fiber_entry(reinterpret_cast<Fiber*>(uint64_t{high} << 32 | low)); }
void* first_context(char* stack, size_t bytes, Fiber* fiber) {
  // The context lies at the low end of the stack, which grows down from the other.
  auto* context = new (stack) ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack + sizeof(ucontext_t);
  context->uc_stack.ss_size = bytes - sizeof(ucontext_t);
  context->uc_link = nullptr;
  const auto at = reinterpret_cast<uint64_t>(fiber);
  makecontext(context, reinterpret_cast<void (*)()>(begin), 2, static_cast<unsigned>(at),
              static_cast<unsigned>(at >> 32));
  return context;
}
void change(void** from, void* to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}
#endif

}  // namespace

Fiber::Fiber(size_t stack_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes_ = (stack_bytes + page - 1) / page * page;
  // One page more that nobody may touch: a kernel that needs too much stack stops there.
  void* memory =
      mmap(nullptr, bytes_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, page, PROT_NONE);
  stack_ = static_cast<char*>(memory) + page;
#ifdef TROUPE_FIBERS_TSAN
  own_shadow_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef TROUPE_FIBERS_TSAN
  __tsan_destroy_fiber(own_shadow_);
#endif
#ifdef TROUPE_FIBERS_ASAN
  __asan_unpoison_memory_region(stack_, bytes_);
#endif
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  munmap(stack_ - page, bytes_ + page);
}

bool Fiber::resume(void (*body)(void*), void* argument) {
  if (returned_) {
    body_ = body;
    argument_ = argument;
    returned_ = false;
    // One that has returned waits in run() for its next body.
    if (!begun_) context_ = first_context(stack_, bytes_, this);
    begun_ = true;
  }
#ifdef TROUPE_FIBERS_TSAN
  resumer_shadow_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_shadow_, 0);
#endif
#ifdef TROUPE_FIBERS_ASAN
  void* shadow = nullptr;
  __sanitizer_start_switch_fiber(&shadow, stack_, bytes_);
#endif
  change(&resumer_, context_);
#ifdef TROUPE_FIBERS_ASAN
  __sanitizer_finish_switch_fiber(shadow, nullptr, nullptr);
#endif
  return returned_;
}

void Fiber::pause() {
#ifdef TROUPE_FIBERS_TSAN
  __tsan_switch_to_fiber(resumer_shadow_, 0);
#endif
#ifdef TROUPE_FIBERS_ASAN
  __sanitizer_start_switch_fiber(&own_shadow_, resumer_stack_, resumer_bytes_);
#endif
  change(&context_, resumer_);
  arrived();
}

void Fiber::arrived() {
#ifdef TROUPE_FIBERS_ASAN
  __sanitizer_finish_switch_fiber(own_shadow_, &resumer_stack_, &resumer_bytes_);
#endif
}

void Fiber::run(Fiber* fiber) {
  fiber->arrived();
  while (true) {
    fiber->body_(fiber->argument_);
    fiber->returned_ = true;
    fiber->pause();
  }
}

}  // namespace troupe::gpu::fake
