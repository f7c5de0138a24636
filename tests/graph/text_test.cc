// The text form: what is printed parses to the same text, and wrong texts name their line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "anneal/core/error.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

// Texts in the form that to_string(kWhole) gives.
const char* const kGraphs[] = {
    R"g(size N in 1..32 opt 8
size v.size0
graph mnist(x: f32[N,1,28,28])
  const w: f32[2,1,1,1] = {0.5, -1}
  const b: f32[2,1,1] = {1, 2}
  const k: i64[1] = {5}
  const one: f32[] = {1}
  c = Conv(x, w; b) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] epilogue="(f32,f32)->(f32) add($0,$1)" @name("conv1") @from("conv1", "add \"1\"")
  r = Reshape(c, i64{0, -1})
  v, i = TopK(r, k; one) axis=1 epilogue="" epilogue="(i64,f32)->(i32) i32($0)"
  return r as y, i, r as "y/2"
)g",
    R"g(size k.size0
graph "a b"("in:0": f16[9], n: i64[1])
  v: f16[k.size0], "v:1": i64[k.size0] = TopK("in:0", n)
  return v, "v:1" as "const"
)g",
    R"g(graph values()
  const f: f32[7] = {0, -0, inf, -inf, nan, 0.1, 3.4028235e+38}
  const n: f32[2] = {0x7fc00001, 0xffc00000}
  const d: f64[2] = {0.1, 4.9e-324}
  const h: f16[3] = {0.099975586, 6e-08, nan}
  const g: bf16[2] = {3.3895314e+38, 1}
  const i: i8[2] = {-128, 127}
  const u: u64[1] = {18446744073709551615}
  const l: i64[1] = {-9223372036854775808}
  const t: bool[2,1] = {true, false}
  const none: f32[0,3] = {}
  const scalar: u8[] = {7}
  return f, n, d, h, g, i, u, l, t, none, scalar
)g",
    R"g(size N
size "batch size"
graph containers(s: seq(f32[]), o: optional(i64[N,"batch size"]), q: optional(seq(bool[2*N + 1])), t: string[3])
  return s, o, q, t
)g",
    R"g(size N
graph outer(x: f32[N], choice: bool[])
  body then(c: f32[N])
    body deeper()
      return
    end
    d = Softmax(c)
    return d
  end
  body otherwise(c: f32[N])
    return c
  end
  a = Pointwise(x) program="(f32)->(f32) exp($0)"
  b = If(choice, a)
  return b
)g",
    R"g(size N
graph defaults(x: f32[N], w: f32[N] = f32[3]{1, 2, -0.5}, k: i64[] = i64[]{7})
  y = Pointwise(x, w) program="(f32,f32)->(f32) mul($0,$1)"
  return y, k
)g",
    R"g(graph absent(x: u8[1,1,3], w: u8[1,1,1], z: u8[])
  c = Conv(x, w, _, z) strides=[1] pads_begin=[0] pads_end=[0] dilations=[1]
  s = Slice(c, i64{0}, i64{2}, i64{2}, i64{1})
  return s
)g",
};

// h: 6e-08 is the smallest f16, written as the shortest f32 that gives it back.
TEST(Text, RoundTrip) {
  for (const char* text : kGraphs) {
    SCOPED_TRACE(text);
    try {
      const Graph graph = parse_graph(text);
      verify(graph);
      const std::string printed = to_string(graph, Constants::kWhole);
      const Graph again = parse_graph(printed);
      EXPECT_EQ(to_string(again, Constants::kWhole), printed);
      if (std::string_view(text).find("6e-08") == std::string_view::npos) {
        EXPECT_EQ(printed, text);
      }
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(Text, EveryF16IsExact) {
  std::string text = "graph g()\n  const h: f16[65536] = {";
  NewTensor fresh = allocate_tensor(DataType::kF16, {65536});
  for (uint32_t bits = 0; bits < 65536; ++bits)
    reinterpret_cast<uint16_t*>(fresh.data.data())[bits] = static_cast<uint16_t>(bits);
  Graph graph;
  graph.mark_output(graph.add_constant("h", fresh.tensor), "h");
  const Graph again = parse_graph(to_string(graph, Constants::kWhole));
  EXPECT_EQ(*again.constant(again.find_value("h")), fresh.tensor);
}

TEST(Text, ElidedIsForPeople) {
  const Graph graph = parse_graph(R"g(
# A comment, and blank lines.

graph g(x: f32[2,3])   # another
  const w: f32[17] = random(1)
  const s: i64[2] = {3, 2}
  r = Reshape(x, s)
  t = Reshape(r, s)
  return t, w
)g");
  EXPECT_EQ(to_string(graph), R"g(graph g(x: f32[2,3])
  const w: f32[17] = {...}
  r = Reshape(x, i64{3, 2})
  t = Reshape(r, i64{3, 2})
  return t, w
)g");
}

TEST(Text, RandomIsTheSameEverywhere) {
  const Graph graph = parse_graph(
      "graph g()\n const f: f32[3] = random(7)\n const i: i8[4] = random(7)\n"
      " const u: u8[1000] = random(1)\n return f, i, u\n");
  EXPECT_THAT(to_string(graph), HasSubstr("const f: f32[3] = {"));
  const Graph again = parse_graph("graph g()\n const f: f32[3] = random(7)\n return f\n");
  EXPECT_EQ(*again.constant(again.find_value("f")), *graph.constant(graph.find_value("f")));
  for (uint8_t one : graph.constant(graph.find_value("u"))->as<uint8_t>()) EXPECT_LT(one, 16);
}

TEST(Text, Types) {
  SizeTable sizes;
  for (const char* text : {"f32[]", "i64[N,3]", "seq(string[])", "optional(seq(f16[min(N, 4)]))"})
    EXPECT_EQ(to_string(parse_type(text, sizes), sizes), text);
  for (const char* text : {"f32", "f33[]", "f32[1", "f32[?]", "seq(f32[]", "f32[] x", ""})
    EXPECT_THROW(parse_type(text, sizes), Error) << text;
}

TEST(Text, WrongTexts) {
  struct Row {
    const char* text;
    const char* error;
  };
  const std::string head = "size N\ngraph g(x: f32[N,3])\n";
  for (const Row& row : std::vector<Row>{
           {"  return y\n", "line 3: \"y\" is not defined"},
           {"  x = Softmax(x)\n  return\n", "line 3: \"x\" is defined twice"},
           {"  a, a = TopK(x, i64{1})\n", "line 3: \"a\" is defined twice"},
           {"  a = Softmax(x) axis=2\n", "line 3: layer \"a\" (Softmax): axis 2"},
           {"  a = Softmax(x) axes=1\n", "line 3: "},
           {"  a = Sofmax(x)\n", "line 3: "},
           {"  a = Softmax(x\n", "line 3: \";\" is expected"},
           {"  a = Softmax x\n", "line 3: \"(\" is expected"},
           {"  a, b = Softmax(x)\n", "line 3: layer \"a\" (Softmax): 2 names for 1"},
           {"  a = TopK(x, i64{1}) axis=1\n", "line 3: 1 names for 2"},
           {"  a: f32[N,4] = Softmax(x)\n", "line 3: layer \"a\" (Softmax): f32 [N,4] became"},
           {"  a: f32[N,3], b = TopK(x, i64{1})\n", "line 3: types are given for some"},
           {"  a = Softmax(x; x; x)\n", "line 3: a second \";\""},
           {"  a = Softmax(x) epilogue=\"(f32)->(f32) neg($0\"\n", "line 3: "},
           {"  a = Softmax(x) epilogue=\"(f32)->\n", "line 3: a quote is not closed"},
           {"  a = Softmax(x) @name(\"b\") @other\n", "line 3: "},
           {"  a = Softmax(x)\n  b = Softmax(a) @name(\"a\")\n", "line 4: two layers named \"a\""},
           {"  a = Reshape(x, i64[2]{1,2})\n", "line 3: \"]\" is expected"},
           {"  a = Reshape(x, f33{1})\n", "line 3: \"f33\" is no type"},
           {"  a = Reshape(x, i64{1,})\n", "line 3: \"\" is no i64"},
           {"  const w: f32[2] = {1}\n", "line 3: 1 elements for f32[2]"},
           {"  const w: i8[1] = {128}\n", "line 3: \"128\" is no i8"},
           {"  const w: f32[1] = {...}\n", "line 3: the elements are left out"},
           {"  const w: f32[N] = {1}\n", "line 3: a constant is a tensor of known sizes"},
           {"  const w: f32[-1] = {}\n", "line 3: a negative size"},
           {"  const w: f32[99999999999] = random(1)\n", "line 3: random elements"},
           {"  const w: string[1] = {a}\n", "line 3: a constant of strings"},
           {"  const w: f32[1] = {1} x\n", "line 3: \"x\" is left over"},
           {"  return x, x\n", "line 3: two graph outputs"},
           {"  a = Softmax(x)\n", "line 3: \"return\" is missing"},
           {"  return\n  return\n", "line 4: something follows the graph"},
           {"  return\n  body b()\n", "line 4: something follows the graph"},
           {"  body b()\n  return\n", "line 4: \"end\" is missing"},
           {"  body b(y: f32[-2])\n", "line 3: input \"y\""},
       }) {
    try {
      parse_graph(head + row.text);
      ADD_FAILURE() << row.text << " is accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << row.text;
      EXPECT_THAT(error.what(), HasSubstr(row.error)) << row.text;
    }
  }
  for (const char* text : {"", "size N\n", "size N in 5..1\ngraph g()\n return\n",
                           "size N in a..1\n", "graph g(x: f32[)\n", "graph g(x)\n", "hello\n"})
    EXPECT_THROW(parse_graph(text), Error) << text;
}

// No cut of a good text may crash or hang.
TEST(Text, CutAnywhere) {
  for (const std::string text : kGraphs)
    for (size_t length = 0; length < text.size(); length += 3) {
      try {
        parse_graph(text.substr(0, length));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      }
    }
}

}  // namespace
}  // namespace anneal
