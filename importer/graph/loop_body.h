// The body of a Loop or Scan, with types that hold in every iteration.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anneal/importer/graph/body.h"

namespace anneal {

// None if something in the body is not supported, which has been reported, or if the loop changes
// the rank of a carried value.
struct LoopBody {
  std::unique_ptr<Body> body;
  std::string changes_rank;  // which value
};

struct LoopBodyRequest {
  std::vector<Type> inputs;  // of the first iteration
  size_t first_carried = 0, carried = 0;
  int64_t first_iteration = 0;  // the number of the first iteration of a Loop's body
};

// Whether a Loop's body declares the number of the iteration as [1], as PyTorch's exporter may, and
// not as a scalar.
bool counts_with_axis(const anneal_onnx::GraphProto& body);

// The carried values may change their sizes from iteration to iteration: a size that the body does
// not give back as it got it becomes a symbol, and the body is imported again, until none is left.
// Fails with kInvalidModel if the body is invalid with symbols for all sizes, too.
LoopBody import_loop_body(const anneal_onnx::GraphProto& proto, const Node& node,
                          LoopBodyRequest request, Scope& scope, NodeImporter& nodes);

}  // namespace anneal
