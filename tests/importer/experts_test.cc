// MoE and QMoE: mixtures of experts, which give what products by all experts give.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "anneal/tests/importer/same_results.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;
using anneal_onnx::TensorProto;
using ::testing::HasSubstr;

constexpr int64_t kExperts = 4, kWidth = 6, kInner = 4, kBest = 2;

struct Form {
  const char* activation;
  int64_t fusion = 0;  // of swiglu
  bool normalizes = true, has_limit = false;
  bool is_gated() const { return std::string_view(activation) == "swiglu"; }
  bool has_third() const { return is_gated() && fusion == 0; }
  int64_t rows() const { return is_gated() && fusion > 0 ? 2 * kInner : kInner; }
};

// Numbers between -1 and 1.
void add_numbers(ModelBuilder& m, const std::string& name, const std::vector<int64_t>& dims) {
  std::vector<float> values;
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(
        static_cast<float>((i * 37 + static_cast<int64_t>(name.size()) * 11) % 41 - 20) / 20);
  m.floats(name, dims, values);
}

void add_weights(ModelBuilder& m, const Form& form) {
  add_numbers(m, "w1", {kExperts, form.rows(), kWidth});
  add_numbers(m, "bias1", {kExperts, form.rows()});
  add_numbers(m, "weights2", {kExperts, kWidth, kInner});
  add_numbers(m, "b2", {kExperts, kWidth});
  if (form.has_third()) add_numbers(m, "weight3", {kExperts, kInner, kWidth});
}

NodeProto& configured(NodeProto& node, const Form& form) {
  set(node, "k", kBest);
  set(node, "activation_type", form.activation);
  set(node, "normalize_routing_weights", int64_t{form.normalizes});
  if (!form.is_gated()) return node;
  set(node, "swiglu_fusion", form.fusion);
  set(node, "activation_alpha", 1.5F);
  set(node, "activation_beta", 0.25F);
  if (form.has_limit) set(node, "swiglu_limit", 0.5F);
  return node;
}

// A row of a tensor of `rank` axes.
std::string expert_of(ModelBuilder& m, const std::string& tensor, int64_t expert) {
  const std::string name = fmt::format("{}/{}", tensor, expert);
  m.integers(name + "/i", {expert}).integers(name + "/axis", {0});
  m.node("Gather", {tensor, name + "/i"}, {name + "/row"});
  m.node("Squeeze", {name + "/row", name + "/axis"}, {name});
  return name;
}

std::string product(ModelBuilder& m, const std::string& x, const std::string& w,
                    const std::string& bias) {
  const std::string name = x + "*" + w;
  set(m.node("Gemm",
             bias.empty() ? std::vector<std::string>{x, w} : std::vector<std::string>{x, w, bias},
             {name}),
      "transB", int64_t{1});
  return name;
}

std::string columns(ModelBuilder& m, const std::string& x, int64_t begin, int64_t end,
                    int64_t step) {
  const std::string name = fmt::format("{}[{}]", x, begin);
  m.integers(name + "/b", {begin})
      .integers(name + "/e", {end})
      .integers(name + "/a", {1})
      .integers(name + "/s", {step});
  m.node("Slice", {x, name + "/b", name + "/e", name + "/a", name + "/s"}, {name});
  return name;
}

std::string hidden(ModelBuilder& m, const Form& form, int64_t expert) {
  const std::string h = product(m, "x", expert_of(m, "w1", expert), expert_of(m, "bias1", expert));
  const std::string name = fmt::format("hidden{}", expert);
  const std::string_view activation = form.activation;
  if (activation == "identity") return h;
  if (activation == "relu") m.node("Relu", {h}, {name});
  if (activation == "gelu") set(m.node("Gelu", {h}, {name}), "approximate", "tanh");
  if (activation == "silu") set(m.node("Swish", {h}, {name}), "alpha", 1.0F);
  if (!form.is_gated()) return name;
  std::string gate = h, linear;
  if (form.fusion == 0) linear = product(m, "x", expert_of(m, "weight3", expert), "");
  if (form.fusion == 1)
    gate = columns(m, h, 0, 2 * kInner, 2), linear = columns(m, h, 1, 2 * kInner, 2);
  if (form.fusion == 2)
    gate = columns(m, h, 0, kInner, 1), linear = columns(m, h, kInner, 2 * kInner, 1);
  if (form.has_limit) {
    m.node("Min", {gate, "limit"}, {gate + "/limited"});
    m.node("Clip", {linear, "low", "limit"}, {linear + "/limited"});
    gate += "/limited", linear += "/limited";
  }
  set(m.node("Swish", {gate}, {gate + "/swish"}), "alpha", 1.5F);
  m.node("Add", {linear, "beta"}, {linear + "/moved"});
  m.node("Mul", {gate + "/swish", linear + "/moved"}, {name});
  return name;
}

// Every expert computes every token; the router's weights are 0 but for the best.
void all_experts(ModelBuilder& m, const Form& form) {
  m.integers("k", {kBest})
      .integers("axis", {1})
      .floats("zero", {}, {0})
      .floats("beta", {}, {0.25F});
  m.floats("limit", {}, {0.5F}).floats("low", {}, {-0.5F});
  set(m.node("Softmax", {"router"}, {"shares"}), "axis", int64_t{1});
  set(m.node("TopK", {"shares", "k"}, {"best", "which"}), "axis", int64_t{1});
  m.node("ReduceSum", {"best", "axis"}, {"sum"});
  m.node("Div", {"best", "sum"}, {"normalized"});
  m.node("Mul", {"router", "zero"}, {"none"});
  set(m.node("ScatterElements", {"none", "which", form.normalizes ? "normalized" : "best"},
             {"routing"}),
      "axis", int64_t{1});
  std::string sum;
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    const std::string y = product(m, hidden(m, form, expert), expert_of(m, "weights2", expert),
                                  expert_of(m, "b2", expert));
    const std::string weights = columns(m, "routing", expert, expert + 1, 1),
                      weighted = fmt::format("weighted{}", expert);
    m.node("Mul", {y, weights}, {weighted});
    const std::string next = expert + 1 == kExperts ? "y" : fmt::format("sum{}", expert);
    if (expert == 0)
      m.node("Identity", {weighted}, {next});
    else
      m.node("Add", {sum, weighted}, {next});
    sum = next;
  }
}

TEST(MoE, IsTheSumOfTheBestExperts) {
  // More tokens than experts, and one: some experts have none.
  for (const int64_t tokens : {7, 1})
    for (const Form& form :
         {Form{"relu"}, Form{"silu", 0, false}, Form{"gelu"}, Form{"identity"}, Form{"swiglu", 0},
          Form{"swiglu", 1, true, true}, Form{"swiglu", 2, false, true}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", form.activation, form.fusion, tokens));
      expect_same(
          {{"x", {tokens, kWidth}}, {"router", {tokens, kExperts}}},
          [&](ModelBuilder& m) {
            add_weights(m, form);
            std::vector<std::string> inputs = {"x", "router", "w1", "bias1", "weights2", "b2"};
            if (form.has_third()) inputs.push_back("weight3");
            configured(microsoft(m, "MoE", inputs), form);
          },
          [&](ModelBuilder& m) {
            add_weights(m, form);
            all_experts(m, form);
          });
    }
}

TEST(MoE, TokensOfBatchesAreOneList) {
  const Form form{"relu"};
  const auto network = [&](bool in_batches) {
    return [=](ModelBuilder& m) {
      add_weights(m, form);
      m.integers("list", {6, kWidth}).integers("batches", {2, 3, kWidth});
      if (!in_batches) m.node("Reshape", {"x", "list"}, {"tokens"});
      configured(microsoft(m, "MoE", {in_batches ? "x" : "tokens", "router", "w1", "", "weights2"},
                           {in_batches ? "y" : "list_y"}),
                 form);
      if (!in_batches) m.node("Reshape", {"list_y", "batches"}, {"y"});
    };
  };
  expect_same({{"x", {2, 3, kWidth}}, {"router", {6, kExperts}}}, network(true), network(false));
}

// Weights of one code for each number, as QMoE packs them, and as MoE has them.
struct Codes {
  std::vector<int> bytes, zero_bytes;
  std::vector<float> scales, weights;
};

int64_t bytes_of(int64_t numbers, int64_t bits) { return (numbers * bits + 7) / 8; }
int code_at(const std::vector<int>& bytes, int64_t row, int64_t row_bytes, int64_t i,
            int64_t bits) {
  return bytes[static_cast<size_t>(row * row_bytes + i * bits / 8)] >> (i * bits % 8) &
         ((1 << bits) - 1);
}

// rows of all experts; block 0: one scale for each row, whose zero points share bytes.
Codes codes_of(int64_t rows_of_expert, int64_t inner, int64_t bits, int64_t block, bool has_zeros,
               int seed) {
  Codes codes;
  const int64_t rows = kExperts * rows_of_expert, row_bytes = bytes_of(inner, bits);
  const int64_t blocks = block > 0 ? inner / block : 1;
  const int64_t zero_rows = block > 0 ? rows : kExperts,
                zero_columns = block > 0 ? blocks : rows_of_expert;
  for (int64_t i = 0; i < rows * row_bytes; ++i)
    codes.bytes.push_back(static_cast<int>(i * 73 + seed) % 256);
  for (int64_t i = 0; i < zero_rows * bytes_of(zero_columns, bits); ++i)
    codes.zero_bytes.push_back(static_cast<int>(i * 91 + seed) % 256);
  for (int64_t i = 0; i < rows * blocks; ++i)
    codes.scales.push_back(0.01F * static_cast<float>(i % 7 + 1));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t k = 0; k < inner; ++k) {
      const int64_t b = block > 0 ? k / block : 0;
      int zero = 1 << (bits - 1);
      if (has_zeros && block > 0)
        zero = code_at(codes.zero_bytes, row, bytes_of(blocks, bits), b, bits);
      if (has_zeros && block == 0)
        zero = code_at(codes.zero_bytes, row / rows_of_expert, bytes_of(rows_of_expert, bits),
                       row % rows_of_expert, bits);
      codes.weights.push_back(
          static_cast<float>(code_at(codes.bytes, row, row_bytes, k, bits) - zero) *
          codes.scales[static_cast<size_t>(row * blocks + b)]);
    }
  return codes;
}

TEST(QMoE, WeightsAreCodes) {
  constexpr int64_t kWide = 32, kHidden = 16;
  struct Case {
    int64_t bits, block;
    bool has_zeros;
  };
  for (const Case& c : {Case{4, 16, false}, Case{4, 16, true}, Case{8, 16, true}, Case{4, 0, false},
                        Case{4, 0, true}, Case{2, 16, true}, Case{8, 0, false}}) {
    SCOPED_TRACE(fmt::format("{} bits, blocks of {}", c.bits, c.block));
    const Codes first = codes_of(kHidden, kWide, c.bits, c.block, c.has_zeros, 5);
    const Codes second = codes_of(kWide, kHidden, c.bits, c.block, c.has_zeros, 40);
    const auto quantized = [&](ModelBuilder& m, const std::string& name, const Codes& codes,
                               int64_t rows, int64_t inner) {
      const bool has_blocks = c.block > 0;
      const int64_t blocks = has_blocks ? inner / c.block : 1;
      m.small_integers(name, {kExperts, rows, bytes_of(inner, c.bits)}, TensorProto::UINT8,
                       codes.bytes);
      std::vector<int64_t> dims = {kExperts, rows};
      if (has_blocks) dims.push_back(blocks);
      m.floats(name + "/scales", dims, codes.scales);
      if (has_blocks)
        dims.back() = bytes_of(blocks, c.bits);
      else
        dims.back() = bytes_of(rows, c.bits);
      m.small_integers(name + "/zeros", dims, TensorProto::UINT8, codes.zero_bytes);
    };
    expect_same(
        {{"x", {5, kWide}}, {"router", {5, kExperts}}},
        [&](ModelBuilder& m) {
          quantized(m, "w1", first, kHidden, kWide);
          quantized(m, "w2", second, kWide, kHidden);
          add_numbers(m, "b1", {kExperts, kHidden});
          std::vector<std::string> inputs = {"x",  "router", "w1",        "w1/scales",
                                             "b1", "w2",     "w2/scales", ""};
          if (c.has_zeros) inputs.insert(inputs.end(), {"", "", "", "w1/zeros", "w2/zeros"});
          auto& node = microsoft(m, "QMoE", inputs);
          set(node, "k", kBest);
          set(node, "activation_type", "silu");
          set(node, "expert_weight_bits", c.bits);
          if (c.block > 0) set(node, "block_size", c.block);
        },
        [&](ModelBuilder& m) {
          m.floats("w1", {kExperts, kHidden, kWide}, first.weights)
              .floats("w2", {kExperts, kWide, kHidden}, second.weights);
          add_numbers(m, "b1", {kExperts, kHidden});
          auto& node = microsoft(m, "MoE", {"x", "router", "w1", "b1", "w2"});
          set(node, "k", kBest);
          set(node, "activation_type", "silu");
        });
  }
}

TEST(MoE, FormsThatAreNotTaken) {
  const auto error = [](const char* op, const std::function<void(NodeProto&)>& change) {
    return error_of([&] {
      values_of({{"x", {2, kWidth}}, {"router", {2, kExperts}}}, [&](ModelBuilder& m) {
        add_weights(m, {"relu"});
        const bool is_plain = std::string_view(op) == "MoE";
        auto& node = microsoft(
            m, op,
            is_plain ? std::vector<std::string>{"x", "router", "w1", "", "weights2"}
                     : std::vector<std::string>{"x", "router", "w1", "w1", "", "weights2", "w1"});
        set(node, "k", kBest);
        change(node);
      });
    });
  };
  const auto with = [](const char* name, auto value) {
    return [=](NodeProto& node) { set(node, name, value); };
  };
  EXPECT_EQ(error("MoE", [](NodeProto&) {}), "");
  EXPECT_THAT(error("MoE", with("use_sparse_mixer", int64_t{1})), HasSubstr("use_sparse_mixer"));
  EXPECT_THAT(error("MoE", with("activation_type", "swiglu")), HasSubstr("fc3_experts_weights"));
  EXPECT_THAT(error("MoE", [](NodeProto& node) { node.mutable_attribute(0)->set_i(5); }),
              HasSubstr("k = 5 of 4 experts"));
  // Inputs of other shapes and types.
  const auto instead = [](int input, const char* name) {
    return [=](NodeProto& node) { node.set_input(input, name); };
  };
  EXPECT_THAT(error("MoE", instead(2, "weights2")), HasSubstr("fc1_experts_weights of [4,6,4]"));
  EXPECT_THAT(error("MoE", instead(4, "w1")), HasSubstr("of [4,4,6]"));
  EXPECT_THAT(error("MoE", instead(3, "b2")), HasSubstr("biases of fc1_experts_weights"));
  EXPECT_EQ(error("MoE", instead(3, "bias1")), "");
  EXPECT_THAT(error("QMoE", [](NodeProto&) {}), HasSubstr("fc1_experts_weights"));
  EXPECT_THAT(error_of([] {
                values_of({{"x", {2, 0}}, {"router", {2, kExperts}}}, [](ModelBuilder& m) {
                  m.floats("none", {kExperts, 0, 0}, {});
                  set(microsoft(m, "MoE", {"x", "router", "none", "", "none"}), "k", kBest);
                });
              }),
              HasSubstr("fc2_experts_weights without elements"));
  EXPECT_THAT(error_of([] {
                values_of({{"x", {1, 1}}, {"router", {1, 5000}}}, [](ModelBuilder& m) {
                  m.floats("w", {5000, 1, 1}, std::vector<float>(5000));
                  set(microsoft(m, "MoE", {"x", "router", "w", "", "w"}), "k", kBest);
                });
              }),
              HasSubstr("5000 experts"));
  EXPECT_THAT(error("QMoE", with("quant_type", "fp4")), HasSubstr("quant_type \"fp4\""));
  EXPECT_THAT(error("QMoE", with("expert_weight_bits", int64_t{3})),
              HasSubstr("weights of 3 bits"));
  EXPECT_THAT(error("QMoE", with("weights_prepacked", int64_t{1})), HasSubstr("weights_prepacked"));
}

// Of each token: the k best of the experts of the `open` best groups, by share and bias.
std::vector<double> routed(const std::vector<float>& logits, const std::vector<float>& bias,
                           size_t groups, size_t open, size_t summed, size_t k) {
  const size_t experts = bias.size(), size = experts / groups;
  const auto best = [](const std::vector<double>& values, size_t count) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
    order.resize(count);
    return order;
  };
  std::vector<double> result;
  for (size_t token = 0; token < logits.size() / experts; ++token) {
    std::vector<double> shares, scores, sums, seen(experts, -1e9), row(experts, -5);
    for (size_t e = 0; e < experts; ++e) {
      shares.push_back(1 / (1 + std::exp(-double{logits[token * experts + e]})));
      scores.push_back(shares[e] + double{bias[e]});
    }
    for (size_t g = 0; g < groups; ++g) {
      const std::vector<double> own(scores.begin() + static_cast<ptrdiff_t>(g * size),
                                    scores.begin() + static_cast<ptrdiff_t>((g + 1) * size));
      sums.push_back(0);
      for (const size_t e : best(own, std::min(summed, size))) sums.back() += own[e];
    }
    for (const size_t g : best(sums, open))
      for (size_t e = g * size; e < (g + 1) * size; ++e) seen[e] = scores[e];
    for (const size_t e : best(seen, k)) row[e] = std::log(shares[e]);
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

TEST(MoEGroupRouter, ChoosesFromTheBestGroups) {
  struct Case {
    int64_t groups, open, summed, k;
  };
  std::vector<float> logits, bias;
  for (int i = 0; i < 72; ++i) logits.push_back(static_cast<float>(3 * std::sin(i * i)));
  for (int i = 0; i < 12; ++i) bias.push_back(static_cast<float>(0.4 * std::cos(5 * i)));
  for (const Case& c : {Case{1, 1, 2, 3}, Case{4, 2, 2, 3}, Case{4, 2, 1, 6}, Case{3, 1, 9, 2}}) {
    const auto got = values_of({{"unused", {1}}}, [&](ModelBuilder& m) {
      m.floats("logits", {2, 3, 12}, logits).floats("bias", {12}, bias);
      auto& node = microsoft(m, "MoEGroupRouter", {"logits", "bias"});
      set(node, "n_group", c.groups);
      set(node, "topk_group", c.open);
      set(node, "group_topk", c.summed);
      set(node, "top_k", c.k);
      set(node, "router_sentinel", -5.0F);
    });
    const auto size = [](int64_t number) { return static_cast<size_t>(number); };
    const auto want = routed(logits, bias, size(c.groups), size(c.open), size(c.summed), size(c.k));
    EXPECT_THAT(got, testing::Pointwise(testing::DoubleNear(1e-5), want)) << c.groups << c.k;
  }
}

TEST(MoEGroupRouter, GivesScoresAndShares) {
  for (const bool is_score : {true, false})
    expect_same(
        {{"x", {5, 6}}, {"bias", {6}}},
        [&](ModelBuilder& m) {
          const std::string first = is_score ? "y" : "scores", second = is_score ? "shares" : "y";
          set(microsoft(m, "MoEGroupRouter", {"x", "bias"}, {"", first, second}), "top_k",
              int64_t{2});
        },
        [&](ModelBuilder& m) {
          m.node("Sigmoid", {"x"}, {is_score ? "s" : "y"});
          if (is_score) m.node("Add", {"s", "bias"}, {"y"});
        });
  EXPECT_THAT(error_of([] {
                values_of({{"x", {5, 6}}, {"bias", {6}}}, [](ModelBuilder& m) {
                  auto& node = microsoft(m, "MoEGroupRouter", {"x", "bias"});
                  set(node, "top_k", int64_t{3});
                  set(node, "n_group", int64_t{3});
                });
              }),
              testing::HasSubstr("3 of 6 experts, from 1 of 3 groups"));
  for (const std::vector<int64_t>& bias : {std::vector<int64_t>{1}, std::vector<int64_t>{1, 6}})
    EXPECT_THAT(error_of([&] {
                  values_of({{"x", {5, 6}}, {"bias", bias}}, [](ModelBuilder& m) {
                    set(microsoft(m, "MoEGroupRouter", {"x", "bias"}), "top_k", int64_t{2});
                  });
                }),
                testing::HasSubstr("expert_bias has not one number for each expert"));
}

}  // namespace
}  // namespace anneal
