// --max-memory, the flag of the commands that build or run.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "anneal/cli/flags/at_least.h"

namespace anneal {

template <class Bytes>
CLI::Option* add_memory_flag(CLI::App& command, Bytes& bytes, const std::string& meaning) {
  CLI::Validator size = CLI::AsSizeValue(false);
  return command.add_option("--max-memory", bytes, meaning + ": 512MB, 2GB (1024-based)")
      ->transform(size.description(""))
      ->check(at_least(1))
      ->type_name("BYTES");
}

}  // namespace anneal
