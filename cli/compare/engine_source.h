// What a command runs: an engine, or a model that is built in memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/cli/model/import_model.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/run/debug.h"

namespace anneal {

// As a target of a model: no passes and only the reference kernels.
inline constexpr std::string_view kReferenceTarget = "reference";
// All passes, and only the reference kernels.
inline constexpr std::string_view kReferenceKernelsTarget = "reference-kernels";

struct EngineSource {
  std::string path;
  std::string target = "cpu";  // of a model: what to build for; of an engine: where to run it
  BuildOptions build = {};     // of a model, but for the targets; the reference takes only times
  ShapeFlags shapes = {};      // of a model
  std::vector<std::string> inputs = {};  // values of --input that it will be run with
  bool map = true;
  int threads = 0;  // that load
  DebugOptions debug = {};
};

// Fails as building and loading do.
std::shared_ptr<const Engine> engine_from(const EngineSource& source);

}  // namespace anneal
