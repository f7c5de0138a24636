#include "anneal/cli/compare/engine_source.h"
#include "anneal/core/fail.h"
#include "anneal/engine/run/make_engine.h"

#include <fmt/format.h>

#include "anneal/cli/model/open_engine.h"
#include "anneal/engine/builder/checked_build.h"

namespace anneal {

std::shared_ptr<const Engine> engine_from(const EngineSource& source) {
  const bool reference = source.target == kReferenceTarget;
  const bool reference_kernels = source.target == kReferenceKernelsTarget;
  if (is_engine(source.path)) {
    if (reference || reference_kernels)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} is an engine, whose kernels are chosen; give the ONNX model to run the "
                       "reference kernels",
                       source.path));
    return open_engine(source.path, {.device = device_for(source.target),
                                     .map = source.map,
                                     .threads = source.threads,
                                     .debug = &source.debug});
  }
  GraphBuildOptions options = graph_options(source.build);
  options.reference = reference;
  options.reference_kernels = reference_kernels;
  options.targets = {reference || reference_kernels ? "cpu" : source.target};
  if (reference) options.passes = {};
  if (reference || reference_kernels) options.skip_kernels.clear();
  CheckedBuild made =
      build_checked(import_model_for_inputs(source.path, source.shapes, source.inputs).graph,
                    options, source.build.self_check);
  print_self_check(made.check);
  auto engine = make_engine(std::move(made.file), {.device = device_for(options.targets[0]),
                                                   .threads = source.threads,
                                                   .debug = &source.debug});
  print_remarks(engine->load_warnings());
  return engine;
}

}  // namespace anneal
