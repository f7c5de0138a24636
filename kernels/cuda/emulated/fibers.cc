#include "anneal/kernels/cuda/emulated/fibers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/device/emulator.h"

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
// Saves what a function must keep and its place, and takes those of another: kept registers, then
// the address to return to, from the stack pointer up.
extern "C" void anneal_switch_stack(void** save, void* to);
asm(R"(
.text
.globl anneal_switch_stack
.hidden anneal_switch_stack
.type anneal_switch_stack, @function
anneal_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size anneal_switch_stack, .-anneal_switch_stack
)");
#else
#include <ucontext.h>
#endif

namespace anneal::cuda {
namespace {

constexpr size_t kBytes = emulator::kStackBytes;

#if defined(__x86_64__)
void swap_stacks(Fiber& from, Fiber& to) {
  anneal_switch_stack(&from.stack_pointer, to.stack_pointer);
}

void set_start(Fiber& fiber, void (*run)()) {
  // As anneal_switch_stack leaves it; `run` finds the stack as behind a call.
  constexpr int kKept = 6;
  auto** top = reinterpret_cast<void**>(fiber.stack + kBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(run);
  for (int i = 0; i < kKept; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}
#else
void swap_stacks(Fiber& from, Fiber& to) {
  ucontext_t here;
  from.stack_pointer = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to.stack_pointer));
}

void set_start(Fiber& fiber, void (*run)()) {
  // At the top of the stack itself, above what it will use.
  auto* context = reinterpret_cast<ucontext_t*>(fiber.stack + kBytes) - 1;
  getcontext(context);
  const size_t page = static_cast<size_t>(getpagesize());
  context->uc_stack.ss_sp = fiber.stack + 2 * page;
  context->uc_stack.ss_size =
      static_cast<size_t>(reinterpret_cast<std::byte*>(context) - fiber.stack) - 2 * page;
  context->uc_link = nullptr;
  makecontext(context, run, 0);
  fiber.stack_pointer = context;
}
#endif

#if defined(__SANITIZE_ADDRESS__)
struct Range {
  const void* begin;
  size_t bytes;
};
Range stack_of(const Fiber& fiber) {
  if (fiber.stack != nullptr) return {fiber.stack, kBytes};
  return {fiber.host_stack, fiber.host_stack_bytes};
}
#endif

}  // namespace

void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool ends) {
#if defined(__SANITIZE_ADDRESS__)
  const Range stack = stack_of(to);
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.sanitizer_state, stack.begin, stack.bytes);
#elif defined(__SANITIZE_THREAD__)
  if (from.stack == nullptr) from.sanitizer_state = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.sanitizer_state, 0);
#endif
  swap_stacks(from, to);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.sanitizer_state, nullptr, nullptr);
#endif
}

namespace {

// Clears the marks of poisoned memory on an abandoned stack.
void forget_marks([[maybe_unused]] const Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
  const size_t page = static_cast<size_t>(getpagesize());
  __asan_unpoison_memory_region(fiber.stack + 2 * page, kBytes - 2 * page);
#endif
}

}  // namespace

void fiber_started() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

Fibers::~Fibers() {
  for (Fiber& fiber : fibers_) {
#if defined(__SANITIZE_THREAD__)
    if (fiber.sanitizer_state != nullptr) __tsan_destroy_fiber(fiber.sanitizer_state);
#endif
    forget_marks(fiber);
    munmap(fiber.stack, kBytes);
  }
}

Fiber& Fibers::host() {
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_t attributes;
  void* stack = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &host_.host_stack_bytes);
  pthread_attr_destroy(&attributes);
  host_.host_stack = stack;
#endif
  return host_;
}

Fiber& Fibers::add() {
  // Twice the size has an aligned half in it; the rest is given back.
  void* mapped = mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    fail(ErrorCode::kDevice, "the emulated device has no memory for the stacks of a block");
  auto* begin = static_cast<std::byte*>(mapped);
  const size_t before = (kBytes - reinterpret_cast<uintptr_t>(begin) % kBytes) % kBytes;
  if (before != 0) munmap(begin, before);
  munmap(begin + before + kBytes, kBytes - before);
  const size_t page = static_cast<size_t>(getpagesize());
  mprotect(begin + before + page, page, PROT_NONE);
  Fiber& fiber = fibers_.emplace_back();
  fiber.stack = begin + before;
#if defined(__SANITIZE_THREAD__)
  fiber.sanitizer_state = __tsan_create_fiber(0);
#endif
  return fiber;
}

void Fibers::prepare(Fiber& fiber, void (*run)()) {
  forget_marks(fiber);
  set_start(fiber, run);
}

}  // namespace anneal::cuda
