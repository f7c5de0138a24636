// Flags for the precision of layers, for commands that build a model.
#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/builder/build_options.h"

namespace anneal {

struct PrecisionFlags {
  bool f16 = false, bf16 = false, int8 = false, best = false, symmetric = false;
  float max_layer_error = PrecisionOptions().max_layer_error;
  std::vector<std::string> layers;  // "REGEX=int8"
  std::string calibration;          // the file; empty: none
  std::string mix;                  // "FILE", "FILE:POINT"; empty: none
  bool self_check = true;
  double self_check_work = kSelfCheckWork / 1e9;  // in thousand millions
};

// --fp16, --bf16, --int8, --best, --symmetric, --layer-precision, --max-layer-error,
// --calibration, --mix, --no-self-check, --self-check-work.
void add_precision_flags(CLI::App& command, PrecisionFlags& flags);

// targets: those that the model is built for, which --best depends on. Reads the table. Fails with
// kInvalidArgument or kIo, also if int8 is asked for without ranges, unless the command will
// calibrate.
PrecisionOptions precision_options(const PrecisionFlags& flags,
                                   std::span<const std::string> targets,
                                   bool will_calibrate = false);

// What the flags say of the self-check. A mix that was tuned was judged on samples and is not
// checked again.
void set_self_check(const PrecisionFlags& flags, BuildOptions& build);

// Sentences on precisions that were asked for and gain little on a target.
std::vector<std::string> precision_notes(const PrecisionFlags& flags,
                                         const PrecisionOptions& options,
                                         std::span<const std::string> targets);

// A calibration table, the file named in errors.
CalibrationTable read_calibration_table(const std::string& path);

}  // namespace anneal
