#include "anneal/cli/flags/timing_flags.h"

#include "anneal/cli/output/output_path.h"

namespace anneal {

void add_timing_flags(CLI::App& command, BuildOptions& options) {
  command.add_flag("--time-kernels", options.time_kernels,
                   "Time the CPU's kernels where several can run a layer, and take the fastest");
  command
      .add_option("--timing-cache", options.timing_cache,
                  "Take the times that this file has, and add those that are measured")
      ->type_name("FILE");
}

void check_timing_cache(const BuildOptions& options) {
  if (options.time_kernels) check_output_file(options.timing_cache);
}

}  // namespace anneal
