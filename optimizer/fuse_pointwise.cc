// fuse_pointwise: an elementwise layer joins the elementwise layer that alone reads it.
//
//   a = Pointwise(x) program=f; y = Pointwise(a, b) program=g   =>   y = Pointwise(x, b)
//   program=g(f($0),$1)
//
// Not when the shapes differ (f would be computed again for every broadcast element), nor when f
// has several results. Every rounding step of both programs stays, so results do not change.
#include <fmt/format.h>

#include "anneal/optimizer/join_programs.h"
#include "anneal/optimizer/passes.h"
#include "anneal/optimizer/query.h"

namespace anneal {
namespace {

bool fuse(Graph& graph, LayerId id, PassRun& run) {
  const auto* first = op_as<Pointwise>(graph, id);
  if (!first || first->program.results().size() != 1 || !graph.layer(id).epilogues.empty())
    return false;
  const ValueId between = graph.layer(id).outputs[0];
  const LayerId user = sole_user(graph, between);
  const auto* second = op_as<Pointwise>(graph, user);
  if (!second || !graph.layer(user).epilogues.empty()) return false;
  if (graph.value(between).type().shape != graph.value(graph.layer(user).outputs[0]).type().shape)
    return false;

  const auto joined = join_programs(first->program, graph.layer(id).inputs, second->program,
                                    graph.layer(user).inputs, between);
  if (!joined) return false;
  std::vector<std::string> origins = graph.layer(id).origins;
  const auto& more = graph.layer(user).origins;
  origins.insert(origins.end(), more.begin(), more.end());
  const std::string joined_name = graph.layer(id).name;
  const Saving saved = saving_of(graph, between);
  const LayerId fused = graph.add({.name = graph.layer(user).name,
                                   .op = Pointwise{joined->program},
                                   .inputs = joined->inputs,
                                   .origins = std::move(origins)});
  graph.replace_layer(user, fused);
  run.did(graph.layer(fused).name, fmt::format("joined \"{}\"", joined_name), saved);
  return true;
}

}  // namespace

bool fuse_pointwise(Graph& graph, PassRun& run) { return sweep(graph, run, fuse); }

}  // namespace anneal
