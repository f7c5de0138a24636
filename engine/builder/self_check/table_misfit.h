// Whether a calibration table has the numbers of the model that is built.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/builder/self_check/watched_engine.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

struct TableMisfit {
  std::string value;         // whose range is wrong, as it seems
  bool is_of_input = false;  // of the model
  std::string text;          // for messages
};

// inputs: drawn within the ranges that the table has for them. Runs f32 on them and compares the
// magnitudes of its values with those that the table saw. Where most are far off in one direction,
// the range of an input is wrong, else that of the first value that is off. nullopt: none is, or
// the table has no range of a float input.
std::optional<TableMisfit> table_misfit(WatchedEngine& exact, const std::vector<Tensor>& inputs,
                                        const CalibrationTable& table);

}  // namespace anneal
