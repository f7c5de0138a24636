#include "anneal/cli/flags/pass_flags.h"

namespace anneal {

void add_pass_flags(CLI::App& command, BuildOptions& options, HelpGroup group) {
  command
      .add_option("--skip-pass", options.skip_passes,
                  "Skip passes of the optimizer (anneal passes lists them), or all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group(group(help::kKernels));
  command
      .add_option("--only-passes", options.only_passes, "Run these passes of the optimizer only")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group(rarely(help::kKernels));
  command
      .add_flag("--exact", options.exact,
                "Skip passes and kernels that may change the last bits of results")
      ->group(group(help::kKernels));
  command
      .add_flag("--tf32", options.tf32,
                "Let GPU libraries round the operands of f32 products to TF32")
      ->group(rarely(help::kKernels));
}

void add_kernel_flags(CLI::App& command, BuildOptions& options) {
  command
      .add_option("--skip-kernel", options.skip_kernels,
                  "Exclude kernels (anneal inspect lists those of an engine)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group(rarely(help::kKernels));
}

}  // namespace anneal
