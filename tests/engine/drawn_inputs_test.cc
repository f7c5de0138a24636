// Drawn inputs: sizes that all layers accept, and integers that their readers accept.
#include "anneal/engine/builder/inputs/drawn_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/builder/inputs/input_trials.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

struct Drawn {
  std::vector<Dims> dims;
  std::vector<InputRange> ranges;
};

// Draws inputs, and runs the engine on them.
Drawn draw_and_run(std::string_view text) {
  const auto engine = engine_of(build_text(text));
  const Plan& plan = plan_of(*engine);
  Drawn drawn;
  drawn.dims = choose_input_dims(plan, weights_of(*engine));
  drawn.ranges = input_ranges(plan, weights_of(*engine), drawn.dims);
  for (const bool at_end : {false, true}) {
    const auto inputs = draw_inputs(plan, weights_of(*engine), drawn.dims, 1, at_end);
    ExecutionContext context(engine);
    for (size_t i = 0; i < inputs.size(); ++i)
      context.set_input(engine->inputs()[i].name, inputs[i].view());
    context.run();
  }
  return drawn;
}

TEST(DrawnInputs, MaskIsAsLongAsPastAndNewTokens) {
  const Drawn drawn = draw_and_run(R"txt(
graph decoder(ids: i64[B,T], past: f32[B,2,P,4], mask: i64[B,M], positions: i64[B,T])
  const table: f32[50,8] = random(1)
  const places: f32[40,8] = random(2)
  token = Gather(table, ids) axis=0
  place = Gather(places, positions) axis=0
  x = Pointwise(token, place) program="(f32,f32)->(f32) add($0,$1)"
  h = Reshape(x, i64{0,0,2,4})
  q = Transpose(h) permutation=[0,2,1,3]
  k = Concat(past, q) axis=2
  s = MatMul(q, k) transpose_b=true
  m = Reshape(mask, i64{0,1,1,-1})
  b = Pointwise(s, m) program="(f32,i64)->(f32) add($0,mul(sub(1f32,f32($1)),-10000f32))"
  y = Softmax(b) axis=3
  return y, k
)txt");
  ASSERT_EQ(drawn.dims.size(), 4u);
  EXPECT_GT(drawn.dims[1][2], 0);
  EXPECT_EQ(drawn.dims[2][1], drawn.dims[0][1] + drawn.dims[1][2]);
  EXPECT_EQ(drawn.dims[3], drawn.dims[0]);
  EXPECT_EQ(drawn.ranges[0], (InputRange{0, 49, InputRole::kIndex}));
  EXPECT_EQ(drawn.ranges[2], (InputRange{0, 1, InputRole::kMask}));
  EXPECT_EQ(drawn.ranges[3], (InputRange{0, 39, InputRole::kIndex}));
}

TEST(DrawnInputs, RangesAreCarriedBackwards) {
  // Positions are moved by 2, types count tokens before them, and a clipped index has no limit.
  const Drawn drawn = draw_and_run(R"txt(
graph shifted(positions: i64[1,6], types: i64[1,6], clipped: i64[1,6])
  const places: f32[12,4] = random(1)
  const kinds: f32[7,4] = random(2)
  moved = Pointwise(positions) program="(i64)->(i64) add($0,2i64)"
  a = Gather(places, moved) axis=0
  c = Cumulative(types, i64{1}) kind=sum
  b = Gather(kinds, c) axis=0
  inside = Pointwise(clipped) program="(i64)->(i64) min(max($0,0i64),11i64)"
  d = Gather(places, inside) axis=0
  y = Pointwise(a, b, d) program="(f32,f32,f32)->(f32) add(add($0,$1),$2)"
  return y
)txt");
  EXPECT_EQ(drawn.ranges[0].low, 0);
  EXPECT_EQ(drawn.ranges[0].high, 9);
  EXPECT_EQ(drawn.ranges[1].high, 1);
  EXPECT_EQ(drawn.ranges[2].role, InputRole::kNumber);
}

TEST(DrawnInputs, PicturesSurviveAllStrides) {
  const Drawn drawn = draw_and_run(R"txt(
graph strided(x: f32[N,3,H,W])
  const w: f32[4,3,40,40] = random(1)
  const v: f32[4,4,40,40] = random(2)
  a = Conv(x, w) strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  y = Conv(a, v) strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  return y
)txt");
  EXPECT_EQ(drawn.dims[0][0], 1);
  EXPECT_GE(drawn.dims[0][2], 118);
}

TEST(DrawnInputs, OneSizeIsTheSumOfTwoOthers) {
  const Drawn drawn = draw_and_run(R"txt(
graph sum(a: f32[A,3], b: f32[B,3], c: f32[C,3])
  const w: f32[3,2] = random(1)
  k = Concat(a, b) axis=0
  m = MatMul(k, w)
  n = MatMul(c, w)
  t = Transpose(n) permutation=[1,0]
  y = MatMul(t, m)
  return y
)txt");
  EXPECT_EQ(drawn.dims[2][0], drawn.dims[0][0] + drawn.dims[1][0]);
}

// Tokens times a mask; no masks are a step times constant frequencies, a square, and pixels.
TEST(DrawnInputs, AMaskIsAFactorOfComputedNumbers) {
  const Drawn drawn = draw_and_run(R"txt(
graph masked(x: f32[2,5,4], mask: i64[2,5], steps: i64[2,1], counts: i64[4], pixels: u8[2,5,4])
  const frequencies: f32[4] = {1, 0.1, 0.01, 0.001}
  n = Normalize(x) axes=[2] epsilon=0.1
  m = Reshape(mask, i64{0,0,1})
  y = Pointwise(n, m) program="(f32,i64)->(f32) mul($0,f32($1))"
  z = Pointwise(steps, frequencies) program="(i64,f32)->(f32) sin(mul(f32($0),$1))"
  squares = Pointwise(counts) program="(i64)->(f32) %0=f32($0); mul(%0,%0)"
  shaded = Pointwise(n, pixels) program="(f32,u8)->(f32) mul($0,f32($1))"
  return y, z, squares, shaded
)txt");
  EXPECT_EQ(drawn.ranges[1], (InputRange{0, 1, InputRole::kMask}));
  EXPECT_EQ(drawn.ranges[2], (InputRange{0, 9, InputRole::kNumber}));
  EXPECT_EQ(drawn.ranges[3], (InputRange{0, 9, InputRole::kNumber}));
  EXPECT_EQ(drawn.ranges[4], (InputRange{0, 255, InputRole::kNumber}));
}

TEST(DrawnInputs, PlacesOfOneRowDiffer) {
  const Drawn drawn = draw_and_run(R"txt(
graph cache(past: f32[1,8,4], new: f32[1,3,4], at: i64[1,3,4])
  y = ScatterElements(past, at, new) axis=1
  return y
)txt");
  EXPECT_EQ(drawn.ranges[2], (InputRange{0, 7, InputRole::kPlace}));
}

TEST(DrawnInputs, TuplesFitTheNarrowestAxis) {
  const Drawn drawn = draw_and_run(R"txt(
graph cache(past: f32[2,16,8], at: i64[5,2], new: f32[5,8])
  y = ScatterND(past, at, new)
  return y
)txt");
  EXPECT_EQ(drawn.ranges[1].high, 1);
}

TEST(DrawnInputs, AxesAreThoseOfTheTensor) {
  const Drawn drawn = draw_and_run(R"txt(
graph sums(x: f32[3,4], axis: i64[], axes: i64[2])
  c = Cumulative(x, axis)
  y = Reduce(c, axes) kind=mean
  return y
)txt");
  EXPECT_EQ(drawn.ranges[1], (InputRange{0, 1, InputRole::kPlace}));
  EXPECT_EQ(drawn.ranges[2], (InputRange{0, 1, InputRole::kPlace}));
}

// The older exporter of torch looks a mask up at the positions of all tokens, row by row.
TEST(DrawnInputs, MaskIsReadAtPositions) {
  const Drawn drawn = draw_and_run(R"txt(
graph decoder(ids: i64[B,S], past: f32[B,P,4], mask: i64[B,M])
  const table: f32[50,4] = random(1)
  ids_shape = ShapeOf(ids) end=2
  past_shape = ShapeOf(past) end=3
  mask_shape = ShapeOf(mask) end=2
  b = Gather(ids_shape, i64[]{0}) axis=0
  s = Gather(ids_shape, i64[]{1}) axis=0
  p = Gather(past_shape, i64[]{1}) axis=0
  m = Gather(mask_shape, i64[]{1}) axis=0
  all = Pointwise(s, p) program="(i64,i64)->(i64) add($0,$1)"
  rows = Range(i64[]{0}, b, i64[]{1})
  row = Reshape(rows, i64{-1,1})
  positions = Range(i64[]{0}, all, i64[]{1})
  at = Pointwise(row, m, positions) program="(i64,i64,i64)->(i64) add(mul($0,$1),$2)"
  flat = Reshape(mask, i64{-1})
  seen = Gather(flat, at) axis=0
  token = Gather(table, ids) axis=0
  k = Concat(past, token) axis=1
  seen3 = Reshape(seen, i64{0,-1,1})
  y = Pointwise(k, seen3) program="(f32,i64)->(f32) mul($0,f32($1))"
  return y
)txt");
  EXPECT_EQ(drawn.dims[0], (Dims{1, 8}));
  EXPECT_EQ(drawn.dims[1][1], 8);
  EXPECT_EQ(drawn.dims[2], (Dims{1, 16}));
}

// Positions behind a cache are computed where the positions from 0 on were.
TEST(DrawnInputs, PositionsThatOverwriteOthersFitTheirTable) {
  const Drawn drawn = draw_and_run(R"txt(
graph positions(x: f32[1,S,4], past: f32[1,P,4])
  const table: f32[12,4] = random(1)
  x_shape = ShapeOf(x) end=3
  past_shape = ShapeOf(past) end=3
  s = Gather(x_shape, i64[]{1}) axis=0
  p = Gather(past_shape, i64[]{1}) axis=0
  new = Range(i64[]{0}, s, i64[]{1})
  moved = Pointwise(new, p) program="(i64,i64)->(i64) add($0,$1)"
  rows = Reshape(moved, i64{1,-1})
  place = Gather(table, rows) axis=0
  y = Pointwise(x, place) program="(f32,f32)->(f32) add($0,$1)"
  z = Concat(past, y) axis=1
  return z
)txt");
  EXPECT_LE(drawn.dims[0][1] + drawn.dims[1][1], 12);
}

// A picture's places are cut from the middle of a table, at numbers that values decide.
TEST(DrawnInputs, SizesOfStepsThatOverwriteTheirInputAreKnown) {
  const Drawn drawn = draw_and_run(R"txt(
graph cropped(x: f32[1,H,4])
  const table: f32[5,4] = random(1)
  shape = ShapeOf(x) end=3
  h = Gather(shape, i64[]{1}) axis=0
  start = Pointwise(h) program="(i64)->(i64) div(sub(5i64,$0),2i64)"
  end = Pointwise(start, h) program="(i64,i64)->(i64) add($0,$1)"
  s = Reshape(start, i64{1})
  e = Reshape(end, i64{1})
  part = Slice(table, s, e, i64{0}, i64{1})
  t = Transpose(part) permutation=[1,0]
  y = MatMul(t, x)
  return y
)txt");
  EXPECT_LE(drawn.dims[0][1], 5);
}

TEST(DrawnInputs, SizesOfEquationsAreFound) {
  const Drawn twice = draw_and_run(R"txt(
graph linear(a: f32[1,A,3], b: f32[1,B,3])
  k = Concat(a, a) axis=1
  l = Concat(b, b, b) axis=1
  t = Transpose(l) permutation=[0,2,1]
  y = MatMul(t, k)
  return y
)txt");
  EXPECT_EQ(2 * twice.dims[0][1], 3 * twice.dims[1][1]);
  const Drawn product = draw_and_run(R"txt(
graph product(a: f32[A,B])
  const w: f32[16,2] = random(1)
  r = Reshape(a, i64{1,-1})
  y = MatMul(r, w)
  return y
)txt");
  EXPECT_EQ(product.dims[0][0] * product.dims[0][1], 16);
}

TEST(DrawnInputs, AxesAreLongerThanTheirReflection) {
  const Drawn drawn = draw_and_run(R"txt(
graph frames(x: f32[1,T])
  y = Pad(x, i64{0,16,0,16}) mode=reflect
  return y
)txt");
  EXPECT_GT(drawn.dims[0][1], 16);
}

struct Tried {
  std::vector<Dims> dims;
  std::vector<Tensor> tensors;
  bool is_accepted = false;
};

// Inputs that runs were asked for.
Tried try_inputs(std::string_view text) {
  const auto engine = engine_of(build_text(text));
  const Plan& plan = plan_of(*engine);
  InputTrials trials(*engine, std::vector<TrialInput>(plan.inputs.size()));
  EXPECT_TRUE(may_refuse_values(plan));
  Tried tried;
  tried.dims = choose_input_dims(plan, weights_of(*engine), SizeChoice::kOptimal, {},
                                 [&](std::span<const Dims> dims) { return trials.run(dims); });
  tried.tensors = trials.draw(tried.dims);
  tried.is_accepted = !trials.run(tried.dims);
  return tried;
}

TEST(InputTrials, RunsFindSizesThatValuesDecide) {
  const Tried tried = try_inputs(R"txt(
graph found(x: f32[A])
  const w: f32[24,3] = random(1)
  n = NonZero(x)
  c = Concat(n, n) axis=1
  f = Pointwise(c) program="(i64)->(f32) f32($0)"
  y = MatMul(f, w)
  return y
)txt");
  EXPECT_TRUE(tried.is_accepted);
  EXPECT_EQ(tried.dims[0], (Dims{12}));
}

TEST(InputTrials, SizesAreWhatTheErrorNames) {
  const Tried tried = try_inputs(R"txt(
graph wide(x: f32[1,1], shape: i64[2])
  const w: f32[37,3] = random(1)
  e = Expand(x, shape)
  y = MatMul(e, w)
  return y
)txt");
  EXPECT_TRUE(tried.is_accepted);
  EXPECT_EQ(tried.tensors[1].as<int64_t>()[1], 37);
}

TEST(InputTrials, SizesHaveTheProductThatTheErrorNames) {
  const Tried tried = try_inputs(R"txt(
graph same(x: f32[2,6], shape: i64[2])
  y = Reshape(x, shape)
  return y
)txt");
  EXPECT_TRUE(tried.is_accepted);
  const auto shape = tried.tensors[1].as<int64_t>();
  EXPECT_EQ(shape[0] * shape[1], 12);
}

TEST(InputTrials, RunsFindValuesThatDecideSizes) {
  const Tried tried = try_inputs(R"txt(
graph rows(mask: bool[6])
  const w: f32[6,3] = random(1)
  n = NonZero(mask)
  f = Pointwise(n) program="(i64)->(f32) f32($0)"
  y = MatMul(f, w)
  return y
)txt");
  EXPECT_TRUE(tried.is_accepted);
  EXPECT_THAT(tried.tensors[0].as<uint8_t>(), ::testing::Each(1));
}

// Parts of two axes, each of which an error names.
TEST(InputTrials, PartsAddUpToTheirAxes) {
  const Tried tried = try_inputs(R"txt(
graph split(x: f32[10,7], rows: i64[3], columns: i64[2])
  n = Reduce(rows, i64{0}) kind=sum keepdims=false
  a = Pointwise(n) program="(i64)->(bool) eq($0,10i64)"
  holds_a = Require(a, rows, i64{10})
  m = Reduce(columns, i64{0}) kind=sum keepdims=false
  b = Pointwise(m) program="(i64)->(bool) eq($0,7i64)"
  holds_b = Require(b, columns, i64{7})
  y = Tile(x, columns)
  return y
)txt");
  EXPECT_TRUE(tried.is_accepted);
  EXPECT_THAT(tried.tensors[2].as<int64_t>(), ::testing::ElementsAre(3, 4));
}

// As in a model of pictures and text: the tokens that stand for a picture are as many as its parts.
TEST(InputTrials, MarkersAreAsManyAsWhatTheyStandFor) {
  for (const std::string ids : {"1,16", "B,S"}) {
    const Tried tried =
        try_inputs("graph merged(ids: i64[" + ids + R"txt(], x: f32[4,3], z: f32[2,3])
  const table: f32[50,3] = random(1)
  e = Gather(table, ids)
  m = Pointwise(ids) program="(i64)->(bool) eq($0,48i64)"
  n = NonZero(m)
  i = Transpose(n) permutation=[1,0]
  f = ScatterND(e, i, x)
  p = Pointwise(ids) program="(i64)->(bool) eq($0,-7i64)"
  q = NonZero(p)
  j = Transpose(q) permutation=[1,0]
  y = ScatterND(f, j, z)
  return y
)txt");
    EXPECT_TRUE(tried.is_accepted);
    EXPECT_EQ(std::ranges::count(tried.tensors[0].as<int64_t>(), 48), 4);
    EXPECT_EQ(std::ranges::count(tried.tensors[0].as<int64_t>(), -7), 2);
  }
}

TEST(DrawnInputs, WhatNoSizesSuitNamesInputsLayerAndFlag) {
  EXPECT_THAT(
      error_of([] {
        const auto engine = engine_of(build_text(R"txt(
graph impossible(a: f32[A,3], b: f32[B,3])
  const i: f32[1,3] = random(1)
  k = Concat(a, a) axis=0
  l = Concat(b, b, i) axis=0
  t = Transpose(k) permutation=[1,0]
  y = MatMul(t, l)
  return y
)txt"));
        choose_input_dims(plan_of(*engine), weights_of(*engine));
      }),
      ::testing::AllOf(HasSubstr("\"a\" [A,3]"), HasSubstr("MatMul"), HasSubstr("--shapes")));
}

TEST(MadeSamples, IntegersHaveBothEnds) {
  const Tensor sample = integer_sample(DataType::kI64, {5}, 3, 11, 7, RangeEnds::kBoth);
  EXPECT_THAT(sample.as<int64_t>(),
              ::testing::Each(::testing::AllOf(::testing::Ge(3), ::testing::Le(11))));
  EXPECT_EQ(sample.as<int64_t>()[0], 3);
  EXPECT_EQ(sample.as<int64_t>()[4], 11);
  const Tensor run = consecutive_sample(DataType::kI32, {2, 4}, 0, 4, 7);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(run.as<int32_t>()[i], run.as<int32_t>()[0] + i);
  EXPECT_EQ(mask_sample(DataType::kI64, {1, 8}, 7).as<int64_t>()[3], 1);
}

}  // namespace
}  // namespace anneal::testing
