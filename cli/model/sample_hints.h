// Likely mistakes in how samples are prepared, as hints for people. A hint never fails a command.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "anneal/cli/model/classes.h"
#include "anneal/engine/data/dataset.h"

namespace anneal {

// Inputs of the first sample that hold unscaled pixels: f32 images of whole numbers that
// reach beyond 32.
std::vector<std::string> scale_hints(const Dataset& samples);

// Labels that fit much better when 1 is added or taken, a class more than there are labels, and
// accuracy at the level of chance. label_offset: the one that the run had.
std::vector<std::string> label_hints(const ClassificationRun& run, int64_t label_offset);

void print_hints(std::span<const std::string> hints);  // to stderr

}  // namespace anneal
