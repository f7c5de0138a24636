// Tuning for commands: `anneal tune`, and `anneal build --max-drop`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "anneal/cli/flags/data_flags.h"
#include "anneal/cli/model/model_source.h"
#include "anneal/engine/builder/build_options.h"

namespace anneal {

struct TuneFlags {
  std::string model, output;  // output: not empty
  ShapeFlags shapes;
  DataFlags data;
  BuildOptions build;          // one target; tuning chooses the precision
  std::string metric;          // empty: top1 if there are labels, else cosine
  std::string metric_command;  // instead of one by name
  std::string metric_output;   // of a metric by name
  std::optional<double> max_drop, min_score;
  std::string calibration;                  // the file; empty: none
  std::vector<std::string> precisions;      // empty: those that pay
  std::vector<std::string> frontier_files;  // by their suffix: .json, .csv, .svg, .txt
  bool verbose = false, quiet = false;
};

// Writes the engine, the frontier beside it (OUTPUT without .engine + .tuned.json, what --mix
// reads), and the files asked for; prints the frontier. Results so far are in OUTPUT.tuning, until
// it ends.
int tune_model(const TuneFlags& flags);

}  // namespace anneal
