#include "anneal/optimizer/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/graph/text.h"

namespace anneal {
namespace {

uint32_t add(uint32_t sum, std::string_view text) {
  return crc32c(std::as_bytes(std::span(text)), crc32c(std::as_bytes(std::span("\n", 1)), sum));
}

// Of names and ops in `structure`, of constants in `weights`.
void add(const Graph& graph, uint32_t& structure, uint32_t& weights) {
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    structure = add(structure, layer.name);
    structure = add(structure, name(layer.op));
    for (const ValueId output : layer.outputs) structure = add(structure, graph.value(output).name);
    for (const ValueId input : layer.inputs) {
      if (input == ValueId::kNone) continue;
      const Tensor* constant = graph.constant(input);
      if (constant && constant->dtype() != DataType::kString)
        weights = crc32c(constant->bytes(), weights);
    }
  }
  for (const Graph& body : graph.bodies()) add(body, structure, weights);
}

}  // namespace

uint64_t fingerprint(const Graph& graph) {
  uint32_t structure = 0, weights = 0;
  add(graph, structure, weights);
  return std::max<uint64_t>(uint64_t{structure} << 32 | weights, 1);
}

void check_belongs(const CalibrationTable& table, const Graph& model) {
  if (table.fingerprint != 0 && table.fingerprint != fingerprint(model))
    fail(
        Code::kInvalidArgument,
        fmt::format("the calibration table was made for another model, \"{}\" (fingerprint "
                    "{:016x}; this one, \"{}\", has {:016x}): calibrate this model, or write 0 for "
                    "the fingerprint if the ranges hold for it all the same",
                    table.model, table.fingerprint, model.name, fingerprint(model)));
  const bool any = std::ranges::any_of(table.tensors, [&](const auto& each) {
    return model.find_value(each.first) != ValueId::kNone;
  });
  if (!table.tensors.empty() && !any)
    fail(Code::kInvalidArgument,
         fmt::format("the calibration table is for another model: \"{}\" has none of its {} "
                     "tensors; calibrate this model",
                     model.name, table.tensors.size()));
}

}  // namespace anneal
