#include "anneal/cli/ablation/run_ablation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "anneal/cli/measure/measured_forms.h"
#include "anneal/cli/measure/turns.h"
#include "anneal/cli/model/built_apart.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/sample_inputs.h"
#include "anneal/cli/output/errors.h"
#include "anneal/core/files/temporary_folder.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/compare/compare_outputs.h"
#include "anneal/engine/compare/tensor_error.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/onnx/roofline/plan_work.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/memory/activation_memory.h"
#include "anneal/kernels/cuda/api/libraries.h"

namespace anneal {
namespace {

using SayProgress = std::function<void(std::string_view)>;

void check_model(const EngineSource& source) {
  if (is_engine(source.path))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is an engine, whose optimizations were chosen when it was built: give "
                     "--ablation the ONNX model",
                     source.path));
  std::error_code error;
  if (std::filesystem::is_fifo(source.path, error))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is a pipe, and --ablation reads the model once for each row: write it to "
                     "a file",
                     source.path));
  const ShapeFlags& shapes = source.shapes;
  if (std::max({shapes.min.size(), shapes.opt.size(), shapes.max.size()}) > 1)
    fail(ErrorCode::kInvalidArgument,
         "--ablation measures one profile: give --min-shapes, --opt-shapes and --max-shapes once");
  if (!source.build.precision.layers.empty() || !source.build.precision.weight_format.empty())
    fail(ErrorCode::kInvalidArgument,
         "--ablation adds a precision to all layers at once: leave out --layer-precision, "
         "--weight-format and --mix");
}

// Fails before the builds, which take minutes, where nothing can run the engines.
void check_device(const EngineSource& source) {
  if (!device_for(source.target).starts_with("cuda") || cuda::driver_library().table) return;
  fail(ErrorCode::kDevice,
       fmt::format("there is no CUDA driver here ({}), and --ablation runs what it builds for {}; "
                   "--target emulated counts steps and bytes, without times",
                   cuda::driver_library().why_not, source.target));
}

// A variant with its engine.
struct BuiltVariant {
  AblationVariant variant;
  std::unique_ptr<BuiltApart> built;
  std::shared_ptr<const Engine> engine = {};
};

// All are built before any is loaded: loading starts threads.
std::vector<BuiltVariant> build_all(std::vector<AblationVariant> variants,
                                    const SayProgress& progress) {
  std::vector<BuiltVariant> built;
  for (size_t i = 0; i < variants.size(); ++i) {
    const bool is_last = i + 1 == variants.size();
    progress(fmt::format("building: {}", variants[i].name));
    auto apart = std::make_unique<BuiltApart>([&] { return build_variant(variants[i], is_last); });
    built.push_back({std::move(variants[i]), std::move(apart)});
  }
  return built;
}

std::shared_ptr<const Engine> load(const BuiltApart& built, const EngineSource& source,
                                   const std::string& device, int threads) {
  return built.open(source.path, {.device = device,
                                  .map = source.map,
                                  .threads = threads,
                                  .debug = &source.debug,
                                  .libraries = source.shapes.libraries});
}

// Rewrites of these passes that the plan records.
size_t rewrites_in(const Plan& plan, const std::vector<std::string>& passes) {
  return static_cast<size_t>(std::ranges::count_if(plan.decisions, [&](const Decision& decision) {
    return !decision.refused && std::ranges::find(passes, decision.stage) != passes.end();
  }));
}

std::optional<uint64_t> activation_bytes(const Engine& engine) {
  try {
    return activation_memory(plan_of(engine), weights_of(engine)).arena_bytes;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return std::nullopt;
  }
}

std::vector<Tensor> outputs_of(const ExecutionContext& context, const Engine& engine) {
  std::vector<Tensor> outputs;
  for (const TensorInfo& port : engine.outputs())
    outputs.push_back(dense_copy(context.output(port.name)));
  return outputs;
}

OutputError error_between(std::span<const TensorInfo> ports, const std::vector<Tensor>& got,
                          const std::vector<Tensor>& expected) {
  OutputError error;
  for (size_t i = 0; i < got.size(); ++i) {
    const ConstTensorView mine = got[i].view(), theirs = expected[i].view();
    if (mine.dtype != theirs.dtype || mine.dims != theirs.dims) {
      error.why = fmt::format("output \"{}\" is {}{}, of the reference {}{}", ports[i].name,
                              to_string(mine.dtype), to_string(mine.dims), to_string(theirs.dtype),
                              to_string(theirs.dims));
      continue;
    }
    const double far = compare_output(mine, theirs, {}, Arithmetic::kFloat).max_abs;
    const double scale = tensor_error(mine, theirs).scale;
    error.max_abs = std::max(error.max_abs, far);
    if (far > 0 && scale > 0) error.relative = std::max(error.relative, far / scale);
  }
  return error;
}

class AblationRun {
 public:
  AblationRun(const AblationOptions& options, const SayProgress& progress)
      : options_(options), source_(options.source), progress_(progress) {
    source_.inputs = options.inputs;
    if (source_.build.timing_cache.empty())
      source_.build.timing_cache = times_.emplace("anneal-ablation").file("times");
  }

  Ablation run() && {
    AblationVariants made = ablation_variants(source_);
    result_.left_out = std::move(made.left_out);
    AblationVariant reference{.name = "reference", .passes = {}, .source = source_};
    reference.source.target = kReferenceTarget;
    reference.source.build.precision = {};
    reference.source.build.time_kernels = false;
    made.variants.insert(made.variants.begin(), std::move(reference));
    std::vector<BuiltVariant> built = build_all(std::move(made.variants), progress_);
    options_.on_built();
    run_reference(built[0]);
    built.erase(built.begin());
    load_all(built);
    add_facts(built);
    measure_all(built);
    return std::move(result_);
  }

 private:
  void run_reference(BuiltVariant& reference) {
    progress_("running the reference");
    reference.engine = load(*reference.built, source_, "cpu", options_.measured.threads);
    std::vector<std::string> inputs = options_.inputs;
    if (inputs.empty()) inputs = {"random"};
    samples_ = sample_inputs(*reference.engine, inputs, source_.shapes.shapes);
    for (size_t i = 0; i < samples_.tensors.size(); ++i)
      result_.inputs.push_back(input_text(reference.engine->inputs()[i], samples_.tensors[i]));
    ExecutionContext context(reference.engine, {.threads = options_.measured.threads});
    run_once(context, *reference.engine);
    expected_ = outputs_of(context, *reference.engine);
  }

  void run_once(ExecutionContext& context, const Engine& engine) const {
    with_samples(source_.path, samples_, [&] {
      for (size_t i = 0; i < samples_.tensors.size(); ++i)
        context.set_input(engine.inputs()[i].name, samples_.tensors[i].view());
      context.run();
    });
  }

  // Leaves out the rows of precisions that the model does not have.
  void load_all(std::vector<BuiltVariant>& built) {
    for (BuiltVariant& each : built) {
      progress_(fmt::format("loading: {}", each.variant.name));
      each.engine =
          load(*each.built, source_, device_for(source_.target), options_.measured.threads);
    }
    std::erase_if(built, [](const BuiltVariant& each) {
      return each.variant.is_for_precision &&
             rewrites_in(plan_of(*each.engine), each.variant.passes) == 0;
    });
  }

  void add_facts(const std::vector<BuiltVariant>& built) {
    std::vector<Dims> dims;
    for (const Tensor& tensor : samples_.tensors) dims.push_back(tensor.dims());
    for (const BuiltVariant& each : built) {
      const Plan& plan = plan_of(*each.engine);
      AblationRow& row = result_.rows.emplace_back();
      row.name = each.variant.name;
      row.passes = each.variant.passes;
      row.rewrites = rewrites_in(plan, row.passes);
      row.steps = plan.steps.size();
      row.launches = static_cast<size_t>(std::ranges::count_if(plan.steps, [&](const Step& step) {
        return step.device + size_t{1} < plan.devices.size() && step.kernel != kTransfer;
      }));
      row.moved_bytes = static_cast<uint64_t>(
          std::llround(roofline_plan(plan, weights_of(*each.engine), dims).moved_bytes()));
      row.activation_bytes = activation_bytes(*each.engine);
      row.build_milliseconds = each.built->milliseconds();
      result_.is_for_gpu |= plan.devices.size() > 1;
      result_.has_bodies |= !plan.bodies.empty();
    }
    result_.file = source_.path;
    result_.target = source_.target;
    result_.machine = built[0].engine->device();
    result_.threads = thread_count(options_.measured.threads);
    result_.flags = flags_of_last(built.back().variant);
  }

  // The given flags, and those that the ablation adds of itself.
  std::string flags_of_last(const AblationVariant& last) const {
    std::string flags = options_.flags;
    const PrecisionOptions& asked = options_.source.build.precision;
    if (last.source.build.time_kernels && !options_.source.build.time_kernels)
      flags += " --time-kernels";
    if (last.source.build.precision.reduces() && !asked.reduces() && !asked.best)
      flags += " --best";
    return flags;
  }

  void measure_all(const std::vector<BuiltVariant>& built) {
    std::vector<std::unique_ptr<ExecutionContext>> contexts;
    for (size_t i = 0; i < built.size(); ++i) {
      progress_(fmt::format("first inference: {}", built[i].variant.name));
      const MeasureOptions& options = options_.measured;
      contexts.push_back(std::make_unique<ExecutionContext>(
          built[i].engine, ContextOptions{.threads = options.threads,
                                          .max_memory = options.max_memory,
                                          .spin = options.spin,
                                          .micro_batch = options.micro_batch,
                                          .profile = options.profile}));
      run_once(*contexts.back(), *built[i].engine);
      result_.rows[i].error = error_between(
          built[i].engine->outputs(), outputs_of(*contexts.back(), *built[i].engine), expected_);
    }
    if (source_.target.starts_with("emulated")) return;
    // The caller's thread is the one that runs, and its waiting is known.
    result_.counts_waiting = result_.is_for_gpu || result_.threads > 1;
    Turns turns = measure_in_turns(contexts,
                                   {.warmup = options_.measured.warmup,
                                    .measured = options_.measured.measured,
                                    .counts_waiting = result_.counts_waiting},
                                   progress_);
    for (size_t i = 0; i < built.size(); ++i) {
      result_.rows[i].milliseconds = std::move(turns.milliseconds[i]);
      result_.rows[i].round_medians = std::move(turns.round_medians[i]);
    }
    result_.rounds = turns.rounds;
    result_.load = turns.load;
  }

  const AblationOptions& options_;
  EngineSource source_;
  const SayProgress& progress_;
  std::optional<TemporaryFolder> times_;
  SampleInputs samples_;
  std::vector<Tensor> expected_;
  Ablation result_;
};

}  // namespace

Ablation run_ablation(const AblationOptions& options, const SayProgress& progress) {
  check_model(options.source);
  check_device(options.source);
  return AblationRun(options, progress).run();
}

}  // namespace anneal
