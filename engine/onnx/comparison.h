// The comparison of two engines as JSON: docs/cli.md, `anneal compare --json`.
#pragma once
#include <nlohmann/json.hpp>

#include "anneal/engine/compare/compare_engines.h"

namespace anneal {

// Without the names of the files.
nlohmann::ordered_json comparison_json(const EngineComparison& comparison, const Engine& a);

}  // namespace anneal
