// The results of one run of the sample, and their JSON, which draw.py draws.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// The medians of repeated runs at one batch size, in microseconds.
struct BatchTime {
  int64_t points = 0;
  double cpu = 0;           // inputs and outputs in host memory
  double gpu = 0;           // the same, with the copies to the GPU and back
  double gpu_resident = 0;  // inputs and outputs in the GPU's memory
};

// The smallest batch size from which on the GPU is faster than the CPU at all measured sizes.
struct Crossover {
  int64_t cpu_wins = 0, gpu_wins = 0;  // neighbours among the measured sizes
  double points = 0;                   // between them, where the two lines of the picture meet
};

struct Results {
  std::string device;              // "cuda", "emulated"
  std::string cpu_name, gpu_name;  // of the two engines
  std::string machine;             // the CPU's model
  unsigned cores = 0;
  int side = 0;      // the grid has side x side points, x running fastest
  double range = 0;  // of x and y: from -range to range
  std::vector<float> truth = {}, cpu = {}, gpu = {};  // heights
  double largest_difference = 0;                      // between cpu and gpu
  double rms_error = 0, largest_error = 0;            // of cpu against truth
  std::vector<BatchTime> times = {};                  // empty: the device's times have no meaning
  std::optional<Crossover> crossover = {}, crossover_resident = {};
};

// Where `gpu` of the times gets below `cpu`, and stays there; none: it never does, or always is.
std::optional<Crossover> find_crossover(const std::vector<BatchTime>& times,
                                        double BatchTime::*gpu);

// The file appears as a whole or not at all. Throws std::runtime_error.
void write_json(const Results& results, const std::string& path);
