// --weights, the flag of the commands that load engines.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "anneal/cli/flags/help.h"

namespace anneal {

inline void add_weights_flag(CLI::App& command, std::string& weights) {
  command
      .add_option("--weights", weights,
                  "Weights of an engine that was built with --weights (docs/refit.md)")
      ->type_name("FILE")
      ->group(rarely(help::kFiles));
}

}  // namespace anneal
