// What each thread did, and when.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

enum class Stage { kDecode, kCopy, kCompute };
inline constexpr const char* kStageNames[] = {"decode", "copy", "compute"};

// Seconds since the start of the mode.
struct Interval {
  Stage stage = Stage::kDecode;
  double start = 0, end = 0;
  int64_t batch = 0;
};

// The intervals of one thread, one after another. Only that thread may use it.
struct Lane {
  std::string name;
  std::vector<Interval> intervals = {};
};

class StageClock {
 public:
  double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  // Runs the work and records its time in the lane.
  template <class Work>
  void timed(Lane& lane, Stage stage, int64_t batch, const Work& work) const {
    const double start = now();
    work();
    lane.intervals.push_back({stage, start, now(), batch});
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Seconds of the stage, summed over all lanes.
double sum_of(const std::vector<Lane>& lanes, Stage stage);
// Seconds in which at least one lane was in the stage.
double covered_by(const std::vector<Lane>& lanes, Stage stage);
