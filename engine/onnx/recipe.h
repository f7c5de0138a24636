// The recipe of an engine: how it was built, as JSON in a section of its file, so that
// refit_engine() can build with other weights in the same way.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/importer/importer.h"

namespace anneal {

struct Recipe {
  // Everything that decides the plan: with the precisions as they ended, and the ranges. Neither
  // samples, paths, threads nor times: two builds of one model have the same recipe. The libraries
  // of kernels are named by the plan.
  BuildOptions options = {};
  std::vector<SelfCheckReport::Layer> back_to_f32 = {};  // already in options.precision.layers
  bool weights_apart = false;                            // options.weights_path is not kept
  uint64_t fingerprint = 0;                              // fingerprint() of the imported model
};

// imported: the model, with these options. Sizes that the model itself has are no part of it.
Recipe recipe_for(const BuildOptions& options, const ImportResult& imported);
std::string to_string(const Recipe& recipe);
// Fails with kIncompatiblePlan if the text is empty or damaged.
Recipe parse_recipe(std::string_view text);

// The table for a model with other weights: the ranges, the choice of weight scales and the powers
// of two of channels stay. Corrections of biases become 0: they undo errors of rounding the
// weights that were calibrated. The table then belongs to any model.
CalibrationTable table_for_other_weights(CalibrationTable table);

}  // namespace anneal
