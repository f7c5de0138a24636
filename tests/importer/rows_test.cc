// The table of operators, and pairs of models of different opsets that mean the same.
#include "anneal/importer/ops/rows.h"

#include <gmock/gmock.h>

#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal_onnx::TensorProto;
using testing::HasSubstr;

TEST(Rows, EachOpsetHasAtMostOne) {
  for (const auto rows : all_rows()) {
    for (const OpRow& row : rows) {
      EXPECT_LE(row.since, row.until) << row.name;
      EXPECT_EQ(find_row(row.domain, row.name, row.since), &row) << row.name;
      EXPECT_EQ(find_row(row.domain, row.name, row.until), &row) << row.name;
      int matches = 0;
      for (const auto others : all_rows())
        for (const OpRow& other : others)
          matches += other.name == row.name && other.domain == row.domain &&
                     other.since <= row.until && row.since <= other.until;
      EXPECT_EQ(matches, 1) << row.name << " since " << row.since;
    }
  }
  EXPECT_EQ(find_row("", "Gelu", 19), nullptr);
  EXPECT_NE(find_row("", "Gelu"), nullptr);
  EXPECT_EQ(find_row("acme", "Relu", 19), nullptr);
}

using Build = std::function<void(ModelBuilder&)>;

std::string text(int opset, const Build& build) {
  ModelBuilder model(opset);
  model.input("x", {"N", "4", "6", "6"}).output("y");
  build(model);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  verify(graph);
  return to_string(graph);
}

// The layers with their attributes, and the contents of their constants, whose names may differ.
std::string ops(int opset, const Build& build) {
  ModelBuilder model(opset);
  model.input("x", {"N", "4", "6", "6"}).output("y");
  build(model);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  std::string result;
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    result += layer.name + ": " + to_string(layer.op, graph.sizes());
    for (const ValueId input : layer.inputs) {
      const Tensor* constant = graph.constant(input);
      result += constant ? " constant " + to_string(constant->dims()) : " computed";
      if (!constant) continue;
      for (const double number : numbers_of(*constant)) result += " " + std::to_string(number);
    }
    result += "\n";
  }
  return result;
}

TEST(Rows, OpsetsThatSayTheSameInOtherWords) {
  struct Case {
    int opset_a;
    Build a;
    int opset_b;
    Build b;
  };
  const Case cases[] = {
      {6,
       [](ModelBuilder& m) {
         auto& node = m.node("Clip", {"x"}, {"y"}, "n");
         set(node, "min", 0.0F);
         set(node, "max", 6.0F);
       },
       11,
       [](ModelBuilder& m) {
         m.floats("low", {}, {0}).floats("high", {}, {6});
         m.node("Clip", {"x", "low", "high"}, {"y"}, "n");
       }},
      {11,
       [](ModelBuilder& m) {
         set(m.node("Unsqueeze", {"x"}, {"y"}, "n"), "axes", std::vector<int64_t>{1, -1});
       },
       13,
       [](ModelBuilder& m) {
         m.integers("axes", {-1, 1});
         m.node("Unsqueeze", {"x", "axes"}, {"y"}, "n");
       }},
      {17,
       [](ModelBuilder& m) {
         set(m.node("ReduceMean", {"x"}, {"y"}, "n"), "axes", std::vector<int64_t>{2, 3});
       },
       18,
       [](ModelBuilder& m) {
         m.integers("axes", {3, -2});
         m.node("ReduceMean", {"x", "axes"}, {"y"}, "n");
       }},
      {12, [](ModelBuilder& m) { m.node("ReduceSum", {"x"}, {"y"}, "n"); }, 13,
       [](ModelBuilder& m) {
         m.integers("axes", {});
         m.node("ReduceSum", {"x", "axes"}, {"y"}, "n");
       }},
      {9,
       [](ModelBuilder& m) {
         auto& node = m.node("Slice", {"x"}, {"y"}, "n");
         set(node, "starts", std::vector<int64_t>{1});
         set(node, "ends", std::vector<int64_t>{-1});
         set(node, "axes", std::vector<int64_t>{2});
       },
       13,
       [](ModelBuilder& m) {
         m.integers("n/starts", {1}).integers("n/ends", {-1}).integers("two", {-2});
         m.node("Slice", {"x", "n/starts", "n/ends", "two"}, {"y"}, "n");
       }},
      {6,
       [](ModelBuilder& m) {
         m.floats("b", {4}, {1, 2, 3, 4});
         auto& node = m.node("Add", {"x", "b"}, {"y"}, "n");
         set(node, "broadcast", int64_t{1});
         set(node, "axis", int64_t{1});
       },
       7,
       [](ModelBuilder& m) {
         m.floats("n/aligned", {4, 1, 1}, {1, 2, 3, 4});
         m.node("Add", {"x", "n/aligned"}, {"y"}, "n");
       }},
      {7,
       [](ModelBuilder& m) {
         auto* attribute = m.node("Upsample", {"x"}, {"y"}, "n").add_attribute();
         attribute->set_name("scales");
         attribute->set_type(anneal_onnx::AttributeProto::FLOATS);
         for (const float scale : {1.0F, 1.0F, 2.0F, 2.0F}) attribute->add_floats(scale);
       },
       13,
       [](ModelBuilder& m) {
         m.floats("scales", {4}, {1, 1, 2, 2});
         auto& node = m.node("Resize", {"x", "", "scales"}, {"y"}, "n");
         set(node, "coordinate_transformation_mode", "asymmetric");
         set(node, "nearest_mode", "floor");
       }},
      {6,
       [](ModelBuilder& m) {
         set(m.node("Dropout", {"x"}, {"h"}, "n"), "is_test", int64_t{1});
         m.node("Relu", {"h"}, {"y"}, "r");
       },
       13,
       [](ModelBuilder& m) {
         m.node("Dropout", {"x"}, {"h"}, "n");
         m.node("Relu", {"h"}, {"y"}, "r");
       }},
      {9,
       [](ModelBuilder& m) {
         set(m.node("TopK", {"x"}, {"y", "i"}, "n"), "k", int64_t{3});
       },
       11,
       [](ModelBuilder& m) {
         m.integers("n/k", {3});
         m.node("TopK", {"x", "n/k"}, {"y", "i"}, "n");
       }},
      {12, [](ModelBuilder& m) { set(m.node("Softmax", {"x"}, {"y"}, "n"), "axis", int64_t{3}); },
       13, [](ModelBuilder& m) { m.node("Softmax", {"x"}, {"y"}, "n"); }},
  };
  for (const Case& same : cases) {
    EXPECT_EQ(ops(same.opset_a, same.a), ops(same.opset_b, same.b));
  }
}

TEST(Rows, SoftmaxBeforeOpset13FlattensWhatFollows) {
  const auto softmax = [](ModelBuilder& m) {
    set(m.node("Softmax", {"x"}, {"y"}, "n"), "axis", int64_t{1});
  };
  EXPECT_THAT(text(12, softmax), HasSubstr("Reshape"));
  EXPECT_THAT(text(13, softmax), testing::Not(HasSubstr("Reshape")));
}

TEST(Rows, CompressGathersWhatNonZeroFinds) {
  const auto compress = [](int64_t axis) {
    return [=](ModelBuilder& m) {
      m.input("c", {"3"}, TensorProto::BOOL);
      auto& node = m.node("Compress", {"x", "c"}, {"y"}, "n");
      if (axis < 4) set(node, "axis", axis);
    };
  };
  EXPECT_THAT(text(17, compress(-1)), HasSubstr("y = Gather(x, \"n/indices\") axis=3"));
  EXPECT_THAT(text(17, compress(9)), HasSubstr("y = Gather(\"n/flat\", \"n/indices\")"));
  EXPECT_THAT(error_of([&] { text(17, compress(-5)); }), HasSubstr("axis -5 of 4 axes"));
}

// What only a run tells is computed there.
TEST(Rows, ListsKnownOnlyAtRunTime) {
  const auto of = [](const char* op, const std::vector<std::string>& inputs) {
    return text(18, [&](ModelBuilder& m) {
      m.input("list", {"1"}, TensorProto::INT64).input("scales", {"4"});
      m.integers("one", {1}).integers("pads", {1, 2});
      m.node(op, inputs, {"y"}, "n");
    });
  };
  EXPECT_THAT(of("Slice", {"x", "one", "one", "list"}), HasSubstr("Slice(x, i64{1}, i64{1}, list"));
  EXPECT_THAT(of("Resize", {"x", "", "scales"}), HasSubstr("Resize(x, _, _, scales)"));
  EXPECT_THAT(of("Squeeze", {"x", "list"}), HasSubstr("Reshape(x, \"n/shape\")"));
  EXPECT_THAT(of("Unsqueeze", {"x", "list"}), HasSubstr("Reshape(x, \"n/shape\")"));
  EXPECT_THAT(of("Pad", {"x", "pads", "", "list"}), HasSubstr("ScatterElements("));
  EXPECT_THAT(of("Split", {"x", "list"}), HasSubstr("Cumulative(list"));
}

TEST(Rows, AutoPadIsResolved) {
  const auto conv = [](const char* auto_pad, int64_t stride) {
    return [=](ModelBuilder& m) {
      m.floats("w", {1, 4, 3, 3}, std::vector<float>(36, 1));
      auto& node = m.node("Conv", {"x", "w"}, {"y"}, "n");
      set(node, "auto_pad", auto_pad);
      set(node, "strides", std::vector<int64_t>{stride, stride});
    };
  };
  EXPECT_THAT(text(17, conv("SAME_UPPER", 2)), HasSubstr("pads_begin=[0,0] pads_end=[1,1]"));
  EXPECT_THAT(text(17, conv("SAME_LOWER", 2)), HasSubstr("pads_begin=[1,1] pads_end=[0,0]"));
  EXPECT_THAT(text(17, conv("SAME_UPPER", 1)), HasSubstr("pads_begin=[1,1] pads_end=[1,1]"));
  EXPECT_THAT(text(17, conv("VALID", 1)), HasSubstr("pads_begin=[0,0] pads_end=[0,0]"));
  EXPECT_THAT(error_of([&] { text(17, conv("SAME", 1)); }), HasSubstr("\"auto_pad\" is \"SAME\""));
}

TEST(Rows, WrongNodes) {
  struct Case {
    int opset;
    const char* error;
    Build build;
  };
  const Case cases[] = {
      {12, "Clip (ai.onnx 12), once in \"n\": attribute \"min\" is not understood",
       [](ModelBuilder& m) { set(m.node("Clip", {"x"}, {"y"}, "n"), "min", 0.0F); }},
      {13, "attribute \"axes\" is not understood",
       [](ModelBuilder& m) {
         set(m.node("ReduceSum", {"x"}, {"y"}, "n"), "axes", std::vector<int64_t>{1});
       }},
      {17, "attribute \"pads\": 3 values, 4 expected",
       [](ModelBuilder& m) {
         m.floats("w", {1, 4, 1, 1}, {1, 1, 1, 1});
         set(m.node("Conv", {"x", "w"}, {"y"}, "n"), "pads", std::vector<int64_t>{1, 1, 1});
       }},
      {17, "attribute \"kernel_shape\" contradicts the weights",
       [](ModelBuilder& m) {
         m.floats("w", {1, 4, 1, 1}, {1, 1, 1, 1});
         set(m.node("Conv", {"x", "w"}, {"y"}, "n"), "kernel_shape", std::vector<int64_t>{3, 3});
       }},
      {17, "attribute \"strides\": 0",
       [](ModelBuilder& m) {
         auto& node = m.node("MaxPool", {"x"}, {"y"}, "n");
         set(node, "kernel_shape", std::vector<int64_t>{2, 2});
         set(node, "strides", std::vector<int64_t>{0, 1});
       }},
      {17, "axis 1 has 4 elements, not 1",
       [](ModelBuilder& m) {
         m.integers("axes", {1});
         m.node("Squeeze", {"x", "axes"}, {"y"}, "n");
       }},
      {17, "axis 1 is given twice",
       [](ModelBuilder& m) {
         m.integers("axes", {1, -3});
         m.node("Squeeze", {"x", "axes"}, {"y"}, "n");
       }},
      {17, "parts of 3 elements in all, of 4",
       [](ModelBuilder& m) {
         m.integers("parts", {1, 2});
         set(m.node("Split", {"x", "parts"}, {"y", "z"}, "n"), "axis", int64_t{1});
       }},
      {17, "inputs of different types: f32 and i64",
       [](ModelBuilder& m) {
         m.integers("i", {1});
         m.node("Mul", {"x", "i"}, {"y"}, "n");
       }},
      {17, "the element type float8e4m3fn",
       [](ModelBuilder& m) {
         set(m.node("Cast", {"x"}, {"y"}, "n"), "to", int64_t{TensorProto::FLOAT8E4M3FN});
       }},
      {17, "training mode: dropout is random",
       [](ModelBuilder& m) {
         m.floats("ratio", {}, {0.5F}).small_integers("t", {}, TensorProto::BOOL, {1});
         m.node("Dropout", {"x", "ratio", "t"}, {"y"}, "n");
       }},
      {17, "a diagonal \"c\" of",
       [](ModelBuilder& m) { set(m.node("Einsum", {"x"}, {"y"}, "n"), "equation", "ncch->n"); }},
      {17, "the result has the axis \"n\" twice",
       [](ModelBuilder& m) { set(m.node("Einsum", {"x"}, {"y"}, "n"), "equation", "nchw->nn"); }},
      {17, "attribute \"equation\" has too many terms",
       [](ModelBuilder& m) { set(m.node("Einsum", {"x"}, {"y"}, "n"), "equation", "nchw,w->n"); }},
      {17, "the result has an axis \"q\" that no term has",
       [](ModelBuilder& m) { set(m.node("Einsum", {"x"}, {"y"}, "n"), "equation", "nchw->nq"); }},
      {17, "term \"nch\" for an input of 4 axes",
       [](ModelBuilder& m) { set(m.node("Einsum", {"x"}, {"y"}, "n"), "equation", "nch->n"); }},
      {17, "input 1 is missing",
       [](ModelBuilder& m) {
         m.small_integers("zero", {}, TensorProto::UINT8, {0});
         m.node("DequantizeLinear", {"x", "", "zero"}, {"y"}, "n");
       }},
      {17, "input 6 is missing",
       [](ModelBuilder& m) {
         m.floats("s", {}, {1}).small_integers("q", {2, 2}, TensorProto::UINT8, {1, 2, 3, 4});
         m.node("QLinearMatMul", {"q", "s", "", "q", "s", "", "", "q"}, {"y"}, "n");
       }},
      {17, "either scales or sizes are needed",
       [](ModelBuilder& m) { m.node("Resize", {"x"}, {"y"}, "n"); }},
      {17, "2 parts for 1 outputs",
       [](ModelBuilder& m) {
         m.input("parts", {"2"}, TensorProto::INT64);
         m.node("Split", {"x", "parts"}, {"y"}, "n");
       }},
      {17, "a number of axes known only at run time",
       [](ModelBuilder& m) {
         m.input("axes", {"K"}, TensorProto::INT64);
         m.node("Unsqueeze", {"x", "axes"}, {"y"}, "n");
       }},
      {23, "6 elements in 4 heads",
       [](ModelBuilder& m) {
         m.input("q", {"N", "5", "6"});
         auto& node = m.node("Attention", {"q", "q", "q"}, {"y"}, "n");
         set(node, "q_num_heads", int64_t{4});
         set(node, "kv_num_heads", int64_t{4});
       }},
      {23, "3 heads of queries for 2 of keys",
       [](ModelBuilder& m) {
         m.input("q", {"N", "3", "5", "8"}).input("k", {"N", "2", "5", "8"});
         m.node("Attention", {"q", "k", "k"}, {"y"}, "n");
       }},
  };
  for (const Case& wrong : cases)
    EXPECT_THAT(error_of([&] { text(wrong.opset, wrong.build); }), HasSubstr(wrong.error));
}

TEST(Rows, SimplePowersAreProductsAndRoots) {
  const auto power = [](double exponent) {
    return text(13, [&](ModelBuilder& m) {
      m.floats("by", {1}, {static_cast<float>(exponent)});
      m.node("Pow", {"x", "by"}, {"y"}, "n");
    });
  };
  EXPECT_THAT(power(2), HasSubstr("\"(f32)->(f32) mul($0,$0)\""));
  EXPECT_THAT(power(3), HasSubstr("mul($0,mul($0,$0))"));
  EXPECT_THAT(power(4), HasSubstr("%0=mul($0,$0); mul(%0,%0)"));
  EXPECT_THAT(power(-1), HasSubstr("div(1f32,$0)"));
  EXPECT_THAT(power(0.5), HasSubstr("select(eq($0,-inff32),inff32,abs(sqrt($0)))"));
  EXPECT_THAT(power(2.4), HasSubstr("pow($0,"));
}

}  // namespace
}  // namespace anneal
