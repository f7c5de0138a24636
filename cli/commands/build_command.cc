// `anneal build`: ONNX file -> engine file.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/commands/tune_model.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/data_flags.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/memory_flag.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/flags/timing_flags.h"
#include "anneal/cli/model/model_source.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/stopwatch.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
struct BuildFlags {
  std::string model, output, report;
  ShapeFlags shapes;
  BuildOptions build;  // but for the precision and the bounds of inputs
  PrecisionFlags precision;
  DataFlags data;  // to calibrate with; none: no path
  std::optional<double> max_drop;
  bool verbose = false, quiet = false;
};

// Before the work, not after it.
void check_outputs(const BuildFlags& flags, const std::string& output) {
  for (const std::string& path :
       {output, flags.report, flags.build.dump_graph, flags.build.weights_path})
    check_output_file(path);
  check_timing_cache(flags.build);
  std::error_code error;
  if (fs::equivalent(flags.model, output, error))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("-o {} is the model itself; give the engine another name", output));
  const std::string& weights = flags.build.weights_path;
  if (weights.empty()) return;
  if (fs::absolute(weights).lexically_normal() == fs::absolute(output).lexically_normal() ||
      fs::equivalent(weights, output, error) || fs::equivalent(flags.model, weights, error))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("--weights {} is the model or the engine: give the weights another name",
                     weights));
}

void print_fallbacks(const BuildPlan& plan) {
  if (plan.target.starts_with("cpu")) return;
  fmt::print("  {}: {} of {} run on the GPU, with {}; machine code {}\n", plan.target,
             plan.gpu_steps, count_text(plan.gpu_steps + plan.cpu_steps, "step"),
             count_text(plan.copy_steps, "copy step"), bytes_text(plan.code_bytes));
  for (const BuildDecision& layer : plan.fallbacks)
    fmt::print("    on the CPU: \"{}\": {}\n", printable(layer.subject), printable(layer.text));
  for (const BuildDecision& decision : plan.decisions)
    if (decision.stage == "opt_shapes")
      fmt::print("    {}; --opt-shapes chooses other sizes\n", printable(decision.text));
}

// The result of the self-check, and its share of the time since the model was imported.
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
         "--max-drop needs samples to measure with: give --calibrate SAMPLES");
  const PrecisionFlags& precision = flags.precision;
  if (precision.f16 || precision.bf16 || precision.int8 || precision.best ||
      !precision.layers.empty() || !precision.weight_format.empty() || !precision.mix.empty() ||
      precision.max_layer_error != PrecisionFlags().max_layer_error)
    fail(ErrorCode::kInvalidArgument,
         "--max-drop chooses the precisions: leave out the flags for them");
  const BuildOptions& build = flags.build;
  if (build.targets.size() != 1 || !build.allow_fallback || build.max_memory != 0 ||
      build.pack_weights || !build.weights_path.empty() || build.time_kernels ||
      !build.timing_cache.empty() || !flags.report.empty() || !build.dump_graph.empty() ||
      !build.dump_passes.empty())
    fail(ErrorCode::kInvalidArgument,
         "--max-drop is for one target, without --no-fallback, --max-memory, --pack, "
         "--weights, --time-kernels, --report and dumps: build again with --mix for those");
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
                      {"layers", pass.layers},
                      {"profile", pass.profile}});
  for (const BuildPlan& plan : report.plans) {
    Json fallbacks = Json::array();
    for (const BuildDecision& layer : plan.fallbacks)
      fallbacks.push_back({{"layer", layer.subject}, {"why", layer.text}});
    plans.push_back({{"target", plan.target},
                     {"profile", plan.profile},
                     {"steps", plan.steps.size()},
                     {"arena_bytes", plan.arena_bytes},
                     {"code_bytes", plan.code_bytes},
                     {"gpu_steps", plan.gpu_steps},
                     {"cpu_steps", plan.cpu_steps},
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
  set_shapes(flags.shapes, model, options);
  options.precision = precision_options(flags.precision, !flags.data.data.empty());
  options.data_threads = flags.data.threads;
  set_self_check(flags.precision, options);
  if (flags.data.data.empty()) return options;
  if (options.precision.ranges)
    fail(
        ErrorCode::kInvalidArgument,
        "--calibrate and --calibration contradict each other: one measures ranges, one reads them");
  options.calibration.samples = open_data(flags.data, onnx_inputs(model, options));
  return options;
}

void print_built(const BuildOptions& options, const std::string& what, const BuildReport& report,
                 double total_milliseconds) {
  std::vector<std::string> made;
  for (const BuildPlan& plan : report.plans)
    made.push_back(
        fmt::format("{} for {}{}", count_text(plan.steps.size(), "step"), plan.target,
                    options.profiles.size() > 1 ? fmt::format(", profile {}", plan.profile) : ""));
  fmt::print("{}: {}, weights {}, file {}, built in {}\n", what, fmt::join(made, ", "),
             bytes_text(report.weight_bytes), bytes_text(report.engine_bytes),
             milliseconds_text(total_milliseconds));
  print_self_check_line(report.self_check, total_milliseconds);
  for (const BuildPlan& plan : report.plans) print_fallbacks(plan);
  if (options.time_kernels)
    for (const BuildPlan& plan : report.plans)
      for (const BuildDecision& decision : plan.decisions)
        if (decision.stage == "timing" && decision.text.starts_with("kernels for "))
          fmt::print("note: {}\n", decision.text);
  for (const BuildPlan& plan : report.plans) print_memory_note(plan);
}

int build_model(const BuildFlags& flags) {
  if (flags.model.empty())
    fail(ErrorCode::kInvalidArgument,
         "build needs a model: anneal build model.onnx -o model.engine");
  std::error_code error;
  if (flags.output.empty() && fs::is_fifo(flags.model, error))
    fail(ErrorCode::kInvalidArgument,
         "a model from a pipe has no name for the engine: name it with -o");
  const std::string output =
      flags.output.empty() ? fs::path(flags.model).stem().string() + ".engine" : flags.output;
  check_outputs(flags, output);
  if (flags.max_drop) return tune_instead(flags, output);

  const Stopwatch watch;
  ProgressLine progress(flags.verbose);
  progress.say(fmt::format("reading {}", flags.model));
  const ModelFile file(flags.model);
  BuildOptions options = build_options(flags, file.model());
  options.progress = shown_by(progress);
  const bool is_replaced = flags.output.empty() && fs::exists(output);
  const BuildReport report = build_engine(file.model(), output, options);
  const double total = watch.milliseconds();
  if (!flags.report.empty()) write_json(flags.report, report_json(flags, output, report, total));

  progress.clear();
  print_self_check(report.self_check);
  if (flags.quiet) return kSuccess;
  print_remarks(report.warnings);
  print_built(options, output + (is_replaced ? " (replaced)" : ""), report, total);
  return kSuccess;
}

void add_state(const std::string& pair, std::map<std::string, std::string>& states) {
  const size_t equals = pair.find('=');
  if (equals == std::string::npos)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("--state {}: give INPUT=OUTPUT, the names of an input and an output", pair));
  const auto [state, is_new] = states.emplace(pair.substr(0, equals), pair.substr(equals + 1));
  if (!is_new)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("--state {}: the input has the state {} already", pair, state->second));
}

constexpr const char* kBuildFooter = R"(Examples:
  anneal build model.onnx                                   writes model.engine
  anneal build model.onnx --shapes input:1x3x224x224 -o fast.engine
  anneal build model.onnx --fp16 --target sm_80,sm_90,cpu   two kinds of GPU, and the CPU
  anneal build model.onnx --int8 --calibrate photos --samples hash:100
  anneal build model.onnx --calibrate photos --max-drop 0.5

In SHAPES, NAME: may be left out if the model has one input. --help-all also lists the sample flags.
Exit status: 0 built; 2 wrong arguments or model; 3 the model has unsupported parts, all listed;
4 a library for the target is missing or failed. A build that fails does not change the engine file.)";

}  // namespace

void add_build_command(CLI::App& application, Action& action) {
  CLI::App* command =
      application.add_subcommand("build", "Build an engine file from an ONNX model");
  auto flags = std::make_shared<BuildFlags>();
  auto list_passes = std::make_shared<bool>(false);
  command->add_option("model", flags->model, "ONNX model")->group(often(help::kFiles));
  command
      ->add_option("-o,--output", flags->output,
                   "Engine file (default: the model's name + .engine)")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command
      ->add_option("--report", flags->report,
                   "Write a report as JSON: passes, times, layers, memory")
      ->type_name("FILE")
      ->group(rarely(help::kDiagnosis));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  command->add_flag("-q,--quiet", flags->quiet, "Print nothing on success")
      ->group(often(help::kFiles));
  command
      ->add_option("--target", flags->build.targets,
                   "cpu[:baseline|avx2|avx512|full], sm_80, emulated (default: cpu)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("TARGET,...")
      ->group(often(help::kTarget));
  add_memory_flag(*command, flags->build.max_memory, "Limit for weights and activations")
      ->group(often(help::kTarget));
  command
      ->add_flag("!--no-fallback", flags->build.allow_fallback,
                 "Fail if a layer of a GPU target would run on the CPU; lists them")
      ->group(often(help::kTarget));
  command
      ->add_flag("--pack", flags->build.pack_weights,
                 "Also store weights as this CPU's kernels pack them: faster load")
      ->group(often(help::kTarget));
  command
      ->add_option("--weights", flags->build.weights_path,
                   "Write the weights to this file, not to the engine (docs/refit.md)")
      ->type_name("FILE")
      ->group(rarely(help::kFiles));
  add_shape_flags(*command, flags->shapes, often);
  command
      ->add_option_function<std::vector<std::string>>(
          "--state",
          [flags](const std::vector<std::string>& pairs) {
            flags->build.states.clear();
            for (const std::string& pair : pairs) add_state(pair, flags->build.states);
          },
          "Input whose value is an output of the run before; contexts keep it.\n"
          "One * in both names stands for any text: past.*=present.*")
      ->allow_extra_args(false)
      ->type_name("INPUT=OUTPUT")
      ->group(rarely(help::kShapes));
  add_data_flags(*command, flags->data, "--calibrate");
  command
      ->add_option("--max-drop", flags->max_drop,
                   "With --calibrate: fastest mix of precisions that loses at most this")
      ->check(at_least(0))
      ->type_name("POINTS")
      ->group(often(help::kBudget));
  add_precision_flags(*command, flags->precision, often);
  add_pass_flags(*command, flags->build, often);
  add_timing_flags(*command, flags->build);
  command
      ->add_option("--time-threads", flags->build.threads,
                   "With --time-kernels: threads of the engine (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(rarely(help::kKernels));
  add_kernel_flags(*command, flags->build);
  command->add_option("--dump-graph", flags->build.dump_graph, "Write the optimized graph as text")
      ->type_name("FILE")
      ->group(rarely(help::kDiagnosis));
  command
      ->add_option("--dump-passes", flags->build.dump_passes,
                   "Write the graph as text after each pass that changes it")
      ->type_name("FOLDER")
      ->group(rarely(help::kDiagnosis));
  command->add_flag("--list-passes", *list_passes, "List the passes of the optimizer and exit")
      ->group(rarely(help::kDiagnosis));
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
