// The ranges of a model's tensors, as calibration found them: a text file to read, compare and
// edit.
//
//   anneal calibration 1
//   model "mobilenet_v2" 1f2e3d4c5b6a7988
//   samples 100
//   # min  max  smallest seen  largest seen  method  tensor
//   0 5.87 0 6 mse "relu_3"
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace anneal {

struct TensorRange {
  float min = 0, max = 0;            // that is quantized; what lies beyond is clamped
  float seen_min = 0, seen_max = 0;  // of all samples
  std::string method{};              // that chose min and max: "minmax", "entropy", "by hand", ...
  bool operator==(const TensorRange&) const = default;
};

struct CalibrationTable {
  std::string model{};       // its name
  uint64_t fingerprint = 0;  // of the imported graph; 0: of no certain one
  int64_t samples = 0;
  std::map<std::string, TensorRange, std::less<>> tensors{};  // by the value's name in the model
  bool operator==(const CalibrationTable&) const = default;
};

// Sorted by tensor; parse_calibration_table() gives the same table back.
std::string to_text(const CalibrationTable& table);
// Blank lines, and what follows a '#' at the start of a line, are skipped; the lines model and
// samples may be missing. Fails with kInvalidArgument, naming the line.
CalibrationTable parse_calibration_table(std::string_view text);

}  // namespace anneal
