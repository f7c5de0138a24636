// `anneal calibrate`: the ranges of a model's tensors over samples, as a table.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/data_flags.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/model/import_model.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/sample_hints.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/text_file.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct CalibrateFlags {
  std::string model, output, method = "auto", fit_weights = "auto", correct_bias = "auto",
                             equalize = "auto";
  ShapeFlags shapes;
  DataFlags data;
  BuildOptions build;
  bool verbose = false, quiet = false;
};

constexpr std::pair<std::string_view, FitChoice> kChoices[] = {
    {"off", FitChoice::kOff}, {"on", FitChoice::kOn}, {"auto", FitChoice::kAuto}};

FitChoice parse_choice(std::string_view flag, std::string_view text) {
  for (const auto& [name, choice] : kChoices)
    if (text == name) return choice;
  fail(ErrorCode::kInvalidArgument, fmt::format("{} {}: there are on, off and auto", flag, text));
}

RangeMethod parse_method(std::string_view text) {
  using enum RangeMethod;
  for (const RangeMethod method : {kMinMax, kEntropy, kPercentile, kMse, kAuto})
    if (to_string(method) == text) return method;
  fail(ErrorCode::kInvalidArgument,
       fmt::format("--method {}: there are minmax, entropy, percentile, mse and auto", text));
}

int calibrate_model(const CalibrateFlags& flags) {
  const std::string output =
      flags.output.empty() ? fs::path(flags.model).stem().string() + ".ranges" : flags.output;
  check_output_file(output);
  BuildOptions options = flags.build;
  set_shapes(flags.shapes, options);
  options.calibration.method = parse_method(flags.method);
  options.calibration.fit_weights = parse_choice("--fit-weights", flags.fit_weights);
  options.calibration.correct_bias = parse_choice("--correct-bias", flags.correct_bias);
  options.calibration.equalize = parse_choice("--equalize", flags.equalize);
  options.data_threads = flags.data.threads;
  ProgressLine progress(flags.verbose);
  progress.say(fmt::format("  0 %  reading {}", flags.model));
  const ModelFile file(flags.model);
  const auto samples = open_data(flags.data, onnx_inputs(file.model(), options));
  const std::vector<std::string> hints = scale_hints(*samples);
  progress.say("  0 %  building the engine that measures ranges");
  options.progress = [&](const Progress& at) {
    progress.say(fmt::format("{:3.0f} %  {}", 100 * at.share, at.what));
    return true;
  };
  const auto start = Clock::now();
  const Calibration calibration = calibrate(file.model(), samples, options);
  write_text(output, to_string(calibration.table));
  progress.clear();
  if (flags.quiet) return kSuccess;
  print_remarks(calibration.warnings);
  print_hints(hints);
  const std::chrono::duration<double, std::milli> took = Clock::now() - start;
  fmt::print("{}: ranges of {} over {}, in {}\n", output,
             count_text(calibration.table.tensors.size(), "tensor"),
             count_text(static_cast<size_t>(calibration.table.samples), "sample"),
             milliseconds_text(took.count()));
  return kSuccess;
}

constexpr const char* kCalibrateFooter = R"(Examples:
  anneal calibrate model.onnx --data pictures --samples hash:100 -o model.ranges
  anneal build model.onnx --int8 --calibration model.ranges

The model runs in f32 on the CPU. Labels are not used. The table is text: a line per tensor with the
range that will be quantized, the extremes that were seen and the method that chose.
Methods: minmax, the extremes; entropy, TensorRT's rule; percentile; mse, the least squared error;
auto, the one of these with the least measured error for each tensor.
Then layers run in 8 bits beside themselves in f32, over 100 samples at most: what makes the error
of a layer's results less (--fit-weights, --correct-bias) is in the table, too.
Exit status: 0 written; 2 wrong arguments, samples that cannot be read or do not fit, or values that
are not finite; 3 a model that Anneal does not support.)";

}  // namespace

void add_calibrate_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand(
      "calibrate", "Find the ranges of a model's tensors over samples, for --int8");
  auto flags = std::make_shared<CalibrateFlags>();
  command->add_option("model", flags->model, "The ONNX model")->type_name("MODEL.onnx")->required();
  command->add_option("-o,--output", flags->output, "The table (default: MODEL.ranges)")
      ->type_name("FILE");
  command->add_option("--method", flags->method, "minmax, entropy, percentile, mse or auto")
      ->capture_default_str()
      ->type_name("METHOD");
  command
      ->add_option("--percentile", flags->build.calibration.percentile,
                   "Of the method: percent of the elements that lie inside")
      ->capture_default_str()
      ->check(CLI::Range(50.0, 100.0));
  command->add_flag("--symmetric", flags->build.precision.symmetric,
                    "For builds with --symmetric: zero points will be 0");
  const auto add_choice = [&](const char* flag, std::string& use, const char* what) {
    command->add_option(flag, use, what)->capture_default_str()->type_name("on|off|auto");
  };
  add_choice("--fit-weights", flags->fit_weights,
             "Scales by which rounding a layer's weights costs least");
  add_choice("--correct-bias", flags->correct_bias,
             "Give back to each channel what quantizing takes from its mean");
  add_choice("--equalize", flags->equalize,
             "Powers of two that bring channels nearer to each other, between products");
  add_shape_flags(*command, flags->shapes);
  add_pass_flags(*command, flags->build);
  add_data_flags(*command, flags->data);
  command
      ->add_option("--threads", flags->build.threads,
                   "Most threads of an inference; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_flag("-v,--verbose", flags->verbose, "Say on stderr what is being done");
  command->add_flag("-q,--quiet", flags->quiet, "Print nothing on success");
  command->footer(kCalibrateFooter);
  command->callback([&action, flags] { action = [flags] { return calibrate_model(*flags); }; });
}

}  // namespace anneal
