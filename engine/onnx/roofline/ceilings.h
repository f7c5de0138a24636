// The ceilings of the roofline model: the bandwidths and the rates of arithmetic that a device
// reaches at best. A CPU is measured; of a GPU the published figures are taken.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/onnx/roofline/plan_work.h"

namespace anneal {

// A cache or the memory.
struct MemoryLevel {
  std::string name;    // "L2", "L3", "memory"
  uint64_t bytes = 0;  // of the caches of all threads together; 0: the memory
  // Bytes per second of all threads: of loads alone, and of a copy, which counts the bytes that are
  // read and written, as STREAM does. For a GPU, both are the published figure.
  double read = 0, copy = 0;
  double bandwidth() const { return read > copy ? read : copy; }
};
struct ProductRate {
  ProductType type = ProductType::kF32;
  double per_second = 0;  // multiplications and additions
};
struct RooflineCeilings {
  std::string device;     // "AMD EPYC", "H100 SXM"
  std::string isa;        // of a CPU
  int threads = 0;        // likewise
  std::string date;       // of the measurement: "2026-11-26 15:20 UTC"; empty: published figures
  bool was_busy = false;  // other processes used the cores meanwhile
  std::vector<MemoryLevel> levels;  // the fastest first; the last is the memory
  std::vector<ProductRate> rates;   // f32 is among them
  double start_seconds = 0;         // of a step, before its first instruction; an assumption

  // The rate of f32 stands for a type that has none.
  double rate(ProductType type) const;
  // The fastest level that has room for these bytes.
  const MemoryLevel& level_of(double bytes) const;
};

// Measures this CPU for a second or two: multiplications and additions in registers, reading and
// copying arrays in each cache and beyond the last one. isa: "avx2" and the like. Fails with
// kInvalidArgument if the CPU, or ANNEAL_MAX_ISA, does not have it.
RooflineCeilings probe_cpu(const std::string& isa, int threads);

// The result of an earlier probe in Anneal's cache folder (docs/environment.md), for this CPU, isa
// and number of threads. nullopt: there is none, or the file is damaged or of another version.
std::optional<RooflineCeilings> kept_ceilings(const std::string& isa, int threads);
// Does nothing if there is no cache folder, or if it cannot be written.
void keep_ceilings(const RooflineCeilings& ceilings);
std::string ceilings_path(const std::string& isa, int threads);  // empty: no cache folder
std::string ceilings_text_as_json(const RooflineCeilings& ceilings);

// Published figures of the card that the plan's target is named for. Fails with kDevice if the
// target is a GPU that is not known.
RooflineCeilings card_ceilings(const std::string& target);
// Those of the GPU that the engine runs on.
RooflineCeilings card_ceilings(const Engine& engine);

}  // namespace anneal
