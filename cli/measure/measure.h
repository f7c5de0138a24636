// Measuring runs of an engine: several contexts side by side, after a warm-up.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/cli/measure/process_facts.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// How long something is done: a number of times, or a number of seconds.
struct Amount {
  std::optional<int> runs;
  double seconds = 0;
};
// "10", "200ms", "1.5s". Fails with kInvalidArgument, naming the flag.
Amount parse_amount(std::string_view text, std::string_view flag);

struct MeasureOptions {
  Amount warmup{std::nullopt, 0.2};
  Amount measured{std::nullopt, 3};  // of each context; at least kFewestRuns
  int threads = 0;                   // of each context
  int contexts = 1;
  int64_t micro_batch = 0;  // as in ContextOptions
  int profile = -1;         // likewise
  size_t max_memory = 0;    // as in ContextOptions, of each context
  bool spin = false;        // as in ContextOptions
};
inline constexpr int kFewestRuns = 3;

struct Measurement {
  double context_milliseconds = 0;   // making one context
  double first_milliseconds = 0;     // its first run, which places memory and prepares kernels
  std::vector<double> milliseconds;  // of every measured run of every context
  int warmup_runs = 0;
  double seconds = 0;        // from the first start to the last end
  size_t arena_bytes = 0;    // of one context: what was planned for activations
  size_t context_bytes = 0;  // of one context: arena, workspaces and staging
  MachineLoad load;
  std::unique_ptr<ExecutionContext> context;  // the first, to go on with
};
// All contexts are given the same inputs, which must outlive the measurement. An error of any run
// ends it and is thrown.
Measurement measure(const std::shared_ptr<const Engine>& engine, const std::vector<Tensor>& inputs,
                    const MeasureOptions& options,
                    const std::function<void(std::string_view)>& progress);

struct Latency {
  double min, mean, median, p90, p95, p99, max;
};
Latency latency_of(const std::vector<double>& milliseconds);  // REQUIRES: not empty

}  // namespace anneal
