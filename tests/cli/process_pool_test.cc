#include "anneal/cli/measure/process_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

std::vector<ItemOutcome> run(size_t count, const PoolOptions& options,
                             const std::function<std::vector<std::byte>(size_t)>& work) {
  std::vector<ItemOutcome> outcomes;
  InterruptWatch interrupts;
  run_in_processes(
      count, options, interrupts, work,
      [&](size_t item, ItemOutcome outcome) {
        EXPECT_EQ(item, outcomes.size());
        outcomes.push_back(std::move(outcome));
      },
      [](size_t) {});
  return outcomes;
}

TEST(ProcessPool, AnswersComeInOrder) {
  const auto outcomes = run(9, {3, 0}, [](size_t item) {
    usleep(static_cast<useconds_t>((9 - item) * 3000));
    return std::vector<std::byte>(item * 30000, static_cast<std::byte>(item));
  });
  ASSERT_EQ(outcomes.size(), 9u);
  for (size_t i = 0; i < 9; ++i)
    EXPECT_EQ(outcomes[i].answer, std::vector<std::byte>(i * 30000, static_cast<std::byte>(i)));
}

TEST(ProcessPool, AnItemThatEndsItsProcessIsLostAlone) {
  const auto outcomes = run(6, {2, 0.5}, [](size_t item) -> std::vector<std::byte> {
    if (item == 1) kill(getpid(), SIGKILL);
    if (item == 2) _exit(7);
    if (item == 3) throw std::runtime_error("lost");
    if (item == 4) sleep(60);
    return {std::byte{1}};
  });
  ASSERT_EQ(outcomes.size(), 6u);
  EXPECT_TRUE(outcomes[0].answer);
  EXPECT_THAT(outcomes[1].died, HasSubstr("signal 9"));
  EXPECT_THAT(outcomes[2].died, HasSubstr("status 7"));
  EXPECT_THAT(outcomes[3].died, HasSubstr("status 1"));
  EXPECT_THAT(outcomes[4].died, HasSubstr("more than 0.5 s"));
  EXPECT_TRUE(outcomes[5].answer);
}

TEST(ProcessPool, AnInterruptUnwindsAndThenEndsTheProcess) {
  const auto interrupted = [] {
    struct Cleanup {
      ~Cleanup() { std::fputs("cleaned up", stderr); }
    };
    InterruptWatch interrupts;
    try {
      const Cleanup cleanup;
      kill(getpid(), SIGTERM);
      run_in_processes(
          1, {1, 0}, interrupts,
          [](size_t) {
            sleep(60);
            return std::vector<std::byte>();
          },
          [](size_t, const ItemOutcome&) {}, [](size_t) {});
    } catch (const Error&) {
    }
  };
  EXPECT_EXIT(interrupted(), ::testing::KilledBySignal(SIGTERM), "cleaned up");
}

TEST(ProcessPool, NothingToDo) {
  EXPECT_TRUE(run(0, {2, 0}, [](size_t) { return std::vector<std::byte>(); }).empty());
}

}  // namespace
}  // namespace anneal
