// One function per command: adds it with its flags to the application. When the command line names
// it, the parser sets `action`, which does the work and returns the exit status.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace anneal {

using Action = std::function<int()>;
struct AblationOptions;  // cli/ablation/ablation_options.h

// on_built: called when all models are built, by processes that this one may have no thread for.
// It may be set later, and outlives the action.
void add_bench_command(CLI::App& application, Action& action,
                       const std::function<void()>& on_built);
void add_bisect_command(CLI::App& application, Action& action);
void add_build_command(CLI::App& application, Action& action);
void add_calibrate_command(CLI::App& application, Action& action);
void add_refit_command(CLI::App& application, Action& action);
void add_retune_command(CLI::App& application, Action& action);
void add_run_command(CLI::App& application, Action& action);
void add_check_command(CLI::App& application, Action& action);
void add_compare_command(CLI::App& application, Action& action);
void add_eval_command(CLI::App& application, Action& action);
void add_inspect_command(CLI::App& application, Action& action);
void add_monitor_command(CLI::App& application, Action& action);
void add_passes_command(CLI::App& application, Action& action);
void add_time_kernels_command(CLI::App& application, Action& action);
void add_tune_command(CLI::App& application, Action& action);
void add_devices_command(CLI::App& application, Action& action);
int bench_ablation(const AblationOptions& options);  // `anneal bench --ablation`
int list_all_passes();  // what `anneal passes` and `anneal build --list-passes` do

}  // namespace anneal
