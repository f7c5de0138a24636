// f32 beside a build of lower precision, without doing again what both builds do.
#pragma once
#include <optional>
#include <string>

#include "anneal/engine/builder/builder.h"

namespace anneal {

// Keeps the graph as the passes leave it before the first one that a lower precision changes; f32
// goes on from there.
class F32Build {
 public:
  // options: of the build of lower precision. target: that of f32.
  F32Build(GraphBuildOptions options, std::string target);

  // The options to build the lower precision with: the given options, which also keep the graph on
  // the way. REQUIRES: this outlives the build.
  GraphBuildOptions watched();
  // model: as both started. Fails as build() does.
  EngineFile build(const Graph& model) const;
  // Options for another build that is only run, for the target.
  GraphBuildOptions silent() const;

 private:
  GraphBuildOptions options_;
  std::string target_;
  std::optional<Graph> kept_;
};

}  // namespace anneal
