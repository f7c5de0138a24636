// ONNX file -> Graph.
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "anneal/graph/graph.h"

namespace anneal {

struct ImportOptions {
  // Bounds of inputs with unknown sizes, by input name; each of the input's rank. A size given here
  // that the model knows must agree with it; min == max fixes a size.
  struct InputBounds {
    Dims min, opt, max;
  };
  std::map<std::string, InputBounds> bounds;
  // Fixes the sizes of all inputs, in the model's order; empty: bounds say what is known.
  std::vector<Dims> input_dims;
};

// Opset and producer of the file, for `inspect`.
struct ModelInfo {
  std::string producer, graph_name;
  int64_t ir_version = 0, opset = 0;
};

struct Imported {
  Graph graph;
  ModelInfo info;
};

// External data is read from the folder of the file and nowhere else. Everything unsupported in the
// model is reported at once: kUnsupported with one line per op: domain, op, opset, first node,
// reason, how often.
Imported import_file(const std::string& path, const ImportOptions& options = {});
// folder: where external data may lie; empty: none is allowed.
Imported import_bytes(std::span<const std::byte> bytes, const std::string& folder,
                      const ImportOptions& options = {});

}  // namespace anneal
