// The results of one run of the sample, and their JSON, which draw.py draws.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "modes.h"

struct Results {
  std::string model, data, device;
  int64_t batch = 1, batches = 1;
  int threads = 1;  // that decode ahead
  std::vector<ModeResult> modes = {};
};

// The file appears as a whole or not at all. Throws std::runtime_error.
void write_json(const Results& results, const std::string& path);
