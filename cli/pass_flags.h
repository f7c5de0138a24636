// Which of the optimizer's passes a command runs.
#pragma once
#include <CLI/CLI.hpp>

#include "anneal/optimizer/pass.h"

namespace anneal {

// --skip-pass, --only-passes, --exact.
void add_pass_flags(CLI::App& command, PassOptions& options);

}  // namespace anneal
