// `anneal bench --decode`.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anneal/cli/measure/measure.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

struct BenchDecodeSource {
  std::string path;  // of the engine or the model
  std::string json;  // file to write; empty: none
};

// Prints, for each length, the time of a prompt of that many tokens, and of the next token behind
// them. amount: of runs for each time. Fails as Decoder and runs do.
void bench_decode(const std::shared_ptr<const Engine>& engine, const BenchDecodeSource& source,
                  const std::vector<int64_t>& lengths, const ContextOptions& options,
                  const Amount& amount);

}  // namespace anneal
