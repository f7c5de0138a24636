// Many contexts on many threads over several engines: right answers, and no more threads than
// asked.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <thread>

#include "anneal/core/parallel.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

constexpr size_t kThreads = 16, kContextsPerThread = 4, kRounds = 10;

// A body that is run as often as the input says.
constexpr std::string_view kLoopNet = R"txt(
graph loop_net(n: i64[], x: f32[8])
  const w: f32[8,8] = random(1)
  body again(i: i64[], c: bool[], v: f32[8], m: f32[8,8])
    r = Reshape(v, i64{1,8})
    p = MatMul(r, m)
    t = Pointwise(p) program="(f32)->(f32) tanh($0)"
    u = Reshape(t, i64{8})
    return c, u, u as seen
  end
  y, all = Loop(n, _, x, w) body=0 carried=1
  return y, all
)txt";

struct Net {
  std::shared_ptr<const Engine> engine;
  std::function<std::vector<Tensor>(uint32_t seed)> inputs;
  std::vector<std::map<std::string, std::vector<float>>> wanted = {};  // by seed
};

size_t threads_of_process() {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(Contexts, ManyOverSeveralEngines) {
  std::vector<Net> nets = {
      {engine_of(build_text(kConvNet)),
       [](uint32_t seed) {
         return std::vector{random_f32({1, 3, 9, 7}, seed)};
       }},
      {engine_of(build_text(kDynamicNet)),
       [](uint32_t seed) {
         const int64_t n = 1 + seed % 16;
         return std::vector{random_f32({n, 6}, seed), random_f32({n, 6}, seed + 1)};
       }},
      {engine_of(build_text(kLateNet)),
       [](uint32_t seed) {
         return std::vector{random_f32({3}, seed), tensor_i64({1 + seed % 5, 3})};
       }},
      {engine_of(build_text(kLoopNet)),
       [](uint32_t seed) {
         return std::vector{Tensor::of<int64_t>(DataType::kI64, {}, {{seed % 7}}),
                            random_f32({8}, seed)};
       }},
  };
  for (Net& net : nets)
    for (uint32_t seed = 0; seed < kRounds; ++seed) {
      ExecutionContext context(net.engine, {.threads = 1});
      net.wanted.push_back(run(context, *net.engine, net.inputs(seed)));
    }

  std::thread([] {}).join();  // with the first, a sanitizer starts one of its own
  const size_t before = threads_of_process();
  const auto workers = static_cast<size_t>(largest_team() - 1);
  size_t most_threads = 0;
  int wrong = 0;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::vector<ExecutionContext> contexts;
      for (size_t c = 0; c < kContextsPerThread; ++c)
        contexts.emplace_back(nets[c].engine,
                              ContextOptions{.threads = 1 + static_cast<int>((t + c) % 3)});
      for (uint32_t round = 0; round < kRounds; ++round)
        for (size_t c = 0; c < kContextsPerThread; ++c) {
          const uint32_t seed = (round + static_cast<uint32_t>(t)) % kRounds;
          const bool right =
              run(contexts[c], *nets[c].engine, nets[c].inputs(seed)) == nets[c].wanted[seed];
          const size_t now = threads_of_process();
          const std::lock_guard lock(mutex);
          wrong += !right;
          most_threads = std::max(most_threads, now);
        }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(most_threads, before + kThreads + workers);
}

}  // namespace
}  // namespace anneal::testing
