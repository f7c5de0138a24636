// --max-memory, the flag of the commands that build or run.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "anneal/cli/flags/at_least.h"

namespace anneal {

template <class Bytes>
void add_memory_flag(CLI::App& command, Bytes& bytes, const std::string& meaning) {
  command.add_option("--max-memory", bytes, meaning + ": 512MB, 2GB (of 1024 each)")
      ->transform(CLI::AsSizeValue(false))
      ->check(at_least(1))
      ->type_name("BYTES");
}

}  // namespace anneal
