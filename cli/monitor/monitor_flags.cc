#include "anneal/cli/monitor/monitor_flags.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/monitor/monitor.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/printable.h"

namespace anneal {

void add_monitor_flags(CLI::App& application, MonitorFlags& flags) {
  for (const char* name : {"run", "bench", "tune", "eval"}) {
    CLI::App* const command = application.get_subcommand(name);
    CLI::Option* const path =
        command
            ->add_option("--monitor", flags.path,
                         "Write samples of GPUs and CPU while it works, as anneal monitor")
            ->type_name("FILE")
            ->group(rarely(help::kFiles));  // the help of bench and tune has no room
    command
        ->add_option("--monitor-interval", flags.interval, "Seconds between samples of --monitor")
        ->capture_default_str()
        ->check(between(kLeastMonitorInterval, kMostMonitorInterval))
        ->type_name("SECONDS")
        ->needs(path)
        ->group(rarely(help::kFiles));
    command->parse_complete_callback([command, &flags] {
      for (const CLI::Option* option : command->get_options())
        if (option->get_positional())
          for (const std::string& value : option->results()) flags.inputs.push_back(value);
    });
  }
}

int monitored(const MonitorFlags& flags, const MonitoredWork& work) {
  if (flags.path.empty()) return work([] {});
  check_output_file(flags.path);
  for (const std::string& input : flags.inputs)
    if (std::error_code error; std::filesystem::equivalent(input, flags.path, error))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("--monitor {} is what the command reads; give the samples another name",
                       flags.path));
  std::optional<MonitorThread> monitor;
  const int status = work([&] {
    monitor.emplace(flags.path, std::chrono::duration<double>(flags.interval));
    say_no_gpus(monitor->why_not());
  });
  if (monitor) monitor->stop();
  return status;
}

void say_no_gpus(const std::string& why_not) {
  if (!why_not.empty()) fmt::print(stderr, "anneal: no GPU is monitored: {}\n", printable(why_not));
}

}  // namespace anneal
