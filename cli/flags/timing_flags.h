// Flags for the choice of kernels by measured times.
#pragma once
#include <CLI/CLI.hpp>

#include "anneal/engine/builder/build_options.h"

namespace anneal {

// --time-kernels and --timing-cache
void add_timing_flags(CLI::App& command, BuildOptions& options);
// Looks at the place of the cache before the work, as check_output_file() does.
void check_timing_cache(const BuildOptions& options);

}  // namespace anneal
