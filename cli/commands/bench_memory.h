// `anneal bench --memory-by-batch`.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/run/engine.h"

namespace anneal {

struct BenchMemoryFlags {
  bool is_set = false;
  std::vector<int64_t> batches;  // empty: 1, 4 and 16, as far as the engine takes them
  uint64_t limit = 0;            // bytes; 0: what the machine has available
};
void add_bench_memory_flags(CLI::App& command, BenchMemoryFlags& flags);

struct BenchMemorySource {
  std::string path;                 // of the engine or the model
  std::vector<std::string> inputs;  // values of --input
  std::string shapes;               // the value of --shapes
};
struct BenchMemoryFiles {
  std::string json, picture;  // empty: not written
};
// Prints formula, numbers and the largest batch, and writes them to the files. Fails as
// MemoryByBatch and write_picture() do.
void bench_memory(const std::shared_ptr<const Engine>& engine, const BenchMemorySource& source,
                  const BenchMemoryFlags& flags, const ContextOptions& options, int contexts,
                  const BenchMemoryFiles& files);

}  // namespace anneal
