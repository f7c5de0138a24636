#include "anneal/cli/open_engine.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

namespace anneal {

std::shared_ptr<const Engine> open_engine(const std::string& path, const std::string& device) {
  if (std::string_view(path).ends_with(".onnx"))
    fail(Code::kInvalidArgument,
         fmt::format("{} is a model, not an engine; build one first: anneal build {}", path, path));
  EngineOptions options;
  options.device = device;
  auto engine = Engine::load(path, options);
  for (const std::string& remark : engine->remarks()) fmt::print(stderr, "anneal: {}\n", remark);
  return engine;
}

std::vector<std::string> input_names(const Engine& engine) {
  std::vector<std::string> names;
  for (const Port& port : engine.inputs()) names.push_back(port.name);
  return names;
}

}  // namespace anneal
