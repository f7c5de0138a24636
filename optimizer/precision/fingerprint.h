// The fingerprint of the model to which a calibration table belongs.
#pragma once
#include <cstdint>

#include "anneal/graph/graph.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

// A hash of the imported graph: the names of convolutions and products, and the weights. It does
// not depend on the shapes that the model was imported for. Never 0. threads: 0: one per core.
uint64_t fingerprint(const Graph& graph, int threads);

// Fails with kInvalidArgument, saying what to do, if the table was made for another model, or the
// model has none of its tensors. threads as above.
void check_belongs(const CalibrationTable& table, const Graph& model, int threads);

}  // namespace anneal
