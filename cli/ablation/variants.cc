#include "anneal/cli/ablation/variants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "anneal/cli/ablation/pass_families.h"
#include "anneal/cli/model/import_model.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

class Variants {
 public:
  explicit Variants(const EngineSource& source)
      : flags_(source), now_{.name = {}, .passes = {}, .source = source} {
    now_.source.build.precision = {};
    now_.source.build.time_kernels = false;
  }

  AblationVariants run() && {
    now_.without = {.kernel_choice = true, .layouts = true, .placement = true};
    now_.source.build.skip_passes = {std::string(kAllPasses)};
    now_.source.build.only_passes = {};
    add("nothing");
    // Before the fusions: behind slow kernels no memory traffic matters.
    now_.without.kernel_choice = false;
    add("kernel choice");
    add_families();
    // All passes, in the words of a build without an ablation.
    now_.source.build.skip_passes = flags_.build.skip_passes;
    now_.source.build.only_passes = flags_.build.only_passes;
    add_times();
    add_precisions();
    return std::move(made_);
  }

 private:
  void add(std::string name, std::vector<std::string> passes = {}, bool is_for_precision = false) {
    now_.name = std::move(name);
    now_.passes = std::move(passes);
    now_.is_for_precision = is_for_precision;
    made_.variants.push_back(now_);
  }
  void leave_out(std::string name, std::string why) {
    made_.left_out.push_back({std::move(name), std::move(why)});
  }

  // Those of the family that the flags do not leave out.
  std::vector<std::string> passes_of(const PassFamily& family) const {
    const PassOptions options{.exact = flags_.build.exact,
                              .skip = flags_.build.skip_passes,
                              .only = flags_.build.only_passes};
    std::vector<std::string> passes;
    for (const Pass& pass : default_pipeline())
      if (std::ranges::find(family.passes, pass.name) != family.passes.end() &&
          why_left_out(pass, options).empty())
        passes.emplace_back(pass.name);
    return passes;
  }

  void add_families() {
    for (const PassFamily& family : pass_families()) {
      std::vector<std::string> passes = passes_of(family);
      if (family.has_layouts) now_.without.layouts = false;
      if (family.has_placement) now_.without.placement = false;
      if (passes.empty() && !family.has_layouts && !family.has_placement) {
        leave_out(std::string(family.name), "the flags skip all of its passes");
        continue;
      }
      BuildOptions& build = now_.source.build;
      build.only_passes.insert(build.only_passes.end(), passes.begin(), passes.end());
      if (!build.only_passes.empty()) build.skip_passes = {};
      add(std::string(family.name), std::move(passes), family.is_for_precision);
    }
  }

  void add_times() {
    if (flags_.target.starts_with("emulated"))
      return leave_out("kernel times", "the emulated device has no times");
    if (flags_.build.optimization_level == 0)
      return leave_out("kernel times", "--optimization-level 0 times no kernel");
    now_.source.build.time_kernels = true;
    add("kernel times");
  }

  void add_precisions() {
    const PrecisionOptions& asked = flags_.build.precision;
    const bool is_open = !asked.reduces() && !asked.best;
    BuildOptions options = flags_.build;
    options.targets = {flags_.target};
    options.precision.best |= is_open;
    const PrecisionOptions wanted = resolved_precision(options);
    add_halves(wanted, is_open || asked.best);
    add_int8(wanted);
  }

  void add_halves(const PrecisionOptions& wanted, bool is_best) {
    std::vector<std::string_view> names;
    PrecisionOptions precision = wanted;
    precision.types = {};
    for (const Precision half : {Precision::kF16, Precision::kBF16}) {
      if (!wanted.allows(half)) continue;
      precision.types.insert(half);
      names.push_back(to_string(half));
    }
    if (names.empty())
      return leave_out("16 bits",
                       is_best ? fmt::format("{} computes products in 16 bits no faster than in "
                                             "f32; --bf16 or --fp16 measures them",
                                             flags_.target)
                               : "the flags name other precisions; add --bf16 or --fp16");
    now_.source.build.precision = std::move(precision);
    add(fmt::format("{}", fmt::join(names, " and ")));
  }

  void add_int8(const PrecisionOptions& wanted) {
    if (!wanted.allows(Precision::kI8))
      return leave_out(
          "int8", wanted.ranges
                      ? fmt::format("{} computes products in 8 bits no faster than in f32, or "
                                    "the flags leave it out; --int8 measures it",
                                    flags_.target)
                      : "it needs the ranges of tensors: anneal calibrate MODEL --data SAMPLES "
                        "-o m.ranges, then --best --calibration m.ranges");
    now_.source.build.precision = wanted;
    add("int8");
  }

  const EngineSource& flags_;
  AblationVariant now_;
  AblationVariants made_;
};

}  // namespace

AblationVariants ablation_variants(const EngineSource& source) { return Variants(source).run(); }

std::vector<std::byte> build_variant(const AblationVariant& variant, bool has_remarks) {
  const EngineSource& source = variant.source;
  BuildOptions options = source.build;
  options.targets = {source.target};
  if (variant.without != BuilderParts{}) {
    GraphBuildOptions parts = graph_options(options);
    parts.without = variant.without;
    return save(
        build(import_model_for_inputs(source.path, source.shapes, source.inputs).graph, parts));
  }
  set_shapes_for_inputs(source.path, source.shapes, source.inputs, options);
  BuiltEngine built = build_engine(OnnxModel(source.path), options);
  print_self_check(built.report.self_check);
  if (has_remarks) print_remarks(built.report.warnings);
  return std::move(built.bytes);
}

}  // namespace anneal
