// `--monitor FILE` of the commands that compute: samples of GPUs and CPU while the command works.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace anneal {

struct MonitorFlags {
  std::string path;                      // empty: not asked for
  double interval = 0.1;                 // seconds
  std::vector<std::string> inputs = {};  // files that the command reads: no samples go there
};

constexpr double kLeastMonitorInterval = 0.01, kMostMonitorInterval = 1e6;  // seconds

// To the commands of the application that run networks. The flags get the positional arguments of
// the command that is used as its inputs.
void add_monitor_flags(CLI::App& application, MonitorFlags& flags);
// What the work returns. If a file is given, samples are written to it from the work's call of
// `start`, which begins a thread, until the work ends, also by an error. A fault of the file is
// thrown after the work.
using MonitoredWork = std::function<int(const std::function<void()>& start)>;
int monitored(const MonitorFlags& flags, const MonitoredWork& work);
// Says on stderr that the fields of GPUs are not known; nothing if why_not is empty.
void say_no_gpus(const std::string& why_not);

}  // namespace anneal
