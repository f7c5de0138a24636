#include "anneal/optimizer/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

bool names(const std::vector<std::string>& list, std::string_view pass) {
  return std::find(list.begin(), list.end(), pass) != list.end();
}

void check_names(std::span<const Pass> passes, const PassOptions& options,
                 const std::vector<std::string>& list, std::string_view purpose) {
  for (const std::string& wanted : list) {
    if (&list == &options.skip && wanted == kAllPasses) continue;
    if (std::any_of(passes.begin(), passes.end(),
                    [&](const Pass& pass) { return pass.name == wanted; }))
      continue;
    std::string known;
    for (const Pass& pass : passes)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", pass.name);
    fail(ErrorCode::kInvalidArgument,
         fmt::format("there is no pass \"{}\" to {}; there are {}", wanted, purpose, known));
  }
}

// On the graph and on its bodies.
bool run(const Pass& pass, Graph& graph, PassRun& run_of) {
  bool changed = pass.run(graph, run_of);
  graph.erase_unused();
  for (Graph& body : graph.bodies()) changed |= run(pass, body, run_of);
  return changed;
}

}  // namespace

bool is_skipped(std::string_view pass, const PassOptions& options) {
  return names(options.skip, kAllPasses) || names(options.skip, pass) ||
         (!options.only.empty() && !names(options.only, pass));
}

std::string_view why_left_out(const Pass& pass, const PassOptions& options) {
  if (names(options.skip, kAllPasses) || names(options.skip, pass.name)) return "skipped";
  if (is_skipped(pass.name, options)) return "skipped: not among the requested passes";
  if (options.exact && !pass.exact) return "skipped: it may change numerics";
  return {};
}

Saving saving_of(const Graph& graph, ValueId between) {
  const Type& type = graph.value(between).type();
  if (type.container != Container::kTensor || type.dtype == DataType::kString) return {1, 0};
  int64_t bytes = static_cast<int64_t>(size_of(type.dtype));
  for (const Size size : type.shape) bytes *= graph.sizes().range(size).opt;
  return {1, 2 * bytes};
}

void PassRun::begin(std::string_view pass) {
  pass_ = pass;
  refusals_.clear();
  noted_.clear();
}

void PassRun::note(const Graph& body, std::shared_ptr<const BodyContext> found) {
  noted_[&body] = std::move(found);
}

const BodyContext* PassRun::noted(const Graph& body) const {
  const auto found = noted_.find(&body);
  return found == noted_.end() ? nullptr : found->second.get();
}

void PassRun::did(std::string subject, std::string text, Saving saved) {
  ++rewrites_;
  records_.push_back({pass_, std::move(subject), std::move(text), false, saved});
}

void PassRun::refused(std::string subject, std::string text) {
  if (!refusals_.emplace(subject, text).second) return;
  records_.push_back({pass_, std::move(subject), std::move(text), true, {}});
}

bool sweep(Graph& graph, PassRun& run, bool (*rule)(Graph&, LayerId, PassRun&)) {
  bool any = false;
  for (bool changed = true; changed; any |= changed) {
    changed = false;
    for (const LayerId id : graph.order()) {
      if (!run.may_rewrite()) break;
      const Layer& layer = graph.layer(id);
      const bool used =
          std::any_of(layer.outputs.begin(), layer.outputs.end(), [&](ValueId output) {
            return !graph.value(output).users.empty() || graph.is_output(output);
          });
      if (used && rule(graph, id, run)) changed = true;
    }
    if (changed) graph.erase_unused();
  }
  return any;
}

std::vector<PassRecord> run_pipeline(Graph& graph, std::span<const Pass> passes,
                                     const PassOptions& options, const AfterPass& after_pass) {
  check_names(passes, options, options.skip, "skip");
  check_names(passes, options, options.only, "run");
  PassRun pass_run(options);
  for (const Pass& pass : passes) {
    pass_run.begin(pass.name);
    if (const std::string_view why = why_left_out(pass, options); !why.empty()) {
      pass_run.refused("", std::string(why));
      continue;
    }
    if (!pass_run.may_rewrite()) break;
    const uint64_t before = pass_run.rewrites();
    const auto start = std::chrono::steady_clock::now();
    const bool changed =
        with_context([&] { return fmt::format("while running pass {}", pass.name); },
                     [&] {
                       const bool did = run(pass, graph, pass_run);
                       if (did) graph.refine();  // a rewrite may show more of sizes
                       verify(graph);
                       return did;
                     });
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (after_pass) after_pass({pass, graph, changed, pass_run.rewrites() - before, took.count()});
  }
  return pass_run.take_records();
}

}  // namespace anneal
