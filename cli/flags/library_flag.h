// --library, the flag of the commands that read models or engines.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "anneal/cli/flags/help.h"

namespace anneal {

inline void add_library_flag(CLI::App& command, std::vector<std::string>& libraries) {
  command
      .add_option("--library", libraries,
                  "Library with kernels of other operators (docs/custom_kernels.md)")
      ->allow_extra_args(false)
      ->type_name("FILE")
      ->group(often(help::kFiles));
}

}  // namespace anneal
