// Flags for the precision of layers, for commands that build a model.
#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "anneal/cli/flags/help.h"
#include "anneal/engine/builder/build_options.h"

namespace anneal {

struct PrecisionFlags {
  bool f16 = false, bf16 = false, int8 = false, best = false, symmetric = false;
  float max_layer_error = PrecisionOptions().max_layer_error;
  std::vector<std::string> layers;  // "REGEX=int8"
  std::string weight_format;        // "int4:64"; empty: floats
  std::string calibration;          // the file; empty: none
  std::string mix;                  // "FILE", "FILE:POINT"; empty: none
  bool self_check = true;
  double self_check_work = SelfCheckOptions{}.most_work / 1e9;  // in billions
};

// --fp16, --bf16, --int8, --best, --symmetric, --layer-precision, --weight-format,
// --max-layer-error, --calibration, --mix, --no-self-check, --self-check-work. group: whether
// --help shows all of these that are not for experts, or the first four only.
void add_precision_flags(CLI::App& command, PrecisionFlags& flags, HelpGroup group = rarely);

// Reads the table. Fails with kInvalidArgument or kIo, also if int8 is asked for without ranges,
// unless the command will calibrate.
PrecisionOptions precision_options(const PrecisionFlags& flags, bool will_calibrate = false);

// Sets the self-check from the flags. A mix of anneal tune was judged on samples and is not
// checked again.
void set_self_check(const PrecisionFlags& flags, BuildOptions& build);

// A calibration table, the file named in errors.
CalibrationTable read_calibration_table(const std::string& path);

}  // namespace anneal
