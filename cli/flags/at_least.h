// A check of a number on the command line, with a refusal that a person understands.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace anneal {

inline CLI::Validator at_least(double smallest) {
  const auto refusal = [smallest](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= smallest) return {};
    return fmt::format("\"{}\" is no number of at least {}", text, smallest);
  };
  return {refusal, ""};
}

}  // namespace anneal
