// What the readers of values need, and where that ends.
#include "anneal/optimizer/precision/value_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

// Which products and values of the graph must not be in bf16, as "name: why" lines.
// Those of its bodies follow.
std::string needs_in(const Graph& graph, DataType half, const BodyContext* around) {
  const NeedAnalysis needs(graph, {}, around);
  std::string lines;
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    if (const auto why = needs.why_not_multiplied(id, rounding_of(half), "16 bits"); !why.empty())
      lines += "product " + layer.name + ": " + why + "\n";
    for (const ValueId output : layer.outputs)
      if (const auto why = needs.why_not_stored(output, rounding_of(half), "16 bits"); !why.empty())
        lines += "value " + graph.value(output).name + ": " + why + "\n";
  }
  for (const auto& [body, context] : needs.bodies())
    lines += needs_in(graph.bodies()[static_cast<size_t>(body)], half, context.get());
  return lines;
}

std::string needs_of(const std::string& text, DataType half = DataType::kBF16) {
  return needs_in(parse_graph(text), half, nullptr);
}

TEST(ValueNeed, AnglesAreCarriedThroughMovementAndProducts) {
  const std::string needs = needs_of(R"G(graph g(p: i64[1,1,8], q: f32[8,8])
  const inv: f32[1,4,1] = {1, 0.1, 0.01, 0.001}
  f = Pointwise(p) program="(i64)->(f32) f32($0)"
  a = MatMul(inv, f)
  t = Transpose(a) permutation=[0,2,1]
  c = Concat(t, t) axis=2
  s = Pointwise(c) program="(f32)->(f32) sin($0)"
  y = MatMul(q, s)
  return y
)G");
  EXPECT_THAT(needs, HasSubstr("value f: "));
  EXPECT_THAT(needs,
              HasSubstr("product a: layer \"s\" takes the sine of \"c\", which may be off by "
                        "0.0039 at most; the magnitude of the product"));
  EXPECT_THAT(needs, HasSubstr("value c: "));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("value s: ")));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("product y: ")));
}

TEST(ValueNeed, ProductsLessTheirOwnMeanKeepTheirDigits) {
  const std::string needs = needs_of(R"G(graph g(x: f32[4,2], z: f32[4,2])
  const w: f32[2,2] = {1, 2, 3, 4}
  const one: i64[1] = {1}
  p = MatMul(x, w)
  m = Reduce(p, one) kind=mean
  d = Pointwise(p, m) program="(f32,f32)->(f32) sub($0,$1)"
  e = MatMul(d, w)
  q = Pointwise(x, z) program="(f32,f32)->(f32) mul($0,$1)"
  h = Pointwise(q) program="(f32)->(f32) mul($0,2f32)"
  n = Reduce(q, one) kind=sum
  f = Pointwise(h, n) program="(f32,f32)->(f32) add($0,mul($1,-0.25f32))"
  y = MatMul(f, w)
  return e, y
)G");
  EXPECT_THAT(
      needs,
      HasSubstr("product p: layer \"d\" takes the mean or a neighbour from \"p\", which may lose"));
  EXPECT_THAT(needs, HasSubstr("value m: "));
  EXPECT_THAT(needs, HasSubstr("value h: layer \"f\" takes the mean or a neighbour from"));
  EXPECT_THAT(needs, HasSubstr("value q: "));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("product e: ")));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("value f: ")));
}

TEST(ValueNeed, DifferencesOfNeighboursKeepTheirDigits) {
  const auto needs = [](const std::string& program) {
    return needs_of(R"G(graph g(x: f32[4,2])
  const w: f32[2,2] = {1, 2, 3, 4}
  p = MatMul(x, w)
  a = Slice(p, i64{1}, i64{4}, i64{0}, i64{1})
  b = Slice(p, i64{0}, i64{3}, i64{0}, i64{1})
  d = Pointwise(a, b) program=")G" +
                    program + R"G("
  return d
)G");
  };
  EXPECT_THAT(needs("(f32,f32)->(f32) sub($0,$1)"), HasSubstr("product p: "));
  EXPECT_THAT(needs("(f32,f32)->(f32) add($0,neg($1))"), HasSubstr("product p: "));
  EXPECT_EQ(needs("(f32,f32)->(f32) add($0,$1)"), "");
  // A rotation, where factors are of any sign.
  EXPECT_EQ(needs("(f32,f32)->(f32) sub(mul($0,0.8f32),mul($1,0.6f32))"), "");
}

TEST(ValueNeed, EqualNumbersAreExactAndOthersStoredExactly) {
  const auto needs = [](const std::string& test) {
    return needs_of(R"G(graph g(x: f32[4,2])
  const w: f32[2,2] = {1001, 1002, 1003, 1004}
  p = MatMul(x, w)
  e = Pointwise(p) program="(f32)->(bool) )G" +
                    test + R"G("
  return e
)G");
  };
  EXPECT_THAT(needs("eq($0,1003f32)"), HasSubstr("product p: layer \"e\" looks for an equal"));
  EXPECT_THAT(needs("lt($0,1003f32)"), ::testing::Not(HasSubstr("product p: ")));
  EXPECT_THAT(needs("lt($0,1003f32)"), HasSubstr("value p: "));
}

TEST(ValueNeed, CodesOfAConstantTableAreExact) {
  const auto needs = [](const std::string& table) {
    return needs_of(R"G(graph g(x: f32[4,2], t: f32[2,3])
  const w: f32[2,2] = {1, 2, 3, 4}
  const codes: f32[2,3] = {1, 2, 3, 4, 5, 6}
  p = MatMul(x, w)
  i = ArgReduce(p) largest=true axis=1 keepdims=false select_last=false
  y = Gather()G" + table +
                    R"G(, i) axis=0
  return y
)G");
  };
  EXPECT_THAT(needs("codes"), HasSubstr("product p: layer \"i\" makes an index of a table"));
  EXPECT_THAT(needs("t"), ::testing::Not(HasSubstr("product p: ")));
}

TEST(ValueNeed, WhatTreesCompareIsExact) {
  EXPECT_THAT(needs_of(R"G(graph g(x: f32[4,2])
  const w: f32[2,2] = {1, 2, 3, 4}
  const features: i32[2] = {0, 1}
  const thresholds: f32[2] = {0, 3}
  const children: i32[2,2] = {0, 0, 0, 0}
  const roots: i32[1] = {1}
  p = MatMul(x, w)
  leaves = DecisionTrees(p, features, thresholds, children, roots)
  return leaves
)G"),
              HasSubstr("product p: layer \"leaves\" makes an index of comparisons of"));
}

TEST(ValueNeed, DecaysOfLinearAttentionAreExponents) {
  EXPECT_THAT(needs_of(R"G(graph g(q: f32[1,3,2,4], v: f32[1,3,2,5], x: f32[1,3,2,8])
  const w: f32[8,1] = {1, 2, 3, 4, 5, 6, 7, 8}
  p = MatMul(x, w)
  y, state = LinearAttention(q, q, v, _, p)
  return y
)G"),
              HasSubstr("product p: layer \"y\" takes the exponential of"));
}

TEST(ValueNeed, MeansOfOthersAndOfFeaturesLoseNothing) {
  EXPECT_EQ(needs_of(R"G(graph g(x: f32[4,2])
  const w: f32[2,2] = {1, 2, 3, 4}
  const one: i64[1] = {1}
  p = MatMul(x, w)
  m = Reduce(x, one) kind=mean
  d = Pointwise(p, m) program="(f32,f32)->(f32) sub($0,$1)"
  r = Pointwise(p) program="(f32)->(f32) max($0,0f32)"
  n = Reduce(r, one) kind=mean
  e = Pointwise(r, n) program="(f32,f32)->(f32) sub($0,$1)"
  return d, e
)G"),
            "");
}

TEST(ValueNeed, IndicesMadeOfASigmoidNeedItsArgument) {
  const auto needs = [](const std::string& program, const std::string& reader) {
    return needs_of(R"G(graph g(x: f32[4,2])
  const w: f32[2,2] = {1, 2, 3, 4}
  const table: f32[4] = {1, 2, 3, 4}
  const zero: i64[1] = {0}
  p = MatMul(x, w)
  q = Pointwise(p) program=")G" +
                    program + R"G("
  i = Pointwise(q) program="(u8)->(i64) i64($0)"
)G" + reader);
  };
  const std::string gathers = "  y = Gather(table, i) axis=0\n  return y\n";
  const std::string gives = "  return q\n";
  for (const char* program : {"(f32)->(u8) round_u8(u32(mul(sigmoid($0),255f32)))",
                              "(f32)->(u8) saturate_u8(rint(mul(sigmoid($0),255f32)))",
                              "(f32)->(u8) saturate_u8(mul(tanh($0),255f32))"}) {
    EXPECT_THAT(needs(program, gathers), HasSubstr("product p: ")) << program;
    EXPECT_EQ(needs(program, gives), "") << program;
  }
}

TEST(ValueNeed, SmallAnglesNeedNothing) {
  const char* text = R"G(graph g(x: f32[4,2])
  const w: f32[2,2] = {0.5, 0.5, 0.25, 0.25}
  b = Pointwise(x) program="(f32)->(f32) tanh($0)"
  a = MatMul(b, w)
  s = Pointwise(a) program="(f32)->(f32) sin($0)"
  return s
)G";
  EXPECT_EQ(needs_of(text, DataType::kF16), "");
  EXPECT_THAT(needs_of(text), HasSubstr("product a: "));
}

TEST(ValueNeed, IndicesAreExactUpToTheFeaturesBehindTheirProduct) {
  const std::string needs = needs_of(R"G(graph g(x: f32[4,8])
  const w: f32[8,8] = random(1)
  const v: f32[8,1] = random(2)
  h = MatMul(x, w) epilogue="(f32)->(f32) max($0,0f32)"
  a = MatMul(h, v)
  i = Pointwise(a) program="(f32)->(i64) i64(min(max($0,0f32),7f32))"
  return i
)G");
  EXPECT_THAT(needs, HasSubstr("product a: layer \"i\" makes integers of its result, which "
                               "must be exact"));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("product h: ")));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("value h: ")));
}

TEST(ValueNeed, WhatIsSelectedIsStoredExactlyByAnyProduct) {
  const std::string needs = needs_of(R"G(graph g(x: f32[4,8])
  const w: f32[8,8] = random(1)
  a = MatMul(x, w)
  p = Softmax(a) axis=1
  i = ArgReduce(p) largest=true axis=1 keepdims=false select_last=false
  return i
)G");
  EXPECT_THAT(needs, HasSubstr("value a: layer \"i\" selects by \"p\", which must be exact"));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("product a: ")));
}

TEST(ValueNeed, ActivationsNeedNothing) {
  const auto of_activation = [](const std::string& program) {
    return needs_of(R"G(graph g(x: f32[4,8])
  const w: f32[8,8] = random(1)
  a = MatMul(x, w)
  b = Pointwise(a) program="(f32)->(f32) )G" +
                    program + R"G("
  y = MatMul(b, w)
  return y
)G");
  };
  for (const char* program :
       {"max($0,0f32)", "div(1f32,add(exp(neg($0)),1f32))", "log(add(exp($0),1f32))",
        "select(lt($0,0f32),mul($0,0.01f32),$0)", "select(lt($0,0f32),expm1($0),$0)",
        "%0=sin(mul($0,3f32)); add($0,mul(%0,%0))", "mul($0,tanh(log1p(exp($0))))",
        "mul(sub(min(max(rint(div($0,0.1f32)),0f32),255f32),3f32),0.1f32)", "exp(min($0,0f32))"})
    EXPECT_EQ(of_activation(program), "") << program;
  for (const char* program : {"exp($0)", "sin($0)", "floor($0)", "acos($0)",
                              "mul(floor(max($0,0f32)),0.1f32)", "cosh($0)"})
    EXPECT_THAT(of_activation(program), HasSubstr("product a: ")) << program;
}

TEST(ValueNeed, DifferencesUnderRootsKeepTheirDigits) {
  const std::string needs = needs_of(R"G(graph g(a: f32[4,8], b: f32[8,4], n: f32[4,4])
  m = MatMul(a, b)
  d = Pointwise(n, m) program="(f32,f32)->(f32) sqrt(max(sub($0,mul($1,2f32)),0f32))"
  return d
)G");
  EXPECT_THAT(needs, HasSubstr("product m: layer \"d\" takes the root of its result"));
}

TEST(ValueNeed, DifferencesFromConstantsKeepTheirDigits) {
  EXPECT_THAT(needs_of(R"G(graph g(a: f32[4,8], b: f32[8,4])
  cosine = MatMul(a, b)
  d = Pointwise(cosine) program="(f32)->(f32) sqrt(max(sub(2f32,mul($0,2f32)),0f32))"
  return d
)G"),
              HasSubstr("product cosine: layer \"d\" takes the root of"));
}

TEST(ValueNeed, SmallWholeNumbersAreExactInAnyCase) {
  EXPECT_EQ(needs_of(R"G(graph g(x: f32[4,8], y: f32[4,8])
  const w: f32[8,2] = {1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1}
  m = Pointwise(x, y) program="(f32,f32)->(bool) lt($0,$1)"
  f = Pointwise(m) program="(bool)->(f32) f32($0)"
  c = MatMul(f, w)
  i = Pointwise(c) program="(f32)->(i64) i64($0)"
  return i
)G"),
            "");
}

TEST(ValueNeed, GuessesGrowByWeightsAndByProductsOfComputedValues) {
  const Graph graph = parse_graph(R"G(graph g(x: f32[4,2], z: f32[2,2])
  const w: f32[2,2] = {3000, 4000, 0, 0}
  a = MatMul(x, w)
  b = MatMul(x, z)
  p = Softmax(b) axis=1
  c = MatMul(p, z)
  return a, c
)G");
  const NeedAnalysis needs(graph, {});
  EXPECT_EQ(needs.expected(graph.find_value("a")), 256.0 * 4000);
  EXPECT_TRUE(std::isinf(needs.expected(graph.find_value("b"))));
  EXPECT_EQ(needs.expected(graph.find_value("c")), 256);
}

TEST(ValueNeed, WhatReadsTheResultOfABodyIsKnownInTheBody) {
  const std::string needs = needs_of(R"G(graph g(c: bool[], p: i64[8,1])
  body one(f: f32[8,1])
    const w: f32[1,2] = {1, 0.1}
    a = MatMul(f, w)
    return a
  end
  body two(f: f32[8,1])
    const v: f32[1,2] = {0.5, 0.05}
    b = MatMul(f, v)
    return b
  end
  f = Pointwise(p) program="(i64)->(f32) f32($0)"
  angle = If(c, f)
  s = Pointwise(angle) program="(f32)->(f32) sin($0)"
  return s
)G");
  EXPECT_THAT(needs, HasSubstr("product a: layer \"s\" takes the sine of \"angle\""));
  EXPECT_THAT(needs, HasSubstr("product b: layer \"s\" takes the sine of \"angle\""));
  EXPECT_THAT(needs, HasSubstr("value f: "));
}

TEST(ValueNeed, WhatABodyIsGivenIsKnownInTheBody) {
  const std::string text = R"G(graph g(c: bool[], x: f32[8,1])
  body one(f: f32[8,1])
    const w: f32[1,2] = {1, 0.1}
    a = MatMul(f, w)
    s = Pointwise(a) program="(f32)->(f32) sin($0)"
    return s
  end
  body two(f: f32[8,1])
    const v: f32[1,2] = {0.5, 0.05}
    b = MatMul(f, v)
    return b
  end
  f = Pointwise(x) program="(f32)->(f32) PROGRAM"
  y = If(c, f)
  return y
)G";
  const auto with = [&](std::string_view program) {
    std::string made = text;
    return needs_of(made.replace(made.find("PROGRAM"), 7, program), DataType::kF16);
  };
  EXPECT_EQ(with("tanh($0)"), "");
  EXPECT_THAT(with("mul($0,$0)"), HasSubstr("product a: layer \"s\" takes the sine of \"a\""));
}

TEST(ValueNeed, ACarriedSumThatNeedsDigitsIsExact) {
  const auto loop = [](std::string_view update) {
    std::string text = R"G(graph g(n: i64[], a0: f32[8,2], x: f32[8,1])
  body each(i: i64[], go: bool[], a: f32[8,2], x: f32[8,1])
    const w: f32[1,2] = {0.001, 0.0001}
    t = Pointwise(x) program="(f32)->(f32) tanh($0)"
    m = MatMul(t, w)
    b = Pointwise(a, m) program="(f32,f32)->(f32) UPDATE"
    return go, b
  end
  a = Loop(n, _, a0, x) body=0 carried=1
  s = Pointwise(a) program="(f32)->(f32) sin($0)"
  return s
)G";
    return needs_of(text.replace(text.find("UPDATE"), 6, update));
  };
  EXPECT_THAT(loop("add($0,$1)"), HasSubstr("product m: layer \"s\" takes the sine of \"a\""));
  // Errors of the iterations before fade.
  EXPECT_THAT(loop("add(mul($0,0.5f32),$1)"), ::testing::Not(HasSubstr("product m: ")));
}

TEST(ValueNeed, SpectraUnderLogarithmsKeepTheirDigits) {
  const std::string needs = needs_of(R"G(graph g(x: f32[4,8], w: f32[8,2], v: f32[8,2])
  const mel: f32[2,2] = {1, 2, 3, 4}
  re = MatMul(x, w)
  im = MatMul(x, v)
  p = Pointwise(re, im) program="(f32,f32)->(f32) add(mul($0,$0),mul($1,$1))"
  m = MatMul(p, mel)
  l = Pointwise(m) program="(f32)->(f32) log(max($0,0.0001f32))"
  y = MatMul(l, mel)
  return y
)G");
  EXPECT_THAT(needs, HasSubstr("product re: layer \"l\" takes the logarithm of squares of \"re\""));
  EXPECT_THAT(needs, HasSubstr("product im: "));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("product m: ")));
  EXPECT_THAT(needs, ::testing::Not(HasSubstr("product y: ")));
}

TEST(ValueNeed, IndicesOfAnyWidthAreExact) {
  const auto gathered = [](std::string_view index) {
    std::string text = R"G(graph g(x: f32[4,8], w: f32[8,2])
  const t: f32[256,2] = random(1)
  a = MatMul(x, w)
INDEX  j = Pointwise(i) program="(u8)->(i64) i64($0)"
  y = Gather(t, j) axis=0
  return y
)G";
    return needs_of(text.replace(text.find("INDEX"), 5, index));
  };
  EXPECT_THAT(gathered("  i = Pointwise(a) program=\"(f32)->(u8) "
                       "round_u8(u32(max(min(mul($0,20f32),255f32),0f32)))\"\n"),
              HasSubstr("product a: layer \"i\" makes integers of"));
  EXPECT_THAT(gathered("  i = Pointwise(a) program=\"(f32)->(u8) round_u8(u32(lt($0,0.5f32)))\"\n"),
              HasSubstr("product a: layer \"i\" makes an index of a comparison of \"a\""));
}

TEST(ValueNeed, GuessesGrowByPowersAndByWeightsOfOneSign) {
  const Graph graph = parse_graph(R"G(graph g(x: f32[4,4])
  const w: f32[4,1] = {100, 100, 100, 100}
  const v: f32[4,1] = {100, -100, 100, -100}
  a = MatMul(x, w)
  b = MatMul(x, v)
  s = Pointwise(x) program="(f32)->(f32) %0=max($0,0f32); mul(%0,%0)"
  c = Pointwise(x) program="(f32)->(f32) mul(mul($0,$0),$0)"
  p = Pointwise(x) program="(f32)->(f32) pow($0,3f32)"
  return a, b, s, c, p
)G");
  const NeedAnalysis needs(graph, {});
  const auto expected = [&](const char* name) { return needs.expected(graph.find_value(name)); };
  EXPECT_EQ(expected("a"), 256.0 * 400);
  EXPECT_EQ(expected("b"), 256.0 * 200);
  EXPECT_EQ(expected("s"), 256.0 * 256);
  EXPECT_EQ(expected("c"), 256.0 * 256 * 256);
  EXPECT_EQ(expected("p"), 256.0 * 256 * 256);
}

// What is carried is expected to be as large as some iterations make it, or of any magnitude.
TEST(ValueNeed, WhatGrowsWithEachIterationMayBeAnything) {
  const auto carried = [](std::string_view program, std::string_view trips = "t") {
    std::string text = R"G(graph g(t: i64[], x: f32[4,4], z: f32[4,4])
  body each(i: i64[], go: bool[], h: f32[4,4], e: f32[4,4])
    const w: f32[4,4] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
    m = MatMul(h, w)
    n = Pointwise(m, h, e) program="(f32,f32,f32)->(f32) PROGRAM"
    return go, n
  end
  y = Loop(TRIPS, _, x, z) body=0 carried=1
  return y
)G";
    text.replace(text.find("PROGRAM"), 7, program);
    const Graph graph = parse_graph(text.replace(text.find("TRIPS"), 5, trips));
    return NeedAnalysis(graph, {}).expected(graph.find_value("y"));
  };
  EXPECT_TRUE(std::isinf(carried("add($0,mul(add($1,$2),0f32))")));
  EXPECT_TRUE(std::isinf(carried("add($1,add($2,mul($0,0f32)))")));
  EXPECT_LE(carried("tanh(add($0,add($1,$2)))"), 256);
  EXPECT_LE(carried("add(mul($1,0.5f32),add($2,mul($0,0f32)))"), 520);
  EXPECT_EQ(carried("add($0,mul(add($1,$2),0f32))", "i64[]{2}"), 256 * 16);
}

}  // namespace
}  // namespace anneal
