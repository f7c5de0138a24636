// The text of an input in errors about samples.
#pragma once
#include <string>

#include "anneal/engine/data/dataset.h"

namespace anneal {

std::string input_text(const DataInput& input);  // "x" f32[?,3,224,224]

}  // namespace anneal
