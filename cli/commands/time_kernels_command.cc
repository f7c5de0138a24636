// `anneal time-kernels`: the times of an engine's kernels on this machine, for builds elsewhere.
#include <fmt/format.h>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/timing_flags.h"
#include "anneal/cli/flags/weights_flag.h"
#include "anneal/cli/model/retuned_text.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/stopwatch.h"

namespace anneal {
namespace {

struct TimeKernelsFlags {
  std::string engine;
  std::vector<std::string> merged;
  BuildOptions build;
  bool verbose = false;
};

int time_kernels(const TimeKernelsFlags& flags) {
  const std::string& cache = flags.build.timing_cache;
  check_output_file(cache);
  if (flags.engine.empty() == flags.merged.empty())
    fail(ErrorCode::kInvalidArgument, "give an engine to time, or caches to --merge");
  if (!flags.merged.empty()) {
    const size_t layers = merge_timing_caches(cache, flags.merged);
    fmt::print("{}: times of {}\n", printable(cache), count_text(layers, "layer"));
    return kSuccess;
  }
  const Stopwatch watch;
  ProgressLine progress(flags.verbose);
  BuildOptions options = flags.build;
  options.progress = shown_by(progress);
  const std::vector<RetunedPlan> plans = time_engine_kernels(flags.engine, options);
  progress.clear();
  fmt::print("{}: kernels timed in {}; with these times\n{}", printable(cache),
             milliseconds_text(watch.milliseconds()), retuned_text(plans));
  return kSuccess;
}

constexpr const char* kTimeKernelsFooter = R"(Examples:
  anneal time-kernels model.engine -o h100.times                on the machine with the card
  anneal build model.onnx --target sm_90 --timing-cache h100.times    on any machine
  anneal time-kernels --merge a.times,b.times -o all.times

The cache is a text file: a line for each machine and layer, with the time of each kernel and
tactic. A layer whose kernels all have times is not measured again. Lines may be removed or edited.
Exit status: 0 written; 2 wrong arguments, or a damaged file; 4 no plan is for a device of this
machine.)";

}  // namespace

void add_time_kernels_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand(
      "time-kernels", "Measure the kernels of an engine's layers on this machine");
  auto flags = std::make_shared<TimeKernelsFlags>();
  command->add_option("engine", flags->engine, "Engine file")->group(often(help::kFiles));
  command
      ->add_option("-o,--output", flags->build.timing_cache,
                   "Timing cache to extend; it need not exist")
      ->required()
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command
      ->add_option("--merge", flags->merged,
                   "Add the times of these caches instead; later ones replace earlier ones")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE,...")
      ->group(often(help::kFiles));
  add_weights_flag(*command, flags->build.weights_path);
  add_engine_timing_flags(*command, flags->build, flags->verbose);
  command->footer(kTimeKernelsFooter);
  command->callback([&action, flags] { action = [flags] { return time_kernels(*flags); }; });
}

}  // namespace anneal
