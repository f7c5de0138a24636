// ContextOptions::max_memory and GraphBuildOptions::max_memory: shapes and models that need more
// are refused with the numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/builder/memory_check.h"
#include "anneal/engine/run/memory/memory_budget.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kGrowing = R"txt(
size N in 1..100000 opt 1
graph growing(x: f32[N,64])
  a = Softmax(x) axis=0
  b = Softmax(a) axis=0
  return b
)txt";

TEST(MemoryLimit, ShapesThatNeedMoreAreRefused) {
  const auto engine = engine_of(build_text(kGrowing));
  ExecutionContext context(engine, {.max_memory = 1 << 20, .prewarm_profiles = false});
  const auto run_rows = [&](int64_t rows) {
    return run(context, *engine, {random_f32({rows, 64}, 1)});
  };
  run_rows(10);
  const size_t before = context.memory_bytes();
  EXPECT_THAT(error_of([&] { run_rows(50000); }),
              AllOf(StartsWith("limit: while allocating activations"),
                    HasSubstr("12797440 bytes are needed"), HasSubstr("limit is 1048576 bytes")));
  EXPECT_LT(context.memory_bytes(), before + 10000);  // the sizes of these shapes are kept
  EXPECT_EQ(run_rows(10), run_rows(10));
}

// Each thread has memory of its own.
TEST(MemoryLimit, AllPartsOfABatchCount) {
  const auto engine = engine_of(build_text(graph_of(kRowsApart, "x: f32[16,6,5,5]")));
  const std::vector<Tensor> inputs = {random_f32({16, 6, 5, 5}, 7)};
  ExecutionContext free(engine, {.threads = 3, .micro_batch = 1});
  const auto want = run(free, *engine, inputs);
  const size_t bytes = free.memory_bytes();
  ExecutionContext enough(engine, {.threads = 3, .max_memory = bytes, .micro_batch = 1});
  EXPECT_EQ(run(enough, *engine, inputs), want);
  ExecutionContext less(engine, {.threads = 3, .max_memory = bytes / 3, .micro_batch = 1});
  EXPECT_THAT(error_of([&] { run(less, *engine, inputs); }), HasSubstr("the memory limit is"));
}

TEST(MemoryLimit, SizesThatValuesDecideCount) {
  const auto engine = engine_of(build_text(R"txt(
size N in 1..100000 opt 1
graph late(x: f32[N])
  y = NonZero(x)
  return y
)txt"));
  ExecutionContext context(engine, {.max_memory = 100000, .prewarm_profiles = false});
  const auto ones = [](int64_t n) {
    return Tensor::of<float>(DataType::kF32, {n}, std::vector<float>(static_cast<size_t>(n), 1.0f));
  };
  run(context, *engine, {ones(100)});
  EXPECT_THAT(error_of([&] { run(context, *engine, {ones(20000)}); }),
              HasSubstr("the memory limit is 100000 bytes"));
  run(context, *engine, {ones(50)});
}

TEST(MemoryLimit, TheBudgetCountsWhatIsHeld) {
  const auto device = cpu_backend().open("cpu");
  MemoryBudget budget(1000);
  {
    const auto first = budget.allocate(*device, 600);
    EXPECT_GE(budget.held(), 600u);
    EXPECT_THAT(error_of([&] { budget.allocate(*device, 600); }),
                HasSubstr("600 bytes are needed and"));
  }
  EXPECT_EQ(budget.held(), 0u);
  EXPECT_NE(budget.allocate(*device, 1000), nullptr);
}

EngineFile build_with(std::string_view text, uint64_t limit) {
  GraphBuildOptions options;
  options.max_memory = limit;
  return build_text(text, options);
}

TEST(MemoryLimit, ABuildRefusesATensorByName) {
  constexpr std::string_view kSquare = R"txt(
graph square(x: f32[100000])
  column = Reshape(x, i64{100000,1})
  row = Reshape(x, i64{1,100000})
  y = Pointwise(column, row) program="(f32,f32)->(f32) add($0,$1)"
  return y
)txt";
  EXPECT_THAT(error_of([&] { build_with(kSquare, uint64_t{1} << 30); }),
              AllOf(StartsWith("limit: tensor \"y\" of layer \"y\" (Pointwise)"),
                    HasSubstr("takes 40000000000 bytes, the memory limit is 1073741824 bytes"),
                    HasSubstr("--max-memory")));
}

TEST(MemoryLimit, ABuildRefusesWeightsAndActivationsTogether) {
  constexpr std::string_view kWide = R"txt(
graph wide(x: f32[4,1000])
  const w: f32[1000,1000] = random(1)
  h = MatMul(x, w)
  y = Softmax(h) axis=1
  return y
)txt";
  EXPECT_EQ(save(build_with(kWide, 5 << 20)), save(build_text(kWide)));
  EXPECT_THAT(
      error_of([&] { build_with(kWide, 1 << 20); }),
      AllOf(HasSubstr("the plan for cpu needs 4048000 bytes: 4000000 for weights, 32000 for"),
            HasSubstr("; step \"h\" (MatMul) needs most"), HasSubstr("limit is 1048576 bytes")));
}

// Also where --max-memory sets no limit.
TEST(MemoryLimit, ABuildRefusesWhatNoMachineHolds) {
  EXPECT_THAT(
      error_of([] {
        build_text("graph large(x: f32[1])\n e = Expand(x, i64{35184372088832})\n return e\n");
      }),
      HasSubstr("tensor \"e\" of step \"e\" (Expand), f32[35184372088832], is larger than "
                "any memory"));
  Plan plan;
  plan.target = "cpu";
  for (const int64_t size : {7, 9, 8})
    plan.slots.push_back({.name = std::to_string(size), .type = {DataType::kF32, {Size(size)}}});
  plan.arena_bytes = {uint64_t{1} << 47};
  EXPECT_THAT(error_of([&] { check_arena_sizes(plan); }),
              HasSubstr("the largest is tensor \"9\", f32[9]: build for smaller sizes"));
}

TEST(MemoryLimit, ABuildLooksAtTheOptSizes) {
  EXPECT_NO_THROW(build_with(kGrowing, 100000));
  std::string large(kGrowing);
  large.replace(large.find("opt 1\n"), 6, "opt 1000\n");
  EXPECT_THAT(error_of([&] { build_with(large, 100000); }), HasSubstr("takes 256000 bytes"));
}

}  // namespace
}  // namespace anneal::testing
