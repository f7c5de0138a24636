// What models and engines hold, for commands; the output of `anneal inspect` as text.
#pragma once
#include <string>

#include "anneal/engine/onnx/inspection.h"  // IWYU pragma: export

namespace anneal {

std::string model_text(const InspectedModel& model);
std::string engine_text(const InspectedEngine& engine, bool with_decisions);

}  // namespace anneal
