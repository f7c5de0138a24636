// Flags that select the optimizer's passes and the kernels of a command.
#pragma once
#include <CLI/CLI.hpp>

#include "anneal/engine/builder/build_options.h"

namespace anneal {

// --skip-pass, --only-passes, --exact.
void add_pass_flags(CLI::App& command, BuildOptions& options);
// --skip-kernel.
void add_kernel_flags(CLI::App& command, BuildOptions& options);

}  // namespace anneal
