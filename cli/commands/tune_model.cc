#include "anneal/cli/commands/tune_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/measure/process_facts.h"
#include "anneal/cli/model/sample_hints.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/stopwatch.h"
#include "anneal/cli/output/text_file.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

// By the suffix of a file.
FrontierForm frontier_form(const std::string& path) {
  if (path.ends_with(".json")) return FrontierForm::kJson;
  if (path.ends_with(".csv")) return FrontierForm::kCsv;
  if (path.ends_with(".svg")) return FrontierForm::kSvg;
  if (path.ends_with(".txt")) return FrontierForm::kTable;
  refuse_argument(
      fmt::format("--frontier {}: the name must end in .json, .csv, .svg or .txt", path));
}

std::string tuned_path(const std::string& output) {
  const std::string_view suffix = ".engine";
  std::string stem = output;
  if (stem.ends_with(suffix)) stem.resize(stem.size() - suffix.size());
  return stem + ".tuned.json";
}

// Whether the f32 model's masks replace missing ones.
bool lacks_masks(const TuneFlags& flags, const Dataset& samples) {
  return flags.metric == "miou" && !samples.mask(0);
}

std::shared_ptr<const Metric> metric_for(const TuneFlags& flags, const Dataset& samples) {
  if (!flags.metric_command.empty()) {
    if (!flags.metric.empty())
      refuse_argument("--metric and --metric-command name two metrics; give one");
    return command_metric(flags.metric_command);
  }
  std::string name = flags.metric;
  if (name.empty()) name = samples.label(0) ? "top1" : samples.mask(0) ? "miou" : "cosine";
  if (lacks_masks(flags, samples)) name = "miou-f32";
  return make_metric(name, flags.metric_output);
}

std::set<Precision> precisions_for(const TuneFlags& flags) {
  std::set<Precision> precisions;
  for (const std::string& text : flags.precisions) {
    const auto found =
        std::ranges::find(kAllPrecisions, text, [](Precision each) { return to_string(each); });
    if (found == std::end(kAllPrecisions))
      refuse_argument(fmt::format("--precisions {}: there are f32, f16, bf16 and int8", text));
    precisions.insert(*found);
  }
  return precisions;
}

std::string time_left(double seconds) {
  return seconds < 90 ? fmt::format("{:.0f} s left", seconds)
                      : fmt::format("{:.0f} min left", seconds / 60);
}

// Many a model is called model.onnx, in a folder that has its name.
std::string name_of(const std::string& model) {
  const fs::path path = fs::absolute(model);
  const std::string stem = path.stem().string();
  return stem == "model" && path.has_parent_path() ? path.parent_path().filename().string() : stem;
}

// The flags of an equivalent build, without the mix.
std::string build_flags(const TuneFlags& flags) {
  std::string text;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) text += fmt::format(" {} {}", flag, quoted(value));
  };
  const auto add_all = [&](const char* flag, const std::vector<std::string>& values) {
    for (const std::string& value : values) add(flag, value);
  };
  if (flags.build.targets[0] != "cpu") add("--target", flags.build.targets[0]);
  add("--shapes", flags.shapes.shapes);
  add_all("--min-shapes", flags.shapes.min);
  add_all("--opt-shapes", flags.shapes.opt);
  add_all("--max-shapes", flags.shapes.max);
  for (const std::string& pass : flags.build.skip_passes) add("--skip-pass", pass);
  if (!flags.build.only_passes.empty())
    add("--only-passes", fmt::format("{}", fmt::join(flags.build.only_passes, ",")));
  for (const std::string& kernel : flags.build.skip_kernels) add("--skip-kernel", kernel);
  return text;
}

std::string build_command(const TuneFlags& flags, const std::string& point) {
  return fmt::format("anneal build {} --mix {} -o {}{}", quoted(flags.model),
                     quoted(tuned_path(flags.output) + ":" + point), quoted(point + ".engine"),
                     build_flags(flags));
}

// The files that a command's answers depend on: the text of the command, and its program.
std::string command_identity(const std::string& command) {
  const std::string program = command.substr(0, command.find(' '));
  std::error_code error;
  if (!fs::is_regular_file(program, error)) return command;
  return fmt::format("{} {:016x}", command, std::hash<std::string>()(read_text(program)));
}

}  // namespace

int tune_model(const TuneFlags& flags) {
  const std::string tuned_file = tuned_path(flags.output);
  for (const std::string& path : {flags.output, tuned_file}) check_output_file(path);
  for (const std::string& path : flags.frontier_files) {
    frontier_form(path);
    check_output_file(path);
    if (fs::absolute(path) == fs::absolute(tuned_file))
      refuse_argument(
          fmt::format("--frontier {}: this file is always written; name another", path));
  }
  if (!std::isfinite(flags.max_drop.value_or(0)) || !std::isfinite(flags.min_score.value_or(0)))
    refuse_argument("--max-drop and --min-score: a finite number is expected");
  ProgressLine progress(flags.verbose);
  progress.say(fmt::format("reading {}", flags.model));
  const ModelFile file(flags.model);
  BuildOptions options = flags.build;
  set_shapes(flags.shapes, file.model(), options);
  const auto samples = open_data(flags.data, onnx_inputs(file.model(), options));
  const std::shared_ptr<const Metric> metric = metric_for(flags, *samples);
  const bool has_drop = metric->has_drop();
  if (has_drop && flags.min_score)
    refuse_argument(fmt::format("--min-score is for metrics without a drop; of {} give --max-drop",
                                metric->name()));
  if (!has_drop && (flags.max_drop || !flags.min_score))
    refuse_argument(fmt::format("{} has no drop against f32: set the budget with --min-score alone",
                                metric->name()));
  TuneOptions& tuning = options.tuning;
  tuning.budget = has_drop ? flags.max_drop.value_or(0.5) : *flags.min_score;
  tuning.journal = flags.output + ".tuning";
  tuning.journal_key = fmt::format("{}\n{}\n{}", command_identity(flags.metric_command),
                                   flags.metric_output, fmt::join(flags.data.settings, "\n"));
  options.precision.types = precisions_for(flags);
  if (!flags.calibration.empty())
    options.precision.ranges = read_calibration_table(flags.calibration);
  options.data_threads = flags.data.threads;
  options.progress = [&](const Progress& at) {
    progress.say(fmt::format("{:3.0f} %  {}{}", 100 * at.share, at.what,
                             at.seconds_left ? ", " + time_left(*at.seconds_left) : ""));
    return true;
  };
  const std::vector<std::string> hints = scale_hints(*samples);
  const Stopwatch watch;
  const ProcessorTime before = processor_time();
  TunedEngine tuned = tune(file.model(), samples, metric, options);
  progress.clear();
  const double took = watch.seconds();
  const MachineLoad load = load_between(before, processor_time(), took, 0);
  if (load.busy() && !tuning.modelled_times)
    tuned.frontier.warnings.push_back(
        fmt::format("the machine was BUSY: other processes used {:.1f} of its {}, so times are "
                    "too long, and an idle machine may give another choice",
                    load.other_cores, count_text(static_cast<uint64_t>(load.cores), "core")));
  tuned.frontier.model = name_of(flags.model);
  if (lacks_masks(flags, *samples))
    tuned.frontier.warnings.push_back(
        "the data has no masks (--masks), so the mean IoU is measured against the masks of f32, "
        "not against the truth");
  for (FrontierPoint& point : tuned.frontier.points)
    point.command = build_command(flags, point.name);
  write_text(tuned_file, to_string(tuned.frontier, FrontierForm::kJson));
  for (const std::string& path : flags.frontier_files)
    write_text(path, to_string(tuned.frontier, frontier_form(path)));
  // The engine last: what fails before leaves no engine.
  write_bytes(flags.output, tuned.bytes);
  fs::remove(tuning.journal);
  if (flags.quiet) return kSuccess;
  // If half of the answers are right, the inputs have the form of the training.
  const auto f32 = std::ranges::find(tuned.frontier.points, "f32", &FrontierPoint::name);
  if (f32 == tuned.frontier.points.end() || tuned.frontier.unit != "%" || f32->search.score < 50)
    print_hints(hints);
  if (tuned.was_resumed)
    fmt::print(stderr, "anneal: resumed from {}.tuning\n", printable(flags.output));
  fmt::print("{}", printable(to_string(tuned.frontier, FrontierForm::kTable), LineEnds::kKept));
  const FrontierPoint& chosen = tuned.frontier.points[tuned.frontier.chosen];
  fmt::print("{}: {}\nany other point: {}\n", printable(flags.output), chosen.name,
             printable(build_command(flags, "POINT")));
  return kSuccess;
}

}  // namespace anneal
