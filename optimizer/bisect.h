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

// The rewrite before which the graph is right, and after which it is wrong: nullopt if it is right
// after all rewrites, kInvalidArgument if it is wrong before the first. Bisects the number of
// rewrites, so is_right() is called about log2 times; if the graph becomes right and wrong several
// times, one such rewrite is found. options.rewrite_limit is ignored.
std::optional<Harm> find_harm(const Graph& graph, std::span<const Pass> passes,
                              const PassOptions& options,
                              const std::function<bool(const Graph&)>& is_right);

}  // namespace anneal
