// The search for a rewrite of the optimizer that makes results wrong.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "anneal/optimizer/pass.h"

namespace anneal {

struct Harm {
  PassRecord rewrite;
  uint64_t number = 0, of = 0;                  // among all rewrites of the pipeline, from 1
  uint64_t number_in_pass = 0, of_in_pass = 0;  // among its pass's
  std::string before, after;  // the lines of the graph's text that the rewrite replaced, and put
};

// The rewrite before which the graph is right, and after which it is not: nullopt if it is right
// after all of them, kInvalidArgument if it is wrong before the first. Halves the number of
// rewrites, so is_right() is asked about as often as that number has bits; if the graph becomes
// right and wrong several times, one such place is found. options.rewrite_limit is not looked at.
std::optional<Harm> find_harm(const Graph& graph, std::span<const Pass> passes,
                              const PassOptions& options,
                              const std::function<bool(const Graph&)>& is_right);

}  // namespace anneal
