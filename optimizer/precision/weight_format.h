// PrecisionOptions::weight_format.
#pragma once
#include <cstdint>
#include <string>

namespace anneal {

struct WeightFormat {
  int bits = 0;       // 4 or 8; 0: weights stay as the model has them
  int64_t block = 0;  // consecutive weights of an output that share a scale; 0: all of an output
};

// "", "int8", "int4", "int4:64". Blocks have 32 weights of 4 bits, and all weights of 8 bits,
// unless the text says how many: an even number, 16 or more. Fails with kInvalidArgument.
WeightFormat parse_weight_format(const std::string& text);

}  // namespace anneal
