// A transposed convolution that leaves the GPU has a decision with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

AskTargets no_kernel_for(std::string op) {
  return [op = std::move(op)](const Graph&, const NewLayer& layer) {
    return op.find(to_string(layer.op)) != std::string::npos ? "no kernel" : std::string();
  };
}

std::string refusal(std::string_view text, const AskTargets& ask) {
  Graph graph = parse_graph(text);
  PassOptions options;
  options.only = {"split_conv_transpose"};
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
    EXPECT_THAT(refusal(each.graph, no_kernel_for("ConvTranspose")), HasSubstr(each.why))
        << each.graph;
  EXPECT_THAT(
      refusal(graph_of(x, w, "strides=[2] " + tight + same), no_kernel_for("ConvTranspose, Conv")),
      HasSubstr("stays a transposed convolution: no kernel"));
  EXPECT_THAT(refusal(graph_of(x, w, "strides=[2] " + tight + same), {}),
              HasSubstr("every target has a kernel"));
}

}  // namespace
}  // namespace anneal
