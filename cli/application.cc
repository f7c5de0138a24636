#include "anneal/cli/application.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/suggest.h"
#include "anneal/cli/monitor/monitor_flags.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/printable.h"
#include "anneal/core/version.h"

namespace anneal {
namespace {

constexpr int kClosedPipe = 128 + SIGPIPE;  // what a shell reports for it

constexpr const char* kFooter = R"(Start here:
  anneal build model.onnx -o model.engine      build an engine from a model
  anneal run model.engine --input random       run it once on random data
  anneal inspect model.engine                  show its layers and kernels

anneal COMMAND --help shows the flags of a command that are used most, --help-all shows all.

Exit status: 0 done; 1 a check failed; 2 wrong arguments, or a file is missing, damaged or does not
fit; 3 the model needs something that Anneal does not support; 4 a device failed or memory ran out;
70 an error inside Anneal, please report it.

Environment: ANNEAL_MAX_ISA=baseline|avx2|avx512|full limits the instruction sets (default: full,
all of the CPU).)";

int report(int status, std::string_view text) {
  std::fflush(stdout);
  fmt::print(stderr, "anneal: error: {}\n", printable(text, LineEnds::kIndented));
  return status;
}

int parse_and_run(int argc, const char* const* argv) {
  CLI::App application("Anneal builds fast inference engines from ONNX models.", "anneal");
  set_help_form(application);
  application.set_version_flag("--version", fmt::format("anneal {}", version()));
  application.require_subcommand(0, 1);
  Action action;
  add_build_command(application, action);
  add_run_command(application, action);
  std::function<void()> start_monitor;
  add_bench_command(application, action, start_monitor);
  add_inspect_command(application, action);
  add_refit_command(application, action);
  add_retune_command(application, action);
  add_time_kernels_command(application, action);
  add_calibrate_command(application, action);
  add_tune_command(application, action);
  add_eval_command(application, action);
  add_compare_command(application, action);
  add_check_command(application, action);
  add_bisect_command(application, action);
  add_passes_command(application, action);
  add_devices_command(application, action);
  add_monitor_command(application, action);
  MonitorFlags monitor;
  add_monitor_flags(application, monitor);
  application.footer(kFooter);  // commands added later would get it, too
  try {
    application.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return application.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    const auto used = application.get_subcommands();
    const std::string command = used.empty() ? "anneal" : "anneal " + used[0]->get_name();
    // CLI11 parses a word that is no command as an argument of the next command.
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    const bool is_unknown =
        error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) || used.empty();
    const std::string why = is_unknown ? explain_words(application, words) : "";
    return report(kBadInput,
                  fmt::format("{} (see {} --help)", why.empty() ? error.what() : why, command));
  }
  if (!action) {
    fmt::print("{}", application.help());
    return kSuccess;
  }
  const int status = monitored(monitor, [&](const std::function<void()>& start) {
    start_monitor = start;
    if (!application.got_subcommand("bench")) start();
    return action();
  });
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    throw std::system_error(errno, std::generic_category(), "cannot write to standard output");
  return status;
}

}  // namespace

int run_application(int argc, const char* const* argv) {
  // A reader that goes away (`anneal inspect x | head`) shall not skip destructors.
  std::signal(SIGPIPE, SIG_IGN);
  // Beyond the limit of a file's size (`ulimit -f`), writing fails instead.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return parse_and_run(argc, argv);
  } catch (const Error& error) {
    return report(exit_status(error.code()), error.what());
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe) return kClosedPipe;
    return report(kBadInput, error.what());
  } catch (const std::bad_alloc&) {
    return report(kNoDevice, "there is not enough memory");
  } catch (const std::length_error&) {
    return report(kNoDevice, "there is not enough memory: a size is larger than any memory");
  } catch (const std::exception& error) {
    return report(kOurBug, fmt::format("internal: {} (please report this)", error.what()));
  }
}

}  // namespace anneal
