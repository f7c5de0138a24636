// The precisions that the layers of a model may compute in.
#pragma once
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/optimizer/calibration_table.h"

namespace anneal {

enum class Precision { kF32, kF16, kBF16, kI8 };  // of the operands of a layer
inline constexpr Precision kAllPrecisions[] = {Precision::kF32, Precision::kF16, Precision::kBF16,
                                               Precision::kI8};
constexpr std::string_view to_string(Precision precision) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "int8"};
  return kNames[static_cast<size_t>(precision)];
}

// pattern: a regular expression for the whole name of a layer, or of an ONNX node it comes from.
struct LayerPrecision {
  std::string pattern;
  Precision precision = Precision::kF32;
};

struct SharedTable : std::shared_ptr<const CalibrationTable> {  // a table of options, or null
  SharedTable() = default;
  SharedTable(std::shared_ptr<const CalibrationTable> table)  // NOLINT(google-explicit-constructor)
      : shared_ptr(std::move(table)) {}
  SharedTable(CalibrationTable table)  // NOLINT(google-explicit-constructor)
      : shared_ptr(std::make_shared<const CalibrationTable>(std::move(table))) {}
};

struct PrecisionOptions {
  // Allowed besides the model's own. With kF16 and kBF16 each layer gets the one that the target
  // computes faster; if both are equally fast, f16, or bf16 where the range of f16 may not suffice.
  std::set<Precision> types = {};
  // Also what all targets compute faster than f32: f16 or bf16, and int8 with ranges or samples.
  bool best = false;
  bool symmetric = false;  // int8 with zero points of 0 for activations
  // Layers with a larger calibrated int8 error stay f32, unless `layers` selects them.
  float max_layer_error = 1e-3F;
  std::vector<LayerPrecision> layers{};  // the first match decides
  // The build stores weights of products and embeddings as "int8", "int4", or with the length of
  // blocks "int4:64" (docs/quantization.md, "Weights in integers"). Empty: as in the model.
  std::string weight_format = {};
  SharedTable ranges{};  // of tensors, from calibrate(); empty: none

  bool allows(Precision precision) const { return types.contains(precision); }
  bool allows_half() const { return allows(Precision::kF16) || allows(Precision::kBF16); }
  // Whether any layer may be computed in less than the model's own precision.
  bool reduces() const { return allows_half() || allows(Precision::kI8) || !layers.empty(); }
};

}  // namespace anneal
