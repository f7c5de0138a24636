// Sizes that are found at run time, and all layers that may follow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "anneal/core/new_tensor.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/counting_new.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

void expect_same(ExecutionContext& context, const Engine& engine, std::string_view text,
                 const std::vector<Tensor>& inputs) {
  const auto want = reference(text, inputs);
  const auto got = run(context, engine, inputs);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.at(name)[i], values[i], 1e-4f * (1 + std::abs(values[i])))
          << name << "[" << i << "]";
  }
}

// In a run only what decides sizes is inferred: the contents of small tensors, which a build
// computes with, are not.
TEST(Late, RunsDoNotInferContents) {
  constexpr std::string_view kSmall = R"txt(
graph small(x: f32[60,8], mask: bool[60])
  found = NonZero(mask)
  column = Transpose(found) permutation=[1,0]
  rows = GatherND(x, column)
  most = Reduce(rows, i64{1}) kind=max keepdims=true
  less = Pointwise(rows, most) program="(f32,f32)->(f32) sub($0,$1)"
  sorted, where = TopK(less, i64{4}) axis=1 largest=true sorted=true
  double = Concat(sorted, sorted) axis=0
  halves = Pointwise(double) program="(f32)->(f32) mul($0,0.5f32)"
  return halves
)txt";
  std::array<uint8_t, 60> mask{};
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != 0;
  const std::vector<Tensor> inputs = {random_f32({60, 8}, 1),
                                      Tensor::of<uint8_t>(DataType::kBool, {60}, mask)};
  const auto engine = engine_of(build_text(kSmall));
  ExecutionContext context(engine, {.threads = 1});
  expect_same(context, *engine, kSmall, inputs);
  const int64_t before = allocations_so_far();
  context.run();
  EXPECT_LT(allocations_so_far() - before, 120);
}

// Convolutions over a length that values decide, as the decoders of speech have them: their values
// have channels last, and none is copied to another layout.
TEST(Late, ConvolutionsKeepChannelsLast) {
  constexpr std::string_view kSpeech = R"txt(
graph speech(x: f32[60,8], mask: bool[60])
  const w: f32[16,8,3] = random(1)
  const v: f32[16,16,5] = random(2)
  const b: f32[16,1] = random(3)
  const t: f32[16,4,4] = random(4)
  found = NonZero(mask)
  column = Transpose(found) permutation=[1,0]
  rows = GatherND(x, column)
  columns = Transpose(rows) permutation=[1,0]
  signal = Reshape(columns, i64{1,8,-1})
  a = Conv(signal, w; b) strides=[1] pads_begin=[1] pads_end=[1] dilations=[1] epilogue="(f32,f32)->(f32) %0=add($0,$1); select(lt(%0,0f32),mul(%0,0.1f32),%0)"
  c, d = Conv(a, v; b, a) strides=[1] pads_begin=[6] pads_end=[6] dilations=[3] epilogue="(f32,f32,f32)->(f32,f32) %0=add($2,add($0,$1)); %0, max(%0,0f32)"
  e = Conv(d, v; c) strides=[1] pads_begin=[2] pads_end=[2] dilations=[1] epilogue="(f32,f32)->(f32) add($0,$1)"
  longer = ConvTranspose(e, t) strides=[2] pads_begin=[1] pads_end=[1] dilations=[1] output_padding=[0]
  loud = Pointwise(longer) program="(f32)->(f32) mul($0,2f32)"
  total = Reduce(loud, i64{2}) kind=sum keepdims=false
  turned = Transpose(loud) permutation=[0,2,1]
  return total, turned, e
)txt";
  const EngineFile file = build_text(kSpeech);
  std::vector<std::string> with_channels_last;
  for (const Slot& slot : file.plans[0].slots) {
    EXPECT_THAT(slot.name, ::testing::Not(HasSubstr("/layout")));
    const bool is_late = slot.storage == Storage::kDataDependent;
    if (is_late && slot.strides.rank() == 3 && slot.strides[2] != Size(1))
      with_channels_last.push_back(slot.name);
  }
  EXPECT_THAT(with_channels_last, ::testing::IsSupersetOf({"a", "c", "d"}));
  const auto engine = engine_of(file);
  ExecutionContext context(engine, {.threads = 2});
  for (const size_t apart : {2, 60, 3, 7, 3}) {
    std::array<uint8_t, 60> mask{};
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % apart == 0;
    expect_same(context, *engine, kSpeech,
                {random_f32({60, 8}, 1), Tensor::of<uint8_t>(DataType::kBool, {60}, mask)});
  }
}

// The sizes that a resize finds keep their names when a layer joins it: what reads the results, and
// what is made of it, has them.
TEST(Late, AnEpilogueOfALayerThatFindsSizes) {
  constexpr std::string_view kResized = R"txt(
graph resized(x: f32[1,2,4,5], sizes: i64[2])
  r = Resize(x, sizes) axes=[2,3]
  doubled = Pointwise(r) program="(f32)->(f32) mul($0,2f32)"
  second = Gather(doubled, i64{1}) axis=1
  total = Reduce(second, i64{2}) kind=sum keepdims=true
  share = Pointwise(second, total) program="(f32,f32)->(f32) sub($0,$1)"
  return second, share
)txt";
  const auto engine = engine_of(build_text(kResized));
  ExecutionContext context(engine, {.threads = 1});
  for (const int64_t size : {3, 8})
    expect_same(context, *engine, kResized,
                {random_f32({1, 2, 4, 5}, 1), tensor_i64({size, 2 * size})});
}

TEST(Late, SizesOfASelection) {
  const auto engine = engine_of(build_text(kMasked));
  ExecutionContext context(engine, {.threads = 2});
  for (uint32_t seed = 1; seed < 6; ++seed) {
    const int64_t rows = 3 + 11 * static_cast<int64_t>(seed % 3);
    expect_same(context, *engine, kMasked,
                {random_f32({rows, 5}, seed), tensor_i64({seed % 4}), tensor_i64({2})});
  }
  const Tensor x = Tensor::of<float>(DataType::kF32, {1, 5}, std::vector<float>{1, -1, 2, 0, 3});
  const auto got = run(context, *engine, {x, tensor_i64({2}), tensor_i64({1})});
  EXPECT_EQ(got.at("values"), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(got.at("best"), (std::vector<float>{3, 2}));
  EXPECT_EQ(got.at("doubled"), (std::vector<float>{4}));
  EXPECT_EQ(context.output("joined").dims, (Dims{3, 2}));
}

TEST(Late, NothingSelected) {
  const auto engine = engine_of(build_text(kMasked));
  ExecutionContext context(engine);
  const Tensor none = allocate_tensor(DataType::kF32, {4, 5}).tensor;
  expect_same(context, *engine, kMasked, {none, tensor_i64({0}), tensor_i64({0})});
  EXPECT_EQ(context.output("values").dims, (Dims{0}));
  EXPECT_EQ(context.output("sum").as<float>()[0], 0);
}

TEST(Late, MoreWantedThanSelected) {
  const auto engine = engine_of(build_text(kMasked));
  ExecutionContext context(engine);
  const Tensor none = allocate_tensor(DataType::kF32, {4, 5}).tensor;
  try {
    run(context, *engine, {none, tensor_i64({3}), tensor_i64({0})});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("while running step \"best\""));
  }
  run(context, *engine, {random_f32({4, 5}, 1), tensor_i64({1}), tensor_i64({0})});
}

TEST(Late, Detections) {
  const auto engine = engine_of(build_text(kDetections));
  ExecutionContext context(engine, {.threads = 2});
  for (uint32_t seed = 1; seed < 4; ++seed) {
    const Tensor most = Tensor::of<int64_t>(DataType::kI64, {}, std::vector<int64_t>{10 * seed});
    const Tensor overlap = Tensor::of<float>(DataType::kF32, {}, std::vector<float>{0.3F});
    const std::vector<Tensor> inputs = {random_f32({1, 40, 4}, seed), random_f32({1, 2, 40}, 7),
                                        most, overlap};
    expect_same(context, *engine, kDetections, inputs);
    if (seed != 3) continue;
    const Tensor wrong = Tensor::of<float>(DataType::kF32, {}, std::vector<float>{NAN});
    context.set_input("overlap", wrong.view());
    EXPECT_THROW(context.run(), Error);
  }
}

TEST(Late, DistinctElements) {
  const auto engine = engine_of(build_text(kDistinct));
  ExecutionContext context(engine);
  for (const int64_t n : {7, 64, 0, 1})
    expect_same(context, *engine, kDistinct, {random_f32({n}, static_cast<uint32_t>(n))});
}

// An epilogue in the same step is checked against the found sizes, too.
TEST(Late, AnEpilogueThatDoesNotFit) {
  constexpr std::string_view kAdded = R"txt(
size M in 1..64 opt 4
graph added(x: f32[6], b: f32[1,M])
  found = NonZero(x)
  y = Pointwise(found, b) program="(i64,f32)->(f32) add(f32($0),$1)"
  return y
)txt";
  const auto engine = engine_of(build_text(kAdded));
  ExecutionContext context(engine);
  expect_same(context, *engine, kAdded, {random_f32({6}, 1), random_f32({1, 6}, 2)});
  EXPECT_THROW(run(context, *engine, {random_f32({6}, 1), random_f32({1, 3}, 2)}), Error);
}

// Where the values are known while building, so are the sizes.
TEST(Late, SelectionOfAConstantIsFolded) {
  const EngineFile file = build_text(R"txt(
graph folded(x: f32[6])
  found = NonZero(f32{0,2,0,3})
  flat = Reshape(found, i64{-1})
  y = Gather(x, flat) axis=0
  return y
)txt");
  EXPECT_EQ(file.plans[0].slots[file.plans[0].outputs[0]].type.shape, (Shape{2}));
}

}  // namespace
// An unfinished run has no outputs: their memory may be that of the run before.
TEST(Late, AfterAFailedRunThereAreNoOutputs) {
  constexpr std::string_view text = R"txt(
size N in 1..4096 opt 4
graph chosen(x: f32[N], place: i64[1])
  chosen = Gather(x, place) axis=0
  sum = Pointwise(x, chosen) program="(f32,f32)->(f32) add($0,$1)"
  found = NonZero(sum)
  y = Pointwise(found) program="(i64)->(f32) f32($0)"
  return y
)txt";
  const auto engine = engine_of(build_text(text));
  ExecutionContext context(engine);
  const auto ones = [](int64_t n) {
    return Tensor::of<float>(DataType::kF32, {n}, std::vector<float>(static_cast<size_t>(n), 1));
  };
  for (const int64_t n : {5, 4096}) run(context, *engine, {ones(n), tensor_i64({0})});
  EXPECT_THAT(error_of([&] {
                run(context, *engine, {ones(5), tensor_i64({99})});
              }),
              HasSubstr("chosen"));
  EXPECT_THAT(error_of([&] { context.output("y"); }), HasSubstr("call run() first"));
  EXPECT_EQ(run(context, *engine, {ones(3), tensor_i64({1})}).at("y"),
            (std::vector<float>{0, 1, 2}));
  // The same shapes again: nothing is bound anew.
  const Tensor wrong = tensor_i64({-7});
  context.set_input("place", wrong.view());
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("chosen"));
  EXPECT_THAT(error_of([&] { context.output("y"); }), HasSubstr("call run() first"));
}

}  // namespace anneal::testing
