#include "anneal/core/size/size.h"

#include <gtest/gtest.h>

#include "anneal/core/channels_last.h"
#include "anneal/core/fail.h"

namespace anneal {
namespace {

using Values = std::vector<std::optional<int64_t>>;

ErrorCode code_of(auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

std::string message_of(auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Size, NormalForms) {
  struct Case {
    const char *input, *normal;
  };
  const Case cases[] = {
      {"N", "N"},
      {"2 + 3*4", "14"},
      {"H + H", "2*H"},
      {"N - N", "0"},
      {"3 + N", "N + 3"},
      {"H*N + N*H", "2*N*H"},
      {"(N + 1)*(N - 1)", "N*N - 1"},
      {"1 - N", "-N + 1"},
      {"-(N*2 - 3)", "-2*N + 3"},
      // Division by a number.
      {"H//1", "H"},
      {"7//2", "3"},
      {"-7//2", "-3"},
      {"(-7)//2", "-4"},
      {"7//(-2)", "-4"},
      {"(2*H + 2)//2", "H + 1"},
      {"(2*H + 3)//2", "H + 1"},
      {"(4*H + 6)//8", "(2*H + 3)//4"},
      {"(4*H + 7)//8", "(2*H + 3)//4"},
      {"(H + 2 - 3)//2 + 1", "(H + 1)//2"},
      {"(H + 2*3 - 7)//2 + 1", "(H + 1)//2"},
      {"3*H//2", "H + H//2"},
      {"-((-H)//2)", "(H + 1)//2"},
      {"-((0-H)//3)", "(H + 2)//3"},
      {"H//(-2)", "-((H + 1)//2)"},
      {"(H//2)//3", "H//6"},
      {"((H + 1)//2 + 1)//2", "(H + 3)//4"},
      {"((H - 1)//2 + 1 - 1)//2 + 1", "(H + 3)//4"},
      {"(N*H + 4)//4", "N*H//4 + 1"},
      // Division by a product.
      {"N//N", "1"},
      {"(0 - N)//N", "-1"},
      {"(N*C*H)//(N*C)", "H"},
      {"(N*C*H*4)//(2*C)", "2*N*H"},
      {"(N*C*H)//(N*W)", "(C*H)//W"},
      {"(2*N*H)//(4*N)", "H//2"},
      {"(N*H + 3)//N", "H + 3//N"},
      {"(3*N + 1)//(2*N)", "(N + 1)//(2*N) + 1"},
      {"H//(0 - N)", "(-H)//N"},
      // Division by a sum.
      {"(N*(H + 1)*(W + 1))//((H + 1)*(W + 1))", "N"},
      {"(N*H + N)//(H + 1)", "N"},
      {"(N*C*H)//(N*C + N)", "(C*H)//(C + 1)"},
      {"H//(1 - W)", "(-H)//(W - 1)"},
      // Minimum and maximum.
      {"min(N, N)", "N"},
      {"min(3, 4)", "3"},
      {"max(3, 4)", "4"},
      {"min(H, N)", "min(N, H)"},
      {"min(4, N)", "min(N, 4)"},
      {"min(4, min(H, min(N, 7)))", "min(N, H, 4)"},
      {"max(max(N, H), max(H, C))", "max(N, C, H)"},
      {"min(H, H + 1)", "H"},
      {"max(H, H + 1, 0)", "H + 1"},
      {"max(N, -3)", "N"},
      {"max(N, -9223372036854775808)", "N"},
      {"min(N, 9223372036854775807)", "N"},
      {"min(N, 0)", "0"},
      {"max(N*H, 2*N*H)", "2*N*H"},
      {"min(N, H) - min(H, N)", "0"},
      // What sizes of one axis broadcast to.
      {"broadcast(N, N)", "N"},
      {"broadcast(1, N)", "N"},
      {"broadcast(N, 4)", "4"},
      {"broadcast(0, N)", "0"},
      {"broadcast(H, N)", "broadcast(N, H)"},
      {"broadcast(N, H + 2)", "H + 2"},
      {"broadcast(N, 2*(H//2))", "2*(H//2)"},
      {"broadcast(N, min(N, 512))", "N"},
      {"broadcast(min(N, 512), N)", "N"},
      {"broadcast(N, min(N, H))", "broadcast(N, min(N, H))"},
      {"broadcast(4*H + 3, N)", "4*H + 3"},
      {"broadcast(4*H + 5, N)", "broadcast(N, 4*H + 5)"},
      {"broadcast(broadcast(C, N), broadcast(H, C))", "broadcast(N, C, H)"},
      {"broadcast(16, 2*N)", "16"},
      {"broadcast(2*N, 16)", "16"},
      {"broadcast(2*H, 2*N)", "2*H"},
      {"broadcast(2*N, 2*H)", "2*H"},
      {"broadcast(2*N, 4*((N + 1)//2))", "2*N"},
      {"broadcast(4*((N + 1)//2), 2*N)", "2*N"},
      {"broadcast(broadcast(2*N, 4*C + 3), 16)", "16"},
      {"broadcast(broadcast(min(N, 512), H), N)", "broadcast(N, H)"},
      {"broadcast(3, ?)", "3"},
      {"broadcast(N, ?)", "?"},
      // The unknown.
      {"?", "?"},
      {"N + ?", "?"},
      {"min(?, 3)*2", "?"},
  };
  for (const Case& it : cases) {
    SizeTable table;
    for (const char* name : {"N", "C", "H", "W"}) table.symbol(name);
    EXPECT_EQ(table.text(table.parse(it.input)), table.text(table.parse(it.normal))) << it.input;
    EXPECT_EQ(table.parse(it.input), table.parse(it.normal)) << it.input;
  }
}

TEST(Size, TextIsWhatPeopleWrite) {
  const char* texts[] = {
      "0",
      "-7",
      "9223372036854775807",
      "-9223372036854775808",
      "N",
      "2*N",
      "-N",
      "N + 1",
      "N*N*H - 2*N*H + N - H - 3",
      "N//2",
      "-N//2",
      "(N + 1)//2",
      "(N + 1)//H",
      "N//(2*H)",
      "(N//H)//W",
      "N//(H//W)",
      "7//N",
      "(-7)//N",
      "2*(N//2) + 1",
      "broadcast(N, H)",
      "2*broadcast(N, H + C) + 1",
      "N*(H//2)",
      "min(N, H)",
      "3*max(H, N + 1, 4)",
      "min(N, -9223372036854775808)",
      "max(W, min(N, H))//3",
      "\"batch size\" + 1",
      "\"\"",
      "\"min\"*\"a\\\"b\\\\c\\nd\"",
      "past.length_2",
      "trunc(f32.mul(f32.convert(N*C), f32.constant(0.3)))",
      "2*trunc(f64.floor(f64.sqrt(f64.div(H, 3)))) + 1",
      "\"trunc\" + \"f32.add\"",
  };
  for (const char* text : texts) {
    SizeTable table;
    for (const char* name : {"N", "H", "W"}) table.set_bounds(table.symbol(name), {-9, 1, 9});
    if (std::string_view(text).find("9223372036854775808") != std::string_view::npos)
      table.set_bounds(table.symbol("N"), {INT64_MIN, 0, INT64_MAX});
    EXPECT_EQ(table.text(table.parse(text)), text);
  }
  SizeTable table;
  EXPECT_EQ(table.text(Shape{table.symbol("N"), 3, table.parse("H//2 + 1"), Size::unknown()}),
            "[N,3,H//2 + 1,?]");
  EXPECT_EQ(table.text(Shape{}), "[]");
}

TEST(Size, WrongTextsAreRefused) {
  for (const char* text : {"",
                           " ",
                           "+",
                           "2*",
                           "*2",
                           "N N",
                           "N +",
                           "(N",
                           "N)",
                           "min",
                           "min(",
                           "min(N",
                           "min()",
                           "N/2",
                           "N**2",
                           "2N",
                           "\"N",
                           "\"N\\",
                           "9223372036854775808",
                           "99999999999999999999",
                           "N//0",
                           "N%2",
                           "9223372036854775807*2",
                           "9223372036854775807 + N + 1 + N*1 + 9223372036854775807",
                           "--N"}) {
    SizeTable table;
    EXPECT_EQ(code_of([&] { table.parse(text); }), ErrorCode::kInvalidArgument) << text;
  }
  SizeTable table;
  EXPECT_EQ(code_of([&] { table.parse(std::string(100000, '(')); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(message_of([&] { table.parse("2*"); }),
            "size \"2*\": a size is expected at position 2");
}

TEST(Size, SymbolsHaveNamesAndBounds) {
  SizeTable table;
  const Size n = table.symbol("N");
  EXPECT_EQ(table.symbol("N"), n);
  const Size second = table.fresh("N"), third = table.fresh("N"), other = table.fresh("k");
  EXPECT_EQ(table.text(Shape{second, third, other}), "[N.2,N.3,k]");
  EXPECT_EQ(table.symbols().size(), 4u);
  EXPECT_EQ(table.symbol_index(third), 2u);
  EXPECT_EQ(table.symbol_index(7), std::nullopt);
  EXPECT_EQ(table.symbol_index(table.add(n, 1)), std::nullopt);
  EXPECT_EQ(table.symbols_in(table.parse("k//N + N.3*min(k, 2)")),
            (std::vector<uint32_t>{0, 2, 3}));
  EXPECT_EQ(table.symbols_in(7), std::vector<uint32_t>{});

  table.set_bounds(second, {-5, 0, 5});
  EXPECT_EQ(table.symbols()[1].bounds, (Bounds{-5, 0, 5}));
  table.set_bounds(n, {2, 4, 8});
  for (Bounds wrong : {Bounds{3, 2, 8}, Bounds{3, 9, 8}, Bounds{1, 4, 8}, Bounds{2, 4, 9}})
    EXPECT_EQ(code_of([&] { table.set_bounds(n, wrong); }), ErrorCode::kInvalidArgument);
  table.set_bounds(n, {3, 4, 8});
  EXPECT_EQ(code_of([&] { table.set_bounds(7, {}); }), ErrorCode::kInternal);
}

TEST(Size, BoundsDecideMinimumAndMaximum) {
  SizeTable table;
  const Size n = table.symbol("N"), h = table.symbol("H");
  table.set_bounds(n, {1, 4, 8});
  table.set_bounds(h, {8, 9, 64});
  EXPECT_EQ(table.min(n, h), n);
  EXPECT_EQ(table.max(n, h), h);
  EXPECT_EQ(table.min(n, 8), n);
  EXPECT_EQ(table.max(n, 1), n);
  EXPECT_NE(table.min(n, 7), n);
}

TEST(Size, RangesAreProvable) {
  struct Case {
    const char* text;
    Bounds range;
  };
  const Case cases[] = {
      {"7", {7, 7, 7}},
      {"N", {1, 4, 8}},
      {"2*N + 1", {3, 9, 17}},
      {"1 - N", {-7, -3, 0}},
      {"N*S", {-24, 8, 40}},
      {"S*S", {-15, 4, 25}},
      {"S//2", {-2, 1, 2}},
      {"N//S", {-8, 2, 8}},
      {"N//Z", {INT64_MIN, INT64_MIN, INT64_MAX}},
      {"17//N", {2, 4, 17}},
      {"(-17)//N", {-17, -5, -3}},
      {"min(N, S)", {-3, 2, 5}},
      {"max(N, S)", {1, 4, 8}},
      {"A", {INT64_MIN, 0, INT64_MAX}},
      {"A - A + N", {1, 4, 8}},
      {"A*N", {INT64_MIN, 0, INT64_MAX}},
      {"N//A", {-8, -8, 8}},
      {"A//N", {INT64_MIN, 0, INT64_MAX}},
      {"9223372036854775807*N", {9223372036854775806, 9223372036854775806, INT64_MAX}},
  };
  for (const Case& it : cases) {
    SizeTable table;
    table.set_bounds(table.symbol("N"), {1, 4, 8});
    table.set_bounds(table.symbol("S"), {-3, 2, 5});
    table.set_bounds(table.symbol("Z"), {0, 0, 0});
    table.set_bounds(table.symbol("A"), {INT64_MIN, 0, INT64_MAX});
    const Bounds range = table.range(table.parse(it.text));
    EXPECT_EQ(range, it.range) << it.text << ": " << range.min << " " << range.opt << " "
                               << range.max;
  }
}

TEST(Size, EvaluatesExactlyOrSaysWhyNot) {
  SizeTable table;
  for (const char* name : {"N", "H", "W"})
    table.set_bounds(table.symbol(name), {INT64_MIN, 0, INT64_MAX});
  const int64_t big = int64_t{1} << 40;
  struct Case {
    const char* text;
    Values values;
    int64_t expected;
  };
  const Case right[] = {
      {"3", {}, 3},
      {"2*N + 1", {7}, 15},
      {"H//N", {-2, 7}, -4},
      {"(H + N)//2", {-2, -7}, -5},
      {"min(N, H) - max(N, H)", {3, 10}, -7},
      {"N*H*W", {big, big, 0}, 0},
      {"N*H - N*H + W", {big, big, 5}, 5},
      {"N*H", {-big, int64_t{1} << 23}, INT64_MIN},
      {"N + H - W", {INT64_MAX, INT64_MAX, INT64_MAX}, INT64_MAX},
  };
  for (const Case& it : right) {
    const Size size = table.parse(it.text);
    EXPECT_EQ(table.evaluate(size, it.values), it.expected) << it.text;
  }
  const Size sizes[] = {3, table.parse("2*N")};
  EXPECT_EQ(table.evaluate(Shape(std::span(sizes)), Values{4}), (Dims{3, 8}));

  struct Wrong {
    const char* text;
    Values values;
    const char* message;
  };
  const Wrong wrong[] = {
      {"2*H + 1", {7}, "size 2*H + 1: H has no value"},
      {"N + H", {std::nullopt, 1}, "size N + H: N has no value"},
      {"N*H", {big, big}, "size N*H: does not fit 64 bits"},
      {"N + 1", {INT64_MAX}, "size N + 1: does not fit 64 bits"},
      {"H//N", {0, 1}, "size H//N: is divided by zero"},
      {"H//N", {-1, INT64_MIN}, "size H//N: does not fit 64 bits"},
      {"?", {}, "an unknown size has no value"},
  };
  for (const Wrong& it : wrong) {
    const Size size = table.parse(it.text);
    EXPECT_EQ(message_of([&] { table.evaluate(size, it.values); }), it.message);
    EXPECT_EQ(code_of([&] { table.evaluate(size, it.values); }), ErrorCode::kInvalidArgument);
  }
}

TEST(Size, FloatArithmeticThatIsExactIsIntegerArithmetic) {
  SizeTable table;
  table.set_bounds(table.symbol("L"), {1, 1000, 1 << 20});
  table.set_bounds(table.symbol("K"), {1, 3, 64});
  const std::pair<const char*, const char*> cases[] = {
      {"trunc(f32.ceil(f32.div(L, 320)))", "(L + 319)//320"},
      {"trunc(f32.floor(f32.mul(L, f32.constant(0.5))))", "L//2"},
      {"trunc(f32.mul(f32.constant(0.25), L))", "L//4"},
      {"trunc(f32.ceil(f32.add(f32.div(L, 8), 1)))", "(L + 7)//8 + 1"},
      {"trunc(f32.floor(f32.sub(f32.div(L, K), 1)))", "L//K - 1"},
      {"trunc(f64.floor(f64.div(L, K)))", "L//K"},
      {"f32.div(f32.sqrt(L), 1)", "f32.sqrt(L)"},
      {"f32.convert(L)", "L"},
      {"f32.floor(K)", "K"},
      {"f32.mul(4, f32.constant(0.25))", "1"},
      {"f32.div(1, 0)", "f32.constant(inf)"},
      {"trunc(f32.constant(nan))", "0"},
      {"trunc(f32.constant(-1e30))", "-9223372036854775808"},
      {"f64.convert(f32.sqrt(L))", "f32.sqrt(L)"},
      // A rounding could reach the next integer, or -0.
      {"trunc(f32.floor(f32.mul(L, f32.constant(0.1))))", "trunc(f32.mul(L, f32.constant(0.1)))"},
      {"f32.ceil(f32.sub(f32.div(L, 8), 1))", "f32.ceil(f32.sub(f32.div(L, 8), 1))"},
      {"f32.floor(f32.div(f32.convert(64*L), 3))", "f32.floor(f32.div(f32.convert(64*L), 3))"},
      {"f32.sqrt(L) + 1", "?"},
  };
  for (const auto& [input, normal] : cases)
    EXPECT_EQ(table.text(table.parse(input)), normal) << input;
  EXPECT_EQ(table.range(table.parse("trunc(f32.mul(K, f32.constant(0.3)))")), (Bounds{0, 0, 19}));
  EXPECT_EQ(code_of([&] {
              table.evaluate(table.parse("f32.sqrt(L)"), Values{2, 2});
            }),
            ErrorCode::kInvalidArgument);
}

TEST(Size, ReplacesSymbols) {
  SizeTable table;
  const Size n = table.symbol("N"), m = table.symbol("M"), h = table.symbol("H");
  const SizeReplacements by = {{*table.symbol_index(n), table.add(m, 2)},
                               {*table.symbol_index(m), table.parse("3*H")}};
  EXPECT_EQ(table.substitute(n, by), table.parse("3*H + 2"));
  EXPECT_EQ(table.substitute(table.parse("N*M - (N + 4)//3"), by),
            table.parse("9*H*H + 6*H - (H + 2)"));
  EXPECT_EQ(table.substitute(table.parse("min(N, 4) + max(H, N) + broadcast(N, H)"), by),
            table.parse("min(3*H + 2, 4) + max(H, 3*H + 2) + broadcast(3*H + 2, H)"));
  EXPECT_EQ(table.substitute(h, by), h);
  EXPECT_EQ(table.substitute(7, by), Size(7));
  EXPECT_TRUE(table.substitute(Size::unknown(), by).is_unknown());
}

TEST(Size, ArithmeticThatCannotBeFailsAsAnInvalidModel) {
  SizeTable table;
  const Size n = table.symbol("N"), h = table.symbol("H");
  const int64_t big = int64_t{1} << 40;
  EXPECT_EQ(code_of([&] { table.add(INT64_MAX, 1); }), ErrorCode::kInvalidModel);
  EXPECT_EQ(code_of([&] { table.sub(INT64_MIN, 1); }), ErrorCode::kInvalidModel);
  EXPECT_EQ(code_of([&] { table.mul(big, big); }), ErrorCode::kInvalidModel);
  EXPECT_EQ(code_of([&] { table.mul(table.mul(n, big), table.mul(h, big)); }),
            ErrorCode::kInvalidModel);
  EXPECT_EQ(code_of([&] { table.floor_div(n, 0); }), ErrorCode::kInvalidModel);
  EXPECT_EQ(code_of([&] { table.floor_div(INT64_MIN, -1); }), ErrorCode::kInvalidModel);
  EXPECT_EQ(code_of([&] { table.floor_div(n, INT64_MIN); }), ErrorCode::kInvalidModel);
  EXPECT_EQ(table.sub(INT64_MIN, INT64_MIN), Size(0));
  EXPECT_EQ(code_of([&] { table.text(Size::expression(9999)); }), ErrorCode::kInternal);
}

TEST(Size, HostileGrowthIsRefused) {
  SizeTable sums;
  EXPECT_EQ(code_of([&] {
              Size power = 1;
              for (int i = 0; i < 100; ++i)
                power = sums.mul(power, sums.add(sums.fresh("N"), sums.fresh("H")));
            }),
            ErrorCode::kUnsupported);
  SizeTable depth;
  EXPECT_EQ(code_of([&] {
              Size size = depth.symbol("N");
              for (int i = 0; i < 100000; ++i)
                size = depth.add(depth.floor_div(size, depth.symbol("H")), depth.symbol("W"));
            }),
            ErrorCode::kUnsupported);
  SizeTable doubling;
  EXPECT_EQ(code_of([&] {
              Size size = doubling.symbol("N");
              for (int i = 0; i < 100; ++i)
                size = doubling.floor_div(doubling.add(size, 1), doubling.add(size, 2));
            }),
            ErrorCode::kUnsupported);
  SizeTable operands;
  EXPECT_EQ(code_of([&] {
              Size size = operands.symbol("N");
              for (int i = 0; i < 1000; ++i) size = operands.min(size, operands.fresh("N"));
            }),
            ErrorCode::kUnsupported);
}

TEST(Size, StridesOfShapes) {
  SizeTable table;
  const Size n = table.symbol("N"), h = table.symbol("H");
  const Shape shape{n, 3, h, 7};
  EXPECT_EQ(table.text(product(shape, table)), "21*N*H");
  EXPECT_EQ(table.text(row_major_strides(shape, table)), "[21*H,7*H,7,1]");
  EXPECT_EQ(table.text(channels_last_strides(shape, table)), "[21*H,1,21,3]");
  for (const Dims& dims : {Dims{}, Dims{7}, Dims{3, 5}, Dims{2, 3, 7}, Dims{1, 3, 23, 27},
                           Dims{5, 0, 3}, Dims{2, 3, 4, 5, 6}}) {
    EXPECT_EQ(product(shape_of(dims), table), Size(count(dims)));
    EXPECT_EQ(dims_of(row_major_strides(shape_of(dims), table)), row_major_strides(dims));
    EXPECT_EQ(dims_of(channels_last_strides(shape_of(dims), table)), channels_last_strides(dims));
  }
}

}  // namespace
}  // namespace anneal
