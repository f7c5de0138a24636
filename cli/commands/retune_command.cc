// `anneal retune`: the kernels of an engine chosen again on this machine.
#include <fmt/format.h>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/timing_flags.h"
#include "anneal/cli/flags/weights_flag.h"
#include "anneal/cli/model/retuned_text.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/stopwatch.h"

namespace anneal {
namespace {

struct RetuneFlags {
  std::string engine, output;
  BuildOptions build;
  bool verbose = false;
};

int retune(const RetuneFlags& flags) {
  const std::string output = flags.output.empty() ? flags.engine : flags.output;
  check_output_file(output);
  check_output_file(flags.build.timing_cache);
  const Stopwatch watch;
  ProgressLine progress(flags.verbose);
  BuildOptions options = flags.build;
  options.progress = shown_by(progress);
  const std::vector<RetunedPlan> plans = retune_engine(flags.engine, output, options);
  progress.clear();
  fmt::print("{}{}: retuned in {}\n{}", printable(output),
             flags.output.empty() ? " (replaced)" : "", milliseconds_text(watch.milliseconds()),
             retuned_text(plans));
  return kSuccess;
}

constexpr const char* kRetuneFooter = R"(Examples:
  anneal retune model.engine                        replaces the engine, whole or not at all
  anneal retune model.engine -o here.engine --timing-cache times

The engine keeps its precisions, passes, layouts and weights. Plans for other devices are
not changed. anneal inspect shows times and runners-up. Weights in a file of their own belong to
one engine: --weights names them, and both files are replaced, the weights first.
Exit status: 0 written; 2 wrong arguments, or a damaged file; 4 no plan is for a device of this
machine. On failure the engine is not changed; times that were measured stay in the cache.)";

}  // namespace

void add_retune_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand(
      "retune", "Choose the kernels of an engine again by times on this machine");
  auto flags = std::make_shared<RetuneFlags>();
  command->add_option("engine", flags->engine, "Engine file")
      ->required()
      ->group(often(help::kFiles));
  command->add_option("-o,--output", flags->output, "Engine file (default: replaces the engine)")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command
      ->add_option("--timing-cache", flags->build.timing_cache,
                   "File of kernel times to use and extend")
      ->type_name("FILE")
      ->group(often(help::kKernels));
  add_weights_flag(*command, flags->build.weights_path);
  add_engine_timing_flags(*command, flags->build, flags->verbose);
  command->footer(kRetuneFooter);
  command->callback([&action, flags] { action = [flags] { return retune(*flags); }; });
}

}  // namespace anneal
