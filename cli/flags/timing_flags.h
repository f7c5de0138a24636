// Flags for the choice of kernels by measured times.
#pragma once
#include <CLI/CLI.hpp>

#include "anneal/engine/builder/build_options.h"

namespace anneal {

// --time-kernels, --timing-cache, and those of add_tuning_flags()
void add_timing_flags(CLI::App& command, BuildOptions& options);
// --optimization-level and --tune-seconds
void add_tuning_flags(CLI::App& command, BuildOptions& options);
// Of the commands that time the kernels of an engine: those of add_tuning_flags(), --time-threads,
// --library and --verbose.
void add_engine_timing_flags(CLI::App& command, BuildOptions& options, bool& verbose);
// Looks at the place of the cache before the work, as check_output_file() does.
void check_timing_cache(const BuildOptions& options);

}  // namespace anneal
