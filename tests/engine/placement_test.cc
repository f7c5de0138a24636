// Values that are written straight into the memory of others, and transposes that are views: the
// steps that are left, and the results.
#include <gtest/gtest.h>

#include <algorithm>

#include "anneal/engine/builder/views.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

size_t steps_of(const Plan& plan, std::string_view op) {
  return static_cast<size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(),
                    [&](const Step& step) { return anneal::to_string(step.op) == op; }));
}

void expect_near(const std::map<std::string, std::vector<float>>& got,
                 const std::map<std::string, std::vector<float>>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(got.at(name)[i], values[i], 1e-4 * (1 + std::abs(values[i])))
          << name << " at " << i;
  }
}

// Built without passes, so that the steps are those of the text.
EngineFile build_as_it_is(std::string_view text, const std::string& target = "cpu") {
  GraphBuildOptions options;
  options.targets = {target};
  for (const Pass& pass : default_pipeline()) options.passes.skip.emplace_back(pass.name);
  return build_text(text, options);
}

struct Net {
  const char* name;
  const char* text;
  Dims input;
  const char* op;  // how many steps of this op are left
  size_t steps;
};

constexpr const char* kConvs = R"txt(
graph convs(x: f32[1,4,6,5])
  const w: f32[3,4,1,1] = random(1)
  const v: f32[5,4,3,3] = random(2)
  a = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  b = Conv(x, v) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  k = Concat(a, b) axis=1
  p = Pool(k) kind=max kernel=[2,2] strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  r = Pointwise(a) program="(f32)->(f32) exp($0)"
  return p, r
)txt";

// What is an output, an input, used twice or constant is copied; the rest is in place.
constexpr const char* kCopied = R"txt(
graph copied(x: f32[1,4,6])
  const c: f32[1,2,6] = random(1)
  a = Pointwise(x) program="(f32)->(f32) exp($0)"
  b = Pointwise(x) program="(f32)->(f32) abs($0)"
  k = Concat(a, x, b, a, c) axis=1
  y = Reduce(k, i64{2}) kind=sum
  return y, b
)txt";

constexpr const char* kNested = R"txt(
graph nested(x: f32[2,3,4])
  a = Pointwise(x) program="(f32)->(f32) exp($0)"
  b = Pointwise(x) program="(f32)->(f32) abs($0)"
  k = Concat(a, b) axis=1
  c = Pointwise(k) program="(f32)->(f32) add($0,1f32)"
  m = Concat(k, c) axis=2
  d = Pointwise(m) program="(f32)->(f32) neg($0)"
  n = Concat(d, m) axis=0
  return n
)txt";

constexpr const char* kHeads = R"txt(
graph heads(x: f32[2,5,12])
  const w: f32[12,12] = random(1)
  q = MatMul(x, w)
  q4 = Reshape(q, i64{2,5,3,4})
  qt = Transpose(q4) permutation=[0,2,1,3]
  k = MatMul(x, w) transpose_b=true
  k4 = Reshape(k, i64{2,5,3,4})
  kt = Transpose(k4) permutation=[0,2,3,1]
  s = MatMul(qt, kt)
  y = MatMul(s, qt)
  yt = Transpose(y) permutation=[0,2,1,3]
  z = Reshape(yt, i64{2,5,12})
  return z
)txt";

// A part of a larger tensor, reshaped without a copy.
constexpr const char* kParts = R"txt(
graph parts(x: f32[2,5,24])
  e = Pointwise(x) program="(f32)->(f32) exp($0)"
  s = Slice(e, i64{12}, i64{24}, i64{2}, i64{1})
  r = Reshape(s, i64{2,5,3,4})
  t = Transpose(r) permutation=[0,2,1,3]
  y = MatMul(t, t) transpose_b=true
  return y
)txt";

// Rows that are torn apart need a kernel.
constexpr const char* kTorn = R"txt(
graph torn(x: f32[3,4])
  a = Softmax(x) axis=1
  t = Transpose(a) permutation=[1,0]
  s = Softmax(t) axis=1
  return s
)txt";

// Pixels whose channels lie together in the input, as convolutions read them.
constexpr const char* kPixels = R"txt(
graph pixels(x: f32[1,6,5,32])
  const w: f32[16,32,3,3] = random(1)
  t = Transpose(x) permutation=[0,3,1,2]
  y = Conv(t, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  return y
)txt";

const Net kNets[] = {
    {"Convs", kConvs, {1, 4, 6, 5}, "Concat", 0},
    {"Copied", kCopied, {1, 4, 6}, "Concat", 0},
    {"Nested", kNested, {2, 3, 4}, "Concat", 0},
    {"Heads", kHeads, {2, 5, 12}, "Transpose", 0},
    {"HeadsJoined", kHeads, {2, 5, 12}, "Reshape", 0},
    {"Parts", kParts, {2, 5, 24}, "Transpose", 0},
    {"Torn", kTorn, {3, 4}, "Transpose", 1},
    {"Pixels", kPixels, {1, 6, 5, 32}, "Transpose", 0},
};

class Placements : public ::testing::TestWithParam<Net> {};

TEST_P(Placements, LeaveTheSameResults) {
  const Net& net = GetParam();
  const EngineFile file = build_as_it_is(net.text);
  EXPECT_EQ(steps_of(file.plans[0], net.op), net.steps) << to_string(file.plans[0]);
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32(net.input, 7)};
  const auto want = reference(net.text, inputs);
  expect_near(run(context, *engine, inputs), want);
  expect_near(run(context, *engine, inputs), want);
}

INSTANTIATE_TEST_SUITE_P(Nets, Placements, ::testing::ValuesIn(kNets),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Placement, OperandsThatCannotBeInPlaceAreCopiedThere) {
  const Plan plan = build_as_it_is(kCopied).plans[0];
  size_t copies = 0, refused = 0;
  for (const Step& step : plan.steps) copies += step.name.starts_with("k/copy of");
  for (const Decision& decision : plan.decisions)
    refused += decision.subject == "k" && decision.refused;
  EXPECT_EQ(copies, 4u);  // the input, the output, the constant, and the second use of a
  EXPECT_EQ(refused, 4u);
}

// But not over what the windows read, too, or what is asked for again.
TEST(Placement, ResidualSumsLieWhereAnOperandDid) {
  constexpr std::string_view kResiduals = R"txt(
graph residuals(x: f32[2,8,5,4])
  const w: f32[8,8,3,3] = random(1)
  const m: f32[4,4] = random(2)
  a = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  b = Conv(x, w; a) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] epilogue="(f32,f32)->(f32) add($0,$1)"
  c = Conv(b, w; b) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] epilogue="(f32,f32)->(f32) add($0,$1)"
  s = Softmax(x) axis=3
  d = MatMul(c, m; s) epilogue="(f32,f32)->(f32) add($0,$1)"
  e = Softmax(d) axis=3
  return e
)txt";
  const EngineFile file = build_as_it_is(kResiduals);
  const Plan& plan = file.plans[0];
  std::vector<std::string> over;
  for (const Step& step : plan.steps)
    if (const Slot& y = plan.slots[step.outputs[0]]; y.storage == Storage::kView)
      over.push_back(y.name + " over " + plan.slots[y.base].name);
  EXPECT_EQ(over, (std::vector<std::string>{"b over a", "d over s"})) << to_string(plan);
  const auto engine = engine_of(file);
  const std::vector<Tensor> inputs = {random_f32({2, 8, 5, 4}, 7)};
  for (const int threads : {1, 3}) {
    ExecutionContext context(engine, {.threads = threads});
    expect_near(run(context, *engine, inputs), reference(kResiduals, inputs));
  }
}

TEST(Placement, SizesMayBeOpen) {
  constexpr std::string_view kOpen = R"txt(
size N in 1..16 opt 4
size T in 1..8 opt 2
graph open(x: f32[N,T,6], z: f32[N,2,6])
  a = Pointwise(x) program="(f32)->(f32) exp($0)"
  b = Pointwise(z) program="(f32)->(f32) abs($0)"
  k = Concat(a, b) axis=1
  t = Transpose(k) permutation=[0,2,1]
  y = MatMul(k, t)
  return y
)txt";
  const EngineFile file = build_as_it_is(kOpen);
  EXPECT_EQ(file.plans[0].steps.size(), 3u) << to_string(file.plans[0]);
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  for (const auto& [n, t] : {std::pair(3, 5), std::pair(1, 1), std::pair(2, 8)}) {
    const std::vector<Tensor> inputs = {random_f32({n, t, 6}, 1), random_f32({n, 2, 6}, 2)};
    expect_near(run(context, *engine, inputs), reference(kOpen, inputs));
  }
}

// Two operands have sizes that values decide, though their sum is known: nothing is placed.
TEST(Placement, OperandsOfLateSizesAreNotPlaced) {
  constexpr std::string_view kLateParts = R"txt(
graph late_parts(x: f32[4], y: f32[6])
  z = NonZero(x)
  n = ShapeOf(z) start=1 end=2
  a = Slice(x, i64{0}, n, i64{0}, i64{1})
  b = Slice(x, n, i64{4}, i64{0}, i64{1})
  c = Pointwise(y) program="(f32)->(f32) exp($0)"
  k = Concat(a, b, c) axis=0
  return k
)txt";
  const auto engine = engine_of(build_as_it_is(kLateParts));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {
      Tensor::of<float>(DataType::kF32, {4}, std::vector<float>{1, 0, 2, 0}), random_f32({6}, 1)};
  expect_near(run(context, *engine, inputs), reference(kLateParts, inputs));
}

// An operand without elements, behind another one in a part of a larger result.
TEST(Placement, AnOperandMayBeEmpty) {
  constexpr std::string_view kEmpty = R"txt(
graph empty(a: f32[2,4], b: f32[0,4], c: f32[2,4])
  e = Pointwise(a) program="(f32)->(f32) exp($0)"
  f = Pointwise(b) program="(f32)->(f32) neg($0)"
  g = Pointwise(c) program="(f32)->(f32) abs($0)"
  k = Concat(e, f) axis=0
  m = Concat(g, k) axis=1
  y = Pointwise(m) program="(f32)->(f32) sqrt(abs($0))"
  return y
)txt";
  const auto engine = engine_of(build_as_it_is(kEmpty));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({2, 4}, 1), random_f32({0, 4}, 2),
                                      random_f32({2, 4}, 3)};
  expect_near(run(context, *engine, inputs), reference(kEmpty, inputs));
}

// What a convolution wrote channels-last is normalized in groups and read by another one: no copy.
TEST(Placement, CutChannelsStayInTheirOrder) {
  constexpr std::string_view kGroups = R"txt(
size N in 1..4 opt 2
size H in 1..9 opt 5
size W in 1..9 opt 4
graph groups(x: f32[N,8,H,W])
  const w: f32[12,8,1,1] = random(1)
  const v: f32[7,12,3,3] = random(2)
  a = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  s = SizeTensor() elements=[N,4,3,H*W]
  r = Reshape(a, s)
  n = Normalize(r) axes=[2,3]
  t = SizeTensor() elements=[N,12,H,W]
  b = Reshape(n, t)
  y = Conv(b, v) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  return y
)txt";
  const EngineFile file = build_as_it_is(kGroups);
  EXPECT_EQ(file.plans[0].steps.size(), 3u) << to_string(file.plans[0]);
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  for (const Dims& dims : {Dims{2, 8, 5, 4}, Dims{1, 8, 1, 1}, Dims{3, 8, 9, 7}}) {
    const std::vector<Tensor> inputs = {random_f32(dims, 1)};
    expect_near(run(context, *engine, inputs), reference(kGroups, inputs));
  }
}

TEST(Views, ReshapesOfStridedMemory) {
  SizeTable sizes;
  const auto strides = [&](const Shape& from, const Shape& of, const Shape& to) {
    const auto result = reshaped_strides(from, of, to, sizes);
    return result ? sizes.text(*result) : "none";
  };
  EXPECT_EQ(strides({2, 6}, {6, 1}, {3, 4}), "[4,1]");
  EXPECT_EQ(strides({2, 6}, {12, 1}, {2, 2, 3}), "[12,3,1]");
  EXPECT_EQ(strides({2, 6}, {12, 1}, {12}), "none");
  EXPECT_EQ(strides({2, 6}, {12, 1}, {3, 4}), "none");
  EXPECT_EQ(strides({4, 3, 2}, {1, 8, 4}, {4, 6}), "[1,4]");
  EXPECT_EQ(strides({4, 1, 6}, {12, 6, 1}, {4, 6, 1}), "[12,1,1]");
  EXPECT_EQ(strides({2, 6}, {6, 1}, {2, 5}), "none");
  const Size n = sizes.symbol("N"), m = sizes.symbol("M");
  EXPECT_EQ(strides({n, 12}, {24, 1}, {n, 3, 4}), "[24,4,1]");
  EXPECT_EQ(strides({sizes.mul(n, m), 3}, {5, 1}, {n, m, 3}), "[5*M,5,1]");
  // Channels-last memory with axes cut and joined.
  EXPECT_EQ(
      strides({1, 6, n, m}, channels_last_strides({1, 6, n, m}, sizes), {2, 3, sizes.mul(n, m)}),
      "[3,1,6]");
  EXPECT_EQ(strides({2, 3, sizes.mul(n, m)}, {3, 1, 6}, {1, 6, n, m}), "[6*N*M,1,6*M,6]");
  EXPECT_EQ(strides({2, 3, sizes.mul(n, m)}, {3, 1, 6}, {2, sizes.mul(3, n), m}), "none");
}

// Without placement both the concat and the slice of it are steps, with the same results.
TEST(Placement, LeftOutCopiesPartsOfResults) {
  constexpr const char* kText = R"txt(
graph parts(x: f32[1,4,6])
  a = Pointwise(x) program="(f32)->(f32) exp($0)"
  b = Pointwise(x) program="(f32)->(f32) abs($0)"
  k = Concat(a, b) axis=1
  c = Slice(k, i64{1}, i64{7}, i64{1}, i64{2})
  y = Pointwise(c) program="(f32)->(f32) neg($0)"
  return y
)txt";
  GraphBuildOptions options;
  options.passes.skip = {std::string(kAllPasses)};
  const EngineFile placed = build_text(kText, options);
  options.without.placement = true;
  const EngineFile apart = build_text(kText, options);
  EXPECT_EQ(steps_of(placed.plans[0], "Concat") + steps_of(placed.plans[0], "Slice"), 0);
  EXPECT_EQ(steps_of(apart.plans[0], "Concat"), 1);
  EXPECT_EQ(steps_of(apart.plans[0], "Slice"), 1);
  const std::vector<Tensor> inputs = {random_f32({1, 4, 6}, 1)};
  for (const EngineFile* file : {&placed, &apart}) {
    const auto engine = engine_of(*file);
    ExecutionContext context(engine);
    expect_near(run(context, *engine, inputs), reference(kText, inputs));
  }
}

}  // namespace
}  // namespace anneal::testing
