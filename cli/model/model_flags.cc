#include "anneal/cli/model/model_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"

namespace anneal {
namespace {

constexpr std::string_view kModelFlags[] = {
    "fp16",
    "bf16",
    "int8",
    "best",
    "symmetric",
    "layer-precision",
    "max-layer-error",
    "calibration",
    "mix",
    "skip-pass",
    "only-passes",
    "exact",
    "skip-kernel",
    "time-kernels",
    "timing-cache",
};

}  // namespace

void refuse_model_flags(const CLI::App& command, std::initializer_list<std::string> files) {
  std::vector<std::string> given;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames())
      if (option->count() > 0 && std::ranges::find(kModelFlags, name) != std::end(kModelFlags))
        given.push_back("--" + name);
  if (given.empty()) return;
  std::string engine;
  for (const std::string& file : files) {
    if (file.empty()) continue;
    if (!is_engine(file)) return;
    if (engine.empty()) engine = file;
  }
  fail(ErrorCode::kInvalidArgument,
       fmt::format("{} is an engine, whose precisions, passes and kernels were chosen when it was "
                   "built: give {} with an ONNX model, or to anneal build",
                   engine, fmt::join(given, ", ")));
}

}  // namespace anneal
