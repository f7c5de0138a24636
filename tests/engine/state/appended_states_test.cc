// States to which each run appends rows: the caches of decoders that grow by Concat.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "anneal/core/new_tensor.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/debug.h"
#include "anneal/optimizer/precision/half_weights.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

using States = std::map<std::string, std::string>;

EngineFile build_with(std::string_view text, const States& states,
                      std::vector<std::string> targets = {"cpu"}) {
  GraphBuildOptions options;
  options.targets = std::move(targets);
  options.states = states;
  return build_text(text, options);
}

// Four heads of queries, two of keys and values, as transformers exports them.
constexpr std::string_view kDecoder = R"txt(
size B in 1..8 opt 2
size P in 0..4096 opt 16
size N in 1..64 opt 1
graph decoder(past.key: f32[B,2,P,16], past.value: f32[B,2,P,16], x: f32[B,N,8])
  const wq: f32[8,64] = random(1)
  const wk: f32[8,32] = random(2)
  const wv: f32[8,32] = random(3)
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  v = MatMul(x, wv)
  q.cut = SizeTensor() elements=[B,N,4,16]
  k.cut = SizeTensor() elements=[B,N,2,16]
  q.heads = Reshape(q, q.cut)
  k.heads = Reshape(k, k.cut)
  v.heads = Reshape(v, k.cut)
  q.moved = Transpose(q.heads) permutation=[0,2,1,3]
  k.moved = Transpose(k.heads) permutation=[0,2,1,3]
  v.moved = Transpose(v.heads) permutation=[0,2,1,3]
  present.key = Concat(past.key, k.moved) axis=2
  present.value = Concat(past.value, v.moved) axis=2
  one = SizeTensor() elements=[B,2,1,P + N,16]
  two = SizeTensor() elements=[B,2,2,P + N,16]
  four = SizeTensor() elements=[B,4,P + N,16]
  key.one = Reshape(present.key, one)
  key.two = Expand(key.one, two)
  key = Reshape(key.two, four)
  value.one = Reshape(present.value, one)
  value.two = Expand(value.one, two)
  value = Reshape(value.two, four)
  key.columns = Transpose(key) permutation=[0,1,3,2]
  scores = MatMul(q.moved, key.columns)
  shares = Softmax(scores) axis=3
  seen = MatMul(shares, value)
  return seen, present.key, present.value
)txt";
const States kCaches = {{"past.*", "present.*"}};

// Runs of the same engine that is given each state by hand.
class ByHand {
 public:
  ByHand(std::shared_ptr<const Engine> engine, std::vector<Tensor> states)
      : engine_(std::move(engine)), context_(engine_), states_(std::move(states)) {}
  std::vector<float> run(const Tensor& x) {
    std::vector<Tensor> inputs = states_;
    inputs.push_back(x);
    const auto outputs = testing::run(context_, *engine_, inputs);
    for (size_t i = 0; i < states_.size(); ++i) {
      const std::string& name = engine_->inputs()[i].state_output;
      states_[i] = Tensor::of<float>(DataType::kF32, context_.output_dims(name), outputs.at(name));
    }
    return outputs.at(engine_->outputs()[0].name);
  }
  const Tensor& state(size_t index) const { return states_[index]; }

 private:
  std::shared_ptr<const Engine> engine_;
  ExecutionContext context_;
  std::vector<Tensor> states_;
};

Tensor no_rows(int64_t batch) {
  return Tensor::of<float>(DataType::kF32, {batch, 2, 0, 16}, std::vector<float>());
}

std::vector<float> run_with(ExecutionContext& context, const Tensor& x, std::string_view output) {
  context.set_input("x", x.view());
  context.run();
  return elements(context.output(output));
}

TEST(AppendedStates, StayWhereTheyAre) {
  const EngineFile file = build_with(kDecoder, kCaches);
  EXPECT_THAT(file.plans[0].appended_ports,
              ElementsAre(AppendedPorts{0, 1, 2}, AppendedPorts{1, 2, 2}));
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  ByHand hand(engine, {no_rows(2), no_rows(2)});
  std::vector<const void*> places;  // of the keys, by run
  observe(context, [&](const Observation& seen) {
    if (seen.name == "present.key/copy of past.key") places.push_back(seen.value.data);
  });
  constexpr int kRuns = 300;
  for (int i = 0; i < kRuns; ++i) {
    const int64_t rows = i == 0 ? 7 : i % 50 == 49 ? 3 : 1;
    const Tensor x = random_f32({2, rows, 8}, static_cast<uint32_t>(i));
    ASSERT_EQ(run_with(context, x, "seen"), hand.run(x)) << i;
  }
  EXPECT_EQ(elements(context.output("present.key")), elements(hand.state(0).view()));
  EXPECT_EQ(elements(context.output("present.value")), elements(hand.state(1).view()));
  ASSERT_EQ(places.size(), kRuns);
  int moves = 0;
  for (size_t i = 1; i < places.size(); ++i) moves += places[i] != places[i - 1] ? 1 : 0;
  EXPECT_LE(moves, 4);  // 7 rows, then room for 71, 142 and 213 and more
}

void expect_attention_reads_the_caches(const Plan& plan) {
  EXPECT_THAT(plan.appended_ports, ElementsAre(AppendedPorts{0, 1, 2}, AppendedPorts{1, 2, 2}));
  const auto attention = std::ranges::find_if(
      plan.steps, [](const Step& step) { return std::holds_alternative<Attention>(step.op); });
  ASSERT_NE(attention, plan.steps.end());
  EXPECT_EQ(base_of(plan, attention->inputs[1]), plan.outputs[1]);
  EXPECT_EQ(base_of(plan, attention->inputs[2]), plan.outputs[2]);
}

TEST(AppendedStates, AreReadByTheAttentionWhereTheyLie) {
  expect_attention_reads_the_caches(build_with(kDecoder, kCaches).plans[0]);
}

// The engines of the other tests share their strides.
TEST(AppendedStates, AgreeWithTheReference) {
  ExecutionContext context(engine_of(build_with(kDecoder, kCaches)));
  std::vector<Tensor> inputs = {no_rows(3), no_rows(3), no_rows(3)};  // the last becomes x
  for (int i = 0; i < 6; ++i) {
    inputs[2] = random_f32({3, i == 0 ? 5 : i == 4 ? 2 : 1, 8}, static_cast<uint32_t>(i));
    const auto expected = reference(kDecoder, inputs);
    EXPECT_THAT(
        run_with(context, inputs[2], "seen"),
        Pointwise(FloatNear(2e-3F), expected.at("seen")));  // the softmax magnifies rounding
    for (size_t k = 0; k < 2; ++k) {
      const char* const name = k == 0 ? "present.key" : "present.value";
      EXPECT_THAT(elements(context.output(name)), Pointwise(FloatNear(1e-5F), expected.at(name)));
      inputs[k] = Tensor::of<float>(DataType::kF32, context.output_dims(name), expected.at(name));
    }
  }
}

// The same decoder in 16 bits. CPUs compute it in f32, and keep its caches in 16 bits.
class HalfAppendedStates : public ::testing::TestWithParam<DataType> {
 protected:
  static std::string decoder() {
    std::string text(kDecoder);
    const std::string half(to_string(GetParam()));
    for (size_t at = 0; (at = text.find("f32", at)) != std::string::npos; at += half.size())
      text.replace(at, 3, half);
    return text;
  }
  static std::vector<float> floats(const ConstTensorView& view) {
    const NewTensor dense = allocate_tensor(view.dtype, view.dims);
    strided_copy(row_major_view(view.dtype, view.dims, dense.data.data()), view);
    return elements(in_32_bits(dense.tensor).view());
  }
};

TEST_P(HalfAppendedStates, AreReadByTheAttentionWhereTheyLie) {
  expect_attention_reads_the_caches(build_with(decoder(), kCaches).plans[0]);
}

TEST_P(HalfAppendedStates, AgreeWithTheReference) {
  const float unit = GetParam() == DataType::kF16 ? 0x1p-10F : 0x1p-7F;
  const Graph graph = parse_graph(decoder());
  ExecutionContext context(engine_of(build_with(decoder(), kCaches)));
  const Tensor none = in_16_bits(no_rows(3), GetParam());
  std::vector<Tensor> inputs = {none, none, none};  // the last becomes x
  for (int i = 0; i < 6; ++i) {
    // 80 rows are too many for the loops of few rows.
    std::vector<float> x = elements(random_f32({3,
                                                i == 0   ? 5
                                                : i == 4 ? 40
                                                         : 1,
                                                8},
                                               static_cast<uint32_t>(i))
                                        .view());
    for (float& number : x) number /= 8;  // the softmax magnifies rounding of large scores
    const Dims dims = {3, std::ssize(x) / 24, 8};
    inputs[2] = in_16_bits(Tensor::of<float>(DataType::kF32, dims, x), GetParam());
    const std::vector<Tensor> expected = evaluate(graph, inputs);
    context.set_input("x", inputs[2].view());
    context.run();
    EXPECT_THAT(floats(context.output("seen")),
                Pointwise(FloatNear(4 * unit), floats(expected[0].view())));
    for (size_t k = 0; k < 2; ++k) {
      const TensorView state = context.output(k == 0 ? "present.key" : "present.value");
      EXPECT_THAT(floats(state), Pointwise(FloatNear(2 * unit), floats(expected[k + 1].view())));
      inputs[k] = expected[k + 1];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, HalfAppendedStates, ::testing::Values(DataType::kF16, DataType::kBF16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST(AppendedStates, OutputsAreRowMajor) {
  ExecutionContext context(engine_of(build_with(kDecoder, kCaches)));
  run_with(context, random_f32({2, 5, 8}, 1), "seen");
  const TensorView key = context.output("present.key");
  EXPECT_EQ(key.dims, (Dims{2, 2, 5, 16}));
  EXPECT_EQ(key.strides, (Dims{160, 80, 16, 1}));
}

TEST(AppendedStates, BeginWithDefaultsAndGivenSizes) {
  constexpr std::string_view kText = R"txt(
size P in 0..64 opt 3
graph cache(past: f32[2,P,1] = f32[2,3,1]{1,2,3,4,5,6}, x: f32[2,1,1])
  present = Concat(past, x) axis=1
  most = Reduce(present, i64{1,2}) kind=sum keepdims=false
  return most, present
)txt";
  const EngineFile file = build_with(kText, {{"past", "present"}});
  EXPECT_THAT(file.plans[0].appended_ports, ElementsAre(AppendedPorts{0, 1, 1}));
  ExecutionContext context(engine_of(file));
  const Tensor x = Tensor::of<float>(DataType::kF32, {2, 1, 1}, std::vector<float>{10, 20});
  EXPECT_THAT(run_with(context, x, "present"), ElementsAre(1, 2, 3, 10, 4, 5, 6, 20));
  EXPECT_THAT(run_with(context, x, "present"), ElementsAre(1, 2, 3, 10, 10, 4, 5, 6, 20, 20));
  context.set_input("past", {DataType::kF32, {2, 1, 1}, {}, nullptr});
  EXPECT_THAT(run_with(context, x, "present"), ElementsAre(0, 10, 0, 20));
  const Tensor given = Tensor::of<float>(DataType::kF32, {2, 1, 1}, std::vector<float>{7, 8});
  context.set_input("past", given.view());
  EXPECT_THAT(run_with(context, x, "present"), ElementsAre(7, 10, 8, 20));
  EXPECT_THAT(run_with(context, x, "most"), ElementsAre(17, 28));
  context.set_input("past", {});
  EXPECT_THAT(run_with(context, x, "present"), ElementsAre(7, 10, 10, 8, 20, 20));
  EXPECT_THAT(run_with(context, x, "present"), ElementsAre(7, 10, 10, 10, 8, 20, 20, 20));
  EXPECT_THAT(elements(given.view()), ElementsAre(7, 8));
}

TEST(AppendedStates, TakeSizesThatAreGivenToAnother) {
  ExecutionContext context(engine_of(build_with(kDecoder, kCaches)));
  context.set_input("past.key", {DataType::kF32, {-1, 2, 3, 16}, {}, nullptr});
  run_with(context, random_f32({2, 1, 8}, 1), "seen");
  EXPECT_EQ(context.output_dims("present.value"), (Dims{2, 2, 4, 16}));
}

TEST(AppendedStates, CountCopiesForReadersUntilTheNextRun) {
  ExecutionContext context(engine_of(build_with(kDecoder, kCaches)));
  run_with(context, random_f32({1, 40, 8}, 1), "seen");
  const Tensor x = random_f32({1, 1, 8}, 2);
  context.set_input("x", x.view());
  for (size_t rows = 41; rows < 44; ++rows) {
    context.run();
    const size_t before = context.memory_bytes();
    context.output("present.key");
    EXPECT_EQ(context.memory_bytes(), before + 2 * rows * 16 * sizeof(float));
  }
}

TEST(AppendedStates, OutlastARunThatFails) {
  constexpr std::string_view kText = R"txt(
size P in 0..64 opt 3
graph cache(past: f32[2,P,1], x: f32[2,1,1], i: i64[1])
  present = Concat(past, x) axis=1
  one = Gather(present, i) axis=1
  return one, present
)txt";
  ExecutionContext context(engine_of(build_with(kText, {{"past", "present"}})));
  const Tensor x = Tensor::of<float>(DataType::kF32, {2, 1, 1}, std::vector<float>{10, 20});
  const Tensor first = tensor_i64({0}), beyond = tensor_i64({9});
  context.set_input("i", first.view());
  run_with(context, x, "one");
  context.set_input("i", beyond.view());
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("9"));
  context.set_input("i", first.view());
  EXPECT_THAT(run_with(context, x, "present"), ElementsAre(10, 10, 20, 20));
}

// Runs of one row behind 2,000: whether the values moved after the first run, for want of room.
bool moves_after_first_run(const std::shared_ptr<const Engine>& engine, size_t limit) {
  ExecutionContext context(engine, {.threads = 1, .max_memory = limit, .prewarm_profiles = false});
  context.set_input("past.key", {DataType::kF32, {1, 2, 2000, 16}, {}, nullptr});
  std::vector<const void*> places;
  observe(context, [&](const Observation& seen) {
    if (seen.name == "present.value/copy of past.value") places.push_back(seen.value.data);
  });
  const Tensor zeros =
      Tensor::of<float>(DataType::kF32, {1, 2, 2000, 16}, std::vector<float>(2 * 2000 * 16));
  ByHand hand(engine, {zeros, zeros});
  for (uint32_t i = 0; i < 4; ++i) {
    const Tensor x = random_f32({1, 1, 8}, i);
    EXPECT_EQ(run_with(context, x, "seen"), hand.run(x));
  }
  EXPECT_EQ(places.size(), 4U);
  return places.at(0) != places.at(1);
}

TEST(AppendedStates, TakeWhatALimitLeaves) {
  const auto engine = engine_of(build_with(kDecoder, kCaches));
  EXPECT_FALSE(moves_after_first_run(engine, 0));
  // Each cache has 256 kB, and 384 kB with room: there is room for that of the keys alone.
  EXPECT_TRUE(moves_after_first_run(engine, 1'250'000));
}

TEST(AppendedStates, AreNoOthers) {
  const auto appended = [](std::string_view text) {
    return build_with(text, {{"past", "present"}}).plans[0].appended_ports;
  };
  EXPECT_THAT(appended(R"txt(
size P in 0..64 opt 3
graph before(past: f32[2,P], x: f32[2,1])
  present = Concat(x, past) axis=1
  return present
)txt"),
              IsEmpty());
  EXPECT_THAT(appended(R"txt(
size P in 0..64 opt 3
graph twice(past: f32[2,P], x: f32[2,1])
  present = Concat(past, x, past) axis=1
  return present
)txt"),
              IsEmpty());
  EXPECT_THAT(appended(R"txt(
size P in 0..64 opt 3
graph scaled(past: f32[2,P], x: f32[2,1])
  both = Concat(past, x) axis=1
  present = Pointwise(both) program="(f32)->(f32) mul($0,2f32)"
  return present
)txt"),
              IsEmpty());
  EXPECT_THAT(build_text(kDecoder).plans[0].appended_ports, IsEmpty());
  // The ports of a GPU's plan are row-major.
  EXPECT_THAT(build_with(kDecoder, kCaches, {"emulated"}).plans[0].appended_ports, IsEmpty());
}

TEST(AppendedStates, OfDamagedPlansAreRefused) {
  const auto refusal = [](const AppendedPorts& ports) {
    EngineFile file = build_with(kDecoder, kCaches);
    file.plans[0].appended_ports[0] = ports;
    return error_of([&] { engine_of(file); });
  };
  EXPECT_THAT(refusal({9, 1, 2}), HasSubstr("it or the output does not exist"));
  EXPECT_THAT(refusal({0, 9, 2}), HasSubstr("it or the output does not exist"));
  EXPECT_THAT(refusal({0, 1, 9}), HasSubstr("is not the input \"past.key\" with rows behind it"));
  EXPECT_THAT(refusal({0, 1, 1}), HasSubstr("is not the input \"past.key\" with rows behind it"));
  EXPECT_THAT(refusal({2, 1, 2}), HasSubstr("is not the input \"x\" with rows behind it"));
  // Rows that are not outermost in memory.
  EngineFile file = build_with(kDecoder, kCaches);
  Plan& plan = file.plans[0];
  for (Shape* const strides :
       {&plan.slots[plan.inputs[0]].strides, &plan.slots[plan.outputs[1]].strides})
    std::swap((*strides)[0], (*strides)[2]);
  EXPECT_THAT(error_of([&] { engine_of(file); }),
              HasSubstr("is not the input \"past.key\" with rows behind it"));
}

}  // namespace
}  // namespace anneal::testing
