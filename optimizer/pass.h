// A pass is a function; its name is its file, its flag and its golden test.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// What passes tell: "joined relu1" about "conv1".
struct PassRecord {
  std::string_view pass;
  std::string subject, text;
};

struct PassOptions {
  uint64_t fold_budget_bytes = 16 << 20;  // largest constant that folding may create
  bool half_is_native = false;            // a target computes in f16 and bf16: they stay
  std::vector<std::string> skip;          // passes not to run, by name
  std::function<void(std::string subject, std::string text)> record = [](const std::string&,
                                                                         const std::string&) {};
};

struct Pass {
  std::string_view name;
  std::string_view summary;  // one line, for --list-passes
  bool exact;  // false: may change numerics beyond what docs/graph_text.md calls equal
  bool (*run)(Graph&, const PassOptions&);  // whether it changed the graph
};

// Calls the rule on each live layer, in order, until nothing changes.
bool sweep(Graph& graph, const PassOptions& options,
           bool (*rule)(Graph&, LayerId, const PassOptions&));

std::span<const Pass> default_pipeline();  // the table of contents: pipeline.cc
// After every pass: erase_unused(), verify(), and after_pass for dumps and timing. Fails with
// kInvalidArgument if options.skip names no pass.
using AfterPass =
    std::function<void(const Pass& pass, const Graph& graph, bool changed, double milliseconds)>;
std::vector<PassRecord> run_pipeline(Graph& graph, std::span<const Pass> passes,
                                     const PassOptions& options, const AfterPass& after_pass = {});

}  // namespace anneal
