// Which of the optimizer's passes a command runs, and which kernels it may choose.
#pragma once
#include <CLI/CLI.hpp>

#include "anneal/optimizer/pass.h"

namespace anneal {

// --skip-pass, --only-passes, --exact.
void add_pass_flags(CLI::App& command, PassOptions& options);
// --skip-kernel.
void add_kernel_flags(CLI::App& command, std::vector<std::string>& skip);

}  // namespace anneal
