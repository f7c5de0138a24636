// `anneal calibrate`: the ranges of a model's tensors over samples, as a table.
#include <fmt/format.h>

#include <filesystem>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/data_flags.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/model/model_source.h"
#include "anneal/cli/model/open_engine.h"
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
  options.calibration.method = parse_method(flags.method);
  options.calibration.fit_weights = parse_choice("--fit-weights", flags.fit_weights);
  options.calibration.correct_bias = parse_choice("--correct-bias", flags.correct_bias);
  options.calibration.equalize = parse_choice("--equalize", flags.equalize);
  options.data_threads = flags.data.threads;
  ProgressLine progress(flags.verbose);
  progress.say(fmt::format("  0 %  reading {}", flags.model));
  const ModelFile file(flags.model);
  set_shapes(flags.shapes, file.model(), options);
  const auto samples = open_data(flags.data, onnx_inputs(file.model(), options));
  const std::vector<std::string> hints = scale_hints(*samples);
  progress.say("  0 %  building the engine that measures ranges");
  options.progress = [&](const Progress& at) {
    progress.say(fmt::format("{:3.0f} %  {}", 100 * at.share, at.what));
    return true;
  };
  const Stopwatch watch;
  const Calibration calibration = calibrate(file.model(), samples, options);
  write_text(output, to_string(calibration.table));
  progress.clear();
  if (flags.quiet) return kSuccess;
  print_remarks(calibration.warnings);
  print_hints(hints);
  fmt::print("{}: ranges of {} over {}, in {}\n", output,
             count_text(calibration.table.tensors.size(), "tensor"),
             count_text(static_cast<size_t>(calibration.table.samples), "sample"),
             milliseconds_text(watch.milliseconds()));
  return kSuccess;
}

constexpr const char* kCalibrateFooter = R"(Examples:
  anneal calibrate model.onnx --data photos --samples hash:100 -o model.ranges
  anneal build model.onnx --int8 --calibration model.ranges

The model runs in f32 on the CPU; labels are not used. The table is text: for each tensor the
quantized range, the smallest and largest value seen, and the method.
Methods: minmax, the smallest and largest value; entropy, as in TensorRT; percentile; mse, the least
squared error; auto, for each tensor the method with the least measured error.
Then each layer runs in int8 and in f32 over at most 100 samples. Corrections that reduce its error
(--fit-weights, --correct-bias) are stored in the table.
Exit status: 0 written; 2 wrong arguments or samples, or values that are not finite; 3 the model is
not supported.)";

}  // namespace

void add_calibrate_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand(
      "calibrate", "Measure the ranges of a model's tensors over samples, for int8");
  auto flags = std::make_shared<CalibrateFlags>();
  command->add_option("model", flags->model, "ONNX model")->required()->group(often(help::kFiles));
  command
      ->add_option("-o,--output", flags->output,
                   "Calibration table (default: the model's name + .ranges)")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  command->add_flag("-q,--quiet", flags->quiet, "Print nothing on success")
      ->group(often(help::kFiles));
  add_data_flags(*command, flags->data);
  command->add_option("--method", flags->method, "minmax, entropy, percentile, mse or auto")
      ->capture_default_str()
      ->type_name("METHOD")
      ->group(often(help::kCalibration));
  command
      ->add_option("--percentile", flags->build.calibration.percentile,
                   "With --method percentile: percent inside the range")
      ->capture_default_str()
      ->check(between(50, 100))
      ->type_name("PERCENT")
      ->group(often(help::kCalibration));
  command
      ->add_flag("--symmetric", flags->build.precision.symmetric,
                 "For builds with --symmetric: all zero points are 0")
      ->group(often(help::kCalibration));
  const auto add_choice = [&](const char* flag, std::string& use, const char* text) {
    command->add_option(flag, use, text)
        ->capture_default_str()
        ->type_name("on|off|auto")
        ->group(often(help::kCalibration));
  };
  add_choice("--fit-weights", flags->fit_weights, "Fit weight scales to the least rounding error");
  add_choice("--correct-bias", flags->correct_bias, "Correct the mean error of each channel");
  add_choice("--equalize", flags->equalize,
             "Scale channels by powers of two to similar magnitudes");
  add_shape_flags(*command, flags->shapes);
  add_pass_flags(*command, flags->build);
  command
      ->add_option("--threads", flags->build.threads,
                   "Maximum number of threads (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(often(help::kRun));
  command->footer(kCalibrateFooter);
  command->callback([&action, flags] { action = [flags] { return calibrate_model(*flags); }; });
}

}  // namespace anneal
