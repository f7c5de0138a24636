// The command `anneal`.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "anneal/core/version.h"

int main(int argc, char** argv) {
  CLI::App app("Anneal turns a trained network into an engine and runs it.", "anneal");
  app.set_version_flag("--version", fmt::format("anneal {}", anneal::version()));
  CLI11_PARSE(app, argc, argv);
  fmt::print("{}", app.help());
  return 0;
}
