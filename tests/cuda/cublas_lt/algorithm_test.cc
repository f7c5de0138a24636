// What an H100's cuBLASLt answered (bench/results/2026-11-20-h100-probe.json): its algorithms as
// texts of tactics.
#include "anneal/kernels/cuda/cublas_lt/algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "anneal/engine/builder/builder.h"
#include "anneal/kernels/cuda/cost/tactic_text.h"
#include "anneal/kernels/cuda/cost/vendor_tactic.h"
#include "anneal/kernels/cuda/cublas_lt/library.h"
#include "anneal/kernels/cuda/cublas_lt/problem.h"
#include "anneal/tests/cuda/cublas_lt/requests.h"

namespace anneal::cuda {
namespace {

using Json = nlohmann::json;
using testing::Asked;
using testing::operand;

Json probe() {
  std::ifstream file("bench/results/2026-11-20-h100-probe.json");
  return Json::parse(file)["cublaslt"];
}

// The columns of the file.
LtAlgorithm recorded(const Json& row) {
  return {.id = row[0],
          .tile = row[1],
          .split = static_cast<int32_t>(row[2].get<uint32_t>()),
          .reduction = row[3],
          .swizzle = row[4],
          .option = row[5],
          .stages = row[6],
          .inner_shape = row[7],
          .cluster = row[8]};
}

struct Answer {
  std::string type, epilogue;
  int64_t m = 0, n = 0, k = 0;
  bool is_refused = false;
  std::vector<LtAlgorithm> algorithms = {};
  uint64_t workspace_bytes = 0;  // the most
};

std::vector<Answer> answers() {
  std::vector<Answer> all;
  const Json types = probe();
  for (const auto& [type, part] : types.items()) {
    if (!part.is_object()) continue;
    for (const Json& row : part["rows"]) {
      Answer answer{type, row["epilogue"], row["m"], row["n"], row["k"], row.contains("error")};
      for (const Json& each : row.value("algos", Json::array())) {
        answer.algorithms.push_back(recorded(each));
        answer.workspace_bytes = std::max(answer.workspace_bytes, each[9].get<uint64_t>());
      }
      all.push_back(std::move(answer));
    }
  }
  return all;
}

TEST(LtAlgorithmText, OfAnswersOfAnH100) {
  int count = 0;
  for (const Answer& answer : answers()) {
    if (answer.is_refused) continue;
    ++count;
    std::map<std::string, LtAlgorithm> by_text;
    for (const LtAlgorithm& algorithm : answer.algorithms) {
      const auto [at, is_new] = by_text.emplace(text_of(algorithm), algorithm);
      EXPECT_EQ(at->second, algorithm) << at->first;  // what differs has another text
    }
    EXPECT_LE(answer.workspace_bytes, workspace_limit(90));
  }
  EXPECT_EQ(count, 100);
}

TEST(LtAlgorithmText, Examples) {
  std::set<std::string> texts;
  for (const Answer& answer : answers())
    for (const LtAlgorithm& algorithm : answer.algorithms) texts.insert(text_of(algorithm));
  for (const char* const text :
       {"algorithm 66, tile 128x256, stages 64xAUTO, cluster 3, option 4",
        "algorithm 55, tile 128x128, stages 8x3",
        "algorithm 39, tile 128x128, stages 128xAUTO, split -1, reduction 2, cluster 7"})
    EXPECT_TRUE(texts.contains(text)) << text;
  EXPECT_EQ(text_of({.id = 1}), "algorithm 1");
  EXPECT_EQ(tile_text(209), "#209");
  EXPECT_EQ(library_version_text(130100), "13.1.0");
}

// A layer for what was asked there: TN, with a bias for each column.
Asked asked_of(const Answer& answer) {
  const bool is_byte = answer.type.starts_with("i8");
  const DataType in = is_byte                 ? DataType::kI8
                      : answer.type == "f16"  ? DataType::kF16
                      : answer.type == "bf16" ? DataType::kBF16
                                              : DataType::kF32;
  const DataType out = answer.type == "i8->i32" ? DataType::kI32 : in;
  const std::string type(to_string(out));
  Asked asked{.op = MatMul{.transpose_b = true},
              .inputs = {operand(in, {answer.m, answer.k}), operand(in, {answer.n, answer.k})},
              .outputs = {operand(out, {answer.m, answer.n})}};
  std::string text = "mul($0,0.5f32)", inputs = "(f32";
  if (answer.epilogue != "DEFAULT") {
    asked.inputs.push_back(operand(out, {answer.n}));
    inputs += "," + type;
    text = "add(mul($0,0.5f32),$1)";
  }
  if (answer.epilogue == "RELU_BIAS") text = "max(" + text + ",0f32)";
  if (answer.epilogue == "GELU_BIAS")
    text = "%0=" + text +
           "; mul(mul(%0,0.5f32),add(tanh(mul(add(%0,mul(mul(mul(%0,%0),%0),0.044715f32)),"
           "0.7978846f32)),1f32))";
  const size_t result = text.find("; ");
  const std::string rounded = out == DataType::kF32 ? "" : "round_" + type + "(";
  text.insert(result == std::string::npos ? 0 : result + 2, rounded);
  if (!rounded.empty()) text += ")";
  asked.epilogue = inputs + ")->(" + type + ") " + text;
  if (is_byte) asked.epilogue = "(i32)->(i8) saturate_i8(rint(mul(f32($0),0.5f32)))";
  if (out == DataType::kI32) asked.epilogue = "";
  return asked;
}

// Where the library had algorithms our rules find a product, except where we want other bits than
// it gives.
TEST(LtProblem, OfTheProductsOfTheProbe) {
  int count = 0;
  for (const Answer& answer : answers()) {
    if (answer.is_refused || answer.type.starts_with("e4m3")) continue;  // we have no FP8
    if (answer.type.starts_with("i8") && answer.epilogue != "DEFAULT") continue;
    Asked asked = asked_of(answer);
    const Request request = asked.request();
    const auto problem = lt_problem(
        std::get<MatMul>(asked.op), request,
        {.tf32 = answer.type == "tf32",
         .approximate = answer.epilogue == "GELU_BIAS" || answer.epilogue == "RELU_BIAS"});
    ++count;
    ASSERT_TRUE(problem) << answer.type << " " << answer.epilogue << ": " << problem.reason()
                         << "\n"
                         << asked.epilogue;
    EXPECT_TRUE(problem->transpose_a);
    EXPECT_EQ(problem->d.rows, answer.n);
    EXPECT_EQ(problem->d.columns, answer.m);
  }
  EXPECT_EQ(count, 4 * 16 + 2 * 4);
}

// The size of its parts is checked before any is used.
TEST(LtTactic, OtherBytesAreRefused) {
  Asked asked{.op = MatMul{},
              .inputs = {operand(DataType::kF32, {8, 8}), operand(DataType::kF32, {8, 8})},
              .outputs = {operand(DataType::kF32, {8, 8})}};
  const KernelEntry* const entry = find_kernel(cuda_backend(), "cublaslt.matmul");
  ASSERT_NE(entry, nullptr);
  Request request = asked.request();
  EXPECT_EQ(entry->make(request).reason(), "without a card cuBLASLt names no algorithm");
  EXPECT_TRUE(entry->tactics(request).empty());
  VendorTactic tactic{.library_version = 130100,
                      .architecture = 90,
                      .workspace_bytes = 0,
                      .algorithm = "algorithm 55",
                      .bytes = std::vector<std::byte>(64)};
  const auto why_not = [&] {
    const std::vector<std::byte> bytes = tactic_of(tactic);
    request.tactic = bytes;
    return entry->make(request).reason();
  };
  // A device to build for takes what is recorded: a timing cache may come from a card.
  EXPECT_EQ(why_not(), "");
  EXPECT_EQ(tactic_text("cublaslt.matmul", tactic_of(tactic)), "algorithm 55");
  tactic.bytes.pop_back();
  EXPECT_EQ(why_not(), "a tactic that is none of this kernel's");
  tactic.bytes.resize(64);
  tactic.architecture = 80;
  EXPECT_EQ(why_not(), "its algorithm is for sm_80, and this is sm_90");
  tactic.architecture = 90;
  tactic.workspace_bytes = uint64_t{33} << 20;
  EXPECT_EQ(why_not(), "its algorithm has 34603008 bytes of workspace, 33554432 are allowed");
  const std::vector<std::byte> none(3);
  request.tactic = none;
  EXPECT_EQ(entry->make(request).reason(), "a tactic that is none of this kernel's");
  EXPECT_EQ(workspace_limit(86), uint64_t{4} << 20);
}

TEST(Tf32, IsLeftOutUnlessItIsAskedFor) {
  const auto left_out = [](const BuildOptions& options, std::string_view name) {
    return std::string(
        why_left_out(*find_kernel(cuda_backend(), name), kernel_options(graph_options(options))));
  };
  BuildOptions options;
  for (const char* const name : {"cublaslt.matmul.tf32", "cublaslt.conv.tf32"}) {
    EXPECT_EQ(left_out(options, name), "skipped");
    options.tf32 = true;
    EXPECT_EQ(left_out(options, name), "");
    options.exact = true;
    EXPECT_EQ(left_out(options, name), "skipped: it may change numerics");
    options = {};
  }
  EXPECT_EQ(left_out(options, "cublaslt.matmul"), "");
  options.exact = true;
  EXPECT_EQ(left_out(options, "cublaslt.matmul"), "");
  EXPECT_EQ(left_out(options, "cublaslt.matmul.approximate"), "skipped: it may change numerics");
}

}  // namespace
}  // namespace anneal::cuda
