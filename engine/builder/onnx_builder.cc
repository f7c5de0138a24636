#include "anneal/engine/builder/onnx_builder.h"

#include "anneal/engine/builder/builder.h"
#include "anneal/importer/importer.h"

namespace anneal {

void build_engine(const std::string& onnx_path, const std::string& engine_path,
                  const OnnxBuildOptions& options) {
  ImportOptions import;
  for (const auto& [name, bounds] : options.input_bounds)
    import.bounds[name] = {bounds.min, bounds.opt, bounds.max};
  BuildOptions build_options;
  build_options.targets = options.targets;
  build_options.passes.skip = options.skip_passes;
  build_options.passes.only = options.only_passes;
  build_options.skip_kernels = options.skip_kernels;
  build_options.passes.exact = options.exact;
  build_options.passes.precision = options.precision;
  build_options.timing = {options.time_kernels, options.timing_cache, options.time_threads};
  build_options.allow_fallback = options.allow_fallback;
  write_engine_file(engine_path, build(import_file(onnx_path, import).graph, build_options));
}

}  // namespace anneal
