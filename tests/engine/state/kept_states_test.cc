// States that a context keeps from run to run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "anneal/engine/run/stream.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using States = std::map<std::string, std::string>;

std::shared_ptr<const Engine> engine_with(std::string_view text, const States& states,
                                          const std::string& target = "cpu") {
  GraphBuildOptions options;
  options.targets = {target};
  options.states = states;
  return engine_of(build_text(text, options));
}

Tensor f32(const Dims& dims, std::vector<float> values) {
  return Tensor::of<float>(DataType::kF32, dims, std::span<const float>(values));
}

std::vector<float> run_with(ExecutionContext& context, const Tensor& x, std::string_view output) {
  context.set_input("x", x.view());
  context.run();
  return elements(context.output(output));
}

// The next sum: of the last one, halved, and x.
constexpr std::string_view kSum = R"txt(
size N in 1..8 opt 1
graph sum(h: f32[N,2], x: f32[N,2])
  half = Pointwise(h) program="(f32)->(f32) mul($0,0.5f32)"
  next = Pointwise(half, x) program="(f32,f32)->(f32) add($0,$1)"
  y = Pointwise(next) program="(f32)->(f32) neg($0)"
  return next, y
)txt";

TEST(KeptStates, BeginWithZerosAndFollowTheRuns) {
  const auto engine = engine_with(kSum, {{"h", "next"}});
  EXPECT_EQ(engine->inputs()[0].state_output, "next");
  EXPECT_EQ(engine->inputs()[1].state_output, "");
  ExecutionContext context(engine);
  const Tensor x = f32({1, 2}, {8, 16});
  EXPECT_THAT(run_with(context, x, "y"), ElementsAre(-8, -16));
  EXPECT_THAT(run_with(context, x, "y"), ElementsAre(-12, -24));
  EXPECT_EQ(context.output_dims("next"), (Dims{1, 2}));
  EXPECT_THAT(elements(context.output("next")), ElementsAre(12, 24));
  context.run();  // x is still set
  EXPECT_THAT(elements(context.output("y")), ElementsAre(-14, -28));
  ExecutionContext other(engine);  // a state is its context's
  EXPECT_THAT(run_with(other, x, "y"), ElementsAre(-8, -16));
}

TEST(KeptStates, BeginWithTheSizesOfOtherInputs) {
  ExecutionContext context(engine_with(kSum, {{"h", "next"}}));
  EXPECT_THAT(run_with(context, f32({2, 2}, {1, 2, 3, 4}), "y"), ElementsAre(-1, -2, -3, -4));
  EXPECT_THAT(run_with(context, f32({2, 2}, {1, 2, 3, 4}), "y"), ElementsAre(-1.5, -3, -4.5, -6));
  // The state has two rows now.
  const Tensor one = f32({1, 2}, {1, 2});
  context.set_input("x", one.view());
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("N is"));
}

TEST(KeptStates, BeginAnewWithoutData) {
  ExecutionContext context(engine_with(kSum, {{"h", "next"}}));
  const Tensor two = f32({2, 2}, {1, 2, 3, 4}), one = f32({1, 2}, {8, 16});
  run_with(context, two, "y");
  context.set_input("x", one.view());
  EXPECT_THAT(error_of([&] { context.run(); }),
              HasSubstr("with the states \"h\" [2,2] of the run before"));
  context.set_input("h", {DataType::kF32, {-1, 2}, {}, nullptr});
  EXPECT_THAT(run_with(context, one, "y"), ElementsAre(-8, -16));
  context.set_input("h", {DataType::kF32, {2, 2}, {}, nullptr});
  EXPECT_THAT(run_with(context, two, "y"), ElementsAre(-1, -2, -3, -4));
  EXPECT_THAT(error_of([&] {
                context.set_input("h", {DataType::kF32, {9, 2}, {}, nullptr});
              }),
              HasSubstr("input \"h\" has shape [9,2]"));
  EXPECT_THAT(run_with(context, two, "y"), ElementsAre(-1.5, -3, -4.5, -6));
}

TEST(KeptStates, AreTakenFromTheApplicationWhereItGivesThem) {
  ExecutionContext context(engine_with(kSum, {{"h", "next"}}));
  const Tensor x = f32({1, 2}, {8, 16}), h = f32({1, 2}, {2, 4});
  context.set_input("h", h.view());
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(9, 18));
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(9, 18));
  EXPECT_THAT(elements(h.view()), ElementsAre(2, 4));
  context.set_input("h", {});
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(12.5, 25));
}

TEST(KeptStates, BeginWithTheDefaultValueOfTheInput) {
  ExecutionContext context(engine_with(R"txt(
graph sum(h: f32[2] = f32[2]{32, 64}, x: f32[2])
  half = Pointwise(h) program="(f32)->(f32) mul($0,0.5f32)"
  next = Pointwise(half, x) program="(f32,f32)->(f32) add($0,$1)"
  return next
)txt",
                                       {{"h", "next"}}));
  const Tensor x = f32({2}, {1, 2});
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(17, 34));
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(9.5, 19));
  context.set_input("h", {DataType::kF32, {-1}, {}, nullptr});
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(17, 34));
}

TEST(KeptStates, OutlastARunThatFails) {
  ExecutionContext context(engine_with(kSum, {{"h", "next"}}));
  run_with(context, f32({2, 2}, {1, 2, 3, 4}), "y");
  const Tensor three = f32({3, 2}, {1, 2, 3, 4, 5, 6});
  context.set_input("x", three.view());
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("N is"));
  EXPECT_THAT(run_with(context, f32({2, 2}, {1, 2, 3, 4}), "y"), ElementsAre(-1.5, -3, -4.5, -6));
}

TEST(KeptStates, HaveNoMemoryOfTheApplication) {
  ExecutionContext context(engine_with(kSum, {{"h", "next"}}));
  const Tensor x = f32({1, 2}, {8, 16});
  context.set_input("x", x.view());
  std::vector<float> memory(2);
  EXPECT_THAT(error_of([&] {
                context.set_output("next", view(memory, {1, 2}));
              }),
              HasSubstr("output \"next\" is a state that the context keeps"));
}

TEST(KeptStates, FollowEnqueuedRuns) {
  ExecutionContext context(engine_with(kSum, {{"h", "next"}}));
  const Stream stream = Stream::make("cpu");
  const Tensor x = f32({1, 2}, {8, 16});
  context.set_input("x", x.view());
  for (const float wanted : {8.0F, 12.0F, 14.0F}) {
    context.enqueue(stream);
    context.wait();
    EXPECT_THAT(elements(context.output("next")), ElementsAre(wanted, 2 * wanted));
  }
}

// As decoders of transformers write it.
constexpr std::string_view kConcat = R"txt(
size P in 0..4096 opt 16
graph cache(past: f32[1,2,P,8], x: f32[1,2,1,8])
  present = Concat(past, x) axis=2
  most = Reduce(present, i64{2,3}) kind=max keepdims=false
  return present, most
)txt";

TEST(KeptStates, GrowByConcat) {
  const auto engine = engine_with(kConcat, {{"past", "present"}});
  ExecutionContext context(engine), given(engine);
  Tensor past = f32({1, 2, 0, 8}, {});
  for (int64_t rows = 1; rows <= 100; ++rows) {
    const Tensor x = random_f32({1, 2, 1, 8}, static_cast<uint32_t>(rows));
    const auto wanted = run(given, *engine, {past, x});
    EXPECT_EQ(run_with(context, x, "most"), wanted.at("most"));
    EXPECT_EQ(elements(context.output("present")), wanted.at("present"));
    past = f32({1, 2, rows, 8}, wanted.at("present"));
  }
}

// As GroupQueryAttention writes it.
constexpr std::string_view kBuffer = R"txt(
size P in 0..4096 opt 16
size T in 1..4096 opt 16
graph buffer(past: f32[1,1,P,4], mask: i64[T], x: f32[1,1,1,4], at: i64[1,1,1,4])
  pads = SizeTensor() elements=[0,0,0,0,0,0,max(T, P) - P,0]
  grown = Pad(past, pads, f32[]{0})
  present = ScatterElements(grown, at, x) axis=2
  return present
)txt";

TEST(KeptStates, KeepRowsToSpareThatTheApplicationBeganWith) {
  ExecutionContext context(engine_with(kBuffer, {{"past", "present"}}));
  context.set_input("past", {DataType::kF32, {1, 1, 16, 4}, {}, nullptr});
  std::vector<float> wanted;
  std::set<const void*> memory;
  for (int64_t rows = 1; rows <= 500; ++rows) {
    const Tensor x = random_f32({1, 1, 1, 4}, static_cast<uint32_t>(rows));
    const Tensor mask = tensor_i64(std::vector<int64_t>(static_cast<size_t>(rows), 1));
    const Tensor at =
        Tensor::of<int64_t>(DataType::kI64, {1, 1, 1, 4}, std::vector<int64_t>(4, rows - 1));
    context.set_input("mask", mask.view());
    context.set_input("at", at.view());
    std::vector<float> present = run_with(context, x, "present");
    ASSERT_GE(present.size(), static_cast<size_t>(4 * rows));
    memory.insert(context.output("present").data);
    const std::vector<float> own = elements(x.view());
    wanted.insert(wanted.end(), own.begin(), own.end());
    present.resize(wanted.size());
    ASSERT_EQ(present, wanted) << rows;
  }
  EXPECT_LE(memory.size(), 8U);  // the others were updated in place
}

// A model that reads all rows of its cache.
constexpr std::string_view kMean = R"txt(
size P in 0..4096 opt 16
size T in 1..4096 opt 16
graph mean(past: f32[1,1,P,4], mask: i64[T], x: f32[1,1,1,4], at: i64[1,1,1,4]INPUT)
  pads = SizeTensor() elements=[0,0,0,0,0,0,max(T, P) - P,0]
  grown = Pad(past, pads, f32[]{0})
  present = ScatterElements(grown, at, x) axis=2
  y = Reduce(present, i64{2,3}) kind=mean keepdims=false
  return present, yOUTPUT
)txt";

// With another input and output.
std::string mean(std::string_view input, std::string_view output) {
  std::string text(kMean);
  text.replace(text.find("OUTPUT"), 6, output);
  return text.replace(text.find("INPUT"), 5, input);
}

void set_row(ExecutionContext& context, std::vector<Tensor>& alive, int64_t rows) {
  alive = {Tensor::of<float>(DataType::kF32, {1, 1, 1, 4}, std::vector<float>(4, 1)),
           tensor_i64(std::vector<int64_t>(static_cast<size_t>(rows), 1)),
           Tensor::of<int64_t>(DataType::kI64, {1, 1, 1, 4}, std::vector<int64_t>(4, rows - 1))};
  context.set_input("x", alive[0].view());
  context.set_input("mask", alive[1].view());
  context.set_input("at", alive[2].view());
}

TEST(KeptStates, HaveNoOtherRowsThanTheModelsByThemselves) {
  ExecutionContext context(engine_with(mean("", ""), {{"past", "present"}}));
  std::vector<Tensor> alive;
  for (int64_t rows = 1; rows <= 9; ++rows) {
    set_row(context, alive, rows);
    context.run();
    EXPECT_THAT(elements(context.output("y")), ElementsAre(1)) << rows;
    EXPECT_EQ(context.output("present").dims, (Dims{1, 1, rows, 4}));
  }
}

// Another input has the rows of the cache: more rows to spare than those would be refused.
TEST(KeptStates, GetNoRowsToSpareThatOtherInputsRefuse) {
  ExecutionContext context(engine_with(mean(", w: f32[P]", ", w"), {{"past", "present"}}));
  context.set_input("past", {DataType::kF32, {1, 1, 2, 4}, {}, nullptr});
  std::vector<Tensor> alive;
  for (int64_t rows = 1; rows <= 4; ++rows) {
    set_row(context, alive, rows);
    const Tensor w = random_f32({std::max<int64_t>(rows - 1, 2)}, 1);
    context.set_input("w", w.view());
    context.run();
    EXPECT_EQ(context.output("present").dims, (Dims{1, 1, std::max<int64_t>(rows, 2), 4}));
  }
}

TEST(KeptStates, LastBeyondAnErrorOfTheMemoryLimit) {
  ExecutionContext context(engine_with(R"txt(
size N in 1..100000 opt 1
graph sum(h: f32[N,4], x: f32[N,4])
  next = Pointwise(h, x) program="(f32,f32)->(f32) add($0,$1)"
  return next
)txt",
                                       {{"h", "next"}}),
                           {.max_memory = 60'000, .prewarm_profiles = false});
  const Tensor large = random_f32({10'000, 4}, 1), small = random_f32({2, 4}, 2);
  for (int i = 0; i < 2; ++i) {
    context.set_input("x", large.view());
    EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("limit"));
  }
  EXPECT_EQ(run_with(context, small, "next"), elements(small.view()));
}

TEST(KeptStates, OfNumbersBeginAnewWhereTheyAreNotSet) {
  ExecutionContext context(engine_with(R"txt(
graph sum(h: f32[], x: f32[])
  next = Pointwise(h, x) program="(f32,f32)->(f32) add($0,$1)"
  return next
)txt",
                                       {{"h", "next"}}));
  const Tensor x = f32({}, {3}), h = f32({}, {10});
  context.set_input("h", h.view());
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(13));
  context.set_input("h", {});
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(16));
  context.set_input("h", {});
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(3));
}

TEST(KeptStates, BeginWithTheLeastSizeOfAllProfiles) {
  GraphBuildOptions options;
  options.states = {{"past", "present"}};
  EngineFile file = build_text(kConcat, options);
  std::string later(kConcat);
  later.replace(later.find("0..4096"), 7, "3..4096");
  Plan second = build_text(later, options).plans[0];
  second.profile = 1;
  Plan& first = file.plans[0];
  std::swap(first, second);
  std::swap(first.profile, second.profile);
  file.plans.push_back(second);
  ExecutionContext context(engine_of(file));
  const Tensor x = random_f32({1, 2, 1, 8}, 1);
  for (int64_t rows = 1; rows <= 6; ++rows) {
    run_with(context, x, "most");
    EXPECT_EQ(context.output("present").dims[2], rows);
  }
  context.set_input("past", {DataType::kF32, {1, 2, -1, 8}, {}, nullptr});
  run_with(context, x, "most");
  EXPECT_EQ(context.output("present").dims[2], 1);
}

TEST(KeptStates, StayBoundWhereTheirOutputIsSetToNone) {
  ExecutionContext context(engine_with(kSum, {{"h", "next"}}));
  const Tensor x = f32({1, 2}, {8, 16});
  run_with(context, x, "next");
  context.set_output("next", {});
  EXPECT_THAT(run_with(context, x, "next"), ElementsAre(12, 24));
  EXPECT_THAT(error_of([&] {
                context.set_input("h", {DataType::kI64, {1, 2}, {}, nullptr});
              }),
              HasSubstr("input \"h\" is i64, the engine expects f32"));
  EXPECT_THAT(error_of([&] {
                context.set_input("h", {DataType::kF32, {-5, 2}, {}, nullptr});
              }),
              HasSubstr("input \"h\" has shape [-5,2]"));
}

TEST(KeptStates, MayHaveSizesThatDependOnValues) {
  ExecutionContext context(engine_with(R"txt(
size P in 0..64 opt 8
graph late(past: f32[P], x: i64[2])
  present = Pad(past, x, f32[]{7})
  return present
)txt",
                                       {{"past", "present"}}));
  EXPECT_THAT(run_with(context, tensor_i64({0, 2}), "present"), ElementsAre(7, 7));
  EXPECT_THAT(run_with(context, tensor_i64({0, 1}), "present"), ElementsAre(7, 7, 7));
}

TEST(KeptStates, AreThoseOfAllProfiles) {
  GraphBuildOptions options;
  options.states = {{"h", "next"}};
  EngineFile file = build_text(kSum, options);
  Plan second = file.plans[0];
  second.profile = 1;
  file.plans.push_back(second);
  EXPECT_NO_THROW(engine_of(file));
  file.plans[1].states.clear();
  EXPECT_THAT(error_of([&] { engine_of(file); }), HasSubstr("it has other states"));
}

TEST(KeptStates, AreNamedByPatterns) {
  constexpr std::string_view kTwo = R"txt(
graph two(past.0.key: f32[2], past.1.key: f32[2], x: f32[2], n: i64[2])
  present.0.key = Pointwise(past.0.key, x) program="(f32,f32)->(f32) add($0,$1)"
  present.1.key = Pointwise(past.1.key, x) program="(f32,f32)->(f32) sub($0,$1)"
  m = Pointwise(n) program="(i64)->(i64) neg($0)"
  return present.0.key, present.1.key, m
)txt";
  const auto engine = engine_with(kTwo, {{"past.*", "present.*"}});
  EXPECT_EQ(engine->inputs()[0].state_output, "present.0.key");
  EXPECT_EQ(engine->inputs()[1].state_output, "present.1.key");
  const auto refusal = [&](const States& states) {
    return error_of([&] { engine_with(kTwo, states); });
  };
  EXPECT_THAT(refusal({{"none", "m"}}), HasSubstr("\"none=m\": the model has no such input"));
  EXPECT_THAT(refusal({{"past.*", "future.*"}}),
              HasSubstr("\"past.0.key=future.0.key\": the model has no such output"));
  EXPECT_THAT(refusal({{"past.*", "m"}}), HasSubstr("both names have one *, or neither"));
  EXPECT_THAT(refusal({{"x", "m"}}), HasSubstr("the output is i64 [2], the input f32 [2]"));
  EXPECT_THAT(refusal({{"past.0.key", "present.0.key"}, {"past.1.key", "present.0.key"}}),
              HasSubstr("the input or the output is in another state"));
}

TEST(KeptStates, OfDamagedPlansAreRefused) {
  const auto refusal = [](const std::vector<PortPair>& states) {
    EngineFile file = build_text(kConcat);
    file.plans[0].states = states;
    return error_of([&] { engine_of(file); });
  };
  EXPECT_THAT(refusal({{9, 0}}), HasSubstr("an input or output of a state does not exist"));
  EXPECT_THAT(refusal({{0, 9}}), HasSubstr("an input or output of a state does not exist"));
  EXPECT_THAT(refusal({{0, 0}, {1, 0}}), HasSubstr("an input or output is two states"));
  EXPECT_THAT(refusal({{0, 1}}), HasSubstr("cannot be the input \"past\" of the next run"));
}

TEST(KeptStates, CountAsMemory) {
  ExecutionContext kept(engine_with(kBuffer, {{"past", "present"}}));
  const Tensor mask = tensor_i64(std::vector<int64_t>(2048, 1));
  const Tensor at = Tensor::of<int64_t>(DataType::kI64, {1, 1, 1, 4}, std::vector<int64_t>(4, 5));
  kept.set_input("mask", mask.view());
  kept.set_input("at", at.view());
  const Tensor x = random_f32({1, 1, 1, 4}, 1);
  run_with(kept, x, "present");
  EXPECT_GE(kept.memory_bytes(), 2048U * 4 * sizeof(float));
  ExecutionContext limited(engine_with(kBuffer, {{"past", "present"}}),
                           {.max_memory = 20'000, .prewarm_profiles = false});
  limited.set_input("mask", mask.view());
  limited.set_input("at", at.view());
  limited.set_input("x", x.view());
  EXPECT_THAT(error_of([&] { limited.run(); }), HasSubstr("limit"));
}

}  // namespace
}  // namespace anneal::testing
