#include "anneal/importer/importer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "anneal/importer/graph/graph_importer.h"
#include "anneal/importer/node/attempt.h"
#include "anneal/importer/onnx/model_file.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

bool has_fixed_sizes(const anneal_onnx::ValueInfoProto& input) {
  const auto& type = input.type().tensor_type();
  return type.has_shape() && std::ranges::all_of(type.shape().dim(), [](const auto& dim) {
           return dim.has_dim_value() && dim.dim_value() >= 0;
         });
}

ImportResult import_model(const anneal_onnx::ModelProto& model, const std::string& folder,
                          const ImportOptions& options) {
  ModelInfo info{.producer = model.producer_name(),
                 .graph_name = model.graph().name(),
                 .ir_version = model.ir_version()};
  if (!model.producer_version().empty()) info.producer += " " + model.producer_version();
  for (const auto& import : model.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx") info.opset = import.version();
  for (const auto& input : model.graph().input())
    if (has_fixed_sizes(input)) info.fixed_inputs.insert(input.name());
  RankChoices choices;
  std::optional<Graph> first_graph;  // whose ranks are not those that the model says
  std::optional<Error> first_error;
  bool is_of_choice = false;  // the first error, which then says less than the next
  for (;;) {
    GraphImporter importer(model, folder, options, choices);
    auto graph = attempt([&] { return importer.import(); });
    if (graph && (importer.fits_declared_ranks() || !choices.any()))
      return {*std::move(graph), info, importer.constant_inputs()};
    if (graph) {
      if (!first_graph) first_graph.emplace(*std::move(graph));
      if (choices.next()) continue;
      return {*std::move(first_graph), info, importer.constant_inputs()};
    }
    if (!first_error || is_of_choice) first_error = graph.error();
    is_of_choice = choices.has_refused();
    const ErrorCode code = graph.error().code();
    const bool of_model = code == ErrorCode::kInvalidModel || code == ErrorCode::kUnsupported;
    if (of_model && choices.next()) continue;
    if (first_graph) return {*std::move(first_graph), info, importer.constant_inputs()};
    throw *first_error;
  }
}

}  // namespace

ImportResult import_file(const std::string& path, const ImportOptions& options) {
  const auto model = read_model(path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return with_context(
      [&] { return path; },
      [&] { return import_model(*model, folder.empty() ? "." : folder.string(), options); });
}

ImportResult import_bytes(std::span<const std::byte> bytes, const std::string& folder,
                          const ImportOptions& options) {
  return import_model(*parse_model(bytes), folder, options);
}

}  // namespace anneal
