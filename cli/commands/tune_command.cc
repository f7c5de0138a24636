// `anneal tune`: the fastest engine within an accuracy budget, and what others cost.
#include <fmt/format.h>

#include <filesystem>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/commands/tune_model.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/pass_flags.h"

namespace anneal {
namespace {

constexpr const char* kTuneFooter = R"(Examples:
  anneal tune model.onnx --data pictures --max-drop 0.5 -o model.engine
                                       at most half a point of top-1, as fast as possible
  anneal tune model.onnx --data pictures --frontier model.svg --frontier model.csv
  anneal tune model.onnx --data arrays --metric sqnr --min-score 30
                                       no labels: 30 dB between f32 and its difference
  anneal tune model.onnx --data pictures --masks masks --metric miou --max-drop 0.5
                                       segmentation: mean IoU with the truth
  anneal tune model.onnx --data pictures --metric-command ./f1.py --max-drop 0.01
  anneal build model.onnx --mix model.tuned.json:mix-3 -o mix-3.engine
                                       another point of the frontier

Metrics: top1, top5 (labels), miou (mean IoU with --masks; without masks, with those of f32: miou-f32),
cosine (default without labels and masks): in percent; with --min-score instead of --max-drop: sqnr
(dB), max-error (minus the largest difference).
A command is run for each sample with a folder that holds OUTPUT.npy, reference/OUTPUT.npy,
sample.txt, label.txt and mask/classes.npy; it prints a number.
The samples are split by the hash of their names: to calibrate, to search with, to confirm.
Killed, it goes on where it was when it is given the same command: OUTPUT.tuning is what it knew.
Exit status: 0 written; 2 wrong arguments, samples that cannot be read or do not fit, or a budget
that not even f32 keeps; 3 a model that Anneal does not support.)";

}  // namespace

void add_tune_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand(
      "tune", "Find the fastest mix of precisions within an accuracy budget");
  auto flags = std::make_shared<TuneFlags>();
  command->add_option("model", flags->model, "The ONNX model")->type_name("MODEL.onnx")->required();
  command
      ->add_option("-o,--output", flags->output,
                   "The engine file (default: model's name + .engine)")
      ->type_name("FILE");
  command
      ->add_option("--max-drop", flags->max_drop,
                   "The most that may be lost against f32: points of a percentage, or what the "
                   "metric counts in (default: 0.5)")
      ->check(at_least(0));
  command->add_option("--min-score", flags->min_score, "The least score, of sqnr and max-error");
  command
      ->add_option("--metric", flags->metric,
                   "top1, top5, miou, miou-f32, cosine, sqnr or max-error (default: top1, without "
                   "labels miou, without masks cosine)")
      ->type_name("METRIC");
  command
      ->add_option("--metric-command", flags->metric_command,
                   "A program that judges: a number for each sample, whose mean is the score")
      ->type_name("COMMAND");
  command
      ->add_option("--metric-output", flags->metric_output,
                   "The output with scores or masks (default: the first that fits)")
      ->type_name("NAME");
  command
      ->add_option("--frontier", flags->frontier_files,
                   "Write the frontier here: .json, .csv, .svg or .txt; may be given several times")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command
      ->add_option("--precisions", flags->precisions,
                   "What to choose from beside f32, a list: f16, bf16, int8 (default: those that "
                   "pay on the target)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command
      ->add_option("--target,--device", flags->build.targets[0],
                   "What to build for: cpu, cpu:avx2, sm_90, ...")
      ->capture_default_str();
  command
      ->add_option(
          "--calibration", flags->calibration,
          "The table that anneal calibrate wrote (default: calibrate on a share of the samples)")
      ->type_name("FILE");
  command->add_flag("--symmetric", flags->build.precision.symmetric, "With zero points of 0 only");
  command
      ->add_option("--calibrate-samples", flags->build.tuning.calibrate_samples,
                   "Samples to calibrate with; 0: a fifth")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--search-samples", flags->build.tuning.search_samples,
                   "Samples to search with; 0: three tenths. All others confirm")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--tune-seconds", flags->build.tuning.seconds,
                   "When to stop trying; 0: when all is tried")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--groups", flags->build.tuning.most_groups,
                   "Most groups of layers to choose for; more are put together")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_flag("--modelled-times", flags->build.tuning.modelled_times,
                    "Take no times: latencies by published figures, the same on every machine");
  command->add_option("--threads", flags->build.threads, "Threads of an inference; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  add_shape_flags(*command, flags->shapes);
  add_data_flags(*command, flags->data);
  add_pass_flags(*command, flags->build);
  add_kernel_flags(*command, flags->build);
  command->add_flag("-v,--verbose", flags->verbose, "Say on stderr what is being done");
  command->add_flag("-q,--quiet", flags->quiet, "Print nothing on success");
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
