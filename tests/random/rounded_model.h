// Models that round more than they have to, which shows how far rounding reaches.
#pragma once
#include "anneal/tests/random/random_model.h"

namespace anneal::random_graphs {

// f32: each rounded float is multiplied by a number near 1. Other types: each float is stored in
// them, except those that decide a comparison, an index, an integer or a condition.
anneal_onnx::ModelProto rounded_model(const RandomModel& model, int type, uint64_t seed);

}  // namespace anneal::random_graphs
