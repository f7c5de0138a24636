// Runs an engine over samples, batch by batch.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

struct SampleRunOptions {
  int threads = 0;       // of an inference; 0: one per core
  int data_threads = 0;  // that read samples; 0: one per core
  int64_t most = 0;      // samples; 0: all
  Observer observer{};   // of all runs; may be empty
};

// The inputs and outputs of one run.
struct SampleRun {
  ExecutionContext& context;  // that has just run
  std::span<const SampleTensor> inputs;
  std::string samples;  // that were in the batch, for people
  int64_t done = 0;     // samples, those of this batch included
};

// Calls `after` after each run. Batches have the engine's size; a last batch that lacks samples
// repeats some. Fails as reading samples, batch_size() and running do, naming the samples.
void run_samples(const std::shared_ptr<const Engine>& engine,
                 const std::shared_ptr<const Dataset>& samples, const SampleRunOptions& options,
                 const std::function<void(const SampleRun&)>& after);

}  // namespace anneal
