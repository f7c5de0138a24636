// The input of a command: an engine, or a model that is built in memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/cli/model/model_source.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/run/debug.h"

namespace anneal {

struct EngineSource {
  std::string path;
  std::string target = "cpu";  // of a model: what to build for; of an engine: where to run it
  BuildOptions build = {};     // of a model, but for the targets; the reference takes only times
  ShapeFlags shapes = {};      // of a model, but for the libraries
  std::vector<std::string> inputs = {};  // values of --input that it will be run with
  std::string weights = {};              // of an engine whose weights are apart: their file
  bool map = true;
  int threads = 0;  // that load
  DebugOptions debug = {};
};

// The model of the source as a build sees it: for its target, with its shapes. Prints the remarks.
BuiltEngine build_source(const EngineSource& source);
// Fails as building and loading do.
std::shared_ptr<const Engine> open_or_build(const EngineSource& source);

}  // namespace anneal
