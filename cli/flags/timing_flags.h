// Flags for the choice of kernels by measured times.
#pragma once
#include <CLI/CLI.hpp>

#include "anneal/engine/builder/builder.h"

namespace anneal {

void add_timing_flags(CLI::App& command, KernelTiming& timing);
// Looks at the place of the cache before the work, as check_output_file() does.
void check_timing_cache(const KernelTiming& timing);

}  // namespace anneal
