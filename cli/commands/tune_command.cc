// `anneal tune`: the fastest engine within an accuracy budget, and what others cost.
#include <fmt/format.h>

#include <filesystem>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/commands/tune_model.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/pass_flags.h"

namespace anneal {
namespace {

constexpr const char* kTuneFooter = R"(Examples:
  anneal tune model.onnx --data photos --max-drop 0.5 --frontier model.svg
  anneal tune model.onnx --data arrays --metric sqnr --min-score 30
  anneal tune model.onnx --data photos --masks masks --metric miou --max-drop 0.5
  anneal tune model.onnx --data photos --metric-command ./f1.py --max-drop 0.01
  anneal build model.onnx --mix model.tuned.json:mix-3 -o mix-3.engine    another point

Metrics in percent: top1, top5 (labels), miou (mean IoU, with --masks, else with f32's masks:
miou-f32), cosine. With --min-score: sqnr (dB), max-error (minus the largest difference).
A command runs for each sample and prints a number; its argument is a folder with OUTPUT.npy,
reference/OUTPUT.npy, sample.txt, label.txt and mask/classes.npy.
The hash of a sample's name decides whether it calibrates, searches or confirms.
An interrupted run resumes from OUTPUT.tuning.
Exit status: 0 written; 2 wrong arguments or samples, or not even f32 meets the budget; 3 the model
is not supported; 4 the device is missing or failed.)";

}  // namespace

void add_tune_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand(
      "tune", "Find the fastest mix of precisions within an accuracy budget");
  auto flags = std::make_shared<TuneFlags>();
  command->add_option("model", flags->model, "ONNX model")->required()->group(often(help::kFiles));
  command
      ->add_option("-o,--output", flags->output,
                   "Engine file (default: the model's name + .engine)")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command
      ->add_option("--frontier", flags->frontier_files,
                   "Write the frontier to a .json, .csv, .svg or .txt; repeatable")
      ->allow_extra_args(false)
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  command->add_flag("-q,--quiet", flags->quiet, "Print nothing on success")
      ->group(often(help::kFiles));
  command
      ->add_option("--max-drop", flags->max_drop,
                   "Largest drop from f32, in points or the metric's unit (default: 0.5)")
      ->check(at_least(0))
      ->type_name("DROP")
      ->group(often(help::kBudget));
  command->add_option("--min-score", flags->min_score, "Minimum score, for sqnr and max-error")
      ->type_name("SCORE")
      ->group(often(help::kBudget));
  command
      ->add_option("--metric", flags->metric,
                   "top1, top5, miou, miou-f32, cosine, sqnr or max-error (default: top1,\n"
                   "without labels miou, without masks cosine)")
      ->type_name("METRIC")
      ->group(often(help::kBudget));
  command
      ->add_option("--metric-command", flags->metric_command,
                   "Program that prints a number for each sample; the score is the mean")
      ->type_name("COMMAND")
      ->group(often(help::kBudget));
  command
      ->add_option("--metric-output", flags->metric_output,
                   "Output with scores or masks (default: the first that fits)")
      ->type_name("NAME")
      ->group(rarely(help::kBudget));
  constexpr std::string_view kLabels[] = {"labels", "masks"};
  add_data_flags(*command, flags->data, "--data", kLabels);
  command->add_option("--target,--device", flags->build.targets[0], "cpu, cpu:avx2, sm_90, ...")
      ->capture_default_str()
      ->type_name("TARGET")
      ->group(often(help::kTarget));
  command
      ->add_option("--threads", flags->build.threads,
                   "Maximum number of threads (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(often(help::kTarget));
  add_shape_flags(*command, flags->shapes);
  command
      ->add_option("--precisions", flags->precisions,
                   "Besides f32: f16, bf16, int8 (default: those faster on the target)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(often(help::kSearch));
  command
      ->add_option("--calibration", flags->calibration,
                   "Table of anneal calibrate (default: calibrates on some samples)")
      ->type_name("FILE")
      ->group(often(help::kSearch));
  command
      ->add_option("--tune-seconds", flags->build.tuning.seconds,
                   "Time limit of the search (default: none)")
      ->check(at_least(0))
      ->type_name("SECONDS")
      ->group(often(help::kSearch));
  command->add_flag("--symmetric", flags->build.precision.symmetric, "int8: all zero points are 0")
      ->group(rarely(help::kSearch));
  command
      ->add_option("--calibrate-samples", flags->build.tuning.calibrate_samples,
                   "Samples to calibrate with (default: 20 %)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(rarely(help::kSearch));
  command
      ->add_option("--search-samples", flags->build.tuning.search_samples,
                   "Samples to search with (default: 30 %); the others confirm")
      ->check(at_least(0))
      ->type_name("N")
      ->group(rarely(help::kSearch));
  command
      ->add_option("--groups", flags->build.tuning.most_groups,
                   "Maximum number of layer groups; further ones are merged")
      ->capture_default_str()
      ->check(at_least(1))
      ->type_name("N")
      ->group(rarely(help::kSearch));
  command
      ->add_flag("--modelled-times", flags->build.tuning.modelled_times,
                 "Use modelled latencies, which are the same on every machine")
      ->group(rarely(help::kSearch));
  add_pass_flags(*command, flags->build);
  add_kernel_flags(*command, flags->build);
  command->footer(kTuneFooter);
  command->callback([&action, flags] {
    action = [flags] {
      if (flags->output.empty())
        flags->output = std::filesystem::path(flags->model).stem().string() + ".engine";
      return tune_model(*flags);
    };
  });
}

}  // namespace anneal
