// `anneal refit`: the weights of another model in an engine.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/library_flag.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {
namespace {

struct RefitFlags {
  std::string engine, model, output;
  BuildOptions build;
  bool json = false, verbose = false;
};

Json refit_json(const RefitFlags& flags, const std::string& output, const BuildReport& report,
                double milliseconds) {
  Json plans = Json::array();
  for (const BuildPlan& plan : report.plans)
    plans.push_back({{"target", plan.target}, {"steps", plan.steps.size()}});
  Json json = {{"engine", flags.engine}, {"model", flags.model}};
  if (!output.empty()) json["output"] = output;
  if (!flags.build.weights_path.empty()) json["weights_file"] = flags.build.weights_path;
  json["plans"] = std::move(plans);
  json["weights"] = report.weights;
  json["changed_weights"] = report.changed_weights;
  json["changed_literals"] = report.changed_literals;
  json["weight_bytes"] = report.weight_bytes;
  json["milliseconds"] = milliseconds;
  return json;
}

// is_apart: the old weights are in a file that is not read.
void print_refitted(const std::string& what, const BuildReport& report, bool is_apart,
                    double milliseconds) {
  size_t steps = 0;
  for (const BuildPlan& plan : report.plans) steps += plan.steps.size();
  const std::string weights = count_text(report.weights, "weight");
  fmt::print("{}: {}, {} of {} kept, refitted in {}\n", printable(what),
             is_apart ? weights + " written"
                      : fmt::format("{} of {} changed", report.changed_weights, weights),
             count_text(steps, "step"), count_text(report.plans.size(), "plan"),
             milliseconds_text(milliseconds));
  if (report.changed_literals > 0)
    fmt::print("  {} of programs changed\n", count_text(report.changed_literals, "scalar"));
}

int refit(const RefitFlags& flags) {
  namespace fs = std::filesystem;
  const std::string& weights = flags.build.weights_path;
  const std::string output = !flags.output.empty() || !weights.empty()
                                 ? flags.output
                                 : fs::path(flags.model).stem().string() + ".engine";
  check_output_file(output);
  check_output_file(weights);
  const bool is_replaced = flags.output.empty() && !output.empty() && fs::exists(output);
  ProgressLine progress(flags.verbose);
  BuildOptions options = flags.build;
  options.progress = shown_by(progress);
  const BuildReport report = refit_engine(flags.engine, flags.model, output, options);
  const double milliseconds = report.import_milliseconds + report.build_milliseconds;
  progress.clear();
  if (flags.json)
    fmt::print("{}", json_text(refit_json(flags, output, report, milliseconds)));
  else
    print_refitted((output.empty() ? weights : output) + (is_replaced ? " (replaced)" : ""), report,
                   !weights.empty(), milliseconds);
  return kSuccess;
}

constexpr const char* kRefitFooter = R"(Examples:
  anneal refit model.engine new.onnx                      writes new.engine
  anneal refit model.engine new.onnx -o model.engine      replaces the engine, whole or not at all
  anneal refit model.engine new.onnx --weights new.weights    of an engine without weights

The new model has the same layers, shapes and names as the engine's model, with other weights. The
engine keeps its options, precisions, ranges and kernels: nothing is timed, calibrated or compared
with f32 (docs/refit.md).
Exit status: 0 written; 2 wrong arguments, a damaged file, or a model that does not fit, with the
first difference; 3 the model is not supported. On failure no file changes, unless the second of
two files cannot be written: a new file of weights may then be there without its engine.)";

}  // namespace

void add_refit_command(CLI::App& application, Action& action) {
  CLI::App* command =
      application.add_subcommand("refit", "Give an engine the weights of another ONNX model");
  auto flags = std::make_shared<RefitFlags>();
  command->add_option("engine", flags->engine, "Engine file")
      ->required()
      ->group(often(help::kFiles));
  command->add_option("model", flags->model, "ONNX model with the new weights")
      ->required()
      ->group(often(help::kFiles));
  command
      ->add_option("-o,--output", flags->output,
                   "Engine file (default: the model's name + .engine)")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command
      ->add_option("--weights", flags->build.weights_path,
                   "Of an engine without weights: file to write the new weights to")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  add_library_flag(*command, flags->build.libraries);
  command->add_flag("--json", flags->json, "Print JSON, for programs")->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  command->add_option("--threads", flags->build.threads, "Threads (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(rarely(help::kRun));
  command->footer(kRefitFooter);
  command->callback([&action, flags] { action = [flags] { return refit(*flags); }; });
}

}  // namespace anneal
