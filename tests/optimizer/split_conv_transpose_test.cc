// A transposed convolution that leaves the GPU has a decision with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

AskTargets no_kernel_for(std::vector<std::string> ops) {
  return [ops = std::move(ops)](const Graph&, const NewLayer& layer) {
    const bool is_one = std::ranges::find(ops, to_string(layer.op)) != ops.end();
    return is_one ? "no kernel" : std::string();
  };
}

std::string refusal(std::string_view text, const AskTargets& ask,
                    const std::string& pass = "split_conv_transpose", uint64_t max_memory = 0) {
  Graph graph = parse_graph(text);
  PassOptions options;
  options.only = {pass};
  options.max_memory = max_memory;
  options.precision.types = {Precision::kF16};
  options.ask_targets = ask;
  for (const PassRecord& record : run_pipeline(graph, default_pipeline(), options))
    if (record.subject == "y" && record.refused) return record.text;
  return "";
}

std::string graph_of(const std::string& inputs, const std::string& weights,
                     const std::string& attributes, const std::string& operands = "x, w") {
  return "graph g(" + inputs + ")\n" + weights + "  y = ConvTranspose(" + operands + ") " +
         attributes + "\n  return y\n";
}

struct Refused {
  std::string graph, why;
};

TEST(SplitConvTranspose, EachRefusalIsRecorded) {
  const std::string x = "x: f32[1,4,3]", w = "  const w: f32[4,2,2] = random(1)\n";
  const std::string same = " dilations=[1] output_padding=[0]",
                    tight = "pads_begin=[0] pads_end=[0]";
  const std::vector<Refused> cases = {
      {graph_of(x + ", w: f32[4,2,2]", "", "strides=[2] " + tight + same), "not constant"},
      {graph_of(x, w, "strides=[2] " + tight + same + " groups=2"), "has groups"},
      {graph_of(x, w, "strides=[2] " + tight + " dilations=[2] output_padding=[0]"), "dilations"},
      {graph_of(x, w, "strides=[2] pads_begin=[1] pads_end=[0]" + same), "has pads"},
      {graph_of(x, w, "strides=[2] " + tight + " dilations=[1] output_padding=[1]"),
       "output padding"},
      {graph_of(x, w, "strides=[3] " + tight + same), "kernel is not as large as its strides"},
      {graph_of(
           "x: f16[1,4,3], r: f16[1,2,6]", "  const w: f16[4,2,2] = random(1)\n",
           "strides=[2] " + tight + same + " epilogue=\"(f32,f16)->(f16) round_f16(add($0,$1))\"",
           "x, w; r"),
       "before they are rounded"},
  };
  for (const Refused& each : cases)
    EXPECT_THAT(refusal(each.graph, no_kernel_for({"ConvTranspose"})), HasSubstr(each.why))
        << each.graph;
  EXPECT_THAT(refusal(graph_of(x, w, "strides=[2] " + tight + same),
                      no_kernel_for({"ConvTranspose", "Conv"})),
              HasSubstr("stays a transposed convolution: no kernel"));
  EXPECT_THAT(refusal(graph_of(x, w, "strides=[2] " + tight + same), {}),
              HasSubstr("every target has a kernel"));
}

TEST(ConvTransposeToPhases, EachRefusalIsRecorded) {
  const std::string x = "x: f32[1,8,1]", w = "  const w: f32[8,3,4] = random(1)\n",
                    same = " dilations=[1] output_padding=[0]",
                    tight = " pads_begin=[0] pads_end=[0]", pass = "conv_transpose_to_phases";
  const std::vector<Refused> cases = {
      {graph_of(x + ", w: f32[8,3,4]", "", "strides=[2]" + tight + same), "not constant"},
      {graph_of(x, w, "strides=[2]" + tight + same + " groups=2"), "has groups"},
      {graph_of(x, w, "strides=[2]" + tight + " dilations=[2] output_padding=[0]"), "dilations"},
      {graph_of(x, w, "strides=[2]" + tight + " dilations=[1] output_padding=[1]"),
       "its outputs reach beyond its last window"},
      {graph_of(x, w, "strides=[9223372036854775807]" + tight + same),
       "more than twice its kernel"},
      {graph_of(x, w, "strides=[4294967296]" + tight + same), "more than twice its kernel"},
      {graph_of("x: f32[1,7,3]", "  const w: f32[7,3,4] = random(1)\n",
                "strides=[2]" + tight + same),
       "its input has 7 channels"},
      {graph_of(x, "  const w: f32[8,3,1] = random(1)\n", "strides=[3]" + tight + same),
       "needs 3.0 times the multiplications"},
      {graph_of(
           "x: f16[1,8,3], r: f16[1,3,8]", "  const w: f16[8,3,4] = random(1)\n",
           "strides=[2]" + tight + same + " epilogue=\"(f32,f16)->(f16) round_f16(add($0,$1))\"",
           "x, w; r"),
       "before they are rounded"},
  };
  for (const Refused& each : cases)
    EXPECT_THAT(refusal(each.graph, no_kernel_for({"ConvTranspose"}), pass), HasSubstr(each.why))
        << each.graph;
  const std::string good = graph_of(x, w, "strides=[2]" + tight + same);
  EXPECT_EQ(refusal(good, no_kernel_for({"ConvTranspose"}), pass), "");
  EXPECT_THAT(refusal(good, no_kernel_for({"ConvTranspose", "Conv"}), pass),
              HasSubstr("no kernel"));
  EXPECT_THAT(refusal(good, no_kernel_for({"ConvTranspose"}), pass, 100),
              HasSubstr("larger than the memory limit"));
}

}  // namespace
}  // namespace anneal
