// This file has the results of a run, and writes them as JSON.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// The place of the operands and of the result.
//   "host": host memory, for the CPU. "copied": host memory, so a run on a GPU copies them.
//   "stays": the GPU's memory.
struct Measurement {
  std::string type;  // "f32", "f16"
  int64_t size = 0;
  std::string device;       // "cpu", "gpu"
  std::string kernel;       // "naive", "tiled", "anneal", "library"
  std::string data;         // "host", "copied", "stays"
  std::string step_kernel;  // Anneal's name of the kernel
  int64_t runs = 0;
  double seconds = 0, fastest_seconds = 0;  // the median, the least
  std::vector<std::string> warnings = {};   // of the last run: what made it slower

  double flops() const;      // of the product, per second
  double intensity() const;  // operations for each byte of a, b and c
};

// Bytes that one product moves on the emulated device, which measures no time.
struct Count {
  std::string type;
  int64_t size = 0;
  std::string kernel, step_kernel;
  int64_t copied = 0;  // a, b and c between host and GPU, if they are in host memory
  // 32 bytes for each sector that a request of a warp touches; caches are not counted.
  int64_t global_load = 0, global_store = 0;
  int64_t shared = 0;  // 128 bytes for each cycle of the banks of shared memory
};

// The largest speed of each kind that the run itself has seen.
struct Ceilings {
  double bytes_per_second = 0;               // of a copy within the device's memory
  std::map<std::string, double> flops = {};  // by type: of the best product
  double to_gpu = 0, from_gpu = 0;           // bytes per second, page-locked; 0: no GPU
};

struct Crossover {
  std::string type, kernel, data;
  int64_t size = 0;  // the least from which on the GPU is faster at every size; 0: none
};

// Of the last minute: how many threads ran or waited for a core. -1: not known.
double load_average();

struct Report {
  std::string device;                                // of --device
  std::map<std::string, std::string> machines = {};  // by "cpu", "gpu"
  double seconds = 0;                                // of --seconds
  std::map<std::string, Ceilings> ceilings = {};     // by device
  std::vector<Measurement> measurements = {};
  std::vector<Count> counts = {};
  std::vector<std::string> skipped = {}, failed = {};  // one sentence each
  double load_before = load_average();                 // of the machine
  bool is_complete = false;                            // whether the run came to its end

  void add(const Measurement& measured);  // and raises the ceiling of its type
  // Of the roofline min(flops, bytes per second * intensity), from 0 on.
  double share(const Measurement& measured) const;
  std::vector<Crossover> crossovers() const;
  // The file is written whole or not at all.
  void write(const std::string& path) const;
};
