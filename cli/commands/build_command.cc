// `anneal build`: ONNX file -> engine file.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/commands/tune_model.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/data_flags.h"
#include "anneal/cli/flags/memory_flag.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/flags/timing_flags.h"
#include "anneal/cli/model/import_model.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/text_file.h"
#include "anneal/engine/onnx/dumped_build.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct BuildFlags {
  std::string model, output, report, dump_graph, dump_passes;
  ShapeFlags shapes;
  BuildOptions build;  // but for the precision and the bounds of inputs
  PrecisionFlags precision;
  DataFlags data;  // to calibrate with; none: no path
  std::optional<double> max_drop;
  bool verbose = false, quiet = false;
};

// Before the work, not after it.
void check_outputs(const BuildFlags& flags, const std::string& output) {
  for (const std::string& path : {output, flags.report, flags.dump_graph}) check_output_file(path);
  check_timing_cache(flags.build);
  std::error_code error;
  if (fs::equivalent(flags.model, output, error))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("-o {} is the model itself; give the engine another name", output));
}

void print_fallbacks(const BuildPlan& plan) {
  if (plan.target.starts_with("cpu")) return;
  fmt::print("  {}: {} of {} run on the GPU, with {}; machine code {}\n", plan.target,
             plan.gpu_steps, count_text(plan.steps.size() - plan.copy_steps, "step"),
             count_text(plan.copy_steps, "copy step"), bytes_text(plan.code_bytes));
  for (const BuildDecision& layer : plan.fallbacks)
    fmt::print("    on the CPU: \"{}\": {}\n", printable(layer.subject), printable(layer.text));
}

// What the self-check did, and its share of the time since the model was imported.
Json self_check_json(const SelfCheckReport& check, double milliseconds) {
  Json layers = Json::array();
  for (const auto& [name, why] : check.back_to_f32)
    layers.push_back({{"name", name}, {"why", why}});
  return {{"compared", check.is_compared},      {"outcome", check.outcome},
          {"warning", check.warning},           {"back_to_f32", std::move(layers)},
          {"milliseconds", check.milliseconds}, {"share", check.milliseconds / milliseconds}};
}

void print_self_check_line(const SelfCheckReport& check, double milliseconds) {
  constexpr size_t kNamesShown = 4;
  if (check.outcome.empty()) return;
  fmt::print("  self-check: {} ({}, {:.0f} % of the build)\n", printable(check.outcome),
             milliseconds_text(check.milliseconds), 100 * check.milliseconds / milliseconds);
  if (check.back_to_f32.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(check.back_to_f32.size(), kNamesShown); ++i)
    names += (names.empty() ? "\"" : ", \"") + check.back_to_f32[i].name + "\"";
  if (check.back_to_f32.size() > kNamesShown) names += ", ...";
  fmt::print("  back to f32: {}: {}; anneal inspect --decisions has the reasons\n",
             count_text(check.back_to_f32.size(), "layer"), printable(names));
}

// A model whose activations this machine could not hold.
void print_memory_note(const BuildPlan& plan) {
  const auto machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (plan.run_bytes > machine)
    fmt::print(
        "note: a run of the plan for {} needs {} besides its weights, this machine has {}; "
        "--max-memory refuses such models\n",
        printable(plan.target), bytes_text(plan.run_bytes), bytes_text(machine));
}

// `--max-drop`: what `anneal tune` does.
int tune_instead(const BuildFlags& flags, const std::string& output) {
  if (flags.data.data.empty())
    fail(ErrorCode::kInvalidArgument,
         "--max-drop wants samples to judge by: give --calibrate SAMPLES");
  const PrecisionFlags& precision = flags.precision;
  if (precision.f16 || precision.bf16 || precision.int8 || precision.best ||
      !precision.layers.empty() || !precision.mix.empty() ||
      precision.max_layer_error != PrecisionFlags().max_layer_error)
    fail(ErrorCode::kInvalidArgument,
         "--max-drop chooses precisions itself: leave out the flags for them");
  const BuildOptions& build = flags.build;
  if (build.targets.size() != 1 || !build.allow_fallback || build.max_memory != 0 ||
      build.pack_weights || build.time_kernels || !build.timing_cache.empty() ||
      !flags.report.empty() || !flags.dump_graph.empty() || !flags.dump_passes.empty())
    fail(ErrorCode::kInvalidArgument,
         "--max-drop is for one target, without --no-fallback, --max-memory, --pack, "
         "--time-kernels, --report and dumps: build again with --mix for those");
  TuneFlags tune;
  tune.model = flags.model;
  tune.output = output;
  tune.shapes = flags.shapes;
  tune.data = flags.data;
  tune.build = build;
  tune.max_drop = flags.max_drop;
  tune.calibration = precision.calibration;
  tune.build.precision.symmetric = precision.symmetric;
  tune.verbose = flags.verbose;
  tune.quiet = flags.quiet;
  return tune_model(tune);
}

Json report_json(const BuildFlags& flags, const std::string& output, const BuildReport& report,
                 double total_milliseconds) {
  Json passes = Json::array(), plans = Json::array();
  for (const BuildPass& pass : report.passes)
    passes.push_back({{"name", pass.name},
                      {"targets", pass.targets},
                      {"exact", pass.is_exact},
                      {"changed", pass.has_changed},
                      {"rewrites", pass.rewrites},
                      {"milliseconds", pass.milliseconds},
                      {"layers", pass.layers}});
  for (const BuildPlan& plan : report.plans) {
    Json fallbacks = Json::array();
    for (const BuildDecision& layer : plan.fallbacks)
      fallbacks.push_back({{"layer", layer.subject}, {"why", layer.text}});
    plans.push_back({{"target", plan.target},
                     {"steps", plan.steps.size()},
                     {"arena_bytes", plan.arena_bytes},
                     {"code_bytes", plan.code_bytes},
                     {"transfers", plan.copy_steps},
                     {"on_the_cpu", std::move(fallbacks)}});
  }
  Json json = {{"model", flags.model}, {"engine", output}, {"targets", flags.build.targets}};
  json["import_milliseconds"] = report.import_milliseconds;
  json["imported_layers"] = report.imported_layers;
  json["passes"] = std::move(passes);
  json["build_milliseconds"] = report.build_milliseconds;
  json["plans"] = std::move(plans);
  json["weight_bytes"] = report.weight_bytes;
  json["engine_bytes"] = report.engine_bytes;
  json["total_milliseconds"] = total_milliseconds;
  if (!report.self_check.outcome.empty())
    json["self_check"] = self_check_json(report.self_check, total_milliseconds);
  return json;
}

// The options of the flags, but for the progress.
BuildOptions build_options(const BuildFlags& flags, const OnnxModel& model) {
  BuildOptions options = flags.build;
  set_shapes(flags.shapes, options);
  options.precision = precision_options(flags.precision, options.targets, !flags.data.data.empty());
  options.data_threads = flags.data.threads;
  set_self_check(flags.precision, options);
  if (flags.data.data.empty()) return options;
  if (options.precision.ranges)
    fail(ErrorCode::kInvalidArgument,
         "--calibrate and --calibration contradict each other: one makes ranges, one has them");
  options.calibration.samples = open_data(flags.data, onnx_inputs(model, options));
  return options;
}

void print_built(const BuildFlags& flags, const BuildOptions& options, const std::string& what,
                 const BuildReport& report, double total_milliseconds) {
  std::vector<std::string> made;
  for (const BuildPlan& plan : report.plans)
    made.push_back(fmt::format("{} for {}", count_text(plan.steps.size(), "step"), plan.target));
  fmt::print("{}: {}, weights {}, file {}, built in {}\n", what, fmt::join(made, ", "),
             bytes_text(report.weight_bytes), bytes_text(report.engine_bytes),
             milliseconds_text(total_milliseconds));
  print_self_check_line(report.self_check, total_milliseconds);
  for (const BuildPlan& plan : report.plans) print_fallbacks(plan);
  for (const std::string& note :
       precision_notes(flags.precision, options.precision, flags.build.targets))
    fmt::print("note: {}\n", printable(note));
  if (options.time_kernels && std::ranges::none_of(report.plans, [](const BuildPlan& plan) {
        return plan.target.starts_with("cpu");
      }))
    fmt::print("note: --time-kernels measures kernels of the CPU, and no plan is for the CPU\n");
  for (const BuildPlan& plan : report.plans) print_memory_note(plan);
}

int build_model(const BuildFlags& flags) {
  if (flags.model.empty())
    fail(ErrorCode::kInvalidArgument,
         "build needs a model: anneal build model.onnx -o model.engine");
  std::error_code error;
  if (flags.output.empty() && fs::is_fifo(flags.model, error))
    fail(ErrorCode::kInvalidArgument,
         "a model from a pipe gives the engine no name: name it with -o");
  const std::string output =
      flags.output.empty() ? fs::path(flags.model).stem().string() + ".engine" : flags.output;
  check_outputs(flags, output);
  if (flags.max_drop) return tune_instead(flags, output);

  const auto start = Clock::now();
  ProgressLine progress(flags.verbose);
  progress.say(fmt::format("reading {}", flags.model));
  const ModelFile file(flags.model);
  BuildOptions options = build_options(flags, file.model());
  options.progress = [&](const Progress& at) {
    progress.say(at.what);
    return true;
  };
  const BuiltEngine built =
      build_engine(file.model(), options, {flags.dump_graph, flags.dump_passes});
  const BuildReport& report = built.report;
  const double total = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  // The engine last: what fails before leaves no engine.
  if (!flags.report.empty()) write_json(flags.report, report_json(flags, output, report, total));
  progress.say(fmt::format("writing {}", output));
  const bool is_replaced = flags.output.empty() && fs::exists(output);
  write_bytes(output, built.bytes);

  progress.clear();
  print_self_check(report.self_check);
  if (flags.quiet) return kSuccess;
  print_remarks(report.warnings);
  print_built(flags, options, output + (is_replaced ? " (replaced)" : ""), report, total);
  return kSuccess;
}

constexpr const char* kBuildFooter = R"(Examples:
  anneal build model.onnx                       writes model.engine here
  anneal build model.onnx -o fast.engine --shapes input:1x3x224x224
                                                the free sizes of an input are fixed
  anneal build model.onnx --min-shapes x:1x3x224x224 --opt-shapes x:8x3x224x224 \
                          --max-shapes x:32x3x224x224
                                                a range; of one input, what is left out of
                                                min and max is as in opt
  anneal build model.onnx --target sm_80,sm_90,cpu
                                                one file for two kinds of GPU and the CPU
  anneal build model.onnx --int8 --calibrate pictures --samples hash:100
                                                8 bits by the ranges that 100 of the samples show
  anneal build model.onnx --best --calibrate pictures
                                                8 bits, and 16 where those do not do
  anneal build model.onnx --calibrate pictures --max-drop 0.5
                                                as fast as that budget allows: anneal tune
  anneal build model.onnx --time-kernels --timing-cache here.timings --time-threads 1
                                                kernels by their times with one thread; built
                                                again with the file, nothing is timed
  anneal build model.onnx --skip-pass fuse_epilogue --dump-graph graph.txt
                                                leave a pass out, see the optimized graph

A name may be left out where the model has one input: --shapes 1x3x224x224.
Exit status: 0 built; 2 wrong arguments or a damaged model; 3 the model needs something that Anneal
does not support, all of it is listed; 4 a library for the target, like NVRTC, is missing or failed.
On failure the engine file is as it was before.)";

}  // namespace

void add_build_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand("build", "Turn an ONNX model into an engine file");
  auto flags = std::make_shared<BuildFlags>();
  auto list_passes = std::make_shared<bool>(false);
  command->add_option("model", flags->model, "The ONNX model")->type_name("MODEL.onnx");
  command
      ->add_option("-o,--output", flags->output,
                   "The engine file (default: model's name + .engine)")
      ->type_name("FILE");
  command
      ->add_option("--target", flags->build.targets,
                   "What to build for, a list: cpu, cpu:baseline|avx2|avx512|full, sm_80 and the "
                   "like (no GPU "
                   "is needed), emulated (default: cpu)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  add_shape_flags(*command, flags->shapes);
  add_precision_flags(*command, flags->precision);
  add_data_flags(*command, flags->data, "--calibrate");
  command
      ->add_option("--max-drop", flags->max_drop,
                   "With --calibrate: the fastest mix of precisions that loses at most so many "
                   "points; anneal tune has more to set")
      ->check(at_least(0))
      ->type_name("POINTS");
  add_memory_flag(*command, flags->build.max_memory,
                  "The most memory for weights and activations together; a model that needs more "
                  "is refused");
  add_pass_flags(*command, flags->build);
  add_timing_flags(*command, flags->build);
  command
      ->add_option("--time-threads", flags->build.threads,
                   "Threads that the engine will run with, for --time-kernels; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  add_kernel_flags(*command, flags->build);
  command->add_option("--dump-graph", flags->dump_graph, "Write the optimized graph as text")
      ->type_name("FILE");
  command
      ->add_option("--dump-passes", flags->dump_passes,
                   "Write the graph as text after each pass that changed it, into this folder")
      ->type_name("DIR");
  command->add_option("--report", flags->report, "Write times of the build and its passes as JSON")
      ->type_name("FILE");
  command->add_flag(
      "--pack", flags->build.pack_weights,
      "Store weights as this machine's CPU kernels read them, too, to be mapped at load");
  command->add_flag("!--no-fallback", flags->build.allow_fallback,
                    "Fail, naming each, if layers would run on the CPU though the target is a GPU");
  command->add_flag("--list-passes", *list_passes, "List the optimizer's passes and end");
  command->add_flag("-v,--verbose", flags->verbose, "Say on stderr what is being done");
  command->add_flag("-q,--quiet", flags->quiet, "Print nothing on success");
  command->footer(kBuildFooter);
  command->callback([&action, flags, list_passes] {
    if (*list_passes) {
      action = list_all_passes;
      return;
    }
    action = [flags] { return build_model(*flags); };
  });
}

}  // namespace anneal
