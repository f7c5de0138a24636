// Sizes that a model leaves open, where an operator's form depends on them: the same numbers as
// with the sizes known.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal_onnx::TensorProto;
using testing::HasSubstr;
using Build = std::function<void(ModelBuilder&)>;

// Elements 1, 2, 3...
Tensor counted(const Dims& dims, DataType dtype) {
  std::vector<double> numbers(static_cast<size_t>(count(dims)));
  std::iota(numbers.begin(), numbers.end(), 1);
  return tensor_of(dtype, dims, numbers);
}

Tensor result_of(const std::vector<std::string>& dims, const Tensor& x, const Build& build) {
  ModelBuilder model;
  model.input("x", dims, x.dtype() == DataType::kU8 ? TensorProto::UINT8 : TensorProto::FLOAT);
  model.output("y");
  build(model);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  verify(graph);
  return evaluate(graph, {{x}})[0];
}

void expect_same_for(const Dims& dims, const Build& build, DataType dtype = DataType::kF32) {
  const Tensor x = counted(dims, dtype);
  std::vector<std::string> known, open;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    known.push_back(std::to_string(dims[axis]));
    open.push_back(axis == 1 ? known.back() : "D" + std::to_string(axis));
  }
  const Tensor got = result_of(open, x, build), want = result_of(known, x, build);
  ASSERT_EQ(type_of(got), type_of(want)) << to_string(dims);
  const auto numbers = numbers_of(got), expected = numbers_of(want);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(numbers[i], expected[i], 1e-5 * std::abs(expected[i])) << to_string(dims) << i;
}

TEST(OpenSizes, AutoPadWithAStride) {
  for (const char* const op : {"Conv", "MaxPool", "AveragePool", "LpPool"})
    for (const char* const auto_pad : {"SAME_UPPER", "SAME_LOWER"})
      for (const int64_t stride : {2, 3})
        for (const int64_t kernel : {2, 3}) {
          SCOPED_TRACE(std::string(op) + " " + auto_pad + " " + std::to_string(stride) + " " +
                       std::to_string(kernel));
          const auto build = [&](ModelBuilder& m) {
            const auto taps = static_cast<size_t>(kernel * kernel);
            std::vector<float> weights(2 * taps);
            std::iota(weights.begin(), weights.end(), -1.0F);
            m.floats("w", {1, 2, kernel, kernel}, weights);
            auto& node = op == std::string("Conv") ? m.node(op, {"x", "w"}, {"y"})
                                                   : m.node(op, {"x"}, {"y"});
            set(node, "kernel_shape", std::vector<int64_t>{kernel, kernel});
            set(node, "auto_pad", auto_pad);
            set(node, "strides", std::vector<int64_t>{stride, 1});
          };
          for (const int64_t size : {1, 4, 5, 6, 7}) expect_same_for({2, 2, size, 5}, build);
        }
}

TEST(OpenSizes, OutputShapeOfATransposedConvolution) {
  for (const char* const auto_pad : {"NOTSET", "SAME_UPPER", "SAME_LOWER"})
    for (const int64_t wanted : {5, 6, 9, 12})
      for (const int64_t stride : {1, 2, 3}) {
        const auto build = [&](ModelBuilder& m) {
          m.floats("w", {2, 1, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
              .floats("b", {1}, {3});
          auto& node = m.node("ConvTranspose", {"x", "w", "b"}, {"y"});
          set(node, "auto_pad", auto_pad);
          set(node, "strides", std::vector<int64_t>{stride, 2});
          set(node, "output_shape", std::vector<int64_t>{wanted, 7});
        };
        for (const int64_t size : {2, 3, 5}) expect_same_for({2, 2, size, 4}, build);
      }
}

TEST(OpenSizes, PaddingOfIntegersIsTheirZeroPoint) {
  const auto build = [](ModelBuilder& m) {
    m.small_integers("w", {1, 1, 3, 3}, TensorProto::INT8, std::vector<int>(9, 1));
    m.small_integers("zero", {}, TensorProto::UINT8, {3});
    auto& node = m.node("ConvInteger", {"x", "w", "zero"}, {"y"});
    set(node, "auto_pad", "SAME_LOWER");
    set(node, "strides", std::vector<int64_t>{2, 2});
  };
  for (const int64_t size : {3, 4}) expect_same_for({1, 1, size, size}, build, DataType::kU8);
}

TEST(OpenSizes, IndicesOfAPaddedMaximumAreNotTaken) {
  const Tensor x = counted({1, 1, 4, 4}, DataType::kF32);
  EXPECT_THAT(error_of([&] {
                result_of({"1", "1", "H", "W"}, x, [](ModelBuilder& m) {
                  auto& node = m.node("MaxPool", {"x"}, {"y", "at"});
                  set(node, "kernel_shape", std::vector<int64_t>{2, 2});
                  set(node, "auto_pad", "SAME_UPPER");
                  set(node, "strides", std::vector<int64_t>{2, 2});
                });
              }),
              HasSubstr("indices with auto_pad"));
}

TEST(OpenSizes, SqueezeKeepsThem) {
  const auto build = [](ModelBuilder& m) { m.node("Squeeze", {"x"}, {"y"}, "n"); };
  expect_same_for({3, 1, 2}, build);
  EXPECT_EQ(result_of({"N", "1", "K"}, counted({3, 1, 2}, DataType::kF32), build).dims(),
            Dims({3, 2}));
  EXPECT_THAT(error_of([&] {
                result_of({"N", "1", "K"}, counted({1, 1, 2}, DataType::kF32), build);
              }),
              HasSubstr("is false with these sizes"));
}

// x: f32[batch,2,frames] of which one or more axes go; y is declared with that many axes.
std::string squeezed_type(int declared_rank,
                          const std::function<void(ModelBuilder&)>& behind = {}) {
  ModelBuilder model;
  model.input("x", {"batch", "2", "frames"}).output("y");
  model.node("Squeeze", {"x"}, {behind ? "q" : "y"}, "n");
  if (behind) behind(model);
  if (declared_rank >= 0) {
    auto* type = model.graph().mutable_output(0)->mutable_type()->mutable_tensor_type();
    type->set_elem_type(TensorProto::FLOAT);
    for (int axis = 0; axis < declared_rank; ++axis) type->mutable_shape()->add_dim();
    type->mutable_shape();
  }
  const Graph graph = import_bytes(model.bytes(), "").graph;
  const Type& input = graph.value(graph.inputs()[0]).type();
  return to_string(input, graph.sizes()) + " " + output_type(graph);
}

// An exporter traced the model with a batch of 1 and called it open: the ranks that it wrote, or
// layers, tell.
TEST(OpenSizes, SqueezeTakesThemForOneWhereTheModelSaysSo) {
  const auto transposed = [](const std::vector<int64_t>& permutation) {
    return [=](ModelBuilder& m) { set(m.node("Transpose", {"q"}, {"y"}), "perm", permutation); };
  };
  EXPECT_EQ(squeezed_type(-1), "f32[batch,2,frames] f32[batch,2,frames]");
  EXPECT_EQ(squeezed_type(3), "f32[batch,2,frames] f32[batch,2,frames]");
  EXPECT_EQ(squeezed_type(2), "f32[1,2,frames] f32[2,frames]");
  EXPECT_EQ(squeezed_type(1), "f32[1,2,1] f32[2]");
  EXPECT_EQ(squeezed_type(0), "f32[batch,2,frames] f32[batch,2,frames]");  // no way to have it
  EXPECT_EQ(squeezed_type(-1, transposed({1, 0})), "f32[1,2,frames] f32[frames,2]");
  EXPECT_EQ(squeezed_type(3, transposed({1, 0})), "f32[1,2,frames] f32[frames,2]");
  EXPECT_THAT(error_of([&] {
                squeezed_type(2, transposed({3, 2, 1, 0}));
              }),
              HasSubstr("Transpose"));
}

// Every Squeeze takes a size for the same.
TEST(OpenSizes, SqueezesAgree) {
  EXPECT_EQ(
      squeezed_type(-1,
                    [](ModelBuilder& m) {
                      m.node("Squeeze", {"q"}, {"r"});
                      m.node("Neg", {"x"}, {"n"});
                      m.node("Squeeze", {"n"}, {"s"});
                      m.node("Add", {"r", "s"}, {"t"});
                      set(m.node("Transpose", {"t"}, {"y"}), "perm", std::vector<int64_t>{1, 0});
                    }),
      "f32[1,2,frames] f32[frames,2]");
}

TEST(OpenSizes, DiagonalsOfEinsum) {
  const auto build = [](const std::string& equation) {
    return [equation](ModelBuilder& m) {
      set(m.node("Einsum", {"x"}, {"y"}, "n"), "equation", equation.c_str());
    };
  };
  const Tensor x = counted({2, 3, 3}, DataType::kF32);
  using Numbers = std::vector<double>;
  const std::vector<std::tuple<std::string, Dims, Numbers>> cases = {
      {"bii->bi", {2, 3}, {1, 5, 9, 10, 14, 18}},
      {"bii->ib", {3, 2}, {1, 10, 5, 14, 9, 18}},
      {"...ii->...", {2}, {15, 42}},
      {"bii", {2}, {15, 42}},
      {"bii->", {}, {57}},
  };
  for (const auto& [equation, dims, numbers] : cases)
    for (const std::vector<std::string>& sizes :
         {std::vector<std::string>{"2", "3", "3"}, {"B", "N", "N"}, {"2", "N", "M"}}) {
      SCOPED_TRACE(equation + " " + sizes[2]);
      const Tensor y = result_of(sizes, x, build(equation));
      EXPECT_EQ(y.dims(), dims);
      EXPECT_EQ(numbers_of(y), numbers);
    }
  const Tensor cube = counted({2, 2, 2}, DataType::kF32);
  EXPECT_EQ(numbers_of(result_of({"N", "N", "N"}, cube, build("iii->i"))), Numbers({1, 8}));
  EXPECT_THAT(error_of([&] {
                result_of({"2", "N", "M"}, counted({2, 3, 4}, DataType::kF32), build("bii"));
              }),
              HasSubstr("has not as many elements"));
}

// An axis of one element stands for as many as another factor has, open or not.
TEST(OpenSizes, EinsumBroadcastsOneElement) {
  using Numbers = std::vector<double>;
  struct Case {
    std::string equation;
    Dims dims;
    std::vector<int64_t> w;
    Numbers numbers;
  };
  const std::vector<Case> cases = {
      {"ij,j->i", {2, 1}, {3}, {6, 12}},
      {"ij,j->ij", {2, 1}, {3}, {1, 2, 3, 2, 4, 6}},
      {"ij,j->i", {2, 3}, {1}, {6, 15}},
      {"ij,j->j", {2, 1}, {3}, {3, 6, 9}},
      {"ij,jk->ik", {2, 1}, {2, 2}, {4, 6, 8, 12}},
      {"ij,j", {2, 1}, {3}, {6, 12}},
      {"ij,ij->", {2, 1}, {1, 3}, {18}},
      {"ij,j,j->i", {2, 1}, {3}, {14, 28}},
      {"...j,j", {2, 1}, {3}, {6, 12}},
  };
  for (const Case& each : cases)
    for (const bool open : {false, true}) {
      SCOPED_TRACE(each.equation + (open ? " open" : ""));
      std::vector<std::string> dims;
      for (int axis = 0; axis < 2; ++axis)
        dims.push_back(open ? "D" + std::to_string(axis) : std::to_string(each.dims[axis]));
      const Tensor y = result_of(dims, counted(each.dims, DataType::kF32), [&](ModelBuilder& m) {
        size_t elements = 1;
        for (const int64_t size : each.w) elements *= static_cast<size_t>(size);
        std::vector<float> weights(elements);
        std::iota(weights.begin(), weights.end(), 1.0F);
        m.floats("w", each.w, weights);
        std::vector<std::string> inputs = {"x", "w"};
        if (std::ranges::count(each.equation, ',') == 2) inputs.push_back("w");
        set(m.node("Einsum", inputs, {"y"}, "n"), "equation", each.equation.c_str());
      });
      EXPECT_EQ(numbers_of(y), each.numbers);
    }
}

// Open sizes of several axes that are summed over are compared one by one.
TEST(OpenSizes, EinsumBroadcastsEachOfSeveralOpenAxes) {
  const auto build = [](const char* equation) {
    return [equation](ModelBuilder& m) {
      m.input("w", {"P", "Q"});
      set(m.node("Einsum", {"x", "w"}, {"y"}, "n"), "equation", equation);
    };
  };
  const auto numbers = [&](const char* equation, const Dims& x, const Dims& w) {
    ModelBuilder model(18);
    model.input("x", {"N", "M"}).output("y");
    build(equation)(model);
    const Graph graph = import_bytes(model.bytes(), "").graph;
    return numbers_of(
        evaluate(graph, {{counted(x, DataType::kF32), counted(w, DataType::kF32)}})[0]);
  };
  using Numbers = std::vector<double>;
  EXPECT_EQ(numbers("ij,ij->", {1, 3}, {2, 1}), Numbers({18}));
  EXPECT_EQ(numbers("ij,ij->", {2, 3}, {2, 3}), Numbers({91}));
  EXPECT_EQ(numbers("ij,ij->", {1, 1}, {2, 3}), Numbers({21}));
  EXPECT_THAT(error_of([&] { numbers("ij,ij->", {2, 3}, {3, 2}); }), HasSubstr("broadcast"));
  EXPECT_THAT(error_of([&] { numbers("ij,ij->", {2, 3}, {6, 1}); }), HasSubstr("broadcast"));
  EXPECT_EQ(numbers("ij,jk->ik", {2, 1}, {3, 1}), Numbers({6, 12}));
}

TEST(OpenSizes, SumsOfAnyLength) {
  const auto build = [](const char* op) {
    return [op](ModelBuilder& m) { m.node(op, std::vector<std::string>(5000, "x"), {"y"}, "n"); };
  };
  const Tensor x = counted({3}, DataType::kF32);
  EXPECT_EQ(numbers_of(result_of({"N"}, x, build("Sum"))), std::vector<double>({5000, 1e4, 15e3}));
  EXPECT_EQ(numbers_of(result_of({"N"}, x, build("Mean"))), std::vector<double>({1, 2, 3}));
  EXPECT_EQ(numbers_of(result_of({"N"}, x, build("Max"))), std::vector<double>({1, 2, 3}));
}

// Of 1, 2, 3, 4 one is greater than 3.5; nothing reads which, but that they are one in number.
TEST(OpenSizes, ThatOnlyValuesDecide) {
  const auto counted_by = [](const std::vector<std::string>& of_count, const Build& build) {
    ModelBuilder model(18);
    model.input("x", {"N"}).output("y");
    model.floats("limit", {}, {3.5F}).integers("axis", {0}).integers("second", {1});
    model.node("Greater", {"x", "limit"}, {"mask"});
    model.node("NonZero", {"mask"}, {"found"});
    model.node("Shape", {"found"}, {"shape"});
    model.node("Gather", {"shape", "second"}, {"count"});
    set(model.node("Concat", of_count, {"sizes"}), "axis", int64_t{0});
    build(model);
    const Graph graph = import_bytes(model.bytes(), "").graph;
    verify(graph);
    return evaluate(graph, {{counted({4}, DataType::kF32)}})[0];
  };
  using Numbers = std::vector<double>;
  const Tensor part = counted_by({"count", "three"}, [](ModelBuilder& m) {
    m.integers("three", {3}).node("Split", {"x", "sizes"}, {"first", "y"});
  });
  EXPECT_EQ(numbers_of(part), Numbers({2, 3, 4}));
  const Tensor padded = counted_by({"count", "count"}, [](ModelBuilder& m) {
    m.node("Pad", {"x", "sizes", "", "axis"}, {"y"});
  });
  EXPECT_EQ(numbers_of(padded), Numbers({0, 1, 2, 3, 4, 0}));
  const Tensor resized = counted_by({"count", "four"}, [](ModelBuilder& m) {
    m.integers("two_rows", {2, 2}).integers("four", {4});
    m.node("Reshape", {"x", "two_rows"}, {"square"});
    set(m.node("Resize", {"square", "", "", "sizes"}, {"y"}), "axes", std::vector<int64_t>{1, 0});
  });
  EXPECT_EQ(resized.dims(), Dims({4, 1}));
}

TEST(OpenSizes, AreFixedByShapesInOrder) {
  ModelBuilder model;
  model.input("a", {"N", "?"}).input("b", {"3"}).output("y").output("z");
  model.node("Exp", {"a"}, {"y"});
  model.node("Exp", {"b"}, {"z"});
  ImportOptions options;
  options.input_dims = {{2, 4}, {3}};
  const Graph graph = import_bytes(model.bytes(), "", options).graph;
  EXPECT_EQ(graph.sizes().text(graph.value(graph.outputs()[0].value).type().shape), "[2,4]");
  options.input_dims.pop_back();
  EXPECT_THAT(error_of([&] { import_bytes(model.bytes(), "", options); }),
              HasSubstr("shapes of 1 inputs, the model has 2"));
}

}  // namespace
}  // namespace anneal
