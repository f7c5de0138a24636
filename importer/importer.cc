#include "anneal/importer/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"
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

ImportResult import_model(const std::shared_ptr<const anneal_onnx::ModelProto>& file,
                          const std::string& folder, const ImportOptions& options) {
  const anneal_onnx::ModelProto& model = *file;
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
    GraphImporter importer(file, folder, options, choices);
    auto graph = attempt([&] { return importer.import(); });
    const auto result = [&](Graph of_model) -> ImportResult {
      if (importer.batch())
        for (const std::string& input : importer.batch()->inputs) info.fixed_inputs.erase(input);
      return {std::move(of_model), info, importer.constant_inputs(), {}, importer.batch()};
    };
    if (graph && (importer.fits_declared_ranks() || !choices.any()))
      return result(*std::move(graph));
    if (graph) {
      if (!first_graph) first_graph.emplace(*std::move(graph));
      if (choices.next()) continue;
      return result(*std::move(first_graph));
    }
    if (!first_error || is_of_choice) first_error = graph.error();
    is_of_choice = choices.has_refused();
    const ErrorCode code = graph.error().code();
    const bool of_model = code == ErrorCode::kInvalidModel || code == ErrorCode::kUnsupported;
    if (of_model && choices.next()) continue;
    if (first_graph) return result(*std::move(first_graph));
    if (importer.batch()) add_context(*first_error, opening(*importer.batch()));
    throw *first_error;
  }
}

}  // namespace

std::string opening(const OpenBatch& batch) {
  return fmt::format(
      "while opening the batch of \"{}\", which is {} in the model (build it with that size, or "
      "export it with an open batch)",
      batch.inputs[0], batch.in_model);
}

ImportResult import_file(const std::string& path, const ImportOptions& options) {
  const auto model = read_model(path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return with_context(
      [&] { return path; },
      [&] { return import_model(model, folder.empty() ? "." : folder.string(), options); });
}

ImportResult import_bytes(std::span<const std::byte> bytes, const std::string& folder,
                          const ImportOptions& options) {
  return import_model(parse_model(bytes), folder, options);
}

}  // namespace anneal
