#include "anneal/optimizer/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace anneal {
namespace {

void check_skipped(std::span<const Pass> passes, const PassOptions& options) {
  for (const std::string& skipped : options.skip) {
    if (std::any_of(passes.begin(), passes.end(),
                    [&](const Pass& pass) { return pass.name == skipped; }))
      continue;
    std::string names;
    for (const Pass& pass : passes)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", pass.name);
    fail(Code::kInvalidArgument,
         fmt::format("there is no pass \"{}\" to skip; there are {}", skipped, names));
  }
}

// On the graph and on its bodies.
bool run(const Pass& pass, Graph& graph, const PassOptions& options) {
  bool changed = pass.run(graph, options);
  graph.erase_unused();
  for (Graph& body : graph.bodies()) changed |= run(pass, body, options);
  return changed;
}

}  // namespace

bool sweep(Graph& graph, const PassOptions& options,
           bool (*rule)(Graph&, LayerId, const PassOptions&)) {
  bool any = false;
  for (bool changed = true; changed; any |= changed) {
    changed = false;
    for (const LayerId id : graph.order()) {
      const Layer& layer = graph.layer(id);
      const bool used =
          std::any_of(layer.outputs.begin(), layer.outputs.end(), [&](ValueId output) {
            return !graph.value(output).users.empty() || graph.is_output(output);
          });
      if (used && rule(graph, id, options)) changed = true;
    }
    if (changed) graph.erase_unused();
  }
  return any;
}

std::vector<PassRecord> run_pipeline(Graph& graph, std::span<const Pass> passes,
                                     const PassOptions& options, const AfterPass& after_pass) {
  check_skipped(passes, options);
  std::vector<PassRecord> records;
  for (const Pass& pass : passes) {
    if (std::find(options.skip.begin(), options.skip.end(), pass.name) != options.skip.end()) {
      records.push_back({pass.name, "", "skipped"});
      continue;
    }
    PassOptions recording = options;
    recording.record = [&](std::string subject, std::string text) {
      options.record(subject, text);
      records.push_back({pass.name, std::move(subject), std::move(text)});
    };
    const auto start = std::chrono::steady_clock::now();
    const bool changed =
        with_context([&] { return fmt::format("while running pass {}", pass.name); },
                     [&] {
                       const bool did = run(pass, graph, recording);
                       verify(graph);
                       return did;
                     });
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (after_pass) after_pass(pass, graph, changed, took.count());
  }
  return records;
}

}  // namespace anneal
