// The calibration table: ranges of a model's tensors and quantization of its layers, as a text
// file.
//
//   anneal calibration 1
//   model "mobilenet_v2" 1f2e3d4c5b6a7988
//   samples 100
//   zero-points 0
//   # min  max  smallest seen  largest seen  method  tensor
//   0 5.87 0 6 mse "relu_3"
//   # layer  name  scales of its weights  error by ranges alone  error as it is quantized
//   layer "conv_4" mse 0.0021 0.0013
//   # bias  layer  added to each channel of its results
//   bias "conv_4" 0.013 -0.0021
//   # equalize  tensor  the power of two that each of its channels is multiplied by
//   equalize "conv_3" 0 -2
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace anneal {

struct TensorRange {
  float min = 0, max = 0;            // the quantized range; values outside are clamped
  float seen_min = 0, seen_max = 0;  // over all samples
  std::string method{};              // of min and max: "minmax", "entropy", "given", ...
  bool operator==(const TensorRange&) const = default;
};

struct LayerQuantization {
  bool fits_weights = false;  // scales with least squared error; else by magnitude
  // Mean squared error of the layer's results for the same inputs, divided by their mean square:
  // without corrections, for reports; with them, for insert_quantize. 0: not measured.
  float error_by_ranges = 0, error = 0;
  bool operator==(const LayerQuantization&) const = default;
};

struct CalibrationTable {
  static constexpr int kMostExponent = 30;
  std::string model{};       // its name
  uint64_t fingerprint = 0;  // of the imported graph; 0: unknown
  int64_t samples = 0;
  bool symmetric = false;                                     // made for zero points of 0
  std::map<std::string, TensorRange, std::less<>> tensors{};  // by the value's name in the model
  // By the layer's name. A layer that is missing has scales by magnitude.
  std::map<std::string, LayerQuantization, std::less<>> layers{};
  // By the layer's name: the correction of the mean rounding error that is added to each channel of
  // its results.
  std::map<std::string, std::vector<float>, std::less<>> biases{};
  // By the value's name: channel i is multiplied by 2^exponents[i], and its readers divide by it.
  // -kMostExponent <= exponent <= kMostExponent.
  std::map<std::string, std::vector<int>, std::less<>> exponents{};
  bool operator==(const CalibrationTable&) const = default;
};

// Sorted by name; parse_calibration_table() gives the same table back.
std::string to_string(const CalibrationTable& table);
// Skips blank lines and lines that begin with '#'. The lines model, samples and zero-points
// (present if zero points are 0) may be missing. Fails with kInvalidArgument, naming the line.
CalibrationTable parse_calibration_table(std::string_view text);

}  // namespace anneal
