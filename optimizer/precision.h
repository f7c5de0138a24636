// The precisions that the layers of a model may compute in.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/optimizer/calibration_table.h"

namespace anneal {

enum class Precision { kF32, kF16, kBF16, kI8 };
inline constexpr Precision kAllPrecisions[] = {Precision::kF32, Precision::kF16, Precision::kBF16,
                                               Precision::kI8};
std::string_view to_string(Precision precision);  // "int8"

// Layers that the pattern, a regular expression, matches as a whole: their names, or those of the
// ONNX nodes they come from.
struct LayerPrecision {
  std::string pattern;
  Precision precision = Precision::kF32;
};

struct PrecisionOptions {
  // Beside the model's own precision. bf16 is taken where both are.
  bool f16 = false, bf16 = false, int8 = false;
  bool symmetric = false;  // of int8: zero points of activations are 0
  // Layers whose error in 8 bits, as the table has it, is more stay f32 unless asked for by name.
  float max_layer_error = 1e-3F;
  std::vector<LayerPrecision> layers{};              // the first that matches decides
  std::shared_ptr<const CalibrationTable> ranges{};  // null: none

  // Whether any layer may be computed in less than the model's own precision.
  bool reduces() const { return f16 || bf16 || int8 || !layers.empty(); }
};

}  // namespace anneal
