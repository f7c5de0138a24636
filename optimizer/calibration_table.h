// The ranges of a model's tensors, and how its layers are to be quantized, as calibration found
// them: a text file to read, compare and edit.
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
  float min = 0, max = 0;            // that is quantized; what lies beyond is clamped
  float seen_min = 0, seen_max = 0;  // of all samples
  std::string method{};              // that chose min and max: "minmax", "entropy", "by hand", ...
  bool operator==(const TensorRange&) const = default;
};

struct LayerQuantization {
  bool fits_weights = false;  // scales of least squared error; else by the largest magnitudes
  // The mean squared error of the layer's results over their mean square, for the same inputs: by
  // ranges alone, for people; and as this says, by which insert_quantize decides. 0: not measured.
  float error_by_ranges = 0, error = 0;
  bool operator==(const LayerQuantization&) const = default;
};

struct CalibrationTable {
  static constexpr int kMostExponent = 30;
  std::string model{};       // its name
  uint64_t fingerprint = 0;  // of the imported graph; 0: of no certain one
  int64_t samples = 0;
  bool symmetric = false;                                     // made for zero points of 0
  std::map<std::string, TensorRange, std::less<>> tensors{};  // by the value's name in the model
  // By the layer's name. One that is missing has scales by the largest magnitudes.
  std::map<std::string, LayerQuantization, std::less<>> layers{};
  // By the layer's name: the correction that is added to each channel of its results for the mean
  // error of rounding.
  std::map<std::string, std::vector<float>, std::less<>> biases{};
  // By the value's name: channel i is multiplied by 2^exponents[i], which its readers take back.
  // No exponent's magnitude is more than kMostExponent.
  std::map<std::string, std::vector<int>, std::less<>> exponents{};
  bool operator==(const CalibrationTable&) const = default;
};

// Sorted by name; parse_calibration_table() gives the same table back.
std::string to_string(const CalibrationTable& table);
// Blank lines, and lines that begin with '#', are skipped; the lines model, samples and zero-points
// (present if they shall be 0) may be missing. Fails with kInvalidArgument, naming the line.
CalibrationTable parse_calibration_table(std::string_view text);

}  // namespace anneal
