// Makes a failing graph smaller as long as it fails the same way.
#pragma once
#include <functional>

#include "anneal/tests/random/judge.h"

namespace anneal::random_graphs {

using Judge = std::function<std::optional<Failure>(const RandomModel&, const JudgeOptions&)>;

// Leaves out outputs, steps and nodes, and shrinks sizes.
Recipe reduced(const Recipe& recipe, const Failure& failure, const Judge& judge);

}  // namespace anneal::random_graphs
