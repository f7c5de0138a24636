#include "anneal/optimizer/precision/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/optimizer/analysis/query.h"

namespace anneal {
namespace {

uint32_t add(uint32_t sum, std::string_view text) {
  return crc32c(std::as_bytes(std::span(text)), crc32c(std::as_bytes(std::span("\n", 1)), sum));
}

bool is_product(const Graph& graph, LayerId id) {
  return op_as<Conv>(graph, id) || op_as<ConvTranspose>(graph, id) || op_as<MatMul>(graph, id);
}

// Sizes and lists of them, which the shapes that a model is imported for decide, are no weights.
bool is_weight(const Tensor& tensor) {
  const bool is_byte = is_integer(tensor.dtype()) && size_of(tensor.dtype()) == 1;
  return (is_float(tensor.dtype()) || is_byte) && tensor.count() > 1;
}

void add(const Graph& graph, ThreadTeam& team, uint32_t& names, uint32_t& weights) {
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    if (is_product(graph, id)) names = add(names, layer.name);
    for (const ValueId input : layer.inputs) {
      const Tensor* constant = input == ValueId::kNone ? nullptr : graph.constant(input);
      if (constant && is_weight(*constant)) weights = crc32c(constant->bytes(), team, weights);
    }
  }
  for (const Graph& body : graph.bodies()) add(body, team, names, weights);
}

}  // namespace

uint64_t fingerprint(const Graph& graph, int threads) {
  uint32_t names = 0, weights = 0;
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  add(graph, team, names, weights);
  return std::max<uint64_t>(uint64_t{names} << 32 | weights, 1);
}

void check_belongs(const CalibrationTable& table, const Graph& model, int threads) {
  if (table.fingerprint != 0 && table.fingerprint != fingerprint(model, threads))
    fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the calibration table was made for another model, \"{}\" (fingerprint "
                    "{:016x}; this one, \"{}\", has {:016x}): calibrate this model, or write 0 for "
                    "the fingerprint if the ranges hold for it all the same",
                    table.model, table.fingerprint, model.name, fingerprint(model, threads)));
  const bool any = std::ranges::any_of(table.tensors, [&](const auto& each) {
    return model.find_value(each.first) != ValueId::kNone;
  });
  if (!table.tensors.empty() && !any)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the calibration table is for another model: \"{}\" has none of its {} "
                     "tensors; calibrate this model",
                     model.name, table.tensors.size()));
}

}  // namespace anneal
