// One network over one set of pictures in three ways: one stage after the other, reading ahead, and
// reading ahead for two contexts.
#pragma once
#include <anneal/anneal.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "timeline.h"

enum class Mode { kSerial, kReadAhead, kContexts };
inline constexpr Mode kModes[] = {Mode::kSerial, Mode::kReadAhead, Mode::kContexts};
inline constexpr const char* kModeNames[] = {"one after the other", "read ahead", "two contexts"};

struct Work {
  std::shared_ptr<const anneal::Engine> engine;
  std::shared_ptr<const anneal::Dataset> pictures;
  int64_t batch = 1, batches = 1;
  int threads = 1;  // that decode ahead
};

// The share of the machine's cores that this process used from the entry before to `time`.
struct CoresBusy {
  double time = 0, share = 0;
};

struct ModeResult {
  Mode mode = Mode::kSerial;
  double began = 0;  // Unix time
  double seconds = 0;
  std::vector<Lane> lanes = {};
  std::vector<CoresBusy> cores_busy = {};
  double mean_cores_busy = 0;
  std::vector<float> outputs = {};  // of all batches
};

// Throws what a stage throws.
ModeResult run_mode(Mode mode, const Work& work);

// The share of its threads' time that a stage took; of computing, of the time: 0 to 1.
double busy_share(const ModeResult& result, Stage stage, int threads);
// "The bottleneck is decoding: ...", one line.
std::string bottleneck_text(const ModeResult& result, int threads);
