#include "anneal/cli/model/open_or_build.h"

#include "anneal/cli/model/open_engine.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {

BuiltEngine build_source(const EngineSource& source) {
  BuildOptions options = source.build;
  options.targets = {source.target};
  set_shapes_for_inputs(source.path, source.shapes, source.inputs, options);
  BuiltEngine built = build_engine(OnnxModel(source.path), options);
  print_self_check(built.report.self_check);
  print_remarks(built.report.warnings);
  return built;
}

std::shared_ptr<const Engine> open_or_build(const EngineSource& source) {
  const EngineOptions options{.device = device_for(source.target),
                              .map = source.map,
                              .threads = source.threads,
                              .debug = &source.debug,
                              .libraries = source.shapes.libraries,
                              .weights = source.weights};
  if (is_engine(source.path)) return open_engine(source.path, options);
  auto engine = Engine::load(build_source(source).bytes, nullptr, options);
  print_remarks(engine->load_warnings());
  return engine;
}

}  // namespace anneal
