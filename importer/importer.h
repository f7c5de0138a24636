// Import of an ONNX file as a Graph.
#pragma once
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/importer/graph/import_options.h"
#include "anneal/importer/node/open_batch.h"

namespace anneal {

// Opset and producer of the file, for `inspect`.
struct ModelInfo {
  std::string producer, graph_name;
  int64_t ir_version = 0, opset = 0;
  std::set<std::string> fixed_inputs = {};  // whose sizes are all numbers, and stay so
};

struct ImportResult {
  Graph graph;
  ModelInfo info;
  // Initializers that are inputs, too, and became constants.
  std::vector<std::string> constant_inputs = {};
  std::vector<std::string> warnings = {};  // about libraries of kernels
  std::optional<OpenBatch> batch = {};     // that bounds opened
};

// The context of errors about a batch that cannot be opened, with the remedy.
std::string opening(const OpenBatch& batch);

// External data is read from the folder of the file and nowhere else. Everything unsupported in the
// model is reported at once: kUnsupported with one line per op: domain, op, opset, first node,
// reason, how often.
ImportResult import_file(const std::string& path, const ImportOptions& options = {});
// folder: where external data may lie; empty: none is allowed.
ImportResult import_bytes(std::span<const std::byte> bytes, const std::string& folder,
                          const ImportOptions& options = {});

}  // namespace anneal
