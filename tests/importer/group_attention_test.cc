// GroupQueryAttention: attention with past keys and values. Each form gives what several plain
// operators give.
#include <gmock/gmock.h>

#include <cmath>

#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using ::testing::HasSubstr;

NodeProto& group_attention(ModelBuilder& m, std::vector<std::string> inputs,
                           const std::vector<int>& last_positions, int total,
                           const std::vector<std::string>& outputs = {"y"}, int64_t key_heads = 2) {
  m.small_integers("last", {static_cast<int64_t>(last_positions.size())}, TensorProto::INT32,
                   last_positions);
  m.small_integers("total", {}, TensorProto::INT32, {total});
  inputs.insert(inputs.begin() + std::min<std::ptrdiff_t>(5, std::ssize(inputs)),
                {"last", "total"});
  NodeProto& node = microsoft(m, "GroupQueryAttention", inputs, outputs);
  set(node, "num_heads", int64_t{4});
  set(node, "kv_num_heads", key_heads);
  return node;
}

NodeProto& causal_attention(ModelBuilder& m, const std::vector<std::string>& inputs) {
  NodeProto& node = m.node("Attention", inputs, {"y"});
  set(node, "q_num_heads", int64_t{4});
  set(node, "kv_num_heads", int64_t{2});
  set(node, "is_causal", int64_t{1});
  return node;
}

const std::vector<FloatInput> kNew = {{"q", {1, 3, 16}}, {"k", {1, 3, 8}}, {"v", {1, 3, 8}}};
std::vector<FloatInput> with_past(int64_t length) {
  std::vector<FloatInput> inputs = kNew;
  inputs.push_back({"pk", {1, 2, length, 4}});
  inputs.push_back({"pv", {1, 2, length, 4}});
  return inputs;
}

TEST(GroupQueryAttention, APromptIsCausalAttention) {
  expect_same(
      kNew,
      [](ModelBuilder& m) {
        group_attention(m, {"q", "k", "v", "", ""}, {2}, 3);
      },
      [](ModelBuilder& m) {
        causal_attention(m, {"q", "k", "v"});
      });
}

TEST(GroupQueryAttention, QueriesComeBehindThePast) {
  const Build several = [](ModelBuilder& m) {
    causal_attention(m, {"q", "k", "v", "", "pk", "pv"});
  };
  expect_same(
      with_past(5),
      [](ModelBuilder& m) {
        group_attention(m, {"q", "k", "v", "pk", "pv"}, {7}, 8);
      },
      several);
  // A scale, a limit of the scores, and a window of 3 keys with the query's own.
  expect_same(
      with_past(5),
      [](ModelBuilder& m) {
        auto& node = group_attention(m, {"q", "k", "v", "pk", "pv"}, {7}, 8);
        set(node, "scale", 0.7F);
        set(node, "softcap", 2.0F);
        set(node, "local_window_size", int64_t{3});
      },
      [](ModelBuilder& m) {
        auto& node = causal_attention(m, {"q", "k", "v", "", "pk", "pv"});
        set(node, "scale", 0.7F);
        set(node, "softcap", 2.0F);
        set(node, "left_window_size", int64_t{2});
      });
}

// The buffer of the past has 9 places, of which 2 are in use.
TEST(GroupQueryAttention, ABufferIsFilledInPlace) {
  const Build one = [](ModelBuilder& m) {
    group_attention(m, {"q", "k", "v", "pk", "pv"}, {4}, 5);
  };
  expect_same(with_past(9), one, [](ModelBuilder& m) {
    m.integers("from", {0}).integers("to", {2}).integers("axis", {2});
    m.node("Slice", {"pk", "from", "to", "axis"}, {"used_keys"});
    m.node("Slice", {"pv", "from", "to", "axis"}, {"used_values"});
    causal_attention(m, {"q", "k", "v", "", "used_keys", "used_values"});
  });
  // The new keys, without rotation, are the rows 2 to 4 of the present ones.
  expect_same(
      with_past(9),
      [](ModelBuilder& m) {
        group_attention(m, {"q", "k", "v", "pk", "pv"}, {4}, 5, {"out", "keys", "y"});
      },
      [](ModelBuilder& m) {
        m.integers("shape", {1, 3, 2, 4}).integers("two", {2}).integers("five", {5});
        m.integers("zero", {0}).integers("nine", {9}).integers("axis", {2});
        m.node("Reshape", {"v", "shape"}, {"split"});
        set(m.node("Transpose", {"split"}, {"new"}), "perm", std::vector<int64_t>{0, 2, 1, 3});
        m.node("Slice", {"pv", "zero", "two", "axis"}, {"before"});
        m.node("Slice", {"pv", "five", "nine", "axis"}, {"behind"});
        set(m.node("Concat", {"before", "new", "behind"}, {"y"}), "axis", int64_t{2});
      });
}

TEST(GroupQueryAttention, RowsBehindTheTotalAreNotRead) {
  expect_same(
      with_past(2),
      [](ModelBuilder& m) {
        m.floats("garbage", {1, 2, 4, 4}, std::vector<float>(32, std::nanf("")));
        for (const std::string past : {"pk", "pv"})
          set(m.node("Concat", {past, "garbage"}, {past + "/buffer"}), "axis", int64_t{2});
        group_attention(m, {"q", "k", "v", "pk/buffer", "pv/buffer"}, {4}, 5);
      },
      [](ModelBuilder& m) {
        causal_attention(m, {"q", "k", "v", "", "pk", "pv"});
      });
}

TEST(GroupQueryAttention, BatchesHaveLengthsOfTheirOwn) {
  const std::vector<FloatInput> inputs = {{"q", {2, 1, 16}},
                                          {"k", {2, 1, 8}},
                                          {"v", {2, 1, 8}},
                                          {"pk", {2, 2, 5, 4}},
                                          {"pv", {2, 2, 5, 4}}};
  const auto batch = [](ModelBuilder& m, int index, int past) {
    const std::string n = std::to_string(index);
    m.integers("from" + n, {index}).integers("to" + n, {index + 1}).integers("first" + n, {0});
    m.integers("zero" + n, {0}).integers("past" + n, {past}).integers("two" + n, {2});
    for (const char* name : {"q", "k", "v"})
      m.node("Slice", {name, "from" + n, "to" + n, "first" + n}, {name + n});
    for (const char* name : {"pk", "pv"}) {
      m.node("Slice", {name, "from" + n, "to" + n, "first" + n}, {name + n + "all"});
      m.node("Slice", {name + n + "all", "zero" + n, "past" + n, "two" + n}, {name + n});
    }
    auto& node = causal_attention(m, {"q" + n, "k" + n, "v" + n, "", "pk" + n, "pv" + n});
    node.set_output(0, "y" + n);
  };
  expect_same(
      inputs,
      [](ModelBuilder& m) {
        group_attention(m, {"q", "k", "v", "pk", "pv"}, {5, 2}, 6);
      },
      [&](ModelBuilder& m) {
        batch(m, 0, 5);
        batch(m, 1, 2);
        set(m.node("Concat", {"y0", "y1"}, {"y"}), "axis", int64_t{0});
      });
}

TEST(GroupQueryAttention, RotatesQueriesAndKeysByTheirPositions) {
  std::vector<FloatInput> inputs = with_past(4);
  inputs.push_back({"cos", {9, 2}});
  inputs.push_back({"sin", {9, 2}});
  for (const int64_t interleaved : {0, 1})
    expect_same(
        inputs,
        [&](ModelBuilder& m) {
          auto& node = group_attention(m, {"q", "k", "v", "pk", "pv", "cos", "sin"}, {6}, 7);
          set(node, "do_rotary", int64_t{1});
          set(node, "rotary_interleaved", interleaved);
        },
        [&](ModelBuilder& m) {
          m.small_integers("at", {1, 3}, TensorProto::INT64, {});
          auto* tensor = m.graph().mutable_initializer(m.graph().initializer_size() - 1);
          for (const int64_t position : {4, 5, 6}) tensor->add_int64_data(position);
          for (const auto& [name, heads] :
               {std::pair{"q", int64_t{4}}, std::pair{"k", int64_t{2}}}) {
            auto& node =
                m.node("RotaryEmbedding", {name, "cos", "sin", "at"}, {std::string(name) + "r"});
            set(node, "num_heads", heads);
            set(node, "interleaved", interleaved);
          }
          causal_attention(m, {"qr", "kr", "v", "", "pk", "pv"});
        });
}

TEST(GroupQueryAttention, NormalizesHeadsBeforeItRotatesThem) {
  std::vector<FloatInput> inputs = with_past(4);
  for (const char* name : {"cos", "sin"}) inputs.push_back({name, {9, 2}});
  for (const char* name : {"qn", "kn"}) inputs.push_back({name, {4}});
  const auto normalize = [](ModelBuilder& m, const std::string& name, int64_t heads,
                            float epsilon) {
    m.integers(name + "/split", {1, 3, heads, 4}).integers(name + "/joined", {1, 3, heads * 4});
    m.node("Reshape", {name, name + "/split"}, {name + "/heads"});
    set(m.node("RMSNormalization", {name + "/heads", name + "n"}, {name + "/unit"}), "epsilon",
        epsilon);
    m.node("Reshape", {name + "/unit", name + "/joined"}, {name + "/normalized"});
  };
  const auto attention = [](ModelBuilder& m, const std::string& q, const std::string& k,
                            bool has_weights) -> NodeProto& {
    std::vector<std::string> names = {q, k, "v", "pk", "pv", "cos", "sin"};
    if (has_weights) names.insert(names.end(), {"", "", "", "", "", "qn", "kn"});
    auto& node = group_attention(m, names, {6}, 7);
    set(node, "do_rotary", int64_t{1});
    return node;
  };
  expect_same(
      inputs,
      [&](ModelBuilder& m) {
        auto& node = attention(m, "q", "k", true);
        set(node, "qk_norm_epsilon", 0.1F);
        set(node, "k_norm_epsilon", 0.01F);
      },
      [&](ModelBuilder& m) {
        normalize(m, "q", 4, 0.1F);
        normalize(m, "k", 2, 0.01F);
        attention(m, "q/normalized", "k/normalized", false);
      });
}

TEST(GroupQueryAttention, TakesPackedInputs) {
  expect_same(
      {{"x", {2, 3, 32}}},
      [](ModelBuilder& m) {
        group_attention(m, {"x", "", "", "", ""}, {2, 2}, 3);
      },
      [](ModelBuilder& m) {
        m.integers("sizes", {16, 8, 8});
        set(m.node("Split", {"x", "sizes"}, {"q", "k", "v"}), "axis", int64_t{2});
        causal_attention(m, {"q", "k", "v"});
      });
}

// A cache of 5 rows and a window of 3 drop 3 rows at once. After p positions it holds the last
// rows, at rows 0 and up; the others are anything. Each case is a call of its own.
TEST(GroupQueryAttention, AWindowedCacheHoldsTheLastRows) {
  struct Case {
    int past, news;
    std::vector<int64_t> held, present;  // positions
  };
  const Case cases[] = {{0, 2, {}, {0, 1}},
                        {4, 1, {0, 1, 2, 3}, {0, 1, 2, 3, 4}},
                        {5, 1, {0, 1, 2, 3, 4}, {3, 4, 5}},
                        {6, 1, {3, 4, 5}, {3, 4, 5, 6}},
                        {8, 1, {3, 4, 5, 6, 7}, {6, 7, 8}},
                        {7, 4, {3, 4, 5, 6}, {6, 7, 8, 9, 10}},
                        {3, 9, {0, 1, 2}, {9, 10, 11}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.past);
    const int total = c.past + c.news;
    const std::vector<FloatInput> inputs = {{"q", {1, c.news, 16}},
                                            {"k", {1, c.news, 8}},
                                            {"v", {1, c.news, 8}},
                                            {"all_keys", {1, 2, c.past, 4}},
                                            {"all_values", {1, 2, c.past, 4}},
                                            {"bias", {1, 1, c.news, total}}};
    // What the cache held is among all past positions.
    const auto cached = [&](ModelBuilder& m, const std::string& all, const std::string& name) {
      m.integers(name + "/held", c.held);
      m.integers(name + "/pads", {0, 0, 0, 0, 0, 0, 5 - std::ssize(c.held), 0});
      set(m.node("Gather", {all, name + "/held"}, {name + "/rows"}), "axis", int64_t{2});
      m.node("Pad", {name + "/rows", name + "/pads"}, {name});
    };
    const auto windowed = [&](ModelBuilder& m, const std::vector<std::string>& outputs) {
      cached(m, "all_keys", "pk");
      cached(m, "all_values", "pv");
      auto& node = group_attention(m, {"q", "k", "v", "pk", "pv", "", "", "", "bias"}, {total - 1},
                                   total, outputs);
      set(node, "local_window_size", int64_t{3});
      set(node, "sliding_window_cache", int64_t{1});
    };
    expect_same(
        inputs, [&](ModelBuilder& m) { windowed(m, {"y"}); },
        [&](ModelBuilder& m) {
          auto& node =
              m.node("Attention", {"q", "k", "v", "bias", "all_keys", "all_values"}, {"y"});
          set(node, "q_num_heads", int64_t{4});
          set(node, "kv_num_heads", int64_t{2});
          set(node, "is_causal", int64_t{1});
          set(node, "left_window_size", int64_t{2});
        });
    expect_same(
        inputs,
        [&](ModelBuilder& m) {
          windowed(m, {"out", "present", ""});
          m.integers("from", {0}).integers("to", {std::ssize(c.present)}).integers("axis", {2});
          m.node("Slice", {"present", "from", "to", "axis"}, {"y"});
        },
        [&](ModelBuilder& m) {
          m.integers("shape", {1, c.news, 2, 4}).integers("present", c.present);
          m.node("Reshape", {"k", "shape"}, {"split"});
          set(m.node("Transpose", {"split"}, {"new"}), "perm", std::vector<int64_t>{0, 2, 1, 3});
          set(m.node("Concat", {"all_keys", "new"}, {"all"}), "axis", int64_t{2});
          set(m.node("Gather", {"all", "present"}, {"y"}), "axis", int64_t{2});
        });
  }
}

TEST(GroupQueryAttention, ASinkIsOneKeyMore) {
  const auto sunk = [](bool smooth) {
    return [=](ModelBuilder& m) {
      m.floats("sink", {4}, {0.5F, -1, 2, 0});
      auto& node =
          smooth ? group_attention(m, {"q", "k", "v", "", ""}, {2}, 3)
                 : group_attention(m, {"q", "k", "v", "", "", "", "", "", "", "sink"}, {2}, 3);
      if (smooth) set(node, "smooth_softmax", int64_t{1});
    };
  };
  const auto written_out = [](std::vector<float> sinks) {
    return [=](ModelBuilder& m) {
      m.integers("heads", {1, 3, 4, 4}).integers("key_heads", {1, 3, 2, 1, 4});
      m.integers("repeats", {1, 1, 1, 2, 1}).integers("joined", {1, 3, 16});
      m.floats("scale", {}, {0.5F}).floats("sink", {1, 4, 1, 1}, sinks);
      m.floats("hidden", {3, 3}, {0, -1e30F, -1e30F, 0, 0, -1e30F, 0, 0, 0});
      m.integers("column", {1, 4, 3, 1}).integers("zero", {0}).integers("three", {3});
      const auto split = [&](const std::string& name, bool shared) {
        m.node("Reshape", {name, shared ? "key_heads" : "heads"}, {name + "1"});
        if (!shared) return m.node("Identity", {name + "1"}, {name + "2"}), void();
        m.node("Tile", {name + "1", "repeats"}, {name + "tiled"});
        m.node("Reshape", {name + "tiled", "heads"}, {name + "2"});
      };
      split("q", false), split("k", true), split("v", true);
      set(m.node("Transpose", {"q2"}, {"qt"}), "perm", std::vector<int64_t>{0, 2, 1, 3});
      set(m.node("Transpose", {"k2"}, {"kt"}), "perm", std::vector<int64_t>{0, 2, 3, 1});
      set(m.node("Transpose", {"v2"}, {"vt"}), "perm", std::vector<int64_t>{0, 2, 1, 3});
      m.node("MatMul", {"qt", "kt"}, {"raw"});
      m.node("Mul", {"raw", "scale"}, {"scaled"});
      m.node("Add", {"scaled", "hidden"}, {"scores"});
      m.node("Expand", {"sink", "column"}, {"sinks"});
      set(m.node("Concat", {"scores", "sinks"}, {"all"}), "axis", int64_t{3});
      set(m.node("Softmax", {"all"}, {"weights"}), "axis", int64_t{3});
      m.node("Slice", {"weights", "zero", "three", "three"}, {"kept"});
      m.node("MatMul", {"kept", "vt"}, {"weighed"});
      set(m.node("Transpose", {"weighed"}, {"by_position"}), "perm",
          std::vector<int64_t>{0, 2, 1, 3});
      m.node("Reshape", {"by_position", "joined"}, {"y"});
    };
  };
  expect_same(kNew, sunk(false), written_out({0.5F, -1, 2, 0}));
  expect_same(kNew, sunk(true), written_out({0, 0, 0, 0}));
}

TEST(GroupQueryAttention, AttentionThatIsNotCausalSeesAllKeys) {
  expect_same(
      kNew,
      [](ModelBuilder& m) {
        set(group_attention(m, {"q", "k", "v", "", ""}, {2}, 3), "causal", int64_t{0});
      },
      [](ModelBuilder& m) {
        auto& node = m.node("Attention", {"q", "k", "v"}, {"y"});
        set(node, "q_num_heads", int64_t{4});
        set(node, "kv_num_heads", int64_t{2});
      });
}

// The last query is padding.
TEST(GroupQueryAttention, QueriesMayBeFilledUp) {
  const Build cut = [](ModelBuilder& m) {
    m.integers("zero", {0}).integers("two", {2}).integers("axis", {1});
    m.node("Slice", {"all", "zero", "two", "axis"}, {"y"});
  };
  expect_same(
      with_past(6),
      [&](ModelBuilder& m) {
        m.small_integers("counts", {1}, TensorProto::INT32, {2});
        group_attention(m,
                        {"q", "k", "v", "pk", "pv", "", "", "", "", "", "", "", "", "", "counts"},
                        {4}, 5, {"all"});
        cut(m);
      },
      [&](ModelBuilder& m) {
        m.integers("from", {0}).integers("to", {3}).integers("second", {2});
        m.node("Slice", {"pk", "from", "to", "second"}, {"used_keys"});
        m.node("Slice", {"pv", "from", "to", "second"}, {"used_values"});
        causal_attention(m, {"q", "k", "v", "", "used_keys", "used_values"}).set_output(0, "all");
        cut(m);
      });
}

// Attention is fused only where the sizes of keys and values are the same expression.
TEST(GroupQueryAttention, KeysAndValuesHaveTheSameLengthWhereTheTotalIsAnInput) {
  ModelBuilder m(17);
  m.input("q", {"1", "S", "16"}).input("k", {"1", "S", "8"}).input("v", {"1", "S", "8"});
  m.input("pk", {"1", "2", "P", "4"}).input("pv", {"1", "2", "P", "4"});
  m.input("last", {"1"}, TensorProto::INT32).input("total", {}, TensorProto::INT32);
  for (const char* name : {"y", "keys", "values"}) m.output(name);
  NodeProto& node =
      microsoft(m, "GroupQueryAttention", {"q", "k", "v", "pk", "pv", "last", "total"},
                {"y", "keys", "values"});
  set(node, "num_heads", int64_t{4});
  set(node, "kv_num_heads", int64_t{2});
  const Graph graph = import_bytes(m.bytes(), "").graph;
  const auto rows = [&](size_t output) {
    return graph.value(graph.outputs()[output].value).type().shape[2];
  };
  EXPECT_TRUE(graph.sizes().is_integer(rows(1)));
  EXPECT_EQ(rows(1), rows(2));
}

// x / scale as integers of these bits, in floats.
std::string codes_of(ModelBuilder& m, const std::string& x, const std::string& scale, int bits) {
  const auto most = static_cast<float>((1 << (bits - 1)) - 1);
  m.floats(x + "/least", {}, {-most - 1}).floats(x + "/most", {}, {most});
  m.node("Div", {x, scale}, {x + "/quotient"});
  m.node("Round", {x + "/quotient"}, {x + "/rounded"});
  m.node("Clip", {x + "/rounded", x + "/least", x + "/most"}, {x + "/codes"});
  return x + "/codes";
}

std::string rounded(ModelBuilder& m, const std::string& x, const std::string& scale, int bits) {
  m.node("Mul", {codes_of(m, x, scale, bits), scale}, {x + "/numbers"});
  return x + "/numbers";
}

// x, [1, 2, length, 4], as a cache stores it.
std::string stored(ModelBuilder& m, const std::string& x, const std::string& scale, int bits) {
  const std::string codes = codes_of(m, x, scale, bits), cache = x + "/cache";
  const auto cast = [&](const std::string& from, int to) {
    set(m.node("Cast", {from}, {cache}), "to", int64_t{to});
  };
  if (bits == 8) {
    cast(codes, TensorProto::INT8);
    return cache;
  }
  m.floats(x + "/eight", {}, {8}).floats(x + "/sixteen", {}, {16});
  m.integers(x + "/last", {3}).integers(x + "/step", {2}).integers(x + "/end", {4});
  m.node("Add", {codes, x + "/eight"}, {x + "/digits"});
  for (const int64_t first : {0, 1}) {
    const std::string n = x + "/" + std::to_string(first);
    m.integers(n, {first});
    m.node("Slice", {x + "/digits", n, x + "/end", x + "/last", x + "/step"}, {n + "/digits"});
  }
  m.node("Mul", {x + "/1/digits", x + "/sixteen"}, {x + "/high"});
  m.node("Add", {x + "/0/digits", x + "/high"}, {x + "/bytes"});
  cast(x + "/bytes", TensorProto::UINT8);
  return cache;
}

// Numbers beyond the largest integer are clamped. Scales: of each column, or one.
TEST(GroupQueryAttention, AQuantizedCacheHoldsIntegersTimesScales) {
  for (const int bits : {8, 4})
    for (const bool is_per_column : {true, false}) {
      const float unit = bits == 8 ? 0.0075F : 0.125F;
      const auto scales = [&](ModelBuilder& m, const std::string& suffix,
                              const std::vector<int64_t>& dims) {
        std::vector<float> keys, values;
        for (int i = 0; i < (is_per_column ? 8 : 1); ++i) {
          keys.push_back(unit * static_cast<float>(1 + i % 3));
          values.push_back(unit * static_cast<float>(4 - i % 4));
        }
        m.floats("ks" + suffix, is_per_column ? dims : std::vector<int64_t>{1}, keys);
        m.floats("vs" + suffix, is_per_column ? dims : std::vector<int64_t>{1}, values);
      };
      const auto quantized = [&](ModelBuilder& m, const std::vector<std::string>& outputs) {
        scales(m, "", {8});
        scales(m, "4", {1, 2, 1, 4});
        const std::string keys = stored(m, "pk", "ks4", bits),
                          values = stored(m, "pv", "vs4", bits);
        auto& node = group_attention(
            m, {"q", "k", "v", keys, values, "", "", "", "", "", "ks", "vs"}, {7}, 8, outputs);
        for (const char* type : {"k_quant_type", "v_quant_type"})
          set(node, type, is_per_column ? "PER_CHANNEL" : "PER_TENSOR");
        set(node, "kv_cache_bit_width", int64_t{bits});
      };
      SCOPED_TRACE(testing::Message() << bits << " bits, per column: " << is_per_column);
      expect_same(
          with_past(5), [&](ModelBuilder& m) { quantized(m, {"y"}); },
          [&](ModelBuilder& m) {
            scales(m, "", {8});
            scales(m, "4", {1, 2, 1, 4});
            causal_attention(m, {"q", rounded(m, "k", "ks", bits), rounded(m, "v", "vs", bits), "",
                                 rounded(m, "pk", "ks4", bits), rounded(m, "pv", "vs4", bits)});
          });
      // The present values, as the next call reads them.
      expect_same(
          with_past(5),
          [&](ModelBuilder& m) {
            quantized(m, {"out", "keys", "y"});
          },
          [&](ModelBuilder& m) {
            scales(m, "4", {1, 2, 1, 4});
            m.integers("shape", {1, 3, 2, 4});
            m.node("Reshape", {"v", "shape"}, {"split"});
            set(m.node("Transpose", {"split"}, {"new"}), "perm", std::vector<int64_t>{0, 2, 1, 3});
            set(m.node("Concat", {"pv", "new"}, {"all"}), "axis", int64_t{2});
            m.node("Identity", {stored(m, "all", "vs4", bits)}, {"y"});
          });
    }
}

TEST(GroupQueryAttention, QuantizedCachesThatAreNotTaken) {
  const auto error = [&](int bits, const char* values_type, int64_t count,
                         const std::string& scale = "s") {
    return error_of([&] {
      values_of(with_past(5), [&](ModelBuilder& m) {
        m.floats("s", {count}, std::vector<float>(static_cast<size_t>(count), 1));
        auto& node = group_attention(m,
                                     {"q", "k", "v", stored(m, "pk", "s", 8),
                                      stored(m, "pv", "s", 8), "", "", "", "", "", "s", scale},
                                     {7}, 8);
        set(node, "k_quant_type", "PER_TENSOR");
        set(node, "v_quant_type", values_type);
        set(node, "kv_cache_bit_width", int64_t{bits});
      });
    });
  };
  EXPECT_THAT(error(2, "PER_TENSOR", 1), HasSubstr("a cache of 2 bits"));
  EXPECT_THAT(error(4, "PER_TENSOR", 1), HasSubstr("i8"));
  EXPECT_THAT(error_of([] {
                values_of(with_past(5), [](ModelBuilder& m) {
                  m.floats("s", {}, {1});
                  m.small_integers("half", {1, 2, 5, 2}, TensorProto::INT8, std::vector<int>(20));
                  auto& node = group_attention(
                      m, {"q", "k", "v", "half", "half", "", "", "", "", "", "s", "s"}, {7}, 8);
                  set(node, "k_quant_type", "PER_TENSOR");
                  set(node, "v_quant_type", "PER_TENSOR");
                });
              }),
              HasSubstr("past keys whose rows are not 4 bytes"));
  EXPECT_THAT(error(8, "NONE", 1), HasSubstr("k_quant_type or v_quant_type is NONE"));
  EXPECT_THAT(error(8, "PER_TENSOR", 4), HasSubstr("nor one for each of 2 x 4 columns"));
  EXPECT_THAT(error(8, "PER_TENSOR", 1, ""), HasSubstr("without the scale of the values"));
}

TEST(GroupQueryAttention, FormsThatAreNotTaken) {
  const auto error = [&](const Build& build) { return error_of([&] { values_of(kNew, build); }); };
  EXPECT_THAT(error([](ModelBuilder& m) {
                set(group_attention(m, {"q", "k", "v", "", ""}, {2}, 3), "qk_output", int64_t{1});
              }),
              HasSubstr("qk_output"));
  const auto normalized = [](std::vector<float> of_queries, const std::string& of_keys) -> Build {
    return [=](ModelBuilder& m) {
      m.floats("qn", {static_cast<int64_t>(of_queries.size())}, of_queries);
      group_attention(m, {"q", "k", "v", "", "", "", "", "", "", "", "", "", "qn", of_keys}, {2},
                      3);
    };
  };
  EXPECT_THAT(error(normalized({1, 1, 1, 1}, "")), HasSubstr("q_norm_weight without"));
  EXPECT_THAT(error(normalized({1, 1, 1}, "qn")), HasSubstr("normalize queries"));
  EXPECT_THAT(error([](ModelBuilder& m) {
                set(group_attention(m, {"q", "k", "v", "", ""}, {2}, 3), "do_rotary", int64_t{1});
              }),
              HasSubstr("do_rotary without cos_cache and sin_cache"));
  EXPECT_THAT(error([](ModelBuilder& m) {
                group_attention(m, {"q", "k", "v", "", ""}, {2}, 3, {"y"}, 3);
              }),
              HasSubstr("4 heads of queries for 3 of keys"));
}

}  // namespace
}  // namespace anneal
