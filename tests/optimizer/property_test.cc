// What holds for every graph: the optimized one gives the results of the one before, each pass run
// twice does no more than once, and the pipeline ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/bisect.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/tests/optimizer/random_graph.h"

namespace anneal::testing {
namespace {

constexpr uint32_t kGraphs = 8000, kGraphsOfAnyValues = 2000, kShards = 10;

double value_at(const Tensor& tensor, int64_t i) {
  const std::byte* at = tensor.view().data + static_cast<size_t>(i) * size_of(tensor.dtype());
  return static_cast<double>(load_scalar(tensor.dtype(), at).as<float>());
}

// Empty, or the first element that is further off than rounding explains.
std::string why_different(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  if (want.size() != got.size()) return "another number of outputs";
  for (size_t i = 0; i < want.size(); ++i) {
    if (type_of(want[i]) != type_of(got[i])) return "another type of output " + std::to_string(i);
    double largest = 1;
    for (int64_t e = 0; e < want[i].count(); ++e)
      if (const double value = std::abs(value_at(want[i], e)); std::isfinite(value))
        largest = std::max(largest, value);
    const double tolerance = (want[i].dtype() == DataType::kF32 ? 2e-4 : 3e-2) * largest;
    for (int64_t e = 0; e < want[i].count(); ++e) {
      const double a = value_at(want[i], e), b = value_at(got[i], e);
      const bool equal = a == b || (std::isnan(a) && std::isnan(b));
      if (!equal && !(std::abs(a - b) <= tolerance))
        return "output " + std::to_string(i) + " at " + std::to_string(e) + ": " +
               std::to_string(b) + " instead of " + std::to_string(a);
    }
  }
  return {};
}

// Results of elementwise layers that are stored without a reader.
std::string unread_results(const Graph& graph) {
  std::string names;
  for (const LayerId id : graph.order())
    for (const ValueId output : graph.layer(id).outputs)
      if (std::holds_alternative<Pointwise>(graph.layer(id).op) &&
          graph.value(output).users.empty() && !graph.is_output(output))
        names += graph.value(output).name + " ";
  return names;
}

// Empty, or the first element that has other bits. NaN is as NaN.
std::string why_unequal(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  if (want.size() != got.size()) return "another number of outputs";
  for (size_t i = 0; i < want.size(); ++i) {
    if (type_of(want[i]) != type_of(got[i])) return "another type of output " + std::to_string(i);
    for (int64_t e = 0; e < want[i].count(); ++e) {
      const double a = value_at(want[i], e), b = value_at(got[i], e);
      if (std::isnan(a) ? !std::isnan(b) : a != b || std::signbit(a) != std::signbit(b))
        return fmt::format("output {} at {}: {} instead of {}", i, e, b, a);
    }
  }
  return {};
}

PassOptions options_for(const Graph& graph) {
  PassOptions options;
  const bool is_half = graph.value(graph.inputs()[0]).type().dtype == DataType::kF16;
  options.native = {.f16 = is_half, .bf16 = is_half};
  return options;
}

using Difference = std::string (*)(const std::vector<Tensor>&, const std::vector<Tensor>&);

// Of a graph that the pipeline made wrong: where, and the rewrite that did it.
std::string harm_in(const Graph& before, const PassOptions& options,
                    const std::vector<Tensor>& inputs, const std::vector<Tensor>& want,
                    Difference difference) {
  const auto harm = find_harm(before, default_pipeline(), options, [&](const Graph& tried) {
    return difference(want, evaluate(tried, inputs)).empty();
  });
  if (!harm) return "running each pass once is right\n" + to_string(before);
  return fmt::format("{} on \"{}\": {}\nbefore:\n{}after:\n{}{}", harm->rewrite.pass,
                     harm->rewrite.subject, harm->rewrite.text, harm->before, harm->after,
                     to_string(before));
}

class RandomGraphs : public ::testing::TestWithParam<uint32_t> {};

// The number of rewrites.
uint64_t expect_same_results(const Graph& before, uint32_t seed, Flavour flavour) {
  uint64_t rewrites = 0;
  Graph graph = before.clone();
  std::vector<std::string> not_idempotent;
  // The list contains every pass twice; the second one must find nothing to do.
  std::vector<Pass> twice;
  for (const Pass& pass : default_pipeline()) twice.insert(twice.end(), 2, pass);
  size_t runs = 0;
  run_pipeline(graph, twice, options_for(before), [&](const PassEvent& event) {
    rewrites += event.rewrites;
    if (runs++ % 2 == 1 && event.changed) not_idempotent.emplace_back(event.pass.name);
  });
  EXPECT_TRUE(not_idempotent.empty()) << "a second run of " << not_idempotent[0] << " changes\n"
                                      << to_string(before);
  EXPECT_EQ(unread_results(graph), "");
  for (uint32_t binding = 0; binding < (flavour == Flavour::kOpenSizes ? 3 : 1); ++binding) {
    const std::vector<Tensor> inputs = random_inputs(before, seed, flavour, binding);
    const std::vector<Tensor> want = evaluate(before, inputs);
    const std::string why = why_different(want, evaluate(graph, inputs));
    EXPECT_TRUE(why.empty()) << why << "; "
                             << harm_in(before, options_for(before), inputs, want, why_different);
  }
  return rewrites;
}

TEST_P(RandomGraphs, GiveTheSameResultsOptimized) {
  constexpr Flavour flavours[] = {Flavour::kTame, Flavour::kNonFinite, Flavour::kTame,
                                  Flavour::kOpenSizes};
  uint64_t rewrites = 0;
  for (uint32_t seed = GetParam(); seed < kGraphs; seed += kShards) {
    SCOPED_TRACE(seed);
    const Flavour flavour = flavours[seed / kShards % std::size(flavours)];
    const Graph before = random_graph(seed, flavour);
    try {
      rewrites += expect_same_results(before, seed, flavour);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << to_string(before);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(rewrites, kGraphs / kShards) << "hardly anything was rewritten";
}

TEST_P(RandomGraphs, GiveTheSameBitsAfterExactPasses) {
  uint64_t rewrites = 0;
  for (uint32_t seed = GetParam(); seed < kGraphsOfAnyValues; seed += kShards) {
    const Graph before = random_graph(seed, Flavour::kAnyValues);
    const std::vector<Tensor> inputs = random_inputs(before, seed, Flavour::kAnyValues);
    const std::vector<Tensor> want = evaluate(before, inputs);
    PassOptions options = options_for(before);
    options.exact = true;
    Graph graph = before.clone();
    rewrites += run_pipeline(graph, default_pipeline(), options).size();
    const std::string why = why_unequal(want, evaluate(graph, inputs));
    ASSERT_TRUE(why.empty()) << "seed " << seed << ", " << why << "; "
                             << harm_in(before, options, inputs, want, why_unequal);
  }
  EXPECT_GT(rewrites, kGraphsOfAnyValues / kShards) << "hardly anything was rewritten";
}

INSTANTIATE_TEST_SUITE_P(Shards, RandomGraphs, ::testing::Range(0u, kShards));

// max(x, 0) becomes max(x, 0.5): what a bug in a rule looks like.
bool spoil_relu(Graph& graph, PassRun& run) {
  return sweep(graph, run, [](Graph& graph, LayerId id, PassRun& run) {
    const auto* op = std::get_if<Pointwise>(&graph.layer(id).op);
    const Program relu = parse_program("(f32)->(f32) max($0,0f32)");
    if (!op || !(op->program == relu)) return false;
    const Layer& layer = graph.layer(id);
    const LayerId spoiled =
        graph.add({.name = layer.name,
                   .op = Pointwise{parse_program("(f32)->(f32) max($0,0.5f32)")},
                   .inputs = layer.inputs,
                   .origins = layer.origins});
    const std::string name = layer.name;
    graph.replace_layer(id, spoiled);
    run.did(name, "spoiled");
    return true;
  });
}

TEST(FindHarm, NamesThePassAndTheRewrite) {
  const Graph graph = parse_graph(R"txt(
graph g(x: f32[8])
  a = Pointwise(x) program="(f32)->(f32) neg($0)"
  b = Reshape(a, i64{2, 4})
  c = Reshape(b, i64{2, 4})
  d = Pointwise(c) program="(f32)->(f32) max($0,0f32)"
  e = Softmax(d) axis=1
  return e
)txt");
  std::vector<Pass> passes;
  for (const Pass& pass : default_pipeline()) {
    if (pass.name == "remove_identity") passes.push_back(pass);
    if (pass.name == "fuse_pointwise") {
      passes.push_back({"spoil_relu", "plants a fault", true, spoil_relu});
      passes.push_back(pass);
    }
  }
  const std::vector<Tensor> inputs = random_inputs(graph, 3);
  const auto want = evaluate(graph, inputs);
  const auto is_right = [&](const Graph& tried) {
    return why_different(want, evaluate(tried, inputs)).empty();
  };
  const auto harm = find_harm(graph, passes, {}, is_right);
  ASSERT_TRUE(harm);
  EXPECT_EQ(harm->rewrite.pass, "spoil_relu");
  EXPECT_EQ(harm->rewrite.subject, "d");
  EXPECT_EQ(harm->number_in_pass, 1u);
  EXPECT_NE(harm->before.find("max($0,0f32)"), std::string::npos) << harm->before;
  EXPECT_NE(harm->after.find("max($0,0.5f32)"), std::string::npos) << harm->after;
  EXPECT_EQ(harm->before.find("Softmax"), std::string::npos) << harm->before;

  passes.erase(passes.begin() + 1);
  EXPECT_FALSE(find_harm(graph, passes, {}, is_right));
}

TEST(RewriteLimit, LeavesTheRestUndone) {
  const Graph graph = random_graph(12);
  PassOptions options = options_for(graph);
  Graph whole = graph.clone();
  const auto all = run_pipeline(whole, default_pipeline(), options);
  const auto rewrites = std::count_if(all.begin(), all.end(),
                                      [](const PassRecord& record) { return !record.refused; });
  ASSERT_GT(rewrites, 2);
  for (const uint64_t limit : {uint64_t{0}, uint64_t{1}, static_cast<uint64_t>(rewrites)}) {
    options.rewrite_limit = limit;
    Graph part = graph.clone();
    const auto records = run_pipeline(part, default_pipeline(), options);
    EXPECT_EQ(static_cast<uint64_t>(
                  std::count_if(records.begin(), records.end(),
                                [](const PassRecord& record) { return !record.refused; })),
              limit);
    EXPECT_EQ(to_string(part) == to_string(graph), limit == 0);
    EXPECT_EQ(to_string(part) == to_string(whole), limit == static_cast<uint64_t>(rewrites));
  }
}

}  // namespace
}  // namespace anneal::testing
