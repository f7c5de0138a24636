// Rotary embeddings of com.microsoft that take several rows of positions, or angles.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using ::testing::HasSubstr;

using Integers = std::vector<int64_t>;

// x of 2 batches of 3 positions with 2 heads.
struct Sectioned {
  Integers sections;
  int64_t layout;
  std::vector<int> rows;  // of positions, by pair
  bool is_split = false;  // x is [batch, heads, positions, width]
  bool interleaved = false;
  int64_t width = 16, rotated = 0;
};

// Rows of time, height and width for each batch.
void add_positions(ModelBuilder& m) {
  m.integers("numbers", {0, 1, 2, 5, 6, 6, 3, 0, 4, 2, 2, 1, 6, 5, 0, 4, 1, 3});
  m.integers("positions_shape", {3, 2, 3});
  m.node("Reshape", {"numbers", "positions_shape"}, {"at"});
}

void sectioned_rotation(ModelBuilder& m, const Sectioned& given) {
  add_positions(m);
  auto& node = microsoft(m, "MRotaryEmbedding", {"x", "at", "c", "s"});
  set(node, "mrope_section", given.sections);
  set(node, "mrope_layout", given.layout);
  set(node, "num_heads", int64_t{2});
  set(node, "rotary_embedding_dim", given.rotated);
  set(node, "interleaved", int64_t{given.interleaved});
}

// The angles of each row of positions, where a pair has that row.
void rotation_by_masks(ModelBuilder& m, const Sectioned& given) {
  add_positions(m);
  for (const std::string table : {"c", "s"}) {
    std::vector<std::string> terms;
    for (const int row : {0, 1, 2}) {
      const std::string name = fmt::format("{}{}", table, row);
      std::vector<float> mask;
      for (const int of_pair : given.rows) mask.push_back(of_pair == row ? 1 : 0);
      m.floats(name + "/mask", {static_cast<int64_t>(mask.size())}, mask);
      m.integers(name + "/index", {row}).integers(name + "/axis", {0});
      m.node("Gather", {"at", name + "/index"}, {name + "/one_row"});
      m.node("Squeeze", {name + "/one_row", name + "/axis"}, {name + "/row"});
      m.node("Gather", {table, name + "/row"}, {name + "/angles"});
      m.node("Mul", {name + "/angles", name + "/mask"}, {name});
      terms.push_back(name);
    }
    m.node("Sum", terms, {table + "/all"});
  }
  auto& node = m.node("RotaryEmbedding", {"x", "c/all", "s/all"}, {"y"});
  set(node, "num_heads", int64_t{2});
  set(node, "rotary_embedding_dim", given.rotated);
  set(node, "interleaved", int64_t{given.interleaved});
}

TEST(MRotaryEmbedding, PairsHaveTheAnglesOfTheirSection) {
  for (const Sectioned& given : {Sectioned{{3, 1, 4}, 0, {0, 0, 0, 1, 2, 2, 2, 2}},
                                 Sectioned{{0, 5, 3}, 0, {1, 1, 1, 1, 1, 2, 2, 2}, true},
                                 Sectioned{{2, 1, 1}, 0, {0, 0, 1, 2}, false, true, 16, 8},
                                 Sectioned{{3, 3, 2}, 1, {0, 1, 2, 0, 1, 2, 0, 1}},
                                 Sectioned{{5, 1, 2}, 1, {0, 1, 2, 0, 0, 2, 0, 0}, true},
                                 Sectioned{{2, 5, 1}, 1, {0, 1, 2, 0, 1, 0, 0, 1}, false, true},
                                 Sectioned{{2, 1, 1}, 1, {0, 1, 2, 0}, true, false, 12, 8}}) {
    SCOPED_TRACE(fmt::format("{}, {}, {}", given.sections[0], given.sections[1], given.layout));
    const Integers split = {2, 2, 3, given.width}, joined = {2, 3, 2 * given.width};
    const auto pairs = static_cast<int64_t>(given.rows.size());
    expect_same(
        {{"x", given.is_split ? split : joined}, {"c", {7, pairs}}, {"s", {7, pairs}}},
        [&](ModelBuilder& m) { sectioned_rotation(m, given); },
        [&](ModelBuilder& m) { rotation_by_masks(m, given); });
  }
}

TEST(MRotaryEmbedding, WrongNodes) {
  const auto error = [](
                         const Sectioned& given, void (*change)(NodeProto&) = [](NodeProto&) {}) {
    return error_of([&] {
      values_of({{"x", {2, 3, 32}}, {"c", {7, 8}}, {"s", {7, 8}}}, [&](ModelBuilder& m) {
        sectioned_rotation(m, given);
        change(*m.graph().mutable_node(1));
      });
    });
  };
  EXPECT_EQ(error({{4, 2, 2}, 0, {}}), "");
  EXPECT_THAT(error({{4, 2, 1}, 0, {}}), HasSubstr("three sections of 8 pairs"));
  EXPECT_THAT(error({{4, 4}, 0, {}}), HasSubstr("three sections of 8 pairs"));
  EXPECT_THAT(error({{10, -1, -1}, 0, {}}), HasSubstr("three sections of 8 pairs"));
  EXPECT_THAT(error({{4, 2, 2}, 2, {}}), HasSubstr("\"mrope_layout\" is 2"));
  EXPECT_THAT(
      error({{4, 2, 2}, 0, {}}, [](NodeProto& node) { *node.mutable_input(1) = "numbers"; }),
      HasSubstr("input 1 has not 3 axes"));
  EXPECT_THAT(error({{4, 2, 2}, 0, {}}, [](NodeProto& node) { set(node, "scale", 2.0F); }),
              HasSubstr("scaled positions"));
}

TEST(GemmaRotaryEmbedding, TakesHalvesThatAreExchanged) {
  for (const size_t output : {0, 1})
    expect_same(
        {{"angles", {2, 3, 4}},
         {"q", {2, 5, 3, 4}},
         {"qr", {2, 5, 3, 4}},
         {"k", {2, 5, 3, 4}},
         {"kr", {2, 5, 3, 4}}},
        [&](ModelBuilder& m) {
          std::vector<std::string> outputs = {"first", "second"};
          outputs[output] = "y";
          microsoft(m, "GemmaRotaryEmbedding", {"angles", "q", "qr", "k", "kr"}, outputs);
        },
        [&](ModelBuilder& m) {
          const std::string x = output == 0 ? "q" : "k";
          m.integers("axis", {1});
          m.node("Unsqueeze", {"angles", "axis"}, {"a"});
          m.node("Cos", {"a"}, {"cos"});
          m.node("Sin", {"a"}, {"sin"});
          m.node("Mul", {x, "cos"}, {"one"});
          m.node("Mul", {x + "r", "sin"}, {"other"});
          m.node("Add", {"one", "other"}, {"y"});
        });
}

}  // namespace
}  // namespace anneal
