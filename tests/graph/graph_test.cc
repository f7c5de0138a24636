// The verbs of Graph, and what exporters write as shape arithmetic.
#include "anneal/graph/graph.h"
#include "anneal/core/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string type_of(const Graph& graph, std::string_view value) {
  const ValueId id = graph.find_value(value);
  return id == ValueId::kNone ? "none" : to_string(graph.value(id).type(), graph.sizes());
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Op relu() { return Pointwise{parse_program("(f32)->(f32) max($0,0f32)")}; }

TEST(Graph, AddInfersAndCountsUses) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DataType::kF32, {graph.sizes().symbol("N"), 3}});
  const LayerId add = graph.add({.name = "sum",
                                 .op = Pointwise{parse_program("(f32,f32)->(f32) add($0,$1)")},
                                 .inputs = {x, x}});
  EXPECT_EQ(type_of(graph, "sum"), "f32[N,3]");
  EXPECT_THAT(graph.value(x).users, ElementsAre(add, add));
  EXPECT_EQ(graph.value(graph.layer(add).outputs[0]).producer, add);
  EXPECT_THAT(graph.layer(add).origins, ElementsAre("sum"));
  EXPECT_EQ(graph.layer_count(), 1u);
  verify(graph);
}

TEST(Graph, NamesAreMadeUnique) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DataType::kF32, {3}});
  EXPECT_EQ(graph.value(graph.add_input("x", {DataType::kF32, {3}})).name, "x.2");
  for (const char* expected : {"relu", "relu.2", "relu.3"}) {
    const LayerId id = graph.add({.name = "relu", .op = relu(), .inputs = {x}});
    EXPECT_EQ(graph.layer(id).name, expected);
    EXPECT_EQ(graph.value(graph.layer(id).outputs[0]).name, expected);
  }
  const LayerId id =
      graph.add({.name = "other", .op = relu(), .inputs = {x}, .output_names = {"x"}});
  EXPECT_EQ(graph.value(graph.layer(id).outputs[0]).name, "x.3");
  verify(graph);
}

TEST(Graph, UnknownSizesBecomeSymbols) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DataType::kF32, {7}});
  const ValueId k = graph.add_input("k", {DataType::kI64, {1}});
  const LayerId top = graph.add(
      {.name = "top", .op = TopK{}, .inputs = {x, k}, .output_names = {"values", "indices"}});
  EXPECT_EQ(type_of(graph, "values"), "f32[values.size0]");
  EXPECT_EQ(type_of(graph, "indices"), "i64[values.size0]");
  const Facts inferred = graph.infer_outputs(top);
  EXPECT_TRUE(inferred[0].type.shape[0].is_unknown());
  verify(graph);
}

TEST(Graph, ErrorsNameTheLayer) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DataType::kF32, {7}});
  EXPECT_EQ(error_of([&] { graph.add({.name = "s", .op = Softmax{.axis = 1}, .inputs = {x}}); }),
            "layer \"s\" (Softmax): axis 1 of a tensor of rank 1");
  EXPECT_THAT(error_of([&] {
                graph.add({.name = "s", .op = relu(), .inputs = {x}, .output_names = {"a", "b"}});
              }),
              HasSubstr("2 names for 1 outputs"));
  EXPECT_THAT(
      error_of([&] {
        graph.add(
            {.name = "s", .op = relu(), .inputs = {x}, .output_types = {{DataType::kF32, {8}}}});
      }),
      HasSubstr("f32 [8] became f32 [7]"));
  EXPECT_THAT(error_of([&] {
                graph.add_input("y", {DataType::kF32, {-1}});
              }),
              HasSubstr("input \"y\" has shape [-1]"));
  graph.mark_output(x, "y");
  EXPECT_THAT(error_of([&] { graph.mark_output(x, "y"); }), HasSubstr("two graph outputs"));
  EXPECT_EQ(graph.layer_count(), 0u);
  verify(graph);
}

TEST(Graph, ReplaceUsesReachesOutputs) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[3])
  a = Pointwise(x) program="(f32)->(f32) neg($0)"
  b = Pointwise(a, a) program="(f32,f32)->(f32) add($0,$1)"
  return a as y, b
)g");
  const ValueId x = graph.find_value("x"), a = graph.find_value("a");
  graph.replace_uses(a, x);
  EXPECT_TRUE(graph.value(a).users.empty());
  EXPECT_EQ(graph.value(x).users.size(), 3u);
  EXPECT_EQ(graph.outputs()[0].value, x);
  EXPECT_TRUE(graph.is_output(x));
  EXPECT_FALSE(graph.is_output(a));
  verify(graph);
  graph.erase_unused();
  EXPECT_EQ(graph.layer_count(), 1u);
  EXPECT_EQ(graph.find_value("a"), ValueId::kNone);
  EXPECT_EQ(graph.value(x).users.size(), 2u);
  verify(graph);
}

TEST(Graph, EraseUnusedKeepsWhatIsRequired) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[3], a: bool[1], n: i64[])
  body checks(i: i64[], c: bool[], d: bool[1])
    e = Pointwise(d) program="(bool)->(bool) not($0)"
    f = Require(e)
    return c, i
  end
  body idles(i: i64[], c: bool[], d: bool[1])
    return c, i
  end
  const known: bool[] = {true}
  b = Pointwise(a) program="(bool)->(bool) not($0)"
  c = Require(b)
  d = Require(known)
  e = Loop(n, _, a) body=0
  f = Loop(n, _, a) body=1
  return x
)g");
  graph.erase_unused();
  EXPECT_NE(graph.find_value("b"), ValueId::kNone);
  EXPECT_NE(graph.find_value("c"), ValueId::kNone);
  EXPECT_EQ(graph.find_value("d"), ValueId::kNone);
  EXPECT_EQ(graph.layer_count(), 3u);
  EXPECT_EQ(graph.bodies()[0].layer_count(), 2u);
  EXPECT_TRUE(graph.bodies()[1].inputs().empty());
  verify(graph);
}

// Whatever became of the layers that the condition needs.
TEST(Graph, ChecksComeBeforeWhatWasAddedBehindThem) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[3], a: bool[])
  b = Pointwise(a) program="(bool)->(bool) not($0)"
  c = Require(b)
  d = Pointwise(x) program="(f32)->(f32) neg($0)"
  return d
)g");
  const ValueId b = graph.find_value("b");
  const LayerId again = graph.add({.name = "again",
                                   .op = graph.layer(graph.value(b).producer).op,
                                   .inputs = {graph.find_value("a")}});
  graph.replace_layer(graph.value(b).producer, again);
  graph.erase_unused();
  std::vector<std::string> names;
  for (const LayerId id : graph.order()) names.push_back(graph.layer(id).name);
  EXPECT_EQ(names, (std::vector<std::string>{"b", "c", "d"}));
}

TEST(Graph, EraseUnusedTakesChainsAndConstants) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[3], unused: f32[3])
  const w: f32[3] = {1, 2, 3}
  const v: f32[3] = {1, 2, 3}
  a = Pointwise(x, w) program="(f32,f32)->(f32) mul($0,$1)"
  b = Pointwise(a) program="(f32)->(f32) exp($0)"
  c = Pointwise(b) program="(f32)->(f32) exp($0)"
  d = Pointwise(x, v) program="(f32,f32)->(f32) mul($0,$1)"
  return d
)g");
  graph.erase_unused();
  EXPECT_EQ(to_string(graph), R"g(graph g(x: f32[3], unused: f32[3])
  const v: f32[3] = {1, 2, 3}
  d = Pointwise(x, v) program="(f32,f32)->(f32) mul($0,$1)"
  return d
)g");
  EXPECT_EQ(graph.constant(graph.find_value("v"))->as<float>()[2], 3);
  verify(graph);
  // The name is free again.
  graph.add({.name = "a", .op = relu(), .inputs = {graph.find_value("x")}});
  EXPECT_EQ(type_of(graph, "a"), "f32[3]");
}

TEST(Graph, RefineNarrows) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[N,4], y: f32[N,M])
  const s: i64[2] = {-1, 2}
  r = Reshape(x, s)
  n = SizeTensor() elements=[N,M]
  m = Pointwise(y) program="(f32)->(f32) neg($0)"
  return r, m, n
)g");
  EXPECT_EQ(type_of(graph, "r"), "f32[2*N,2]");
  graph.set_input_shape(graph.find_value("x"), {5, 4});
  graph.refine();
  EXPECT_EQ(type_of(graph, "r"), "f32[10,2]");
  EXPECT_EQ(type_of(graph, "m"), "f32[5,M]");  // N is 5 everywhere
  const Value& n = graph.value(graph.find_value("n"));
  EXPECT_EQ(n.fact.elements->front(), Size(5));
  verify(graph);
  EXPECT_THAT(error_of([&] {
                graph.set_input_shape(graph.find_value("x"), {6, 4});
              }),
              HasSubstr("input \"x\" of shape [5,4] cannot become [6,4]"));
  EXPECT_THAT(error_of([&] { graph.set_input_shape(graph.find_value("x"), {5}); }),
              HasSubstr("has rank 2, not 1"));
}

TEST(Graph, RefineFindsWhatValuesNowSay) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[9], k: i64[1])
  v: f32[v.size0], i: i64[v.size0] = TopK(x, k)
  y = Pointwise(v) program="(f32)->(f32) exp($0)"
  return y
)g");
  const int64_t four = 4;
  const ValueId constant =
      graph.add_constant("four", Tensor::of(DataType::kI64, {1}, std::span(&four, 1)));
  graph.replace_uses(graph.find_value("k"), constant);
  graph.refine();
  EXPECT_EQ(type_of(graph, "y"), "f32[4]");
  verify(graph);
}

TEST(Graph, CloneIsIndependent) {
  Graph graph = parse_graph(R"g(
graph g(x: f32[N], choice: bool[])
  body b(c: f32[N])
    return c
  end
  body other(c: f32[N])
    d = Pointwise(c) program="(f32)->(f32) exp($0)"
    return d
  end
  a = If(choice, x)
  return a
)g");
  Graph copy = graph.clone();
  EXPECT_EQ(to_string(copy), to_string(graph));
  EXPECT_NE(&copy.sizes(), &graph.sizes());
  EXPECT_EQ(&copy.sizes(), &copy.bodies()[0].sizes());
  copy.set_input_shape(copy.find_value("x"), {5});
  copy.refine();
  EXPECT_EQ(type_of(graph, "a"), "f32[N]");
  EXPECT_EQ(type_of(copy, "a"), "f32[5]");
  EXPECT_EQ(type_of(copy.bodies()[0], "c"), "f32[5]");
  EXPECT_EQ(type_of(copy.bodies()[1], "d"), "f32[5]");
}

TEST(Graph, OrderPrefersWhatWasAddedFirst) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DataType::kF32, {3}});
  const LayerId a = graph.add({.name = "a", .op = relu(), .inputs = {x}});
  const LayerId b = graph.add({.name = "b", .op = relu(), .inputs = {x}});
  const LayerId c = graph.add({.name = "c", .op = relu(), .inputs = {graph.layer(a).outputs[0]}});
  EXPECT_THAT(graph.order(), ElementsAre(a, b, c));
  const LayerId d = graph.add({.name = "d", .op = relu(), .inputs = {graph.layer(c).outputs[0]}});
  graph.replace_uses(x, graph.layer(d).outputs[0]);
  EXPECT_THAT(error_of([&] { graph.order(); }), HasSubstr("cycle"));
}

// Shape -> Gather -> Unsqueeze -> Concat -> Reshape: how exporters flatten.
TEST(GraphSizes, ExportedFlatten) {
  const Graph graph = parse_graph(R"g(
graph flatten(x: f32[N,512,1,1])
  shape = ShapeOf(x) end=4
  n = Gather(shape, i64[]{0})
  n1 = Reshape(n, i64{1})
  wanted = Concat(n1, i64{-1})
  y = Reshape(x, wanted)
  return y
)g");
  EXPECT_EQ(type_of(graph, "y"), "f32[N,512]");
}

// The batch and the heads of attention, with the products that exporters compute.
TEST(GraphSizes, ExportedHeads) {
  const Graph graph = parse_graph(
      R"g(
size N in 1..8 opt 1
size T in 1..512 opt 128
graph heads(x: f32[N,T,768])
  s = ShapeOf(x) end=3
  n = Slice(s, i64{0}, i64{1}, i64{0}, i64{1})
  t = Slice(s, i64{1}, i64{2}, i64{0}, i64{1})
  d = Slice(s, i64{-1}, i64{9223372036854775807}, i64{0}, i64{1})
  h = Pointwise(d, i64[]{12}) program="(i64,i64)->(i64) div($0,$1)"
  wanted = Concat(n, t, i64{12}, h)
  split = Reshape(x, wanted)
  heads = Transpose(split) permutation=[0,2,1,3]
  nt = Pointwise(n, t) program="(i64,i64)->(i64) mul($0,$1)"
  flat = Concat(nt, i64{-1})
  rows = Reshape(x, flat)
  return heads, rows
)g");
  EXPECT_EQ(type_of(graph, "heads"), "f32[N,12,T,64]");
  EXPECT_EQ(type_of(graph, "rows"), "f32[N*T,768]");
}

// Upsampling by a scale: Shape -> Cast -> Mul -> Floor -> Cast -> Concat -> Resize.
TEST(GraphSizes, ExportedUpsample) {
  const char* text = R"g(
size H in 1..4096 opt 64
graph up(x: f32[1,8,%s,32])
  const two: f32[] = {2}
  s = ShapeOf(x) start=2 end=4
  f = Pointwise(s) program="(i64)->(f32) f32($0)"
  m = Pointwise(f, two) program="(f32,f32)->(f32) mul($0,$1)"
  i = Pointwise(m) program="(f32)->(i64) i64(floor($0))"
  y = Resize(x, i) axes=[2,3]
  return y
)g";
  for (const auto& [size, expected] :
       {std::pair{"17", "f32[1,8,34,64]"}, {"H", "f32[1,8,2*H,64]"}}) {
    std::string whole = text;
    whole.replace(whole.find("%s"), 2, size);
    EXPECT_EQ(type_of(parse_graph(whole), "y"), expected);
  }
}

}  // namespace
}  // namespace anneal
