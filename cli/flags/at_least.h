// Checks of numbers on the command line, with errors that a person understands.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace anneal {

inline CLI::Validator at_least(double smallest) {
  const auto refusal = [smallest](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= smallest) return {};
    return fmt::format("\"{}\": a number of at least {} is expected", text, smallest);
  };
  return {refusal, ""};
}

inline CLI::Validator between(double smallest, double largest) {
  const auto refusal = [smallest, largest](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= smallest && value <= largest) return {};
    return fmt::format("\"{}\": a number from {} to {} is expected", text, smallest, largest);
  };
  return {refusal, ""};
}

}  // namespace anneal
