#include "anneal/cli/compare/engine_source.h"

#include <fmt/format.h>

#include "anneal/cli/model/import_model.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"
#include "anneal/engine/builder/checked_build.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/run/make_engine.h"

namespace anneal {

std::shared_ptr<const Engine> engine_from(const EngineSource& source) {
  const bool reference_kernels = source.target == kReferenceKernelsTarget;
  if (!reference_kernels && source.target != kReferenceTarget) return open_or_build(source);
  if (is_engine(source.path))
    refuse_argument(
        fmt::format("{} is an engine, whose kernels are chosen; give the ONNX model to run the "
                    "reference kernels",
                    source.path));
  BuildOptions build = source.build;
  build.targets = {reference_kernels ? "cpu" : source.target};
  GraphBuildOptions options = graph_options(build);
  options.reference_kernels = reference_kernels;
  if (reference_kernels) options.skip_kernels.clear();
  CheckedBuild made =
      build_checked(import_model_for_inputs(source.path, source.shapes, source.inputs).graph,
                    options, build.self_check);
  print_self_check(made.check);
  auto engine = make_engine(std::move(made.file),
                            {.device = "cpu", .threads = source.threads, .debug = &source.debug});
  print_remarks(engine->load_warnings());
  return engine;
}

}  // namespace anneal
