// The output of `anneal inspect`, as text and as JSON.
#pragma once
#include <string>

#include "anneal/cli/output/json_file.h"
#include "anneal/engine/onnx/inspection.h"

namespace anneal {

std::string model_text(const InspectedModel& model);
Json model_json(const InspectedModel& model);
std::string engine_text(const InspectedEngine& engine, bool with_decisions);
Json engine_json(const InspectedEngine& engine);

}  // namespace anneal
