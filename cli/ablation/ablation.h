// An ablation: the same model with nothing, and then with each family of optimizations added, and
// its forms: a table, JSON and a waterfall.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anneal/cli/ablation/variants.h"
#include "anneal/cli/measure/process_facts.h"
#include "anneal/cli/output/json_file.h"

namespace anneal {

// The difference from the reference: the unoptimized model in its own types on the reference
// kernels of the CPU.
struct OutputError {
  double max_abs = 0;    // over all outputs
  double relative = 0;   // the largest share of an output's largest magnitude
  std::string why = {};  // an output has another type or shape; empty: none
};

struct AblationRow {
  std::string name;
  std::vector<std::string> passes;  // that it adds
  size_t rewrites = 0;              // that these made
  size_t steps = 0, launches = 0;   // of the outermost plan; launches: steps on a GPU
  uint64_t moved_bytes = 0;
  std::optional<uint64_t> activation_bytes;  // as anneal inspect shows; empty: not known
  // Of each measured run, and the median of each round; none: no device that has times.
  std::vector<double> milliseconds, round_medians;
  OutputError error;
  double build_milliseconds = 0;
};

struct Ablation {
  std::string file = {}, target = {}, machine = {};
  std::vector<std::string> inputs = {};  // "x: f32[1,3,224,224]"
  std::string flags = {};                // with which anneal build makes the engine of the last row
  bool is_for_gpu = false;
  bool has_bodies = false;  // of control flow, whose steps do not count
  int threads = 0, rounds = 0;
  std::vector<AblationRow> rows = {};  // at least two
  std::vector<LeftOutFamily> left_out = {};
  std::optional<MachineLoad> load = {};  // while it was measured
  bool counts_waiting = true;            // whether latency includes waiting for a core

  bool has_times() const { return load.has_value(); }
};

// Whether neither row is known to be faster: the medians of their rounds overlap, there are fewer
// than four rounds, or the medians of all runs differ by less than 2 %. REQUIRES: both have times
bool is_within_noise(const AblationRow& a, const AblationRow& b);

std::string ablation_text(const Ablation& ablation);
Json ablation_json(const Ablation& ablation);
// Of the median latencies; without times, of the bytes moved.
std::string ablation_svg(const Ablation& ablation);

}  // namespace anneal
