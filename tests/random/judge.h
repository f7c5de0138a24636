// Builds and runs a random model in several ways, and compares the results with those of the
// reference: no passes, and of each op the reference kernel.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/tests/random/random_model.h"

namespace anneal::random_graphs {

// The way: "default", "skip_all", "exact", "range", "f16", ...
struct Failure {
  std::string way;
  std::string sort;  // "internal error", "refused", "wrong"
  std::string text;  // a message, or the elements that differ
};
// Whether two failures have one cause, judged by their texts.
bool same_fault(const Failure& a, const Failure& b);

struct JudgeOptions {
  bool thorough = false;               // all ways, else two of them
  std::vector<std::string> ways = {};  // if not empty: these
};

// The reference's outputs, by binding.
using Results = std::vector<std::vector<Tensor>>;

// What rounding explains, by binding and output: of f32, or of another type that values are stored
// in.
using Allowances = std::vector<std::vector<double>>;
Allowances allowances(const RandomModel& model, const Results& results, int type = onnx::FLOAT);

// Throws what building and running throws.
Results reference_results(const RandomModel& model);
std::optional<Failure> judge(const RandomModel& model, const JudgeOptions& options);
std::vector<std::string> all_ways(const RandomModel& model, bool thorough);

// As many bytes as the model's file has.
std::vector<std::byte> file_bytes(const anneal_onnx::ModelProto& model);

}  // namespace anneal::random_graphs
