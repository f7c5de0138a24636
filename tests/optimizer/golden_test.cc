// Pass tests are text: tests/golden/passes/NAME.txt holds cases separated by a line "====", each a
// graph before and after, separated by "---- NAME". Every case is compared, run a second time
// (which must change nothing), and executed on the reference before and after with random inputs. A
// line "# no target has a kernel for OP" makes it so; lines "# int8", "# f16", "# bf16", "#
// symmetric",
// "# fold budget N", "# cached weights N", "# max memory N" are PassOptions; "# range NAME MIN MAX"
// and "# layer REGEX TYPE" are the PrecisionOptions; what follows "# table " is a line of the
// calibration table. ANNEAL_UPDATE_GOLDEN=1 writes the graphs after the pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"
#include "anneal/core/new_tensor.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

const std::filesystem::path kFolder = "tests/golden/passes";

struct Case {
  std::string name, before, after;
};

std::vector<std::string> split(const std::string& text, const std::string& line) {
  std::vector<std::string> parts(1);
  std::istringstream in(text);
  for (std::string each; std::getline(in, each);) {
    if (each == line)
      parts.emplace_back();
    else
      parts.back() += each + "\n";
  }
  return parts;
}

std::vector<Case> cases_of(const Pass& pass) {
  std::ifstream in(kFolder / (std::string(pass.name) + ".txt"));
  std::stringstream text;
  text << in.rdbuf();
  std::vector<Case> cases;
  for (const std::string& part : split(text.str(), "====")) {
    const auto sides = split(part, "---- " + std::string(pass.name));
    if (sides.size() == 2) cases.push_back({std::string(pass.name), sides[0], sides[1]});
  }
  return cases;
}

AskTargets targets_of(const Case& each) {
  constexpr std::string_view kLine = "# no target has a kernel for ";
  const size_t at = each.before.find(kLine);
  if (at == std::string::npos) return {};
  const size_t begin = at + kLine.size();
  const std::string op = each.before.substr(begin, each.before.find('\n', begin) - begin);
  return [op](const Graph&, const NewLayer& layer) {
    return to_string(layer.op) == op ? "no kernel for " + op : std::string();
  };
}

// Its lines that begin with "# table ".
CalibrationTable table_of(const Case& each) {
  constexpr std::string_view kBefore = "# table ";
  std::string text = "anneal calibration 1\n";
  std::istringstream lines(each.before);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kBefore)) text += line.substr(kBefore.size()) + "\n";
  return parse_calibration_table(text);
}

PrecisionOptions precision_of(const Case& each) {
  PrecisionOptions options;
  CalibrationTable table = table_of(each);
  std::istringstream lines(each.before);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, what, name, type;
    TensorRange range;
    words >> hash >> what;
    if (hash != "#") continue;
    for (const Precision each : {Precision::kF16, Precision::kBF16, Precision::kI8})
      if (what == anneal::to_string(each)) options.types.insert(each);
    options.symmetric |= what == "symmetric";
    if (what == "weight_format") words >> options.weight_format;
    if (what == "range" && words >> name >> range.min >> range.max) {
      range.seen_min = range.min, range.seen_max = range.max;
      table.tensors[name] = range;
    }
    if (what == "layer" && words >> name >> type)
      for (const Precision each :
           {Precision::kF32, Precision::kF16, Precision::kBF16, Precision::kI8})
        if (type == anneal::to_string(each)) options.layers.push_back({name, each});
  }
  if (table != CalibrationTable{})
    options.ranges = std::make_shared<const CalibrationTable>(std::move(table));
  return options;
}

// Cases of targets that compute in 16 bits say so in a comment.
PassOptions options_of(const Case& each) {
  PassOptions options;
  const auto says = [&](const char* comment) {
    return each.before.find(comment) != std::string::npos;
  };
  const auto number_after = [&](std::string_view comment, uint64_t otherwise) {
    const size_t at = each.before.find(comment);
    return at == std::string::npos ? otherwise
                                   : std::stoull(each.before.substr(at + comment.size()));
  };
  const bool both = says("# where half is native");
  options.native = {.f16 = both, .bf16 = both || says("# where bf16 is native")};
  options.ask_targets = targets_of(each);
  options.precision = precision_of(each);
  options.fold_budget_bytes = number_after("# fold budget ", options.fold_budget_bytes);
  options.cached_weight_bytes = number_after("# cached weights ", options.cached_weight_bytes);
  options.max_memory = number_after("# max memory ", options.max_memory);
  return options;
}

Dims dims_for(const Graph& graph, const Type& type) {
  std::vector<std::optional<int64_t>> values(graph.sizes().symbols().size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2 + static_cast<int64_t>(i);
  return graph.sizes().evaluate(type.shape, values);
}

Tensor random_tensor(DataType dtype, const Dims& dims, std::mt19937& random) {
  NewTensor fresh = allocate_tensor(dtype, dims);
  std::normal_distribution<double> normal;
  ProgramBuilder unused;
  for (int64_t i = 0; i < count(dims); ++i) {
    const RegisterType type = register_type(dtype);
    Instruction cast{Opcode::kCast, type, {0, 0, 0}, 0};
    const Scalar from =
        Scalar::of(is_float(dtype) ? normal(random) : std::abs(std::round(3 * normal(random))));
    const RegisterType f64 = RegisterType::kF64;
    Scalar value = type == f64 ? from : evaluate(cast, std::span(&from, 1), std::span(&f64, 1));
    const Instruction round{Opcode::kRound, type, {0, 0, 0}, static_cast<uint64_t>(dtype)};
    if (dtype != DataType::kBool)
      value = evaluate(round, std::span(&value, 1), std::span(&type, 1));
    store_scalar(dtype, value, fresh.data.data() + static_cast<size_t>(i) * size_of(dtype));
  }
  return fresh.tensor;
}

// Within what storing in half precision may cost; where layers become int8 or have integer weights,
// within 3 % of the largest magnitude.
void expect_near(const Tensor& want, const Tensor& got, bool int8) {
  ASSERT_EQ(type_of(want), type_of(got));
  const auto value = [](const Tensor& tensor, int64_t i) {
    const std::byte* at = tensor.view().data + static_cast<size_t>(i) * size_of(tensor.dtype());
    return static_cast<double>(load_scalar(tensor.dtype(), at).as<float>());
  };
  double slack = 0.02;
  for (int64_t i = 0; int8 && i < want.count(); ++i)
    if (std::isfinite(value(want, i))) slack = std::max(slack, 0.03 * std::abs(value(want, i)));
  for (int64_t i = 0; i < want.count(); ++i) {
    const double expected = value(want, i);
    if (std::isfinite(expected))
      EXPECT_NEAR(value(got, i), expected, slack + 0.02 * std::abs(expected)) << i;
    else
      EXPECT_THAT(value(got, i), testing::NanSensitiveDoubleEq(expected)) << i;
  }
}

void expect_same_results(const Graph& before, const Graph& after, bool exact, bool int8) {
  std::mt19937 random(1);
  std::vector<Tensor> inputs;
  for (const ValueId input : before.inputs()) {
    const Type& type = before.value(input).type();
    inputs.push_back(random_tensor(type.dtype, dims_for(before, type), random));
  }
  const auto want = evaluate(before, inputs), got = evaluate(after, inputs);
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i)
    if (!exact && is_float(want[i].dtype())) {
      expect_near(want[i], got[i], int8);
    } else
      EXPECT_TRUE(want[i] == got[i]) << "output " << i << " differs; the pass claims to be exact";
}

class Golden : public ::testing::TestWithParam<Pass> {};

TEST_P(Golden, BeforeAndAfter) {
  const Pass& pass = GetParam();
  const auto cases = cases_of(pass);
  ASSERT_GE(cases.size(), 2u) << "tests/golden/passes/" << pass.name
                              << ".txt needs a case that matches and one that does not";
  const bool is_update = std::getenv("ANNEAL_UPDATE_GOLDEN") != nullptr;
  std::string updated;
  int changed_cases = 0;
  for (const Case& each : cases) {
    SCOPED_TRACE(each.before);
    Graph graph = parse_graph(each.before);
    const Graph before = graph.clone();
    const Pass only[] = {pass};
    const PassOptions options = options_of(each);
    bool changed = false;
    run_pipeline(graph, only, options, [&](const PassEvent& event) { changed = event.changed; });
    const std::string once = to_string(graph, Constants::kWhole);
    const std::string as_given = each.before.substr(each.before.find("graph "));
    updated += (updated.empty() ? "" : "====\n") + each.before + "---- " + each.name + "\n" +
               (changed ? once : as_given);
    if (!is_update) {
      EXPECT_EQ(once, to_string(parse_graph(each.after), Constants::kWhole));
    }
    changed_cases += changed;
    EXPECT_EQ(changed, once != to_string(before, Constants::kWhole));
    expect_same_results(
        before, graph, pass.exact,
        options.precision.allows(Precision::kI8) || options.precision.allows(Precision::kBF16) ||
            !options.precision.layers.empty() || !options.precision.weight_format.empty());
    run_pipeline(graph, only, options, [&](const PassEvent& event) { changed = event.changed; });
    EXPECT_FALSE(changed) << "a second run changes something";
    EXPECT_EQ(to_string(graph, Constants::kWhole), once);
  }
  if (is_update) std::ofstream(kFolder / (std::string(pass.name) + ".txt")) << updated;
  EXPECT_GT(changed_cases, 0);
  EXPECT_LT(changed_cases, static_cast<int>(cases.size()))
      << "no case where the pass must not match";
}

INSTANTIATE_TEST_SUITE_P(Passes, Golden,
                         ::testing::ValuesIn(default_pipeline().begin(), default_pipeline().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Pipeline, SkippingAnUnknownPassIsRefused) {
  Graph graph = parse_graph("graph g(x: f32[1])\n  return x\n");
  try {
    run_pipeline(graph, default_pipeline(), {.skip = {"fuse_everything"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("there is no pass \"fuse_everything\""),
              std::string::npos);
  }
}

}  // namespace
}  // namespace anneal
