#include "anneal/engine/onnx/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/core/fail.h"
#include "anneal/engine/compare/drawn_tensors.h"
#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/engine/run/make_engine.h"

namespace anneal {
namespace {

using OrderedJson = nlohmann::ordered_json;

// JSON has neither infinity, which is null, nor NaN, which is the text "NaN".
OrderedJson finite_or_null(double value) {
  if (std::isnan(value)) return "NaN";
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson tensor_json(const ComparedTensor& tensor, bool is_output) {
  const bool agrees = tensor.comparison.why.empty();
  OrderedJson entry = {
      {"name", tensor.name},
      {"time", tensor.time},
      {"type", fmt::format("{}{}", to_string(tensor.dtype), to_string(tensor.dims))},
      {"is_output", is_output},
      {"step_a", tensor.step_a},
      {"kernel_a", tensor.kernel_a},
      {"step_b", tensor.step_b},
      {"kernel_b", tensor.kernel_b},
      {"agrees", agrees}};
  entry["max_abs_error"] = finite_or_null(tensor.comparison.max_abs);
  entry["max_rel_error"] = finite_or_null(tensor.comparison.max_rel);
  entry["sqnr_db"] = finite_or_null(tensor.error.sqnr_db);  // null: exact
  entry["cosine"] = finite_or_null(tensor.error.cosine);
  if (!agrees) entry["reason"] = tensor.comparison.why;
  if (tensor.alone) {
    entry["agrees_alone"] = tensor.alone->why.empty();
    entry["max_abs_error_alone"] = finite_or_null(tensor.alone->max_abs);
  }
  if (const auto& rounding = tensor.rounding)
    entry["quanta"] = {{"differing", rounding->differing},
                       {"most", rounding->most_quanta},
                       {"at_ties", rounding->at_ties},
                       {"widest_tie", rounding->widest_tie}};
  return entry;
}

DataType coarsest_of(const Plan& plan) {
  DataType coarsest = DataType::kF32;
  for (const Slot& slot : plan.slots) {
    if (slot.type.dtype == DataType::kBF16) return DataType::kBF16;
    if (slot.type.dtype == DataType::kF16) coarsest = DataType::kF16;
  }
  return coarsest;
}

}  // namespace

OrderedJson comparison_json(const EngineComparison& comparison, const Engine& a) {
  OrderedJson tensors = OrderedJson::array();
  OrderedJson first = nullptr;
  for (const ComparedTensor& tensor : comparison.tensors) {
    const bool is_output = std::ranges::count(a.outputs(), tensor.name, &TensorInfo::name) != 0;
    tensors.push_back(tensor_json(tensor, is_output));
    if (first.is_null() && !tensor.comparison.why.empty()) first = tensor.name;
  }
  return {{"first_diverging", std::move(first)},
          {"only_in_a", comparison.only_a},
          {"only_in_b", comparison.only_b},
          {"tensors", std::move(tensors)}};
}

std::string compare_engines(const std::shared_ptr<const Engine>& a,
                            const std::shared_ptr<const Engine>& b,
                            const std::vector<SampleTensor>& inputs, int threads,
                            std::optional<double> rtol, std::optional<double> atol) {
  return at_entry([&] {
    if (!a || !b) fail(ErrorCode::kInvalidArgument, "an engine to compare is null");
    CompareOptions options{.rtol = rtol, .atol = atol, .threads = threads};
    for (const Engine* engine : {a.get(), b.get()})
      if (const DataType coarsest = coarsest_of(plan_of(*engine));
          coarsest != DataType::kF32 && options.coarsest != DataType::kBF16)
        options.coarsest = coarsest;
    const EngineComparison comparison = compare_tensors(a, b, drawn_tensors(*a, inputs), options);
    if (comparison.tensors.empty())
      fail(ErrorCode::kInvalidArgument,
           "the engines have no tensor of the same name: are they of one model?");
    return comparison_json(comparison, *a)
        .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  });
}

}  // namespace anneal
