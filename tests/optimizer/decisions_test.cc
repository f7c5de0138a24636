// Decisions far behind a value, and roundings in deep models of f16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/analysis/decisions.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

constexpr int kDeep = 200;  // more values than is_decided() follows

// x goes through `kDeep` layers, then through the last one.
std::string deep_net(const std::string& dtype, const std::string& last) {
  std::string text = "graph net(x: " + dtype + "[2,3])\n";
  std::string from = "x";
  for (int i = 0; i < kDeep; ++i) {
    const std::string name = "h" + std::to_string(i);
    text += "  " + name + " = Pointwise(" + from + ") program=\"(" + dtype + ")->(" + dtype + ") " +
            (dtype == "f16" ? "round_f16(mul($0,1.01f32))" : "mul($0,1.01f32)") + "\"\n  " + name +
            "t = Transpose(" + name + ") permutation=[1,0]\n";
    from = name + "t";
  }
  return text + "  y = " + last.substr(0, last.find('$')) + from + last.substr(last.find('$') + 1) +
         "\n  return y\n";
}

TEST(Decisions, AreFoundHoweverFarTheyAre) {
  const Graph floored =
      parse_graph(deep_net("f32", "Pointwise($) program=\"(f32)->(f32) floor($0)\""));
  const Graph smooth = parse_graph(deep_net("f32", "Softmax($) axis=1"));
  for (const char* name : {"x", "h0", "h100t"}) {
    EXPECT_TRUE(DecidedValues(floored).contains(floored.find_value(name))) << name;
    EXPECT_FALSE(DecidedValues(smooth).contains(smooth.find_value(name))) << name;
  }
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Decisions, DeepModelsOfF16AreRoundedOnceWhereNothingDecides) {
  const auto roundings = [](const std::string& last) {
    Graph graph = parse_graph(deep_net("f16", last));
    run_pipeline(graph, default_pipeline(), {});
    return count_of(to_string(graph), "round_f16");
  };
  EXPECT_EQ(roundings("Softmax($) axis=1"), 1);
  EXPECT_GE(roundings("Pointwise($) program=\"(f16)->(f16) floor($0)\""), kDeep);
}

}  // namespace
}  // namespace anneal
