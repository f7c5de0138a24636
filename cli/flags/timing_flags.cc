#include "anneal/cli/flags/timing_flags.h"

#include "anneal/cli/output/output_path.h"

namespace anneal {

void add_timing_flags(CLI::App& command, KernelTiming& timing) {
  command.add_flag("--time-kernels", timing.measure,
                   "Time the CPU's kernels where several can run a layer, and take the fastest");
  command
      .add_option("--timing-cache", timing.cache,
                  "Take the times that this file has, and add those that are measured")
      ->type_name("FILE");
}

void check_timing_cache(const KernelTiming& timing) {
  if (timing.measure) check_output_file(timing.cache);
}

}  // namespace anneal
