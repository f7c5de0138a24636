// build_engine() that writes the graph as text on the way, for the command.
#pragma once
#include <string>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/onnx/onnx_model.h"

namespace anneal {

struct GraphDumps {
  std::string graph;  // a file: the optimized graph; empty: none
  std::string
      passes_folder;  // FOLDER/TARGETS/03-fold_constants.txt after each pass that changed it
};

// Fails as build_engine() does, and with kCannotWrite.
BuiltEngine build_engine(const OnnxModel& model, const BuildOptions& options,
                         const GraphDumps& dumps);

}  // namespace anneal
