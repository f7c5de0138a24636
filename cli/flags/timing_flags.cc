#include "anneal/cli/flags/timing_flags.h"

#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/library_flag.h"
#include "anneal/cli/output/output_path.h"

namespace anneal {

void add_timing_flags(CLI::App& command, BuildOptions& options) {
  command
      .add_flag("--time-kernels", options.time_kernels,
                "Choose kernels and tactics by times measured here, on CPU and card")
      ->group(often(help::kKernels));
  command
      .add_option("--timing-cache", options.timing_cache, "File of kernel times to use and extend")
      ->type_name("FILE")
      ->group(often(help::kKernels));
  add_tuning_flags(command, options);
}

void add_tuning_flags(CLI::App& command, BuildOptions& options) {
  command
      .add_option("--optimization-level", options.optimization_level,
                  "Tactics timed of a kernel; 0: none, 1-5: 1, 2, 4, 8, all (default: 3)")
      ->check(between(0, 5))
      ->type_name("N")
      ->group(rarely(help::kKernels));
  command
      .add_option("--tune-seconds", options.time_seconds,
                  "Begin no further layer after this time (default: no limit)")
      ->check(at_least(0))
      ->type_name("SECONDS")
      ->group(rarely(help::kKernels));
}

void add_engine_timing_flags(CLI::App& command, BuildOptions& options, bool& verbose) {
  add_tuning_flags(command, options);
  add_library_flag(command, options.libraries);
  command.add_flag("-v,--verbose", verbose, "Print progress to stderr")->group(often(help::kFiles));
  command
      .add_option("--time-threads", options.threads,
                  "Threads of the engine on the CPU (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(rarely(help::kKernels));
}

void check_timing_cache(const BuildOptions& options) {
  if (options.time_kernels) check_output_file(options.timing_cache);
}

}  // namespace anneal
