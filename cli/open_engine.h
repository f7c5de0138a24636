// Loading an engine for a command.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/run/engine.h"

namespace anneal {

// Remarks of the engine go to stderr. An ONNX file is refused with the command that builds it.
std::shared_ptr<const Engine> open_engine(const std::string& path, const std::string& device);

std::vector<std::string> input_names(const Engine& engine);

}  // namespace anneal
