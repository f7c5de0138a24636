// A process that has compiled with NVRTC starts others by posix_spawn() and never forks: the
// library in front of NVRTC (nvrtc.cc) ends one that does.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "anneal/kernels/cuda/code/nvrtc.h"
#include "anneal/tests/cuda/gpu_engine.h"

extern char** environ;

namespace anneal::testing {
namespace {

// What wait() says of a process that has compiled and then does `then`.
int status_after_compiling(void (*then)()) {
  const pid_t child = fork();
  if (child == 0) {
    cuda::nvrtc_compiler().compile("extern \"C\" __global__ void f() {}", 90);
    then();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

void spawn_program() {
  char* const arguments[] = {const_cast<char*>("true"), nullptr};
  pid_t program = 0;
  int status = -1;
  if (posix_spawnp(&program, "true", nullptr, nullptr, arguments, environ) != 0 ||
      waitpid(program, &status, 0) != program || status != 0)
    _exit(1);
}

// GoogleTest runs a DeathTest before the other tests: this process must not have compiled yet.
TEST(ForkDeathTest, AProcessThatHasCompiledMaySpawnAndNotFork) {
  if (!is_virtual_card()) GTEST_SKIP() << "it needs the virtual card";
  EXPECT_EQ(status_after_compiling(spawn_program), 0);
  const int status = status_after_compiling([] { fork(); });
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

}  // namespace
}  // namespace anneal::testing
