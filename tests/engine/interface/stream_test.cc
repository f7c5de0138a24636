// Enqueued runs: order in a stream, overlap of streams, errors at wait(), and busy contexts.
#include "anneal/engine/run/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <semaphore>
#include <thread>
#include <utility>

#include "anneal/engine/run/debug.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kLongEnough = 20s;  // a test that waits so long has failed

// Only the first step reads x.
constexpr std::string_view kChain = R"txt(
graph chain(x: f32[8])
  const m: f32[8,8] = random(1)
  r = Reshape(x, i64{1,8})
  a = MatMul(r, m)
  b = Softmax(a) axis=1
  c = Reshape(b, i64{8})
  y = Softmax(c) axis=0
  return y
)txt";

std::vector<float> values_of(uint32_t seed, int64_t count) {
  const Tensor tensor = random_f32({count}, seed);
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
}

std::vector<float> output_of(const ExecutionContext& context) {
  return elements(context.output("y"));
}

// A context, the memory of its input and its results on their own.
struct Chain {
  explicit Chain(std::shared_ptr<const Engine> engine, uint32_t seed)
      : context(std::move(engine)), x(values_of(seed, 8)) {
    context.set_input("x", view(x, {8}));
  }
  std::vector<float> expected() {
    context.run();
    return output_of(context);
  }
  ExecutionContext context;
  std::vector<float> x;
};

TEST(Stream, ARunGivesWhatABlockingRunGives) {
  Chain chain(engine_of(build_text(kChain)), 1);
  const auto want = chain.expected();
  const Stream stream = Stream::make();
  for (int i = 0; i < 20; ++i) {
    const std::future<void> read = chain.context.enqueue(stream);
    chain.context.wait();
    EXPECT_EQ(read.wait_for(0s), std::future_status::ready);
    EXPECT_TRUE(chain.context.is_done());
    EXPECT_EQ(output_of(chain.context), want);
  }
  chain.context.wait();  // nothing is enqueued
}

// Each context reads the output of the one before it.
TEST(Stream, RunsOfAStreamKeepTheirOrder) {
  const auto engine = engine_of(build_text(kChain));
  constexpr size_t kLength = 6;
  std::vector<std::vector<float>> memory(kLength + 1, std::vector<float>(8));
  std::vector<ExecutionContext> contexts;
  for (size_t i = 0; i < kLength; ++i) {
    contexts.emplace_back(engine, ContextOptions{.threads = 1 + static_cast<int>(i % 2)});
    contexts[i].set_input("x", view(memory[i], {8}));
    contexts[i].set_output("y", view(memory[i + 1], {8}));
  }
  const Stream stream = Stream::make();
  for (uint32_t round = 0; round < 30; ++round) {
    std::ranges::copy(values_of(round, 8), memory[0].begin());
    for (ExecutionContext& context : contexts) context.run();
    const auto want = memory.back();
    for (size_t i = 1; i <= kLength; ++i) std::ranges::fill(memory[i], 0.0f);
    for (ExecutionContext& context : contexts) context.enqueue(stream);
    stream.wait();
    EXPECT_EQ(memory.back(), want);
    for (ExecutionContext& context : contexts) context.wait();
  }
}

// Each run waits inside until the other has begun.
TEST(Stream, RunsOfDifferentStreamsOverlap) {
  const auto engine = engine_of(build_text(kChain));
  Chain a(engine, 1), b(engine, 2);
  std::binary_semaphore a_begun{0}, b_begun{0};
  std::atomic<bool> overlapped = true;
  const auto meet = [&](std::binary_semaphore& mine, std::binary_semaphore& other) {
    mine.release();
    if (!other.try_acquire_for(kLongEnough)) overlapped = false;
  };
  bool a_told = false, b_told = false;
  observe(a.context, [&](const Observation&) {
    if (!std::exchange(a_told, true)) meet(a_begun, b_begun);
  });
  observe(b.context, [&](const Observation&) {
    if (!std::exchange(b_told, true)) meet(b_begun, a_begun);
  });
  const Stream first = Stream::make(), second = Stream::make();
  a.context.enqueue(first);
  b.context.enqueue(second);
  a.context.wait();
  b.context.wait();
  EXPECT_TRUE(overlapped && a_told && b_told);
}

TEST(Stream, RunsOfOneStreamDoNotOverlap) {
  const auto engine = engine_of(build_text(kChain));
  std::vector<std::unique_ptr<Chain>> chains;
  std::atomic<int> inside = 0, most = 0;
  const Stream stream = Stream::make(), same = stream;
  for (uint32_t i = 0; i < 4; ++i) {
    chains.push_back(std::make_unique<Chain>(engine, i));
    observe(chains.back()->context, [&](const Observation&) {
      most = std::max(most.load(), ++inside);
      std::this_thread::sleep_for(1ms);
      --inside;
    });
  }
  for (size_t i = 0; i < chains.size(); ++i) chains[i]->context.enqueue(i % 2 ? stream : same);
  for (const auto& chain : chains) chain->context.wait();
  EXPECT_EQ(most, 1);
}

// A run that stops after its second step until it is let go.
struct HeldRun {
  explicit HeldRun(const std::shared_ptr<const Engine>& engine, uint32_t seed = 1)
      : chain(engine, seed) {
    observe(chain.context, [this](const Observation& observed) {
      if (observed.step.empty() || was_let_go) return;
      if (first_step.empty()) first_step = observed.step;
      if (observed.step == first_step) return;
      reached.release();
      was_let_go = go.try_acquire_for(kLongEnough);
    });
  }
  Chain chain;
  std::binary_semaphore reached{0}, go{0};
  std::string first_step;
  std::atomic<bool> was_let_go = false;
};

TEST(Stream, InputsMayBeWrittenBeforeTheRunEnds) {
  const auto engine = engine_of(build_text(kChain));
  const auto want = Chain(engine, 1).expected();
  HeldRun run(engine);
  const Stream stream = Stream::make();
  const std::future<void> read = run.chain.context.enqueue(stream);
  ASSERT_EQ(read.wait_for(kLongEnough), std::future_status::ready);
  ASSERT_TRUE(run.reached.try_acquire_for(kLongEnough));
  EXPECT_FALSE(run.chain.context.is_done());
  std::fill(run.chain.x.begin(), run.chain.x.end(), 1e9f);
  run.go.release();
  run.chain.context.wait();
  EXPECT_EQ(output_of(run.chain.context), want);
}

// An input that is an output, too, is read to the end; the callback comes all the same, once.
TEST(Stream, TheCallbackComesOnceForEachRun) {
  const auto engine = engine_of(build_text(R"txt(
graph same(x: f32[8])
  y = Pointwise(x) program="(f32)->(f32) neg($0)"
  return y, x as z
)txt"));
  ExecutionContext context(engine);
  std::vector<float> x(8, 2.0f);
  context.set_input("x", view(x, {8}));
  const Stream stream = Stream::make();
  for (int i = 1; i < 5; ++i) {
    std::atomic<int> calls = 0;
    context.enqueue(stream, [&] { ++calls; });
    context.wait();
    EXPECT_EQ(calls, 1);
  }
  observe(context, [](const Observation&) { fail(ErrorCode::kIo, "the disk is full"); });
  std::atomic<int> calls = 0;
  context.enqueue(stream, [&] { ++calls; });
  EXPECT_THROW(context.wait(), Error);
  EXPECT_EQ(calls, 1);
  context.set_input("x", {});
  EXPECT_THROW(context.enqueue(stream, [&] { ++calls; }), Error);
  EXPECT_EQ(calls, 1);
  context.set_input("x", view(x, {8}));
  observe(context, {});
  context.enqueue(stream, nullptr);
  context.wait();
}

TEST(Stream, ErrorsOfARunAreThrownByWait) {
  Chain chain(engine_of(build_text(kChain)), 1);
  const auto want = chain.expected();
  const Stream stream = Stream::make();
  observe(chain.context, [](const Observation&) { fail(ErrorCode::kIo, "the disk is full"); });
  chain.context.enqueue(stream);
  stream.wait();  // throws nothing
  EXPECT_EQ(error_of([&] { chain.context.wait(); }), "io: the disk is full");
  EXPECT_THAT(error_of([&] { chain.context.output("y"); }), HasSubstr("call run() first"));
  observe(chain.context, {});
  chain.context.enqueue(stream);
  chain.context.wait();
  EXPECT_EQ(output_of(chain.context), want);
}

TEST(Stream, MissingInputsFailAtOnce) {
  ExecutionContext context(engine_of(build_text(kChain)));
  const Stream stream = Stream::make();
  EXPECT_THAT(error_of([&] { context.enqueue(stream); }),
              HasSubstr("invalid_argument: input \"x\" is not set"));
  context.wait();
  EXPECT_TRUE(context.is_done());
}

TEST(Stream, ABusyContextTakesNothingButWait) {
  const auto engine = engine_of(build_text(kChain));
  HeldRun run(engine);
  ExecutionContext& context = run.chain.context;
  const Stream stream = Stream::make();
  context.enqueue(stream);
  ASSERT_TRUE(run.reached.try_acquire_for(kLongEnough));
  const std::function<void()> calls[] = {
      [&] { context.set_input("x", view(run.chain.x, {8})); },
      [&] { context.set_input("x", {}); },
      [&] { context.set_output("y", view(run.chain.x, {8})); },
      [&] { context.prepare({}); },
      [&] { context.output_dims("y"); },
      [&] { context.run(); },
      [&] { context.profile(); },
      [&] { context.enqueue(stream); },
      [&] { context.output("y"); },
      [&] { context.run_warnings(); },
      [&] { context.memory_bytes(); },
      [&] { context.arena_bytes(); },
      [&] { observe(context, {}); },
  };
  for (const auto& call : calls)
    EXPECT_EQ(
        error_of(call),
        "invalid_argument: the context has an enqueued run: call wait() before anything else");
  run.go.release();
  context.wait();
  EXPECT_TRUE(run.was_let_go);
}

TEST(Stream, AnObserverCannotWaitForItsRun) {
  Chain chain(engine_of(build_text(kChain)), 1);
  const Stream stream = Stream::make();
  observe(chain.context, [&](const Observation&) { chain.context.wait(); });
  chain.context.enqueue(stream);
  EXPECT_THAT(error_of([&] { chain.context.wait(); }),
              HasSubstr("an observer must not wait for its own run"));
  observe(chain.context, [&](const Observation&) { stream.wait(); });
  chain.context.enqueue(stream);
  EXPECT_THAT(error_of([&] { chain.context.wait(); }),
              HasSubstr("a run must not wait for its own stream"));
}

TEST(Stream, DestroyingABusyContextWaits) {
  const auto engine = engine_of(build_text(kChain));
  const Stream stream = Stream::make();
  auto run = std::make_unique<HeldRun>(engine);
  run->chain.context.enqueue(stream);
  ASSERT_TRUE(run->reached.try_acquire_for(kLongEnough));
  std::thread later([&go = run->go] {
    std::this_thread::sleep_for(20ms);
    go.release();
  });
  std::atomic<bool>& was_let_go = run->was_let_go;
  { const ExecutionContext gone = std::move(run->chain.context); }
  EXPECT_TRUE(was_let_go);
  later.join();
}

TEST(Stream, ABusyContextMayMoveAndItsStreamMayGo) {
  const auto engine = engine_of(build_text(kChain));
  std::vector<float> x = values_of(1, 8);
  std::vector<ExecutionContext> contexts;
  for (int i = 0; i < 5; ++i) {
    contexts.emplace_back(engine);
    contexts.back().set_input("x", view(x, {8}));
  }
  contexts[0].run();
  const auto want = output_of(contexts[0]);
  {
    const Stream stream = Stream::make();
    for (ExecutionContext& context : contexts) context.enqueue(stream);
  }  // waits for the runs
  contexts.erase(contexts.begin() + 1);
  contexts.insert(contexts.begin(), ExecutionContext(engine));
  for (size_t i = 1; i < contexts.size(); ++i) {
    EXPECT_TRUE(contexts[i].is_done());
    contexts[i].wait();
    EXPECT_EQ(output_of(contexts[i]), want);
  }
  ExecutionContext moved = std::move(contexts[1]);
  EXPECT_THAT(error_of([&] { contexts[1].run(); }), HasSubstr("the context was moved"));
  EXPECT_EQ(output_of(moved), want);
}

TEST(Stream, ManyContextsOnManyStreamsAndThreads) {
  const auto engine = engine_of(build_text(kDynamicNet));
  const auto inputs_of = [](uint32_t seed) {
    const int64_t n = 1 + seed % 16;
    return std::vector{random_f32({n, 6}, seed), random_f32({n, 6}, seed + 1)};
  };
  std::vector<std::map<std::string, std::vector<float>>> wanted;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    ExecutionContext context(engine, {.threads = 1});
    wanted.push_back(run(context, *engine, inputs_of(seed)));
  }
  const Stream shared = Stream::make();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Stream own = Stream::make();
      std::vector<ExecutionContext> contexts;
      for (int i = 0; i < 3; ++i) contexts.emplace_back(engine);
      for (uint32_t round = 0; round < 10; ++round) {
        std::vector<std::vector<Tensor>> inputs;
        for (uint32_t i = 0; i < 3; ++i) {
          inputs.push_back(inputs_of((round + i + t) % 8));
          contexts[i].set_input("x", inputs[i][0].view());
          contexts[i].set_input("z", inputs[i][1].view());
          contexts[i].enqueue(i == 0 ? shared : own);
        }
        for (uint32_t i = 0; i < 3; ++i) {
          contexts[i].wait();
          const auto& want = wanted[(round + i + t) % 8];
          for (const auto& [name, values] : want)
            if (elements(contexts[i].output(name)) != values) ++wrong;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Stream, NamesWhatItCannotTake) {
  Chain chain(engine_of(build_text(kChain)), 1);
  int not_a_stream = 0;
  const Stream of_gpu = Stream::from_cuda(&not_a_stream);
  EXPECT_THAT(error_of([&] { chain.context.enqueue(of_gpu); }),
              AllOf(HasSubstr("unsupported: a CUstream cannot take a run of an engine on x86-64"),
                    HasSubstr("use Stream::make()")));
  chain.context.run();
  EXPECT_THAT(error_of([] { Stream::make("toaster"); }),
              HasSubstr("invalid_argument: \"toaster\" is no device of a stream"));
  EXPECT_THAT(error_of([] { Stream::make("cuda:7"); }), HasSubstr("device: "));
  Stream from = Stream::make();
  const Stream to = std::move(from);
  from.wait();  // NOLINT(bugprone-use-after-move)
  EXPECT_THAT(error_of([&] { chain.context.enqueue(from); }),
              HasSubstr("the stream was moved from"));
}

// The threads of a process are not those of its child.
TEST(Stream, AChildProcessDoesNotWaitForThreadsOfItsParent) {
  const auto engine = engine_of(build_text(kChain));
  const Stream stream = Stream::make();
  auto busy = std::make_unique<Chain>(engine, 1);
  busy->context.enqueue(stream, [] {});
  stream.wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const auto is_refused = [](auto&& call) {
      return error_of(call).find("forked from") != std::string::npos;
    };
    bool right = is_refused([&] { stream.wait(); }) && is_refused([&] { busy->context.wait(); });
    Chain chain(engine, 2);
    right &= is_refused([&] { chain.context.enqueue(stream, [] {}); });
    const auto expected = chain.expected();
    const Stream own = Stream::make();
    chain.context.enqueue(own, [] {});
    chain.context.wait();
    right &= output_of(chain.context) == expected;
    busy.reset();
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  busy->context.wait();
}

}  // namespace
}  // namespace anneal::testing
