// Flags that select the optimizer's passes and the kernels of a command.
#pragma once
#include <CLI/CLI.hpp>

#include "anneal/cli/flags/help.h"
#include "anneal/engine/builder/build_options.h"

namespace anneal {

// --skip-pass, --only-passes, --exact. group: whether --help shows the first and the last.
void add_pass_flags(CLI::App& command, BuildOptions& options, HelpGroup group = rarely);
// --skip-kernel.
void add_kernel_flags(CLI::App& command, BuildOptions& options);

}  // namespace anneal
