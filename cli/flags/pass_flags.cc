#include "anneal/cli/flags/pass_flags.h"

namespace anneal {

void add_pass_flags(CLI::App& command, BuildOptions& options) {
  command
      .add_option("--skip-pass", options.skip_passes,
                  "Leave out optimizer passes (see anneal passes), or all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  command
      .add_option("--only-passes", options.only_passes, "Run these optimizer passes and no others")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  command.add_flag("--exact", options.exact,
                   "Leave out the passes and kernels that may change the last bits of results");
}

void add_kernel_flags(CLI::App& command, BuildOptions& options) {
  command
      .add_option("--skip-kernel", options.skip_kernels,
                  "Choose other kernels than these (anneal inspect shows an engine's)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
}

}  // namespace anneal
